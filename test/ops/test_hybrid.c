/* Ops of hybrid and mixture models: convolutions, recurrences with a state, experts, norms of
 * vectors, places. Values computed by hand, states divided anywhere, refused calls. Other cases are
 * compared with ONNX Runtime in test/python/test_ops_ort.py. */
#include "support.h"
#include "support_graph.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ops/shared.h"

static void vectors(void) {
    static const op_case cases[] = {
        {.op = "LpNormalization",
         .inputs = "f32[2,2]: 3 4 0 0",
         .outputs = "f32[2,2]: 0.6 0.8 0 0"},
        {.op = "LpNormalization",
         .attrs = "p=1 axis=0",
         .inputs = "f32[2,2]: 3 -1 1 1",
         .outputs = "f32[2,2]: 0.75 -0.5 0.25 0.5"},
        {.op = "LpNormalization", .inputs = "f32[1,2]: nan 1", .outputs = "f32[1,2]: nan nan"},
        {.op = "LpNormalization", .inputs = "f16[1,0]:", .outputs = "f16[1,0]:"},
        {.op = "LpNormalization",
         .attrs = "p=3",
         .inputs = "f32[1]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "NonZero", .inputs = "f32[2,2]: 1 0 nan -0", .outputs = "i64[2,2]: 0 1 0 0"},
        {.op = "NonZero", .inputs = "bool[3]: 0 1 1", .outputs = "i64[1,2]: 1 2"},
        {.op = "NonZero", .inputs = "i64[]: 7", .outputs = "i64[0,1]:"},
        {.op = "NonZero", .inputs = "u8[2,0]:", .outputs = "i64[2,0]:"},
    };
    run_cases(cases, COUNT(cases));
}

static void convolutions(void) {
    static const op_case cases[] = {
        {.op = "Conv",
         .attrs = "pads=1,1",
         .inputs = "f32[1,1,3]: 1 2 3 | f32[1,1,3]: 1 10 100",
         .outputs = "f32[1,1,3]: 210 321 32"},
        {.op = "Conv",
         .attrs = "group=2 strides=2 dilations=2",
         .inputs = "f32[1,2,5]: 1 2 3 4 5 1 1 1 1 1 | f32[2,1,2]: 1 10 1 1 | f32[2]: 0.5 -1",
         .outputs = "f32[1,2,2]: 31.5 53.5 1 1"},
        {.op = "Conv",
         .attrs = "auto_pad='SAME_LOWER'",
         .inputs = "f32[1,1,2,2]: 1 2 3 4 | f32[1,1,2,2]: 1 1 1 1",
         .outputs = "f32[1,1,2,2]: 1 3 4 10"},
        {.op = "Conv", /* elements outside are skipped, not multiplied by zero */
         .attrs = "pads=1,0",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,2]: inf 1",
         .outputs = "f32[1,1,2]: 1 inf"},
        {.op = "Conv", .inputs = "f32[0,1,2]: | f32[1,1,2]: 1 1", .outputs = "f32[0,1,1]:"},
        {.op = "Conv",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,3]: 1 1 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "Conv",
         .attrs = "group=2",
         .inputs = "f32[1,3,2]: 1 2 3 4 5 6 | f32[2,1,1]: 1 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "Conv",
         .attrs = "pads=1",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,1]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "Conv",
         .attrs = "strides=0",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,1]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "Conv",
         .attrs = "dilations=2147483647 pads=2147483647,2147483647",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,3]: 1 1 1",
         .outputs = "f32[1,1,2]: 1 2"},
        {.op = "Conv",
         .attrs = "kernel_shape=2",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,1]: 1",
         .status = GQAC_INVALID_MODEL},
    };
    run_cases(cases, COUNT(cases));
}

static void causal(void) {
    static const op_case cases[] = {
        {.op = "CausalConvWithState",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,3]: 1 10 100 | _ | f32[1,1,2]: 3 4",
         .outputs = "f32[1,1,2]: 143 214 | f32[1,1,2]: 1 2"},
        {.op = "CausalConvWithState",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,3]: 1 10 100 | f32[1]: 0.5",
         .outputs = "f32[1,1,1]: 100.5 | f32[1,1,2]: 0 1"},
        {.domain = "com.microsoft",
         .op = "CausalConvWithState",
         .attrs = "dilation=2",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,2]: 1 10 | _ | f32[1,1,2]: 3 4",
         .outputs = "f32[1,1,2]: 13 24 | f32[1,1,2]: 1 2"},
        {.op = "CausalConvWithState",
         .inputs = "f32[1,1,2]: 1 2 | f32[1,1,3]: 1 10 100 | _ | f32[1,1,3]: 3 4 5",
         .status = GQAC_INVALID_MODEL},
        {.op = "CausalConvWithState",
         .inputs = "f32[1,2,1]: 1 2 | f32[1,1,1]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "CausalConvWithState",
         .attrs = "activation='relu'",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 1",
         .status = GQAC_UNSUPPORTED},
        {.domain = "com.microsoft",
         .op = "CausalConvWithState",
         .attrs = "channels_last=1",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 1",
         .status = GQAC_UNSUPPORTED},
        {.domain = "com.microsoft", /* newer attributes, with their defaults */
         .op = "CausalConvWithState",
         .attrs = "input_channels=0 input_channel_offset=0 state_channels_last=-1 state_length=0 "
                  "state_update_capacity=0",
         .inputs = "f32[1,1,1]: 2 | f32[1,1,1]: 3",
         .outputs = "f32[1,1,1]: 6"},
        {.domain = "com.microsoft",
         .op = "CausalConvWithState",
         .attrs = "input_channels=1",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 1",
         .status = GQAC_UNSUPPORTED},
        {.domain = "com.microsoft",
         .op = "CausalConvWithState",
         .attrs = "state_channels_last=1",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 1",
         .status = GQAC_UNSUPPORTED},
        {.domain = "com.microsoft",
         .op = "CausalConvWithState",
         .attrs = "dilation=2147483647",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,3]: 1 1 1",
         .status = GQAC_LIMIT},
    };
    run_cases(cases, COUNT(cases));
}

static void recurrences(void) {
    static const op_case cases[] = {
        {.op = "LinearAttention",
         .attrs = "q_num_heads=1 kv_num_heads=1 update_rule='linear' scale=1.0f",
         .inputs = "f32[1,2,1]: 1 10 | f32[1,2,1]: 2 3 | f32[1,2,1]: 5 7",
         .outputs = "f32[1,2,1]: 10 310 | f32[1,1,1,1]: 31"},
        {.op = "LinearAttention",
         .attrs = "q_num_heads=1 kv_num_heads=1 update_rule='delta' scale=1.0f",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 2 | f32[1,1,1]: 5 | f32[1,1,1,1]: 1 | _ | "
                   "f32[1,1,1]: 0.5",
         .outputs = "f32[1,1,1]: 4 | f32[1,1,1,1]: 4"},
        {.op = "LinearAttention",
         .attrs = "q_num_heads=1 kv_num_heads=1 update_rule='delta'",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 2 | f32[1,1,1]: 5",
         .status = GQAC_INVALID_MODEL},
        {.op = "LinearAttention",
         .attrs = "q_num_heads=3 kv_num_heads=2 update_rule='linear'",
         .inputs = "f32[1,1,3]: 1 1 1 | f32[1,1,2]: 2 2 | f32[1,1,2]: 5 5",
         .status = GQAC_INVALID_MODEL},
        {.op = "LinearAttention",
         .attrs = "q_num_heads=1 kv_num_heads=1 update_rule='linear'",
         .inputs = "f32[1,1,2]: 1 1 | f32[1,1,1]: 2 | f32[1,1,1]: 5",
         .status = GQAC_INVALID_INPUT},
        {.op = "LinearAttention",
         .attrs = "q_num_heads=1 kv_num_heads=1 update_rule='linear'",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 2 | f32[1,1,1]: 5 | f32[1,1,1,2]: 1 1",
         .status = GQAC_INVALID_INPUT},
        {.op = "LinearAttention",
         .attrs = "q_num_heads=2 kv_num_heads=2 update_rule='gated'",
         .inputs =
             "f32[1,1,2]: 1 1 | f32[1,1,2]: 2 2 | f32[1,1,2]: 5 5 | _ | f32[1,1,6]: 1 1 1 1 1 "
             "1",
         .status = GQAC_INVALID_INPUT},
        {.domain = "com.microsoft",
         .op = "LinearAttention",
         .attrs = "q_num_heads=1 kv_num_heads=1 update_rule='linear' state_window=2",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 2 | f32[1,1,1]: 5",
         .status = GQAC_UNSUPPORTED},
        {.domain = "com.microsoft",
         .op = "LinearAttentionGate",
         .inputs = "f32[1,1,2]: -100 100 | f32[2]: 0 0 | f32[2]: -1 -2 | f32[1,1,2]: 0 100",
         .outputs = "f32[1,1,2]: -0 -200 | f32[1,1,2]: 0.5 1"},
        {.domain = "com.microsoft",
         .op = "LinearAttentionGate",
         .inputs = "f32[1,1,2]: 0 0 | f32[1]: 0 | f32[2]: -1 -2 | f32[1,1,2]: 0 0",
         .status = GQAC_INVALID_MODEL},
        {.domain = "com.microsoft",
         .op = "GatedRMSNorm",
         .attrs = "activation='sigmoid' epsilon=0.0f",
         .inputs = "f32[1,4]: 1 1 3 4 | f32[2]: 1 2 | f32[1,4]: 0 0 100 -100",
         .outputs = "f32[1,4]: 0.5 1 0.84852814 0"},
        {.domain = "com.microsoft",
         .op = "GatedRMSNorm",
         .inputs = "f32[1,3]: 1 1 1 | f32[2]: 1 2 | f32[1,3]: 0 0 0",
         .status = GQAC_INVALID_INPUT},
        {.domain = "com.microsoft",
         .op = "GatedAdd",
         .inputs = "f32[2,2]: 0 1 2 3 | f32[2,2]: 1 2 3 4 | f32[2,2]: 1 2 3 4",
         .status = GQAC_INVALID_MODEL},
        {.domain = "com.microsoft",
         .op = "GatedAdd",
         .inputs = "f32[2,2]: 0 1 2 3 | f32[2,2]: 1 2 3 4 | f16[2,1]: 1 2",
         .status = GQAC_INVALID_MODEL},
    };
    run_cases(cases, COUNT(cases));
}

/* Identity experts w = 1 and 2 of one element. */
static void experts(void) {
    static const op_case cases[] = {
        {.domain = "com.microsoft",
         .op = "MoE",
         .attrs = "activation_type='identity' normalize_routing_weights=1",
         .inputs = "f32[2,1]: 3 5 | f32[2,2]: 0 1 7 2 | f32[2,1,1]: 1 2 | _ | f32[2,1,1]: 1 1",
         .outputs = "f32[2,1]: 6 5"},
        {.domain = "com.microsoft", /* equal values: the lower number */
         .op = "MoE",
         .attrs = "activation_type='relu' normalize_routing_weights=1",
         .inputs = "f32[1,1]: 3 | f32[1,2]: 4 4 | f32[2,1,1]: 1 2 | f32[2,1]: -1 0 | "
                   "f32[2,1,1]: 1 1 | f32[2,1]: 10 20",
         .outputs = "f32[1,1]: 12"},
        {.domain = "com.microsoft",
         .op = "MoE",
         .attrs = "k=3",
         .inputs = "f32[1,1]: 3 | f32[1,2]: 4 4 | f32[2,1,1]: 1 2 | _ | f32[2,1,1]: 1 1",
         .status = GQAC_INVALID_MODEL},
        {.domain = "com.microsoft",
         .op = "MoE",
         .inputs = "f32[1,2]: 3 3 | f32[1,2]: 4 4 | f32[2,1,1]: 1 2 | _ | f32[2,1,1]: 1 1",
         .status = GQAC_INVALID_MODEL},
        {.domain = "com.microsoft",
         .op = "MoE",
         .attrs = "use_sparse_mixer=1",
         .inputs = "f32[1,1]: 3 | f32[1,2]: 4 4 | f32[2,1,1]: 1 2 | _ | f32[2,1,1]: 1 1",
         .status = GQAC_UNSUPPORTED},
        {.domain = "com.microsoft", /* [1 2; 0 -1] with scales 1 and 10, then [1 0; 0 1] */
         .op = "QMoE",
         .attrs = "activation_type='identity' normalize_routing_weights=1",
         .inputs = "f32[1,2]: 3 5 | f32[1,1]: 0 | u8[1,2,1]: 169 120 | f32[1,2]: 1 10 | _ | "
                   "u8[1,2,1]: 137 152 | f32[1,2]: 1 1",
         .outputs = "f32[1,2]: 13 -50"},
        {.domain = "com.microsoft", /* zero points 8 and 7 in one byte, for any rank */
         .op = "QMoE",
         .attrs = "activation_type='identity' normalize_routing_weights=1",
         .inputs = "f32[1,2]: 3 5 | f32[1,1]: 0 | u8[1,2,1]: 169 120 | f32[1,2]: 1 10 | _ | "
                   "u8[1,2,1]: 137 152 | f32[1,2]: 1 1 | _ | _ | _ | _ | u8[1,1,1]: 120",
         .outputs = "f32[1,2]: 13 30"},
        {.domain = "com.microsoft",
         .op = "QMoE",
         .inputs = "f32[1,2]: 3 5 | f32[1,1]: 0 | u8[1,2,1]: 169 120 | f32[1,3]: 1 1 1 | _ | "
                   "u8[1,2,1]: 137 152 | f32[1,2]: 1 1",
         .status = GQAC_INVALID_MODEL},
        {.domain = "com.microsoft",
         .op = "QMoE",
         .attrs = "swiglu_limit_after_activation=1",
         .inputs = "f32[1,2]: 3 5 | f32[1,1]: 0 | u8[1,2,1]: 169 120 | f32[1,2]: 1 1 | _ | "
                   "u8[1,2,1]: 137 152 | f32[1,2]: 1 1",
         .status = GQAC_UNSUPPORTED},
        {.domain = "com.microsoft",
         .op = "QMoE",
         .attrs = "quant_type='fp4'",
         .inputs = "f32[1,2]: 3 5 | f32[1,1]: 0 | u8[1,2,1]: 169 120 | f32[1,2]: 1 1 | _ | "
                   "u8[1,2,1]: 137 152 | f32[1,2]: 1 1",
         .status = GQAC_UNSUPPORTED},
    };
    run_cases(cases, COUNT(cases));
}

/* A type and n times the same value. */
static char *many(char *at, const char *type, const char *value, int n) {
    at += sprintf(at, "%s:", type);
    for (int i = 0; i < n; i++)
        at += sprintf(at, " %s", value);
    return at;
}

/* Rows of one block: a zero point has a byte of its own, for any rank. */
static void one_block(void) {
    static const char *const zeros[] = {"u8[1,16]", "u8[1,16,1]"};
    for (size_t i = 0; i < COUNT(zeros); i++) {
        char text[2000], *at = many(text, "f32[1,16]", "1", 16);
        at += sprintf(at, " | f32[1,1]: 0 | ");
        at = many(at, "u8[1,16,8]", "33", 128); /* 1 and 2 alternately */
        at += sprintf(at, " | ");
        at = many(at, "f32[1,16,1]", "1", 16);
        at += sprintf(at, " | _ | ");
        at = many(at, "u8[1,16,8]", "153", 128);
        at += sprintf(at, " | ");
        at = many(at, "f32[1,16,1]", "1", 16);
        at += sprintf(at, " | _ | _ | _ | _ | %s: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", zeros[i]);
        /* row n of fc1 is 24 - 16 n, fc2 is all ones: 16 * 24 - 16 * 120 */
        run_case(&(op_case){.domain = "com.microsoft",
                            .op = "QMoE",
                            .attrs = "activation_type='identity' block_size=16",
                            .inputs = text,
                            .outputs = "f32[1,16]: -1536 -1536 -1536 -1536 -1536 -1536 -1536 -1536 "
                                       "-1536 -1536 -1536 -1536 -1536 -1536 -1536 -1536"});
    }
}

/* Choosing all of 8192 experts takes seconds: the time grows with k E, not with k k E. */
static void many_experts(void) {
    static char text[1 << 17];
    const clock_t start = clock();
    char *at = text + sprintf(text, "f32[1,1]: 3 | ");
    at = many(at, "f32[1,8192]", "4", 8192);
    at = many(at + sprintf(at, " | "), "f32[8192,1,1]", "1", 8192);
    many(at + sprintf(at, " | _ | "), "f32[8192,1,1]", "1", 8192);
    run_case(&(op_case){.domain = "com.microsoft",
                        .op = "MoE",
                        .attrs = "k=8192 normalize_routing_weights=1",
                        .inputs = text,
                        .outputs = "f32[1,1]: 3"});
    CU_ASSERT((double)(clock() - start) / CLOCKS_PER_SEC < 30);
}

static void nibbles(void) {
    static const op_case cases[] = {
        {.domain = "com.microsoft", /* NF4: 15 is 1, 0 is -1, 7 is 0; the high nibble first */
         .op = "MatMulBnb4",
         .attrs = "K=3 N=1 block_size=16 quant_type=1",
         .inputs = "f32[1,3]: 1 10 100 | u8[2]: 240 112 | f32[1]: 2",
         .outputs = "f32[1,1]: -18"},
        {.domain = "com.microsoft", /* FP4: 3 is 1, 11 is -1 */
         .op = "MatMulBnb4",
         .attrs = "K=2 N=1 block_size=16 quant_type=0",
         .inputs = "f32[1,2]: 1 10 | u8[1]: 59 | f32[1]: 2",
         .outputs = "f32[1,1]: -18"},
        {.domain = "com.microsoft",
         .op = "MatMulBnb4",
         .attrs = "K=2 N=2 block_size=16 quant_type=0",
         .inputs = "f32[1,2]: 1 10 | u8[1]: 59 | f32[1]: 2",
         .status = GQAC_INVALID_INPUT},
        {.domain = "com.microsoft",
         .op = "MatMulBnb4",
         .attrs = "K=2 N=1 block_size=16 quant_type=2",
         .inputs = "f32[1,2]: 1 10 | u8[1]: 59 | f32[1]: 2",
         .status = GQAC_INVALID_MODEL},
    };
    run_cases(cases, COUNT(cases));
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"norms and places", vectors},
        {"convolutions", convolutions},
        {"causal convolutions", causal},
        {"recurrences", recurrences},
        {"experts", experts},
        {"experts with rows of one block", one_block},
        {"experts, many", many_experts},
        {"codes of a table", nibbles},
    };
    return unit_run("hybrid", cases, COUNT(cases), argc, argv);
}
