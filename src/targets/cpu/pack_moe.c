/* Packs com.microsoft.MoE and QMoE with constant weights: the node becomes our moe, whose matrices
 * are those of linear and linear_nbits, one expert after another. A scale for a whole row is
 * repeated for each block of the row: the numbers are the same. Not packed: float weights whose
 * rows have another type, rows that cannot be divided into blocks, and operands that do not fit
 * each other (the op's own eval reports the error). */
#include <string.h>

#include "ops/build.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/nbits.h"
#include "targets/cpu/pack.h"

enum { WEIGHT, SCALE, BIAS, ZERO };

/* One projection, [experts,n,k] in the file. */
typedef struct matrix {
    const ir_node *node;
    const int *inputs;                  /* of the node */
    int64_t experts, n, k, file_blocks; /* file_blocks: scales for a row in the file */
    int bits;
    nbits_shape s; /* shape of the codes */
} matrix;

static ir_value *value_of(const matrix *m, int part) {
    return m->inputs[part] < 0 ? NULL : ir_node_input(m->node, m->inputs[part]);
}

static const gqac_tensor *constant_of(const matrix *m, int part) {
    return cpu_pack_constant(value_of(m, part));
}

static bool has_count(const gqac_tensor *t, unsigned set, int64_t count) {
    return t && OP_IN(set, t->dtype) && gqac_tensor_count(t) == count;
}

/* The longest block that divides rows of k elements, at most `most`; 0: there is none. */
static int64_t block_of(int64_t k, int64_t most) {
    int64_t block = most;
    while (block >= NBITS_MIN_BLOCK && k % block != 0)
        block /= 2;
    return block < NBITS_MIN_BLOCK ? 0 : block;
}

static bool read_codes(matrix *m) {
    const int64_t size = ir_attr_int(m->node, "block_size"), rows = m->experts * m->n;
    m->k *= 8 / m->bits;
    const int64_t block = block_of(m->k, size && size < NBITS_MAX_BLOCK ? size : NBITS_MAX_BLOCK);
    if (!block || (size && m->k % size != 0) || m->k > INT32_MAX)
        return false;
    m->file_blocks = size ? m->k / size : 1;
    m->s = nbits_shape_of(m->k, m->n, m->bits, block);
    const int64_t zero_row =
        size ? (m->file_blocks * m->bits + 7) / 8 * m->n : (m->n * m->bits + 7) / 8;
    return has_count(constant_of(m, SCALE), OP_FLOATS, rows * m->file_blocks) &&
           (!value_of(m, ZERO) ||
            has_count(constant_of(m, ZERO), OP_BIT(U8), m->experts * zero_row));
}

/* False: it cannot be packed. */
static bool read_matrix(matrix *m) {
    const gqac_tensor *w = constant_of(m, WEIGHT);
    if (!w || w->rank != 3 || w->dims[0] < 1 || w->dims[1] < 1 || w->dims[2] < 1 ||
        w->dims[1] > INT32_MAX)
        return false;
    if (m->bits ? w->dtype != GQAC_U8
                : !OP_IN(OP_FLOATS, w->dtype) || w->dtype != op_in_type(m->node, 0).dtype)
        return false;
    m->experts = w->dims[0];
    m->n = w->dims[1];
    m->k = w->dims[2];
    return !m->bits || read_codes(m);
}

static gqac_status add_packed(const matrix *m, int part, gqac_dtype dtype, int64_t panels,
                              int64_t rows, int64_t width, ir_value **value, void **data,
                              gqac_diag *diag) {
    return cpu_pack_add(value_of(m, part), "packed", dtype, (int64_t[]){panels, rows, width}, value,
                        data, diag);
}

/* The offset of column n of all experts among panels of `rows` rows of 64. */
static int64_t place_of(const matrix *m, int64_t column, int64_t rows) {
    const int64_t panel = column / m->n * linear_panels(m->n) + column % m->n / LINEAR_PANEL;
    return panel * rows * LINEAR_PANEL + column % m->n % LINEAR_PANEL;
}

static gqac_status pack_floats(const matrix *m, gqac_poll *poll, ir_value **in, gqac_diag *diag) {
    const gqac_tensor *w = constant_of(m, WEIGHT);
    const char *from = w->data;
    const size_t width = op_width(w->dtype);
    void *data;
    GQAC_TRY(add_packed(m, WEIGHT, w->dtype, m->experts * linear_panels(m->n), m->k, LINEAR_PANEL,
                        in, &data, diag));
    for (int64_t column = 0; column < m->experts * m->n; column++) {
        char *to = (char *)data + (size_t)place_of(m, column, m->k) * width;
        if (column % LINEAR_PANEL == 0)
            GQAC_TRY(gqac_poll_check(poll, diag));
        for (int64_t k = 0; k < m->k; k++, from += width)
            memcpy(to + (size_t)(k * LINEAR_PANEL) * width, from, width);
    }
    return GQAC_OK;
}

static gqac_status pack_codes(const matrix *m, gqac_poll *poll, ir_value **in, gqac_diag *diag) {
    const nbits_shape *s = &m->s;
    const unsigned char *from = constant_of(m, WEIGHT)->data;
    const int64_t column_bytes = s->words * 4, panel_bytes = s->words * NBITS_WORD_BYTES;
    void *data;
    GQAC_TRY(add_packed(m, WEIGHT, GQAC_U8, m->experts * s->panels, s->words, NBITS_WORD_BYTES, in,
                        &data, diag));
    for (int64_t e = 0; e < m->experts; e++)
        for (int64_t p = 0; p < s->panels; p++) {
            const int64_t first = p * NBITS_COLUMNS, left = m->n - first;
            GQAC_TRY(gqac_poll_check(poll, diag));
            cpu_pack_words(s, from + (e * m->n + first) * column_bytes,
                           left < NBITS_COLUMNS ? left : NBITS_COLUMNS,
                           (unsigned char *)data + (e * s->panels + p) * panel_bytes);
        }
    return GQAC_OK;
}

static gqac_status pack_scales(const matrix *m, ir_value **in, gqac_diag *diag) {
    const gqac_tensor *from = constant_of(m, SCALE);
    const size_t width = op_width(from->dtype);
    void *data;
    GQAC_TRY(add_packed(m, SCALE, from->dtype, m->experts * m->s.panels, m->s.blocks, NBITS_COLUMNS,
                        in, &data, diag));
    for (int64_t column = 0; column < m->experts * m->n; column++)
        for (int64_t b = 0; b < m->s.blocks; b++) {
            const int64_t source = b * m->file_blocks / m->s.blocks;
            memcpy((unsigned char *)data +
                       (size_t)(place_of(m, column, m->s.blocks) + b * NBITS_COLUMNS) * width,
                   (const unsigned char *)from->data +
                       (size_t)(column * m->file_blocks + source) * width,
                   width);
        }
    return GQAC_OK;
}

static gqac_status pack_zeros(const matrix *m, ir_value **in, gqac_diag *diag) {
    const uint8_t *from = constant_of(m, ZERO)->data;
    const bool by_row = ir_attr_int(m->node, "block_size") == 0;
    void *data;
    GQAC_TRY(add_packed(m, ZERO, GQAC_U8, m->experts * m->s.panels, m->s.blocks, NBITS_COLUMNS, in,
                        &data, diag));
    unsigned char *codes = data;
    for (int64_t column = 0; column < m->experts * m->n; column++)
        for (int64_t b = 0; b < m->s.blocks; b++) {
            const int64_t source = b * m->file_blocks / m->s.blocks;
            const int zero = by_row
                                 ? moe_code_at(from + column / m->n * ((m->n * m->bits + 7) / 8),
                                               column % m->n, m->bits)
                                 : moe_code_at(from + column * ((m->file_blocks * m->bits + 7) / 8),
                                               source, m->bits);
            codes[place_of(m, column, m->s.blocks) + b * NBITS_COLUMNS] = (unsigned char)zero;
        }
    return GQAC_OK;
}

static void set_attrs(ir_node *by, const ir_node *node, const matrix *m) {
    static const char *const names[][2] = {
        {"fc1_bits", "fc1_block"}, {"fc2_bits", "fc2_block"}, {"fc3_bits", "fc3_block"}};
    for (const ir_attr_spec *spec = by->op->attrs; spec->name; spec++)
        for (const ir_attr_spec *old = node->op->attrs; old->name; old++)
            if (!strcmp(spec->name, old->name))
                *ir_attr_edit(by, spec->name) = node->attrs[old - node->op->attrs];
    for (int i = 0; i < 3; i++)
        if (m[i].n && m[i].bits) {
            ir_attr_set_int(by, names[i][0], m[i].bits);
            ir_attr_set_int(by, names[i][1], m[i].s.block);
        }
    ir_attr_set_int(by, "inner", m[1].k);
}

gqac_status cpu_pack_moe(ir_node *node, const op_options *options, gqac_poll *poll, bool *packed,
                         gqac_diag *diag) {
    enum { INPUTS = MOE_ROUTER_WEIGHTS + 1 };
    const bool codes = op_is(node, "com.microsoft", "QMoE");
    ir_value *in[INPUTS] = {ir_node_input(node, 0), ir_node_input(node, 1)};
    matrix m[3];
    (void)options;
    for (int i = 0; i < 3; i++) {
        m[i] = (matrix){.node = node, .inputs = codes ? moe_code_inputs[i] : moe_float_inputs[i]};
        m[i].bits = codes ? (int)moe_bits(node, i) : 0;
        if ((i < 2 || value_of(&m[i], WEIGHT)) && !read_matrix(&m[i]))
            return GQAC_OK;
    }
    if (m[0].experts != m[1].experts || m[0].k != m[1].n ||
        m[0].n != m[1].k * (moe_is_fused(node) ? 2 : 1) ||
        (m[2].n && (m[2].experts != m[0].experts || m[2].k != m[0].k || m[2].n != m[1].k)))
        return GQAC_OK;
    for (int i = 0; i < 3; i++) {
        const int *to = moe_code_inputs[i];
        if (m[i].n == 0)
            continue;
        GQAC_TRY((m[i].bits ? pack_codes : pack_floats)(&m[i], poll, &in[to[WEIGHT]], diag));
        in[to[BIAS]] = value_of(&m[i], BIAS);
        if (m[i].bits)
            GQAC_TRY(pack_scales(&m[i], &in[to[SCALE]], diag));
        if (m[i].bits && value_of(&m[i], ZERO))
            GQAC_TRY(pack_zeros(&m[i], &in[to[ZERO]], diag));
    }
    in[MOE_ROUTER_WEIGHTS] = codes ? ir_node_input(node, MOE_ROUTER_WEIGHTS) : NULL;
    ir_builder b = {.graph = node->graph, .before = node, .diag = diag};
    ir_value *y = OP_BUILD(&b, "moe", .list = {INPUTS, in});
    GQAC_TRY(b.status);
    set_attrs(y->def, node, m);
    GQAC_TRY(cpu_pack_replace(&b, node, node->outputs[0], y));
    *packed = true;
    return GQAC_OK;
}
