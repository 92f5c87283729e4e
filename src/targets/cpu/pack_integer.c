/* Packs MatMulInteger with constant B: the node becomes linear_integer, with the same numbers in
 * the panels of ops/integer.h. Not packed: stacks of matrices, zero points of B that are not
 * constant, and a k for which 32-bit sums might overflow. */
#include "ops/build.h"
#include "ops/integer.h"
#include "targets/cpu/pack.h"

enum { A, B, A_ZERO, B_ZERO };

static int code_of(const gqac_tensor *t, int64_t index) {
    return t->dtype == GQAC_U8 ? ((const uint8_t *)t->data)[index] - 128
                               : ((const int8_t *)t->data)[index];
}

static void pack_codes(const gqac_tensor *b, const gqac_tensor *zero, int8_t *to, int32_t *terms) {
    const int64_t k_end = b->dims[0], n_end = b->dims[1], words = integer_words(k_end);
    for (int64_t k = 0; k < k_end; k++)
        for (int64_t n = 0; n < n_end; n++) {
            const int64_t panel = n / INTEGER_COLUMNS, column = n % INTEGER_COLUMNS;
            const int code = code_of(b, k * n_end + n);
            to[(panel * words + k / INTEGER_WORD) * INTEGER_LINE + column * INTEGER_WORD +
               k % INTEGER_WORD] = (int8_t)code;
            terms[panel * INTEGER_TERMS + INTEGER_COLUMNS + column] += code;
        }
    const int none = b->dtype == GQAC_U8 ? -128 : 0;
    const bool one = zero && gqac_tensor_count(zero) == 1;
    for (int64_t n = 0; n < n_end; n++)
        terms[n / INTEGER_COLUMNS * INTEGER_TERMS + n % INTEGER_COLUMNS] =
            zero ? code_of(zero, one ? 0 : n) : none;
}

static bool can_pack(const ir_node *node) {
    const gqac_tensor *b = cpu_pack_constant(ir_node_input(node, B));
    const gqac_tensor *zero = cpu_pack_constant(ir_node_input(node, B_ZERO));
    if (!b || b->rank != 2 || b->dims[0] < 1 || b->dims[1] < 1 || b->dims[0] > INTEGER_MOST_K ||
        !(OP_IN(OP_BIT(I8) | OP_BIT(U8), b->dtype)))
        return false;
    if (!ir_node_input(node, B_ZERO))
        return true;
    const int64_t n = zero ? gqac_tensor_count(zero) : 0;
    return zero && zero->dtype == b->dtype && (n == 1 || n == b->dims[1]);
}

gqac_status cpu_pack_integer(ir_node *node, const op_options *options, gqac_poll *poll,
                             bool *packed, gqac_diag *diag) {
    const ir_value *weight = ir_node_input(node, B);
    const gqac_tensor *b = cpu_pack_constant(weight);
    ir_value *in[4] = {ir_node_input(node, A), NULL, NULL, ir_node_input(node, A_ZERO)};
    void *codes, *terms;
    (void)options;
    (void)poll;
    if (!can_pack(node))
        return GQAC_OK;
    const int64_t panels = integer_panels(b->dims[1]);
    GQAC_TRY(cpu_pack_add(weight, "packed", GQAC_I8,
                          (int64_t[]){panels, integer_words(b->dims[0]), INTEGER_LINE}, &in[1],
                          &codes, diag));
    GQAC_TRY(cpu_pack_add(weight, "terms", GQAC_I32, (int64_t[]){panels, 2, INTEGER_COLUMNS},
                          &in[2], &terms, diag));
    pack_codes(b, cpu_pack_constant(ir_node_input(node, B_ZERO)), codes, terms);
    ir_builder at = {.graph = node->graph, .before = node, .diag = diag};
    ir_value *y = OP_BUILD(&at, "linear_integer", .in = {in[0], in[1], in[2], in[3]},
                           .ints = {{"k", b->dims[0]}, {"n", b->dims[1]}});
    GQAC_TRY(cpu_pack_replace(&at, node, node->outputs[0], y));
    *packed = true;
    return GQAC_OK;
}
