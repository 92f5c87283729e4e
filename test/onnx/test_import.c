/* The importer: values and types, order, nodes and their attributes, nested graphs, unsupported
 * features, and allocations that fail. */
#include "unit.h"
#include "wire.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED(model, word) CU_ASSERT(wire_expect((model), GQAC_INVALID_MODEL, (word)))
#define LIMIT(model, word)   CU_ASSERT(wire_expect((model), GQAC_LIMIT, (word)))
#define LACKING(model, word) CU_ASSERT(wire_expect((model), GQAC_UNSUPPORTED, (word)))
#define TAKEN(model)         CU_ASSERT(wire_expect((model), GQAC_OK, ""))

/* x [B,4], nodes, outputs. Frees the nodes. */
static gqac_str graph_of(size_t n, gqac_str *nodes, const char *output) {
    gqac_str graph = {0};
    for (size_t i = 0; i < n; i++)
        wire_message(&graph, 1, nodes[i]);
    wire_text(&graph, 2, "g");
    wire_message(&graph, 11, wire_value("x", 1, "B,4"));
    wire_message(&graph, 12, wire_value(output, 1, NULL));
    return graph;
}
#define COUNT(...)         (sizeof((gqac_str[]){__VA_ARGS__}) / sizeof(gqac_str))
#define GRAPH(output, ...) graph_of(COUNT(__VA_ARGS__), (gqac_str[]){__VA_ARGS__}, (output))
#define MODEL(output, ...) wire_model(GRAPH(output, __VA_ARGS__))
#define NODE               wire_node

static gqac_str printed(gqac_str model) {
    gqac_str text = {0};
    wire_import *import = wire_import_model(model, NULL);
    if (import->status == GQAC_OK)
        ir_print(&text, import->module, IR_PRINT_DIGEST);
    else
        gqac_str_append(&text, import->diag.what);
    wire_import_free(import);
    return text;
}

static bool prints(gqac_str model, const char *want) {
    gqac_str text = printed(model);
    bool ok = text.text && strstr(text.text, want);
    if (!ok)
        printf("  wanted %s in\n%s\n", want, text.text ? text.text : "");
    gqac_str_free(&text);
    return ok;
}

/* ---- models ------------------------------------------------------------------------------------
 */

static gqac_str header(int64_t ir, int64_t opset, bool import) {
    gqac_str model = {0}, id = {0};
    if (ir)
        wire_int(&model, 1, ir);
    wire_int(&id, 2, opset);
    if (import)
        wire_message(&model, 8, id);
    else
        gqac_str_free(&id);
    wire_message(&model, 7, GRAPH("y", NODE("Relu", "x", "y")));
    return model;
}

static void test_model(void) {
    TAKEN(wire_small("Relu"));
    TAKEN(header(3, 17, true));
    REFUSED(header(0, 17, true), "IR version");
    REFUSED(header(-1, 17, true), "IR version");
    TAKEN(header(14, 17, true));
    LACKING(header(15, 17, true), "IR version");
    REFUSED(header(10, 17, false), "no opset");
    REFUSED(header(10, 0, true), "opset 0");
    REFUSED(header(10, -1, true), "opset -1");
    REFUSED(header(10, INT64_C(1) << 31, true), "opset 2147483648");
    TAKEN(header(10, 28, true));
    LACKING(header(10, 29, true), "opset");
    LACKING(header(10, 6, true), "older than 7");
    TAKEN(header(10, 7, true));
    gqac_str model = {0}, id = {0};
    wire_int(&model, 1, 10);
    wire_int(&id, 2, 17);
    wire_message(&model, 8, id);
    REFUSED(model, "no graph");
    model = wire_small("Relu");
    id = (gqac_str){0};
    wire_text(&id, 1, "ai.onnx"); /* another name of "" */
    wire_int(&id, 2, 17);
    wire_message(&model, 8, id);
    REFUSED(model, "imported twice");
    REFUSED(MODEL("y", NODE("elsewhere.Relu", "x", "y")), "domain 'elsewhere'");
    TAKEN(MODEL("y", NODE("ai.onnx.Relu", "x", "y")));
}

static void test_report(void) {
    gqac_str model = wire_small("Relu");
    wire_text(&model, 2, "tester");
    wire_text(&model, 3, "1.0");
    wire_import *import = wire_import_model(model, NULL);
    CU_ASSERT_EQUAL_FATAL(import->status, GQAC_OK);
    CU_ASSERT_EQUAL(import->report.ir_version, 10);
    CU_ASSERT_EQUAL(import->report.opset, 17);
    CU_ASSERT_STRING_EQUAL(import->report.producer, "tester 1.0");
    CU_ASSERT_EQUAL(import->report.n_ops, 1);
    CU_ASSERT_STRING_EQUAL(import->report.ops[0], "Relu");
    CU_ASSERT_EQUAL(import->report.n_unsupported, 0);
    CU_ASSERT_STRING_EQUAL(import->module->graph->result_names[0], "y");
    wire_import_free(import);
}

/* ---- values ------------------------------------------------------------------------------------
 */

static gqac_str input_model(gqac_str input) {
    gqac_str graph = {0};
    wire_message(&graph, 1, NODE("Identity", "x", "y"));
    wire_message(&graph, 11, input);
    wire_message(&graph, 12, wire_value("y", 1, NULL));
    return wire_model(graph);
}

static void test_inputs(void) {
    CU_ASSERT(prints(input_model(wire_value("x", 1, "B,4")), "%x: f32[B,4]"));
    CU_ASSERT(prints(input_model(wire_value("x", 22, "0,2")), "%x: i4[0,2]"));
    CU_ASSERT(prints(input_model(wire_value("x", 7, "past + seq")), "%x: i64[`past + seq`]"));
    CU_ASSERT(prints(input_model(wire_value("x", 1, "?,?")), "%x: f32[x_dim0,x_dim1]"));
    CU_ASSERT(prints(input_model(wire_value("x", 1, "")), "%x: f32[]"));
    TAKEN(input_model(wire_value("x", 1, NULL)));
    TAKEN(input_model(wire_value("x", 1, "1,1,1,1,1,1,1,1")));
    LIMIT(input_model(wire_value("x", 1, "1,1,1,1,1,1,1,1,1")), "rank");
    REFUSED(input_model(wire_value("x", 1, "-1")), "dimension 0");
    REFUSED(input_model(wire_value("x", 0, "4")), "element type");
    REFUSED(input_model(wire_value("x", 99, "4")), "element type");
    LACKING(input_model(wire_value("x", 8, "4")), "STRING");
    LACKING(input_model(wire_value("x", 18, "4")), "FLOAT8");
    gqac_str value = {0}, type = {0};
    wire_text(&value, 1, "x");
    REFUSED(input_model(value), "no type");
    value = (gqac_str){0};
    wire_message(&type, 4, (gqac_str){0});
    wire_text(&value, 1, "x");
    wire_message(&value, 2, type);
    LACKING(input_model(value), "not a tensor");
    REFUSED(input_model(wire_value("", 1, "4")), "no name");
}

static void test_names(void) {
    REFUSED(MODEL("y", NODE("Relu", "ghost", "y")), "'ghost' is not defined");
    REFUSED(MODEL("ghost", NODE("Relu", "x", "y")), "'ghost' is not defined");
    REFUSED(MODEL("y", NODE("Relu", "x", "y"), NODE("Relu", "x", "y")), "'y' is defined twice");
    REFUSED(MODEL("y", NODE("Relu", "x", "x"), NODE("Relu", "x", "y")), "'x' is defined twice");
    REFUSED(MODEL("y", NODE("Split", "x", "y y")), "'y' is defined twice");
    gqac_str graph = GRAPH("y", NODE("Add", "x w", "y"));
    wire_message(&graph, 5, wire_tensor("w", 1, "1", "abcd", 4));
    wire_message(&graph, 5, wire_tensor("w", 1, "1", "abcd", 4));
    REFUSED(wire_model(graph), "'w' is defined twice");
    graph = GRAPH("y", NODE("Add", "x w", "y"));
    wire_message(&graph, 5, wire_tensor("w", 1, "1", "abcd", 4));
    wire_message(&graph, 11, wire_value("w", 1, "1")); /* an input too: constant */
    CU_ASSERT(prints(wire_model(graph), "graph @g(%x: f32[B,4])"));
    graph = GRAPH("y", NODE("Add", "x w", "y"));
    wire_message(&graph, 11, wire_value("x", 1, "B,4"));
    REFUSED(wire_model(graph), "'x' is defined twice");
    graph = GRAPH("y", NODE("Relu", "x", "y"));
    wire_message(&graph, 12, wire_value("y", 1, NULL));
    REFUSED(wire_model(graph), "output 'y' twice");
    graph = GRAPH("x", NODE("Relu", "x", "y")); /* an input and a constant as outputs */
    wire_message(&graph, 5, wire_tensor("w", 1, "1", "abcd", 4));
    wire_message(&graph, 12, wire_value("w", 1, NULL));
    CU_ASSERT(prints(wire_model(graph), "return %x, %w"));
    graph = (gqac_str){0};
    wire_message(&graph, 11, wire_value("x", 1, "B,4"));
    REFUSED(wire_model(graph), "no outputs");
}

static void test_order(void) {
    CU_ASSERT(
        prints(MODEL("y", NODE("Relu", "b", "y"), NODE("Abs", "x", "a"), NODE("Neg", "a", "b")),
               "%a = Abs"));
    gqac_str text = printed(MODEL("y", NODE("Add", "a b", "y"), NODE("Relu", "x", "b"),
                                  NODE("Abs", "x", "a"), NODE("Neg", "x", "c")));
    const char *b = strstr(text.text, "%b ="), *a = strstr(text.text, "%a ="),
               *y = strstr(text.text, "%y ="), *c = strstr(text.text, "%c =");
    CU_ASSERT(b && a && y && c && b < a && a < y && y < c);
    gqac_str_free(&text);
    REFUSED(MODEL("y", NODE("Add", "x y", "y")), "cycle");
    REFUSED(MODEL("y", NODE("Relu", "x", "y"), NODE("Add", "x b", "a"), NODE("Relu", "a", "b")),
            "cycle");
    gqac_str *nodes = calloc(20000, sizeof *nodes);
    for (int i = 0; i < 20000; i++) { /* a chain in reverse order: must not take quadratic time */
        char in[32], out[32];
        snprintf(in, sizeof in, i == 19999 ? "x" : "v%d", i + 1);
        snprintf(out, sizeof out, "v%d", i);
        nodes[i] = NODE("Relu", in, out);
    }
    TAKEN(wire_model(graph_of(20000, nodes, "v0")));
    free(nodes);
}

/* ---- nodes -------------------------------------------------------------------------------------
 */

static void test_arity(void) {
    REFUSED(MODEL("y", NODE("Add", "x", "y")), "1 inputs");
    REFUSED(MODEL("y", NODE("Add", "x x x", "y")), "3 inputs");
    TAKEN(MODEL("y", NODE("Add", "x x _", "y"))); /* empty names at the end */
    REFUSED(MODEL("y", NODE("Add", "x _", "y")), "missing");
    REFUSED(MODEL("y", NODE("Relu", "x", "y z")), "2 outputs");
    TAKEN(MODEL("y", NODE("Relu", "x", "y _")));
    TAKEN(MODEL("x", NODE("Relu", "x", "_")));
    REFUSED(MODEL("x", NODE("Relu", "x", "")), "0 outputs");
    REFUSED(MODEL("x", NODE("", "x", "")), "no op");
    gqac_str six = wire_attr("value_float", 1);
    wire_float(&six, 2, 6.0f);
    six = wire_with_attr(NODE("Constant", "", "c"), six);
    CU_ASSERT(prints(MODEL("y", six, NODE("Clip", "x _ c", "y")), "Clip %x, _, %c"));
}

static void test_attributes(void) {
    gqac_str a;
    CU_ASSERT(
        prints(MODEL("y", wire_with_attr(NODE("Softmax", "x", "y"), wire_attr_int("axis", 1))),
               "{axis=1}"));
    CU_ASSERT(prints(MODEL("y", NODE("Softmax", "x", "y")), "Softmax %x"));
    gqac_str twice = wire_with_attr(NODE("Softmax", "x", "y"), wire_attr_int("axis", 1));
    REFUSED(MODEL("y", wire_with_attr(twice, wire_attr_int("axis", 1))), "given twice");
    a = wire_attr("axis", 1); /* a FLOAT */
    wire_float(&a, 2, 1.0f);
    REFUSED(MODEL("y", wire_with_attr(NODE("Softmax", "x", "y"), a)), "wrong type");
    a = wire_attr("axis", 2); /* declared as INT, but contains a float */
    wire_float(&a, 2, 1.0f);
    REFUSED(MODEL("y", wire_with_attr(NODE("Softmax", "x", "y"), a)), "value of another type");
    a = wire_attr_int("axis", 1);
    wire_float(&a, 2, 1.0f);
    REFUSED(MODEL("y", wire_with_attr(NODE("Softmax", "x", "y"), a)), "value of another type");
    a = (gqac_str){0};
    wire_text(&a, 1, "axis");
    wire_int(&a, 3, 1);
    REFUSED(MODEL("y", wire_with_attr(NODE("Softmax", "x", "y"), a)), "no type");
    TAKEN(MODEL("y", wire_with_attr(NODE("Softmax", "x", "y"), wire_attr("axis", 2)))); /* 0 */
    REFUSED(MODEL("y", wire_with_attr(NODE("Softmax", "x", "y"), wire_attr_ref("axis", 2, "axis"))),
            "not in a function");
    REFUSED(MODEL("y", NODE("Cast", "x", "y")), "'to' is missing");
    LACKING(MODEL("y", wire_with_attr(NODE("Cast", "x", "y"), wire_attr_int("to", 17))),
            "element type");
    LACKING(MODEL("y", wire_with_attr(NODE("Relu", "x", "y"), wire_attr_int("odd", 1))),
            "attribute odd is not supported");
    a = wire_attr("odd", 13);
    wire_message(&a, 14, (gqac_str){0});
    LACKING(MODEL("y", wire_with_attr(NODE("Relu", "x", "y"), a)), "TYPE_PROTO");
}

static gqac_str constant(gqac_str attr) {
    return MODEL("y", wire_with_attr(NODE("Constant", "", "c"), attr), NODE("Identity", "c", "y"));
}

static void test_constants(void) {
    gqac_str a = wire_attr("value", 4);
    wire_message(&a, 5, wire_tensor("", 6, "2", "\1\0\0\0\2\0\0\0", 8));
    CU_ASSERT(prints(constant(a), "const %c: i32[2] = [1, 2]"));
    a = wire_attr("value_float", 1);
    wire_float(&a, 2, 0.5f);
    CU_ASSERT(prints(constant(a), "const %c: f32[] = 0.5"));
    CU_ASSERT(prints(constant(wire_attr_int("value_int", -3)), "const %c: i64[] = -3"));
    a = wire_attr("value_ints", 7);
    wire_int(&a, 8, 4);
    wire_int(&a, 8, 5);
    CU_ASSERT(prints(constant(a), "const %c: i64[2] = [4, 5]"));
    a = wire_attr("value_ints", 7);
    wire_bytes(&a, 8, "\4\5", 2); /* packed */
    CU_ASSERT(prints(constant(a), "const %c: i64[2] = [4, 5]"));
    a = wire_attr("value_floats", 6);
    CU_ASSERT(prints(constant(a), "const %c: f32[0]"));
    a = wire_attr("value_string", 3);
    wire_text(&a, 4, "text");
    LACKING(constant(a), "value_string");
    a = wire_attr("sparse_value", 11);
    wire_message(&a, 22, (gqac_str){0});
    LACKING(constant(a), "sparse_value");
    REFUSED(constant(wire_attr("value", 4)), "value of another type");
    REFUSED(constant(wire_attr_int("other", 4)), "no attribute 'other'");
    REFUSED(constant(wire_attr_int("value_float", 4)), "wrong type");
    REFUSED(MODEL("x", NODE("Constant", "", "c")), "one attribute");
    REFUSED(MODEL("x", wire_with_attr(NODE("Constant", "x", "c"), wire_attr_int("value_int", 1))),
            "no input");
    a = wire_attr("value_string", 3); /* a string that nothing reads */
    TAKEN(MODEL("x", wire_with_attr(NODE("Constant", "", "c"), a)));
    a = wire_attr("value", 4);
    wire_message(&a, 5, wire_tensor("", 1, "2", "abcd", 4));
    REFUSED(MODEL("x", wire_with_attr(NODE("Constant", "", "c"), a)),
            "bytes"); /* it is checked nevertheless */
}

/* All unsupported features are named in one error, sorted, with counts; also those in nested
 * graphs. */
static void test_unsupported(void) {
    gqac_str inner = {0};
    wire_message(&inner, 1, NODE("Zap", "a", "b"));
    wire_message(&inner, 12, wire_value("b", 1, NULL));
    gqac_str model = MODEL(
        "y", NODE("com.microsoft.Zip", "x", "a"), NODE("com.microsoft.Zip", "a", "b1"),
        wire_with_attr(NODE("Zup", "b1", "c"), wire_attr_graph("body", inner)),
        wire_with_attr(NODE("Relu", "c", "d"), wire_attr_int("odd", 1)), NODE("Add", "d d", "y"));
    wire_import *import = wire_import_model(model, NULL);
    CU_ASSERT_EQUAL(import->status, GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL_FATAL(import->report.n_unsupported, 4);
    const onnx_unsupported *u = import->report.unsupported;
    CU_ASSERT_STRING_EQUAL(u[0].op, "Relu");
    CU_ASSERT_STRING_EQUAL(u[1].op, "Zap");
    CU_ASSERT_STRING_EQUAL(u[2].op, "Zup");
    CU_ASSERT_STRING_EQUAL(u[3].op, "com.microsoft.Zip");
    CU_ASSERT_STRING_EQUAL(u[3].reason, "unknown op");
    CU_ASSERT_STRING_EQUAL(u[3].first, "a");
    CU_ASSERT_EQUAL(u[3].count, 2);
    CU_ASSERT_EQUAL(import->report.n_ops, 5);
    CU_ASSERT_PTR_NOT_NULL(strstr(import->diag.what, "Zap: unknown op ('b')"));
    CU_ASSERT_PTR_NOT_NULL(strstr(import->diag.what, "2 nodes"));
    wire_import_free(import);
    REFUSED(MODEL("y", NODE("gqac.attention", "x", "y")), "domain 'gqac'");
}

/* A node that has no name is named after its first output that has one, if it is not supported or
 * wrong. */
static void test_nameless(void) {
    for (int bad = 0; bad < 2; bad++) {
        gqac_str node = {0};
        wire_text(&node, 1, bad ? "nothing" : "x");
        wire_text(&node, 2, "");
        wire_text(&node, 2, "late");
        wire_text(&node, 4, bad ? "Relu" : "Zap");
        wire_import *import = wire_import_model(MODEL("late", node), NULL);
        CU_ASSERT_EQUAL(import->status, bad ? GQAC_INVALID_MODEL : GQAC_UNSUPPORTED);
        CU_ASSERT_PTR_NOT_NULL(strstr(bad ? import->diag.where : import->diag.what,
                                      bad ? "node 'late' (Relu)" : "Zap: unknown op ('late')"));
        wire_import_free(import);
    }
}

/* ---- nested graphs -----------------------------------------------------------------------------
 */

static gqac_str branch_of(gqac_str node, const char *result) {
    gqac_str graph = {0};
    wire_message(&graph, 1, node);
    wire_message(&graph, 12, wire_value(result, 1, NULL));
    return graph;
}

/* y = If(c) {then} {else}, with the nodes of the branches; x is visible in both. */
static gqac_str choice(gqac_str then, const char *t, gqac_str otherwise, const char *e) {
    gqac_str c = wire_attr("value", 4);
    wire_message(&c, 5, wire_tensor("", 9, "", "\1", 1));
    gqac_str node = NODE("If", "c", "y");
    wire_message(&node, 5, wire_attr_graph("then_branch", branch_of(then, t)));
    wire_message(&node, 5, wire_attr_graph("else_branch", branch_of(otherwise, e)));
    return MODEL("y", wire_with_attr(NODE("Constant", "", "c"), c), node);
}

static gqac_str deep(int depth) {
    gqac_str graph = branch_of(NODE("Relu", "x", "r"), "r");
    for (int i = 0; i < depth; i++) {
        char name[32];
        snprintf(name, sizeof name, "r%d", i);
        gqac_str node = NODE("If", "c", name), copy = {0};
        gqac_str_append_n(&copy, graph.text, graph.length);
        wire_message(&node, 5, wire_attr_graph("then_branch", graph));
        wire_message(&node, 5, wire_attr_graph("else_branch", copy));
        graph = branch_of(node, name);
    }
    wire_message(&graph, 11, wire_value("x", 1, "B"));
    wire_message(&graph, 11, wire_value("c", 9, ""));
    return wire_model(graph);
}

static void test_nested(void) {
    TAKEN(choice(NODE("Relu", "x", "t"), "t", NODE("Abs", "x", "e"), "e"));
    TAKEN(choice(NODE("Relu", "x", "t"), "t", NODE("Abs", "x", "t"), "t"));
    TAKEN(choice(NODE("Relu", "x", "y"), "y", NODE("Abs", "x", "y"), "y")); /* as the If's own */
    REFUSED(choice(NODE("Relu", "x", "x"), "x", NODE("Abs", "x", "e"), "e"), "visible");
    REFUSED(choice(NODE("Relu", "x", "c"), "c", NODE("Abs", "x", "e"), "e"), "visible");
    REFUSED(choice(NODE("Relu", "e", "t"), "t", NODE("Abs", "x", "e"), "e"), "'e' is not defined");
    REFUSED(choice(NODE("Relu", "y", "t"), "t", NODE("Abs", "x", "e"), "e"), "cycle");
    REFUSED(choice(NODE("Relu", "ghost", "t"), "t", NODE("Abs", "x", "e"), "e"), "node 'y' (If)");
    TAKEN(deep(8)); /* 2^8 graphs */
}

/* A node is placed before one whose nested graph reads it. */
static void test_captures(void) {
    gqac_str node = NODE("If", "c", "y");
    wire_message(&node, 5,
                 wire_attr_graph("then_branch", branch_of(NODE("Relu", "late", "t"), "t")));
    wire_message(&node, 5, wire_attr_graph("else_branch", branch_of(NODE("Abs", "x", "e"), "e")));
    gqac_str graph = GRAPH("y", node, NODE("Neg", "x", "late"));
    wire_message(&graph, 11, wire_value("c", 9, ""));
    gqac_str text = printed(wire_model(graph));
    const char *late = strstr(text.text, "%late ="), *y = strstr(text.text, "%y =");
    CU_ASSERT(late && y && late < y);
    gqac_str_free(&text);
}

/* ---- allocations -------------------------------------------------------------------------------
 */

static gqac_str rich_model(void) {
    gqac_str graph = {0}, model;
    float data[40] = {1.0f};
    gqac_str function = {0}, call = NODE("local.Twice", "b", "d");
    wire_text(&function, 1, "Twice");
    wire_text(&function, 10, "local");
    wire_text(&function, 4, "a");
    wire_text(&function, 5, "r");
    wire_message(&function, 7, NODE("Add", "a a", "r"));
    gqac_str id = {0};
    wire_int(&id, 2, 17);
    wire_message(&function, 9, id);
    gqac_str node = NODE("If", "c", "y");
    wire_message(&node, 5, wire_attr_graph("then_branch", branch_of(NODE("Relu", "d", "t"), "t")));
    wire_message(&node, 5, wire_attr_graph("else_branch", branch_of(NODE("Abs", "d", "t"), "t")));
    wire_message(&graph, 1, call); /* not in order */
    wire_message(&graph, 1, NODE("Add", "x w", "a"));
    wire_message(&graph, 1, NODE("Add", "a v", "b"));
    wire_message(&graph, 1, node);
    wire_message(&graph, 5, wire_tensor("w", 1, "40", data, sizeof data));
    wire_message(&graph, 5, wire_external("v", 1, "40", "v.bin", "0", "160"));
    wire_message(&graph, 11, wire_value("x", 1, "B,40"));
    wire_message(&graph, 11, wire_value("c", 9, ""));
    wire_message(&graph, 12, wire_value("y", 1, NULL));
    model = wire_model(graph);
    wire_message(&model, 25, function);
    return model;
}

static void test_allocations(void) {
    float data[40] = {2.0f};
    wire_write("v.bin", data, sizeof data);
    gqac_str model = rich_model();
    wire_write("m.onnx", model.text, model.length);
    gqac_str_free(&model);
    const char *path = wire_path("m.onnx");
    size_t live = gqac_alloc_live();
    for (int persist = 0; persist < 2; persist++) {
        bool done = false;
        for (size_t n = 1; !done && n < 10000; n++) {
            gqac_alloc_fail_at(n, persist);
            wire_import *import = wire_import_path(path, NULL);
            done = gqac_alloc_calls() < n;
            gqac_alloc_fail_at(0, 0);
            CU_ASSERT_EQUAL(import->status, done ? GQAC_OK : GQAC_NO_MEMORY);
            CU_ASSERT(done || (!import->module && !import->files));
            if (import->status != GQAC_OK && import->status != GQAC_NO_MEMORY)
                printf("  call %zu: %s\n", n, import->diag.what);
            wire_import_free(import);
            CU_ASSERT_EQUAL(gqac_alloc_live(), live);
        }
        CU_ASSERT(done);
    }
}

/* ---- mutations ---------------------------------------------------------------------------------
 */

static uint64_t random_state = 0x2545F4914F6CDD1D;

static size_t random_below(size_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state >> 33) % n;
}

/* Files that pass the pre-scan with wrong contents: each is accepted or refused, and accepted ones
 * pass the verifier. */
static void test_mutations(void) {
    float data[40] = {2.0f};
    int runs = unit_full() ? 500000 : 10000, taken = 0, refused = 0;
    wire_write("v.bin", data, sizeof data);
    gqac_str model = rich_model();
    for (int i = 0; i < runs; i++) {
        gqac_str copy = {0};
        gqac_str_append_n(&copy, model.text, model.length);
        for (size_t k = 1 + random_below(3); k > 0; k--) {
            char *at = copy.text + random_below(copy.length);
            int other = random_below(2) ? (int)random_below(256) : *at ^ 1 << random_below(8);
            *at = (char)other;
        }
        wire_import *import = wire_import_model(copy, NULL);
        gqac_status status = import->status;
        CU_ASSERT(gqac_status_exit_code(status) == 3 || status == GQAC_OK);
        CU_ASSERT(status != GQAC_OK || ir_verify(import->module, &import->diag) == GQAC_OK);
        taken += status == GQAC_OK;
        refused += status != GQAC_OK;
        wire_import_free(import);
    }
    gqac_str_free(&model);
    CU_ASSERT(taken > 0 && refused > 0);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"model", test_model},
        {"report", test_report},
        {"inputs", test_inputs},
        {"names", test_names},
        {"order", test_order},
        {"arity", test_arity},
        {"attributes", test_attributes},
        {"constants", test_constants},
        {"unsupported", test_unsupported},
        {"nodes without a name", test_nameless},
        {"nested", test_nested},
        {"captures", test_captures},
        {"allocations", test_allocations},
        {"mutations", test_mutations},
    };
    int code = unit_run("onnx_import", cases, sizeof cases / sizeof *cases, argc, argv);
    wire_clean();
    return code;
}
