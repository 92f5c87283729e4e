/* The op row: everything gqac knows about one op, in one file of src/ops that exports one constant
 * `gqac_op_<file stem>`. CMake collects the rows; nothing else lists ops.
 *
 * A row has exactly one of `eval` (a primitive op, which computes tensors) and `expand` (a
 * composite op, which simpler ops replace). The pass `lower` expands composites with the flag
 * IR_OP_LOWER for every target; other composites are expanded only if the target has no kernel for
 * them. */
#ifndef GQAC_OPS_OP_H
#define GQAC_OPS_OP_H

#include "ir/ir.h"
#include "ops/work.h"

/* Attributes with a default. NOLINTBEGIN(bugprone-macro-parentheses): `value` has a designator */
#define OP_ATTR_INT(attr, value, text)    OP_ATTR(attr, INT, .i = value, text)
#define OP_ATTR_FLOAT(attr, value, text)  OP_ATTR(attr, FLOAT, .f = value, text)
#define OP_ATTR_STRING(attr, value, text) OP_ATTR(attr, STRING, .s = value, text)
#define OP_ATTR(attr, type, value, text)                                                           \
    { .name = attr, .kind = IR_ATTR_##type, .fallback = {.set = true, value}, .doc = text }
/* NOLINTEND(bugprone-macro-parentheses) */
/* User options that change what ops mean; fixed during a compilation. */
typedef struct op_options {
    bool cached_lengths; /* --seqlens-k cached: seqlens_k holds the cached length */
    bool legacy_window;  /* --legacy-window: W+1 keys */
    bool per_row_quant;  /* --per-row-quant: one scale per row, not per tensor; see by_row */
    bool exact;          /* --math exact: ops that compute in int8 use fp32; see make_exact */
    bool bf16;           /* --math bf16: products may have bf16 factors; see make_bf16 */
    bool for_sequences;  /* past and present will become sequence state; set by the runner */
} op_options;

/* One evaluation on concrete tensors. `in` has node->n_inputs entries, NULL for absent inputs;
 * `out` has node->n_outputs entries. An eval determines the shape of each output that it computes
 * and allocates it with op_output. infer may have succeeded without knowing shapes, so eval checks
 * ranks, dimensions, indices and values itself. */
typedef struct op_call {
    const ir_node *node;
    const gqac_tensor *const *in;
    gqac_tensor *out;
    gqac_pool *pool; /* may be NULL */
    gqac_diag *diag;
    void *host; /* for the functions below; opaque to ops */
    /* Allocates out[index] with that type and shape; its data are uninitialised (NaN bytes in test
     * builds). The memory of an output that is not used (node->outputs[index] NULL) is scratch. */
    gqac_status (*alloc)(struct op_call *call, int index, gqac_dtype dtype, int rank,
                         const int64_t *dims);
    /* Runs a nested graph (If, Loop) and stores views of its results, which are valid until that
     * graph runs again. An output may be such a view. */
    gqac_status (*run_graph)(struct op_call *call, const ir_graph *graph, int n_args,
                             const gqac_tensor *const *args, gqac_tensor *results);
    /* See op_work.scratch. */
    void *(*scratch)(void *host, size_t bytes);
    int64_t *left; /* estimated ns of work that are left: see op_work.left */
    /* For op_move: copies a box (ops/copy.h) whose elements are in the memory of a device. NULL:
     * all elements are in the memory of the host. */
    gqac_status (*move)(struct op_call *call, const struct op_box *box);
} op_call;

struct op_raw_attrs;

/* The operands of an attention node, for rewrites that give it another kind of cache. */
typedef struct op_parts {
    ir_value *q, *k, *v;  /* of the new tokens, [B,H,S,D], as attention reads them */
    float scale, softcap; /* softcap 0: off */
    bool causal;
    int64_t window; /* number of keys that a query sees, its own included; below 1: all */
    ir_value *sink; /* [H], or one for all heads: an additional score in the softmax; NULL: none */
} op_parts;

typedef struct gqac_op {
    ir_schema schema; /* first: an ir_node's `op` points here */
    /* Computes the types (and, for small integer tensors, the symbolic elements) of the outputs
     * from those of the inputs. Dtype, rank and dims of an input may be unknown. INVALID_MODEL: the
     * inputs cannot be valid. NULL: outputs have unknown types. */
    gqac_status (*infer)(ir_node *node, gqac_diag *diag);
    /* Checks the node on import and after parsing, before types are known. INVALID_MODEL: something
     * is invalid; UNSUPPORTED: an attribute value, input or dtype is not supported. NULL: only the
     * schema is checked. */
    gqac_status (*verify)(const ir_node *node, gqac_diag *diag);
    gqac_status (*eval)(op_call *call);
    /* Builds the replacement before the node and stores the values that replace its outputs in
     * `results` (node->n_outputs entries; NULL is allowed for outputs that are not used). A failure
     * is in b->status. The caller replaces and removes the node and infers types again. */
    void (*expand)(ir_builder *b, ir_node *node, const op_options *options, ir_value **results);
    /* Rewrites a node of an older opset in place into the form of schema.since (e.g. the attribute
     * axes becomes an input). `raw` has all attributes of the file. NULL: the older versions that
     * the row covers have the same form. */
    gqac_status (*upgrade)(ir_builder *b, ir_node *node, int opset, const struct op_raw_attrs *raw);
    /* For export, of ops in ONNX domains that are not in the standard: builds an equivalent from
     * standard ops; false if these cannot express the node. Other ops: NULL. */
    bool (*standard)(ir_builder *b, ir_node *node, ir_value **results);
    /* --math exact: sets attributes so that eval computes in fp32. NULL: eval always does. */
    void (*make_exact)(ir_node *node);
    /* --per-row-quant: like expand, builds a replacement in which each quantised row has its own
     * scale, before types are known. NULL: no result depends on a scale of the whole tensor. */
    void (*by_row)(ir_builder *b, ir_node *node, ir_value **results);
    /* --math bf16: sets attributes so that products may have bf16 factors. NULL: no product can. */
    void (*make_bf16)(ir_node *node);
    /* Attention ops: builds *parts before the node, which stays, for tokens at `positions` (i64
     * [B,S]). If the parts cannot express the node, b->status is UNSUPPORTED. NULL: the op has no
     * such form. */
    void (*take_apart)(ir_builder *b, const ir_node *node, ir_value *positions,
                       const op_options *options, op_parts *parts);
    /* For schema.rows == IR_ROWS_SHAPE and IR_ROWS_STATE: true if this node mixes rows. NULL: no
     * node does. */
    bool (*mixes)(const ir_node *node);
} gqac_op;

/* All attributes that the file has for a node. Those in the schema are marked as taken, and
 * `upgrade` marks the others that it handles; an attribute that is not taken is unsupported. */
typedef struct op_raw_attrs {
    int count;
    const char *const *names;
    const ir_attr_kind *kinds;
    const ir_attr *values;
    bool *taken; /* see op_raw_take */
    /* The values that replace the outputs of the node: its own outputs, unless upgrade builds
     * others after it. */
    ir_value **results;
} op_raw_attrs;
const ir_attr *op_raw_take(const op_raw_attrs *raw, const char *name); /* marks it; NULL: absent */

/* All rows, sorted by file name; ends with NULL. CMake makes the table from the files of
 * src/ops. */
extern const gqac_op *const gqac_op_table[];
extern const int gqac_op_count;

/* `standard` of a row whose `expand` builds standard ops. */
bool op_expand_standard(ir_builder *b, ir_node *node, ir_value **results);

/* Returns the row of an op by domain ("", "com.microsoft", "gqac"; "ai.onnx" is "") and name,
 * "return" included; NULL: there is none. op_schema is the same as an ir_schema_lookup. */
const gqac_op *op_find(const char *domain, const char *name);
const ir_schema *op_schema(const char *domain, const char *name);
static inline const gqac_op *op_of(const ir_node *node) {
    return (const gqac_op *)node->op;
}
/* True if the node's op has that domain and name; gqac's own ops have the domain "gqac". */
bool op_is(const ir_node *node, const char *domain, const char *name);

/* op_find and ir_build in one, for callers that know the number of results only at run time; others
 * use ops/build.h. The builder fails with INTERNAL if the table has no such op. */
ir_node *op_build(ir_builder *b, const char *domain, const char *name, int n_inputs,
                  ir_value *const *inputs, int n_outputs);

/* Runs infer of one node; on failure *diag names the node. */
gqac_status op_infer(ir_node *node, gqac_diag *diag);

/* Runs eval of one node on tensors, for constant folding and tests; outputs are allocated from
 * `arena`. There is no thread pool, no KV cache, and nested graphs cannot run. */
gqac_status op_eval(const ir_node *node, const gqac_tensor *const *in, gqac_tensor *out,
                    gqac_arena *arena, gqac_diag *diag);
/* The same with at most *left estimated ns of work (op_work.left). LIMIT: it would take more. */
gqac_status op_eval_within(const ir_node *node, const gqac_tensor *const *in, gqac_tensor *out,
                           gqac_arena *arena, int64_t *left, gqac_diag *diag);

/* Allocates an output: wraps call->alloc. */
static inline gqac_status op_output(op_call *call, int index, gqac_dtype dtype, int rank,
                                    const int64_t *dims) {
    return call->alloc(call, index, dtype, rank, dims);
}

#endif
