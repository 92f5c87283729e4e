/* Finds the graph inputs that are pasts, and the graph results that are their presents. Schemas
 * determine them: an operand "past_key" belongs to the output "present_key" of the same node,
 * whatever the op. Attention written out in simple ops has no such node; then names decide
 * (past_key_values.0.key, present.0.key). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/rewrite.h"

typedef struct named_result {
    const char *name;
    int index;
} named_result;

typedef struct finder {
    const ir_graph *graph;
    named_result *results; /* by name */
    int n_results;
} finder;

static int compare_results(const void *a, const void *b) {
    const named_result *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : x->index - y->index;
}

/* The index of a value among the results of the graph; -1: it is not a result. */
static int result_of(const ir_graph *graph, const ir_value *value) {
    int least = -1;
    for (const ir_use *use = value ? value->uses : NULL; use; use = use->next) {
        const int index = use->node == graph->ret ? (int)(use - graph->ret->inputs) : -1;
        if (index >= 0 && (least < 0 || index < least))
            least = index;
    }
    return least;
}

/* The schema's name of the operand `use`. */
static void operand_name(const ir_use *use, char *name, size_t size) {
    ir_schema_name(use->node->op->inputs, (int)(use - use->node->inputs), name, size);
}

/* True for a state of all tokens, which has no row for each. */
static bool is_state(const ir_value *input) {
    char name[64] = "";
    if (input->uses)
        operand_name(input->uses, name, sizeof name);
    return strcmp(name, "past_state") == 0;
}

ir_value *pass_present_of(const ir_use *past) {
    char name[64], present[64 + sizeof "present"];
    operand_name(past, name, sizeof name);
    if (strncmp(name, "past", 4) != 0)
        return NULL;
    snprintf(present, sizeof present, "present%s", name + 4);
    return ir_node_output(past->node, ir_schema_index(past->node->op->outputs, present));
}

static int by_schema(const finder *f, const ir_value *input) {
    int least = -1;
    for (const ir_use *use = input->uses; use; use = use->next) {
        const int index = result_of(f->graph, pass_present_of(use));
        if (index >= 0 && (least < 0 || index < least))
            least = index;
    }
    return least;
}

/* The result "present" + `rest`; -1: there is none. */
static int named(const finder *f, const char *rest) {
    char name[256];
    if (!rest || strlen(rest) > sizeof name - 16)
        return -1;
    snprintf(name, sizeof name, "present%s", rest);
    int low = 0, high = f->n_results;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (strcmp(f->results[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < f->n_results && strcmp(f->results[low].name, name) == 0 ? f->results[low].index
                                                                         : -1;
}

/* The result present.0.key of past_key_values.0.key, and present_0 of past_0. */
static int by_name(const finder *f, const ir_value *input) {
    if (!pass_is_past(input))
        return -1;
    const int at = named(f, strchr(input->name, '.'));
    return at < 0 ? named(f, input->name + strlen("past")) : at;
}

/* Dim `axis`, counted from the end, of the past or, if that is unknown, of the present; 0: both are
 * unknown. */
static int64_t dim_of(const ir_value *past, const ir_value *present, int axis) {
    int64_t dim;
    const ir_type *types[] = {&past->type, &present->type};
    for (int i = 0; i < 2; i++)
        if ((types[i]->rank == 4 || types[i]->rank == 5) &&
            ir_dim_is_const(types[i]->dims[types[i]->rank - axis], &dim))
            return dim;
    return 0;
}

bool pass_is_halved(const ir_value *both) {
    bool halved = false;
    for (const ir_use *use = both->uses; use; use = use->next) {
        const bool part = op_is(use->node, "", "Split") || op_is(use->node, "", "Slice");
        if (!part && use->node != both->graph->ret && !op_is(use->node, "", "Shape"))
            return false;
        halved = halved || part;
    }
    return halved;
}

bool pass_is_second(const ir_node *node, int i) {
    int64_t start, n;
    if (op_is(node, "", "Split"))
        return i > 0;
    return ir_const_ints(ir_node_input(node, 1), 1, &start, &n) && n == 1 && start != 0;
}

/* True for the name of a past with keys and values side by side (GPT-BigCode of Optimum). */
static bool names_both(const ir_value *past) {
    const char *part = strrchr(past->name, '.');
    return part && !strcmp(part, ".key_value");
}

/* Elements of a key and of a value in a present [B,T,.] or [B,H,T,.] of both; 0: unknown. */
static void find_sizes(const ir_value *present, int64_t sizes[2]) {
    const int rank = present->type.rank;
    sizes[0] = sizes[1] = 0;
    for (const ir_use *use = present->uses; use; use = use->next)
        for (int i = 0; i < use->node->n_outputs && use->node != present->graph->ret; i++) {
            const ir_value *part = use->node->outputs[i];
            int64_t size;
            if (part && rank > 1 && part->type.rank == rank && /* not that of a Shape */
                ir_dim_is_const(part->type.dims[rank - 1], &size))
                sizes[pass_is_second(use->node, i)] = size;
        }
}

/* A past [2,B,H,P,D], or one whose present is split in keys and values: two pairs, named as
 * `stateful` names them. */
static bool add_packed(kv_slot whole, const ir_value *present, gqac_arena *arena, kv_slot *slots) {
    static const char *const parts[] = {"key", "value"};
    int64_t sizes[2] = {whole.head_size, whole.head_size};
    if (present->type.rank != 5)
        find_sizes(present, sizes);
    for (int i = 0; i < 2; i++) {
        slots[i] = whole;
        slots[i].head_size = sizes[i];
        slots[i].heads = present->type.rank == 3 ? 1 : whole.heads;
        slots[i].past = gqac_arena_printf(arena, "%s.%s", whole.past, parts[i]);
        slots[i].present = gqac_arena_printf(arena, "%s.%s", whole.present, parts[i]);
        if (!slots[i].past || !slots[i].present)
            return false;
    }
    return true;
}

/* Caches have 4 axes; those of keys and values 5; some of keys or of values, which their names tell
 * from convolutions, have 3. */
static bool may_be_cache(const ir_value *past) {
    const char *part = strrchr(past->name, '.');
    if (past->type.rank == 3)
        return part && (!strcmp(part, ".key") || !strcmp(part, ".value") || names_both(past));
    return past->type.rank < 0 || past->type.rank == 4 || past->type.rank == 5;
}

static gqac_status list_results(finder *f, gqac_arena *arena) {
    f->n_results = f->graph->ret->n_inputs;
    f->results = GQAC_ARENA_ARRAY(arena, named_result, (size_t)f->n_results + 1);
    if (!f->results)
        return GQAC_NO_MEMORY;
    for (int i = 0; i < f->n_results; i++)
        f->results[i] = (named_result){f->graph->result_names[i], i};
    if (f->n_results)
        qsort(f->results, (size_t)f->n_results, sizeof *f->results, compare_results);
    return GQAC_OK;
}

gqac_status pass_find_kv_pairs(const ir_module *module, gqac_arena *arena, kv_slot **slots,
                               int *n) {
    finder f = {.graph = module->graph};
    const int n_inputs = f.graph->n_inputs;
    *slots = GQAC_ARENA_ARRAY(arena, kv_slot, 2 * (size_t)n_inputs + 1);
    *n = 0;
    if (!*slots)
        return GQAC_NO_MEMORY;
    GQAC_TRY(list_results(&f, arena));
    for (int i = 0; i < n_inputs; i++) {
        const ir_value *past = f.graph->inputs[i];
        if (!may_be_cache(past))
            continue;
        int at = past->type.rank == 3 ? -1 : by_schema(&f, past);
        at = at < 0 ? by_name(&f, past) : at;
        if (at < 0)
            continue;
        const ir_value *present = f.graph->ret->inputs[at].value;
        const kv_slot slot = {.past = past->name,
                              .present = f.graph->result_names[at],
                              .heads = dim_of(past, present, 3),
                              .head_size = dim_of(past, present, 1),
                              .dtype = past->type.dtype,
                              .rows = is_state(past) ? dim_of(past, present, 2) : 0};
        if (past->type.rank != 5 && !(names_both(past) && pass_is_halved(present))) {
            (*slots)[(*n)++] = slot;
            continue;
        }
        if (!add_packed(slot, present, arena, *slots + *n))
            return GQAC_NO_MEMORY;
        *n += 2;
    }
    return GQAC_OK;
}
