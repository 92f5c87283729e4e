/* Packs com.microsoft.MatMulNBits with constant weights: the node becomes linear_nbits, with the
 * same numbers in the panels of ops/nbits.h. Scales and float zero points keep their type; a zero
 * point that is a code becomes a byte. Not packed: weights that are not constant or whose size
 * contradicts the attributes (the op's own eval reports the error), blocks longer than a piece of
 * the sum over k, and weights with so few columns that panels would be mostly padding. */
#include "ops/build.h"
#include "targets/cpu/nbits.h"

#include <string.h>

#include "ops/shared.h"
#include "targets/cpu/pack.h"

enum { A, B, SCALES, ZERO_POINTS, G_IDX, BIAS, LEAST_COLUMNS = 16, SMALL = 1 << 20 };

static const gqac_tensor *constant_of(const ir_node *node, int input) {
    return cpu_pack_constant(ir_node_input(node, input));
}

static bool has_size(const gqac_tensor *t, unsigned set, int64_t count) {
    return t && OP_IN(set, t->dtype) && gqac_tensor_count(t) == count;
}

/* Copies 16 words (a cache line) of each column at a time, so that the part of the panel that is
 * being written stays in the cache. */
void cpu_pack_words(const nbits_shape *s, const uint8_t *from, int64_t columns, uint8_t *to) {
    enum { LINE = 16 };
    const int64_t column_bytes = s->words * 4;
    for (int64_t first = 0; first < s->words; first += LINE) {
        const int64_t n = s->words - first < LINE ? s->words - first : LINE;
        for (int64_t c = 0; c < columns; c++) {
            const uint8_t *source = from + c * column_bytes + first * 4;
            uint8_t *line = to + first * NBITS_WORD_BYTES + c * 4;
            for (int64_t w = 0; w < n; w++) {
                uint32_t word;
                memcpy(&word, source + w * 4, sizeof word);
                word = nbits_pack_word(word, s->bits);
                memcpy(line + w * NBITS_WORD_BYTES, &word, sizeof word);
            }
        }
    }
}

static gqac_status pack_codes(const ir_node *node, const nbits_shape *s, gqac_poll *poll,
                              ir_value **value, gqac_diag *diag) {
    void *data;
    GQAC_TRY(cpu_pack_add(ir_node_input(node, B), "packed", GQAC_U8,
                          (int64_t[]){s->panels, s->words, NBITS_WORD_BYTES}, value, &data, diag));
    const uint8_t *from = constant_of(node, B)->data;
    for (int64_t p = 0; p < s->panels; p++) {
        const int64_t first = p * NBITS_COLUMNS, left = s->n - first;
        GQAC_TRY(gqac_poll_check(poll, diag));
        cpu_pack_words(s, from + first * s->words * 4, left < NBITS_COLUMNS ? left : NBITS_COLUMNS,
                       (uint8_t *)data + p * s->words * NBITS_WORD_BYTES);
    }
    return GQAC_OK;
}

/* Converts [n,blocks], elements of 2 or 4 bytes, to [panels,blocks,64]. */
static void transpose_rows(const nbits_shape *s, const uint8_t *from, size_t width, uint8_t *to) {
    for (int64_t n = 0; n < s->n; n++) {
        uint8_t *column =
            to +
            (size_t)(n / NBITS_COLUMNS * s->blocks * NBITS_COLUMNS + n % NBITS_COLUMNS) * width;
        for (int64_t b = 0; b < s->blocks; b++)
            memcpy(column + (size_t)(b * NBITS_COLUMNS) * width,
                   from + (size_t)(n * s->blocks + b) * width, width);
    }
}

static gqac_status pack_rows(const ir_node *node, const nbits_shape *s, int input, ir_value **value,
                             gqac_diag *diag) {
    const gqac_tensor *from = constant_of(node, input);
    const int64_t dims[3] = {s->panels, s->blocks, NBITS_COLUMNS};
    void *data;
    GQAC_TRY(
        cpu_pack_add(ir_node_input(node, input), "packed", from->dtype, dims, value, &data, diag));
    if (from->dtype != GQAC_U8) {
        transpose_rows(s, from->data, op_width(from->dtype), data);
        return GQAC_OK;
    }
    const int64_t row = (s->blocks * s->bits + 7) / 8;
    uint8_t *codes = data;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t b = 0; b < s->blocks; b++) {
            const unsigned byte = ((const uint8_t *)from->data)[n * row + b * s->bits / 8];
            codes[(n / NBITS_COLUMNS * s->blocks + b) * NBITS_COLUMNS + n % NBITS_COLUMNS] =
                (uint8_t)(byte >> b * s->bits % 8 & ((1u << s->bits) - 1));
        }
    return GQAC_OK;
}

static bool can_pack(const ir_node *node, const nbits_shape *s) {
    const int64_t code_bytes = s->words * 4;
    const gqac_tensor *zeros = constant_of(node, ZERO_POINTS);
    const bool few = s->n < LEAST_COLUMNS && s->words * NBITS_WORD_BYTES > SMALL;
    if (s->block > NBITS_MAX_BLOCK || few || ir_node_input(node, G_IDX) ||
        !has_size(constant_of(node, B), OP_BIT(U8), s->n * code_bytes) ||
        !has_size(constant_of(node, SCALES), OP_FLOATS, s->n * s->blocks))
        return false;
    if (!ir_node_input(node, ZERO_POINTS))
        return true;
    return has_size(zeros, OP_FLOATS, s->n * s->blocks) ||
           has_size(zeros, OP_BIT(U8), s->n * ((s->blocks * s->bits + 7) / 8));
}

gqac_status cpu_pack_nbits(ir_node *node, const op_options *options, gqac_poll *poll, bool *packed,
                           gqac_diag *diag) {
    const nbits_shape s =
        nbits_shape_of(ir_attr_int(node, "K"), ir_attr_int(node, "N"),
                       (int)ir_attr_int(node, "bits"), ir_attr_int(node, "block_size"));
    ir_value *in[5] = {ir_node_input(node, A)};
    if (!can_pack(node, &s))
        return GQAC_OK;
    GQAC_TRY(pack_codes(node, &s, poll, &in[1], diag));
    GQAC_TRY(pack_rows(node, &s, SCALES, &in[2], diag));
    if (ir_node_input(node, ZERO_POINTS))
        GQAC_TRY(pack_rows(node, &s, ZERO_POINTS, &in[3], diag));
    in[4] = ir_node_input(node, BIAS);
    ir_builder b = {.graph = node->graph, .before = node, .diag = diag};
    ir_value *y = OP_BUILD(&b, "linear_nbits", .in = {in[0], in[1], in[2], in[3], in[4]},
                           .ints = {{"k", s.k},
                                    {"n", s.n},
                                    {"bits", s.bits},
                                    {"block_size", s.block},
                                    {"bf16", options->bf16}},
                           .of = node, .same = {"accuracy_level"});
    GQAC_TRY(cpu_pack_replace(&b, node, node->outputs[0], y));
    *packed = true;
    return GQAC_OK;
}
