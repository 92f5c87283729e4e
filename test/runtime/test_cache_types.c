/* Sequences whose cache contains codes, or in the model only a window, through the public API: the
 * geometry of the slots, split = full, past tensors out and in, rewind, fork, failing allocations.
 * The model is one attention layer written as text, and its packed projection is a sine of the ids;
 * rows of 4-bit codes have an odd number of channels. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { N = 150, MOST = 8192 };

typedef struct layer {
    const char *what, *dtype, *row, *attrs, *scale; /* row: last dim of past */
    int size, row_elements;                         /* D; of a cached row */
    gqac_dtype type;
} layer;

#define SCALES "0.4, 0.3, 0.2, 0.5, 0.1, 0.25, 0.15, 0.35, 0.45, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.4"

static const layer layers[] = {
    {"8 bits, one scale", "i8", "4",
     "k_quant_type=\"PER_TENSOR\", v_quant_type=\"PER_TENSOR\", kv_cache_bit_width=8",
     "f32[] = 0.01", 4, 4, GQAC_I8},
    {"8 bits, scales of channels", "i8", "4",
     "k_quant_type=\"PER_CHANNEL\", v_quant_type=\"PER_TENSOR\", kv_cache_bit_width=8",
     "f32[] = 0.02", 4, 4, GQAC_I8},
    {"4 bits, odd channels", "u8", "2",
     "k_quant_type=\"PER_TENSOR\", v_quant_type=\"PER_TENSOR\", kv_cache_bit_width=4",
     "f32[] = 0.15", 3, 2, GQAC_U8},
    {"4 bits, a window", "u8", "2",
     "k_quant_type=\"PER_TENSOR\", v_quant_type=\"PER_TENSOR\", kv_cache_bit_width=4, "
     "local_window_size=7, sliding_window_cache=1",
     "f32[] = 0.15", 3, 2, GQAC_U8},
    {"values, a window", "f32", "4", "local_window_size=70, sliding_window_cache=1", NULL, 4, 4,
     GQAC_F32},
};

static gqac_diag diag;

/* ---- the model ----------------------------------------------------------- */

/* [B,S] ids -> sin(id * c): [B,S,(2+2)*D]; Hq 2, Hkv 1. */
static void write_model(const layer *l, char *path) {
    char text[4000], scales[400] = "", names[64] = "";
    const int width = 4 * l->size;
    const bool channels = strstr(l->attrs, "PER_CHANNEL") != NULL;
    if (l->scale)
        snprintf(scales, sizeof scales, "  const %%vs: %s\n  const %%ks: %s%s\n", l->scale,
                 channels ? "f32[4] = [0.01, 0.02, 0.015, 0.03]" : l->scale, "");
    if (l->scale)
        snprintf(names, sizeof names, ", _, _, _, _, _, %%ks, %%vs");
    const int n = snprintf(
        text, sizeof text,
        "graph @layer(%%input_ids: i64[B,S], %%attention_mask: i64[B,T], "
        "%%past_key_values.0.key: %s[B,1,P,%s], %%past_key_values.0.value: %s[B,1,P,%s]) {\n"
        "  const %%one: i64[] = 1\n  const %%axis: i64[1] = [1]\n  const %%last_axis: i64[1] = "
        "[2]\n"
        "  const %%c: f32[%d] = [%s]\n%s"
        "  %%sum = ReduceSum %%attention_mask, %%axis {keepdims=0} : i64[B]\n"
        "  %%last = Sub %%sum, %%one : i64[B]\n"
        "  %%seqlens_k = Cast %%last {to=i32} : i32[B]\n"
        "  %%shape = Shape %%attention_mask : i64[2]\n"
        "  %%t = Gather %%shape, %%one : i64[]\n"
        "  %%total = Cast %%t {to=i32} : i32[]\n"
        "  %%f = Cast %%input_ids {to=f32} : f32[B,S]\n"
        "  %%u = Unsqueeze %%f, %%last_axis : f32[B,S,1]\n"
        "  %%m = Mul %%u, %%c : f32[B,S,%d]\n"
        "  %%qkv = Sin %%m : f32[B,S,%d]\n"
        "  %%y, %%k, %%v = com.microsoft.GroupQueryAttention %%qkv, _, _, "
        "%%past_key_values.0.key, %%past_key_values.0.value, %%seqlens_k, %%total%s "
        "{num_heads=2, kv_num_heads=1, %s} : f32[B,S,%d], %s[B,1,T,%s], %s[B,1,T,%s]\n"
        "  return %%y as \"logits\", %%k as \"present.0.key\", %%v as \"present.0.value\"\n}\n",
        l->dtype, l->row, l->dtype, l->row, width,
        width == 16 ? SCALES : "0.4, 0.3, 0.2, 0.5, 0.1, 0.25, 0.15, 0.35, 0.45, 0.2, 0.3, 0.4",
        scales, width, width, names, l->attrs, 2 * l->size, l->dtype, l->row, l->dtype, l->row);
    CU_ASSERT_FATAL(n > 0 && (size_t)n < sizeof text);
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, text, (size_t)n), (ssize_t)n);
    close(fd);
}

static gqac_program *open_layer(const layer *l) {
    char path[] = "/tmp/gqac-cache-XXXXXX.gq";
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    write_model(l, path);
    const gqac_status status = gqac_program_open(path, &options, &program, &diag);
    if (status != GQAC_OK)
        printf("%s: %s (%s)\n", l->what, diag.what, diag.where);
    unlink(path);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return program;
}

/* ---- running it ---------------------------------------------------------- */

typedef struct bench {
    gqac_program *program;
    gqac_context *context;
    gqac_sequence *full;
    const gqac_kv_pair *pairs;
    int64_t vocabulary;
    float logits[N * 8]; /* of the full run */
    unsigned char cache[2][MOST];
    size_t bytes; /* of one of the two */
} bench;

static int64_t id_at(int64_t i) {
    return (i * 7 + 3) % 6;
}

static gqac_status feed(gqac_context *context, gqac_sequence *sequence, int64_t first,
                        int64_t count) {
    int64_t ids[N];
    for (int64_t i = 0; i < count; i++)
        ids[i] = id_at(first + i);
    return gqac_sequence_append(context, sequence, ids, count, GQAC_LOGITS_ALL, &diag);
}

static bool same_logits(const bench *t, int64_t first, int64_t count) {
    int64_t rows = 0, vocabulary = 0;
    const float *logits = gqac_context_logits(t->context, 0, &rows, &vocabulary);
    return rows == count && !memcmp(logits, t->logits + first * vocabulary,
                                    (size_t)(count * vocabulary) * sizeof *logits);
}

static bool same_cache(const bench *t, const gqac_sequence *sequence) {
    static unsigned char got[MOST];
    bool equal = true;
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_export(sequence, t->pairs[i].past, got, sizeof got, &diag), GQAC_OK);
        equal = equal && !memcmp(got, t->cache[i], t->bytes);
    }
    return equal;
}

static gqac_sequence *open_sequence(const bench *t) {
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(t->program, NULL, &sequence, &diag), GQAC_OK);
    return sequence;
}

/* Runs all tokens in one call. */
static void start(bench *t, const layer *l) {
    memset(t, 0, sizeof *t);
    t->program = open_layer(l);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(t->program, 2, &t->context, &diag), GQAC_OK);
    t->full = open_sequence(t);
    CU_ASSERT_EQUAL_FATAL(feed(t->context, t->full, 0, N), GQAC_OK);
    int64_t rows = 0;
    const float *logits = gqac_context_logits(t->context, 0, &rows, &t->vocabulary);
    CU_ASSERT_FATAL(rows == N && t->vocabulary == 2 * l->size);
    memcpy(t->logits, logits, (size_t)(N * t->vocabulary) * sizeof *logits);
    CU_ASSERT_EQUAL_FATAL(gqac_program_kv_pairs(t->program, &t->pairs), 2);
    t->bytes = (size_t)(N * l->row_elements) * (size_t)gqac_dtype_bits(l->type) / 8;
    for (int i = 0; i < 2; i++) {
        CU_ASSERT(t->pairs[i].dtype == l->type && t->pairs[i].head_size == l->row_elements &&
                  t->pairs[i].heads == 1);
        CU_ASSERT_EQUAL(
            gqac_sequence_export(t->full, t->pairs[i].past, t->cache[i], t->bytes - 1, &diag),
            GQAC_INVALID_INPUT);
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_export(t->full, t->pairs[i].past, t->cache[i], t->bytes, &diag), GQAC_OK);
    }
}

static void stop(bench *t) {
    gqac_sequence_free(t->full);
    gqac_context_free(t->context);
    gqac_program_free(t->program);
}

static void each_layer(void (*check)(bench *t, const layer *l)) {
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        bench *t = malloc(sizeof *t);
        start(t, &layers[i]);
        check(t, &layers[i]);
        stop(t);
        free(t);
    }
}

static void splits(bench *t, const layer *l) {
    static const int64_t chunks[][6] = {{1, 149}, {63, 1, 1, 85}, {64, 64, 22}, {7, 5, 137, 1}};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        gqac_sequence *split = open_sequence(t);
        for (int64_t k = 0, at = 0; at < N; at += chunks[i][k++]) {
            CU_ASSERT_EQUAL_FATAL(feed(t->context, split, at, chunks[i][k]), GQAC_OK);
            const bool same = same_logits(t, at, chunks[i][k]);
            if (!same)
                printf("%s: chunk %lld of plan %zu\n", l->what, (long long)k, i);
            CU_ASSERT(same);
        }
        CU_ASSERT(same_cache(t, split));
        gqac_sequence_free(split);
    }
}

static void test_splits(void) {
    each_layer(splits);
}

/* ---- past tensors, rewind, fork ------------------------------------------ */

/* Imports the first `length` rows of the full run as past tensors. */
static gqac_status import(const bench *t, const layer *l, int64_t length, gqac_dtype type,
                          gqac_sequence *target) {
    const char *const names[2] = {t->pairs[0].past, t->pairs[1].present};
    gqac_tensor tensors[2];
    for (int i = 0; i < 2; i++)
        tensors[i] = (gqac_tensor){.dtype = type,
                                   .rank = 4,
                                   .dims = {1, 1, length, l->row_elements},
                                   .data = (void *)(uintptr_t)t->cache[i]};
    return gqac_sequence_import(target, 2, names, tensors, &diag);
}

static void past_tensors(bench *t, const layer *l) {
    gqac_sequence *other = open_sequence(t), *fork = NULL;
    const gqac_dtype wrong = l->type == GQAC_I8 ? GQAC_U8 : GQAC_I8;
    CU_ASSERT_EQUAL(import(t, l, 100, wrong, other), GQAC_INVALID_INPUT);
    CU_ASSERT_EQUAL_FATAL(import(t, l, 100, l->type, other), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(other, &fork, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(feed(t->context, other, 100, N - 100), GQAC_OK);
    CU_ASSERT(same_logits(t, 100, N - 100) && same_cache(t, other));
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(other, 65, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(feed(t->context, other, 65, N - 65), GQAC_OK);
    CU_ASSERT(same_logits(t, 65, N - 65) && same_cache(t, other));
    CU_ASSERT_EQUAL_FATAL(feed(t->context, fork, 100, N - 100), GQAC_OK);
    CU_ASSERT(same_logits(t, 100, N - 100) && same_cache(t, fork));
    gqac_sequence_free(other);
    gqac_sequence_free(fork);
}

static void test_past_tensors(void) {
    each_layer(past_tensors);
}

/* ---- memory -------------------------------------------------------------- */

static void failing_steps(bench *t, const layer *l) {
    gqac_sequence *other = open_sequence(t);
    CU_ASSERT_EQUAL_FATAL(feed(t->context, other, 0, 20), GQAC_OK);
    size_t n = 1;
    for (gqac_status status = GQAC_NO_MEMORY; status != GQAC_OK; n++) {
        gqac_context *context = NULL;
        gqac_alloc_fail_at(n, 0);
        status = gqac_context_create(t->program, 1, &context, &diag);
        if (status == GQAC_OK)
            status = feed(context, other, 20, N - 20);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(gqac_sequence_length(other), status == GQAC_OK ? N : 20);
        gqac_context_free(context);
    }
    if (n < 10)
        printf("%s: only %zu allocations\n", l->what, n);
    CU_ASSERT(n >= 10);
    CU_ASSERT(same_cache(t, other));
    gqac_sequence_free(other);
}

static void test_failing_steps(void) {
    each_layer(failing_steps);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"split = full, logits and codes", test_splits},
        {"past tensors in the storage type, rewind, fork", test_past_tensors},
        {"a step short of memory leaves the sequence", test_failing_steps},
    };
    return unit_run("cache_types", cases, sizeof cases / sizeof *cases, argc, argv);
}
