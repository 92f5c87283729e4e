/* GroupQueryAttention in double precision, as plain loops, written from the meaning of the op and
 * sharing nothing with the library. Batch row b has p = past[b] cached rows and n = fresh[b] new
 * ones. Query s (s < n) is at position p + s; the keys max(0, p + s + 1 - window) ... p + s are
 * visible to it, or all keys below p + n if it is not causal. Pad rows (s >= n) return zeros and
 * write nothing. With shared keys the past already contains the rows of the new tokens. A quantised
 * cache contains codes (here one code in each number, in past and present); a query reads code *
 * scale, also for new rows. */
#ifndef GQA_CORE_H
#define GQA_CORE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gqa_case {
    int batch, chunk, past_rows, capacity; /* B, S, P, C */
    int q_heads, kv_heads, size;           /* Hq, Hkv, D */
    int rotary, interleaved;               /* rotated channels (0: none), pairing */
    int window;                            /* -1: none */
    int everyone;                          /* 1: not causal */
    int shared;                            /* 1: no new keys and values, k and v are not read */
    int bias_batch, bias_heads, total;     /* dims of the bias; columns of bias and qk */
    int qk_stage;                          /* qk is 1: scores, 2: probabilities */
    int bits;                              /* of a code, 8 or 4; 0: the cache contains values */
    const double *k_scale, *v_scale;       /* [Hkv,D], if there are codes */
    double scale, softcap, epsilon;
    const int *past, *fresh;       /* [B] */
    const double *q;               /* [B,S,Hq,D] */
    const double *k, *v;           /* [B,S,Hkv,D] */
    const double *past_k, *past_v; /* [B,Hkv,P,D] */
    const double *cos, *sin;       /* [M,rotary/2] */
    const double *q_norm, *k_norm; /* [D], NULL: none */
    const double *bias, *sink;     /* [bias_batch,bias_heads,S,total], [Hq], NULL: none */
    const int64_t *positions;      /* [B,S], NULL: past + s */
    double (*store)(double);       /* rounds to the element type of the tensors, as results of a
                                      norm or of the rotation are; NULL: no rounding */
    double *y;                     /* [B,S,Hq,D] */
    double *present_k, *present_v; /* [B,Hkv,C,D] */
    double *qk;                    /* [B,Hq,S,total], NULL: not wanted */
    double *uncoded_k;             /* key / scale before it is rounded, laid out as present_k; the
                                      same for values */
    double *error_k;               /* by how much float arithmetic may miss uncoded_k; NULL: not
                                      wanted */
    const char *second_code;       /* not 0: the second nearest code of this new key, laid out as
                                      present_k; NULL: nowhere */
} gqa_case;

static double gqa_stored(const gqa_case *c, double x) {
    return c->store ? c->store(x) : x;
}

/* Rounds x, which float arithmetic computes within *error, and adds what that may change. */
static double gqa_stored_within(const gqa_case *c, double x, double *error) {
    double below = gqa_stored(c, x - *error), above = gqa_stored(c, x + *error);
    x = gqa_stored(c, x);
    *error = fmax(x - below, above - x);
    return x;
}

/* error[D] is 0 before; a sum of D squares in float has a relative error below D * 2^-24. */
static void gqa_norm(const gqa_case *c, const double *weight, double *x, double *error) {
    double sum = 0;
    if (!weight)
        return;
    for (int d = 0; d < c->size; d++)
        sum += x[d] * x[d];
    for (int d = 0; d < c->size; d++) {
        x[d] *= weight[d] / sqrt(sum / c->size + c->epsilon);
        error[d] = fabs(x[d]) * (c->size + 8) * 0x1p-24;
        x[d] = gqa_stored_within(c, x[d], &error[d]);
    }
}

static void gqa_rotate(const gqa_case *c, int position, double *x, double *error) {
    int half = c->rotary / 2;
    for (int i = 0; i < half; i++) {
        int first = c->interleaved ? 2 * i : i, second = c->interleaved ? 2 * i + 1 : i + half;
        double a = x[first], b = x[second], ea = error[first], eb = error[second];
        double co = c->cos[position * half + i], si = c->sin[position * half + i];
        error[first] = ea * fabs(co) + eb * fabs(si) + (fabs(a * co) + fabs(b * si)) * 0x1p-22;
        error[second] = eb * fabs(co) + ea * fabs(si) + (fabs(b * co) + fabs(a * si)) * 0x1p-22;
        x[first] = gqa_stored_within(c, a * co - b * si, &error[first]);
        x[second] = gqa_stored_within(c, b * co + a * si, &error[second]);
    }
}

static int gqa_position(const gqa_case *c, int b, int s) {
    return c->positions ? (int)c->positions[b * c->chunk + s] : c->past[b] + s;
}

/* The code of x. NaN becomes the largest code; a scale of 0 means 1. */
static double gqa_code(const gqa_case *c, double x, double scale) {
    float most = c->bits == 8 ? 127 : 7, unit = scale == 0 ? 1 : (float)scale;
    float inverse = 1.0f / unit, y = (float)x * inverse;
    if (y != y || y > most)
        return most;
    return y < -most - 1 ? -most - 1 : rintf(y);
}

/* The value that a query reads for channel d of a row of head g. */
static double gqa_read(const gqa_case *c, const double *scale, int g, const double *row, int d) {
    return c->bits ? (float)row[d] * (float)scale[g * c->size + d] : row[d];
}

static void gqa_fill_present(const gqa_case *c, double *error) {
    for (int b = 0; b < c->batch; b++)
        for (int g = 0; g < c->kv_heads; g++)
            for (int j = 0; j < c->capacity; j++) {
                int at = ((b * c->kv_heads + g) * c->capacity + j) * c->size;
                int s = j - c->past[b];
                int new_row = s >= 0 && s < c->fresh[b] && !c->shared;
                int from = new_row ? ((b * c->chunk + s) * c->kv_heads + g) * c->size
                                   : ((b * c->kv_heads + g) * c->past_rows + j) * c->size;
                double *key = c->present_k + at, *value = c->present_v + at;
                for (int d = 0; d < c->size; d++) {
                    if (new_row) {
                        key[d] = c->k[from + d];
                        value[d] = c->v[from + d];
                    } else {
                        key[d] = j < c->past_rows ? c->past_k[from + d] : 0;
                        value[d] = j < c->past_rows ? c->past_v[from + d] : 0;
                    }
                }
                if (!new_row)
                    continue;
                memset(error, 0, (size_t)c->size * sizeof *error);
                gqa_norm(c, c->k_norm, key, error);
                gqa_rotate(c, gqa_position(c, b, s), key, error);
                for (int d = 0; d < c->size && c->bits; d++) {
                    double scale = c->k_scale[g * c->size + d], unit = scale == 0 ? 1 : scale;
                    double x = key[d] / unit;
                    if (c->uncoded_k)
                        c->uncoded_k[at + d] = x;
                    if (c->error_k)
                        c->error_k[at + d] = fabs(error[d] / unit) + fabs(x) * 0x1p-22;
                    key[d] = gqa_code(c, key[d], scale);
                    if (c->second_code && c->second_code[at + d])
                        key[d] += x > key[d] ? 1 : -1;
                    value[d] = gqa_code(c, value[d], c->v_scale[g * c->size + d]);
                }
            }
}

/* Writes the row (b,h,s) of output_qk. */
static void gqa_show(const gqa_case *c, int b, int h, int s, int stage, int lo, int hi,
                     const double *p, double sum) {
    if (!c->qk || c->qk_stage != stage)
        return;
    double *row = c->qk + ((b * c->q_heads + h) * c->chunk + s) * c->total;
    for (int j = 0; j < c->total; j++)
        row[j] = j >= lo && j < hi ? p[j] / sum : 0;
}

static void gqa_one_query(const gqa_case *c, int b, int h, int s, double *q, double *error,
                          double *p, double *y) {
    int at = c->past[b] + s, g = h / (c->q_heads / c->kv_heads);
    int lo = c->window > 0 && at + 1 > c->window ? at + 1 - c->window : 0;
    int hi = c->everyone ? c->past[b] + c->fresh[b] : at + 1;
    const double *keys = c->present_k + (b * c->kv_heads + g) * c->capacity * c->size;
    const double *values = c->present_v + (b * c->kv_heads + g) * c->capacity * c->size;
    double most = c->sink ? c->sink[h] : -INFINITY, sum = 0;
    memset(error, 0, (size_t)c->size * sizeof *error);
    gqa_norm(c, c->q_norm, q, error);
    gqa_rotate(c, gqa_position(c, b, s), q, error);
    for (int j = lo; j < hi; j++) {
        double dot = 0;
        for (int d = 0; d < c->size; d++)
            dot += q[d] * gqa_read(c, c->k_scale, g, keys + j * c->size, d);
        p[j] = c->scale * dot;
        if (c->softcap > 0)
            p[j] = c->softcap * tanh(p[j] / c->softcap);
        if (c->bias)
            p[j] +=
                c->bias[(((b % c->bias_batch) * c->bias_heads + h % c->bias_heads) * c->chunk + s) *
                            c->total +
                        j];
        most = p[j] > most ? p[j] : most;
    }
    gqa_show(c, b, h, s, 1, lo, hi, p, 1);
    memset(y, 0, (size_t)c->size * sizeof *y);
    if (most == -INFINITY) { /* every key is masked */
        memset(p, 0, (size_t)hi * sizeof *p);
        gqa_show(c, b, h, s, 2, lo, hi, p, 1);
        return;
    }
    for (int j = lo; j < hi; j++)
        sum += p[j] = exp(p[j] - most);
    if (c->sink)
        sum += exp(c->sink[h] - most);
    gqa_show(c, b, h, s, 2, lo, hi, p, sum);
    for (int d = 0; d < c->size; d++)
        for (int j = lo; j < hi; j++)
            y[d] += p[j] / sum * gqa_read(c, c->v_scale, g, values + j * c->size, d);
}

/* Returns 0 if memory runs out. */
static int gqa_compute(const gqa_case *c) {
    double *p = calloc((size_t)c->capacity + 1, sizeof *p);
    double *q = calloc((size_t)c->size + 1, sizeof *q);
    double *error = calloc((size_t)c->size + 1, sizeof *error);
    int done = p && q && error;
    if (done) {
        gqa_fill_present(c, error);
        for (int b = 0; b < c->batch; b++)
            for (int s = 0; s < c->chunk; s++)
                for (int h = 0; h < c->q_heads; h++) {
                    int at = ((b * c->chunk + s) * c->q_heads + h) * c->size;
                    memset(c->y + at, 0, (size_t)c->size * sizeof *q);
                    memcpy(q, c->q + at, (size_t)c->size * sizeof *q);
                    if (s < c->fresh[b])
                        gqa_one_query(c, b, h, s, q, error, p, c->y + at);
                }
    }
    free(p);
    free(q);
    free(error);
    return done;
}

#endif
