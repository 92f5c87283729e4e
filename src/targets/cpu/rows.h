/* Row kernels: norms, rotary embedding, and chains of elementwise ops.
 *
 * All of them are bound by memory or by what a call costs, so one pass does as much as it can: a
 * norm adds its skip, a rotary embedding takes its heads out of the packed row and normalises them,
 * a chain runs any number of elementwise ops on pieces that stay in L1. Every kernel gives the bits
 * of the ops it stands for, roundings between f16 or bf16 ops included; NaN results are the one
 * NaN. Types are f32, f16 or bf16. */
#ifndef GQAC_TARGETS_CPU_ROWS_H
#define GQAC_TARGETS_CPU_ROWS_H

#include "targets/cpu/cpu.h"

enum {
    CPU_HEAD_SIZE = 1024,  /* most channels of a head that cpu_head takes */
    CPU_CHAIN_LEAVES = 12, /* operands of a chain */
    CPU_CHAIN_PIECE = 256, /* elements of a chain that are computed at once */
    CPU_CHAIN_STEPS = TARGET_MAX_FUSED + 1,
};

/* Rows of n elements; see norm_eval for the formula. */
typedef struct cpu_norm {
    int64_t n, skip_rows;
    float epsilon;
    bool centred, round_before;
    bool
        round_sum; /* x + skip is what an op Add gives: rounded to `type` before it is normalised */
    gqac_dtype type, weight_type, bias_type, beta_type, y_type; /* type: of x, skip and sum */
    const void *x, *skip, *bias, *weight, *beta;                /* NULL: absent; weight is not */
    void *y, *sum;
    float *mean, *inv;
} cpu_norm;

/* One head: x [size] -> y [size]. Normalised first when weight is not NULL: the result of that has
 * the type `type`, and before the weight it is rounded to the type of x where the op says so. */
typedef struct cpu_head {
    int64_t size, half;
    bool interleaved, round_before;
    float epsilon;
    gqac_dtype x_type, weight_type, type, table_type; /* type: also of y */
    const void *weight;
} cpu_head;

/* y = f(a, b) or f(a), each element by itself. */
typedef enum cpu_step_kind {
    CPU_ADD,
    CPU_SUB,
    CPU_MUL,
    CPU_DIV,
    CPU_NEG,
    CPU_SQRT,
    CPU_SIGMOID,
    CPU_TANH,
    CPU_ERF,
    CPU_SWISH,     /* a sigmoid(param a): Swish, QuickGelu */
    CPU_GELU,      /* a/2 (1 + erf(a / sqrt 2)) */
    CPU_GELU_TANH, /* its approximation: Gelu {approximate="tanh"} */
    CPU_FAST_GELU, /* the same, as com.microsoft.FastGelu writes it */
    CPU_CAST,      /* a: rounded to `type` */
} cpu_step_kind;

typedef struct cpu_step {
    cpu_step_kind kind;
    /* Operands: below CPU_CHAIN_LEAVES a leaf, else a register. To a register. */
    int a, b, to;
    gqac_dtype type; /* f16, bf16: the result is rounded */
    float param;
} cpu_step;

typedef enum cpu_leaf_form {
    CPU_LEAF_FULL, /* as many elements as the result */
    CPU_LEAF_ROW,  /* n elements, the same for each row */
    CPU_LEAF_ONE,
} cpu_leaf_form;

typedef struct cpu_leaf {
    const void *data;
    gqac_dtype type;
    cpu_leaf_form form;
} cpu_leaf;

/* The result y [rows,n] of the last step. An item is a piece of a row. */
typedef struct cpu_chain {
    int n_leaves, n_steps;
    cpu_leaf leaves[CPU_CHAIN_LEAVES];
    cpu_step steps[CPU_CHAIN_STEPS];
    int64_t rows, n, pieces; /* pieces of a row */
    void *y;
    gqac_dtype type;
} cpu_chain;

struct cpu_row_kernels {
    void (*norm)(const cpu_norm *p, size_t begin, size_t end); /* rows */
    void (*head)(const cpu_head *p, const void *x, const void *cos, const void *sin, void *y);
    void (*chain)(const cpu_chain *p, size_t begin, size_t end); /* items */
    /* The same for a rectangle of y: n columns from `first` on. */
    void (*part)(const cpu_chain *p, int64_t row, int64_t rows, int64_t first, int64_t n);
};

/* Are both known, and provably the same? */
static inline bool cpu_same_shape(const ir_type *a, const ir_type *b) {
    bool same = a->rank >= 0 && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] && a->dims[i] == b->dims[i];
    return same;
}

/* ---- kernel rows --------------------------------------------------------- */

/* Norms, alone or with the Add that makes x. */
int cpu_fuse_norm(const ir_node *root, ir_node **nodes);
gqac_status cpu_run_rms_onnx(op_call *call);
gqac_status cpu_run_rms(op_call *call);
gqac_status cpu_run_skip_rms(op_call *call);
gqac_status cpu_run_layer(op_call *call);
gqac_status cpu_run_skip_layer(op_call *call);
/* target_kernel.over of norms and of chains. */
bool cpu_norm_over(const ir_node *root, const ir_value *result, const ir_value *operand);
bool cpu_chain_over(const ir_node *root, const ir_value *result, const ir_value *operand);

/* rotary, alone or with the norm and the split_heads or reshapes before it. */
int cpu_fuse_heads(const ir_node *root, ir_node **nodes);
bool cpu_match_heads(const ir_node *node);
gqac_status cpu_run_heads(op_call *call);
/* Sets what the head has of its norm, by the type of x and the size. */
struct norm;
gqac_status cpu_open_head_norm(op_call *call, const ir_node *node, const struct norm *kind,
                               cpu_head *p);

/* append.c: the packed value [B,S,W] that attention reads these queries in, from `column` on,
 * because nothing is done to them on the way; NULL: they have memory of their own. */
const ir_value *cpu_packed_queries(const ir_value *queries, int64_t *column);
const ir_value *cpu_lies_in(const ir_value *value);

/* Elementwise ops, alone or as many as hang together, or those and the products they read. */
int cpu_fuse_product_chain(const ir_node *root, ir_node **nodes);
int cpu_fuse_chain(const ir_node *root, ir_node **nodes);
bool cpu_match_chain(const ir_node *node);
gqac_status cpu_run_chain(op_call *call);

#define CPU_CHAIN_ROWS(of, what)                                                                   \
    {.name = "linear_chain",                                                                       \
     .domain = of,                                                                                 \
     .op = what,                                                                                   \
     .eval = cpu_run_chain,                                                                        \
     .fuse = cpu_fuse_product_chain,                                                               \
     .over = cpu_chain_over},                                                                      \
        {.name = "chain",                                                                          \
         .domain = of,                                                                             \
         .op = what,                                                                               \
         .eval = cpu_run_chain,                                                                    \
         .fuse = cpu_fuse_chain,                                                                   \
         .over = cpu_chain_over},                                                                  \
    {                                                                                              \
        .name = "map", .domain = of, .op = what, .eval = cpu_run_chain, .match = cpu_match_chain,  \
        .over = cpu_chain_over                                                                     \
    }

#define CPU_NORM_ROWS(what, how)                                                                   \
    {.name = "add_norm",                                                                           \
     .domain = "",                                                                                 \
     .op = what,                                                                                   \
     .eval = how,                                                                                  \
     .fuse = cpu_fuse_norm,                                                                        \
     .over = cpu_norm_over},                                                                       \
    {                                                                                              \
        .name = "norm", .domain = "", .op = what, .eval = how, .over = cpu_norm_over               \
    }

/* For the table of cpu.c. */
#define CPU_ROW_KERNELS                                                                            \
    CPU_NORM_ROWS("RMSNormalization", cpu_run_rms_onnx),                                           \
        CPU_NORM_ROWS("SimplifiedLayerNormalization", cpu_run_rms),                                \
        CPU_NORM_ROWS("LayerNormalization", cpu_run_layer),                                        \
        {.name = "norm",                                                                           \
         .domain = "com.microsoft",                                                                \
         .op = "SkipSimplifiedLayerNormalization",                                                 \
         .eval = cpu_run_skip_rms,                                                                 \
         .over = cpu_norm_over},                                                                   \
        {.name = "norm",                                                                           \
         .domain = "com.microsoft",                                                                \
         .op = "SkipLayerNormalization",                                                           \
         .eval = cpu_run_skip_layer,                                                               \
         .over = cpu_norm_over},                                                                   \
        {.name = "heads",                                                                          \
         .domain = "gqac",                                                                         \
         .op = "rotary",                                                                           \
         .eval = cpu_run_heads,                                                                    \
         .fuse = cpu_fuse_heads},                                                                  \
        {.name = "rotary",                                                                         \
         .domain = "gqac",                                                                         \
         .op = "rotary",                                                                           \
         .eval = cpu_run_heads,                                                                    \
         .match = cpu_match_heads},                                                                \
        CPU_CHAIN_ROWS("", "Add"), CPU_CHAIN_ROWS("", "Sub"), CPU_CHAIN_ROWS("", "Mul"),           \
        CPU_CHAIN_ROWS("", "Div"), CPU_CHAIN_ROWS("", "Neg"), CPU_CHAIN_ROWS("", "Sqrt"),          \
        CPU_CHAIN_ROWS("", "Sigmoid"), CPU_CHAIN_ROWS("", "Tanh"), CPU_CHAIN_ROWS("", "Erf"),      \
        CPU_CHAIN_ROWS("", "Swish"), CPU_CHAIN_ROWS("", "Gelu"), CPU_CHAIN_ROWS("", "Cast"),       \
        CPU_CHAIN_ROWS("com.microsoft", "QuickGelu"), CPU_CHAIN_ROWS("com.microsoft", "FastGelu")

#endif
