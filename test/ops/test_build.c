/* OP_BUILD: how a call uses its inputs, results and attributes, and that the first failure is
 * kept. */
#include "ops/build.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "../unit.h"

enum { INPUTS = 6 };

typedef struct graph {
    gqac_arena *arena;
    ir_module *module;
    ir_value *x[INPUTS];
    gqac_diag diag;
    ir_builder b;
} graph;

/* A budget of 0 means no limit. */
static void open_graph(graph *g, size_t budget) {
    memset(g, 0, sizeof *g);
    g->arena = gqac_arena_create(budget);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g->arena);
    g->module = ir_module_create(g->arena, "test");
    CU_ASSERT_PTR_NOT_NULL_FATAL(g->module);
    g->module->graph = ir_graph_create(g->module, "test");
    CU_ASSERT_PTR_NOT_NULL_FATAL(g->module->graph);
    for (int i = 0; i < INPUTS; i++)
        g->x[i] = ir_graph_add_input(g->module->graph, "x", ir_type_unknown());
    CU_ASSERT_PTR_NOT_NULL_FATAL(g->x[INPUTS - 1]);
    g->b = (ir_builder){.graph = g->module->graph, .diag = &g->diag};
}

static void close_graph(graph *g) {
    gqac_arena_free(g->arena);
}

/* ---- what is built ------------------------------------------------------- */

static void inputs(void) {
    graph g;
    open_graph(&g, 0);
    ir_value **x = g.x, *y;
    y = OP_BUILD(&g.b, "rotary", .in = {x[0], x[1], x[2], NULL, NULL, NULL});
    CU_ASSERT_EQUAL(y->def->n_inputs, 3);
    y = OP_BUILD(&g.b, "rotary", .in = {x[0], x[1], x[2], NULL, NULL, x[5]});
    CU_ASSERT_EQUAL_FATAL(y->def->n_inputs, 6);
    CU_ASSERT_PTR_NULL(y->def->inputs[3].value);
    CU_ASSERT_PTR_EQUAL(y->def->inputs[5].value, x[5]);
    y = OP_BUILD(&g.b, "Add", .in = {x[0]}); /* two are required: OP_BUILD does not check this */
    CU_ASSERT_EQUAL(y->def->n_inputs, 2);
    y = OP_BUILD(&g.b, "Sum", .list = {5, x});
    CU_ASSERT_EQUAL(y->def->n_inputs, 5);
    CU_ASSERT_STRING_EQUAL(y->def->op->domain, "");
    y = OP_BUILD(&g.b, "com.microsoft.Gelu", .in = {x[0]});
    CU_ASSERT_STRING_EQUAL(y->def->op->domain, "com.microsoft");
    y = OP_BUILD(&g.b, "softcap", .in = {x[0]}, .floats = {{"cap", 1}});
    CU_ASSERT_STRING_EQUAL(y->def->op->domain, "gqac");
    CU_ASSERT_EQUAL(g.b.status, GQAC_OK);
    close_graph(&g);
}

static void results(void) {
    graph g;
    open_graph(&g, 0);
    ir_value **x = g.x, *lo = NULL, *hi = NULL, *deviation = NULL;
    ir_value *first = OP_BUILD(&g.b, "visible_range", .in = {x[0], x[1], x[2]}, .out = {&lo, &hi});
    CU_ASSERT_PTR_EQUAL_FATAL(first, lo);
    CU_ASSERT_PTR_EQUAL(lo->def->outputs[1], hi);
    CU_ASSERT_EQUAL(lo->def->n_outputs, 2);
    first =
        OP_BUILD(&g.b, "LayerNormalization", .in = {x[0], x[1]}, .out = {NULL, NULL, &deviation});
    CU_ASSERT_PTR_NOT_NULL_FATAL(first);
    CU_ASSERT_EQUAL_FATAL(first->def->n_outputs, 3);
    CU_ASSERT_PTR_NULL(first->def->outputs[1]);
    CU_ASSERT_PTR_EQUAL(first->def->outputs[2], deviation);
    first = OP_BUILD(&g.b, "LayerNormalization", .in = {x[0], x[1]}, .out = {&lo, NULL});
    CU_ASSERT_EQUAL(first->def->n_outputs, 1);
    close_graph(&g);
}

static void attributes(void) {
    static const float odd = 0.1f, tiny = FLT_TRUE_MIN;
    graph g;
    char text[] = "cached";
    int64_t perm[] = {1, 0};
    open_graph(&g, 0);
    ir_value **x = g.x;
    ir_node *n = OP_BUILD(&g.b, "attention", .in = {x[0], x[1], x[2], x[3], x[4]},
                          .floats = {{"scale", odd}, {"softcap", tiny}},
                          .ints = {{"window", INT64_MAX}, {NULL, 5}, {"causal", 0}})
                     ->def;
    CU_ASSERT(ir_attr_float(n, "scale") == odd && ir_attr_float(n, "softcap") == tiny);
    CU_ASSERT(ir_attr_int(n, "window") == INT64_MAX && ir_attr_int(n, "causal") == 0);
    CU_ASSERT_EQUAL(ir_attr_int(n, "qk_stage"), 1); /* its default */
    ir_node *same = OP_BUILD(&g.b, "attention", .in = {x[0], x[1], x[2], x[3], x[4]}, .of = n,
                             .same = {"scale", "window", "causal"})
                        ->def;
    CU_ASSERT(ir_attr_float(same, "scale") == odd && ir_attr_int(same, "window") == INT64_MAX);
    CU_ASSERT(ir_attr_int(same, "causal") == 0 && ir_attr_float(same, "softcap") == 0);
    same = OP_BUILD(&g.b, "attention", .in = {x[0], x[1], x[2], x[3], x[4]}, .of = n,
                    .ints = {{"window", 7}})
               ->def; /* all attributes, but those that are given take precedence */
    CU_ASSERT(ir_attr_float(same, "softcap") == tiny && ir_attr_int(same, "causal") == 0);
    CU_ASSERT_EQUAL(ir_attr_int(same, "window"), 7);
    same = OP_BUILD(&g.b, "kv_state", .text = {{"past", "p"}, {"present", "q"}})->def;
    CU_ASSERT_EQUAL(same->n_inputs, 0);
    CU_ASSERT_STRING_EQUAL(ir_attr_get(same, "present")->s, "q");
    n = OP_BUILD(&g.b, "Add", .in = {x[0], x[1]})->def; /* it has none */
    CU_ASSERT_PTR_NOT_NULL(OP_BUILD(&g.b, "Add", .in = {x[0], x[1]}, .of = n));
    n = OP_BUILD(&g.b, "seqlens_to_past", .in = {x[0], x[1], x[2]}, .text = {{"convention", text}})
            ->def;
    *text = 'x';
    CU_ASSERT_STRING_EQUAL(ir_attr_get(n, "convention")->s, "cached");
    n = op_build_transpose(&g.b, x[0], 2, perm)->def;
    perm[0] = 7;
    CU_ASSERT_EQUAL(ir_attr_get(n, "perm")->count, 2);
    CU_ASSERT_EQUAL(ir_attr_get(n, "perm")->ints[0], 1);
    CU_ASSERT_EQUAL(ir_attr_get(op_build_cast(&g.b, x[0], GQAC_BF16)->def, "to")->dtype, GQAC_BF16);
    n = OP_BUILD(&g.b, "Shape", .in = {x[0]})->def; /* start has a default, end has none */
    same = OP_BUILD(&g.b, "Shape", .in = {x[0]}, .of = n, .same = {"start", "end"})->def;
    CU_ASSERT(ir_attr_is_set(same, "start") && !ir_attr_is_set(same, "end"));
    CU_ASSERT_EQUAL(g.b.status, GQAC_OK);
    close_graph(&g);
}

/* ---- what is refused ----------------------------------------------------- */

/* The builder has failed with these words, and has built nothing; the failure is then cleared. */
static void refused(graph *g, const ir_value *y, const char *what) {
    CU_ASSERT_PTR_NULL(y);
    CU_ASSERT_PTR_NULL(g->b.graph->first);
    CU_ASSERT_EQUAL(g->b.status, GQAC_INTERNAL);
    CU_ASSERT_STRING_EQUAL(g->diag.what, what);
    g->b.status = GQAC_OK;
}

static void mistakes(void) {
    static const char *const kind = "op 'rotary' has no attribute '%s' of that kind";
    char what[128];
    graph g;
    open_graph(&g, 0);
    ir_value **x = g.x, *out[2];
    const ir_node other = {.op = op_schema("", "Concat"), .attrs = (ir_attr[2]){{.set = true}}};
    snprintf(what, sizeof what, kind, "width");
    refused(&g, OP_BUILD(&g.b, "rotary", .in = {x[0], x[1], x[2]}, .ints = {{"width", 1}}), what);
    snprintf(what, sizeof what, kind, "interleaved");
    refused(&g, OP_BUILD(&g.b, "rotary", .in = {x[0], x[1], x[2]}, .floats = {{"interleaved", 1}}),
            what);
    refused(
        &g,
        OP_BUILD(&g.b, "rotary", .in = {x[0], x[1], x[2]}, .of = &other, .same = {"interleaved"}),
        what); /* Concat has none */
    snprintf(what, sizeof what, kind, "axis");
    refused(&g, OP_BUILD(&g.b, "rotary", .in = {x[0], x[1], x[2]}, .of = &other, .same = {"axis"}),
            what); /* rotary has none */
    refused(&g, OP_BUILD(&g.b, "Rotary", .in = {x[0]}), "there is no op 'Rotary'");
    refused(&g, OP_BUILD(&g.b, "com.microsoft.rotary", .in = {x[0]}),
            "there is no op 'com.microsoft.rotary'");
    refused(&g, OP_BUILD(&g.b, "Neg", .in = {x[0], x[1]}), "op 'Neg' has at most 1 inputs, not 2");
    refused(&g, OP_BUILD(&g.b, "Neg", .in = {x[0]}, .out = {&out[0], &out[1]}),
            "op 'Neg' has at most 1 outputs, not 2");
    close_graph(&g);
}

/* The first failure stays, whatever is built after it. */
static void sticky(void) {
    graph g;
    open_graph(&g, 0);
    ir_value **x = g.x, *lo = x[0], *hi = x[0], *shape = OP_BUILD(&g.b, "Shape", .in = {x[0]});
    void *data;
    op_refuse(&g.b, shape->def, "the width %d is odd", 7);
    CU_ASSERT_PTR_NULL(OP_BUILD(&g.b, "nonsense", .in = {x[0]}, .ints = {{"width", 1}}));
    OP_BUILD(&g.b, "visible_range", .in = {x[0], x[1], x[2]}, .out = {&lo, &hi});
    CU_ASSERT(!lo && !hi);
    CU_ASSERT_PTR_NULL(OP_RESHAPE(&g.b, op_build_rounded(&g.b, x[0]), 0, -1));
    CU_ASSERT_PTR_NULL(OP_TRANSPOSE(&g.b, op_build_lengths(&g.b, x[0], 0, 1), 0));
    CU_ASSERT_PTR_NULL(op_build_constant(&g.b, g.b.graph, "c", GQAC_F32, 0, NULL, &data));
    op_refuse(&g.b, shape->def, "another cause");
    CU_ASSERT_EQUAL(g.b.status, GQAC_UNSUPPORTED);
    CU_ASSERT_STRING_EQUAL(g.diag.what, "the width 7 is odd");
    CU_ASSERT_PTR_NOT_NULL(strstr(g.diag.where, "Shape"));
    CU_ASSERT_PTR_EQUAL(g.b.graph->last, shape->def);
    close_graph(&g);
}

static ir_value *build_some(graph *g) {
    ir_builder *b = &g->b;
    ir_value **x = g->x, *past, *fresh;
    void *data;
    OP_BUILD(b, "seqlens_to_past", .in = {x[0], x[1], x[2]}, .text = {{"convention", "cached"}},
             .out = {&past, &fresh});
    ir_value *c = op_build_constant(b, b->graph, "c", GQAC_F32, 1, (int64_t[]){3}, &data);
    ir_value *y = OP_RESHAPE(b, past, 0, 0, 4, 8);
    y = op_build_concat(b, 0, 3, (ir_value *[]){y, fresh, c});
    return OP_TRANSPOSE(b, y, 0, 2, 1, 3); /* the last allocation is that of a copied list */
}

static void memory(void) {
    graph g;
    size_t failed = 0, used;
    open_graph(&g, 0);
    for (used = gqac_arena_used(g.arena);; used += 16, failed++) { /* for each allocation */
        close_graph(&g);
        open_graph(&g, used);
        const ir_value *y = build_some(&g);
        if (g.b.status == GQAC_OK) {
            CU_ASSERT_PTR_NOT_NULL(ir_attr_get(y->def, "perm")->ints);
            break;
        }
        CU_ASSERT_PTR_NULL(y);
        CU_ASSERT_EQUAL_FATAL(g.b.status, GQAC_NO_MEMORY);
        CU_ASSERT(*g.diag.what);
    }
    CU_ASSERT(failed > 50);
    close_graph(&g);
}

static const unit_case cases[] = {
    {"inputs: absent ones at the end, holes, lists, domains", inputs},
    {"results: all, one, holes", results},
    {"attributes: kinds, exact floats, copies, those of another node", attributes},
    {"what the schema of the op does not have is refused", mistakes},
    {"the first failure sticks, with its cause", sticky},
    {"memory is short at every allocation", memory},
};

int main(int argc, char **argv) {
    return unit_run("build", cases, sizeof cases / sizeof *cases, argc, argv);
}
