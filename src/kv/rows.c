/* Rows of a head between a block and canonical memory: copied, transposed, or as codes. kv.h has
 * the formula of codes. */
#include <assert.h>
#include <string.h>

#include "kv/kv_impl.h"
#include "numerics/convert.h"

enum { AT_ONCE = 16 /* rows that are transposed, or coded, at once */ };

/* write: columns[d * GQAC_KV_BLOCK + i] = rows[i * size + d] for i < n; read: the other
 * direction. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a type cannot have parentheses */
#define TRANSPOSE(type)                                                                            \
    static void write_##type(type *columns, const type *rows, int64_t size, int64_t n) {           \
        for (int64_t first = 0; first < n; first += AT_ONCE)                                       \
            for (int64_t d = 0; d < size; d++)                                                     \
                for (int64_t i = first; i < n && i < first + AT_ONCE; i++)                         \
                    columns[d * GQAC_KV_BLOCK + i] = rows[i * size + d];                           \
    }                                                                                              \
    static void read_##type(const type *columns, type *rows, int64_t size, int64_t n) {            \
        for (int64_t first = 0; first < n; first += AT_ONCE)                                       \
            for (int64_t d = 0; d < size; d++)                                                     \
                for (int64_t i = first; i < n && i < first + AT_ONCE; i++)                         \
                    rows[i * size + d] = columns[d * GQAC_KV_BLOCK + i];                           \
    }
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)
/* NOLINTEND(bugprone-macro-parentheses) */

static void write_columns(size_t width, void *columns, const void *rows, int64_t size, int64_t n) {
    if (width == 1)
        write_uint8_t(columns, rows, size, n);
    else if (width == 2)
        write_uint16_t(columns, rows, size, n);
    else if (width == 4)
        write_uint32_t(columns, rows, size, n);
    else
        write_uint64_t(columns, rows, size, n);
}

static void read_columns(size_t width, const void *columns, void *rows, int64_t size, int64_t n) {
    if (width == 1)
        read_uint8_t(columns, rows, size, n);
    else if (width == 2)
        read_uint16_t(columns, rows, size, n);
    else if (width == 4)
        read_uint32_t(columns, rows, size, n);
    else
        read_uint64_t(columns, rows, size, n);
}

/* ---- codes ----------------------------------------------------------------- */

enum { PIECE = 64 /* elements of a row that are widened at once; even */ };

/* 2^e, for -126 <= e <= 127. */
static float power(int e) {
    return gqn_as_f32((gqn_u32)(e + 127) << 23);
}

/* Widens n elements from `at` on. */
static void widen(gqac_dtype dtype, const void *from, int64_t at, int64_t n, float *to) {
    const uint16_t *halves = (const uint16_t *)from + at;
    if (dtype == GQAC_F32)
        memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < n && dtype == GQAC_F16; i++)
        to[i] = gqn_f16_to_f32(halves[i]);
    for (int64_t i = 0; i < n && dtype == GQAC_BF16; i++)
        to[i] = gqn_bf16_to_f32(halves[i]);
}

/* Stores n numbers of the type, from `at` on. */
static void narrow(gqac_dtype dtype, const float *from, int64_t n, void *to, int64_t at) {
    uint16_t *halves = (uint16_t *)to + at;
    if (dtype == GQAC_F32)
        memcpy((float *)to + at, from, (size_t)n * sizeof *from);
    for (int64_t i = 0; i < n && dtype == GQAC_F16; i++)
        halves[i] = gqn_f32_to_f16(from[i]);
    for (int64_t i = 0; i < n && dtype == GQAC_BF16; i++)
        halves[i] = gqn_f32_to_bf16(from[i]);
}

/* The scale of codes of 8 bits; amax: bits of the largest magnitude. */
static float scale_of_8(gqac_dtype dtype, gqn_u32 amax) {
    const gqn_u32 up = 0x10000u; /* carries into the exponent from 127.5 / 64 = 1.9921875 on */
    const int least = dtype == GQAC_F16 ? -24 : -126, most = dtype == GQAC_F16 ? 9 : 121;
    const int e = (int)((amax + up) >> 23) - 127 - 6;
    return power(e < least ? least : e > most ? most : e);
}

/* The same for 4 bits: five significant bits are the first and four of the stored 23. */
static float scale_of_4(gqac_dtype dtype, gqn_u32 amax) {
    const gqn_u32 low = (1u << 19) - 1;
    const float least = power(dtype == GQAC_F16 ? -20 : -126);
    const float s = gqn_as_f32((gqn_as_u32(gqn_as_f32(amax) / 7.0f) + (1u << 18)) & ~low);
    return s < least ? least : s;
}

/* The scale of a row of `size` elements, which begins at element `at`. */
static float scale_of(gqac_dtype dtype, int bits, const void *rows, int64_t at, int64_t size) {
    gqn_u32 amax = 0;
    float x[PIECE];
    for (int64_t d = 0, n; d < size; d += n) {
        n = size - d < PIECE ? size - d : PIECE;
        widen(dtype, rows, at + d, n, x);
        for (int64_t i = 0; i < n; i++) { /* the bits of floats >= 0 have the order of the floats */
            const gqn_u32 a = gqn_as_u32(x[i]) & 0x7fffffffu;
            amax = a > amax ? a : amax;
        }
    }
    if (amax >= GQN_INF_BITS)
        return gqn_as_f32(GQN_NAN_BITS);
    return bits == 4 ? scale_of_4(dtype, amax) : scale_of_8(dtype, amax);
}

/* Half to even. */
static int8_t round_code(float x, int64_t count) {
#ifdef GQAC_CONTROL_CODES_BY_ROWS /* negative control: codes of several rows are cut off */
    if (count > 1)
        return (int8_t)x;
#endif
    (void)count;
    return (int8_t)((x + 0x1.8p23f) - 0x1.8p23f);
}

/* Codes of n of the elements of one of `count` rows. */
static void code(const float *x, int64_t n, float scale, int bits, int64_t count, int8_t *codes) {
    const float most = bits == 4 ? 7.0f : 127.0f;
    const bool number = scale == scale;
    const float by = number ? 1.0f / scale : 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const float y = number ? x[i] * by : 0.0f;
        const float z = y > most ? most : y < -most ? -most : y;
        codes[i] = round_code(z, count);
    }
}

/* Codes of 4 bits become bytes in place, two each; returns the number of bytes. The second half of
 * the last byte of an odd row stands for 0. */
static int64_t join_codes(int8_t *codes, int64_t n) {
    for (int64_t i = 0; i < n; i += 2) {
        const int high = i + 1 < n ? codes[i + 1] : 0;
        codes[i / 2] = (int8_t)(uint8_t)((codes[i] + 8) | (high + 8) << 4);
    }
    return (n + 1) / 2;
}

/* Codes of n <= AT_ONCE of `count` rows; `codes` and `scales` are those of the first of the n. */
static void write_codes(const kv_slot *s, int bits, int64_t n, int64_t count, const void *rows,
                        int64_t at, int8_t *codes, float *scales) {
    const int64_t size = s->head_size;
    int8_t some[AT_ONCE][PIECE];
    float x[PIECE];
    for (int64_t i = 0; i < n; i++)
        scales[i] = scale_of(s->dtype, bits, rows, at + i * size, size);
#ifdef GQAC_CONTROL_SCALE_BY_ROWS /* negative control: rows of one call share a scale */
    for (int64_t i = 1; i < n; i++)
        scales[i] = scales[0];
#endif
    for (int64_t d = 0, m; d < size; d += m) {
        const int64_t to = kv_code_bytes(d, bits);
        int64_t bytes = 0;
        m = size - d < PIECE ? size - d : PIECE;
        for (int64_t i = 0; i < n; i++) {
            widen(s->dtype, rows, at + i * size + d, m, x);
            code(x, m, scales[i], bits, count, some[i]);
            bytes = bits == 4 ? join_codes(some[i], m) : m;
            if (!s->columns)
                memcpy(codes + i * kv_code_bytes(size, bits) + to, some[i], (size_t)bytes);
        }
        for (int64_t c = 0; c < bytes && s->columns; c++)
            for (int64_t i = 0; i < n; i++)
                codes[(to + c) * GQAC_KV_BLOCK + i] = some[i][c];
    }
}

/* Code d of a row whose bytes are `step` apart. */
static int code_at(const int8_t *codes, int bits, int64_t step, int64_t d) {
    return bits == 4 ? ((uint8_t)codes[d / 2 * step] >> 4 * (d % 2) & 15) - 8 : codes[d * step];
}

/* One row as numbers of its type; NaN bytes where the scale is NaN. */
static void read_codes(const kv_slot *s, int bits, const int8_t *codes, float scale, void *rows,
                       int64_t at) {
    const size_t width = (size_t)gqac_dtype_bits(s->dtype) / 8;
    const int64_t size = s->head_size, step = s->columns ? GQAC_KV_BLOCK : 1;
    float x[PIECE];
    if (scale != scale) {
        memset((char *)rows + (size_t)at * width, KV_UNWRITTEN, (size_t)size * width);
        return;
    }
    for (int64_t d = 0, n; d < size; d += n) {
        n = size - d < PIECE ? size - d : PIECE;
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)code_at(codes, bits, step, d + i) * scale;
        narrow(s->dtype, x, n, rows, at + d);
    }
}

/* ---- rows of a head --------------------------------------------------------- */

/* The first element of a row of a head; in columns, the next elements follow at a distance of
 * GQAC_KV_BLOCK elements. */
static size_t element_at(const kv_plane *p, int64_t head, int64_t row) {
    const size_t bytes = (size_t)p->size * p->width, step = p->columns ? p->width : bytes;
    return p->at + (size_t)head * GQAC_KV_BLOCK * bytes + (size_t)row * step;
}

void kv_rows_write(const kv_pool *pool, kv_part part, int slot, unsigned char *memory, int64_t head,
                   int64_t row, int64_t count, const void *rows) {
    const kv_slot *s = kv_pool_slot(pool, slot);
    kv_plane planes[KV_PLANES];
    const int bits = kv_slot_bits(s, part);
    (void)kv_slot_planes(pool, part, slot, planes);
    if (bits)
        for (int64_t i = 0; i < count; i += AT_ONCE)
            write_codes(s, bits, count - i < AT_ONCE ? count - i : AT_ONCE, count, rows,
                        i * s->head_size,
                        (int8_t *)(memory + element_at(&planes[0], head, row + i)),
                        (float *)(void *)(memory + element_at(&planes[1], head, row + i)));
    else if (s->columns)
        write_columns(planes[0].width, memory + element_at(&planes[0], head, row), rows,
                      s->head_size, count);
    else
        memcpy(memory + element_at(&planes[0], head, row), rows,
               (size_t)(count * s->head_size) * planes[0].width);
}

void kv_rows_read(const kv_pool *pool, kv_part part, int slot, const unsigned char *memory,
                  int64_t head, int64_t row, int64_t count, void *rows) {
    const kv_slot *s = kv_pool_slot(pool, slot);
    kv_plane planes[KV_PLANES];
    const int bits = kv_slot_bits(s, part);
    (void)kv_slot_planes(pool, part, slot, planes);
    if (bits)
        for (int64_t i = 0; i < count; i++)
            read_codes(
                s, bits, (const int8_t *)(memory + element_at(&planes[0], head, row + i)),
                *(const float *)(const void *)(memory + element_at(&planes[1], head, row + i)),
                rows, i * s->head_size);
    else if (s->columns)
        read_columns(planes[0].width, memory + element_at(&planes[0], head, row), rows,
                     s->head_size, count);
    else
        memcpy(rows, memory + element_at(&planes[0], head, row),
               (size_t)(count * s->head_size) * planes[0].width);
}

/* True if n elements have neither a NaN nor an infinity. */
static bool are_finite(gqac_dtype dtype, const void *elements, int64_t n) {
    const uint16_t exponent = dtype == GQAC_F16 ? 0x7c00 : 0x7f80;
    const uint32_t *words = elements;
    const uint16_t *halves = elements;
    bool finite = true;
    for (int64_t i = 0; i < n && dtype == GQAC_F32; i++)
        finite &= (words[i] & 0x7f800000u) != 0x7f800000u;
    for (int64_t i = 0; i < n && (dtype == GQAC_F16 || dtype == GQAC_BF16); i++)
        finite &= (halves[i] & exponent) != exponent;
    return finite;
}

int64_t kv_rows_finite(const kv_pool *pool, kv_part part, int slot, const unsigned char *memory,
                       int64_t head, int64_t row, int64_t count) {
    const kv_slot *s = kv_pool_slot(pool, slot);
    kv_plane planes[KV_PLANES];
    const int n = kv_slot_planes(pool, part, slot, planes);
    const kv_plane *p = &planes[n - 1]; /* of codes, the scales */
    const gqac_dtype dtype = n > 1 ? GQAC_F32 : s->dtype;
    const unsigned char *at = memory + element_at(p, head, row);
    int64_t good = count;
    for (int64_t d = 0; d < p->size && p->columns; d++)
        while (good && !are_finite(dtype, at + (size_t)(d * GQAC_KV_BLOCK) * p->width, good))
            good--;
    for (int64_t i = 0; i < good && !p->columns; i++)
        if (!are_finite(dtype, at + (size_t)(i * p->size) * p->width, p->size))
            good = i;
    return good;
}

unsigned char *kv_rows_codes(const kv_pool *pool, kv_part part, int slot, unsigned char *memory,
                             int64_t head, int64_t row, float **scales) {
    kv_plane planes[KV_PLANES];
    const int n = kv_slot_planes(pool, part, slot, planes);
    assert(n == KV_PLANES && !planes[0].columns);
    (void)n;
    *scales = (float *)(void *)(memory + element_at(&planes[1], head, row));
    return memory + element_at(&planes[0], head, row);
}
