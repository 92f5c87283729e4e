/* Passes: named, deterministic, idempotent rewrites of a module. The runner checks the conditions
 * of each pass, and afterwards removes dead nodes and verifies the graph. Their order is the table
 * in pipeline.c. */
#ifndef GQAC_PASSES_PASS_H
#define GQAC_PASSES_PASS_H

#include "ir/ir.h"
#include "ops/op.h"
#include "targets/target.h"

/* Properties of the module that passes need, provide or break; the runner checks them. */
enum {
    PASS_TYPED = 1,    /* every value that can have a type has one */
    PASS_LOWERED = 2,  /* no op flagged IR_OP_LOWER is left */
    PASS_STATEFUL = 4, /* past/present pairs are sequence state */
    PASS_CLAIMED = 8,  /* every node has a kernel */
    PASS_ORDERED = 16, /* the node order is final */
    PASS_PLANNED = 32, /* values have slots: see plan.c */
    PASS_ONNX = 64,    /* only ONNX ops (domains "" and "com.microsoft"): can be exported */
    PASS_RAISED = 128, /* the pass `raise` has run */
};

typedef struct pass_context {
    ir_module *module;
    const gqac_target *target;
    op_options options;
    unsigned facts; /* PASS_* that hold now */
    gqac_diag *diag;
    gqac_poll *poll; /* the caller's; NULL: none */
    /* Set by the runner. */
    size_t changed;             /* number of rewrites: 0 when a pass begins, counted by the pass */
    gqac_arena *scratch;        /* memory for the running pass; freed after it */
    const char *const *disable; /* as in the request: tidy skips these of its parts */
    int64_t folded;             /* ns of work that folding has done so far; it has a maximum */
    /* Notes by `raise`, if wants_notes is set: in the order of the nodes, in the module's arena. */
    bool wants_notes;
    struct pass_note *notes, *last_note;
    /* Set by `ragged`: the node that forces steps to pad rows; NULL: rows are packed. */
    const ir_node *padded_by;
} pass_context;

/* A pattern that was raised, or one that nearly matched and was not. */
typedef struct pass_note {
    const char *what;      /* the op that it was, or would have been, raised to: "Attention" */
    const char *node;      /* the last node of the pattern */
    const char *stop, *op; /* the node that prevented raising, and its op; NULL: it was raised */
    const char *why;       /* the reason; NULL: it was raised */
    struct pass_note *next;
} pass_note;

typedef struct gqac_pass {
    const char *name;
    const char *summary; /* one line for --list-passes */
    unsigned needs;
    unsigned provides; /* properties that hold after it; checked where possible */
    unsigned breaks;   /* properties that may not hold after it, if it changed something */
    bool retidy;       /* run tidy after it if it changed something */
    bool sequences;    /* runs only if past and present become sequence state */
    /* If this pass changed something, the pipeline goes back to that earlier pass and continues
     * from there, until this pass changes nothing. */
    const struct gqac_pass *again;
    gqac_status (*run)(pass_context *context);
    ir_node_visitor *visit; /* instead of run: called for each node, with the pass_context */
} gqac_pass;

/* pass_<name>; infer, fold and simplify are the parts of tidy. */
extern const gqac_pass pass_import, pass_infer, pass_fold, pass_simplify, pass_tidy, pass_defaults,
    pass_raise, pass_pack, pass_unpad, pass_lower, pass_stateful, pass_last_rows, pass_ragged,
    pass_claim, pass_expand, pass_order, pass_plan;
/* Passes of rewrites. */
extern const gqac_pass pass_dynamic_seq, pass_insert_kv, pass_static_cross_cache, pass_prefill,
    pass_decode, pass_raise_portable;

/* Removes nodes without used outputs (effects count as uses), and unused constants. */
void pass_sweep(ir_module *module);
/* Replaces one node by gqac_op.expand of its op, one level deep. */
gqac_status pass_expand_node(pass_context *context, ir_node *node);
/* The same by gqac_op.by_row. */
gqac_status pass_by_row_node(pass_context *context, ir_node *node);
/* For export: replaces ops that are not in the ONNX standard by equivalent standard ops. */
gqac_status pass_standardise(pass_context *context);

/* Finds the past/present pairs of an imported, tidied or lowered graph, in the order of the graph
 * inputs. A pair is an input "past_X" of a node whose output "present_X" is a graph result, or, for
 * attention written out in simple ops, an input and a result named past…N.key and present.N.key. A
 * past of keys and values, [2,B,H,P,D] or side by side, is two pairs, NAME.key and NAME.value.
 * heads and head_size are 0 if the types do not determine them. The list and new names live in
 * `arena`, other names in the module. */
gqac_status pass_find_kv_pairs(const ir_module *module, gqac_arena *arena, kv_slot **slots, int *n);
/* True if Split or Slice alone reads the value: it has keys and values side by side. */
bool pass_is_halved(const ir_value *both);
/* True if output i of a Split or Slice is not the first part. */
bool pass_is_second(const ir_node *node, int i);
/* True if an output row of the node depends on other input rows of the call, other than through KV
 * state. */
bool pass_mixes_rows(const ir_node *node);
/* The node with which the exporter selected the last row of logits; NULL: there is none. For
 * sequences it does not count as mixing rows, because `last_rows` replaces it. */
const ir_node *pass_last_row(const ir_graph *graph);
/* Lists the nodes that mix the rows of a call, in order. An empty list proves that results do not
 * depend on how tokens are split into calls. The module must be tidied but not lowered, because
 * there attention ops still stand for everything that reaches other rows through KV state. */
gqac_status pass_check_invariance(const ir_module *module, gqac_arena *arena,
                                  const ir_node ***mixing, int *n);

/* What to run and what to report. All callbacks and lists may be NULL. */
typedef struct pass_request {
    bool stateful;              /* run `stateful` (sequences) or not (stateless run) */
    const char *stop_after;     /* name of a pass, after whose first run the pipeline stops */
    const char *const *disable; /* pass names, ends with NULL */
    /* Called after each pass that ran, in order; import is the first. */
    void (*after)(void *arg, const char *pass, const ir_module *module, double seconds);
    void *arg;
} pass_request;

/* Runs the pipeline. USAGE: the name of a pass is unknown, the pass to stop after does not run, or
 * a later pass needs a disabled one. */
gqac_status gqac_pipeline_run(pass_context *context, const pass_request *request);
/* All passes in order, for --list-passes; ends with NULL. */
extern const gqac_pass *const gqac_pipeline[];
/* Runs one pass with scratch of its own, without checks. */
gqac_status pass_run(pass_context *context, const gqac_pass *pass);
/* Like gqac_pipeline_run for another list of passes, which ends with NULL; for rewrites and
 * tests. */
gqac_status pass_run_list(pass_context *context, const pass_request *request,
                          const gqac_pass *const *passes);

/* A rewrite of a model file: ONNX in, ONNX out. Each file that it writes comes from its own copy of
 * the graph, by a list of passes; the changes of the last pass are counted and reported. */
enum { PASS_MOST_FILES = 2 };
typedef struct pass_rewrite {
    const char *name, *summary;
    const char *counted; /* follows the count in a report: "attention nodes now have a cache" */
    struct pass_rewrite_file {
        const char *part; /* OUT.<part>.onnx; NULL: OUT.onnx */
        const gqac_pass *const *passes;
    } files[PASS_MOST_FILES]; /* passes NULL: there is no such file */
} pass_rewrite;
extern const pass_rewrite *const gqac_rewrites[]; /* ends with NULL */

#endif
