/* linear_integer: MatMulInteger on constant weights that a target has packed.
 *
 *   y [..,n] = (a [..,k] - a_zero_point) (w - zero points of its columns) in i32, without overflow
 *
 * weight i8 [panels,words,64] and terms i32 [panels,2,16]: ops/integer.h says how they lie. A zero
 * point of A is one, or one for each row. Sums of integers are exact, so their order is free. */
#include "ops/integer.h"

enum { A, W, TERMS, A_ZERO };
#define CODES (OP_BIT(I8) | OP_BIT(U8))

static const ir_attr_spec attrs[] = {
    {"k", IR_ATTR_INT, .required = true, .doc = "columns of a"},
    {"n", IR_ATTR_INT, .required = true, .doc = "columns of y"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const int64_t k = ir_attr_int(node, "k"), n = ir_attr_int(node, "n");
    if (k < 1 || n < 1 || k > INTEGER_MOST_K || n > INT32_MAX)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attributes k = %lld (1 to %d), n = %lld",
                (long long)k, INTEGER_MOST_K, (long long)n);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, A, CODES, diag));
    GQAC_TRY(op_check_dtype(node, W, OP_BIT(I8), diag));
    GQAC_TRY(op_check_dtype(node, TERMS, OP_BIT(I32), diag));
    GQAC_TRY(op_check_same(node, A, A_ZERO, diag));
    const ir_type a = op_in_type(node, A);
    const ir_dim *dims[GQAC_MAX_RANK];
    int64_t k;
    if (a.rank < 0)
        return op_set_type(node, 0, GQAC_I32, -1, NULL, diag);
    if (a.rank == 0 || (ir_dim_is_const(a.dims[a.rank - 1], &k) && k != ir_attr_int(node, "k")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the last axis of A is not k = %lld",
                (long long)ir_attr_int(node, "k"));
    for (int i = 0; i + 1 < a.rank; i++)
        dims[i] = a.dims[i];
    dims[a.rank - 1] = ir_dim_const(op_dims(node), ir_attr_int(node, "n"));
    return op_set_type(node, 0, GQAC_I32, a.rank, dims, diag);
}

static gqac_status check_packed(op_call *call, int input, gqac_dtype dtype, int64_t panels,
                                int64_t rows, int64_t width) {
    GQAC_TRY(op_want(call, input, dtype));
    const gqac_tensor *t = call->in[input];
    if (t->rank != 3 || t->dims[0] != panels || t->dims[1] != rows || t->dims[2] != width)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "input %d is not packed as [%lld,%lld,%lld]", input, (long long)panels,
                (long long)rows, (long long)width);
    return GQAC_OK;
}

static gqac_status read_zero(op_call *call, integer_product *p) {
    const gqac_tensor *a = call->in[A];
    GQAC_TRY(op_want(call, A_ZERO, a->dtype));
    const int64_t n = gqac_tensor_count(call->in[A_ZERO]);
    if (n != 1 && n != p->rows && (a->rank < 2 || n != a->dims[a->rank - 2]))
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "%lld zero points of A, expected 1 or %lld", (long long)n, (long long)p->rows);
    p->a_zero = call->in[A_ZERO]->data;
    p->zero_rows = n;
    return GQAC_OK;
}

/* Zero points are codes, and what lies behind them sums of k codes: then sums of 32 bits hold all
 * there is. */
static gqac_status check_terms(const op_call *call, const integer_product *p) {
    const int32_t *terms = call->in[TERMS]->data, most_zero = 128, most_sum = 128 * (int32_t)p->k;
    bool fit = true;
    for (int64_t panel = 0; panel < p->panels; panel++, terms += INTEGER_TERMS)
        for (int i = 0; i < INTEGER_COLUMNS; i++) {
            const int32_t zero = terms[i], sum = terms[INTEGER_COLUMNS + i];
            fit &=
                (zero >= -most_zero) & (zero <= most_zero) & (sum >= -most_sum) & (sum <= most_sum);
        }
    if (!fit)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "input 'terms' has zero points beyond %d or sums of codes beyond %d", most_zero,
                most_sum);
    return GQAC_OK;
}

gqac_status integer_open(op_call *call, integer_product *p) {
    GQAC_TRY(verify(call->node, call->diag));
    GQAC_TRY(op_want_set(call, A, CODES));
    const gqac_tensor *a = call->in[A];
    int64_t dims[GQAC_MAX_RANK];
    *p = (integer_product){.k = ir_attr_int(call->node, "k"), .n = ir_attr_int(call->node, "n")};
    p->panels = integer_panels(p->n);
    p->words = integer_words(p->k);
    if (a->rank < 1 || a->dims[a->rank - 1] != p->k)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the last axis of A is not k = %lld",
                (long long)p->k);
    GQAC_TRY(check_packed(call, W, GQAC_I8, p->panels, p->words, INTEGER_LINE));
    GQAC_TRY(check_packed(call, TERMS, GQAC_I32, p->panels, 2, INTEGER_COLUMNS));
    GQAC_TRY(check_terms(call, p));
    p->rows = op_product(a->dims, 0, a->rank - 1);
    if (ir_node_input(call->node, A_ZERO))
        GQAC_TRY(read_zero(call, p));
    for (int i = 0; i < a->rank; i++)
        dims[i] = i + 1 < a->rank ? a->dims[i] : p->n;
    GQAC_TRY(op_output(call, 0, GQAC_I32, a->rank, dims));
    p->is_signed = a->dtype == GQAC_I8;
    p->a = a->data;
    p->w = call->in[W]->data;
    p->terms = call->in[TERMS]->data;
    p->y = call->out[0].data;
    return GQAC_OK;
}

/* Items are elements of y. */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const integer_product *p = arg;
    (void)worker;
    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) {
        const int64_t row = i / p->n, panel = i % p->n / INTEGER_COLUMNS;
        const int64_t column = i % p->n % INTEGER_COLUMNS;
        const int8_t *w = p->w + panel * p->words * INTEGER_LINE + column * INTEGER_WORD;
        const int32_t zero = p->terms[panel * INTEGER_TERMS + column];
        const int32_t a_zero = integer_zero(p, row);
        int32_t sum = 0;
        for (int64_t k = 0; k < p->k; k++) {
            const int32_t code = w[k / INTEGER_WORD * INTEGER_LINE + k % INTEGER_WORD];
            sum += (integer_code(p, p->a[row * p->k + k]) - a_zero) * (code - zero);
        }
        p->y[i] = sum;
    }
}

static gqac_status eval(op_call *call) {
    integer_product p;
    GQAC_TRY(integer_open(call, &p));
    if (p.rows > 0)
        op_parallel(call, p.rows * p.n, 1 + 2 * p.k, run, &p);
    return GQAC_OK;
}

const gqac_op gqac_op_linear_integer = {
    .schema = {.name = "linear_integer",
               .domain = "gqac",
               .since = 1,
               .inputs = "A weight terms a_zero_point?",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "Y = (A - a_zero_point) (weight - zero points) in i32, weight packed"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
