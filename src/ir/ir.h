/* The intermediate representation: graphs of nodes over typed values.
 *
 * Everything lives in the arena of its module and is never freed alone. A graph is a list of nodes
 * in an order where every value is defined before it is used; its results are the inputs of the
 * `ret` node. Graphs may be nested (the branches of If, the body of Loop) and then use values of
 * the graphs around them. Effects are values too: a node that touches state reads and makes a value
 * of dtype `token`, so that order and liveness need no special rules. Constants are views of memory
 * owned elsewhere (the mapped file or the arena) and are never confused with structure.
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

/* The value of an attribute. `set` is false when the file had none and the schema has no default.*/
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

/* One row drives import, default, check, print, parse and docs. A table ends with name NULL. */
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
    IR_ROWS_STATE, /* on other rows only through the KV state: split-safe */
    IR_ROWS_MIXES, /* on other rows of the same call: not split-safe */
    IR_ROWS_SHAPE, /* on shapes and other whole-tensor facts, or on where rows lie: the op's axes
                      decide; see op.h `mixes` */
} ir_rows;

enum {
    IR_OP_EFFECT = 1,      /* reads and makes a token; never removed while its token is used */
    IR_OP_COMMUTATIVE = 2, /* the first two inputs may be swapped */
    IR_OP_NO_FOLD = 4,     /* never folded at compile time although its inputs are constant */
    IR_OP_RETURN = 8,      /* the return of a graph */
};

typedef struct ir_schema {
    const char *name;   /* "MatMul", "attention" */
    const char *domain; /* "" ONNX, "com.microsoft", or "gqac" for our own (printed without it) */
    int since, until;   /* opset versions of the domain that this row covers, after upgrades;
                           until 0: no end */
    int introduced;     /* opset in which the domain got the op; 0: before all that are read */
    const char *inputs; /* names in order: "query key? value? rest*"; ? optional, * any number >= 0,
                           + any number >= 1 (last only) */
    const char *outputs;
    const ir_attr_spec *attrs; /* NULL: none */
    unsigned flags;            /* IR_OP_* */
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
    ir_graph *graph;             /* the graph it belongs to */
    ir_node *def;                /* NULL: graph input or constant */
    int result;                  /* which output of def */
    const gqac_tensor *constant; /* not NULL: a constant */
    const char *origin; /* name of the value of the model's own graph that it equals; NULL: none */
    const char *digest; /* of a constant that was parsed from a dump without its data; else NULL */
    /* Symbolic elements of a small integer tensor (rank 0 or 1), for shape arithmetic; NULL when
     * not known. Entries may be NULL. Filled by infer. */
    const ir_dim *const *elements;
    int64_t n_elements;
    ir_use *uses;                 /* head of the list */
    int slot;                     /* number of its memory, by `plan`; -1: none */
    int id;                       /* dense number of the value within its module, by the run time */
    const struct ir_value *alias; /* by `plan`: a value that is read in the memory of this one */
};

struct ir_node {
    const ir_schema *op;
    const char *name; /* from the file; may be NULL. For messages only */
    ir_graph *graph;
    ir_node *prev, *next;
    int n_inputs;
    ir_use *inputs;
    int n_outputs;
    ir_value **outputs; /* an entry is NULL when that output is not wanted */
    ir_attr *attrs;     /* one for each row of op->attrs */
    const char *kernel; /* name of the kernel that claimed it ("ref.generic"); NULL before claim */
    const void *claim;  /* that kernel's row, for the run time; not printed */
    const void *bound;  /* what its bind made of the node; NULL before, or when there is none */
    /* The node whose kernel computes this one too; NULL: it runs itself. The nodes of such a group
     * whose results others read lie side by side, the root last. */
    ir_node *fused_into;
    unsigned mark; /* scratch of passes */
};

struct ir_graph {
    ir_module *module;
    ir_node *parent; /* node that holds this graph as an attribute; NULL for the main graph */
    const char *name;
    int n_inputs;
    ir_value **inputs;
    ir_node *first, *last;     /* nodes but ret */
    ir_node *ret;              /* op "return"; its inputs are the graph's results */
    const char **result_names; /* names of the results in the file, ret->n_inputs */
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
    /* Called after constant data were copied to another form: those of a mapped file need not stay
     * in memory. NULL: nobody wants to know. */
    void (*copied)(void *arg, const void *data, size_t bytes);
    void *copied_arg;
};

/* The schema of a graph's return node ("results*"). */
extern const ir_schema ir_return_schema;

/* All constructors return NULL when memory is short. */
ir_module *ir_module_create(gqac_arena *arena, const char *source);
ir_graph *ir_graph_create(ir_module *module, const char *name);

/* Adds an input. A name that is taken gets a suffix ".1", ".2", ... (see ir_value.name). */
ir_value *ir_graph_add_input(ir_graph *graph, const char *name, ir_type type);
void ir_graph_remove_input(ir_graph *graph, int index); /* it must have no uses */
/* The tensor's header is copied, its data is not. */
ir_value *ir_graph_add_constant(ir_graph *graph, const char *name, const gqac_tensor *tensor);
/* Moves all constants of a graph to another graph of the module, which encloses it or takes its
 * nodes. False: out of memory. */
bool ir_graph_move_constants(ir_graph *from, ir_graph *to);
/* Removes unused constants; returns their number. */
int ir_graph_sweep_constants(ir_graph *graph);
/* Constants made from numbers, copied to the arena. */
ir_value *ir_const_i64(ir_graph *graph, const char *name, int64_t value); /* rank 0 */
ir_value *ir_const_i64s(ir_graph *graph, const char *name, int64_t n, const int64_t *values);
ir_value *ir_const_f32(ir_graph *graph, const char *name, float value); /* rank 0 */
/* Replaces the results; values may repeat. Names as given; NULL names keep value names. */
bool ir_graph_set_results(ir_graph *graph, int n, ir_value *const *values,
                          const char *const *names);

/* Short of memory, the rank becomes -1 and ir_dims_failed(module->dims) true. */
ir_type ir_type_make(ir_module *module, gqac_dtype dtype, int rank, const ir_dim *const *dims);
ir_type ir_type_of_tensor(ir_module *module, const gqac_tensor *tensor);
ir_type ir_type_unknown(void);
bool ir_type_equal(const ir_type *a, const ir_type *b);

/* A detached node with attribute defaults; inputs are linked as uses. n_outputs values are made,
 * named after `name` (or the op) unless out_names gives names; an out_names entry "" makes that
 * output NULL. */
ir_node *ir_node_create(ir_graph *graph, const ir_schema *op, const char *name, int n_inputs,
                        ir_value *const *inputs, int n_outputs, const char *const *out_names);
/* Gives each output that the schema has always, but that was left out, a value: code after
 * `import` may look at its type. False when memory is short. */
bool ir_node_complete(ir_node *node);
/* Links a node in before `before`, or at the end when it is NULL. */
void ir_node_insert(ir_node *node, ir_node *before);
/* Unlinks from the list and drops its uses, those of nested graphs included; its outputs must have
 * no uses. */
void ir_node_remove(ir_node *node);
/* To a place in the same or another graph of the module, with its uses and nested graphs. */
void ir_node_move(ir_node *node, ir_graph *graph, ir_node *before);
void ir_node_set_input(ir_node *node, int index, ir_value *value); /* value may be NULL */
/* Replaces all inputs, also by another number of them; false when memory is short (then nothing
 * changed). */
bool ir_node_set_inputs(ir_node *node, int n, ir_value *const *values);
/* Every use of `old` (in all graphs) becomes a use of `by`. A graph result keeps its name. */
void ir_value_replace(ir_value *old, ir_value *by);
bool ir_value_unused(const ir_value *value);
/* Gives a value another name, with a suffix when it is taken; the old one stays taken. */
bool ir_value_rename(ir_value *value, const char *name);
/* Gives a value exactly this name; a value that has it gets another one. */
bool ir_value_take_name(ir_value *value, const char *name);
/* "com.microsoft.MatMulNBits"; ops of ONNX and of gqac without a domain. Returns `buffer`. */
const char *ir_node_op_name(const ir_node *node, char *buffer, size_t size);
/* Adds "node 'name' (op)" to the place of the diag. */
void ir_node_place(const ir_node *node, gqac_diag *diag);
/* The node whose kernel computes this one: itself, or what it is fused into. */
ir_node *ir_node_root(const ir_node *node);
/* The node of `graph` that is this one or holds it in a nested graph. */
ir_node *ir_node_within(const ir_node *node, const ir_graph *graph);
/* Is the value read by another kernel than the one that makes it? */
bool ir_value_leaves(const ir_value *value);
ir_value *ir_node_input(const ir_node *node, int index);  /* NULL when absent or out of range */
ir_value *ir_node_output(const ir_node *node, int index); /* likewise */

/* Same values of one kind; both set or both not. */
bool ir_attr_equal(ir_attr_kind kind, const ir_attr *a, const ir_attr *b);
/* Attribute by name; the schema must have it. */
const ir_attr *ir_attr_get(const ir_node *node, const char *name);
int64_t ir_attr_int(const ir_node *node, const char *name);
float ir_attr_float(const ir_node *node, const char *name);
bool ir_attr_is_set(const ir_node *node, const char *name);
ir_attr *ir_attr_edit(ir_node *node, const char *name);
void ir_attr_set_int(ir_node *node, const char *name, int64_t value);
void ir_attr_set_float(ir_node *node, const char *name, float value);
void ir_attr_set_dtype(ir_node *node, const char *name, gqac_dtype dtype);
void ir_attr_set_graph(ir_node *node, const char *name, ir_graph *graph); /* sets graph->parent */
/* Lists and text are copied, of a tensor the header; false when memory is short. */
bool ir_attr_set_ints(ir_node *node, const char *name, size_t n, const int64_t *values);
bool ir_attr_set_floats(ir_node *node, const char *name, size_t n, const float *values);
bool ir_attr_set_strings(ir_node *node, const char *name, size_t n, const char *const *values);
bool ir_attr_set_string(ir_node *node, const char *name, const char *text);
bool ir_attr_set_tensor(ir_node *node, const char *name, const gqac_tensor *tensor);

/* Calls f for every node of the graph and of the graphs inside it, outer before inner, in order;
 * not for return nodes, but for them too (after the nodes of their graph) in the _all form. f may
 * remove the node it is given and insert nodes before it. */
typedef gqac_status ir_node_visitor(void *arg, ir_node *node);
gqac_status ir_graph_walk(ir_graph *graph, ir_node_visitor *f, void *arg);
gqac_status ir_graph_walk_all(ir_graph *graph, ir_node_visitor *f, void *arg);
/* Bytes of all constants of the graph. */
int64_t ir_constant_bytes(const ir_graph *graph);

/* How many inputs/outputs the schema has at least and at most (at most INT_MAX when variadic), and
 * the name of one ("past_key"). */
void ir_schema_arity(const char *list, int *least, int *most);
void ir_schema_name(const char *list, int index, char *name, size_t size);
int ir_schema_index(const char *list, const char *name); /* -1: there is no such name */
typedef enum ir_arity { IR_NONE, IR_REQUIRED, IR_OPTIONAL, IR_VARIADIC } ir_arity;
ir_arity ir_schema_kind(const char *list, int index); /* IR_NONE: out of range */

/* Stores the elements of a constant i32 or i64 tensor, and their number in *count. False: it is no
 * such constant, or has more than `max` elements. */
bool ir_const_ints(const ir_value *value, int64_t max, int64_t *out, int64_t *count);

/* ---- builder ------------------------------------------------------------- */

/* Straight-line construction before a place in a graph. The first failure sticks: later calls do
 * nothing and return NULL, and callers read `status` once at the end. */
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
/* Like ir_node_output, and the ir_attr_set_* family; NULL nodes are passed over. */
ir_value *ir_build_result(ir_builder *b, ir_node *node, int index);

/* ---- verify, print, parse ------------------------------------------------ */

/* Checks every invariant above: order, use lists, arity, required attributes, unique names, types
 * of constants, tokens used once. INTERNAL with the place when one is broken. */
gqac_status ir_verify(const ir_module *module, gqac_diag *diag);

/* Finds the schema an op is printed under; version 0 means any. */
typedef const ir_schema *ir_schema_lookup(const char *domain, const char *name);

/* Text of a module (docs/ir.md). Constants print in the order of their graph, at its head, those of
 * at most 16 elements in decimal. Larger ones print as a digest (the first 16 hex digits of the
 * SHA-256 of their bytes), or in full as hex. Text with digests parses too, and prints again to the
 * same bytes, but such a constant has no data (constant->data NULL, value->digest set). */
bool ir_prints_digest(const ir_value *constant); /* more than 16 elements, or no data */
typedef enum ir_print_mode {
    IR_PRINT_DIGEST,
    IR_PRINT_FULL,
    IR_PRINT_SAMPLE, /* for a fingerprint: digests of at most 1 KiB spread over the bytes */
} ir_print_mode;
void ir_print(gqac_str *out, const ir_module *module, ir_print_mode mode);
/* Parses what ir_print writes into a new module. INVALID_MODEL with line and column on an error. */
gqac_status ir_parse(gqac_arena *arena, const char *text, ir_schema_lookup *schemas,
                     ir_module **module, gqac_diag *diag);

#endif
