/* linear_integer: MatMulInteger on constant weights that a target has packed.
 *
 *   y [..,n] = (a [..,k] - a_zero_point) (w - zero points of its columns) in i32, without overflow
 *
 * weight i8 [panels,words,64] and terms i32 [panels,2,16]: ops/integer.h describes their layout. A
 * has one zero point, or one for each row. Sums of integers are exact, in any order. */
#include "ops/integer.h"
#include "ops/shared.h"

enum { A, W, TERMS, A_ZERO };
#define CODES (OP_BIT(I8) | OP_BIT(U8))

static const ir_attr_spec attrs[] = {
    {"k", IR_ATTR_INT, .required = true, .doc = "columns of a"},
    {"n", IR_ATTR_INT, .required = true, .doc = "columns of y"},
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "k", 1, INTEGER_MOST_K, diag));
    return op_check_int(node, "n", 1, INT32_MAX, diag);
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

static gqac_status check_packed(const op_work *work, const gqac_tensor *t, const char *name,
                                gqac_dtype dtype, int64_t panels, int64_t rows, int64_t width) {
    if (!t || t->dtype != dtype || t->rank != 3 || t->dims[0] != panels || t->dims[1] != rows ||
        t->dims[2] != width)
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' is not packed as %s [%lld,%lld,%lld]", name,
                gqac_dtype_name(dtype), (long long)panels, (long long)rows, (long long)width);
    return GQAC_OK;
}

static gqac_status read_zero(const op_work *work, const gqac_tensor *a, const gqac_tensor *zero,
                             integer_product *p) {
    const int64_t n = gqac_tensor_count(zero);
    if (zero->dtype != a->dtype)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "input 'a_zero_point' has the type %s, which is not that of A",
                gqac_dtype_name(zero->dtype));
    if (n != 1 && n != p->rows && (a->rank < 2 || n != a->dims[a->rank - 2]))
        OP_STOP(work, GQAC_INVALID_INPUT, "%lld zero points of A, expected 1 or %lld", (long long)n,
                (long long)p->rows);
    p->a_zero = zero->data;
    p->zero_rows = n;
    return GQAC_OK;
}

/* Checks that zero points are in the range of codes, and sums of codes in that of sums of k codes,
 * so that no sum of the product overflows 32 bits. */
static gqac_status check_terms(const op_work *work, const integer_product *p) {
    const int32_t *terms = p->terms, most_zero = 128, most_sum = 128 * (int32_t)p->k;
    bool fit = true;
    for (int64_t panel = 0; panel < p->panels; panel++, terms += INTEGER_TERMS)
        for (int i = 0; i < INTEGER_COLUMNS; i++) {
            const int32_t zero = terms[i], sum = terms[INTEGER_COLUMNS + i];
            fit &=
                (zero >= -most_zero) & (zero <= most_zero) & (sum >= -most_sum) & (sum <= most_sum);
        }
    if (!fit)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "input 'terms' has zero points beyond %d or sums of codes beyond %d", most_zero,
                most_sum);
    return GQAC_OK;
}

gqac_status integer_fit(const op_work *work, int64_t k, int64_t n, const gqac_tensor *a,
                        const gqac_tensor *w, const gqac_tensor *terms, const gqac_tensor *a_zero,
                        integer_product *p) {
    *p = (integer_product){.k = k, .n = n, .panels = integer_panels(n), .words = integer_words(k)};
    if (!a || !OP_IN(CODES, a->dtype) || a->rank < 1 || a->dims[a->rank - 1] != k)
        OP_STOP(work, GQAC_INVALID_INPUT, "A must be i8 or u8 with a last axis of k = %lld",
                (long long)k);
    GQAC_TRY(check_packed(work, w, "weight", GQAC_I8, p->panels, p->words, INTEGER_LINE));
    GQAC_TRY(check_packed(work, terms, "terms", GQAC_I32, p->panels, 2, INTEGER_COLUMNS));
    p->rows = op_product(a->dims, 0, a->rank - 1);
    p->is_signed = a->dtype == GQAC_I8;
    p->a = a->data;
    p->w = w->data;
    p->terms = terms->data;
    GQAC_TRY(check_terms(work, p));
    return a_zero ? read_zero(work, a, a_zero, p) : GQAC_OK;
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
    const ir_node *node = call->node;
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    integer_product p;
    GQAC_TRY(verify(node, call->diag));
    GQAC_TRY(integer_fit(&work, ir_attr_int(node, "k"), ir_attr_int(node, "n"), call->in[A],
                         call->in[W], call->in[TERMS],
                         node->n_inputs > A_ZERO ? call->in[A_ZERO] : NULL, &p));
    gqac_tensor y = *call->in[A];
    y.dims[y.rank - 1] = p.n;
    GQAC_TRY(op_output_like(call, 0, GQAC_I32, &y));
    p.y = call->out[0].data;
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
