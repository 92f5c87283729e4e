/* Chains of elementwise ops as one kernel computes them: steps on operands from outside, the
 * leaves, and on results of earlier steps. fuse_chain.h compiles them. */
#ifndef GQAC_TARGETS_CHAIN_H
#define GQAC_TARGETS_CHAIN_H

#include "targets/call.h"

enum {
    TARGET_CHAIN_LEAVES = 12, /* maximum operands of a chain */
    TARGET_CHAIN_STEPS = 17,  /* nodes of a group (TARGET_MAX_FUSED) and the root */
};

/* y = f(a, b) or f(a), each element by itself. */
typedef enum target_step_kind {
    TARGET_ADD,
    TARGET_SUB,
    TARGET_MUL,
    TARGET_DIV,
    TARGET_NEG,
    TARGET_SQRT,
    TARGET_SIGMOID,
    TARGET_TANH,
    TARGET_ERF,
    TARGET_SWISH,     /* a sigmoid(param a): Swish, QuickGelu */
    TARGET_GELU,      /* a/2 (1 + erf(a / sqrt 2)) */
    TARGET_GELU_TANH, /* its approximation: Gelu {approximate="tanh"} */
    TARGET_FAST_GELU, /* the same, as com.microsoft.FastGelu writes it */
    TARGET_CAST,      /* a: rounded to `type` */
} target_step_kind;

typedef struct target_step {
    target_step_kind kind;
    /* Operands a and b: a leaf if below TARGET_CHAIN_LEAVES, else a register. Result `to`: a
     * register. */
    int a, b, to;
    gqac_dtype type; /* f16, bf16: the result is rounded */
    float param;
} target_step;

typedef enum target_leaf_form {
    TARGET_LEAF_FULL, /* as many elements as the result */
    TARGET_LEAF_ROW,  /* n elements, the same for each row */
    TARGET_LEAF_ONE,
} target_leaf_form;

/* The result of the last step is y. */
typedef struct target_chain {
    gqac_dtype type;
    int y, n_leaves, n_steps;
    int shape; /* the first leaf of the form FULL */
    bool rows; /* the last axis matters: a leaf is a row */
    struct {
        int value; /* -1: the group computes it, by a node that is not a step */
        target_leaf_form form;
    } leaves[TARGET_CHAIN_LEAVES];
    target_step steps[TARGET_CHAIN_STEPS];
} target_chain;

/* Checks the leaves of one call against each other. *n: the number of elements of a row, or, if
 * `rows` is false, of the result. */
gqac_status target_chain_fit(const target_call *call, const target_chain *of, bool rows,
                             const gqac_tensor *const leaves[TARGET_CHAIN_LEAVES], int64_t *n);

#endif
