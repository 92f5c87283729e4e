/* Row kernels: norms, one head of a rotary embedding, chains of elementwise ops.
 *   norm: x = input + skip + bias; y = (x - mean) * rsqrt(mean square + epsilon) * weight + beta
 *   head: u' = fma(u, c, -(w t)), w' = fma(w, c, u t) for each pair (u, w) of channels
 * Sums over a row have 16 lanes, which are folded by the tree of the contract; tail lanes are
 * zeros. Each pass reads the row again, because it is in L1; so no scratch is needed. */
#include "targets/cpu/level/row_math.h"

#include "numerics/math.h"
#include "targets/cpu/rows.h"
#include "targets/heads.h"

/* ---- norms --------------------------------------------------------------- */

/* Runs the code for i = 0, 16, ... with the constant n = 16, which compilers fold, and then for the
 * remaining lanes. */
#define EACH_LANES(count, ...)                                                                     \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + 16 <= (count); i += 16) {                                                       \
            enum { n = 16 };                                                                       \
            __VA_ARGS__                                                                            \
        }                                                                                          \
        if (i < (count)) {                                                                         \
            const int n = (int)((count)-i);                                                        \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    } while (0)

typedef struct norm_row {
    const void *x, *skip, *bias, *weight, *beta;
    void *y, *sum;
} norm_row;

VEC_FN const void *norm_weights(const void *all, norm_period period, size_t row, int64_t n,
                                gqac_dtype type) {
    const size_t at = (size_t)(norm_weights_of(period, (int64_t)row) * n);
    return all ? (const unsigned char *)all + at * row_width(type) : NULL;
}

/* x of a norm, before normalisation. */
VEC_FN v16 norm_load(const cpu_norm *p, const norm_row *row, gqac_dtype type, int64_t i, int n) {
    v16 x = row_load(row->x, type, i, n);
    if (row->skip)
        x = v16_add(x, row_load(row->skip, type, i, n));
    if (p->round_sum)
        x = row_round(x, type);
    if (row->bias)
        x = v16_add(x, row_load(row->bias, p->bias_type, i, n));
    return x;
}

VEC_FN float norm_mean(const cpu_norm *p, const norm_row *row, gqac_dtype type) {
    v16 sum = v16_zero();
    EACH_LANES(p->n, { sum = v16_add(sum, norm_load(p, row, type, i, n)); });
    return v16_fold(sum) / (float)p->n;
}

/* The mean square of x, or of x - mean if centred. Also stores x if it is the sum of a fused Add
 * and is used. */
VEC_FN float norm_square(const cpu_norm *p, const norm_row *row, gqac_dtype type, float mean) {
    v16 square = v16_zero();
    EACH_LANES(p->n, {
        v16 x = norm_load(p, row, type, i, n);
        if (row->sum)
            row_store(row->sum, type, i, x, n);
        if (p->centred)
            x = v16_select(m16_range(0, n), v16_sub(x, v16_set1(mean)), v16_zero());
        square = v16_fma(x, x, square);
    });
    return v16_fold(square) / (float)p->n;
}

VEC_FN void norm_rows(const cpu_norm *p, gqac_dtype type, gqac_dtype weight_type, gqac_dtype y_type,
                      size_t begin, size_t end) {
    const size_t bytes = (size_t)p->n * row_width(type);
    for (size_t r = begin; r < end; r++) {
        norm_row row = {
            .x = (const unsigned char *)p->x + r * bytes,
            .skip =
                p->skip ? (const unsigned char *)p->skip + r % (size_t)p->skip_rows * bytes : NULL,
            .bias = p->bias,
            .weight = norm_weights(p->weight, p->weight_period, r, p->n, weight_type),
            .beta = norm_weights(p->beta, p->beta_period, r, p->n, p->beta_type),
            .y = (unsigned char *)p->y + r * (size_t)p->n * row_width(y_type),
            .sum = p->sum ? (unsigned char *)p->sum + r * bytes : NULL,
        };
        const float mean = p->centred ? norm_mean(p, &row, type) : 0.0f;
        const float inv = gqn_rsqrt(norm_square(p, &row, type, mean) + p->epsilon);
        if (p->mean)
            p->mean[r] = mean != mean ? gqn_as_f32(GQN_NAN_BITS) : mean;
        if (p->inv)
            p->inv[r] = inv;
        if (row.sum && type == GQAC_F32) { /* `sum` may be in the memory of x, and y in that of
                                              skip */
            row.x = row.sum;
            row.skip = row.bias = NULL;
        }
        EACH_LANES(p->n, {
            v16 x = norm_load(p, &row, type, i, n);
            if (p->centred)
                x = v16_sub(x, v16_set1(mean));
            x = v16_mul(x, v16_set1(inv));
            if (p->round_before)
                x = row_round(x, type);
            x = v16_mul(x, row_load(row.weight, weight_type, i, n));
            if (row.beta)
                x = v16_add(x, row_load(row.beta, p->beta_type, i, n));
            row_store(row.y, y_type, i, x, n);
        });
    }
}

static void norm_items(const cpu_norm *p, size_t begin, size_t end) {
    if (p->type == GQAC_F32 && p->weight_type == GQAC_F32 && p->y_type == GQAC_F32)
        norm_rows(p, GQAC_F32, GQAC_F32, GQAC_F32, begin, end);
    else
        norm_rows(p, p->type, p->weight_type, p->y_type, begin, end);
}

/* ---- rotary -------------------------------------------------------------- */

/* Normalises the head in `work`, which is padded to a multiple of 16. */
VEC_FN void head_norm(const cpu_head *p, float *work, gqac_dtype type) {
    v16 square = v16_zero();
    for (int64_t i = 0; i < p->size; i += 16) {
        const v16 x = v16_load(work + i);
        square = v16_fma(x, x, square);
    }
    const float inv = gqn_rsqrt(v16_fold(square) / (float)p->size + p->epsilon);
    EACH_LANES(p->size, {
        v16 x = v16_mul(v16_load(work + i), v16_set1(inv));
        if (p->round_before)
            x = row_round(x, p->x_type);
        x = v16_mul(x, row_load(p->weight, p->weight_type, i, n));
        v16_store(work + i, row_round(v16_one_nan(x), type));
    });
}

/* Pair i is (i, i + half). */
VEC_FN void rotate_far(const cpu_head *p, const float *x, const void *cos, const void *sin, void *y,
                       gqac_dtype table, gqac_dtype type) {
    EACH_LANES(p->half, {
        const v16 u = row_load(x, GQAC_F32, i, n), w = row_load(x, GQAC_F32, p->half + i, n);
        const v16 c = row_load(cos, table, i, n), t = row_load(sin, table, i, n);
        const v16 wt = v16_mul(w, t);
        row_store(y, type, i,
                  v16_fma(u, c, row_of_bits(v16i_sub(row_bits(wt), v16i_set1(INT32_MIN)))), n);
        row_store(y, type, p->half + i, v16_fma(w, c, v16_mul(u, t)), n);
    });
}

static float element(const void *p, gqac_dtype type, int64_t i) {
    if (type == GQAC_F32)
        return ((const float *)p)[i];
    const uint16_t half = ((const uint16_t *)p)[i];
    return type == GQAC_F16 ? gqn_f16_to_f32(half) : gqn_bf16_to_f32(half);
}

static void put_element(void *p, gqac_dtype type, int64_t i, float x) {
    const float y = x != x ? gqn_as_f32(GQN_NAN_BITS) : x;
    if (type == GQAC_F32)
        ((float *)p)[i] = y;
    else
        ((uint16_t *)p)[i] = type == GQAC_F16 ? gqn_f32_to_f16(y) : gqn_f32_to_bf16(y);
}

/* Pair i is (2i, 2i + 1). */
static void rotate_near(const cpu_head *p, const float *x, const void *cos, const void *sin,
                        void *y) {
    for (int64_t i = 0; i < p->half; i++) {
        const float u = x[2 * i], w = x[2 * i + 1];
        const float c = element(cos, p->table_type, i), t = element(sin, p->table_type, i);
        put_element(y, p->type, 2 * i, gqn_fma(u, c, -(w * t)));
        put_element(y, p->type, 2 * i + 1, gqn_fma(w, c, u * t));
    }
}

static void head(const cpu_head *p, const void *x, const void *cos, const void *sin, void *y) {
    float work[TARGET_HEAD_SIZE + 16];
    const float *from = x;
    if (p->weight || p->x_type != GQAC_F32) {
        EACH_LANES(p->size, { v16_store(work + i, row_load(x, p->x_type, i, n)); });
        if (p->weight)
            head_norm(p, work, p->type);
        from = work;
    }
    if (p->interleaved)
        rotate_near(p, from, cos, sin, y);
    else if (p->type == GQAC_F32 && p->table_type == GQAC_F32)
        rotate_far(p, from, cos, sin, y, GQAC_F32, GQAC_F32);
    else
        rotate_far(p, from, cos, sin, y, p->table_type, p->type);
    const int64_t turned = 2 * p->half;
    for (int64_t i = turned; i < p->size; i += 16) {
        const int n = p->size - i < 16 ? (int)(p->size - i) : 16;
        row_store(y, p->type, i, row_load(from, GQAC_F32, i, n), n);
    }
}

/* ---- chains -------------------------------------------------------------- */

#define EACH(expression)                                                                           \
    for (int i = 0; i < n; i += 16) {                                                              \
        const v16 x = v16_load(a + i);                                                             \
        v16_store(y + i, v16_one_nan(expression));                                                 \
    }                                                                                              \
    return
#define B v16_load(b + i)

VEC_FN v16 gelu(v16 x, v16 inner) {
    return v16_mul(v16_mul(v16_set1(0.5f), x), v16_add(v16_set1(1.0f), inner));
}

VEC_FN v16 gelu_tanh(v16 x) {
    const v16 cube = v16_mul(v16_mul(x, x), x);
    const v16 u = v16_add(x, v16_mul(v16_set1(0.044715f), cube));
    return gelu(x, row_tanh(v16_mul(v16_set1(0x1.988454p-1f), u)));
}

VEC_FN v16 fast_gelu(v16 x) {
    const v16 u = v16_add(v16_mul(v16_set1(0.035677408f), v16_mul(x, x)), v16_set1(0.7978845608f));
    return gelu(x, row_tanh(v16_mul(x, u)));
}

/* Computes a step for n elements, a multiple of 16; y may be a or b. */
static void step(const target_step *s, float *y, const float *a, const float *b, int n) {
    switch (s->kind) {
    case TARGET_ADD:
        EACH(v16_add(x, B));
    case TARGET_SUB:
        EACH(v16_sub(x, B));
    case TARGET_MUL:
        EACH(v16_mul(x, B));
    case TARGET_DIV:
        EACH(v16_div(x, B));
    case TARGET_NEG:
        EACH(row_of_bits(v16i_sub(row_bits(x), v16i_set1(INT32_MIN))));
    case TARGET_SQRT:
        EACH(row_sqrt(x));
    case TARGET_SIGMOID:
        EACH(row_sigmoid(x));
    case TARGET_TANH:
        EACH(row_tanh(x));
    case TARGET_ERF:
        EACH(row_erf(x));
    case TARGET_SWISH:
        EACH(v16_mul(x, row_sigmoid(v16_mul(v16_set1(s->param), x))));
    case TARGET_GELU:
        EACH(gelu(x, row_erf(v16_mul(x, v16_set1(0x1.6a09e6p-1f)))));
    case TARGET_GELU_TANH:
        EACH(gelu_tanh(x));
    case TARGET_FAST_GELU:
        EACH(fast_gelu(x));
    case TARGET_CAST:
        EACH(x);
    }
}

/* Elements [first, first + n) of a leaf in row r: in place, or a copy padded with zeros. */
VEC_FN const float *leaf_piece(const cpu_chain *p, const cpu_leaf *leaf, int64_t r, int64_t first,
                               int n, float *buffer) {
    if (leaf->form == TARGET_LEAF_ONE)
        return buffer; /* already filled */
    const int64_t at = leaf->form == TARGET_LEAF_FULL ? r * p->n + first : first;
    if (leaf->type == GQAC_F32 && n % 16 == 0)
        return (const float *)leaf->data + at;
    for (int i = 0; i < n; i += 16)
        v16_store(buffer + i, row_load(leaf->data, leaf->type, at + i, n - i < 16 ? n - i : 16));
    return buffer;
}

typedef struct chain_scratch {
    float leaves[TARGET_CHAIN_LEAVES][CPU_CHAIN_PIECE];
    float registers[TARGET_CHAIN_STEPS][CPU_CHAIN_PIECE];
} chain_scratch;

static void chain_piece(const cpu_chain *p, chain_scratch *scratch, int64_t r, int64_t first,
                        int n) {
    const float *values[TARGET_CHAIN_LEAVES + TARGET_CHAIN_STEPS];
    const int64_t at = r * p->n + first;
    const int full = (n + 15) & ~15;
    const bool direct = p->type == GQAC_F32 && n == full;
    for (int i = 0; i < p->n_leaves; i++)
        values[i] = leaf_piece(p, &p->leaves[i], r, first, n, scratch->leaves[i]);
    for (int i = 0; i < p->n_steps; i++) {
        const target_step *s = &p->steps[i];
        const bool last = i == p->n_steps - 1;
        float *y =
            last && direct ? (float *)p->y + at : scratch->registers[s->to - TARGET_CHAIN_LEAVES];
        step(s, y, values[s->a], values[s->b], full);
        for (int k = 0; s->type != GQAC_F32 && !last && k < full; k += 16)
            v16_store(y + k, row_round(v16_load(y + k), s->type));
        values[s->to] = y;
    }
    const float *y = values[p->steps[p->n_steps - 1].to];
    for (int i = 0; !direct && i < n; i += 16)
        row_store(p->y, p->type, at + i, v16_load(y + i), n - i < 16 ? n - i : 16);
}

static void fill_ones(const cpu_chain *p, chain_scratch *scratch, int n) {
    for (int i = 0; i < p->n_leaves; i++)
        if (p->leaves[i].form == TARGET_LEAF_ONE) {
            const v16 x = v16_set1(element(p->leaves[i].data, p->leaves[i].type, 0));
            for (int k = 0; k < n; k += 16)
                v16_store(scratch->leaves[i] + k, x);
        }
}

static void chain(const cpu_chain *p, size_t begin, size_t end) {
    chain_scratch scratch;
    fill_ones(p, &scratch, CPU_CHAIN_PIECE);
    for (size_t item = begin; item < end; item++) {
        const int64_t r = (int64_t)item / p->pieces;
        const int64_t first = (int64_t)item % p->pieces * CPU_CHAIN_PIECE;
        const int64_t left = p->n - first;
        chain_piece(p, &scratch, r, first, left < CPU_CHAIN_PIECE ? (int)left : CPU_CHAIN_PIECE);
    }
}

static void part(const cpu_chain *p, int64_t row, int64_t rows, int64_t first, int64_t n) {
    chain_scratch scratch;
    fill_ones(p, &scratch, n < CPU_CHAIN_PIECE ? (int)n : CPU_CHAIN_PIECE);
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t at = 0; at < n; at += CPU_CHAIN_PIECE) {
            const int64_t left = n - at;
            chain_piece(p, &scratch, r, first + at,
                        left < CPU_CHAIN_PIECE ? (int)left : CPU_CHAIN_PIECE);
        }
}

extern const struct cpu_row_kernels CPU_NAME(cpu_row);
const struct cpu_row_kernels CPU_NAME(cpu_row) = {
    .norm = norm_items, .head = head, .chain = chain, .part = part};
