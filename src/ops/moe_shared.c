/* Mixtures of experts. One row of x, with all of its experts, is one work item. */
#include "ops/moe.h"

#include <string.h>

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/kernel.h"
#include "ops/linear.h"
#include "ops/nbits.h"

enum { TILE = GQAC_LANES };

static const char *const activations[MOE_ACTIVATIONS] = {"relu", "gelu", "silu", "swiglu",
                                                         "identity"};

static int activation_of(const ir_node *node) {
    return op_choice(node, "activation_type", MOE_ACTIVATIONS, activations);
}

gqac_status moe_verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_choice(node, "activation_type", MOE_ACTIVATIONS, activations,
                             GQAC_UNSUPPORTED, diag));
    if (ir_attr_int(node, "use_sparse_mixer") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute use_sparse_mixer: only 0 is supported");
    GQAC_TRY(op_check_int(node, "k", 1, INT64_MAX, diag));
    return op_check_int(node, "swiglu_fusion", 0, 2, diag);
}

bool moe_is_fused(const ir_node *node) {
    return activation_of(node) == MOE_SWIGLU && ir_attr_int(node, "swiglu_fusion") != 0;
}

/* One row of an input [..,n]; false: its type or n is not known. */
static bool row_type(const ir_node *node, int input, gqac_tensor *row) {
    *row = (gqac_tensor){.dtype = op_in_type(node, input).dtype, .rank = 2, .dims = {1}};
    return row->dtype && ir_dim_is_const(op_in_dim(node, input, -1), &row->dims[1]);
}

/* The checks of an eval, on the types of the weights and of one row. They are left to the eval if
 * something is not known. */
static gqac_status check_types(const ir_node *node, const moe_form *form, moe_read *read,
                               gqac_diag *diag) {
    const op_origin origin = op_origin_of(node);
    const op_work work = {.diag = diag, .origin = &origin};
    gqac_tensor types[MOE_INPUTS];
    moe_operands o = {.work = &work};
    moe_mixture s;
    moe m = {.x = NULL};
    for (int i = 0; i < node->n_inputs && i < MOE_INPUTS; i++) {
        const bool rows = i < 2 || i == MOE_ROUTER_WEIGHTS;
        if (!ir_node_input(node, i))
            continue;
        if (rows ? !row_type(node, i, &types[i])
                 : !op_in_type(node, i).dtype || !op_in_shape(node, i, &types[i]))
            return GQAC_OK;
        o.in[i] = &types[i];
    }
    gqac_status status = read(&o, form, &m);
    if (status == GQAC_OK)
        status = moe_fit(&work, form, &m, NULL, &s);
    if (status != GQAC_INVALID_INPUT)
        return status;
    if (diag)
        diag->status = GQAC_INVALID_MODEL;
    return GQAC_INVALID_MODEL;
}

gqac_status moe_infer(ir_node *node, const moe_form *form, moe_read *read, gqac_diag *diag) {
    for (int i = 0; i < 2; i++)
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
    GQAC_TRY(op_check_same(node, 0, 1, diag));
    GQAC_TRY(check_types(node, form, read, diag));
    return op_set_type_like(node, 0, op_in_type(node, 0), diag);
}

/* ---- operands -------------------------------------------------------------- */

moe_form moe_form_of(const ir_node *node) {
    moe_form f = {.chosen = ir_attr_int(node, "k"),
                  .activation = activation_of(node),
                  .normalize = ir_attr_int(node, "normalize_routing_weights") != 0,
                  .alpha = ir_attr_float(node, "activation_alpha"),
                  .beta = ir_attr_float(node, "activation_beta"),
                  .limit = gqn_as_f32(GQN_INF_BITS)};
    if (ir_attr_is_set(node, "swiglu_limit"))
        f.limit = ir_attr_float(node, "swiglu_limit");
    if (f.activation == MOE_SWIGLU)
        f.fusion = ir_attr_int(node, "swiglu_fusion");
    return f;
}

static gqac_status want(const moe_operands *o, int input, unsigned set) {
    const gqac_tensor *t = o->in[input];
    if (!t)
        OP_STOP(o->work, GQAC_INVALID_INPUT, "input %d is missing", input);
    if (!OP_IN(set, t->dtype))
        OP_STOP(o->work, GQAC_INVALID_INPUT,
                "input %d has the type %s, which the op does not accept here", input,
                gqac_dtype_name(t->dtype));
    return GQAC_OK;
}

static gqac_status read_rows(const moe_operands *o, const moe_form *form, moe *m) {
    GQAC_TRY(want(o, 0, OP_FLOATS));
    m->x = o->in[0];
    GQAC_TRY(want(o, 1, 1u << m->x->dtype));
    m->router = o->in[1];
    const gqac_tensor *router = m->router;
    const int64_t k = form->chosen;
    if (m->x->rank < 1 || router->rank < 1 ||
        op_product(router->dims, 0, router->rank - 1) != op_product(m->x->dims, 0, m->x->rank - 1))
        OP_STOP(o->work, GQAC_INVALID_INPUT,
                "input and router_probs have different numbers of rows");
    if (k > router->dims[router->rank - 1])
        OP_STOP(o->work, GQAC_INVALID_INPUT, "attribute k = %lld exceeds the %lld experts",
                (long long)k, (long long)router->dims[router->rank - 1]);
    return GQAC_OK;
}

static gqac_status want_count(const moe_operands *o, int input, int64_t wanted) {
    if (gqac_tensor_count(o->in[input]) == wanted)
        return GQAC_OK;
    OP_STOP(o->work, GQAC_INVALID_INPUT, "input %d has %lld elements, expected %lld", input,
            (long long)gqac_tensor_count(o->in[input]), (long long)wanted);
}

static bool given(const moe_operands *o, int input) {
    return input >= 0 && o->in[input] != NULL;
}

/* Checks the number of experts of the weight `input`. */
static gqac_status want_experts(const moe_operands *o, const moe *m, int input, int64_t experts) {
    const int64_t wanted = m->router->dims[m->router->rank - 1];
    if (experts == wanted)
        return GQAC_OK;
    OP_STOP(o->work, GQAC_INVALID_INPUT,
            "input %d has weights of %lld experts, router_probs has values of %lld", input,
            (long long)experts, (long long)wanted);
}

static gqac_status read_matrix(const moe_operands *o, const moe *m, const int inputs[4], int bits,
                               int64_t block, moe_matrix *out) {
    const int weight = inputs[0], scale = inputs[1], bias = inputs[2], zero = inputs[3];
    const int64_t experts = m->router->dims[m->router->rank - 1];
    *out = (moe_matrix){.bits = bits, .block = block};
    if (!given(o, weight))
        return GQAC_OK;
    GQAC_TRY(want(o, weight, bits ? OP_BIT(U8) : 1u << m->x->dtype));
    out->weight = o->in[weight];
    if (out->weight->rank != 3 || out->weight->dims[1] < 1)
        OP_STOP(o->work, GQAC_INVALID_INPUT, "input %d is not [%lld,N,K]", weight,
                (long long)experts);
    GQAC_TRY(want_experts(o, m, weight, out->weight->dims[0]));
    out->n = out->weight->dims[1];
    out->k = bits ? out->weight->dims[2] * (8 / bits) : out->weight->dims[2];
    if (given(o, bias)) {
        GQAC_TRY(want(o, bias, 1u << m->x->dtype));
        GQAC_TRY(want_count(o, bias, experts * out->n));
        out->bias = o->in[bias];
    }
    if (!bits)
        return GQAC_OK;
    GQAC_TRY(want(o, scale, OP_FLOATS));
    out->scale = o->in[scale];
    out->blocks = block ? out->k / block : 1;
    if (out->blocks < 1 || (block && out->k % block != 0))
        OP_STOP(o->work, GQAC_INVALID_INPUT,
                "rows of %lld elements cannot be divided into blocks of %lld", (long long)out->k,
                (long long)block);
    GQAC_TRY(want_count(o, scale, experts * out->n * out->blocks));
    if (!given(o, zero))
        return GQAC_OK;
    GQAC_TRY(want(o, zero, OP_BIT(U8)));
    const int64_t row = block ? (out->blocks * bits + 7) / 8 * out->n : (out->n * bits + 7) / 8;
    GQAC_TRY(want_count(o, zero, experts * row));
    out->zero = o->in[zero];
    return GQAC_OK;
}

const int moe_float_inputs[3][4] = {{2, -1, 3, -1}, {4, -1, 5, -1}, {6, -1, 7, -1}};
const int moe_code_inputs[3][4] = {{2, 3, 4, 11}, {5, 6, 7, 12}, {8, 9, 10, 13}};

static gqac_status read_mix(const moe_operands *o, moe *m) {
    if (!given(o, MOE_ROUTER_WEIGHTS))
        return GQAC_OK;
    GQAC_TRY(want(o, MOE_ROUTER_WEIGHTS, 1u << m->x->dtype));
    m->mix = o->in[MOE_ROUTER_WEIGHTS];
    if (gqac_tensor_count(m->mix) != gqac_tensor_count(m->router))
        OP_STOP(o->work, GQAC_INVALID_INPUT,
                "router_weights does not have the shape of router_probs");
    return GQAC_OK;
}

gqac_status moe_read_files(const moe_operands *o, const moe_form *form, moe *m) {
    GQAC_TRY(read_rows(o, form, m));
    for (int i = 0; i < 3; i++)
        GQAC_TRY(read_matrix(o, m, (form->bits[i] ? moe_code_inputs : moe_float_inputs)[i],
                             form->bits[i], form->block[i], &m->fc[i]));
    return read_mix(o, m);
}

static gqac_status want_panels(const moe_operands *o, int input, int64_t panels, int64_t rows,
                               int64_t width, const gqac_tensor **t) {
    *t = o->in[input];
    if ((*t)->rank != 3 || (*t)->dims[0] != panels || (*t)->dims[1] != rows ||
        (*t)->dims[2] != width)
        OP_STOP(o->work, GQAC_INVALID_INPUT, "input %d is not packed as [%lld,%lld,%lld]", input,
                (long long)panels, (long long)rows, (long long)width);
    return GQAC_OK;
}

static gqac_status read_packed(const moe_operands *o, const moe *m, const int inputs[4], int bits,
                               int64_t block, int64_t n, int64_t k, moe_matrix *out) {
    const int weight = inputs[0], scale = inputs[1], bias = inputs[2], zero = inputs[3];
    const int64_t experts = m->router->dims[m->router->rank - 1];
    *out = (moe_matrix){.packed = true, .bits = bits, .block = block, .n = n, .k = k};
    if (!given(o, weight))
        return GQAC_OK;
    GQAC_TRY(want(o, weight, bits ? OP_BIT(U8) : OP_FLOATS));
    if (!bits && o->in[weight]->dtype != m->x->dtype)
        OP_STOP(o->work, GQAC_INVALID_INPUT, "input %d has weights of the type %s, input 0 is %s",
                weight, gqac_dtype_name(o->in[weight]->dtype), gqac_dtype_name(m->x->dtype));
    const int64_t each = linear_panels(n), panels = o->in[weight]->dims[0];
    if (o->in[weight]->rank != 3 || panels % each != 0)
        OP_STOP(o->work, GQAC_INVALID_INPUT,
                "input %d is not packed as %lld panels for each expert", weight, (long long)each);
    GQAC_TRY(want_experts(o, m, weight, panels / each));
    const nbits_shape s = bits ? nbits_shape_of(k, n, bits, block) : (nbits_shape){.words = k};
    out->blocks = s.blocks;
    GQAC_TRY(want_panels(o, weight, panels, s.words, bits ? NBITS_WORD_BYTES : LINEAR_PANEL,
                         &out->weight));
    if (given(o, bias)) {
        GQAC_TRY(want(o, bias, 1u << m->x->dtype));
        GQAC_TRY(want_count(o, bias, experts * n));
        out->bias = o->in[bias];
    }
    if (!bits)
        return GQAC_OK;
    GQAC_TRY(want(o, scale, OP_FLOATS));
    GQAC_TRY(want_panels(o, scale, panels, s.blocks, NBITS_COLUMNS, &out->scale));
    if (!given(o, zero))
        return GQAC_OK;
    GQAC_TRY(want(o, zero, OP_BIT(U8)));
    return want_panels(o, zero, panels, s.blocks, NBITS_COLUMNS, &out->zero);
}

gqac_status moe_read_ours(const moe_operands *o, const moe_form *form, moe *m) {
    GQAC_TRY(read_rows(o, form, m));
    const int64_t hidden = m->x->dims[m->x->rank - 1], inner = form->inner;
    const int64_t wide = form->fusion ? 2 * inner : inner;
    const int64_t sizes[3][2] = {{wide, hidden}, {hidden, inner}, {inner, hidden}};
    if (hidden < 1 || hidden > INT32_MAX)
        OP_STOP(o->work, GQAC_INVALID_INPUT, "rows of %lld elements are out of range",
                (long long)hidden);
    for (int i = 0; i < 3; i++)
        GQAC_TRY(read_packed(o, m, moe_code_inputs[i], form->bits[i], form->block[i], sizes[i][0],
                             sizes[i][1], &m->fc[i]));
    return read_mix(o, m);
}

/* ---- one row ---------------------------------------------------------------- */

int moe_code_at(const uint8_t *bytes, int64_t index, int bits) {
    const int64_t bit = index * bits;
    return bytes[bit >> 3] >> (bit & 7) & ((1 << bits) - 1);
}

int moe_zero_of(const moe_matrix *m, int64_t expert, int64_t n, int64_t block) {
    if (!m->zero)
        return 1 << (m->bits - 1);
    const uint8_t *bytes = m->zero->data;
    if (!m->block) /* one row of codes for all rows of an expert */
        return moe_code_at(bytes + expert * ((m->n * m->bits + 7) / 8), n, m->bits);
    return moe_code_at(bytes + (expert * m->n + n) * ((m->blocks * m->bits + 7) / 8), block,
                       m->bits);
}

/* Where the panel of column n of an expert begins, among panels of 64 columns. */
static int64_t panel_of(const moe_matrix *m, int64_t expert, int64_t n) {
    return expert * linear_panels(m->n) + n / LINEAR_PANEL;
}

static float packed_weight(const moe_matrix *m, int64_t expert, int64_t n, int64_t k) {
    const int64_t panel = panel_of(m, expert, n), column = n % LINEAR_PANEL;
    if (!m->bits)
        return op_get_f32(m->weight, (panel * m->k + k) * LINEAR_PANEL + column);
    const int each = 32 / m->bits;
    const int64_t words = m->weight->dims[1];
    const int64_t at = (panel * m->blocks + k / m->block) * NBITS_COLUMNS + column;
    uint32_t word;
    memcpy(&word,
           (const uint8_t *)m->weight->data +
               ((panel * words + k / each) * NBITS_COLUMNS + column) * (int64_t)sizeof word,
           sizeof word);
    word = nbits_unpack_word(word, m->bits) >> k % each * m->bits & ((1u << m->bits) - 1);
    const int zero = m->zero ? ((const uint8_t *)m->zero->data)[at] : 1 << (m->bits - 1);
    return (float)((int)word - zero) * op_get_f32(m->scale, at);
}

/* out[i * TILE] = weights k to k + count of row n. */
static void weights_of(const moe_matrix *m, int64_t expert, int64_t n, int64_t k, int64_t count,
                       float *out) {
    const int64_t row = expert * m->n + n;
    for (int64_t i = 0; m->packed && i < count; i++)
        out[i * TILE] = packed_weight(m, expert, n, k + i);
    if (m->packed)
        return;
    if (!m->bits) {
        for (int64_t i = 0; i < count; i++)
            out[i * TILE] = op_get_f32(m->weight, row * m->k + k + i);
        return;
    }
    const uint8_t *codes = (const uint8_t *)m->weight->data + row * m->weight->dims[2];
    const int64_t block = m->k / m->blocks;
    float scale = 0;
    int zero = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || (k + i) % block == 0) {
            scale = op_get_f32(m->scale, row * m->blocks + (k + i) / block);
            zero = moe_zero_of(m, expert, n, (k + i) / block);
        }
        out[i * TILE] = (float)(moe_code_at(codes, k + i, m->bits) - zero) * scale;
    }
}

OP_BODY void add_piece_body(float *restrict sum, const float *x, const float *w, int64_t count) {
    float lane[TILE] = {0};
    for (int64_t i = 0; i < count; i++)
        for (int l = 0; l < TILE; l++)
            lane[l] = gqn_fma(x[i], w[i * TILE + l], lane[l]);
    for (int l = 0; l < TILE; l++)
        sum[l] = lane[l];
}
OP_KERNEL(add_piece, (float *sum, const float *x, const float *w, int64_t count),
          (sum, x, w, count))

/* y[n] = x W^T + b of one expert; tile holds TILE rows of a piece. */
static void project(const moe_matrix *m, int64_t expert, const float *x, float *tile, float *y) {
    for (int64_t first = 0; first < m->n; first += TILE) {
        const int64_t left = m->n - first, rows = left < TILE ? left : TILE;
        float total[TILE] = {0}, piece[TILE];
        for (int64_t k = 0; k < m->k; k += GQAC_K_PIECE) {
            const int64_t rest = m->k - k, count = rest < GQAC_K_PIECE ? rest : GQAC_K_PIECE;
            for (int64_t r = 0; r < rows; r++)
                weights_of(m, expert, first + r, k, count, tile + r);
            add_piece(piece, x + k, tile, count);
            for (int64_t r = 0; r < rows; r++)
                total[r] = k == 0 ? piece[r] : total[r] + piece[r];
        }
        for (int64_t r = 0; r < rows; r++)
            y[first + r] =
                m->bias ? total[r] + op_get_f32(m->bias, expert * m->n + first + r) : total[r];
    }
}

typedef struct mixture {
    const moe_mixture *s;
    op_scratch scratch;
} mixture;

OP_BODY float activate(const moe_mixture *s, float g, float l) {
    if (s->activation == MOE_SWIGLU) {
        g = g > s->limit ? s->limit : g;
        l = l > s->limit ? s->limit : l < -s->limit ? -s->limit : l;
        return g * gqn_sigmoidf(s->alpha * g) * (l + s->beta);
    }
    if (s->activation == MOE_RELU)
        g = g > 0 || g != g ? g : 0.0f;
    else if (s->activation == MOE_GELU)
        g = 0.5f * g * (1.0f + gqn_tanhf(0x1.988454p-1f * (g + 0.044715f * (g * g * g))));
    else if (s->activation == MOE_SILU)
        g = g * gqn_sigmoidf(g);
    return s->m->fc[2].weight ? g * l : g;
}

void moe_choose(const moe_mixture *s, int64_t row, int64_t *order, float *p, float *scratch,
                bool *taken) {
    float *router = scratch, sum = 0;
    op_get_f32s(s->m->router, row * s->experts, s->experts, router);
    memset(taken, 0, (size_t)s->experts * sizeof *taken);
    for (int64_t i = 0; i < s->chosen; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < s->experts; e++)
            if (!taken[e] && (best < 0 || router[e] > router[best]))
                best = e;
        order[i] = best;
        taken[best] = true;
    }
    const float most = router[order[0]];
    for (int64_t i = 0; i < s->chosen; i++)
        p[i] = gqn_expf(router[order[i]] - most);
    for (int64_t e = 0; e < (s->normalize ? s->chosen : s->experts); e++)
        sum += s->normalize ? p[e] : gqn_expf(router[e] - most);
    for (int64_t i = 0; i < s->chosen; i++)
        p[i] = s->m->mix ? op_get_f32(s->m->mix, row * s->experts + order[i]) : gqn_div(p[i], sum);
}

OP_BODY void activate_row_body(const moe_mixture *s, const float *fc1, const float *fc3, float *h) {
    for (int64_t i = 0; i < s->inner; i++) {
        float g = fc1[i], l = fc3 ? fc3[i] : 0.0f;
        if (s->fusion == 1) {
            g = fc1[2 * i];
            l = fc1[2 * i + 1];
        } else if (s->fusion == 2) {
            l = fc1[s->inner + i];
        }
        h[i] = activate(s, g, l);
    }
}
OP_KERNEL(activate_row, (const moe_mixture *s, const float *fc1, const float *fc3, float *h),
          (s, fc1, fc3, h))

void moe_activate(const moe_mixture *s, const float *fc1, const float *fc3, float *h) {
    activate_row(s, fc1, fc3, h);
}

OP_BODY void add_rows_body(float *sum, const float *p, const float *const *y, int64_t rows,
                           int64_t n) {
    for (int64_t h = 0; h < n; h++)
        sum[h] = 0;
    for (int64_t i = 0; i < rows; i++)
        op_axpy(sum, p[i], y[i], n);
    for (int64_t h = 0; h < n; h++)
        sum[h] = op_one_nan(sum[h]);
}
OP_KERNEL(add_rows, (float *sum, const float *p, const float *const *y, int64_t rows, int64_t n),
          (sum, p, y, rows, n))

void moe_add(const moe_mixture *s, const float *p, const float *const *y, float *sum) {
    add_rows(sum, p, y, s->chosen, s->hidden);
}

/* Scratch of a worker, for one row. */
typedef struct row_scratch {
    const float **ys;                                   /* of the chosen experts */
    int64_t *order;                                     /* experts by router value */
    float *x, *sum, *fc1, *fc3, *tile, *router, *p, *y; /* y: rows of the chosen experts */
    bool *taken;
} row_scratch;

static size_t scratch_bytes(const moe_mixture *s) {
    const int64_t floats = 2 * s->hidden + s->m->fc[0].n + s->inner + GQAC_K_PIECE * TILE +
                           s->experts + s->chosen + s->chosen * s->hidden;
    return (size_t)s->chosen * (sizeof(float *) + sizeof(int64_t)) +
           (size_t)floats * sizeof(float) + (size_t)s->experts * sizeof(bool);
}

static void place_scratch(const moe_mixture *s, unsigned char *base, row_scratch *r) {
    const size_t hidden = (size_t)s->hidden, chosen = (size_t)s->chosen;
    const size_t experts = (size_t)s->experts;
    r->ys = (const float **)(void *)base;
    r->order = (int64_t *)(void *)(r->ys + chosen);
    r->x = (float *)(void *)(r->order + chosen);
    r->sum = r->x + hidden;
    r->fc1 = r->sum + hidden;
    r->fc3 = r->fc1 + s->m->fc[0].n;
    r->tile = r->fc3 + s->inner;
    r->router = r->tile + (size_t)GQAC_K_PIECE * TILE;
    r->p = r->router + experts;
    r->y = r->p + chosen;
    r->taken = (bool *)(void *)(r->y + chosen * hidden);
}

static void expert_row(const moe_mixture *s, int64_t expert, const row_scratch *scratch, float *y) {
    const moe_matrix *fc = s->m->fc;
    project(&fc[0], expert, scratch->x, scratch->tile, scratch->fc1);
    if (fc[2].weight)
        project(&fc[2], expert, scratch->x, scratch->tile, scratch->fc3);
    moe_activate(s, scratch->fc1, fc[2].weight ? scratch->fc3 : NULL, scratch->fc1);
    project(&fc[1], expert, scratch->fc1, scratch->tile, y);
}

static void run(void *arg, size_t begin, size_t end, int worker) {
    const mixture *t = arg;
    const moe_mixture *s = t->s;
    row_scratch scratch;
    place_scratch(s, t->scratch.base + (size_t)worker * t->scratch.stride, &scratch);
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++) {
        op_get_f32s(s->m->x, row * s->hidden, s->hidden, scratch.x);
        moe_choose(s, row, scratch.order, scratch.p, scratch.router, scratch.taken);
        for (int64_t i = 0; i < s->chosen; i++) {
            scratch.ys[i] = scratch.y + i * s->hidden;
            expert_row(s, scratch.order[i], &scratch, scratch.y + i * s->hidden);
        }
        moe_add(s, scratch.p, scratch.ys, scratch.sum);
        op_put_f32s(s->y, row * s->hidden, s->hidden, scratch.sum);
    }
}

/* Checks that the sizes of the projections fit each other. */
static gqac_status check_sizes(const op_work *work, const moe_mixture *s) {
    const moe_matrix *fc = s->m->fc;
    const bool fits = fc[0].weight && fc[1].weight && fc[0].k == s->hidden && fc[1].k == s->inner &&
                      fc[1].n == s->hidden && fc[0].n == s->inner * (s->fusion ? 2 : 1) &&
                      (!fc[2].weight || (fc[2].k == s->hidden && fc[2].n == s->inner));
    if (!fits)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "weights [%lld,%lld] and [%lld,%lld] do not fit rows of %lld", (long long)fc[0].n,
                (long long)fc[0].k, (long long)fc[1].n, (long long)fc[1].k, (long long)s->hidden);
    if (s->activation == MOE_SWIGLU && !s->fusion && !fc[2].weight)
        OP_STOP(work, GQAC_INVALID_INPUT, "swiglu that is not fused needs fc3");
    if (s->fusion && fc[2].weight)
        OP_STOP(work, GQAC_INVALID_INPUT, "swiglu that is fused has no fc3");
    return GQAC_OK;
}

gqac_status moe_fit(const op_work *work, const moe_form *form, const moe *m, gqac_tensor *y,
                    moe_mixture *s) {
    *s = (moe_mixture){.m = m,
                       .y = y,
                       .experts = m->router->dims[m->router->rank - 1],
                       .chosen = form->chosen,
                       .hidden = m->x->dims[m->x->rank - 1],
                       .inner = m->fc[1].k,
                       .activation = form->activation,
                       .fusion = form->fusion,
                       .normalize = form->normalize,
                       .alpha = form->alpha,
                       .beta = form->beta,
                       .limit = form->limit};
    GQAC_TRY(check_sizes(work, s));
    s->rows = s->hidden ? gqac_tensor_count(m->x) / s->hidden : 0;
    return GQAC_OK;
}

gqac_status moe_eval(op_call *call, const moe_form *form, moe_read *read) {
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    moe_operands o = {.work = &work};
    moe m = {.x = NULL};
    moe_mixture s;
    for (int i = 0; i < call->node->n_inputs && i < MOE_INPUTS; i++)
        o.in[i] = call->in[i];
    GQAC_TRY(read(&o, form, &m));
    GQAC_TRY(moe_fit(&work, form, &m, &call->out[0], &s));
    GQAC_TRY(op_output_like(call, 0, m.x->dtype, m.x));
    if (s.rows == 0)
        return GQAC_OK;
    mixture t = {.s = &s};
    GQAC_TRY(op_scratch_open(call, scratch_bytes(&s), 1, &t.scratch));
    op_parallel(call, s.rows, 10 + s.chosen * s.hidden * (m.fc[0].n + s.inner), run, &t);
    op_scratch_close(&t.scratch);
    return GQAC_OK;
}
