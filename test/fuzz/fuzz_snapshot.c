/* Snapshot files with correct checksums. The first byte chooses the model, unless it is the 'G' of
 * a file. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/saved.h"

uint8_t *fuzz_sign_snapshot(int which, const uint8_t *data, size_t size) {
    uint8_t *copy = aligned_alloc(64, (size + 64) / 64 * 64);
    saved_header h;
    gqac_sha256 state;
    gqac_diag diag = {0};
    memcpy(copy, data, size);
    if (size < sizeof h)
        return copy;
    memcpy(&h, copy, sizeof h);
    h.magic[0] = 'G';
    h.bytes = size;
    if (saved_fingerprint(fuzz_program(which), h.program, &diag) != GQAC_OK)
        fuzz_broken("the fingerprint of a known model");
    for (int s = 0; s < SAVED_SECTIONS; s++) {
        const saved_part *part = &h.sections[s];
        if (part->offset > size || part->bytes > size - part->offset)
            continue;
        gqac_sha256_init(&state);
        gqac_sha256_update(&state, copy + part->offset, (size_t)part->bytes);
        gqac_sha256_final(&state, h.sections[s].digest);
    }
    memset(h.digest, 0, sizeof h.digest);
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, &h, sizeof h);
    gqac_sha256_final(&state, h.digest);
    memcpy(copy, &h, sizeof h);
    return copy;
}

static gqac_status use(const gqac_program *program, const gqac_snapshot *snapshot,
                       gqac_diag *diag) {
    const int64_t id = 1;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    gqac_status status = fuzz_check(gqac_snapshot_restore(snapshot, NULL, &sequence, diag), diag);
    if (status == GQAC_OK)
        status = fuzz_check(gqac_context_create(program, 1, &context, diag), diag);
    const int64_t length = status == GQAC_OK ? gqac_sequence_length(sequence) : 0;
    if (length != gqac_snapshot_length(snapshot))
        fuzz_broken("the length of a snapshot");
    if (status == GQAC_OK)
        status = fuzz_check(gqac_sequence_append(context, sequence, &id, 1, 1, diag), diag);
    if (status == GQAC_OK && gqac_sequence_rewind(sequence, length / 2, diag) == GQAC_OK)
        status = fuzz_check(gqac_sequence_append(context, sequence, &id, 1, 1, diag), diag);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    return status;
}

static gqac_status run(const uint8_t *data, size_t size) {
    const int which = size && data[0] != 'G' ? data[0] % FUZZ_PROGRAMS : 0;
    const gqac_program *program = fuzz_program(which);
    const int64_t before = gqac_program_memory_used(program);
    uint8_t *copy = fuzz_sign_snapshot(which, data, size);
    const char *path = fuzz_file(copy, size);
    gqac_diag diag = {0};
    gqac_snapshot_file *file = NULL;
    gqac_snapshot *snapshot = NULL;
    if (fuzz_check(gqac_snapshot_file_open(path, true, &file, &diag), &diag) == GQAC_OK)
        gqac_snapshot_file_free(file);
    gqac_status status = fuzz_check(gqac_snapshot_load(program, path, &snapshot, &diag), &diag);
    if (status == GQAC_OK)
        status = use(program, snapshot, &diag);
    gqac_snapshot_free(snapshot);
    if (gqac_program_memory_used(program) != before)
        fuzz_broken("memory of a program is not given back");
    free(copy);
    return status;
}

const fuzz_target fuzz_target_snapshot = {"snapshot", run, NULL};
