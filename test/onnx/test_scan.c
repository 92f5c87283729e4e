/* The pre-scan: what it refuses, every limit at its value and one above, what it omits, and that
 * neither it nor protobuf-c fails on arbitrary bytes. */
#include "onnx/scan.h"
#include "unit.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ProtobufCMessageDescriptor *const model_type = &onnx__model_proto__descriptor;
static const ProtobufCMessageDescriptor *const tensor_type = &onnx__tensor_proto__descriptor;

/* Scans from memory of exactly this size, and unpacks what passed, so that ASan detects every read
 * after the end. Frees the bytes. */
static gqac_status scan(gqac_str bytes, const ProtobufCMessageDescriptor *type, const char *word) {
    gqac_diag diag = {0};
    gqac_str thin = {0};
    unsigned char *exact = malloc(bytes.length ? bytes.length : 1);
    if (bytes.length)
        memcpy(exact, bytes.text, bytes.length);
    gqac_status status = onnx_scan(exact, bytes.length, type, ONNX_MAX_NODES, &thin, &diag);
    if (status == GQAC_OK) {
        gqac_arena *arena = gqac_arena_create(0);
        ProtobufCMessage *message;
        CU_ASSERT(thin.length <= bytes.length + 64);
        status = onnx_unpack(&thin, type, arena, &message, &diag);
        gqac_arena_free(arena);
    }
    if (status != GQAC_OK && word && !strstr(diag.what, word)) {
        printf("  wanted '%s', got: %s (%s)\n", word, diag.what, diag.where);
        CU_FAIL("another message");
    }
    gqac_str_free(&thin);
    gqac_str_free(&bytes);
    free(exact);
    return status;
}

#define OK(bytes)          CU_ASSERT_EQUAL(scan((bytes), model_type, NULL), GQAC_OK)
#define BAD(bytes, word)   CU_ASSERT_EQUAL(scan((bytes), model_type, (word)), GQAC_INVALID_MODEL)
#define LIMIT(bytes, word) CU_ASSERT_EQUAL(scan((bytes), model_type, (word)), GQAC_LIMIT)

static gqac_str raw(const char *bytes, size_t n) {
    gqac_str s = {0};
    gqac_str_append_n(&s, bytes, n);
    return s;
}
#define RAW(text) raw((text), sizeof(text) - 1)

/* ---- wire ------------------------------------------------------------------------------------ */

static void test_wire(void) {
    BAD(RAW(""), "empty");
    BAD(RAW("\x08"), "truncated varint");
    BAD(RAW("\x08\x80"), "truncated varint");
    OK(RAW("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    BAD(RAW("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), "64 bits");
    BAD(RAW("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"), "64 bits");
    BAD(RAW("\x00\x00"), "field number");
    OK(RAW("\x88\x80\x80\x80\x00\x0a")); /* a tag of five bytes */
    BAD(RAW("\x88\x80\x80\x80\x80\x00\x0a"), "field number");
    BAD(RAW("\x3a\x05\x0a"), "past the end"); /* graph is longer than the file */
    BAD(RAW("\x3a\xff\xff\xff\xff\x0f"), "past the end");
    BAD(RAW("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "past the end");
    BAD(RAW("\x3a\x81\x80\x80\x80\x80\x00\x0a"), "past the end"); /* length of six bytes */
    BAD(RAW("\x3b\x3c"), "group");
    BAD(RAW("\x3e\x00"), "wire type");
    BAD(RAW("\x3f\x00"), "wire type");
    BAD(RAW("\x39\x00\x00\x00"), "truncated number");
    BAD(RAW("\x3d\x00\x00"), "truncated number");
}

static void test_wire_types(void) {
    BAD(RAW("\x38\x01"), "wire type");             /* graph as a number */
    BAD(RAW("\x0a\x01\x0a"), "wire type");         /* IR version as bytes */
    BAD(RAW("\x0d\x00\x00\x00\x00"), "wire type"); /* and as a fixed number */
    BAD(RAW("\x10\x01"), "wire type");             /* producer name as a number */
    gqac_str t = {0};
    wire_int(&t, 9, 1); /* raw_data as a number */
    CU_ASSERT_EQUAL(scan(t, tensor_type, "wire type"), GQAC_INVALID_MODEL);
    t = (gqac_str){0};
    wire_bytes(&t, 4, "abc", 3); /* packed floats with an incomplete one */
    CU_ASSERT_EQUAL(scan(t, tensor_type, "whole"), GQAC_INVALID_MODEL);
    t = (gqac_str){0};
    wire_int(&t, 2, INT64_C(1) << 32); /* an int32 that does not fit */
    CU_ASSERT_EQUAL(scan(t, tensor_type, "out of range"), GQAC_INVALID_MODEL);
    t = (gqac_str){0};
    wire_int(&t, 2, -1);
    CU_ASSERT_EQUAL(scan(t, tensor_type, NULL), GQAC_OK);
    t = (gqac_str){0};
    wire_bytes(&t, 1, "\x01\x80", 2); /* packed dims, truncated */
    CU_ASSERT_EQUAL(scan(t, tensor_type, "truncated"), GQAC_INVALID_MODEL);
}

static void test_repeated(void) {
    gqac_str m = {0};
    wire_message(&m, 7, (gqac_str){0});
    wire_message(&m, 7, (gqac_str){0});
    BAD(m, "twice");
    m = RAW("\x08\x0a\x08\x0a");
    BAD(m, "twice");
    gqac_str dim = {0}, shape = {0};
    wire_int(&dim, 1, 1);
    wire_text(&dim, 2, "B");
    wire_message(&shape, 1, dim);
    CU_ASSERT_EQUAL(scan(shape, &onnx__tensor_shape_proto__descriptor, "a oneof a second time"),
                    GQAC_INVALID_MODEL);
}

static void test_strings(void) {
    static const struct {
        const char *text;
        size_t n;
    } wrong[] = {{"a\0b", 3},         {"\xff", 1},     {"\xc0\x80", 2},
                 {"\xed\xa0\x80", 3}, {"\xe2\x82", 2}, {"\xf4\x90\x80\x80", 4}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (uint32_t field = 1; field <= 8; field++) { /* every string of a node */
            gqac_str node = {0}, graph = {0}, model = {0};
            if (field == 5 || field == 6)
                continue;
            wire_bytes(&node, field, wrong[i].text, wrong[i].n);
            wire_message(&graph, 1, node);
            wire_message(&model, 7, graph);
            BAD(model, "UTF-8");
        }
    char *name = calloc(1, ONNX_MAX_NAME + 2);
    for (size_t n = ONNX_MAX_NAME; n <= ONNX_MAX_NAME + 1; n++) {
        gqac_str model = {0};
        memset(name, 'n', n);
        wire_bytes(&model, 2, name, n);
        CU_ASSERT_EQUAL(scan(model, model_type, "1024"), n == ONNX_MAX_NAME ? GQAC_OK : GQAC_LIMIT);
    }
    free(name);
}

/* ---- limits ------------------------------------------------------------------------------------
 */

/* `n` copies of a field with these bytes. */
static gqac_str copies(uint32_t field, const char *bytes, size_t length, size_t n) {
    gqac_str s = {0};
    for (size_t i = 0; i < n; i++)
        wire_bytes(&s, field, bytes, length);
    return s;
}

static gqac_str in_model(gqac_str graph) {
    gqac_str model = {0};
    wire_message(&model, 7, graph);
    return model;
}

static gqac_str in_node(gqac_str node) {
    gqac_str graph = {0};
    wire_message(&graph, 1, node);
    return in_model(graph);
}

/* Nested graphs; the main graph has depth 0. */
static gqac_str nested(int depth) {
    gqac_str graph = {0};
    for (int i = 0; i < depth; i++) {
        gqac_str node = {0}, outer = {0};
        wire_message(&node, 5, wire_attr_graph("then_branch", graph));
        wire_message(&outer, 1, node);
        graph = outer;
    }
    return in_model(graph);
}

/* Nested messages, a sequence of sequences; the outermost ValueInfoProto has depth 1. */
static gqac_str deep_type(int depth) {
    gqac_str type = {0};
    for (int i = depth - 1; i > 1; i -= 2) {
        gqac_str outer = {0}, sequence = {0};
        wire_message(&sequence, 1, type);
        wire_message(&outer, 4, sequence);
        type = outer;
    }
    gqac_str value = {0};
    if (depth % 2) {
        wire_append(&value, type);
        return value; /* the TypeProto itself */
    }
    wire_message(&value, 2, type);
    return value;
}

static void test_depth(void) {
    const ProtobufCMessageDescriptor *value = &onnx__value_info_proto__descriptor;
    const ProtobufCMessageDescriptor *type = &onnx__type_proto__descriptor;
    OK(nested(16));
    LIMIT(nested(17), "depth");
    LIMIT(nested(5000), "depth");
    CU_ASSERT_EQUAL(scan(deep_type(99), type, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(scan(deep_type(100), value, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(scan(deep_type(101), type, "depth"), GQAC_LIMIT);
    CU_ASSERT_EQUAL(scan(deep_type(102), value, "depth"), GQAC_LIMIT);
    CU_ASSERT_EQUAL(scan(deep_type(9000), value, "depth"), GQAC_LIMIT);
}

static void test_counts(void) {
    OK(in_model(copies(1, "", 0, 300000)));
    LIMIT(in_model(copies(1, "", 0, ONNX_MAX_NODES + 1)), "nodes");
    LIMIT(in_model(copies(5, "", 0, ONNX_MAX_INITIALIZERS + 1)), "initializers");
    OK(copies(8, "", 0, ONNX_MAX_OPSETS));
    LIMIT(copies(8, "", 0, ONNX_MAX_OPSETS + 1), "opset_import");
    OK(copies(25, "", 0, ONNX_MAX_FUNCTIONS));
    LIMIT(copies(25, "", 0, ONNX_MAX_FUNCTIONS + 1), "functions");
    OK(in_node(copies(5, "", 0, ONNX_MAX_ATTRIBUTES)));
    LIMIT(in_node(copies(5, "", 0, ONNX_MAX_ATTRIBUTES + 1)), "attribute");
    for (size_t over = 0; over < 2; over++) { /* inputs and outputs are counted together */
        gqac_str node = copies(1, "a", 1, 4000);
        wire_append(&node, copies(2, "b", 1, 96 + over));
        CU_ASSERT_EQUAL(scan(in_node(node), model_type, "4096"), over ? GQAC_LIMIT : GQAC_OK);
    }
    OK(copies(100, "unknown", 7, ONNX_MAX_UNKNOWN));
    LIMIT(copies(100, "unknown", 7, ONNX_MAX_UNKNOWN + 1), "unknown fields");
    for (int rank = 8; rank <= 9; rank++) {
        gqac_str one = {0}, packed = {0};
        for (int i = 0; i < rank; i++)
            wire_int(&one, 1, 1);
        wire_bytes(&packed, 1, "\1\1\1\1\1\1\1\1\1", (size_t)rank);
        CU_ASSERT_EQUAL(scan(one, tensor_type, "rank"), rank == 8 ? GQAC_OK : GQAC_LIMIT);
        CU_ASSERT_EQUAL(scan(packed, tensor_type, "rank"), rank == 8 ? GQAC_OK : GQAC_LIMIT);
        gqac_str shape = copies(1, "", 0, (size_t)rank);
        CU_ASSERT_EQUAL(scan(shape, &onnx__tensor_shape_proto__descriptor, "rank"),
                        rank == 8 ? GQAC_OK : GQAC_LIMIT);
    }
}

/* A million empty nodes are 2 MB of file and 84 MB unpacked: more than the budget. */
static void test_budget(void) {
    LIMIT(in_model(copies(1, "", 0, ONNX_MAX_NODES)), "MiB");
}

/* A length is checked before memory is reserved for it. */
static void test_file_size(void) {
    gqac_diag diag = {0};
    gqac_str thin = {0};
    unsigned char byte = 0;
    CU_ASSERT_EQUAL(onnx_scan(&byte, (size_t)1 << 31, model_type, ONNX_MAX_NODES, &thin, &diag),
                    GQAC_LIMIT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "2 GiB"));
}

/* ---- thinning ----------------------------------------------------------------------------------
 */

static const Onnx__TensorProto *thinned(gqac_str bytes, gqac_arena *arena, size_t *length) {
    gqac_str thin = {0};
    ProtobufCMessage *message = NULL;
    CU_ASSERT_EQUAL(onnx_scan((const unsigned char *)bytes.text, bytes.length, tensor_type,
                              ONNX_MAX_NODES, &thin, NULL),
                    GQAC_OK);
    *length = thin.length;
    CU_ASSERT_EQUAL(onnx_unpack(&thin, tensor_type, arena, &message, NULL), GQAC_OK);
    gqac_str_free(&thin);
    return (const Onnx__TensorProto *)message;
}

static void test_views(void) {
    static const uint32_t fields[] = {4, 5, 7, 9, 10, 11};
    char block[72];
    memset(block, 1, sizeof block);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        for (size_t n = 56; n <= 72; n += 8) {
            gqac_arena *arena = gqac_arena_create(0);
            gqac_str t = {0};
            size_t offset = 0, length = 0, total;
            wire_int(&t, 2, 1);
            wire_bytes(&t, fields[i], block, n);
            const Onnx__TensorProto *proto = thinned(t, arena, &total);
            bool view = onnx_view(proto, fields[i], &offset, &length);
            CU_ASSERT_EQUAL(view, n >= ONNX_VIEW_BYTES);
            CU_ASSERT_TRUE(!view || (length == n && offset == t.length - n && total < 30));
            CU_ASSERT_FALSE(onnx_view(proto, fields[i] + 1, &offset, &length));
            CU_ASSERT_EQUAL(proto->has_raw_data, !view && fields[i] == 9);
            gqac_str_free(&t);
            gqac_arena_free(arena);
        }
    gqac_str t = {0}; /* such a note in the file itself is an ordinary unknown field */
    wire_bytes(&t, 1009, block, 16);
    wire_bytes(&t, 9, "abcd", 4);
    gqac_arena *arena = gqac_arena_create(0);
    size_t offset, length, total;
    const Onnx__TensorProto *proto = thinned(t, arena, &total);
    CU_ASSERT_FALSE(onnx_view(proto, 9, &offset, &length));
    CU_ASSERT_EQUAL(proto->base.n_unknown_fields, 0);
    gqac_str_free(&t);
    gqac_arena_free(arena);
    t = (gqac_str){0};
    wire_bytes(&t, 4, block, 72);
    wire_bytes(&t, 4, block, 8);
    CU_ASSERT_EQUAL(scan(t, tensor_type, "split"), GQAC_INVALID_MODEL);
    t = (gqac_str){0};
    wire_bytes(&t, 4, block, 8);
    wire_bytes(&t, 4, block, 8);
    CU_ASSERT_EQUAL(scan(t, tensor_type, NULL), GQAC_OK);
}

/* Omitted parts are gone, but their messages were checked. */
static void test_left_out(void) {
    gqac_str graph = {0}, thin = {0};
    wire_message(&graph, 13, wire_value("seen", 1, "B"));
    wire_text(&graph, 10, "a doc");
    wire_text(&graph, 77, "unknown");
    gqac_str model = in_model(graph);
    wire_bytes(&model, 6, "\xff", 1); /* nothing reads doc strings */
    CU_ASSERT_EQUAL(onnx_scan((const unsigned char *)model.text, model.length, model_type,
                              ONNX_MAX_NODES, &thin, NULL),
                    GQAC_OK);
    CU_ASSERT_EQUAL(thin.length, 2); /* an empty graph */
    gqac_str_free(&thin);
    gqac_str_free(&model);
    graph = (gqac_str){0};
    wire_message(&graph, 13, wire_value("se\xff", 1, "B"));
    BAD(in_model(graph), "UTF-8");
    graph = (gqac_str){0};
    wire_message(&graph, 13, deep_type(200));
    LIMIT(in_model(graph), "depth");
}

/* ---- mutations ---------------------------------------------------------------------------------
 */

static uint64_t random_state = 0x9E3779B97F4A7C15;

static uint32_t random_below(uint32_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % n;
}

static gqac_str seed(void) {
    gqac_str graph = {0}, inner = {0}, model;
    float data[24] = {1.0f};
    wire_message(&inner, 1, wire_node("Relu", "a", "t"));
    wire_message(&inner, 12, wire_value("t", 1, "B,4"));
    gqac_str branch = wire_node("If", "c", "y");
    wire_message(&branch, 5, wire_attr_graph("then_branch", inner));
    wire_message(&graph, 1, wire_node("Add", "x w", "a"));
    wire_message(&graph, 1, branch);
    wire_text(&graph, 2, "g");
    wire_message(&graph, 5, wire_tensor("w", 1, "6,4", data, sizeof data));
    wire_message(&graph, 5, wire_external("e", 1, "6,4", "w.bin", "0", "96"));
    wire_message(&graph, 11, wire_value("x", 1, "B,4"));
    wire_message(&graph, 12, wire_value("y", 1, "B,4"));
    wire_message(&graph, 13, wire_value("a", 1, "B,4"));
    model = wire_model(graph);
    return model;
}

static void mutate(gqac_str *s) {
    for (uint32_t n = 1 + random_below(4); n > 0 && s->length > 1; n--) {
        size_t at = random_below((uint32_t)s->length);
        switch (random_below(5)) {
        case 0:
            s->text[at] = (char)random_below(256);
            break;
        case 1:
            s->text[at] = (char)(s->text[at] ^ (1 << random_below(8)));
            break;
        case 2:
            s->length = at;
            break;
        case 3: /* duplicate a piece */
            gqac_str_append_n(s, "", 0);
            if (at + 8 < s->length)
                memmove(s->text + at, s->text + random_below((uint32_t)s->length - 8), 8);
            break;
        default:
            s->text[at] = (char)0xff;
        }
    }
}

static void test_mutations(void) {
    gqac_str original = seed();
    int runs = unit_full() ? 2000000 : 60000, accepted = 0;
    for (int i = 0; i < runs; i++) {
        gqac_str copy = raw(original.text, original.length);
        mutate(&copy);
        gqac_status status = scan(copy, model_type, NULL);
        CU_ASSERT(status == GQAC_OK || status == GQAC_INVALID_MODEL || status == GQAC_LIMIT);
        accepted += status == GQAC_OK;
    }
    CU_ASSERT(accepted > 0 && accepted < runs);
    gqac_str_free(&original);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"wire", test_wire},         {"wire types", test_wire_types}, {"repeated", test_repeated},
        {"strings", test_strings},   {"depth", test_depth},           {"counts", test_counts},
        {"budget", test_budget},     {"file size", test_file_size},   {"views", test_views},
        {"left out", test_left_out}, {"mutations", test_mutations},
    };
    return unit_run("onnx_scan", cases, sizeof cases / sizeof *cases, argc, argv);
}
