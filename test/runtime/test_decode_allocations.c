/* A decode step allocates no memory once the buffers have reached their size, neither for tensors
 * nor for scratch. The exceptions are a new KV block every 64 tokens, and the state that is then
 * kept; both are counted. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>

#include "base/alloc.h"

enum { PROMPT = 200, WARM = 2, LAST = 290, BLOCK = 64 };

static void decode(const char *model, const char *target, int threads) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    gqac_diag diag;
    const gqac_kv_pair *pairs = NULL;
    int64_t ids[PROMPT], count = PROMPT;
    size_t blocks = 0, others = 0;
    int last = 0; /* position in a block of the last step that may allocate memory */
    gqac_options_init(&options);
    options.target = target;
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (i * 37 + 11) % 250;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(model), &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, threads, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_create(
            program,
            &(gqac_sequence_options){.size = sizeof(gqac_sequence_options), .final_length = LAST},
            &sequence, &diag),
        GQAC_OK);
    for (int i = gqac_program_kv_pairs(program, &pairs) - 1; i >= 0; i--)
        last |= pairs[i].rows > 0; /* a state that is kept cannot be overwritten */
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(context, sequence, ids, count, GQAC_LOGITS_ALL, &diag), GQAC_OK);
    count = 1;
    for (int at = PROMPT; at < LAST; at++) {
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_append(context, sequence, ids + at % 50, count, GQAC_LOGITS_ALL, &diag),
            GQAC_OK);
        const size_t calls = gqac_alloc_calls();
        if (at % BLOCK <= last)
            blocks += calls;
        else if (at >= PROMPT + WARM)
            others += calls;
    }
    /* the block (two allocations if convolutions have a tail), and its entry in the table if that
     * is full; buffers of `ref` with all rows grow by half, so once in these steps */
    printf("  %s %s, %d threads: %zu for blocks, %zu else\n", target, model, threads, blocks,
           others);
    CU_ASSERT(blocks >= 1 && blocks <= 3 + (size_t)last);
    CU_ASSERT_EQUAL(others, 0);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_program_free(program);
}

static void test_cpu(void) {
    decode("test/models/llama/model.onnx", "cpu", 1);
    decode("test/models/gemma2/model.onnx", "cpu", 3);
    decode("test/models/llama-int4-acc4/model.onnx", "cpu", 2);
}

static void test_ref(void) {
    decode("test/models/llama/model.onnx", "ref", 1);
    decode("test/models/llama-int4-acc4/model.onnx", "ref", 2);
}

static void test_guarded(void) {
    decode("test/models/phi3/model.onnx", "cpu", 2);
}

static void test_states(void) {
    decode("test/models/qwen3.5/model.onnx", "cpu", 2);
    decode("test/models/qwen3.5/model.onnx", "ref", 1);
}

static const unit_case cases[] = {
    {"no memory is taken in decode on cpu", test_cpu},
    {"no memory is taken in decode on ref", test_ref},
    {"no memory is taken in decode with rope tables to choose", test_guarded},
    {"no memory is taken in decode with recurrent states", test_states},
};

int main(int argc, char **argv) {
    return unit_run("decode_allocations", cases, sizeof cases / sizeof *cases, argc, argv);
}
