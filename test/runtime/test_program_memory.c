/* What a sequence of N tokens needs: the parts that can be computed by hand. */
#include "unit.h"

#include <gqac/gqac.h>

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
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 512, 256, &m, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(m.kv_blocks, 512 / m.kv_block_tokens);
    CU_ASSERT(m.decode >= one.decode && m.prefill > m.decode);
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 513, 256, &n, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(n.kv_blocks, m.kv_blocks + 1);
    /* buffers of the new tokens grow with the piece; logits are of one row and do not */
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

static const unit_case cases[] = {
    {"X24 the parts of the memory of a sequence", test_parts},
    {"lengths that cannot be", test_errors},
};

int main(int argc, char **argv) {
    return unit_run("program_memory", cases, sizeof cases / sizeof *cases, argc, argv);
}
