/* The op row: everything gqac knows about one op, in one file of src/ops that exports one constant
 * `gqac_op_<file stem>`. CMake collects the rows; nothing else lists ops.
 *
 * A row has exactly one of `eval` (a primitive: computes tensors) and `expand` (a composite: is
 * replaced by simpler ops). Composites flagged IR_OP_LOWER are expanded by the `lower` pass
 * whatever the target; the others only when the target has no kernel for them. */
#ifndef GQAC_OPS_OP_H
#define GQAC_OPS_OP_H

#include "ir/ir.h"
#include "ops/work.h"

enum {
    IR_OP_LOWER = 16,    /* expanded by `lower`, before the target is asked */
    IR_OP_IN_PLACE = 32, /* eval works when output 0 overwrites input 0 */
    IR_OP_MOVES = 64,    /* eval moves its fp32 elements by op_move alone, and reads none of them */
};

/* Entries of an attribute table that have a default. */
#define OP_ATTR_INT(attr, value, text)    OP_ATTR(attr, INT, .i = value, text)
#define OP_ATTR_FLOAT(attr, value, text)  OP_ATTR(attr, FLOAT, .f = value, text)
#define OP_ATTR_STRING(attr, value, text) OP_ATTR(attr, STRING, .s = value, text)
#define OP_ATTR(attr, type, value, text)                                                           \
    { .name = attr, .kind = IR_ATTR_##type, .fallback = {.set = true, value}, .doc = text }

/* What the user chose that changes the meaning of ops; fixed for a compilation. */
typedef struct op_options {
    bool cached_lengths; /* --seqlens-k cached: seqlens_k holds the cached length */
    bool legacy_window;  /* --legacy-window: W+1 keys */
    bool per_row_quant;  /* --per-row-quant: one scale a row, not a tensor: see by_row */
    bool exact;          /* --math exact: ops that compute in int8 use fp32: see make_exact */
    bool bf16;           /* --math bf16: products may have bf16 factors: see make_bf16 */
    bool for_sequences;  /* past and present will become sequence state; set by the runner */
} op_options;

/* One evaluation on concrete tensors. `in` has node->n_inputs entries, NULL where absent; `out` has
 * node->n_outputs entries. Every eval determines the concrete shape of each output that it
 * computes, and takes its memory from op_output. infer may have succeeded on unknown shapes, so
 * eval checks ranks, dimensions, indices and values itself. */
typedef struct op_call {
    const ir_node *node;
    const gqac_tensor *const *in;
    gqac_tensor *out;
    gqac_pool *pool; /* may be NULL */
    gqac_diag *diag;
    void *host; /* for the functions below; opaque to ops */
    /* Allocates out[index] with that type and shape (data uninitialised; NaN bytes in test builds).
     * For an output that is not wanted (node->outputs[index] NULL) the memory is scratch. */
    gqac_status (*alloc)(struct op_call *call, int index, gqac_dtype dtype, int rank,
                         const int64_t *dims);
    /* Runs a nested graph (If, Loop) and stores views of its results, which live until it runs
     * again. An output may be such a view. */
    gqac_status (*run_graph)(struct op_call *call, const ir_graph *graph, int n_args,
                             const gqac_tensor *const *args, gqac_tensor *results);
    /* Of `host`: see op_work.scratch. */
    void *(*scratch)(void *host, size_t bytes);
    int64_t *left; /* see op_work.left */
    /* Copies a box (ops/copy.h) whose elements are in the memory of a device, for op_move; NULL:
     * all elements are in the memory of the host. */
    gqac_status (*move)(struct op_call *call, const struct op_box *box);
} op_call;

struct op_raw_attrs;

/* The parts of an attention node, for rewrites that carry its cache in another way. */
typedef struct op_parts {
    ir_value *q, *k, *v;  /* of the new tokens, [B,H,S,D], as attention reads them */
    float scale, softcap; /* softcap 0: off */
    bool causal;
    int64_t window; /* keys that a query sees, itself included; below 1: all */
    ir_value *sink; /* [H] or one for all: a score added to those of the keys; NULL: none */
} op_parts;

typedef struct gqac_op {
    ir_schema schema; /* first: an ir_node's `op` points here */
    /* Sets the types (and, for small integer tensors, the symbolic elements) of the outputs from
     * those of the inputs. Accepts unknown dtype, rank and dims. INVALID_MODEL when the inputs
     * cannot be valid. NULL: outputs have unknown types. */
    gqac_status (*infer)(ir_node *node, gqac_diag *diag);
    /* Reports what is invalid (INVALID_MODEL) or not supported (UNSUPPORTED: attribute values,
     * inputs, dtypes) in the node, on import and after parse, before types are known. NULL: the
     * schema is the only check. */
    gqac_status (*verify)(const ir_node *node, gqac_diag *diag);
    gqac_status (*eval)(op_call *call);
    /* Builds the replacement before the node and returns the values for its outputs in `results`
     * (node->n_outputs entries; NULL allowed for outputs that are not wanted). b->status is the
     * result. The caller replaces and removes the node and infers types again. */
    void (*expand)(ir_builder *b, ir_node *node, const op_options *options, ir_value **results);
    /* Rewrites a node of an older opset of this row's domain into the form of schema.since, in
     * place (e.g. attribute axes → input). `raw` has the attributes of the file, including those
     * that are not in the schema. NULL: the older versions that the row covers have the same
     * form. */
    gqac_status (*upgrade)(ir_builder *b, ir_node *node, int opset, const struct op_raw_attrs *raw);
    /* For ops of the ONNX domains that are not in the standard: builds the same from standard ops,
     * for export; false when these cannot express the node. Other ops: NULL. */
    bool (*standard)(ir_builder *b, ir_node *node, ir_value **results);
    /* --math exact: sets attributes so that eval computes in fp32. NULL: it always does. */
    void (*make_exact)(ir_node *node);
    /* --per-row-quant: builds the same with a scale for each quantised row, as expand does, before
     * types are known. NULL: no result depends on a scale of the whole tensor. */
    void (*by_row)(ir_builder *b, ir_node *node, ir_value **results);
    /* --math bf16: sets attributes so that products may have bf16 factors. NULL: none can. */
    void (*make_bf16)(ir_node *node);
    /* Attention ops: builds the parts, for tokens at `positions` (i64 [B,S]), before the node,
     * which stays. UNSUPPORTED when the parts cannot express the node. NULL: it has no such
     * form. */
    void (*take_apart)(ir_builder *b, const ir_node *node, ir_value *positions,
                       const op_options *options, op_parts *parts);
    /* For schema.rows == IR_ROWS_SHAPE and IR_ROWS_STATE: does this node mix rows? NULL: no. */
    bool (*mixes)(const ir_node *node);
} gqac_op;

/* Attributes of the file that are not in the schema of the row, for `upgrade`, which marks as
 * taken those that it handles; the others are unsupported. */
typedef struct op_raw_attrs {
    int count;
    const char *const *names;
    const ir_attr_kind *kinds;
    const ir_attr *values;
    bool *taken; /* set by upgrade */
    /* The values that replace the outputs of the node: its own, unless upgrade builds others after
     * it. */
    ir_value **results;
} op_raw_attrs;
const ir_attr *op_raw_take(const op_raw_attrs *raw, const char *name); /* NULL when absent */

/* Made by CMake from the files of src/ops, sorted by file name, ends with NULL. */
extern const gqac_op *const gqac_op_table[];
extern const int gqac_op_count;

/* `standard` of a row whose `expand` builds standard ops. */
bool op_expand_standard(ir_builder *b, ir_node *node, ir_value **results);

/* The row for a name of a domain ("", "com.microsoft", "gqac"; "ai.onnx" is ""); NULL when there is
 * none. Also finds "return". op_schema is the same with the type of an ir_schema_lookup. */
const gqac_op *op_find(const char *domain, const char *name);
const ir_schema *op_schema(const char *domain, const char *name);
static inline const gqac_op *op_of(const ir_node *node) {
    return (const gqac_op *)node->op;
}
/* Is this node that op? Own ops: op_is(node, "attention"). */
bool op_is(const ir_node *node, const char *domain, const char *name);

/* op_find and build, for callers that know only the number of results; others use ops/build.h. A
 * name that is not in the table is an INTERNAL failure of the builder. */
ir_node *op_build(ir_builder *b, const char *domain, const char *name, int n_inputs,
                  ir_value *const *inputs, int n_outputs);

/* Runs infer of one node; a failure names the node. */
gqac_status op_infer(ir_node *node, gqac_diag *diag);

/* Runs eval of one node on tensors, outputs in fresh memory from `arena` (constant folding, tests).
 * No pool, no KV, no nested graphs. */
gqac_status op_eval(const ir_node *node, const gqac_tensor *const *in, gqac_tensor *out,
                    gqac_arena *arena, gqac_diag *diag);
/* The same for at most *left ns of work (op_work.left); LIMIT when it would take more. */
gqac_status op_eval_within(const ir_node *node, const gqac_tensor *const *in, gqac_tensor *out,
                           gqac_arena *arena, int64_t *left, gqac_diag *diag);

/* Allocates an output: wraps call->alloc. */
static inline gqac_status op_output(op_call *call, int index, gqac_dtype dtype, int rank,
                                    const int64_t *dims) {
    return call->alloc(call, index, dtype, rank, dims);
}

#endif
