/* .gqac artefacts with correct checksums: graph, tables and packed weights are hostile.
 *
 * Anyone can compute a SHA-256, so a checksum protects against damage, not against a stranger. The
 * target sets the checksums of any input, and its mutations keep the layout: a section is changed,
 * and the sections after it move. The weights are packed as kernels read them. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "runtime/artefact.h"

/* The layout that artefact.h describes. The valid inputs of test_replay.c fail if it changes. */
enum {
    HEAD = 64,
    AT_LENGTH = 16,
    AT_SECTIONS = 24,
    AT_DIGEST = 32,
    ROW = 192,
    AT_OFFSET = 128,
    AT_BYTES = 136,
    AT_ROW_DIGEST = 160,
    WEIGHTS = 3,
    LINE = 64,
    PAGE = 4096,
    MOST_SECTIONS = 4 + ARTEFACT_MAX_FILES,
    MOST = 1 << 22
};

static uint32_t sections_of(const uint8_t *data, size_t size) {
    uint32_t n = 0;
    if (size >= HEAD)
        memcpy(&n, data + AT_SECTIONS, sizeof n);
    return n <= MOST_SECTIONS && size >= HEAD + n * (size_t)ROW ? n : 0;
}

static uint64_t field(const uint8_t *data, uint32_t section, int at) {
    uint64_t value;
    memcpy(&value, data + HEAD + section * (size_t)ROW + at, sizeof value);
    return value;
}

static void set_field(uint8_t *data, uint32_t section, int at, uint64_t value) {
    memcpy(data + HEAD + section * (size_t)ROW + at, &value, sizeof value);
}

static bool fits(const uint8_t *data, size_t size, uint32_t s) {
    const uint64_t offset = field(data, s, AT_OFFSET), bytes = field(data, s, AT_BYTES);
    return offset <= size && bytes <= size - offset;
}

/* Sets all checksums, and the length of the file. */
static void sign(uint8_t *data, size_t size) {
    const uint32_t n = sections_of(data, size);
    const uint64_t length = size;
    gqac_sha256 state;
    if (size < HEAD)
        return;
    memcpy(data + AT_LENGTH, &length, sizeof length);
    for (uint32_t s = 0; s < n; s++) {
        if (!fits(data, size, s))
            continue;
        gqac_sha256_init(&state);
        gqac_sha256_update(&state, data + field(data, s, AT_OFFSET),
                           (size_t)field(data, s, AT_BYTES));
        gqac_sha256_final(&state, data + HEAD + s * (size_t)ROW + AT_ROW_DIGEST);
    }
    memset(data + AT_DIGEST, 0, 32);
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, data, HEAD + n * (size_t)ROW);
    gqac_sha256_final(&state, data + AT_DIGEST);
}

static gqac_status run(const uint8_t *data, size_t size) {
    gqac_diag diag = {0};
    gqac_attachment *files = NULL;
    int n = 0;
    if (size > MOST)
        return GQAC_LIMIT;
    uint8_t *copy = aligned_alloc(LINE, (size + LINE) / LINE * LINE);
    memcpy(copy, data, size);
    sign(copy, size);
    if (fuzz_check(gqac_artefact_attachments(fuzz_file(copy, size), &files, &n, &diag), &diag) ==
        GQAC_OK)
        gqac_release(files);
    const gqac_status status = fuzz_model("m.gqac", copy, size);
    free(copy);
    return status;
}

/* Changes the content of one section, or the table itself. */
static size_t mutate(uint8_t *data, size_t size, size_t most, unsigned seed) {
    const uint32_t n = sections_of(data, size);
    const uint32_t chosen = n ? seed / 4 % n : 0;
    if (!n || most < size)
        return fuzz_change(data, size, most);
    for (uint32_t s = 0; s < n; s++)
        if (!fits(data, size, s))
            return fuzz_change(data, size, most);
    uint8_t *old = malloc(size), *section = malloc(most);
    size_t end = HEAD + n * (size_t)ROW;
    memcpy(old, data, size);
    for (uint32_t s = 0; s < n; s++) {
        const size_t step = s == WEIGHTS ? PAGE : LINE;
        const size_t offset = (end + step - 1) / step * step;
        size_t bytes = (size_t)field(old, s, AT_BYTES);
        if (offset > most || bytes > most - offset) { /* too large: unchanged */
            memcpy(data, old, size);
            end = size;
            break;
        }
        memset(data + end, 0, offset - end);
        memcpy(section, old + field(old, s, AT_OFFSET), bytes);
        if (s == chosen)
            bytes = fuzz_change(section, bytes, s == WEIGHTS ? bytes : most - offset);
        memcpy(data + offset, section, bytes);
        set_field(data, s, AT_OFFSET, offset);
        set_field(data, s, AT_BYTES, bytes);
        end = offset + bytes;
    }
    free(old);
    free(section);
    return end;
}

const fuzz_target fuzz_target_artefact = {"artefact", run, mutate};
