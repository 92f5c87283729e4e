/* Tensors: every element type in every field that may contain it, small (in the message) and large
 * (left in the file), aligned and not; and contradictions, which are refused. */
#include "unit.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* y = Identity(w), so that any type can be used. */
static gqac_str model_of(gqac_str w) {
    gqac_str graph = {0};
    wire_message(&graph, 1, wire_node("Identity", "w", "y"));
    wire_message(&graph, 5, w);
    wire_message(&graph, 12, wire_value("y", 1, NULL));
    return wire_model(graph);
}

#define REFUSED(w, word) CU_ASSERT(wire_expect(model_of(w), GQAC_INVALID_MODEL, (word)))
#define TAKEN(w)         CU_ASSERT(wire_expect(model_of(w), GQAC_OK, ""))

/* Imports w, and compares its bytes; also checks their alignment. */
static bool gives(gqac_str w, const void *want, size_t bytes, size_t alignment) {
    wire_import *import = wire_import_model(model_of(w), NULL);
    bool ok = import->status == GQAC_OK && import->module->graph->n_constants == 1;
    if (ok) {
        const gqac_tensor *t = import->module->graph->constants[0]->constant;
        ok = gqac_tensor_bytes(t) == bytes && memcmp(t->data, want, bytes) == 0 &&
             (uintptr_t)t->data % alignment == 0;
    } else {
        printf("  %s (%s)\n", import->diag.what, import->diag.where);
    }
    wire_import_free(import);
    return ok;
}

/* ---- fields ------------------------------------------------------------------------------------
 */

typedef struct form {
    int type;       /* ONNX */
    uint32_t field; /* of typed data */
    size_t width;   /* bytes an element; 0: two elements a byte */
    int64_t least, most;
} form;

static const form forms[] = {
    {6, 5, 4, INT32_MIN, INT32_MAX},
    {5, 5, 2, INT16_MIN, INT16_MAX},
    {3, 5, 1, -128, 127},
    {4, 5, 2, 0, 65535},
    {2, 5, 1, 0, 255},
    {9, 5, 1, 0, 1},
    {10, 5, 2, 0, 65535},
    {16, 5, 2, 0, 65535},
    {7, 7, 8, INT64_MIN, INT64_MAX},
    {12, 11, 4, 0, UINT32_MAX},
    {13, 11, 8, 0, -1},
    {22, 5, 0, 0, 255},
    {21, 5, 0, 0, 255},
};

static int64_t value_at(const form *f, int i) {
    int64_t values[] = {f->least, f->most, 1, 0};
    return values[i % 4];
}

/* n entries, packed or one by one, of a tensor whose shape has `extra` more elements. */
static gqac_str typed(const form *f, int n, bool packed, int64_t extra) {
    char dims[32];
    snprintf(dims, sizeof dims, "%lld", (long long)(f->width ? n : 2 * n - 1) + (long long)extra);
    gqac_str w = wire_tensor("w", f->type, dims, NULL, 0), block = {0};
    for (int i = 0; i < n; i++) {
        if (packed)
            wire_varint(&block, (uint64_t)value_at(f, i));
        else
            wire_int(&w, f->field, value_at(f, i));
    }
    if (packed)
        wire_message(&w, f->field, block);
    return w;
}

static void test_ints(void) {
    static const int counts[] = {1, 3, 200}; /* 200 entries are a view of the file */
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++)
        for (int c = 0; c < 6; c++) {
            const form *f = &forms[k];
            size_t width = f->width ? f->width : 1;
            int n = counts[c % 3];
            unsigned char want[8 * 200];
            for (int i = 0; i < n; i++) {
                int64_t value = value_at(f, i);
                memcpy(want + (size_t)i * width, &value, width);
            }
            CU_ASSERT(gives(typed(f, n, c < 3, 0), want, (size_t)n * width, width));
            REFUSED(typed(f, n, c < 3, 2), "elements"); /* the shape has more elements */
            if (n > 2)
                REFUSED(typed(f, n, c < 3, -2), "elements");
        }
}

static void test_ranges(void) {
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        const form *f = &forms[k];
        char dims[] = "1";
        if (f->type == 6 || f->width == 8)
            continue; /* the wire type itself limits the values */
        for (int above = 0; above < 2; above++) {
            gqac_str w = wire_tensor("w", f->type, dims, NULL, 0);
            wire_int(&w, f->field, above ? f->most + 1 : f->least - 1);
            REFUSED(w, "range");
        }
    }
    gqac_str w = wire_tensor("w", 6, "1", NULL, 0);
    wire_int(&w, 5, INT64_C(1) << 31);
    REFUSED(w, "range");
    w = wire_tensor("w", 6, "100", NULL, 0);
    gqac_str block = {0};
    for (int i = 0; i < 100; i++)
        wire_varint(&block, UINT64_C(1) << 40);
    wire_message(&w, 5, block); /* left in the file, so checked when it is decoded */
    REFUSED(w, "range");
    w = wire_tensor("w", 6, "100", NULL, 0);
    block = (gqac_str){0};
    for (int i = 0; i < 99; i++)
        wire_varint(&block, 1);
    gqac_str_append_n(&block, "\x80", 1);
    wire_message(&w, 5, block);
    REFUSED(w, "varint");
}

static void test_floats(void) {
    float f32[40];
    double f64[40];
    for (int i = 0; i < 40; i++)
        f64[i] = f32[i] = 0.5f * (float)i - 3;
    static const char *const dims[] = {"3", "40"};
    for (int c = 0; c < 4; c++) {
        size_t n = c % 2 ? 40 : 3;
        gqac_str a = wire_tensor("w", 1, dims[c % 2], NULL, 0);
        gqac_str b = wire_tensor("w", 11, dims[c % 2], NULL, 0);
        if (c < 2) {
            wire_bytes(&a, 4, f32, n * 4);
            wire_bytes(&b, 10, f64, n * 8);
        }
        for (size_t i = 0; c >= 2 && i < n; i++) {
            wire_float(&a, 4, f32[i]);
            wire_tag(&b, 10, 1);
            gqac_str_append_n(&b, (const char *)&f64[i], 8);
        }
        CU_ASSERT(gives(a, f32, n * 4, 4));
        CU_ASSERT(gives(b, f64, n * 8, 8));
    }
    gqac_str w = wire_tensor("w", 1, "39", NULL, 0);
    wire_bytes(&w, 4, f32, sizeof f32);
    REFUSED(w, "elements");
}

/* Inline bytes at all alignments; names of different length shift them. */
static void test_raw(void) {
    double values[16];
    for (int i = 0; i < 16; i++)
        values[i] = i + 0.25;
    for (int shift = 0; shift < 9; shift++)
        for (int large = 0; large < 2; large++) {
            gqac_str w = wire_tensor("w", 11, large ? "16" : "2", NULL, 0);
            wire_bytes(&w, 12, "documentation", (size_t)shift);
            wire_bytes(&w, 9, values, large ? 128 : 16);
            CU_ASSERT(gives(w, values, large ? 128 : 16, 8));
        }
    static const struct {
        int type;
        const char *dims;
        size_t bytes;
    } right[] = {{1, "3", 12},
                 {1, "", 4},
                 {10, "3", 6},
                 {22, "3", 2},
                 {22, "1", 1},
                 {21, "4", 2},
                 {9, "2", 2},
                 {1, "0", 0},
                 {7, "0,5", 0},
                 {7, "5,0", 0},
                 {11, "1,1,1,1,1,1,1,1", 8}};
    char zeros[200] = {0};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        TAKEN(wire_tensor("w", right[i].type, right[i].dims, zeros, right[i].bytes));
        REFUSED(wire_tensor("w", right[i].type, right[i].dims, zeros, right[i].bytes + 1), "bytes");
        if (right[i].bytes)
            REFUSED(wire_tensor("w", right[i].type, right[i].dims, zeros, right[i].bytes - 1),
                    "bytes");
    }
    TAKEN(wire_tensor("w", 1, "0", NULL, 0));
    REFUSED(wire_tensor("w", 1, "1", NULL, 0), "bytes");
    REFUSED(wire_tensor("w", 9, "2", "\0\2", 2), "bool");
    REFUSED(wire_tensor("w", 1, "40", zeros, 159), "bytes");
    REFUSED(wire_tensor("w", 1, "40", zeros, 161), "bytes");
}

/* ---- contradictions ----------------------------------------------------------------------------
 */

static void test_shapes(void) {
    static const char *const huge[] = {"1099511627777",
                                       "1048577,1048576",
                                       "4294967296,4294967296",
                                       "4611686018427387904,4",
                                       "9223372036854775807,2",
                                       "2147483648,2147483648,4",
                                       "9223372036854775807,9223372036854775807",
                                       "9223372036854775807,3,0"};
    REFUSED(wire_tensor("w", 1, "-1", "abcd", 4), "dimension");
    REFUSED(wire_tensor("w", 1, "2,-9223372036854775808", "abcd", 4), "dimension");
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++)
        CU_ASSERT(
            wire_expect(model_of(wire_tensor("w", 2, huge[i], "abcd", 4)), GQAC_LIMIT, "2^40"));
    REFUSED(wire_tensor("w", 2, "1099511627776", "abcd", 4), "bytes");
    gqac_str w = wire_tensor("w", 13, "1099511627776", NULL, 0); /* too large to allocate */
    wire_int(&w, 11, 1);
    REFUSED(w, "elements");
}

static void test_fields(void) {
    static const uint32_t fields[] = {4, 5, 7, 9, 10, 11};
    char zeros[80] = {0};
    for (size_t a = 0; a < 6; a++)
        for (size_t b = 0; b < 6; b++)
            for (int large = 0; large < 4; large++) {
                gqac_str w = wire_tensor("w", 1, "2", NULL, 0);
                wire_bytes(&w, fields[a], zeros, large & 1 ? 80 : 8);
                wire_bytes(&w, fields[b], zeros, large & 2 ? 80 : 8);
                if (a == b) {
                    gqac_str_free(&w);
                    continue;
                }
                REFUSED(w, "two fields");
            }
    for (size_t a = 1; a < 6; a++) { /* f32 in the field of another type */
        gqac_str w = wire_tensor("w", 1, "2", NULL, 0);
        wire_bytes(&w, fields[a], zeros, 8);
        gqac_status status = fields[a] == 9 ? GQAC_OK : GQAC_INVALID_MODEL;
        CU_ASSERT(wire_expect(model_of(w), status, "field of another type"));
    }
    gqac_str w = wire_tensor("w", 999, "1", "abcd", 4);
    REFUSED(w, "element type 999");
    REFUSED(wire_tensor("w", 0, "1", "abcd", 4), "element type 0");
}

static void test_unsupported(void) {
    gqac_str w = wire_tensor("w", 8, "1", NULL, 0), graph = {0};
    wire_bytes(&w, 6, "text", 4);
    CU_ASSERT(wire_expect(model_of(w), GQAC_UNSUPPORTED, "STRING"));
    CU_ASSERT(wire_expect(model_of(wire_tensor("w", 17, "4", "abcd", 4)), GQAC_UNSUPPORTED,
                          "FLOAT8E4M3FN"));
    w = wire_tensor("w", 1, "1", "abcd", 4);
    wire_message(&w, 3, (gqac_str){0});
    CU_ASSERT(wire_expect(model_of(w), GQAC_UNSUPPORTED, "segment"));
    w = wire_tensor("s", 8, "1", NULL, 0); /* strings that nothing reads are harmless */
    wire_bytes(&w, 6, "text", 4);
    wire_message(&graph, 1, wire_node("Relu", "x", "y"));
    wire_message(&graph, 5, w);
    wire_message(&graph, 11, wire_value("x", 1, "B"));
    wire_message(&graph, 12, wire_value("y", 1, "B"));
    CU_ASSERT(wire_expect(wire_model(graph), GQAC_OK, ""));
}

/* ---- lone tensors ------------------------------------------------------------------------------
 */

static void test_read_tensor(void) {
    float values[40] = {1, 2, 3};
    for (int large = 0; large < 2; large++) {
        gqac_arena *arena = gqac_arena_create(0);
        gqac_tensor tensor;
        const char *name;
        gqac_diag diag = {0};
        gqac_str t = wire_tensor("an input", 1, large ? "40" : "3", values, large ? 160 : 12);
        wire_write("t.pb", t.text, t.length);
        gqac_str_free(&t);
        CU_ASSERT_EQUAL_FATAL(onnx_read_tensor(wire_path("t.pb"), arena, &tensor, &name, &diag),
                              GQAC_OK);
        CU_ASSERT_STRING_EQUAL(name, "an input");
        CU_ASSERT_EQUAL(memcmp(tensor.data, values, gqac_tensor_bytes(&tensor)), 0);
        t = wire_tensor("", 1, "4", values, 12);
        wire_write("t.pb", t.text, t.length);
        gqac_str_free(&t);
        CU_ASSERT_EQUAL(onnx_read_tensor(wire_path("t.pb"), arena, &tensor, &name, &diag),
                        GQAC_INVALID_INPUT);
        CU_ASSERT_EQUAL(diag.status, GQAC_INVALID_INPUT);
        t = wire_external("", 1, "4", "t.bin", "0", "16");
        wire_write("t.pb", t.text, t.length);
        gqac_str_free(&t);
        CU_ASSERT_EQUAL(onnx_read_tensor(wire_path("t.pb"), arena, &tensor, &name, &diag),
                        GQAC_INVALID_INPUT);
        CU_ASSERT_EQUAL(onnx_read_tensor(wire_path("none.pb"), arena, &tensor, &name, NULL),
                        GQAC_IO);
        gqac_arena_free(arena);
    }
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"ints", test_ints},
        {"ranges", test_ranges},
        {"floats", test_floats},
        {"raw", test_raw},
        {"shapes", test_shapes},
        {"fields", test_fields},
        {"unsupported", test_unsupported},
        {"read tensor", test_read_tensor},
    };
    int code = unit_run("onnx_tensors", cases, sizeof cases / sizeof *cases, argc, argv);
    wire_clean();
    return code;
}
