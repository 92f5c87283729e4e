/* Model functions: inlining, attributes by reference, missing inputs, precedence of native ops,
 * limits. */
#include "unit.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED(model, word) CU_ASSERT(wire_expect((model), GQAC_INVALID_MODEL, (word)))
#define LIMIT(model, word)   CU_ASSERT(wire_expect((model), GQAC_LIMIT, (word)))
#define TAKEN(model)         CU_ASSERT(wire_expect((model), GQAC_OK, ""))
#define NODE                 wire_node

static void words(gqac_str *out, uint32_t field, const char *list) {
    while (*list) {
        size_t n = strcspn(list, " ");
        wire_bytes(out, field, list, n);
        list += n + (list[n] == ' ');
    }
}

static gqac_str opset(const char *domain, int64_t version) {
    gqac_str id = {0};
    wire_text(&id, 1, domain);
    wire_int(&id, 2, version);
    return id;
}

/* A function of the domain `local` with one node. */
static gqac_str function(const char *name, const char *inputs, const char *outputs, gqac_str node) {
    gqac_str f = {0};
    wire_text(&f, 1, name);
    wire_text(&f, 10, "local");
    words(&f, 4, inputs);
    words(&f, 5, outputs);
    wire_message(&f, 7, node);
    wire_message(&f, 9, opset("", 17));
    wire_message(&f, 9, opset("local", 1));
    return f;
}

/* A model of y = node, with these functions. */
static gqac_str model_of(gqac_str node, size_t n, gqac_str *functions) {
    gqac_str graph = {0};
    wire_message(&graph, 1, node);
    wire_text(&graph, 2, "g");
    wire_message(&graph, 11, wire_value("x", 1, "B,4"));
    wire_message(&graph, 12, wire_value("y", 1, NULL));
    gqac_str model = wire_model(graph);
    for (size_t i = 0; i < n; i++)
        wire_message(&model, 25, functions[i]);
    return model;
}
#define COUNT(...)       (sizeof((gqac_str[]){__VA_ARGS__}) / sizeof(gqac_str))
#define MODEL(node, ...) model_of((node), COUNT(__VA_ARGS__), (gqac_str[]){__VA_ARGS__})

static bool prints(gqac_str model, const char *want) {
    gqac_str text = {0};
    wire_import *import = wire_import_model(model, NULL);
    if (import->status == GQAC_OK)
        ir_print(&text, import->module, IR_PRINT_DIGEST);
    else
        gqac_str_append(&text, import->diag.what);
    bool ok = strstr(text.text, want) != NULL;
    if (!ok)
        printf("  wanted %s in\n%s (%s)\n", want, text.text, import->diag.where);
    wire_import_free(import);
    gqac_str_free(&text);
    return ok;
}

/* ---- inlining ----------------------------------------------------------------------------------
 */

static void test_inline(void) {
    CU_ASSERT(
        prints(MODEL(NODE("local.F", "x", "y"), function("F", "a", "r", NODE("Relu", "a", "r"))),
               "%y = Relu %x"));
    /* inner names are prefixed with the name of the call; the report counts the call */
    gqac_str f = function("F", "a", "r", NODE("Relu", "a", "t"));
    wire_message(&f, 7, NODE("Abs", "t", "r"));
    CU_ASSERT(prints(MODEL(NODE("local.F", "x", "y"), f), "%\"y/t\" = Relu %x"));
    f = function("F", "a", "r", NODE("Relu", "a", "r"));
    wire_import *import = wire_import_model(MODEL(NODE("local.F", "x", "y"), f), NULL);
    CU_ASSERT_EQUAL(import->report.n_ops, 1);
    CU_ASSERT_STRING_EQUAL(import->report.ops[0], "local.F");
    wire_import_free(import);
    /* functions that call functions; a result that is an input; unsorted bodies */
    CU_ASSERT(
        prints(MODEL(NODE("local.G", "x", "y"), function("F", "a", "r", NODE("Relu", "a", "r")),
                     function("G", "a", "r", NODE("local.F", "a", "r"))),
               "%y = Relu %x"));
    CU_ASSERT(
        prints(MODEL(NODE("local.F", "x", "y"), function("F", "a", "a", NODE("Relu", "a", "r"))),
               "return %x"));
    f = function("F", "a", "r", NODE("Abs", "t", "r"));
    wire_message(&f, 7, NODE("Relu", "a", "t"));
    TAKEN(MODEL(NODE("local.F", "x", "y"), f));
    /* called twice: names stay unique */
    f = function("F", "a", "r", NODE("Relu", "a", "t"));
    wire_message(&f, 7, NODE("local.H", "t", "u"));
    wire_message(&f, 7, NODE("local.H", "u", "r"));
    gqac_str h = function("H", "a", "r", NODE("Neg", "a", "k"));
    wire_message(&h, 7, NODE("Abs", "k", "r"));
    TAKEN(MODEL(NODE("local.F", "x", "y"), f, h));
    /* names that are not visible in a function */
    REFUSED(MODEL(NODE("local.F", "x", "y"), function("F", "a", "r", NODE("Relu", "x", "r"))),
            "'x' is not defined");
    REFUSED(MODEL(NODE("local.F", "x", "y"), function("F", "a", "s", NODE("Relu", "a", "r"))),
            "'s' is not defined");
}

static void test_native_first(void) {
    gqac_str f = {0};
    wire_text(&f, 1, "FastGelu");
    wire_text(&f, 10, "com.microsoft");
    words(&f, 4, "a");
    words(&f, 5, "r");
    wire_message(&f, 7, NODE("Zap", "a", "r")); /* as a node this would be an unknown op */
    wire_message(&f, 9, opset("", 17));
    CU_ASSERT(
        prints(MODEL(NODE("com.microsoft.FastGelu", "x", "y"), f), "com.microsoft.FastGelu %x"));
}

static void test_holes(void) {
    gqac_str f = function("F", "a b c", "r", NODE("Clip", "a b c", "r"));
    CU_ASSERT(prints(MODEL(NODE("local.F", "x", "y"), f), "%y = Clip %x"));
    f = function("F", "a b", "r", NODE("Add", "a b", "r"));
    REFUSED(MODEL(NODE("local.F", "x", "y"), f), "missing");
    f = function("F", "a", "r", NODE("Relu", "a", "r"));
    REFUSED(MODEL(NODE("local.F", "x x", "y"), f), "more inputs or outputs");
    f = function("F", "a", "r s", NODE("Relu", "a", "r"));
    wire_message(&f, 7, NODE("Abs", "a", "s"));
    CU_ASSERT(prints(MODEL(NODE("local.F", "x", "_ y"), f), "%y = Abs %x"));
}

/* ---- attributes --------------------------------------------------------------------------------
 */

static void test_attributes(void) {
    gqac_str softmax = wire_with_attr(NODE("Softmax", "a", "r"), wire_attr_ref("axis", 2, "dim"));
    gqac_str call = wire_with_attr(NODE("local.F", "x", "y"), wire_attr_int("dim", 1));
    CU_ASSERT(prints(MODEL(call, function("F", "a", "r", softmax)), "{axis=1}"));
    /* if the caller omits it: the default of the function, or else of the op */
    softmax = wire_with_attr(NODE("Softmax", "a", "r"), wire_attr_ref("axis", 2, "dim"));
    gqac_str f = function("F", "a", "r", softmax);
    wire_message(&f, 11, wire_attr_int("dim", 0));
    CU_ASSERT(prints(MODEL(NODE("local.F", "x", "y"), f), "{axis=0}"));
    softmax = wire_with_attr(NODE("Softmax", "a", "r"), wire_attr_ref("axis", 2, "dim"));
    CU_ASSERT(prints(MODEL(NODE("local.F", "x", "y"), function("F", "a", "r", softmax)),
                     "%y = Softmax %x"));
    /* through two calls */
    softmax = wire_with_attr(NODE("Softmax", "a", "r"), wire_attr_ref("axis", 2, "dim"));
    gqac_str inner = wire_with_attr(NODE("local.F", "a", "r"), wire_attr_ref("dim", 2, "outer"));
    call = wire_with_attr(NODE("local.G", "x", "y"), wire_attr_int("outer", 1));
    CU_ASSERT(prints(MODEL(call, function("F", "a", "r", softmax), function("G", "a", "r", inner)),
                     "{axis=1}"));
    /* a wrong type; an attribute twice */
    softmax = wire_with_attr(NODE("Softmax", "a", "r"), wire_attr_ref("axis", 2, "dim"));
    gqac_str wrong = wire_attr("dim", 1);
    wire_float(&wrong, 2, 1.0f);
    call = wire_with_attr(NODE("local.F", "x", "y"), wrong);
    REFUSED(MODEL(call, function("F", "a", "r", softmax)), "another type");
    call = wire_with_attr(NODE("local.F", "x", "y"), wire_attr_int("dim", 1));
    call = wire_with_attr(call, wire_attr_int("dim", 1));
    REFUSED(MODEL(call, function("F", "a", "r", NODE("Relu", "a", "r"))), "given twice");
    /* a Constant whose value comes from the caller */
    gqac_str constant =
        wire_with_attr(NODE("Constant", "", "c"), wire_attr_ref("value_float", 1, "k"));
    f = function("F", "a", "c", constant);
    gqac_str seven = wire_attr("k", 1);
    wire_float(&seven, 2, 7.0f);
    call = wire_with_attr(NODE("local.F", "x", "y"), seven);
    CU_ASSERT(prints(MODEL(call, f), "f32[] = 7"));
    constant = wire_with_attr(NODE("Constant", "", "c"), wire_attr_ref("value_int", 2, "k"));
    REFUSED(MODEL(NODE("local.F", "x", "y"), function("F", "a", "c", constant)), "attribute 'k'");
}

/* ---- bounds ------------------------------------------------------------------------------------
 */

/* if (c) { r = op(c) } else { r = op(c) } */
static gqac_str guarded(const char *op) {
    gqac_str node = NODE("If", "a", "r");
    for (int i = 0; i < 2; i++) {
        gqac_str graph = {0};
        wire_message(&graph, 1, NODE(op, "a", "t"));
        wire_message(&graph, 12, wire_value("t", 1, NULL));
        wire_message(&node, 5, wire_attr_graph(i ? "then_branch" : "else_branch", graph));
    }
    return node;
}

static void test_cycles(void) {
    REFUSED(MODEL(NODE("local.F", "x", "y"), function("F", "a", "r", NODE("local.F", "a", "r"))),
            "calls itself");
    REFUSED(MODEL(NODE("local.F", "x", "y"), function("F", "a", "r", NODE("local.G", "a", "r")),
                  function("G", "a", "r", NODE("local.F", "a", "r"))),
            "calls itself");
    REFUSED(MODEL(NODE("local.F", "x", "y"), function("F", "a", "r", guarded("local.G")),
                  function("G", "a", "r", NODE("local.F", "a", "r"))),
            "calls itself");
    TAKEN(MODEL(NODE("local.F", "x", "y"), function("F", "a", "r", guarded("local.G")),
                function("G", "a", "r", NODE("Relu", "a", "r"))));
}

/* n functions, each calling the next `width` times in a row. */
static gqac_str chain(int n, int width) {
    gqac_str *functions = calloc((size_t)n, sizeof *functions);
    for (int i = 0; i < n; i++) {
        char name[32], op[32], in[32], out[32];
        snprintf(name, sizeof name, "F%d", i);
        snprintf(op, sizeof op, i + 1 < n ? "local.F%d" : "Relu", i + 1);
        gqac_str f = function(name, "v0", "", NODE(op, "v0", "v1"));
        for (int k = 1; k < width; k++) {
            snprintf(in, sizeof in, "v%d", k);
            snprintf(out, sizeof out, "v%d", k + 1);
            wire_message(&f, 7, NODE(op, in, out));
        }
        snprintf(out, sizeof out, "v%d", width);
        wire_text(&f, 5, out);
        functions[i] = f;
    }
    gqac_str model = model_of(NODE("local.F0", "x", "y"), (size_t)n, functions);
    free(functions);
    return model;
}

static void test_depth(void) {
    TAKEN(chain(64, 1));
    LIMIT(chain(65, 1), "64");
    TAKEN(chain(8, 2));
    LIMIT(chain(60, 2), "calls of functions"); /* 2^60 nodes */
}

/* Nested graphs of all inlined functions are counted together. */
static void test_nesting(void) {
    for (int n = 16; n <= 17; n++) {
        gqac_str functions[20];
        for (int i = 0; i < n; i++) {
            char name[32], op[32];
            snprintf(name, sizeof name, "F%d", i);
            snprintf(op, sizeof op, i + 1 < n ? "local.F%d" : "Relu", i + 1);
            gqac_str node = NODE("If", "a", "r"), graph = {0}, other = {0};
            wire_message(&graph, 1, NODE(op, "a", "t"));
            wire_message(&graph, 12, wire_value("t", 1, NULL));
            wire_message(&other, 1, NODE("Abs", "a", "t"));
            wire_message(&other, 12, wire_value("t", 1, NULL));
            wire_message(&node, 5, wire_attr_graph("then_branch", graph));
            wire_message(&node, 5, wire_attr_graph("else_branch", other));
            functions[i] = function(name, "a", "r", node);
        }
        gqac_str model = model_of(NODE("local.F0", "x", "y"), (size_t)n, functions);
        CU_ASSERT(wire_expect(model, n == 16 ? GQAC_OK : GQAC_LIMIT, "nested"));
    }
}

static void test_declarations(void) {
    gqac_str f = function("F", "a", "r", NODE("Relu", "a", "r"));
    gqac_str g = function("F", "a", "r", NODE("Abs", "a", "r"));
    REFUSED(MODEL(NODE("local.F", "x", "y"), f, g), "defined twice");
    f = function("F", "a", "r", NODE("Relu", "a", "r"));
    g = function("F", "a", "r", NODE("Abs", "a", "r"));
    wire_text(&g, 13, "other"); /* an overload */
    gqac_str call = NODE("local.F", "x", "y");
    wire_text(&call, 8, "other");
    CU_ASSERT(prints(MODEL(call, f, g), "Abs %x"));
    REFUSED(MODEL(NODE("local.F", "x", "y"), function("", "a", "r", NODE("Relu", "a", "r"))),
            "no name");
    REFUSED(MODEL(NODE("local.F", "x", "y"), function("F", "a a", "r", NODE("Relu", "a", "r"))),
            "defined twice");
    f = function("F", "a", "r", NODE("com.microsoft.FastGelu", "a", "r"));
    REFUSED(MODEL(NODE("local.F", "x", "y"), f), "not imported"); /* by the function */
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"inline", test_inline},   {"native first", test_native_first},
        {"holes", test_holes},     {"attributes", test_attributes},
        {"cycles", test_cycles},   {"depth", test_depth},
        {"nesting", test_nesting}, {"declarations", test_declarations},
    };
    int code = unit_run("onnx_functions", cases, sizeof cases / sizeof *cases, argc, argv);
    wire_clean();
    return code;
}
