/* Norms and rotary embeddings on the cpu target: operands are read and checked as by the ops' own
 * eval, rows are cut into items. x of a rotary embedding is [B,H,S,D], or a packed row [B,S,H*D]
 * when its split_heads is fused; see fuse_heads.c for what comes with it. */
#include "targets/cpu/rows.h"

#include <string.h>

#include "ops/norm.h"
#include "ops/rotary.h"
#include "targets/cpu/fuse_heads.h"

/* ---- norms --------------------------------------------------------------- */

enum { NORM_INPUTS = 3 }; /* most of a norm without a skip */

typedef struct norm_job {
    cpu_norm p;
    const struct cpu_row_kernels *kernels;
} norm_job;

static void norm_items(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const norm_job *job = arg;
    job->kernels->norm(&job->p, begin, end);
}

static gqac_dtype type_of(const gqac_tensor *t) {
    return t ? t->dtype : GQAC_F32;
}

static void *data_of(const gqac_tensor *t) {
    return t ? t->data : NULL;
}

extern const gqac_op gqac_op_add;

/* The Add that makes x, if it would be a step of its own: whatever else can compute it does so
 * where its operands are made. */
int cpu_fuse_norm(const ir_node *root, ir_node **nodes) {
    ir_node *none[TARGET_MAX_FUSED];
    const ir_value *sum = ir_node_input(root, 0);
    ir_node *add = sum ? sum->def : NULL;
    if (!add || add->op != &gqac_op_add.schema || add->graph != root->graph || add->fused_into ||
        !OP_IN(OP_FLOATS, sum->type.dtype))
        return 0;
    for (int i = 0; i < 2; i++)
        if (!cpu_same_shape(&ir_node_input(add, i)->type, &sum->type))
            return 0;
    for (const ir_use *use = sum->uses; use; use = use->next)
        if (use->node == root && use != &root->inputs[0])
            return 0; /* as its weight, too */
    if (cpu_fuse_product_chain(add, none) || cpu_fuse_chain(add, none))
        return 0;
    nodes[0] = add;
    return 1;
}

/* A fused Add: its operands, the sum as an operand, and where others read it. */
static gqac_status open_sum(op_call *call, const ir_node *add, const gqac_tensor *operands[2],
                            gqac_tensor *sum, gqac_tensor **made) {
    *made = NULL;
    for (int i = 0; i < 2; i++)
        operands[i] = op_value(call, ir_node_input(add, i));
    *sum = *operands[0];
    sum->data = NULL;
    if (operands[1]->dtype != sum->dtype || operands[1]->rank != sum->rank ||
        memcmp(operands[1]->dims, sum->dims, (size_t)sum->rank * sizeof *sum->dims) != 0)
        OP_FAIL(add, call->diag, GQAC_INVALID_INPUT, "operands of a sum differ in shape");
    if (!ir_value_leaves(add->outputs[0]))
        return GQAC_OK;
    return op_give(call, add->outputs[0], sum->dtype, sum->rank, sum->dims, made);
}

/* norm_open, where x is the sum of a fused Add too. */
static gqac_status open_norm(op_call *call, const norm *kind, const ir_node *add, norm_run *r) {
    const gqac_tensor *operands[2], *in[NORM_INPUTS] = {NULL};
    gqac_tensor sum, *made;
    op_call inner = *call;
    if (!add)
        return norm_open(call, kind, r);
    GQAC_TRY(open_sum(call, add, operands, &sum, &made));
    for (int i = 1; i < call->node->n_inputs && i < NORM_INPUTS; i++)
        in[i] = call->in[i];
    in[0] = &sum;
    inner.in = in;
    GQAC_TRY(norm_open(&inner, kind, r));
    r->x = operands[0];
    r->skip = operands[1];
    r->skip_rows = r->rows;
    r->sum = made;
    return GQAC_OK;
}

static gqac_status run_norm(op_call *call, const norm *kind) {
    norm_run r;
    const ir_node *add = call->node->inputs[0].value->def;
    add = add && add->fused_into == call->node ? add : NULL;
    GQAC_TRY(open_norm(call, kind, add, &r));
    if (r.n <= 0 || r.rows <= 0)
        return GQAC_OK;
    norm_job job = {
        .kernels = cpu_level_of(call)->row,
        .p = {.n = r.n,
              .skip_rows = r.skip ? r.skip_rows : 1,
              .epsilon = r.epsilon,
              .centred = kind->centred,
              .round_before = kind->round_before && r.x->dtype != GQAC_F32,
              .round_sum = add != NULL,
              .type = r.x->dtype,
              .weight_type = r.weight->dtype,
              .bias_type = type_of(r.bias),
              .beta_type = type_of(r.beta),
              .y_type = r.y->dtype,
              .x = r.x->data,
              .skip = data_of(r.skip),
              .bias = data_of(r.bias),
              .weight = r.weight->data,
              .beta = data_of(r.beta),
              .y = r.y->data,
              .sum = data_of(r.sum),
              .mean = data_of(r.mean),
              .inv = data_of(r.inv)},
    };
    op_parallel(call, r.rows, 20 + r.n / 4, norm_items, &job);
    return GQAC_OK;
}

/* A row is read before y is written, and again element by element. The sum, which is written first,
 * is then read in place of its terms, and has their bits where it is not rounded. Here it takes the
 * first term, and leaves the second to y. */
bool cpu_norm_over(const ir_node *root, const ir_value *result, const ir_value *operand) {
    const ir_value *x = root->inputs[0].value;
    const ir_node *add = x->def && x->def->fused_into == root ? x->def : NULL;
    const ir_value *sum = add ? x : ir_node_output(root, 3);
    int at = -1, times = 0;
    for (const ir_use *use = operand->uses; use; use = use->next) {
        times += use->node == root || use->node == add;
        if (use->node == (add ? add : root))
            at = (int)(use - use->node->inputs);
    }
    if (add && !ir_value_leaves(sum))
        sum = NULL;
    return times == 1 && x->type.dtype == GQAC_F32 && result->type.dtype == GQAC_F32 &&
           cpu_same_shape(&operand->type, &x->type) && cpu_same_shape(&result->type, &x->type) &&
           at == (sum && result != sum ? 1 : 0) && (result == sum || result == root->outputs[0]);
}

gqac_status cpu_run_rms_onnx(op_call *call) {
    return run_norm(call, &norm_rms_onnx);
}

gqac_status cpu_run_rms(op_call *call) {
    return run_norm(call, &norm_rms);
}

gqac_status cpu_run_skip_rms(op_call *call) {
    return run_norm(call, &norm_skip_rms);
}

gqac_status cpu_run_layer(op_call *call) {
    return run_norm(call, &norm_layer);
}

gqac_status cpu_run_skip_layer(op_call *call) {
    return run_norm(call, &norm_skip_layer);
}

/* ---- rotary -------------------------------------------------------------- */

typedef struct head_job {
    cpu_head p;
    rotation r;
    const unsigned char *x;
    unsigned char *y;
    int64_t stride_b, stride_h, stride_s; /* of x, in elements */
    const struct cpu_row_kernels *kernels;
} head_job;

/* Items are rows (b, s), all heads of them. */
static void head_items(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const head_job *job = arg;
    const rotation *r = &job->r;
    const size_t width = op_width(job->p.type), x_width = op_width(job->p.x_type);
    const size_t table = (size_t)r->half * op_width(job->p.table_type);
    for (size_t item = begin; item < end; item++) {
        const int64_t b = (int64_t)item / r->rows, s = (int64_t)item % r->rows;
        const bool pad = rotary_is_pad(r, b, s);
        const size_t at = pad ? 0 : (size_t)rotary_position(r, b, s) * table;
        for (int64_t h = 0; h < r->heads; h++) {
            const int64_t from = b * job->stride_b + h * job->stride_h + s * job->stride_s;
            const int64_t to = ((b * r->heads + h) * r->rows + s) * r->size;
            unsigned char *y = job->y + (size_t)to * width;
            if (pad)
                memset(y, 0, (size_t)r->size * width);
            else
                job->kernels->head(&job->p, job->x + (size_t)from * x_width,
                                   (const unsigned char *)r->cos->data + at,
                                   (const unsigned char *)r->sin->data + at, y);
        }
    }
}

static gqac_status find_x(op_call *call, const fused_heads *f, head_job *job, int64_t dims[4]) {
    const gqac_tensor *x = op_value(call, f->x);
    const bool floats = x && OP_IN(OP_FLOATS, x->dtype);
    const bool packed = f->split && ir_attr_int(f->split, "kv") == 0;
    const int64_t heads = packed ? ir_attr_int(f->split, "q") : 0;
    if (!floats || x->rank != (packed ? 3 : 4) || (packed && x->dims[2] % heads != 0))
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "x must be floats of the shape [B,H,S,D], or [B,S,H*D] with %lld heads",
                (long long)heads);
    dims[0] = x->dims[0];
    dims[1] = packed ? heads : x->dims[1];
    dims[2] = packed ? x->dims[1] : x->dims[2];
    dims[3] = packed ? x->dims[2] / heads : x->dims[3];
    if (dims[3] > CPU_HEAD_SIZE)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "heads of %lld channels, at most %d",
                (long long)dims[3], CPU_HEAD_SIZE);
    job->stride_h = packed ? dims[3] : dims[2] * dims[3];
    job->stride_s = packed ? dims[1] * dims[3] : dims[3];
    job->stride_b = dims[1] * dims[2] * dims[3];
    job->x = x->data;
    job->p.x_type = job->p.type = x->dtype;
    return GQAC_OK;
}

gqac_status cpu_open_head_norm(op_call *call, const ir_node *node, const norm *kind, cpu_head *p) {
    const gqac_tensor *weight = op_value(call, ir_node_input(node, 1));
    if (!weight || !OP_IN(OP_FLOATS, weight->dtype) || gqac_tensor_count(weight) != p->size)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "the weight must have %lld floats",
                (long long)p->size);
    p->weight = weight->data;
    p->weight_type = weight->dtype;
    p->epsilon = ir_attr_float(node, "epsilon");
    p->round_before = kind->round_before && p->x_type != GQAC_F32;
    if (kind->round_before)
        p->type = weight->dtype;
    return GQAC_OK;
}

gqac_status cpu_run_heads(op_call *call) {
    fused_heads f = {.x = NULL};
    int64_t dims[4];
    head_job job = {.kernels = cpu_level_of(call)->row};
    cpu_find_heads(ir_node_input(call->node, 0), call->node, NULL, &f);
    GQAC_TRY(find_x(call, &f, &job, dims));
    job.p.size = dims[3];
    if (f.norm)
        GQAC_TRY(cpu_open_head_norm(call, f.norm, f.kind, &job.p));
    GQAC_TRY(rotary_open(call, dims, &job.r));
    if (job.r.sin->dtype != job.r.cos->dtype)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "cos and sin must have one type");
    job.p.half = job.r.half;
    job.p.interleaved = job.r.interleaved;
    job.p.table_type = job.r.cos->dtype;
    GQAC_TRY(op_output(call, 0, job.p.type, 4, dims));
    job.y = call->out[0].data;
    op_parallel(call, dims[0] * dims[2], 20 + dims[1] * (10 + dims[3] / 4), head_items, &job);
    return GQAC_OK;
}
