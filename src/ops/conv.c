/* Conv: y[b,m,o] = bias[m] + sum over c, j of weight[m,c,j] * x[b, group's c, o * stride - pad + j
 * * dilation], any number of spatial axes, terms outside of x left out. Each element is one chain
 * over c and then j, ascending, and then the bias; in fp32, rounded once. Source: ONNX operator
 * spec. The elements of x for a few positions of a line at a time are copied into columns of terms;
 * then the chains of a block of maps at sixteen positions run in registers. */
#include "ops/conv.h"

#include <string.h>

#include "base/check.h"
#include "numerics/reduce.h"
#include "ops/kernel.h"

enum { X = CONV_X, W = CONV_W, BIAS };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    int64_t maps, biases;
    for (int i = X; i <= BIAS; i++) {
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        GQAC_TRY(op_check_same(node, X, i, diag));
    }
    if (ir_dim_is_const(op_in_dim(node, W, 0), &maps) &&
        ir_dim_is_const(op_in_dim(node, BIAS, 0), &biases) && biases != maps)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "there are %lld biases for %lld feature maps",
                (long long)biases, (long long)maps);
    return conv_infer(node, op_in_type(node, X).dtype, diag);
}

/* An item is a chunk of positions along the last axis, for some maps of a group. */
enum { CHUNK = 64, PART = 256, BLOCK = 4 };

typedef struct conv {
    const gqac_tensor *x, *w, *bias;
    gqac_tensor *y;
    int n; /* spatial axes */
    conv_axis axes[CONV_SPACE];
    int64_t batch, channels, maps, group;
    int64_t lines, plane, taps; /* lines of y in a map; elements of x in a channel; of a kernel */
    int64_t terms;              /* of a chain: channels of a group times taps */
    int64_t parts, chunks;      /* of a group; of a line of y */
    op_scratch scratch;
} conv;

/* Scratch of a worker: the element of x for each term at each position, the terms of the line,
 * where a tap is inside x, a piece of a line of x, and four rows of weights. */
typedef struct work {
    float *columns; /* [terms,CHUNK] */
    int64_t kept;   /* terms: those of lines outside of x are left out */
    int64_t *terms;
    uint32_t *inside; /* [taps of the last axis,CHUNK] */
    bool edges[CHUNK /
               GQAC_LANES]; /* of sixteen positions: some tap is outside x for one of these */
    float *line, *weights;
} work;

/* acc[b][l] = chain over k of w[b][k] * x[k * CHUNK + l]; terms outside of x are left out. */
OP_BODY void chains_body(const float *restrict x, int64_t terms, const float *const *w,
                         const uint32_t *restrict inside, const int64_t *restrict at, int64_t taps,
                         float (*restrict acc)[GQAC_LANES]) {
    float a[GQAC_LANES] = {0}, b[GQAC_LANES] = {0}, c[GQAC_LANES] = {0}, d[GQAC_LANES] = {0};
    for (int64_t k = 0; k < terms; k++) {
        const float *v = x + k * CHUNK, p = w[0][k], q = w[1][k], r = w[2][k], s = w[3][k];
        if (!inside) {
            GQN_EACH_LANE(l, {
                a[l] = gqn_fma(p, v[l], a[l]);
                b[l] = gqn_fma(q, v[l], b[l]);
                c[l] = gqn_fma(r, v[l], c[l]);
                d[l] = gqn_fma(s, v[l], d[l]);
            });
            continue;
        }
        const uint32_t *in = inside + at[k] % taps * CHUNK;
        GQN_EACH_LANE(l, {
            a[l] = in[l] ? gqn_fma(p, v[l], a[l]) : a[l];
            b[l] = in[l] ? gqn_fma(q, v[l], b[l]) : b[l];
            c[l] = in[l] ? gqn_fma(r, v[l], c[l]) : c[l];
            d[l] = in[l] ? gqn_fma(s, v[l], d[l]) : d[l];
        });
    }
    for (int l = 0; l < GQAC_LANES; l++) {
        acc[0][l] = a[l];
        acc[1][l] = b[l];
        acc[2][l] = c[l];
        acc[3][l] = d[l];
    }
}

OP_BODY void inner_body(const float *x, int64_t terms, const float *const *w,
                        float (*acc)[GQAC_LANES]) {
    chains_body(x, terms, w, NULL, NULL, 1, acc);
}
OP_KERNEL(inner, (const float *x, int64_t terms, const float *const *w, float (*acc)[GQAC_LANES]),
          (x, terms, w, acc))
OP_KERNEL(chains,
          (const float *x, int64_t terms, const float *const *w, const uint32_t *inside,
           const int64_t *at, int64_t taps, float (*acc)[GQAC_LANES]),
          (x, terms, w, inside, at, taps, acc))

/* Line of x in its channel for line `line` of y and the outer taps `tap`; -1 when outside. */
static int64_t line_of(const conv *c, int64_t line, int64_t tap) {
    int64_t at = 0, step = 1;
    for (int i = c->n - 2; i >= 0; i--) {
        const conv_axis *a = &c->axes[i];
        const int64_t o = line % a->out, j = tap % a->taps;
        const int64_t p = o * a->stride - a->pad + j * a->dilation;
        if (p < 0 || p >= a->in)
            return -1;
        at += p * step;
        step *= a->in;
        line /= a->out;
        tap /= a->taps;
    }
    return at;
}

/* x at the positions [first, first + n) for tap j of the last axis, from elements [low, high) of a
 * line; zeros outside. */
static void gather(const conv_axis *a, const float *line, int64_t low, int64_t high, int64_t first,
                   int64_t n, int64_t j, float *to) {
    const int64_t start = first * a->stride + j * a->dilation - a->pad;
    if (a->stride == 1 && n == CHUNK && start >= low && start + CHUNK <= high) {
        memcpy(to, line + start - low, CHUNK * sizeof *to);
        return;
    }
    for (int64_t o = 0; o < CHUNK; o++) {
        const int64_t at = start + o * a->stride;
        to[o] = o < n && at >= low && at < high ? line[at - low] : 0.0f;
    }
}

/* The columns of a chunk. */
static void make_columns(const conv *c, int64_t channel, int64_t line, int64_t first, int64_t n,
                         work *k) {
    const conv_axis *a = &c->axes[c->n - 1];
    const int64_t outer = c->taps / a->taps, each = c->channels / c->group;
    const int64_t reach = (a->taps - 1) * a->dilation;
    int64_t low = first * a->stride - a->pad, high = low + (n - 1) * a->stride + reach + 1;
    const bool edges = low < 0 || high > a->in;
    memset(k->edges, 0, sizeof k->edges);
    low = low < 0 ? 0 : low < a->in ? low : a->in;
    high = high > a->in ? a->in : high > low ? high : low;
    for (int64_t j = 0; j < a->taps && edges; j++)
        for (int64_t o = 0; o < CHUNK; o++) {
            const int64_t at = (first + o) * a->stride + j * a->dilation - a->pad;
            k->inside[j * CHUNK + o] = at >= 0 && at < a->in;
            k->edges[o / GQAC_LANES] |= o < n && (at < 0 || at >= a->in);
        }
    k->kept = 0;
    for (int64_t i = 0; i < each; i++)
        for (int64_t tap = 0; tap < outer; tap++) {
            const int64_t from = line_of(c, line, tap);
            if (from < 0)
                continue;
            const int64_t at = (channel + i) * c->plane + from * a->in + low;
            const float *x = (const float *)c->x->data + at;
            if (c->x->dtype != GQAC_F32) {
                op_get_f32s(c->x, at, high - low, k->line);
                x = k->line;
            }
            for (int64_t j = 0; j < a->taps; j++) {
                gather(a, x, low, high, first, n, j, k->columns + k->kept * CHUNK);
                k->terms[k->kept++] = (i * outer + tap) * a->taps + j;
            }
        }
}

/* The weights of the kept terms of a map. */
static const float *weights_of(const conv *c, const work *k, int64_t map, float *scratch) {
    if (k->kept == c->terms && c->w->dtype == GQAC_F32)
        return (const float *)c->w->data + map * c->terms;
    if (k->kept == c->terms)
        op_get_f32s(c->w, map * c->terms, c->terms, scratch);
    else
        for (int64_t i = 0; i < k->kept; i++)
            scratch[i] = op_get_f32(c->w, map * c->terms + k->terms[i]);
    return scratch;
}

/* Maps [map, map + count) at the positions of the columns; to: the first position in a line of
 * y. */
static void block(const conv *c, const work *k, int64_t map, int64_t count, int64_t to, int64_t n) {
    const float *w[BLOCK];
    float acc[BLOCK][GQAC_LANES];
    const conv_axis *last = &c->axes[c->n - 1];
    w[0] = weights_of(c, k, map, k->weights);
    for (int64_t b = 1; b < BLOCK; b++)
        w[b] = b < count ? weights_of(c, k, map + b, k->weights + b * c->terms) : w[0];
    for (int64_t o = 0; o < n; o += GQAC_LANES) {
        const int64_t lanes = n - o < GQAC_LANES ? n - o : GQAC_LANES;
        if (k->edges[o / GQAC_LANES])
            chains(k->columns + o, k->kept, w, k->inside + o, k->terms, last->taps, acc);
        else
            inner(k->columns + o, k->kept, w, acc);
        for (int64_t b = 0; b < count; b++) {
            const float bias = c->bias ? op_get_f32(c->bias, map + b) : 0;
            for (int64_t l = 0; l < lanes; l++)
                acc[b][l] = op_one_nan(c->bias ? acc[b][l] + bias : acc[b][l]);
            op_put_f32s(c->y, to + b * c->lines * last->out + o, lanes, acc[b]);
        }
    }
}

static void run(void *arg, size_t begin, size_t end, int worker) {
    const conv *c = arg;
    const conv_axis *last = &c->axes[c->n - 1];
    const int64_t of_group = c->maps / c->group, each = c->channels / c->group;
    work k = {.terms = (int64_t *)(void *)(c->scratch.base + (size_t)worker * c->scratch.stride)};
    k.columns = (float *)(void *)(k.terms + c->terms);
    k.weights = k.columns + c->terms * CHUNK;
    k.inside = (uint32_t *)(void *)(k.weights + c->terms * BLOCK);
    k.line = (float *)(void *)(k.inside + last->taps * CHUNK);
    for (int64_t item = (int64_t)begin; item < (int64_t)end; item++) {
        int64_t rest = item;
        const int64_t first = rest % c->chunks * CHUNK, part = rest / c->chunks % c->parts;
        rest /= c->chunks * c->parts;
        const int64_t line = rest % c->lines, group = rest / c->lines % c->group;
        const int64_t batch = rest / c->lines / c->group;
        const int64_t n = last->out - first < CHUNK ? last->out - first : CHUNK;
        const int64_t stop = part * PART + PART < of_group ? part * PART + PART : of_group;
        make_columns(c, batch * c->channels + group * each, line, first, n, &k);
        for (int64_t m = part * PART; m < stop; m += BLOCK) {
            const int64_t map = group * of_group + m;
            block(c, &k, map, stop - m < BLOCK ? stop - m : BLOCK,
                  ((batch * c->maps + map) * c->lines + line) * last->out + first, n);
        }
    }
}

static gqac_status read_inputs(op_call *call, conv *c) {
    const ir_node *node = call->node;
    GQAC_TRY(op_want_set(call, X, OP_FLOATS));
    c->x = call->in[X];
    GQAC_TRY(op_want(call, W, c->x->dtype));
    c->w = call->in[W];
    if (c->x->rank < 3 || c->w->rank != c->x->rank)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                "X and W have the ranks %d and %d: they must be equal, and at least 3", c->x->rank,
                c->w->rank);
    c->n = c->x->rank - 2;
    c->batch = c->x->dims[0];
    c->channels = c->x->dims[1];
    c->maps = c->w->dims[0];
    c->group = ir_attr_int(node, "group");
    if (c->channels % c->group != 0 || c->maps % c->group != 0 ||
        c->w->dims[1] != c->channels / c->group)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                "%lld channels, weights [%lld,%lld,..] and %lld groups do not fit",
                (long long)c->channels, (long long)c->maps, (long long)c->w->dims[1],
                (long long)c->group);
    if (ir_node_input(node, BIAS)) {
        GQAC_TRY(op_want(call, BIAS, c->x->dtype));
        c->bias = call->in[BIAS];
        if (gqac_tensor_count(c->bias) != c->maps)
            OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                    "there are %lld biases for %lld feature maps",
                    (long long)gqac_tensor_count(c->bias), (long long)c->maps);
    }
    return GQAC_OK;
}

static gqac_status read_axes(op_call *call, conv *c, int64_t *dims) {
    const ir_node *node = call->node;
    GQAC_TRY(conv_check_lists(node, c->n, call->diag));
    for (int i = 0; i < c->n; i++) {
        conv_axis *a = &c->axes[i];
        a->in = c->x->dims[2 + i];
        a->taps = c->w->dims[2 + i];
        if (a->taps < 1 || a->taps != conv_entry(node, "kernel_shape", i, a->taps) ||
            !conv_place(node, i, c->n, a))
            OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                    "a kernel of %lld elements does not fit the %lld elements of spatial axis %d",
                    (long long)a->taps, (long long)a->in, i);
        dims[2 + i] = a->out;
    }
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    conv c = {.y = &call->out[0], .lines = 1};
    int64_t dims[GQAC_MAX_RANK];
    GQAC_TRY(read_inputs(call, &c));
    GQAC_TRY(read_axes(call, &c, dims));
    dims[0] = c.batch;
    dims[1] = c.maps;
    GQAC_TRY(op_output(call, 0, c.x->dtype, c.x->rank, dims));
    if (gqac_tensor_count(c.y) == 0)
        return GQAC_OK;
    c.lines = op_product(dims, 2, c.x->rank - 1);
    c.plane = op_product(c.x->dims, 2, c.x->rank);
    c.taps = op_product(c.w->dims, 2, c.w->rank);
    c.terms = c.channels / c.group * c.taps;
    const conv_axis *last = &c.axes[c.n - 1];
    const int64_t of_group = c.maps / c.group;
    c.parts = (of_group + PART - 1) / PART;
    c.chunks = (last->out + CHUNK - 1) / CHUNK;
    int64_t floats, masks;
    if (!gqac_mul_i64(c.terms, CHUNK + BLOCK + 2, &floats) ||
        !gqac_mul_i64(last->taps, CHUNK, &masks) || !gqac_add_i64(floats, masks, &floats) ||
        !gqac_add_i64(floats, last->in, &floats))
        return gqac_diag_oom(call->diag, "scratch");
    GQAC_TRY(op_scratch_open(call, (size_t)floats, sizeof(float), &c.scratch));
    const int64_t places = last->out < CHUNK ? last->out : CHUNK;
    op_parallel(call, c.batch * c.group * c.lines * c.parts * c.chunks,
                10 + c.terms * (CHUNK + places * (of_group < PART ? of_group : PART) / 16), run,
                &c);
    op_scratch_close(&c.scratch);
    return GQAC_OK;
}

/* Positions along a spatial axis and channels are mixed; batch rows are not. */
const gqac_op gqac_op_conv = {
    .schema = {.name = "Conv",
               .domain = "",
               .since = 11,
               .inputs = "X W B?",
               .outputs = "Y",
               .attrs = conv_attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "convolution of X [B,C,..] by W [M,C/group,..], plus a bias"},
    .infer = infer,
    .verify = conv_verify,
    .eval = eval,
    .mixes = conv_mixes,
};
