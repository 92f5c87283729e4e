/* See support_rows.h. The bytes of a row follow from its tag, slot, head and element; in a sequence
 * of a quantised kind they are converted to codes, by the formulas of this file. */
#include "kv/support_rows.h"

#include <math.h>
#include <string.h>

#include "numerics/convert.h"
#include "unit.h"

const char *const kinds[KINDS] = {"contiguous", "paged", "windowed", "quantised", "quantised4"};

const kv_slot slots[SLOTS] = {
    {"past.0.key", "present.0.key", 2, 3, GQAC_F32, .columns = false, .coded = true},
    {"past.0.value", "present.0.value", 1, 5, GQAC_F16, .window = 20, .coded = true},
    {"past.1.key", "present.1.key", 3, 1, GQAC_U8, .columns = false},
    {"past.1.value", "present.1.value", 2, 3, GQAC_F16, .columns = true, .coded = true},
    {"past.2.key", "present.2.key", 1, 66, GQAC_BF16, true, .window = WINDOW, .coded = true},
};

unsigned seed;
unsigned any(unsigned n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static size_t head_bytes(int slot) {
    return (size_t)slots[slot].head_size * (size_t)gqac_dtype_bits(slots[slot].dtype) / 8;
}

static unsigned char byte_of(unsigned tag, int slot, int64_t head, size_t i) {
    unsigned x = (tag * 2654435761u) ^ ((unsigned)slot * 97u + (unsigned)head * 31u + (unsigned)i);
    return (unsigned char)((x ^ (x >> 13)) * 0x9E3779B1u >> 24);
}

/* ---- the effect of a kind on rows ---------------------------------------- */

bool is_kind(const kv_sequence *s, const char *kind) {
    return !strcmp(kv_sequence_kind(s), kind);
}

int bits_of(const char *kind) {
    return !strcmp(kind, "quantised") ? 8 : !strcmp(kind, "quantised4") ? 4 : 0;
}

static double number_of(gqac_dtype dtype, const void *at, int64_t i) {
    const uint16_t *halves = at;
    const float *floats = at;
    return (double)(dtype == GQAC_F32   ? floats[i]
                    : dtype == GQAC_F16 ? gqn_f16_to_f32(halves[i])
                                        : gqn_bf16_to_f32(halves[i]));
}

/* The scales of codes of 8 and of 4 bits, by the definition in kv.h, in double precision. */
static double scale_of_8(bool half, double amax) {
    int e = half ? -24 : -126;
    while (amax >= ldexp(127.5, e) && e < (half ? 9 : 121))
        e++;
    return ldexp(1, e);
}

static double scale_of_4(bool half, double amax) {
    int e = 0;
    const double s = frexp((double)(float)(amax / 7), &e), least = ldexp(1, half ? -20 : -126);
    const double rounded = ldexp(floor(s * 32 + 0.5), e - 5);
    return rounded < least ? least : rounded;
}

/* Converts a row to codes times a scale. */
static void recode(const kv_slot *slot, int bits, unsigned char *row) {
    const bool half = slot->dtype == GQAC_F16;
    const int most = bits == 8 ? 127 : 7;
    uint16_t *halves = (uint16_t *)(void *)row;
    double amax = 0;
    for (int64_t d = 0; d < slot->head_size; d++) {
        const double x = fabs(number_of(slot->dtype, row, d));
        amax = x <= amax ? amax : x; /* NaN is kept */
        if (!(x < HUGE_VAL))
            amax = NAN;
        if (isnan(amax))
            break;
    }
    if (isnan(amax)) {
        memset(row, 0xFF, (size_t)(slot->head_size * (slot->dtype == GQAC_F32 ? 4 : 2)));
        return;
    }
    const float scale = (float)(bits == 8 ? scale_of_8(half, amax) : scale_of_4(half, amax));
    for (int64_t d = 0; d < slot->head_size; d++) {
        const float x = (float)number_of(slot->dtype, row, d) * (1 / scale);
        int code = (int)nearbyintf(x);
        code = code > most ? most : code < -most ? -most : code;
        const float y = (float)code * scale;
        if (slot->dtype == GQAC_F32)
            memcpy(row + 4 * d, &y, 4);
        else
            halves[d] = half ? gqn_f32_to_f16(y) : gqn_f32_to_bf16(y);
    }
}

/* In slots with a window, rows before this one are missing in a sequence whose greatest length was
 * `length`. */
int64_t kept_from(const kv_sequence *s, int64_t length) {
    const int64_t first = length + 1 - WINDOW - GQAC_KV_BLOCK;
    return is_kind(s, "windowed") && first > 0 ? first / GQAC_KV_BLOCK * GQAC_KV_BLOCK : 0;
}

/* ---- writing and comparing rows through canonical memory ----------------- */

void write_tags(kv_sequence *s, int64_t position, int64_t count, const unsigned *tags) {
    static unsigned char rows[MOST_ROW * (MOST + 3)];
    const int64_t stride = count + any(3);
    for (int slot = 0; slot < SLOTS; slot++) {
        const size_t bytes = head_bytes(slot);
        memset(rows, 0xEE, sizeof rows);
        for (int64_t h = 0; h < slots[slot].heads; h++)
            for (int64_t i = 0; i < count; i++)
                for (size_t b = 0; b < bytes; b++)
                    rows[(size_t)(h * stride + i) * bytes + b] = byte_of(tags[i], slot, h, b);
        kv_write_rows(s, slot, position, count, rows, stride);
    }
}

/* The expected bytes of a row of a head. */
static void row_of(const kv_sequence *s, int slot, int64_t head, unsigned tag,
                   unsigned char row[MOST_ROW]) {
    for (size_t b = 0; b < head_bytes(slot); b++)
        row[b] = byte_of(tag, slot, head, b);
    const int bits = bits_of(kv_sequence_kind(s));
    if (slots[slot].coded && bits)
        recode(&slots[slot], bits, row);
}

/* True if rows [position, position + count) have these tags. In slots with a window, rows before
 * `kept` are NaN bytes. A read must write nothing else. */
bool holds_tags(const kv_sequence *s, int64_t position, int64_t count, const unsigned *tags,
                int64_t kept) {
    static unsigned char rows[MOST_ROW * (MOST + 3)];
    _Alignas(4) unsigned char want[MOST_ROW];
    const int64_t stride = count + any(3);
    bool same = true;
    for (int slot = 0; slot < SLOTS; slot++) {
        const size_t bytes = head_bytes(slot);
        memset(rows, 0xEE, sizeof rows);
        kv_read_rows(s, slot, position, count, rows, stride);
        for (int64_t h = 0; h < slots[slot].heads; h++)
            for (int64_t i = 0; i < stride; i++) {
                if (i < count && (!slots[slot].window || position + i >= kept))
                    row_of(s, slot, h, tags[i], want);
                else
                    memset(want, i < count ? 0xFF : 0xEE, bytes);
                same = same && !memcmp(rows + (size_t)(h * stride + i) * bytes, want, bytes);
            }
    }
    return same;
}

bool holds_byte(const kv_sequence *s, int64_t position, int64_t count, int byte) {
    static unsigned char rows[MOST_ROW * MOST];
    bool same = true;
    for (int slot = 0; slot < SLOTS; slot++) {
        const size_t n = head_bytes(slot) * (size_t)(slots[slot].heads * count);
        kv_read_rows(s, slot, position, count, rows, count);
        for (size_t i = 0; i < n; i++)
            same = same && rows[i] == byte;
    }
    return same;
}

kv_pool *new_pool(void) {
    kv_pool *pool = NULL;
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(SLOTS, slots, &pool, NULL), GQAC_OK);
    return pool;
}

kv_sequence *new_sequence(kv_pool *pool, const char *kind, int64_t capacity) {
    kv_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(kv_sequence_create(pool, kind, capacity, &s, NULL), GQAC_OK);
    return s;
}

/* Appends rows with tags from + position. */
gqac_status append(kv_sequence *s, int64_t count, unsigned from) {
    unsigned tags[MOST];
    const int64_t length = kv_sequence_length(s);
    GQAC_TRY(kv_sequence_reserve(s, length + count, NULL));
    for (int64_t i = 0; i < count; i++)
        tags[i] = from + (unsigned)(length + i);
    write_tags(s, length, count, tags);
    kv_sequence_publish(s, length + count);
    return GQAC_OK;
}

bool holds_from(const kv_sequence *s, unsigned from) {
    unsigned tags[MOST];
    for (unsigned i = 0; i < MOST; i++)
        tags[i] = from + i;
    return holds_tags(s, 0, kv_sequence_length(s), tags, kept_from(s, kv_sequence_length(s)));
}
