/* The kernel cpu.linear_nbits: y [..,n] = x [..,k] * quantised weights + bias.
 *
 * First the rows of x are put into the form that the level's kernels read: int8 with a scale for
 * each (row, block), or fp32 step by step. Then panels of 64 columns times blocks of rows are
 * computed independently, panel by panel so that a thread streams consecutive weights. */
#include "targets/cpu/nbits.h"

#include <string.h>

#include "base/check.h"
#include "ops/shared.h"

enum { X, CODES, SCALES, ZERO_POINTS, BIAS };

typedef struct job {
    const cpu_nbits_kernels *kernels;
    cpu_nbits_weights w;
    const gqac_tensor *x, *bias;
    gqac_tensor *y;
    bool int8;
    int64_t rows, row_blocks;
    op_scratch memory;
    cpu_nbits_rows a; /* int8 */
    float *steps;     /* fp32: [k / CPU_NBITS_STEP][rows][CPU_NBITS_STEP] */
    op_scratch scratch;
} job;

static void prepare_rows(void *arg, size_t begin, size_t end, int worker) {
    job *j = arg;
    const nbits_shape *s = &j->w.shape;
    const int64_t padded = s->blocks * s->block;
    float *row = (float *)(void *)(j->scratch.base + (size_t)worker * j->scratch.stride);
    for (int64_t m = (int64_t)begin; m < (int64_t)end; m++) {
        for (int64_t k = 0; !j->int8 && k < s->k; k += CPU_NBITS_STEP)
            op_get_f32s(j->x, m * s->k + k, s->k - k < CPU_NBITS_STEP ? s->k - k : CPU_NBITS_STEP,
                        j->steps + k * j->rows + m * CPU_NBITS_STEP);
        if (!j->int8)
            continue;
        op_get_f32s(j->x, m * s->k, s->k, row);
        memset(row + s->k, 0, (size_t)(padded - s->k) * sizeof *row);
        j->kernels->quantise(s, row, m, &j->a);
    }
}

static void store(const job *j, int64_t panel, int64_t first, int64_t count, const float *y) {
    const int64_t n = j->w.shape.n, column = panel * NBITS_COLUMNS;
    const int64_t width = n - column < NBITS_COLUMNS ? n - column : NBITS_COLUMNS;
    for (int64_t m = 0; m < count; m++)
        op_put_f32s(j->y, (first + m) * n + column, width, y + m * NBITS_COLUMNS);
}

static void run_panels(void *arg, size_t begin, size_t end, int worker) {
    const job *j = arg;
    cpu_nbits_room *room = (void *)(j->scratch.base + (size_t)worker * j->scratch.stride);
    for (size_t i = begin; i < end; i++) {
        const int64_t panel = (int64_t)i / j->row_blocks;
        const int64_t first = (int64_t)i % j->row_blocks * CPU_NBITS_ROWS;
        const int64_t count = j->rows - first < CPU_NBITS_ROWS ? j->rows - first : CPU_NBITS_ROWS;
        float bias[NBITS_COLUMNS] = {0};
        const int64_t column = panel * NBITS_COLUMNS, left = j->w.shape.n - column;
        if (j->bias)
            op_get_f32s(j->bias, column, left < NBITS_COLUMNS ? left : NBITS_COLUMNS, bias);
        if (j->int8)
            j->kernels->int8(&j->w, panel, &j->a, first, count, room);
        else
            j->kernels->fp32(&j->w, panel, j->steps, j->rows, first, count, room);
        j->kernels->finish(room->y, count, j->bias ? bias : NULL);
        store(j, panel, first, count, room->y);
    }
}

/* One block for what the rows become. */
static gqac_status take_memory(op_call *call, job *j) {
    const nbits_shape *s = &j->w.shape;
    const size_t rows = (size_t)j->rows, blocks = (size_t)s->blocks;
    const size_t steps = (size_t)((s->k + CPU_NBITS_STEP - 1) / CPU_NBITS_STEP);
    size_t each = steps * CPU_NBITS_STEP * sizeof(float), bytes;
    if (j->int8)
        each = blocks * (sizeof(float) + sizeof(int32_t) + (size_t)s->block);
    if (!gqac_mul_size(rows, each, &bytes))
        return gqac_diag_oom(call->diag, "activations");
    GQAC_TRY(op_scratch_open_one(call, bytes, 1, &j->memory));
    j->steps = (float *)(void *)j->memory.base;
    j->a.rows = j->rows;
    j->a.scale = (float *)(void *)j->memory.base;
    j->a.sum = (int32_t *)(void *)(j->a.scale + rows * blocks);
    j->a.qa = (int8_t *)(j->a.sum + rows * blocks);
    return GQAC_OK;
}

static gqac_status compute(op_call *call, job *j) {
    const nbits_shape *s = &j->w.shape;
    gqac_status status =
        op_scratch_open(call, (size_t)(s->blocks * s->block), sizeof(float), &j->scratch);
    if (status != GQAC_OK)
        return status;
    op_parallel(call, j->rows, 1 + s->k / 2, prepare_rows, j);
    op_scratch_close(&j->scratch);
    GQAC_TRY(op_scratch_open(call, 1, sizeof(cpu_nbits_room), &j->scratch));
    const int64_t rows = j->rows < CPU_NBITS_ROWS ? j->rows : CPU_NBITS_ROWS;
    op_parallel(call, s->panels * j->row_blocks, 1 + s->k * (4 + rows), run_panels, j);
    op_scratch_close(&j->scratch);
    return GQAC_OK;
}

/* ---- operands ---------------------------------------------------------------- */

static gqac_status check_packed(op_call *call, int input, unsigned set, int64_t rows,
                                int64_t width) {
    const nbits_shape s =
        nbits_shape_of(ir_attr_int(call->node, "k"), ir_attr_int(call->node, "n"),
                       (int)ir_attr_int(call->node, "bits"), ir_attr_int(call->node, "block_size"));
    GQAC_TRY(op_want_set(call, input, set));
    const gqac_tensor *t = call->in[input];
    if (t->rank != 3 || t->dims[0] != s.panels || t->dims[1] != rows || t->dims[2] != width)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input %d is not [%lld,%lld,%lld]",
                input, (long long)s.panels, (long long)rows, (long long)width);
    return GQAC_OK;
}

static gqac_status read_weights(op_call *call, job *j) {
    cpu_nbits_weights *w = &j->w;
    const nbits_shape *s = &w->shape;
    const bool has_zeros = call->node->n_inputs > ZERO_POINTS && call->in[ZERO_POINTS];
    GQAC_TRY(check_packed(call, CODES, OP_BIT(U8), s->words, NBITS_WORD_BYTES));
    GQAC_TRY(check_packed(call, SCALES, OP_FLOATS, s->blocks, NBITS_COLUMNS));
    w->codes = call->in[CODES]->data;
    w->scales = call->in[SCALES]->data;
    w->scale_type = call->in[SCALES]->dtype;
    if (has_zeros) {
        GQAC_TRY(check_packed(call, ZERO_POINTS, OP_FLOATS | OP_BIT(U8), s->blocks, NBITS_COLUMNS));
        w->zeros = call->in[ZERO_POINTS]->data;
        w->zero_type = call->in[ZERO_POINTS]->dtype;
    }
    j->int8 = nbits_int8(ir_attr_int(call->node, "accuracy_level"), s->bits, s->block,
                         has_zeros && w->zero_type != GQAC_U8);
    return GQAC_OK;
}

static gqac_status read_operands(op_call *call, job *j) {
    const nbits_shape *s = &j->w.shape;
    GQAC_TRY(op_want_set(call, X, OP_FLOATS));
    GQAC_TRY(read_weights(call, j));
    j->x = call->in[X];
    if (j->x->rank < 1 || j->x->dims[j->x->rank - 1] != s->k)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the last axis of x is not k = %lld",
                (long long)s->k);
    j->rows = op_product(j->x->dims, 0, j->x->rank - 1);
    j->row_blocks = (j->rows + CPU_NBITS_ROWS - 1) / CPU_NBITS_ROWS;
    j->bias = call->node->n_inputs > BIAS ? call->in[BIAS] : NULL;
    if (!j->bias)
        return GQAC_OK;
    GQAC_TRY(op_want_set(call, BIAS, OP_FLOATS));
    if (gqac_tensor_count(j->bias) != s->n)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "bias has %lld elements, n is %lld",
                (long long)gqac_tensor_count(j->bias), (long long)s->n);
    return GQAC_OK;
}

gqac_status cpu_nbits_run(op_call *call) {
    job j = {.kernels = cpu_level_of(call)->nbits, .y = &call->out[0]};
    j.w.shape =
        nbits_shape_of(ir_attr_int(call->node, "k"), ir_attr_int(call->node, "n"),
                       (int)ir_attr_int(call->node, "bits"), ir_attr_int(call->node, "block_size"));
    GQAC_TRY(read_operands(call, &j));
    int64_t dims[GQAC_MAX_RANK];
    for (int i = 0; i < j.x->rank; i++)
        dims[i] = i + 1 < j.x->rank ? j.x->dims[i] : j.w.shape.n;
    GQAC_TRY(op_output(call, 0, j.x->dtype, j.x->rank, dims));
    if (j.rows == 0)
        return GQAC_OK;
    gqac_status status = take_memory(call, &j);
    if (status == GQAC_OK)
        status = compute(call, &j);
    op_scratch_close(&j.memory);
    return status;
}
