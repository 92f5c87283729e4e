/* gqac_run_shapes and gqac_run_valid_rows: what a stateless run would return, without a run.
 *
 * The nodes of the program are copied one by one into another module, in which inputs have constant
 * dimensions, and small integer inputs are constants. The types of each node are inferred; a small
 * integer result is computed by the op's own eval, so that lengths that the graph computes are
 * known as in a run. An If with a known condition is replaced by its branch. Types that the file
 * declares are ignored: only what follows from the inputs counts. */
#include <string.h>

#include "base/alloc.h"
#include "base/float_mode.h"
#include "ops/attention.h"
#include "ops/shared.h"
#include "passes/rewrite.h"
#include "runtime/context.h"

enum {
    MOST = 64 << 10,       /* maximum bytes of an integer tensor whose values are read */
    MOST_OTHER = 512,      /* the same for floats, in which lengths are sometimes computed */
    MOST_OPERAND = 1 << 20 /* of a constant from which a small tensor is computed */
};

typedef struct tracer {
    ir_module *module;
    ir_value **values; /* by value number in the program; NULL: not copied yet */
    gqac_diag *diag;
} tracer;

static bool is_small(gqac_dtype dtype, size_t bytes) {
    return bytes <= (OP_IN(OP_INTS | OP_BIT(BOOL), dtype) ? MOST : MOST_OTHER);
}

static gqac_status know(tracer *t, const ir_value *old, const gqac_tensor *tensor) {
    t->values[old->id] = ir_graph_add_constant(t->module->graph, old->name, tensor);
    return t->values[old->id] ? GQAC_OK : gqac_diag_oom(t->diag, "shapes");
}

/* Finds the copy of a value of the program; NULL for NULL. */
static gqac_status find(tracer *t, const ir_value *old, ir_value **value) {
    *value = NULL;
    if (!old)
        return GQAC_OK;
    if (!t->values[old->id] && old->constant)
        GQAC_TRY(know(t, old, old->constant));
    *value = t->values[old->id];
    if (!*value)
        GQAC_FAIL(t->diag, GQAC_INTERNAL, "value '%s' is read before it is computed", old->name);
    return GQAC_OK;
}

/* ---- copies -------------------------------------------------------------- */

static gqac_status copy_node(tracer *t, ir_graph *graph, const ir_node *old, ir_node **node);

/* Copies a nested graph, whose types are inferred with those of the node that holds it. */
static gqac_status copy_graph(tracer *t, const ir_graph *old, ir_graph **graph) {
    ir_graph *g = ir_graph_create(t->module, old->name);
    const int n = old->ret->n_inputs;
    ir_value **results = GQAC_ARENA_ARRAY(t->module->arena, ir_value *, (size_t)n + 1);
    if (!g || !results)
        return gqac_diag_oom(t->diag, "shapes");
    for (int i = 0; i < old->n_inputs; i++) {
        const ir_value *input = old->inputs[i];
        t->values[input->id] = ir_graph_add_input(g, input->name, ir_type_unknown());
        if (!t->values[input->id])
            return gqac_diag_oom(t->diag, "shapes");
    }
    for (const ir_node *node = old->first; node; node = node->next) {
        ir_node *copy;
        GQAC_TRY(copy_node(t, g, node, &copy));
    }
    for (int i = 0; i < n; i++)
        GQAC_TRY(find(t, old->ret->inputs[i].value, &results[i]));
    *graph = g;
    return ir_graph_set_results(g, n, results, NULL) ? GQAC_OK : gqac_diag_oom(t->diag, "shapes");
}

static gqac_status copy_attrs(tracer *t, const ir_node *old, ir_node *node) {
    for (const ir_attr_spec *spec = old->op->attrs; spec && spec->name; spec++) {
        const ir_attr *attr = &old->attrs[spec - old->op->attrs];
        node->attrs[spec - old->op->attrs] = *attr;
        if (!attr->graph)
            continue;
        ir_graph *graph = NULL;
        GQAC_TRY(copy_graph(t, attr->graph, &graph));
        ir_attr_set_graph(node, spec->name, graph);
    }
    return GQAC_OK;
}

static gqac_status copy_node(tracer *t, ir_graph *graph, const ir_node *old, ir_node **node) {
    gqac_arena *arena = t->module->arena;
    ir_value **in = GQAC_ARENA_ARRAY(arena, ir_value *, (size_t)old->n_inputs + 1);
    const char **names = GQAC_ARENA_ARRAY(arena, const char *, (size_t)old->n_outputs + 1);
    if (!in || !names)
        return gqac_diag_oom(t->diag, "shapes");
    for (int i = 0; i < old->n_inputs; i++)
        GQAC_TRY(find(t, old->inputs[i].value, &in[i]));
    for (int i = 0; i < old->n_outputs; i++)
        names[i] = old->outputs[i] ? old->outputs[i]->name : "";
    *node = ir_node_create(graph, old->op, old->name, old->n_inputs, in, old->n_outputs, names);
    if (!*node)
        return gqac_diag_oom(t->diag, "shapes");
    ir_node_insert(*node, NULL);
    GQAC_TRY(copy_attrs(t, old, *node));
    for (int i = 0; i < old->n_outputs; i++)
        if (old->outputs[i])
            t->values[old->outputs[i]->id] = (*node)->outputs[i];
    return GQAC_OK;
}

/* ---- values -------------------------------------------------------------- */

/* Makes a tensor of the elements that infer found; false: some are not known. */
static bool take_elements(const ir_value *value, gqac_arena *arena, gqac_tensor *tensor) {
    int64_t number;
    const ir_type *type = &value->type;
    if (!value->elements || !OP_IN(OP_INTS | OP_BIT(BOOL), type->dtype) ||
        type->dtype == GQAC_U64 || type->rank < 0 || type->rank > 1 ||
        (type->rank == 0 && value->n_elements != 1))
        return false;
    *tensor = (gqac_tensor){.dtype = type->dtype, .rank = type->rank, .dims = {value->n_elements}};
    tensor->data = gqac_arena_calloc(arena, 1, gqac_tensor_bytes(tensor) + 1);
    for (int64_t i = 0; tensor->data && i < value->n_elements; i++) {
        if (!ir_dim_is_const(value->elements[i], &number))
            return false;
        op_put_i64(tensor, i, number);
        if (op_get_i64(tensor, i) != number)
            return false;
    }
    return tensor->data != NULL;
}

/* Sets *dims to the dimensions of a type; false: not all are known. */
static bool known_shape(const ir_type *type, int64_t dims[GQAC_MAX_RANK]) {
    bool known = type->rank >= 0 && type->dtype != GQAC_NONE;
    for (int d = 0; known && d < type->rank; d++)
        known = ir_dim_is_const(type->dims[d], &dims[d]);
    return known;
}

/* True if eval reads only the shape of input i. The set has no bits for inputs from the 32nd on,
 * which ops of any number of inputs have. */
static bool reads_only_shape(const ir_node *node, int i) {
    return i < 32 && (node->op->shapes_only >> i & 1);
}

/* An operand that is known, for an eval that happens here; without its elements if eval does not
 * read them and they are not known. NULL: out of memory. */
static const gqac_tensor *operand(const ir_node *node, int i, gqac_arena *arena) {
    const ir_value *input = node->inputs[i].value;
    const gqac_tensor *constant = pass_constant(input);
    gqac_tensor shape = {.dtype = input->type.dtype, .rank = input->type.rank};
    if (constant || !reads_only_shape(node, i) || !known_shape(&input->type, shape.dims))
        return constant;
    return gqac_arena_copy(arena, &shape, sizeof shape);
}

static bool is_known(const ir_node *node, int i) {
    const ir_value *input = node->inputs[i].value;
    const gqac_tensor *constant = input ? pass_constant(input) : NULL;
    int64_t dims[GQAC_MAX_RANK];
    if (!input || (reads_only_shape(node, i) && known_shape(&input->type, dims)))
        return true;
    return constant && gqac_tensor_bytes(constant) <= MOST_OPERAND;
}

/* True if the node may be computed here; *most is then the maximum of bytes for its results. */
static bool is_computed(const ir_node *node, size_t *most) {
    *most = 0;
    if (node->op->flags & (IR_OP_EFFECT | IR_OP_NO_FOLD | IR_OP_RETURN) || !op_of(node)->eval ||
        ir_holds_graphs(node))
        return false;
    for (int i = 0; i < node->n_inputs; i++)
        if (!is_known(node, i))
            return false;
    for (int i = 0; i < node->n_outputs; i++) {
        const ir_type *type = node->outputs[i] ? &node->outputs[i]->type : NULL;
        int64_t dims[GQAC_MAX_RANK];
        size_t bytes = 0;
        if (type && known_shape(type, dims) &&
            gqac_shape_bytes(type->dtype, type->rank, dims, &bytes, NULL) != GQAC_OK)
            return false;
        if (type && !is_small(type->dtype, bytes))
            return false;
        *most += MOST;
    }
    return true;
}

/* Computes the results of a node whose operands are known. If that fails, it fails in a run too or
 * is never reached there, so the shapes stay what infer found. */
static gqac_status compute(tracer *t, const ir_node *old, const ir_node *node, size_t most) {
    const size_t operands = (size_t)node->n_inputs * (sizeof(gqac_tensor *) + sizeof(gqac_tensor)) +
                            (size_t)node->n_outputs * sizeof(gqac_tensor);
    gqac_arena *scratch = gqac_arena_create(2 * most + operands + MOST_OPERAND);
    const gqac_tensor **in =
        scratch ? GQAC_ARENA_ARRAY(scratch, const gqac_tensor *, (size_t)node->n_inputs + 1) : NULL;
    gqac_tensor *out =
        in ? GQAC_ARENA_ARRAY(scratch, gqac_tensor, (size_t)node->n_outputs + 1) : NULL;
    gqac_status status = out ? GQAC_OK : gqac_diag_oom(t->diag, "shapes");
    for (int i = 0; status == GQAC_OK && i < node->n_inputs; i++) {
        in[i] = node->inputs[i].value ? operand(node, i, scratch) : NULL;
        if (!in[i] && node->inputs[i].value)
            status = gqac_diag_oom(t->diag, "shapes");
    }
    const bool done = status == GQAC_OK && op_eval(node, in, out, scratch, NULL) == GQAC_OK;
    for (int i = 0; done && status == GQAC_OK && i < node->n_outputs; i++) {
        const size_t bytes = gqac_tensor_bytes(&out[i]);
        if (!node->outputs[i] || !is_small(out[i].dtype, bytes))
            continue;
        out[i].data = gqac_arena_copy(t->module->arena, out[i].data, bytes);
        status = out[i].data ? know(t, old->outputs[i], &out[i]) : gqac_diag_oom(t->diag, "shapes");
    }
    gqac_arena_free(scratch);
    return status;
}

static gqac_status learn(tracer *t, const ir_node *old, const ir_node *node) {
    bool all = true;
    for (int i = 0; i < node->n_outputs; i++) {
        gqac_tensor tensor;
        if (node->outputs[i] && take_elements(node->outputs[i], t->module->arena, &tensor))
            GQAC_TRY(know(t, old->outputs[i], &tensor));
        else
            all = all && !node->outputs[i];
    }
    size_t most;
    return !all && is_computed(node, &most) ? compute(t, old, node, most) : GQAC_OK;
}

/* ---- the graph ----------------------------------------------------------- */

static gqac_status trace(tracer *t, const ir_graph *graph);

/* Copies the branch of an If whose condition is known in place of the If. */
static gqac_status trace_branch(tracer *t, const ir_node *old, const gqac_tensor *cond) {
    const bool taken = *(const unsigned char *)cond->data != 0;
    const ir_graph *branch = ir_attr_get(old, taken ? "then_branch" : "else_branch")->graph;
    if (branch->ret->n_inputs < old->n_outputs)
        return op_fail(old, t->diag, GQAC_INVALID_MODEL,
                       "the branch has fewer results than the If has outputs");
    GQAC_TRY(trace(t, branch));
    for (int i = 0; i < old->n_outputs; i++)
        if (old->outputs[i])
            GQAC_TRY(find(t, branch->ret->inputs[i].value, &t->values[old->outputs[i]->id]));
    return GQAC_OK;
}

static gqac_status trace(tracer *t, const ir_graph *graph) {
    for (const ir_node *old = graph->first; old; old = old->next) {
        if (op_is(old, "", "If")) {
            ir_value *cond;
            GQAC_TRY(find(t, ir_node_input(old, 0), &cond));
            const gqac_tensor *tensor = cond ? pass_constant(cond) : NULL;
            if (tensor && tensor->dtype == GQAC_BOOL && gqac_tensor_count(tensor) == 1) {
                GQAC_TRY(trace_branch(t, old, tensor));
                continue;
            }
        }
        ir_node *node;
        GQAC_TRY(copy_node(t, t->module->graph, old, &node));
        GQAC_TRY(pass_infer_node(node, t->diag));
        GQAC_TRY(learn(t, old, node));
    }
    return GQAC_OK;
}

static gqac_status add_inputs(tracer *t, const ir_graph *graph, const gqac_tensor *inputs) {
    for (int i = 0; i < graph->n_inputs; i++) {
        const ir_value *old = graph->inputs[i];
        const gqac_tensor *given = &inputs[i];
        if (given->data && is_small(given->dtype, gqac_tensor_bytes(given))) {
            GQAC_TRY(know(t, old, given));
            continue;
        }
        const ir_type type = ir_type_of_tensor(t->module, given);
        t->values[old->id] = ir_graph_add_input(t->module->graph, old->name, type);
        if (!t->values[old->id])
            return gqac_diag_oom(t->diag, "shapes");
    }
    return GQAC_OK;
}

/* What is wanted of output `value`, the i-th that the caller named. */
typedef void want(void *arg, int i, const ir_value *value);

static void read_shape(void *arg, int i, const ir_value *value) {
    gqac_tensor *output = (gqac_tensor *)arg + i;
    *output = (gqac_tensor){.dtype = value->type.dtype, .rank = value->type.rank};
    for (int d = 0; d < value->type.rank; d++)
        if (!ir_dim_is_const(value->type.dims[d], &output->dims[d]))
            output->dims[d] = -1;
}

typedef struct valid {
    int64_t batch, *rows;
} valid;

/* Both ops that make a present have these operands. */
enum { PAST_LEN = 2, NEW_LEN = 3 };

static int64_t length_of(const ir_node *node, int operand, int64_t b) {
    const ir_value *value = ir_node_input(node, operand);
    const gqac_tensor *lengths = value ? pass_constant(value) : NULL;
    return lengths && b < gqac_tensor_count(lengths) ? op_get_i64(lengths, b) : -1;
}

static void read_valid(void *arg, int i, const ir_value *value) {
    const valid *v = arg;
    const ir_node *node = value->def;
    const bool windowed = node && op_is(node, "gqac", "window_present");
    const bool present = windowed || (node && op_is(node, "gqac", "concat_past_present"));
    for (int64_t b = 0; b < v->batch; b++) {
        const int64_t past = present ? length_of(node, PAST_LEN, b) : -1;
        const int64_t fresh = present ? length_of(node, NEW_LEN, b) : -1;
        int64_t length = past < 0 || fresh < 0 ? -1 : past + fresh, capacity;
        if (windowed && length >= 0)
            length = ir_dim_is_const(value->type.dims[2], &capacity)
                         ? attention_resident(capacity, ir_attr_int(node, "window"), length)
                         : -1;
        v->rows[i * v->batch + b] = length;
    }
}

typedef struct request {
    const gqac_context *context;
    int n_outputs;
    const char *const *output_names;
    want *read;
    void *arg;
} request;

static gqac_status trace_run(const request *r, const gqac_tensor *inputs, gqac_arena *arena,
                             gqac_diag *diag) {
    const gqac_program *p = r->context->program;
    const ir_graph *graph = p->module->graph;
    tracer t = {.module = ir_module_create(arena, p->module->source),
                .values = GQAC_ARENA_ARRAY(arena, ir_value *, (size_t)p->n_values + 1),
                .diag = diag};
    if (!t.module || !t.values)
        return gqac_diag_oom(diag, "shapes");
    t.module->graph = ir_graph_create(t.module, graph->name);
    if (!t.module->graph)
        return gqac_diag_oom(diag, "shapes");
    GQAC_TRY(add_inputs(&t, graph, inputs));
    GQAC_TRY(trace(&t, graph));
    for (int i = 0, at; i < r->n_outputs; i++) {
        ir_value *value;
        const char *name = r->output_names ? r->output_names[i] : NULL;
        GQAC_TRY(context_find_output(r->context, name, i, &at, diag));
        GQAC_TRY(find(&t, graph->ret->inputs[at].value, &value));
        r->read(r->arg, i, value);
    }
    return ir_dims_failed(t.module->dims) ? gqac_diag_oom(diag, "shapes") : GQAC_OK;
}

/* Runs in the floating-point mode of a run, because shapes may depend on values that are computed
 * from floats. */
static gqac_status trace_in_mode(const request *r, const gqac_tensor *in, gqac_arena *arena,
                                 gqac_diag *diag) {
    gqac_float_mode callers;
    GQAC_TRY(gqac_float_mode_take(&callers, diag));
    gqac_status status = trace_run(r, in, arena, diag);
    gqac_float_mode_give_back(&callers);
    if (status == GQAC_INVALID_MODEL) { /* the model is valid, these inputs are not */
        status = GQAC_INVALID_INPUT;
        if (diag)
            diag->status = status;
    }
    return status;
}

static gqac_status answer(const request *r, int n_inputs, const char *const *input_names,
                          const gqac_tensor *inputs, gqac_diag *diag) {
    gqac_arena *arena = gqac_arena_create(0);
    const size_t n = (size_t)r->context->program->n_inputs;
    gqac_tensor *in = arena ? GQAC_ARENA_ARRAY(arena, gqac_tensor, n + 1) : NULL;
    gqac_status status = in ? GQAC_OK : gqac_diag_oom(diag, "shapes");
    if (status == GQAC_OK)
        status = context_take_inputs(r->context, n_inputs, input_names, inputs, false, in, diag);
    if (status == GQAC_OK)
        status = trace_in_mode(r, in, arena, diag);
    gqac_arena_free(arena);
    return status;
}

gqac_status gqac_run_shapes(const gqac_context *context, int n_inputs,
                            const char *const *input_names, const gqac_tensor *inputs,
                            int n_outputs, const char *const *output_names, gqac_tensor *outputs,
                            gqac_diag *diag) {
    const request r = {context, n_outputs, output_names, read_shape, outputs};
    return answer(&r, n_inputs, input_names, inputs, diag);
}

gqac_status gqac_run_valid_rows(const gqac_context *context, int n_inputs,
                                const char *const *input_names, const gqac_tensor *inputs,
                                int n_outputs, const char *const *output_names, int64_t batch,
                                int64_t *rows, gqac_diag *diag) {
    valid v = {.batch = batch, .rows = rows};
    const request r = {context, n_outputs, output_names, read_valid, &v};
    return answer(&r, n_inputs, input_names, inputs, diag);
}
