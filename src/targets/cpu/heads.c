/* Rotary embeddings on the cpu target: operands are read and checked as by the op's own eval, rows
 * are cut into items. x is [B,H,S,D], or a packed row [B,S,H*D] when its split_heads is fused; see
 * fuse_heads.c for what comes with it. */
#include "targets/cpu/heads.h"

#include <string.h>

#include "ops/norm.h"
#include "ops/rotary.h"
#include "targets/cpu/fuse_heads.h"

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
    head_job job = {.kernels = ((const cpu_level *)call->state)->row};
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
