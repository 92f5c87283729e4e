/* Passes: named, deterministic, idempotent rewrites of a module, run by one runner that checks
 * their conditions, verifies the graph and sweeps dead nodes after each. The order is pipeline.c.*/
#ifndef GQAC_PASSES_PASS_H
#define GQAC_PASSES_PASS_H

#include "ir/ir.h"
#include "ops/op.h"
#include "targets/target.h"

/* Facts about the module that passes need, provide and break; checked by the runner. */
enum {
    PASS_TYPED = 1,    /* every value that can have a type has one */
    PASS_LOWERED = 2,  /* no op flagged IR_OP_LOWER is left */
    PASS_STATEFUL = 4, /* past/present pairs are sequence state */
    PASS_CLAIMED = 8,  /* every node has a kernel */
    PASS_ORDERED = 16, /* the node order is final */
    PASS_PLANNED = 32, /* every value has a slot */
    PASS_ONNX = 64,    /* only ONNX ops (domains "" and "com.microsoft"): can be exported */
};

typedef struct pass_context {
    ir_module *module;
    const gqac_target *target;
    op_options options;
    unsigned facts; /* PASS_* that hold now */
    gqac_diag *diag;
    gqac_poll *poll; /* of the caller; NULL: none */
    /* Set by the runner. */
    size_t changed;             /* number of rewrites by the pass that runs, which counts them */
    gqac_arena *scratch;        /* of the pass that runs; freed when it has returned */
    const char *const *disable; /* as in the request: tidy leaves out those parts */
    int64_t folded;             /* ns of work that folding has done so far, which is bounded */
    /* What `raise` found, when it is asked for: in the order of the nodes, in the module's arena.*/
    bool wants_notes;
    struct pass_note *notes;
    /* By `ragged`: the node for which steps pad their rows; NULL: rows are packed. */
    const ir_node *padded_by;
} pass_context;

/* A pattern that was raised, or one that nearly fitted and was not. */
typedef struct pass_note {
    const char *what;      /* "Attention": what it was raised to, or would have been */
    const char *node;      /* the last node of it */
    const char *stop, *op; /* the node that prevented it, and its op; NULL: it was raised */
    const char *why;       /* the reason; NULL: it was raised */
    struct pass_note *next;
} pass_note;

typedef struct gqac_pass {
    const char *name;
    const char *summary; /* one line for --list-passes */
    unsigned needs;
    unsigned provides;             /* holds after it; the runner checks what can be checked */
    unsigned breaks;               /* holds no more when it changed something */
    bool retidy;                   /* run tidy after it when it changed something */
    bool sequences;                /* only when past and present become sequence state */
    const struct gqac_pass *again; /* when it changed something, go on with that earlier pass */
    gqac_status (*run)(pass_context *context);
} gqac_pass;

/* pass_<name>; infer, fold and simplify are the parts of tidy. */
extern const gqac_pass pass_import, pass_infer, pass_fold, pass_simplify, pass_tidy, pass_defaults,
    pass_raise, pass_pack, pass_unpad, pass_lower, pass_stateful, pass_last_rows, pass_ragged,
    pass_claim, pass_expand, pass_order, pass_plan;
/* Those of rewrites. */
extern const gqac_pass pass_dynamic_seq, pass_insert_kv, pass_static_cross_cache, pass_prefill,
    pass_decode, pass_raise_portable;

/* Removes nodes whose outputs nobody uses (effects count as uses), and unused constants. */
void pass_sweep(ir_module *module);
/* Expands one node one level by its own row and replaces it. */
gqac_status pass_expand_node(pass_context *context, ir_node *node);
gqac_status pass_by_row_node(pass_context *context, ir_node *node); /* by its row's by_row */
/* Replaces ops that no ONNX standard knows by those that say the same, for export. */
gqac_status pass_standardise(pass_context *context);

/* Past/present pairs of an imported, tidied or lowered graph, in the order of the graph inputs: an
 * input "past_X" of a node whose output "present_X" is a graph result, and, for attention spelt out
 * in simple ops, inputs and results named past…N.key and present.N.key. A past of keys and values
 * [2,B,H,P,D] is two pairs, NAME.key and NAME.value. heads and head_size are 0 when the types do
 * not have them. The list and new names live in `arena`, other names in the module. */
gqac_status pass_find_kv_pairs(const ir_module *module, gqac_arena *arena, kv_slot **slots, int *n);
/* Does an output row of the node depend on other input rows of the call, but through KV state? */
bool pass_mixes_rows(const ir_node *node);
/* The node by which the exporter took the last row of logits, which `last_rows` replaces, so that
 * it mixes no rows of a sequence; NULL: there is none. */
const ir_node *pass_last_row(const ir_graph *graph);
/* The nodes that make rows of one call depend on each other, in order: empty proves that results do
 * not depend on how tokens are split into calls. Takes the tidied graph, before `lower`: there,
 * an attention op stands for all that reaches other rows through KV state. */
gqac_status pass_check_invariance(const ir_module *module, gqac_arena *arena,
                                  const ir_node ***mixing, int *n);

/* What to run and what to report. All callbacks and lists may be NULL. */
typedef struct pass_request {
    bool stateful;              /* run `stateful` (sequences) or not (stateless run) */
    const char *stop_after;     /* pass name: stops after its first run */
    const char *const *disable; /* pass names, ends with NULL */
    /* Called after each pass that ran, in order; import is the first. */
    void (*after)(void *arg, const char *pass, const ir_module *module, double seconds);
    void *arg;
} pass_request;

/* Runs the pipeline. USAGE when a name is unknown, when the pass to stop after does not run, or
 * when a disabled pass is needed by a later one. */
gqac_status gqac_pipeline_run(pass_context *context, const pass_request *request);
/* All passes in order, for --list-passes; ends with NULL. */
extern const gqac_pass *const gqac_pipeline[];
/* One pass, with its scratch and without checks. */
gqac_status pass_run(pass_context *context, const gqac_pass *pass);
/* Like gqac_pipeline_run, with another list of passes, which ends with NULL: rewrites, tests. */
gqac_status pass_run_list(pass_context *context, const pass_request *request,
                          const gqac_pass *const *passes);

/* A rewrite of a model file: ONNX in, ONNX out. Each file is made from a graph of its
 * own by a list of passes; the number of changes by the last pass is reported. */
enum { PASS_MOST_FILES = 2 };
typedef struct pass_rewrite {
    const char *name, *summary;
    const char *counted; /* what it counts: "attention nodes have a cache now" */
    struct pass_rewrite_file {
        const char *part; /* OUT.<part>.onnx; NULL: OUT.onnx */
        const gqac_pass *const *passes;
    } files[PASS_MOST_FILES]; /* passes NULL: there is no such file */
} pass_rewrite;
extern const pass_rewrite *const gqac_rewrites[]; /* ends with NULL */

#endif
