/* The exporter: a written file is imported as the same graph; refusals name the op; a failure
 * leaves the old file and nothing else. test/python/test_export.py checks the files with ONNX
 * Runtime. */
#include "unit.h"
#include "wire.h"

#include "base/alloc.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/build.h"

static gqac_status infer_one(void *diag, ir_node *node) {
    return op_infer(node, diag);
}

static wire_import *typed(wire_import *import) {
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL_FATAL(import->status, GQAC_OK);
    for (int i = 0; i < 3; i++) /* the types of an If follow from those of its branches */
        CU_ASSERT_EQUAL(ir_graph_walk(import->module->graph, infer_one, &diag), GQAC_OK);
    return import;
}

static gqac_str text_of(const ir_module *module) {
    gqac_str text = {0};
    ir_print(&text, module, IR_PRINT_DIGEST);
    return text;
}

/* Exports, imports, exports and imports once more: the texts of both imports are equal. */
static bool settles(wire_import *import) {
    gqac_str text[2] = {{0}, {0}};
    gqac_diag diag = {0};
    gqac_status status = GQAC_OK;
    for (int i = 0; i < 2 && status == GQAC_OK; i++) {
        status = onnx_export(import->module, wire_path("out.onnx"), NULL, &diag);
        wire_import_free(import);
        import = typed(wire_import_path(wire_path("out.onnx"), NULL));
        text[i] = text_of(import->module);
    }
    bool same = status == GQAC_OK && strcmp(text[0].text, text[1].text) == 0;
    if (!same)
        printf("  %s (%s)\n%s\n%s\n", diag.what, diag.where, text[0].text ? text[0].text : "",
               text[1].text ? text[1].text : "");
    wire_import_free(import);
    gqac_str_free(&text[0]);
    gqac_str_free(&text[1]);
    return same;
}

static void test_models(void) {
    static const char *const models[] = {"llama",           "llama-fp16", "llama-int4-acc1",
                                         "llama-int4-acc4", "mistral",    "phi3",
                                         "qwen2",           "qwen3",      "gemma2"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[128];
        snprintf(path, sizeof path, "test/models/%s/model.onnx", models[i]);
        CU_ASSERT(settles(typed(wire_import_path(unit_path(path), NULL))));
    }
}

static gqac_str graph_of(gqac_str node) {
    gqac_str graph = {0};
    wire_message(&graph, 1, node);
    wire_text(&graph, 2, "g");
    wire_message(&graph, 11, wire_value("x", 1, "B,past + S,4"));
    wire_message(&graph, 12, wire_value("y", 1, NULL));
    return graph;
}

/* Results that are inputs, constants, or one value twice need an Identity. */
static void test_results(void) {
    float four[4] = {1, 2, 3, 4};
    gqac_str graph = graph_of(wire_node("Relu", "x", "y"));
    wire_message(&graph, 5, wire_tensor("w", 1, "4", four, sizeof four));
    wire_message(&graph, 12, wire_value("x", 1, NULL));
    wire_message(&graph, 12, wire_value("w", 1, NULL));
    wire_import *import = typed(wire_import_model(wire_model(graph), NULL));
    ir_graph *g = import->module->graph;
    ir_value *values[] = {g->ret->inputs[0].value, g->ret->inputs[0].value, g->inputs[0]};
    const char *names[] = {"y", "again", "copy"};
    CU_ASSERT(ir_graph_set_results(g, 3, values, names));
    CU_ASSERT_EQUAL(onnx_export(import->module, wire_path("out.onnx"), NULL, NULL), GQAC_OK);
    wire_import_free(import);
    import = wire_import_path(wire_path("out.onnx"), NULL);
    CU_ASSERT_EQUAL_FATAL(import->status, GQAC_OK);
    g = import->module->graph;
    for (int i = 0; i < 3; i++)
        CU_ASSERT_STRING_EQUAL(g->result_names[i], names[i]);
    CU_ASSERT_STRING_EQUAL(g->inputs[0]->name, "x");
    wire_import_free(import);
    CU_ASSERT(settles(typed(wire_import_model(wire_small("Relu"), NULL))));
}

static void test_nested(void) {
    gqac_str node = wire_node("If", "c", "y");
    for (int i = 0; i < 2; i++) { /* one branch computes its result, the other returns x */
        gqac_str branch = {0};
        wire_message(&branch, 1, wire_node("Relu", "x", "t"));
        wire_message(&branch, 12, wire_value(i ? "t" : "x", 1, NULL));
        wire_message(&node, 5, wire_attr_graph(i ? "then_branch" : "else_branch", branch));
    }
    gqac_str graph = graph_of(node);
    wire_message(&graph, 11, wire_value("c", 9, ""));
    CU_ASSERT(settles(typed(wire_import_model(wire_model(graph), NULL))));
}

static void test_types(void) {
    static const int types[] = {1, 10, 16, 11, 3, 2, 5, 4, 6, 12, 7, 13, 9, 22, 21};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        gqac_dtype dtype = gqac_dtype_from_onnx(types[i]);
        gqac_tensor t = {.dtype = dtype, .rank = 1, .dims = {5}};
        gqac_str graph = {0};
        wire_message(&graph, 1, wire_node("Identity", "w", "y"));
        wire_message(&graph, 5,
                     wire_tensor("w", types[i], "5",
                                 "\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1"
                                 "\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0"
                                 "\1\0\1\0\1",
                                 gqac_tensor_bytes(&t)));
        wire_message(&graph, 12, wire_value("y", types[i], NULL));
        CU_ASSERT(settles(typed(wire_import_model(wire_model(graph), NULL))));
    }
}

static void test_refusals(void) {
    gqac_diag diag = {0};
    wire_import *import = typed(wire_import_model(wire_small("Relu"), NULL));
    ir_builder b = {.graph = import->module->graph, .diag = &diag};
    OP_BUILD(&b, "merge_heads", .in = {import->module->graph->inputs[0]});
    CU_ASSERT_EQUAL_FATAL(b.status, GQAC_OK);
    wire_write("out.onnx", "old", 3);
    CU_ASSERT_EQUAL(onnx_export(import->module, wire_path("out.onnx"), NULL, &diag),
                    GQAC_UNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "merge_heads"));
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.hint, "tidy"));
    wire_import_free(import);
    import = wire_import_model(wire_small("Relu"), NULL);
    import->module->graph->ret->inputs[0].value->type = ir_type_unknown();
    CU_ASSERT_EQUAL(onnx_export(import->module, wire_path("out.onnx"), NULL, &diag),
                    GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL(onnx_export(import->module, "/nowhere/out.onnx", NULL, &diag),
                    GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL(ir_graph_walk(import->module->graph, infer_one, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(onnx_export(import->module, "/nowhere/out.onnx", NULL, &diag), GQAC_IO);
    wire_import_free(import);
}

static int count_files(void) {
    DIR *dir = opendir(wire_folder());
    int n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void test_allocations(void) {
    wire_import *import = typed(wire_import_path(unit_path("test/models/llama/model.onnx"), NULL));
    const char *path = wire_path("kept.onnx");
    size_t live = gqac_alloc_live();
    wire_write("kept.onnx", "old", 3);
    int files = count_files();
    bool done = false;
    for (size_t n = 1; !done && n < 10000; n++) {
        gqac_alloc_fail_at(n, (int)(n % 2));
        gqac_status status = onnx_export(import->module, path, NULL, NULL);
        done = gqac_alloc_calls() < n;
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_EQUAL(status, done ? GQAC_OK : GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
        CU_ASSERT_EQUAL(count_files(), files);
        FILE *file = fopen(path, "rb");
        char text[4] = {0};
        CU_ASSERT_EQUAL(fread(text, 1, 3, file), 3);
        fclose(file);
        CU_ASSERT_EQUAL(strcmp(text, "old") == 0, !done);
    }
    CU_ASSERT(done);
    wire_import_free(import);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"models", test_models}, {"results", test_results},   {"nested", test_nested},
        {"types", test_types},   {"refusals", test_refusals}, {"allocations", test_allocations},
    };
    int code = unit_run("onnx_export", cases, sizeof cases / sizeof *cases, argc, argv);
    wire_clean();
    return code;
}
