/* The memory that a sequence of N tokens needs, as far as it can be computed by hand. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <string.h>

#include "runtime/context.h"

static gqac_program *open_model(bool stateless) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_diag diag;
    gqac_options_init(&options);
    options.stateless = stateless;
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &program, &diag),
        GQAC_OK);
    return program;
}

static void test_parts(void) {
    gqac_program *program = open_model(false);
    gqac_memory one = {.size = sizeof one}, m = one, n = one;
    gqac_diag diag;
    const gqac_kv_pair *pairs = NULL;
    int64_t row = 0;
    const int n_pairs = gqac_program_kv_pairs(program, &pairs);
    for (int i = 0; i < n_pairs; i++)
        row += pairs[i].heads * pairs[i].head_size * 4;
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 1, 1, &one, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(one.weights, gqac_program_weight_bytes(program));
    CU_ASSERT_EQUAL(one.kv_blocks, 1);
    CU_ASSERT(one.kv_block >= row * one.kv_block_tokens &&
              one.kv_block < row * one.kv_block_tokens + 64 * n_pairs + 4096);
    CU_ASSERT_EQUAL(one.prefill, one.decode);
    CU_ASSERT(one.decode >= gqac_program_vocabulary(program) * 4);
    CU_ASSERT(one.decode_scratch > 0 && one.prefill_scratch == one.decode_scratch);
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 512, 256, &m, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(m.kv_blocks, 512 / m.kv_block_tokens);
    CU_ASSERT(m.decode >= one.decode && m.prefill > m.decode);
    CU_ASSERT(m.decode_scratch >= one.decode_scratch && m.prefill_scratch > m.decode_scratch);
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 513, 256, &n, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(n.kv_blocks, m.kv_blocks + 1);
    /* buffers of the new tokens grow with the length of the call; logits, of one row, do not */
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 512, 512, &n, &diag), GQAC_OK);
    CU_ASSERT(n.prefill > m.prefill && n.prefill <= 2 * m.prefill);
    CU_ASSERT_EQUAL(n.decode, m.decode);
    gqac_program_free(program);
}

static void test_errors(void) {
    gqac_program *program = open_model(false), *stateless = open_model(true);
    gqac_memory m = {.size = sizeof m};
    gqac_diag diag;
    CU_ASSERT_EQUAL(gqac_program_memory(program, 0, 1, &m, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_program_memory(program, 5, 0, &m, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_program_memory(program, 5, 6, &m, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_program_memory(program, 640, 1, &m, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_program_memory(program, 641, 1, &m, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_program_memory(program, INT64_MAX, INT64_MAX, &m, &diag),
                    GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_program_memory(program, INT64_MAX, 1, &m, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_program_memory(stateless, 5, 1, &m, &diag), GQAC_USAGE);
    gqac_program_free(program);
    gqac_program_free(stateless);
}

/* ---- scratch ------------------------------------------------------------- */

enum { MOST_PROMPT = 500 };

typedef struct watch {
    gqac_context *context;
    int threads, kernels;
    size_t most; /* scratch of one node */
} watch;

/* Any number of rows may choose an expert, so the scratch of `moe` is counted for all of them. */
static bool holds(size_t counted, size_t taken, bool exact) {
    return counted == taken || (!exact && counted > taken && counted - taken <= taken / 4);
}

/* Compares the scratch that a kernel allocated with the size computed from the shapes of the same
 * run. */
static void after_node(void *arg, const exec *e, const ir_node *node) {
    watch *w = arg;
    const target_kernel *kernel = node->claim;
    const size_t taken = e->scratch.most;
    gqac_diag diag;
    const target_call call = {.work = {.diag = &diag},
                              .values = e->values,
                              .state = e->program->target_state,
                              .kv = e->kv};
    gqac_parts parts = {.base = NULL};
    w->context->exec.scratch.most = 0;
    w->most = taken > w->most ? taken : w->most;
    if (!kernel || !kernel->scratch)
        return;
    CU_ASSERT_EQUAL_FATAL(kernel->scratch(&call, w->threads, node->bound, &parts), GQAC_OK);
    const bool exact = strcmp(kernel->name, "moe") != 0;
    CU_ASSERT(!parts.overflow && holds(parts.bytes, taken, exact));
    if (!holds(parts.bytes, taken, exact))
        printf("  %s: %zu bytes counted, %zu taken\n", kernel->name, parts.bytes, taken);
    w->kernels += taken > 0;
}

static void watch_context(const gqac_program *program, watch *w) {
    gqac_diag diag;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, w->threads, &w->context, &diag), GQAC_OK);
    w->context->exec.observe = after_node;
    w->context->exec.observe_arg = w;
}

/* Computes `count` tokens; their scratch must be what was computed before. */
static void check_call(const char *model, watch *w, gqac_sequence *sequence, int64_t count) {
    const memory_lengths are = {.sequences = 1,
                                .batch = 1,
                                .chunk = count,
                                .tokens = gqac_sequence_length(sequence) + count,
                                .logit_rows = 1};
    int64_t ids[MOST_PROMPT], bytes = 0;
    bool ok = true;
    gqac_diag diag;
    for (int i = 0; i < MOST_PROMPT; i++)
        ids[i] = (i * 37 + 11) % 250;
    w->most = 0;
    w->kernels = 0;
    CU_ASSERT_EQUAL_FATAL(memory_scratch(w->context->program, &are, w->threads, &ok, &bytes, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(w->context, sequence, ids, count, 1, &diag),
                          GQAC_OK);
    printf("  %s, %lld tokens after %lld, %d threads: %lld bytes counted, %zu taken\n", model,
           (long long)count, (long long)(are.tokens - count), w->threads, (long long)bytes,
           w->most);
    CU_ASSERT(ok && w->kernels > 4 && holds((size_t)bytes, w->most, false));
}

static void check_scratch(const char *model, const char *math, int64_t prompt, int threads) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_sequence *sequence = NULL;
    gqac_diag diag;
    watch w = {.threads = threads};
    gqac_options_init(&options);
    options.target = "cpu";
    options.math = math;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(model), &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &sequence, &diag), GQAC_OK);
    watch_context(program, &w);
    check_call(model, &w, sequence, prompt);
    check_call(model, &w, sequence, prompt / 7);
    check_call(model, &w, sequence, 1);
    gqac_sequence_free(sequence);
    gqac_context_free(w.context);
    gqac_program_free(program);
}

static void test_scratch(void) {
    static const struct {
        const char *model, *math;
        int64_t prompt;
    } runs[] = {
        {"test/models/llama/model.onnx", "model", MOST_PROMPT},
        {"test/models/llama/model.onnx", "bf16", 130},
        {"test/models/llama-fp16/model.onnx", "model", 130},
        {"test/models/llama-int4-acc1/model.onnx", "model", 130},
        {"test/models/llama-int4-acc1/model.onnx", "bf16", 130},
        {"test/models/llama-int4-acc4/model.onnx", "model", 130},
        {"test/models/gpt-oss/model.onnx", "model", 250},
        {"test/models/lfm2/model.onnx", "model", 130},
        {"test/models/qwen3.5/model.onnx", "model", 130},
        {"test/models/smollm3-qdq/model.onnx", "model", 100},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (int threads = 1; threads <= 2; threads++)
            check_scratch(runs[i].model, runs[i].math, runs[i].prompt, threads);
}

/* Kernels in none of the sequences above: integer products, products of two operands of a run, and
 * attention to keys in a tensor. */
static void check_stateless(gqac_model_bytes *model, int64_t rows, int threads) {
    enum { WIDE = 128 };
    static float x[WIDE * WIDE];
    static uint8_t a[WIDE * 8];
    const gqac_tensor in[] = {
        {.dtype = GQAC_U8, .rank = 2, .dims = {rows, 8}, .data = a},
        {.dtype = GQAC_F32, .rank = 2, .dims = {rows, WIDE}, .data = x},
        {.dtype = GQAC_F32, .rank = 2, .dims = {WIDE, WIDE}, .data = x},
        {.dtype = GQAC_F32, .rank = 4, .dims = {1, 2, rows, 16}, .data = x},
    };
    gqac_options options;
    gqac_program *program = NULL;
    gqac_diag diag;
    gqac_tensor out[3];
    watch w = {.threads = threads};
    gqac_options_init(&options);
    options.target = "cpu";
    options.stateless = true;
    options.bytes = model;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open("stateless.gq", &options, &program, &diag), GQAC_OK);
    watch_context(program, &w);
    CU_ASSERT_EQUAL_FATAL(
        gqac_run(w.context, 4, (const char *[]){"a", "x", "y", "q"}, in, 3, NULL, out, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL(w.kernels, 3);
    gqac_context_free(w.context);
    gqac_program_free(program);
}

static void test_stateless(void) {
    static const char text[] =
        "graph @g(%a: u8[B,8], %x: f32[B,K], %y: f32[K,N], %q: f32[1,2,B,16]) {\n"
        "  const %w: i8[8,1] = [1,-2,3,-4,5,-6,7,-8]\n"
        "  %i = MatMulInteger %a, %w : ?\n"
        "  %f = MatMul %x, %y : ?\n"
        "  %s = Attention %q, %q, %q : ?\n"
        "  return %i, %f, %s\n}\n";
    gqac_model_bytes model;
    gqac_model_bytes_init(&model, text, sizeof text - 1);
    for (int threads = 1; threads <= 2; threads++) {
        check_stateless(&model, 3, threads); /* too few rows for copies of y and keys */
        check_stateless(&model, 120, threads);
    }
}

static const unit_case cases[] = {
    {"X24 the parts of the memory of a sequence", test_parts},
    {"lengths that cannot be", test_errors},
    {"the scratch of kernels, and of a call", test_scratch},
    {"the scratch of stateless runs", test_stateless},
};

int main(int argc, char **argv) {
    return unit_run("program_memory", cases, sizeof cases / sizeof *cases, argc, argv);
}
