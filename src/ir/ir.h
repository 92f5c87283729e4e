/* The intermediate representation: graphs of nodes over typed values.
 *
 * Everything lives in the arena of its module; nothing is freed alone. A graph is a list of nodes,
 * ordered so that every value is defined before it is used; the results of the graph are the inputs
 * of its `ret` node. Graphs may be nested (the branches of If, the body of Loop); a nested graph
 * may use values of the graphs that enclose it. Effects are values too: a node with an effect reads
 * a value of dtype `token` (an effect token, which stands for an order and has no data; not a token
 * of a text) and returns another, so that order and liveness need no special rules. Constants are
 * views of memory owned elsewhere (the mapped file or the arena).
 *
 * Schemas: an op is described by an ir_schema (name, inputs, outputs, attributes); src/ops extends
 * it with behaviour. The IR itself knows no op by name. */
#ifndef GQAC_IR_IR_H
#define GQAC_IR_IR_H

#include <gqac/tensor.h>

#include "base/arena.h"
#include "base/str.h"
#include "ir/dim.h"

typedef struct ir_module ir_module;
typedef struct ir_graph ir_graph;
typedef struct ir_node ir_node;
typedef struct ir_value ir_value;

/* ---- schemas ------------------------------------------------------------- */

typedef enum ir_attr_kind {
    IR_ATTR_INT,     /* ir_attr.i */
    IR_ATTR_FLOAT,   /* .f */
    IR_ATTR_STRING,  /* .s */
    IR_ATTR_INTS,    /* .count, .ints */
    IR_ATTR_FLOATS,  /* .count, .floats */
    IR_ATTR_STRINGS, /* .count, .strings */
    IR_ATTR_TENSOR,  /* .tensor */
    IR_ATTR_GRAPH,   /* .graph */
    IR_ATTR_DTYPE,   /* .dtype; an INT (TensorProto.DataType) on the wire */
} ir_attr_kind;

/* The value of an attribute. `set` is false if the file has no value and the schema no default. */
typedef struct ir_attr {
    bool set;
    int64_t i;
    float f;
    const char *s;
    size_t count;
    const int64_t *ints;
    const float *floats;
    const char *const *strings;
    const gqac_tensor *tensor;
    ir_graph *graph;
    gqac_dtype dtype;
} ir_attr;

/* One row of a schema's attribute table, which determines how attributes are imported, defaulted,
 * checked, printed, parsed and documented. A table ends with name NULL. */
typedef struct ir_attr_spec {
    const char *name;
    ir_attr_kind kind;
    bool required;
    ir_attr fallback; /* value when absent; fallback.set false: no default */
    const char *doc;  /* one line */
} ir_attr_spec;

/* How an output row (along sequence and batch) depends on input rows. */
typedef enum ir_rows {
    IR_ROWS_LOCAL, /* only on its own input row: split-safe */
    IR_ROWS_STATE, /* on other rows only through the KV state: split-safe, unless `mixes` in
                      ops/op.h says that this node is not */
    IR_ROWS_MIXES, /* on other rows of the same call: not split-safe */
    IR_ROWS_SHAPE, /* decided for each node by its axes and shapes: by the same `mixes` */
} ir_rows;

enum {
    IR_OP_EFFECT = 1,      /* reads a token and returns another; not removed while that is used */
    IR_OP_COMMUTATIVE = 2, /* the first two inputs may be swapped */
    IR_OP_NO_FOLD = 4,     /* not folded at compile time, even if its inputs are constant */
    IR_OP_RETURN = 8,      /* the return of a graph */
    IR_OP_LOWER = 16,      /* expanded by pass `lower`, before the target is asked */
    IR_OP_IN_PLACE = 32,   /* eval (ops/op.h) works when output 0 overwrites input 0 */
    IR_OP_MOVES = 64,      /* eval only moves fp32 elements, with op_move, whatever their values */
};

typedef struct ir_schema {
    const char *name;   /* "MatMul", "attention" */
    const char *domain; /* "" ONNX, "com.microsoft", or "gqac" for our own (printed without it) */
    /* The row has the form of the op in opsets since to until (0: no end) of its domain. `upgrade`
     * brings nodes of older opsets, from `introduced` on (0: from the first that gqac reads), to
     * this form. For example since 13, introduced 1: nodes of opsets 1 to 12 are upgraded. */
    int since, until, introduced;
    const char *inputs; /* names in order: "query key? value? rest*"; ? optional, * any number >= 0,
                           + any number >= 1 (last only) */
    const char *outputs;
    const ir_attr_spec *attrs; /* NULL: none */
    unsigned flags;            /* IR_OP_* */
    unsigned shapes_only;      /* bit i: eval reads only the type and shape of input i, no
                                  element */
    ir_rows rows;
    const char *doc; /* one or two lines: formula and shapes */
} ir_schema;

/* ---- values, nodes, graphs ----------------------------------------------- */

typedef struct ir_type {
    gqac_dtype dtype;          /* GQAC_NONE: not known */
    int rank;                  /* -1: not known */
    const ir_dim *const *dims; /* rank entries, each may be NULL (not known) */
} ir_type;

typedef struct ir_use { /* one operand: node->inputs[i] */
    ir_value *value;    /* NULL: an absent optional input */
    ir_node *node;
    struct ir_use *prev, *next; /* among the uses of value */
} ir_use;

struct ir_value {
    const char *name; /* unique within the module, without the % */
    ir_type type;
    ir_graph *graph;             /* the graph that it belongs to */
    ir_node *def;                /* NULL: graph input or constant */
    int result;                  /* which output of def */
    const gqac_tensor *constant; /* not NULL: a constant */
    const char *origin; /* name of the equal value in the model's own graph; NULL: there is none */
    const char *digest; /* of a constant that was parsed without its data, from a dump; else NULL */
    bool stored; /* of a constant: an initializer of the file or a constant of text, not made by a
                    Constant node or a pass */
    /* Symbolic elements of a small integer tensor (rank 0 or 1), for shape arithmetic; NULL when
     * not known. Entries may be NULL. Filled by infer. */
    const ir_dim *const *elements;
    int64_t n_elements;
    ir_use *uses; /* head of the list */
    int slot;     /* set by `plan`: values with the same slot share memory; -1: none */
    int id;       /* set by the run time: number of the value in its module, 0, 1, ... */
    const struct ir_value *alias; /* set by `plan`: the next in the list of values that lie in the
                                     memory of one value, which heads the list */
};

struct ir_node {
    const ir_schema *op;
    const char *name; /* from the file; may be NULL. For messages only */
    ir_graph *graph;
    ir_node *prev, *next;
    int n_inputs;
    ir_use *inputs;
    int n_outputs;
    ir_value **outputs; /* an entry is NULL if that output is not used */
    ir_attr *attrs;     /* one for each row of op->attrs */
    const char *kernel; /* name of the kernel that claimed it ("ref.generic"); NULL before claim */
    const void *claim;  /* that kernel's row, for the run time; not printed */
    const void *bound;  /* the record that its bind made; NULL before bind, or if there is none */
    /* The root: the node whose kernel computes this one too; NULL: this node runs its own kernel.
     * Nodes of a group whose results are read outside it are adjacent, the root last. */
    ir_node *fused_into;
    unsigned mark; /* scratch of passes */
};

struct ir_graph {
    ir_module *module;
    ir_node *parent; /* node that holds this graph as an attribute; NULL for the main graph */
    const char *name;
    int n_inputs;
    ir_value **inputs;
    ir_node *first, *last;     /* all nodes except ret */
    ir_node *ret;              /* op "return"; its inputs are the graph's results */
    const char **result_names; /* [ret->n_inputs], names of the results in the file */
    int n_constants, constants_capacity;
    ir_value **constants;
};

struct ir_module {
    gqac_arena *arena;
    ir_dims *dims;
    ir_graph *graph;    /* the main graph */
    const char *source; /* path of the model, for messages; may be NULL */
    unsigned next_name; /* counter for fresh names */
    void *names;        /* table of the names in use */
    /* Called after constant data were copied into another form, so that pages of a mapped file can
     * be released. May be NULL. */
    void (*copied)(void *arg, const void *data, size_t bytes);
    void *copied_arg;
};

/* The schema of a graph's return node ("results*"). */
extern const ir_schema ir_return_schema;

/* All constructors return NULL, and all functions that return bool false, if memory is
 * exhausted. */
ir_module *ir_module_create(gqac_arena *arena, const char *source);
ir_graph *ir_graph_create(ir_module *module, const char *name);

/* Adds an input. If the name is in use, it gets a suffix ".1", ".2", ... (see ir_value.name). */
ir_value *ir_graph_add_input(ir_graph *graph, const char *name, ir_type type);
void ir_graph_remove_input(ir_graph *graph, int index); /* it must have no uses */
/* Copies the tensor's header, but not its data. */
ir_value *ir_graph_add_constant(ir_graph *graph, const char *name, const gqac_tensor *tensor);
/* Moves all constants of a graph to another graph of the module, which encloses it or receives its
 * nodes. */
bool ir_graph_move_constants(ir_graph *from, ir_graph *to);
/* Removes unused constants; returns their number. */
int ir_graph_sweep_constants(ir_graph *graph);
/* Constants made from numbers, copied to the arena. */
ir_value *ir_const_i64(ir_graph *graph, const char *name, int64_t value); /* rank 0 */
ir_value *ir_const_i64s(ir_graph *graph, const char *name, int64_t n, const int64_t *values);
ir_value *ir_const_f32(ir_graph *graph, const char *name, float value); /* rank 0 */
/* Replaces the results of a graph; a value may occur more than once. names NULL: results are named
 * after their values. */
bool ir_graph_set_results(ir_graph *graph, int n, ir_value *const *values,
                          const char *const *names);

/* If memory is exhausted, the rank is -1 and ir_dims_failed(module->dims) is true. */
ir_type ir_type_make(ir_module *module, gqac_dtype dtype, int rank, const ir_dim *const *dims);
ir_type ir_type_of_tensor(ir_module *module, const gqac_tensor *tensor);
ir_type ir_type_unknown(void);
bool ir_type_equal(const ir_type *a, const ir_type *b);

/* Creates a node that is in no list yet, with default attributes; its inputs are linked as uses. It
 * has n_outputs new values, named by out_names or, if that is NULL, after `name` (or the op). An
 * entry "" of out_names makes that output NULL. */
ir_node *ir_node_create(ir_graph *graph, const ir_schema *op, const char *name, int n_inputs,
                        ir_value *const *inputs, int n_outputs, const char *const *out_names);
/* Creates a value for each required output of the schema that was left out, because code after
 * `import` may look at its type. */
bool ir_node_complete(ir_node *node);
/* Inserts a node before `before`; NULL: at the end of its graph. */
void ir_node_insert(ir_node *node, ir_node *before);
/* Removes a node from its list, and its uses with it, those in its nested graphs included. Its
 * outputs must have no uses. */
void ir_node_remove(ir_node *node);
/* Moves a node, with its uses and nested graphs, before `before` in `graph`, which is in the same
 * module; before NULL: to the end. */
void ir_node_move(ir_node *node, ir_graph *graph, ir_node *before);
void ir_node_set_input(ir_node *node, int index, ir_value *value); /* value may be NULL */
/* Replaces all inputs; their number may change. On failure nothing has changed. */
bool ir_node_set_inputs(ir_node *node, int n, ir_value *const *values);
/* Replaces every use of `old`, in all graphs, by `by`. The names of graph results do not change. */
void ir_value_replace(ir_value *old, ir_value *by);
bool ir_value_unused(const ir_value *value);
/* Renames a value; if the name is in use, it gets a suffix. The old name stays in use. */
bool ir_value_rename(ir_value *value, const char *name);
/* Gives a value exactly this name; the value that had it gets another one. */
bool ir_value_take_name(ir_value *value, const char *name);
/* Writes the name of a node's op: "com.microsoft.MatMulNBits"; without a domain for ops of ONNX and
 * of gqac. Returns `buffer`. */
const char *ir_node_op_name(const ir_node *node, char *buffer, size_t size);
/* The name by which messages mean a node: its own, else that of its first output, else "". */
const char *ir_node_label(const ir_node *node);
/* Adds "node 'label' (op)" to diag->where. */
void ir_node_where(const ir_node *node, gqac_diag *diag);
/* The node whose kernel computes this one: itself, or the root that it is fused into. */
ir_node *ir_node_root(const ir_node *node);
/* The node of `graph` that is this one or holds it in a nested graph. */
ir_node *ir_node_within(const ir_node *node, const ir_graph *graph);
/* True if a kernel other than the one that computes the value reads it. */
bool ir_value_escapes(const ir_value *value);
/* Iterates over the nested graphs of a node: for (int at = 0; (graph = ir_next_graph(node, &at));)
 */
ir_graph *ir_next_graph(const ir_node *node, int *at);
bool ir_holds_graphs(const ir_node *node);
ir_value *ir_node_input(const ir_node *node, int index);  /* NULL when absent or out of range */
ir_value *ir_node_output(const ir_node *node, int index); /* likewise */
/* The operand with that name in the schema; NULL: it is absent, or the schema has no such name. */
ir_value *ir_node_operand(const ir_node *node, const char *name);

/* True if both attributes have the same value, or neither is set. */
bool ir_attr_equal(ir_attr_kind kind, const ir_attr *a, const ir_attr *b);
/* Attributes by name; the schema must have them. */
const ir_attr *ir_attr_get(const ir_node *node, const char *name);
int64_t ir_attr_int(const ir_node *node, const char *name);
float ir_attr_float(const ir_node *node, const char *name);
bool ir_attr_is_set(const ir_node *node, const char *name);
ir_attr *ir_attr_edit(ir_node *node, const char *name);
void ir_attr_set_int(ir_node *node, const char *name, int64_t value);
void ir_attr_set_float(ir_node *node, const char *name, float value);
void ir_attr_set_dtype(ir_node *node, const char *name, gqac_dtype dtype);
void ir_attr_set_graph(ir_node *node, const char *name, ir_graph *graph); /* sets graph->parent */
/* Lists and texts are copied; of a tensor, only the header is copied. */
bool ir_attr_set_ints(ir_node *node, const char *name, size_t n, const int64_t *values);
bool ir_attr_set_floats(ir_node *node, const char *name, size_t n, const float *values);
bool ir_attr_set_strings(ir_node *node, const char *name, size_t n, const char *const *values);
bool ir_attr_set_string(ir_node *node, const char *name, const char *text);
bool ir_attr_set_tensor(ir_node *node, const char *name, const gqac_tensor *tensor);

/* Calls f for every node of a graph and of its nested graphs, in order; a node comes before the
 * nodes of its nested graphs. Return nodes are visited only by the _all form, after the other nodes
 * of their graph. f may remove the node that it is given, and insert nodes before it. */
typedef gqac_status ir_node_visitor(void *arg, ir_node *node);
gqac_status ir_graph_walk(ir_graph *graph, ir_node_visitor *f, void *arg);
gqac_status ir_graph_walk_all(ir_graph *graph, ir_node_visitor *f, void *arg);
/* Bytes of all constants of the graph. */
int64_t ir_constant_bytes(const ir_graph *graph);

/* Parse ir_schema.inputs or outputs: the minimum and maximum number of inputs or outputs (INT_MAX
 * if variadic); the name of one ("past_key"); and the index of a name. */
void ir_schema_arity(const char *list, int *least, int *most);
void ir_schema_name(const char *list, int index, char *name, size_t size);
int ir_schema_index(const char *list, const char *name); /* -1: there is no such name */
typedef enum ir_arity { IR_NONE, IR_REQUIRED, IR_OPTIONAL, IR_VARIADIC } ir_arity;
ir_arity ir_schema_kind(const char *list, int index); /* IR_NONE: out of range */

/* Stores the elements of a constant i32 or i64 tensor in `out`, and their number in *count. False:
 * the value is not such a constant, or has more than `max` elements. */
bool ir_const_ints(const ir_value *value, int64_t max, int64_t *out, int64_t *count);

/* ---- builder ------------------------------------------------------------- */

/* Builds nodes one after another before a node of a graph. After the first failure, calls do
 * nothing and return NULL, so callers check `status` once at the end. */
typedef struct ir_builder {
    ir_graph *graph;
    ir_node *before; /* NULL: at the end */
    gqac_diag *diag;
    gqac_status status;
} ir_builder;

ir_node *ir_build(ir_builder *b, const ir_schema *op, const char *name, int n_inputs,
                  ir_value *const *inputs, int n_outputs);
ir_value *ir_build_i64(ir_builder *b, int64_t value);                     /* rank 0 */
ir_value *ir_build_i64s(ir_builder *b, int64_t n, const int64_t *values); /* rank 1 */
ir_value *ir_build_f32(ir_builder *b, float value);                       /* rank 0 */
/* Like ir_node_output, but a NULL node is allowed. */
ir_value *ir_build_result(ir_builder *b, ir_node *node, int index);

/* ---- verify, print, parse ------------------------------------------------ */

/* Checks every invariant above: order, use lists, arity, required attributes, unique names, types
 * of constants, tokens used once. INTERNAL: one is broken; *diag says where. */
gqac_status ir_verify(const ir_module *module, gqac_diag *diag);

/* Returns the schema for a domain and name as they are printed; NULL: there is none. */
typedef const ir_schema *ir_schema_lookup(const char *domain, const char *name);

/* Prints a module as text (docs/ir.md). Constants are printed at the head of their graph, in order:
 * those of at most 16 elements in decimal, larger ones as a digest (the first 16 hex digits of the
 * SHA-256 of their bytes) or in full as hex. Text with digests can be parsed, and prints as the
 * same text again, but such a constant has no data (constant->data NULL, value->digest set). */
bool ir_prints_digest(const ir_value *constant); /* more than 16 elements, or no data */
typedef enum ir_print_mode {
    IR_PRINT_DIGEST,
    IR_PRINT_FULL,
    IR_PRINT_HASH,   /* as DIGEST, with a faster hash (XXH3, 128 bits) */
    IR_PRINT_SAMPLE, /* digests of samples, at most 1 KiB of each constant */
} ir_print_mode;
void ir_print(gqac_str *out, const ir_module *module, ir_print_mode mode);
/* Parses text written by ir_print and makes a module of it. INVALID_MODEL: the text is wrong; *diag
 * has line and column. */
gqac_status ir_parse(gqac_arena *arena, const char *text, ir_schema_lookup *schemas,
                     ir_module **module, gqac_diag *diag);

#endif
