/* Numbers such as -1e4 in place of hidden scores (GPT-2 of transformers 4). Such a number hides a
 * key only if the scores of visible keys are much higher. Weights may prove that:
 *
 *     |scale q.k| <= scale |q| |k|,  q = W^T x + b,  x = scale' * z + bias' with |z| <= sqrt(d)
 *     |q| <= sqrt(d) |diag(scale') W| + |W^T bias'| + |b|
 *
 * since LayerNormalization and RMSNormalization make z, and likewise for k. |W| is the largest
 * singular value. If the number lies so far below every score that its softmax is exactly 0, it is
 * replaced by one that hides any score (term_hides). Cached keys are taken to be keys that the
 * model has computed. Only sequences are changed: they have no padding, which might hide the keys
 * that the scores belong to. */
#include <math.h>
#include <string.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "passes/raise_scores.h"
#include "passes/raise_terms.h"

enum { MOST_DEPTH = 24, MOST_MASK = 8, MOST_SIZE = 1024, SQUARINGS = 4 };

/* Vectors of the same number of elements, one after another along an axis. */
typedef struct vectors {
    int axis;
    int64_t first, n; /* they fill the elements [first, first + n) */
} vectors;

typedef struct bound {
    int *steps;                   /* raise.steps */
    int64_t size;                 /* elements of a vector */
    double *row, *gram, *squared; /* [size], [size,size] */
    bool close;                   /* singular values, not the larger Frobenius norms */
} bound;

/* diag(scale) W, for rows x = scale * z + bias */
typedef struct weights {
    const gqac_tensor *of, *scale, *bias; /* bias may be NULL */
    int64_t rows, row_step, column_step;
} weights;

static double longest(const bound *b, const ir_value *x, vectors at, int depth);

/* ---- products with weights ----------------------------------------------- */

static double weight(const weights *w, int64_t row, int64_t column) {
    return (double)op_get_f32(w->of, row * w->row_step + column * w->column_step);
}

/* gram += row row^T, its lower half */
static void add_square(int64_t n, const double *restrict row, double *restrict gram) {
    for (int64_t j = 0; j < n; j++) {
        const double x = row[j];
        for (int64_t k = 0; k <= j; k++)
            gram[j * n + k] += x * row[k];
    }
}

/* A = diag(scale) W of one vector: adds up A^T A and returns its trace. */
static double add_up(const bound *b, const weights *w, int64_t first) {
    double trace = 0;
    memset(b->gram, 0, (size_t)(b->size * b->size) * sizeof *b->gram);
    for (int64_t i = 0; i < w->rows; i++) {
        const double scale = (double)op_get_f32(w->scale, i);
        for (int64_t j = 0; j < b->size; j++) {
            b->row[j] = weight(w, i, first + j) * scale;
            trace += b->row[j] * b->row[j];
        }
        if (b->close)
            add_square(b->size, b->row, b->gram);
    }
    return trace;
}

static double dot(int64_t n, const double *x, const double *y) {
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        sum[0] += x[i] * y[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* gram = (gram / trace)^2; returns the trace of the result. */
static double square(const bound *b, double trace) {
    const int64_t n = b->size;
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k <= j; k++)
            b->gram[j * n + k] = b->gram[k * n + j] = b->gram[j * n + k] / trace;
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k <= j; k++) {
            const double x = dot(n, b->gram + j * n, b->gram + k * n);
            b->squared[j * n + k] = x;
            sum += j == k ? x : 0;
        }
    memcpy(b->gram, b->squared, (size_t)(n * n) * sizeof *b->gram);
    return sum;
}

/* At least the largest singular value of A: the largest eigenvalue of G = A^T A is at most the n-th
 * root of the trace of G^n. */
static double singular(const bound *b, const weights *w, int64_t first) {
    double trace = add_up(b, w, first), part = 1;
    if (!b->close || !(trace > 0))
        return sqrt(trace);
    double log_of = log(trace);
    for (int i = 0; i < SQUARINGS; i++) {
        trace = square(b, trace);
        part /= 2;
        log_of += part * log(trace);
    }
    return sqrt(exp(log_of));
}

/* Infinity for numbers that are not finite. */
static double known(double x) {
    return x < INFINITY ? x : INFINITY;
}

/* The longest of the vectors in a constant. */
static double longest_of(const bound *b, const gqac_tensor *t, vectors at) {
    double most = 0;
    for (int64_t first = at.first; first < at.first + at.n; first += b->size) {
        double sum = 0;
        for (int64_t j = 0; j < b->size; j++)
            sum += pow((double)op_get_f32(t, first + j), 2);
        most = fmax(most, known(sqrt(sum)));
    }
    return most;
}

/* |W^T bias| of one vector */
static double shift(const bound *b, const weights *w, int64_t first) {
    double sum = 0;
    for (int64_t j = 0; w->bias && j < b->size; j++) {
        double x = 0;
        for (int64_t i = 0; i < w->rows; i++)
            x += weight(w, i, first + j) * (double)op_get_f32(w->bias, i);
        sum += x * x;
    }
    return sqrt(sum);
}

/* True if x is the result of a norm over its last axis, from which scale and bias are read. */
static bool is_normalised(const ir_value *x, weights *w) {
    for (const ir_node *reshape; (reshape = raise_maker(x, "Reshape"));) {
        const ir_value *from = ir_node_input(reshape, 0);
        if (from->type.rank < 1 || x->type.rank < 1 ||
            raise_dim(from, from->type.rank - 1) != raise_dim(x, x->type.rank - 1))
            return false;
        x = from;
    }
    const ir_node *layer = raise_maker(x, "LayerNormalization");
    const ir_node *norm = layer ? layer : raise_maker(x, "RMSNormalization");
    if (!norm || x != norm->outputs[0] || x->type.dtype != GQAC_F32)
        return false;
    const int64_t axis = ir_attr_int(norm, "axis");
    const ir_value *bias = layer ? ir_node_input(layer, 2) : NULL;
    w->scale = pass_constant(ir_node_input(norm, 1));
    w->bias = bias ? pass_constant(bias) : NULL;
    return w->scale && (!bias || w->bias) && (axis == -1 || axis == x->type.rank - 1) &&
           gqac_tensor_count(w->scale) == w->rows &&
           (!bias || gqac_tensor_count(w->bias) == w->rows);
}

/* A file cannot make this take long: the work comes out of the steps of all masks. */
static bool may_add_up(const bound *b, const weights *w, int64_t columns) {
    const double cost =
        1 + (double)w->rows * (double)columns * (double)(b->close ? b->size : 1) / (1 << 14);
    if (cost > *b->steps)
        return false;
    *b->steps -= (int)cost;
    return true;
}

static double of_product(const bound *b, const ir_node *node, vectors at) {
    const bool gemm = op_is(node, "", "Gemm"), turned = gemm && ir_attr_int(node, "transB");
    const ir_value *c = gemm ? ir_node_input(node, 2) : NULL;
    const gqac_tensor *added = c ? pass_constant(c) : NULL;
    weights w = {.of = pass_constant(ir_node_input(node, 1))};
    double most = 0;
    if (!w.of || w.of->rank != 2 || !OP_IN(OP_FLOATS, w.of->dtype) ||
        at.axis != node->outputs[0]->type.rank - 1 ||
        (gemm && (ir_attr_int(node, "transA") || ir_attr_float(node, "alpha") != 1 ||
                  ir_attr_float(node, "beta") != 1)))
        return INFINITY;
    const int64_t columns = w.of->dims[turned ? 0 : 1];
    w.rows = w.of->dims[turned ? 1 : 0];
    w.row_step = turned ? 1 : columns;
    w.column_step = turned ? w.rows : 1;
    if (!is_normalised(ir_node_input(node, 0), &w) || at.first + at.n > columns ||
        (c && (!added || gqac_tensor_count(added) != columns ||
               added->dims[added->rank - 1] != columns)) ||
        !may_add_up(b, &w, at.n))
        return INFINITY;
    for (int64_t first = at.first; first < at.first + at.n; first += b->size)
        most =
            fmax(most, known(sqrt((double)w.rows) * singular(b, &w, first) + shift(b, &w, first)));
    return most + (added ? longest_of(b, added, at) : 0);
}

/* ---- from heads back to products ----------------------------------------- */

/* The same vectors in the operand of a Reshape, in which they fill the last axis. */
static double of_reshape(const bound *b, const ir_node *node, vectors at, int depth) {
    const ir_value *from = ir_node_input(node, 0), *to = node->outputs[0];
    const int64_t width = from->type.rank > 0 ? raise_dim(from, from->type.rank - 1) : 0;
    if (at.axis != to->type.rank - 1 || width % b->size || !width)
        return INFINITY;
    if (width != raise_dim(to, at.axis))
        at = (vectors){.n = width};
    at.axis = from->type.rank - 1;
    return longest(b, from, at, depth);
}

static double of_split(const bound *b, const ir_node *node, const ir_value *part, vectors at,
                       int depth) {
    const int64_t axis = pass_axis(node, part->type.rank);
    for (int i = 0; axis == at.axis && i < node->n_outputs && node->outputs[i] != part; i++) {
        const int64_t width = node->outputs[i] ? raise_dim(node->outputs[i], at.axis) : 0;
        if (!width || width % b->size)
            return INFINITY;
        at.first += width;
    }
    return longest(b, ir_node_input(node, 0), at, depth);
}

/* Vectors and a bias. */
static double of_sum(const bound *b, const ir_node *node, vectors at, int depth) {
    for (int i = 0; i < 2; i++) {
        const gqac_tensor *bias = pass_constant(ir_node_input(node, i));
        const bool last = at.axis == node->outputs[0]->type.rank - 1;
        if (bias && last && bias->rank == 1 && OP_IN(OP_FLOATS, bias->dtype) &&
            bias->dims[0] == raise_dim(node->outputs[0], at.axis))
            return longest(b, ir_node_input(node, 1 - i), at, depth) + longest_of(b, bias, at);
    }
    return INFINITY;
}

/* True if the value is a past, or a part of one that holds keys and values. */
static bool is_past(const ir_value *x) {
    static const char *const picks[] = {"Gather", "Split", "Squeeze", "Transpose", NULL};
    for (int i = 0; i < MOST_DEPTH && x->def; i++) {
        if (*x->def->op->domain || !pass_listed(picks, x->def->op->name))
            return false;
        x = ir_node_input(x->def, 0);
    }
    return pass_is_past(x);
}

/* Cached rows, and new ones after them. */
static double of_concat(const bound *b, const ir_node *node, vectors at, int depth) {
    const bool rows = pass_axis(node, node->outputs[0]->type.rank) != at.axis;
    return rows && node->n_inputs == 2 && is_past(ir_node_input(node, 0))
               ? longest(b, ir_node_input(node, 1), at, depth)
               : INFINITY;
}

/* At least the length of each of these vectors; infinity: not known. */
static double longest(const bound *b, const ir_value *x, vectors at, int depth) {
    double factor = 1;
    const ir_value *inner = raise_unscaled((ir_value *)(uintptr_t)x, &factor);
    const ir_node *node = inner->def;
    if (!node || !depth || *node->op->domain || inner->type.dtype != GQAC_F32 ||
        inner->graph != x->graph)
        return INFINITY;
    factor = fabs(factor);
    if (op_is(node, "", "Transpose") && ir_attr_is_set(node, "perm")) {
        at.axis = (int)ir_attr_get(node, "perm")->ints[at.axis];
        return factor * longest(b, ir_node_input(node, 0), at, depth - 1);
    }
    if (op_is(node, "", "Reshape"))
        return factor * of_reshape(b, node, at, depth - 1);
    if (op_is(node, "", "Split"))
        return factor * of_split(b, node, inner, at, depth - 1);
    if (op_is(node, "", "Concat"))
        return factor * of_concat(b, node, at, depth - 1);
    if (op_is(node, "", "Add"))
        return factor * of_sum(b, node, at, depth - 1);
    const bool product = op_is(node, "", "MatMul") || op_is(node, "", "Gemm");
    return product ? factor * of_product(b, node, at) : INFINITY;
}

/* ---- scores -------------------------------------------------------------- */

static bool reserve(raise *r, bound *b) {
    b->row = GQAC_ARENA_ARRAY(r->context->scratch, double, (size_t)b->size);
    b->gram = GQAC_ARENA_ARRAY(r->context->scratch, double, (size_t)(b->size * b->size));
    b->squared = GQAC_ARENA_ARRAY(r->context->scratch, double, (size_t)(b->size * b->size));
    if (!b->row || !b->gram || !b->squared)
        r->b.status = gqac_diag_oom(r->b.diag, "a bound of scores");
    return r->b.status == GQAC_OK;
}

/* True if no score is above `most`, or below -most. */
static bool are_within(raise *r, ir_value *scores, double most) {
    double factor = 1;
    const ir_node *product = raise_maker(raise_unscaled(scores, &factor), "MatMul");
    const ir_value *q = product ? ir_node_input(product, 0) : NULL;
    const ir_value *k = product ? ir_node_input(product, 1) : NULL;
    const int last = q ? q->type.rank - 1 : 0;
    if (last < 2 || k->type.rank != q->type.rank)
        return false;
    bound b = {.steps = r->steps, .size = raise_dim(q, last)};
    if (!b.size || b.size > MOST_SIZE || raise_dim(k, last - 1) != b.size || !reserve(r, &b))
        return false;
    for (int close = 0; close < 2; close++) {
        b.close = close;
        const vectors of_q = {.axis = last, .n = b.size}, of_k = {.axis = last - 1, .n = b.size};
        if (fabs(factor) * longest(&b, q, of_q, MOST_DEPTH) * longest(&b, k, of_k, MOST_DEPTH) <=
            most)
            return true;
    }
    return false;
}

/* True if the value depends only on the attention mask and on single numbers. In a sequence it is
 * then the same for all keys, and so without effect on their softmax. */
static bool is_padding(const ir_graph *graph, const ir_value *x, int depth) {
    static const char *const elementwise[] = {"Cast", "Sub", "Mul", NULL};
    static const char *const shapes[] = {"Reshape", "Unsqueeze", NULL};
    double number;
    if (pass_is_attention_mask(graph, x) || raise_scalar(x, &number))
        return true;
    const bool shape = x->def && pass_listed(shapes, x->def->op->name);
    if (!x->def || !depth || *x->def->op->domain ||
        (!shape && !pass_listed(elementwise, x->def->op->name)))
        return false;
    for (int i = 0; i < (shape ? 1 : x->def->n_inputs); i++)
        if (!is_padding(graph, ir_node_input(x->def, i), depth - 1))
            return false;
    return true;
}

/* True if the scores are only read by a softmax over keys, possibly with padding added. */
static bool is_only_weighed(const ir_value *scores, int depth) {
    for (const ir_use *use = scores->uses; use; use = use->next) {
        const ir_node *node = use->node;
        const ir_value *other =
            op_is(node, "", "Add") ? ir_node_input(node, use == node->inputs) : NULL;
        const int64_t axis = op_is(node, "", "Softmax") ? ir_attr_int(node, "axis") : 0;
        const bool keys = axis == -1 || (axis && axis == scores->type.rank - 1);
        if (!keys && (!other || !depth || !is_padding(node->graph, other, MOST_MASK) ||
                      !is_only_weighed(node->outputs[0], depth - 1)))
            return false;
    }
    return true;
}

ir_value *raise_bounded(raise *r, ir_node *where) {
    enum { ADDED = 2 }; /* masks that are added afterwards */
    static const float hides = -1e9f;
    double x = 0;
    const int fill = raise_scalar(ir_node_input(where, 1), &x) ? 1 : 2;
    const ir_value *number = ir_node_input(where, fill);
    if (r->portable || !r->context->options.for_sequences || !raise_scalar(number, &x) ||
        number->type.dtype != GQAC_F32 || x >= 0 || term_hides(GQAC_F32, x) ||
        !is_only_weighed(where->outputs[0], ADDED))
        return NULL;
    /* roundings of the scores are far below a tenth, and exp(-150) is 0 in f32 */
    if (!are_within(r, ir_node_input(where, 3 - fill), -0.9 * x - 150))
        return NULL;
    const gqac_tensor t = {.dtype = GQAC_F32, .data = (void *)(uintptr_t)&hides};
    ir_value *low = ir_graph_add_constant(r->b.graph, "hides", &t);
    if (!low)
        r->b.status = gqac_diag_oom(r->b.diag, "a constant");
    ir_value *in[] = {ir_node_input(where, 0), NULL, NULL};
    in[fill] = low;
    in[3 - fill] = ir_node_input(where, 3 - fill);
    return OP_BUILD(&r->b, "Where", .in = {in[0], in[1], in[2]});
}
