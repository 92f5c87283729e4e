/* The text form: golden text, round trips of built modules, constants by bits, malformed texts,
 * random damage, failing allocations. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

/* Every construct once, in canonical form. */
static const char golden[] =
    "graph @main(%x: f16[B,S,64], %\"past.0/key\": f16[B,8,P,128] into 2, %t: token, %u: ?, "
    "%w: f32[*], %cond: bool[], %len: i32[?,4]) {\n"
    "  const %one: i64[] = 1\n"
    "  const %f: f32[2,2] = [1.0, -0.0, nan, -inf] into 7\n"
    "  const %none: f32[0] = []\n"
    "  const %odd: f32[1] = hex \"0100c07f\"\n"
    "  const %large: f16[4096,64] = sha256 0123456789abcdef\n"
    "  const %\"quoted \\\"name\\\"\": u4[3] = [1, 15, 0]\n"
    "  %y, _, %v = com.microsoft.GroupQueryAttention %x, _, _, %\"past.0/key\", _, %len, %one "
    "{num_heads=32, kv_num_heads=8, scale=0.125} : f16[B,S,4096], _, f16[B,8,P+S,128] "
    "into 3, _, 4 via \"ref.generic\" loc(\"/layers.0/attn\")\n"
    "  %k, %z = kitchen {i=-9, f=inf, s=\"a\\n\\\"b\\\\\", ints=[1,-2], floats=[0.5,nan], "
    "strings=[\"x\",\"\"], t=i8[3] [-1, 0, 127], d=bf16} : ?[B], ?\n"
    "  %t2 = append %t, %k : token\n"
    "  %r = If %cond {then_branch=graph @then() {\n"
    "    const %c: i64[1] = [5]\n"
    "    %r1 = Add %c, %y : f16[max(P,S),(P+S+3)/4]\n"
    "    return %r1\n"
    "  }, else_branch=graph @\"else/1\"() {\n"
    "    return %x\n"
    "  }} : f16[`odd name`]\n"
    "  kitchen %r\n"
    "  return %r as \"logits\", %t2, %r, %y as \"present.0.key\"\n"
    "}\n";

static gqac_status parse(gqac_arena *arena, const char *text, ir_module **module, gqac_diag *diag) {
    return ir_parse(arena, text, fixture_lookup, module, diag);
}

/* Parses, verifies, prints; the printed text must equal the original. */
static bool round_trip(const char *text, ir_print_mode mode) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_diag diag = {0};
    gqac_str out = {0};
    ir_module *module = NULL;
    bool same = false;
    gqac_status status = parse(arena, text, &module, &diag);
    if (status == GQAC_OK)
        status = ir_verify(module, &diag);
    if (status == GQAC_OK) {
        ir_print(&out, module, mode);
        same = !out.failed && strcmp(out.text, text) == 0;
    }
    if (!same)
        printf("    %s %s\n%s---\n%s", diag.where, diag.what, out.text ? out.text : "", text);
    gqac_str_free(&out);
    gqac_arena_free(arena);
    return same;
}

static void test_golden(void) {
    CU_ASSERT(round_trip(golden, IR_PRINT_DIGEST));
    CU_ASSERT(round_trip("graph @g() {\n  return\n}\n", IR_PRINT_FULL));
}

static void test_golden_structure(void) {
    gqac_arena *arena = gqac_arena_create(0);
    ir_module *module = NULL;
    CU_ASSERT_EQUAL_FATAL(parse(arena, golden, &module, NULL), GQAC_OK);
    const ir_graph *g = module->graph;
    const ir_node *gqa = g->first, *k = gqa->next, *branch = k->next->next;
    CU_ASSERT(g->n_inputs == 7 && g->n_constants == 6 && g->ret->n_inputs == 4);
    CU_ASSERT(g->inputs[1]->slot == 2 && g->constants[1]->slot == 7 && g->inputs[0]->slot == -1);
    CU_ASSERT(gqa->op == &op_gqa && gqa->n_inputs == 7 && !ir_node_input(gqa, 1));
    CU_ASSERT(ir_attr_int(gqa, "local_window_size") == -1 && ir_attr_is_set(gqa, "do_rotary"));
    CU_ASSERT_FALSE(ir_attr_is_set(k, "g"));
    CU_ASSERT_STRING_EQUAL(gqa->kernel, "ref.generic");
    CU_ASSERT_STRING_EQUAL(gqa->name, "/layers.0/attn");
    CU_ASSERT(gqa->outputs[2]->slot == 4 && !gqa->outputs[1]);
    CU_ASSERT(k->n_inputs == 0 && k->n_outputs == 2);
    CU_ASSERT_STRING_EQUAL(ir_attr_get(k, "s")->s, "a\n\"b\\");
    CU_ASSERT_EQUAL(ir_attr_get(k, "d")->dtype, GQAC_BF16);
    CU_ASSERT_EQUAL(((const int8_t *)ir_attr_get(k, "t")->tensor->data)[0], -1);
    CU_ASSERT_EQUAL(ir_attr_get(branch, "else_branch")->graph->parent, branch);
    CU_ASSERT(!g->constants[4]->constant->data && g->constants[4]->digest);
    CU_ASSERT_STRING_EQUAL(g->result_names[3], "present.0.key");
    CU_ASSERT_STRING_EQUAL(g->result_names[2], "r");
    gqac_arena_free(arena);
}

/* Text that is not canonical can be parsed too. */
static void test_free_form(void) {
    static const char *const cases[][2] = {
        {"// head\ngraph@g(%x:f32[ S+P , 2*3 ]){//\nreturn%x}// end", "f32[P+S,6]"},
        {"graph @g ( %x : f32[B // batch\n,S] )\n{ return %x\n}\n\n", "f32[B,S]"},
        {"graph @g(%x: ?[*]) {return %x as \"x\"}", "?"},
        {"graph @g(%\"x\": f32[]) {return %x}", "f32[]"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        gqac_arena *arena = gqac_arena_create(0);
        gqac_diag diag = {0};
        gqac_str out = {0};
        char expected[128];
        ir_module *module = NULL;
        CU_ASSERT_EQUAL(parse(arena, cases[i][0], &module, &diag), GQAC_OK);
        if (module)
            ir_print(&out, module, IR_PRINT_FULL);
        snprintf(expected, sizeof expected, "graph @g(%%x: %s) {\n  return %%x\n}\n", cases[i][1]);
        CU_ASSERT_STRING_EQUAL(out.text ? out.text : diag.what, expected);
        gqac_str_free(&out);
        gqac_arena_free(arena);
    }
}

/* ---- built modules ------------------------------------------------------- */

static gqac_tensor random_tensor(gqac_arena *arena, uint64_t *seed, gqac_dtype dtype) {
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 16, 17, 33};
    gqac_tensor t = {.dtype = dtype, .rank = (int)(random_u32(seed) % 3)};
    for (int i = 0; i < t.rank; i++)
        t.dims[i] = sizes[random_u32(seed) % COUNT(sizes)];
    size_t bytes = gqac_tensor_bytes(&t);
    unsigned char *data = gqac_arena_calloc(arena, bytes + 1, 1);
    /* Half of the tensors contain small whole bytes, so that bools and floats are sometimes
     * decimal. */
    bool tame = random_u32(seed) % 2;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(tame ? random_u32(seed) % 2 : random_u32(seed));
    t.data = data;
    return t;
}

/* A random module over all constructs; the values %a.. are reused as operands. */
static ir_module *random_module(gqac_arena *arena, uint64_t *seed) {
    static const char *const odd[] = {"x", "a b", "1", "\"", "\n\x01\xff", "\xc3\xa9", "_", "a.b"};
    ir_module *module = ir_module_create(arena, NULL);
    ir_graph *graph = module->graph = ir_graph_create(module, odd[random_u32(seed) % COUNT(odd)]);
    ir_value *pool[64];
    size_t n = 0;
    const ir_dim *dims[] = {ir_dim_symbol(module->dims, "T"), NULL,
                            ir_dim_symbol(module->dims, odd[random_u32(seed) % COUNT(odd)])};
    ir_type type = ir_type_make(module, GQAC_F32, (int)(random_u32(seed) % 4), dims);
    pool[n++] = ir_graph_add_input(graph, odd[random_u32(seed) % COUNT(odd)], type);
    for (int i = 0; i < 12; i++) {
        gqac_dtype dtype = (gqac_dtype)(1 + random_u32(seed) % (GQAC_TOKEN - 1));
        gqac_tensor t = random_tensor(arena, seed, dtype);
        pool[n++] = ir_graph_add_constant(graph, odd[random_u32(seed) % COUNT(odd)], &t);
    }
    ir_builder b = {.graph = graph};
    for (int i = 0; i < 20; i++) {
        ir_value *in[4];
        for (int j = 0; j < 4; j++)
            in[j] = pool[random_u32(seed) % n];
        int n_in = 1 + (int)(random_u32(seed) % 4);
        ir_node *node = ir_build(&b, &op_concat, odd[random_u32(seed) % COUNT(odd)], n_in, in, 1);
        ir_attr_set_int(node, "axis", (int64_t)random_u32(seed) - 4);
        if (random_u32(seed) % 3 == 0) {
            node = ir_build(&b, &op_kitchen, NULL, 1, in, 3);
            gqac_tensor t = random_tensor(arena, seed, GQAC_BOOL);
            ir_attr_set_tensor(node, "t", &t);
            ir_attr_set_string(node, "s", odd[random_u32(seed) % COUNT(odd)]);
            ir_attr_set_strings(node, "strings", random_u32(seed) % COUNT(odd), odd);
            ir_attr_set_float(node, "f", (float)random_u32(seed) / 3e5f);
            node->kernel = random_u32(seed) % 2 ? "ref.generic" : NULL;
            node->outputs[1] = NULL;
        }
        ir_value *out = ir_node_output(node, 0);
        out->slot = (int)(random_u32(seed) % 5) - 1;
        out->type = random_u32(seed) % 2 ? type : ir_type_unknown();
        pool[n++] = out;
    }
    ir_graph_set_results(graph, 2, &pool[n - 2], (const char *[]){odd[random_u32(seed) % 4], NULL});
    return module;
}

static bool same_constants(const ir_module *a, const ir_module *b) {
    for (int i = 0; i < a->graph->n_constants; i++) {
        const gqac_tensor *x = a->graph->constants[i]->constant;
        const gqac_tensor *y = b->graph->constants[i]->constant;
        if (gqac_tensor_bytes(x) && memcmp(x->data, y->data, gqac_tensor_bytes(x)) != 0)
            return false;
    }
    return true;
}

static void test_built(void) {
    uint64_t seed = 4;
    for (int round = 0; round < 300; round++) {
        gqac_arena *arena = gqac_arena_create(0);
        ir_module *module = random_module(arena, &seed), *again = NULL;
        gqac_str digest = {0}, full = {0};
        CU_ASSERT_EQUAL_FATAL(ir_verify(module, NULL), GQAC_OK);
        ir_print(&digest, module, IR_PRINT_DIGEST);
        ir_print(&full, module, IR_PRINT_FULL);
        CU_ASSERT(round_trip(digest.text, IR_PRINT_DIGEST));
        CU_ASSERT(round_trip(digest.text, IR_PRINT_FULL));
        CU_ASSERT(round_trip(full.text, IR_PRINT_FULL));
        CU_ASSERT_EQUAL_FATAL(parse(arena, full.text, &again, NULL), GQAC_OK);
        CU_ASSERT(same_constants(module, again));
        gqac_str_free(&digest);
        ir_print(&digest, again, IR_PRINT_DIGEST);
        gqac_str_free(&full);
        ir_print(&full, module, IR_PRINT_DIGEST);
        CU_ASSERT_STRING_EQUAL(digest.text, full.text);
        gqac_str_free(&digest);
        gqac_str_free(&full);
        gqac_arena_free(arena);
    }
}

/* Every element of the narrow types, in a constant of its own, keeps its bits. */
static void test_bits(void) {
    static const gqac_dtype narrow[] = {GQAC_F16, GQAC_BF16, GQAC_I8, GQAC_U8, GQAC_BOOL, GQAC_I16};
    for (size_t d = 0; d < COUNT(narrow); d++) {
        gqac_arena *arena = gqac_arena_create(0);
        ir_module *module = ir_module_create(arena, NULL), *again = NULL;
        module->graph = ir_graph_create(module, "g");
        unsigned end = 1u << gqac_dtype_bits(narrow[d]);
        uint16_t *bits = gqac_arena_alloc(arena, 2 * (size_t)end);
        for (unsigned i = 0; i < end; i++) {
            bits[i] = (uint16_t)i;
            gqac_tensor t = {.dtype = narrow[d], .data = &bits[i]};
            ir_graph_add_constant(module->graph, "c", &t);
        }
        gqac_str text = {0};
        ir_print(&text, module, IR_PRINT_FULL);
        CU_ASSERT_EQUAL_FATAL(parse(arena, text.text, &again, NULL), GQAC_OK);
        CU_ASSERT(same_constants(module, again));
        gqac_str_free(&text);
        gqac_arena_free(arena);
    }
}

static void test_wide(void) {
    static const char text[] = "graph @g() {\n"
                               "  const %a: u64[2] = [0, 18446744073709551615]\n"
                               "  const %b: i64[2] = [-9223372036854775808, 9223372036854775807]\n"
                               "  const %c: f64[5] = [1.0, -0.0, nan, -inf, 0.5]\n"
                               "  const %d: f64[1] = hex \"9a9999999999b93f\"\n"
                               "  const %e: i4[3] = [-8, 7, -1]\n"
                               "  const %f: u4[3] = hex \"ff1f\"\n"
                               "  const %g: bool[2] = [0, 1]\n"
                               "  const %h: bool[2] = hex \"0002\"\n"
                               "  const %i: f16[3] = [65504.0, 5.9604645e-08, inf]\n"
                               "  const %j: bf16[1] = [3.3895314e+38]\n"
                               "  const %k: f32[2] = [1e-45, 3.4028235e+38]\n"
                               "  return\n"
                               "}\n";
    gqac_arena *arena = gqac_arena_create(0);
    ir_module *module = NULL;
    gqac_diag diag = {0};
    gqac_status status = parse(arena, text, &module, &diag);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    CU_ASSERT_EQUAL(((const double *)module->graph->constants[3]->constant->data)[0], 0.1);
    CU_ASSERT_EQUAL(((const uint64_t *)module->graph->constants[0]->constant->data)[1], UINT64_MAX);
    gqac_str once = {0};
    ir_print(&once, module, IR_PRINT_FULL);
    CU_ASSERT(round_trip(once.text, IR_PRINT_FULL));
    gqac_str_free(&once);
    /* A decimal double is read as a double, not through a float. */
    status = parse(arena, "graph @g() { const %d: f64[] = 0.1 return }", &module, NULL);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    CU_ASSERT_EQUAL(((const double *)module->graph->constants[0]->constant->data)[0], 0.1);
    gqac_arena_free(arena);
}

/* ---- malformed ----------------------------------------------------------- */

/* Bodies of `graph @g(%x: f32[B], %t: token, %c: bool[]) {`; the error is on line 2 and has this
 * text. */
static const char *const bodies[][2] = {
    {"", "expected an op, but the text ends"},
    {"return", "expected '%'"},
    {"return }}", "after the end of the graph"},
    {"return %", "a name"},
    {"return %y }", "not defined"},
    {"return _ }", "absent"},
    {"return %x as logits }", "quoted string"},
    {"return %x, }", "expected '%'"},
    {"return %t, %t }", "used twice"},
    {"const", "expected '%'"},
    {"const %k", "expected ':'"},
    {"const %k: f32[2] return }", "expected '='"},
    {"const %k: f32[2] = return }", "expected '['"},
    {"const %k: f32[2] = [1.0] return }", "expected ','"},
    {"const %k: f32[2] = [1.0, 2.0, 3.0] return }", "expected ']'"},
    {"const %k: f32[B] = [1.0] return }", "dimensions that are numbers"},
    {"const %k: f32[*] = [1.0] return }", "dimensions that are numbers"},
    {"const %k: ? = 1 return }", "dimensions that are numbers"},
    {"const %k: token = 1 return }", "dimensions that are numbers"},
    {"const %k: f32[1] = [1.0.0] return }", "not a 32-bit float"},
    {"const %k: f32[1] = [1e99] return }", "not a 32-bit float"},
    {"const %k: f32[1] = [-nan] return }", "not a 32-bit float"},
    {"const %k: f64[1] = [1e999] return }", "expected a finite 64-bit float"},
    {"const %k: f16[1] = [0.1] return }", "represented exactly in f16"},
    {"const %k: bf16[1] = [0.1] return }", "represented exactly in bf16"},
    {"const %k: i8[1] = [128] return }", "not in the range"},
    {"const %k: u4[1] = [16] return }", "not in the range"},
    {"const %k: u8[1] = [-1] return }", "not in the range"},
    {"const %k: bool[1] = [2] return }", "not in the range"},
    {"const %k: i64[1] = [9223372036854775808] return }", "out of range"},
    {"const %k: u64[1] = [18446744073709551616] return }", "out of range"},
    {"const %k: i64[1] = [1x] return }", "unexpected 'x'"},
    {"const %k: i64[-1] = [] return }", "out of range"},
    {"const %k: u8[1099511627776,2] = sha256 0123456789abcdef return }", "out of range"},
    {"const %k: u8[1000000] = [1, 2] return }", "ends before"},
    {"const %k: u8[1000000] = hex \"00\" return }", "ends before"},
    {"const %k: u8[2] = hex \"00\"     return }", "hex digits in lower case"},
    {"const %k: u8[2] = hex \"0011223344\" return }", "expected '\"'"},
    {"const %k: u8[1] = hex \"0G\" return }", "hex digits in lower case"},
    {"const %k: u8[1] = hex 00 return }", "expected '\"'"},
    {"const %k: u8[99] = sha256 0123456789abcde return }", "hex digits"},
    {"const %k: u8[0] = sha256 0123456789abcdef return }", "expected '['"},
    {"const %x: u8[1] = [1] return }", "defined twice"},
    {"const %k: u8[1] = [1] into -1 return }", "not in the range"},
    {"const %k: f32[1,1,1,1,1,1,1,1,1] = [1.0] return }", "at most 8"},
    {"const %k: f33[1] = [1.0] return }", "not an element type"},
    {"const %k: none[1] = [1.0] return }", "written '?'"},
    {"const %k: f32 = 1.0 return }", "expected '['"},
    {"%y = Neg %x : f32[B] const %k: u8[1] = [1] return }", "unknown op 'const'"},
    {"%y = : f32[B]", "expected an op"},
    {"%y Neg %x", "expected '='"},
    {"%y, = Neg %x", "expected '%'"},
    {"%y = Nag %x : f32[B]", "unknown op 'Nag'"},
    {"%y = org.Neg %x : f32[B]", "unknown op 'org.Neg'"},
    {"%y = gqac.return %x : f32[B]", "unknown op"},
    {"%y = Neg : f32[B]", "at least 1 inputs"},
    {"%y = Neg %x, %x : f32[B]", "at most 1 inputs"},
    {"%y = Neg _ : f32[B]", "not optional"},
    {"%y = Concat %x, _ {axis=0} : f32[B]", "not optional"},
    {"%y, %z = Neg %x : f32[B], f32[B]", "at most 1 outputs"},
    {"Neg %x", "at least 1 outputs"},
    {"%x = Neg %x : f32[B]", "defined twice"},
    {"%y, %y = kitchen : ?, ?", "defined twice"},
    {"%y = Neg %y : f32[B]", "not defined"},
    {"%y = Neg % x : f32[B]", "a name"},
    {"%y = Neg %\"\" : f32[B]", "not defined"},
    {"%\"\" = Neg %x : f32[B]", "expected the name"},
    {"%y = Neg %x", "expected ':'"},
    {"%y = Neg %x : _", "element type"},
    {"_ = Neg %x : f32[B]", "expected '_'"},
    {"%y, %z = kitchen : ? return }", "expected ','"},
    {"%y = Neg %x : f32[B", "expected ']'"},
    {"%y = Neg %x : f32[B+]", "expected a dimension"},
    {"%y = Neg %x : f32[B,]", "expected a dimension"},
    {"%y = Neg %x : f32[9223372036854775808]", "expected a dimension"},
    {"%y = Concat %x : f32[B]", "needs the attribute 'axis'"},
    {"%y = Concat %x {} : f32[B]", "name of an attribute"},
    {"%y = Concat %x {axis} : f32[B]", "expected '='"},
    {"%y = Concat %x {axis=} : f32[B]", "an integer"},
    {"%y = Concat %x {axis=0,} : f32[B]", "name of an attribute"},
    {"%y = Concat %x {axis=0, axis=0} : f32[B]", "given twice"},
    {"%y = Concat %x {axes=0} : f32[B]", "no attribute 'axes'"},
    {"%y = Concat %x {axis=0.5} : f32[B]", "unexpected '.'"},
    {"%y = Concat %x {axis=0 : f32[B]", "expected '}'"},
    {"kitchen {f=x}", "not a 32-bit float"},
    {"kitchen {f=\"x\"}", "a number"},
    {"kitchen {s=x}", "quoted string"},
    {"kitchen {s=\"x}", "does not end"},
    {"kitchen {s=\"x\n\"}", "does not end"},
    {"kitchen {s=\"\\q\"}", "unknown escape"},
    {"kitchen {s=\"\\x0\"}", "unknown escape"},
    {"kitchen {s=\"\\x00\"}", "unknown escape"},
    {"kitchen {ints=1}", "expected '['"},
    {"kitchen {ints=[1}", "expected ']'"},
    {"kitchen {ints=[1,]}", "an integer"},
    {"kitchen {strings=[\"a\" \"b\"]}", "expected ']'"},
    {"kitchen {d=f33}", "not an element type"},
    {"kitchen {d=1}", "an element type"},
    {"kitchen {t=f32[B] 1.0}", "dimensions that are numbers"},
    {"kitchen {t=u8[99] sha256 0123456789abcdef}", "ends before"},
    {"kitchen {t=u8[2] sha256 0123456789abcdef}", "expected '['"},
    {"kitchen {g=1}", "expected 'graph'"},
    {"kitchen {g=graph g() { return }}", "expected '@'"},
    {"kitchen {g=graph @g() { return %k }} %k", "not defined"},
    {"%k = kitchen {g=graph @g() { return %k }} : ?", "not defined"},
    {"kitchen {g=graph @g(%x: ?) { return }}", "defined twice"},
    {"kitchen {g=graph @g(%i: ?) { return }} return %i }", "not defined"},
    {"%y = append %t, %t : token", "used twice"},
    {"%u = append %t, %x : token %v = append %t, %x : token", "used twice"},
    {"%y = Neg %x : f32[B] into x", "an integer"},
    {"%y = Neg %x : f32[B] into 99999999999", "not in the range"},
    {"_, %z = kitchen : _, ? into 1, 2", "expected '_'"},
    {"%y = Neg %x : f32[B] via ref", "quoted string"},
    {"%y = Neg %x : f32[B] loc \"a\"", "expected '('"},
    {"%y = Neg %x : f32[B] loc(\"a\"", "expected ')'"},
    {"\x01", "byte 0x01"},
    {"\xff", "byte 0xff"},
    {"/ return }", "expected an op"},
};

static const char *const texts[] = {
    "",
    "grap",
    "graph",
    "graph @",
    "graph @g",
    "graph @g(",
    "graph @g()",
    "graph @g(%",
    "graph @g(%x",
    "graph @g(%x:",
    "graph @g(%x: f32[B]",
    "graph @g(%x: f32[B],) { return }",
    "graph @g(_: ?) { return }",
    "graph @\"g() { return }",
    "graph @1() { return }",
    "// only a comment",
    "graphs @g() { return }",
    "graph @g(%x: f32[B] into) { return }",
};

static void test_malformed(void) {
    static const char head[] = "graph @g(%x: f32[B], %t: token, %c: bool[]) {\n";
    char text[512];
    for (size_t i = 0; i < COUNT(bodies) + COUNT(texts); i++) {
        gqac_arena *arena = gqac_arena_create(0);
        gqac_diag diag = {0};
        ir_module *module = NULL;
        bool body = i < COUNT(bodies);
        snprintf(text, sizeof text, "%s%s", body ? head : "",
                 body ? bodies[i][0] : texts[i - COUNT(bodies)]);
        CU_ASSERT_EQUAL(parse(arena, text, &module, &diag), GQAC_INVALID_MODEL);
        CU_ASSERT_PTR_NULL(module);
        bool place = strncmp(diag.where, body ? "line 2, column " : "line 1, column ", 15) == 0;
        if (!place || (body && !strstr(diag.what, bodies[i][1]))) {
            printf("    '%s': %s: '%s'\n", text, diag.where, diag.what);
            CU_FAIL("another message");
        }
        gqac_arena_free(arena);
    }
}

static void test_nesting(void) {
    for (int depth = 15; depth <= 17; depth++) {
        gqac_arena *arena = gqac_arena_create(0);
        gqac_str text = {0};
        ir_module *module = NULL;
        gqac_str_append(&text, "graph @g() {");
        for (int i = 0; i < depth; i++)
            gqac_str_append(&text, "kitchen {g=graph @g() {");
        for (int i = 0; i < depth; i++)
            gqac_str_append(&text, "return }} ");
        gqac_str_append(&text, "return }");
        gqac_status expected = depth <= 16 ? GQAC_OK : GQAC_INVALID_MODEL;
        CU_ASSERT_EQUAL(parse(arena, text.text, &module, NULL), expected);
        if (module)
            CU_ASSERT_EQUAL(ir_verify(module, NULL), GQAC_OK);
        gqac_str_free(&text);
        gqac_arena_free(arena);
    }
}

/* Random damage to valid text: whatever can still be parsed is valid, and its printed text can be
 * parsed again. */
static void test_damage(void) {
    uint64_t seed = 5;
    static const char likely[] = "%_,:=[](){}\"\\/@?*-+. \n0x\xff";
    int parsed = 0, rounds = unit_full() ? 400000 : 40000;
    for (int round = 0; round < rounds; round++) {
        char text[sizeof golden];
        memcpy(text, golden, sizeof golden);
        for (uint32_t edits = 1 + random_u32(&seed) % 3; edits > 0; edits--) {
            size_t at = random_u32(&seed) % (sizeof golden - 1);
            uint32_t kind = random_u32(&seed) % 4;
            if (kind == 0)
                text[at] = (char)random_u32(&seed);
            else if (kind == 1)
                text[at] = likely[random_u32(&seed) % (sizeof likely - 1)];
            else if (kind == 2)
                text[at] = text[random_u32(&seed) % (sizeof golden - 1)];
            else
                memmove(text + at, text + at + 1, strlen(text + at));
        }
        gqac_arena *arena = gqac_arena_create(1 << 24);
        ir_module *module = NULL;
        gqac_diag diag = {0};
        gqac_status status = parse(arena, text, &module, &diag);
        if (status == GQAC_OK) {
            gqac_str out = {0};
            parsed++;
            CU_ASSERT_EQUAL(ir_verify(module, NULL), GQAC_OK);
            ir_print(&out, module, IR_PRINT_FULL);
            CU_ASSERT(round_trip(out.text, IR_PRINT_FULL));
            gqac_str_free(&out);
        } else {
            CU_ASSERT(status == GQAC_INVALID_MODEL && strncmp(diag.where, "line ", 5) == 0);
        }
        gqac_arena_free(arena);
    }
    CU_ASSERT(parsed > 100);
}

/* Truncation at every byte. */
static void test_truncated(void) {
    char text[sizeof golden];
    for (size_t n = 0; n + 2 < sizeof golden; n++) {
        gqac_arena *arena = gqac_arena_create(0);
        ir_module *module = NULL;
        memcpy(text, golden, n);
        text[n] = '\0';
        CU_ASSERT_EQUAL(parse(arena, text, &module, NULL), GQAC_INVALID_MODEL);
        gqac_arena_free(arena);
    }
}

static void test_printed_type(void) {
    gqac_arena *arena = gqac_arena_create(0);
    ir_module *module = ir_module_create(arena, NULL);
    module->graph = ir_graph_create(module, "g");
    ir_type token = {.dtype = GQAC_TOKEN, .rank = -1};
    ir_graph_add_input(module->graph, "t", token);
    gqac_str out = {0};
    ir_print(&out, module, IR_PRINT_FULL);
    CU_ASSERT_STRING_EQUAL(out.text, "graph @g(%t: token) {\n  return\n}\n");
    gqac_str_free(&out);
    gqac_arena_free(arena);
}

/* Arenas of every size: each allocation of the parser fails once. */
static void test_no_room(void) {
    gqac_status status = GQAC_NO_MEMORY;
    for (size_t budget = 16; status != GQAC_OK && budget < 1 << 20; budget += 16) {
        gqac_arena *arena = gqac_arena_create(budget);
        ir_module *module = NULL;
        status = parse(arena, golden, &module, NULL);
        CU_ASSERT(status == GQAC_OK || (status == GQAC_NO_MEMORY && !module));
        gqac_arena_free(arena);
    }
    CU_ASSERT_EQUAL(status, GQAC_OK);
}

#ifdef GQAC_TEST_ALLOC
static void test_no_memory(void) {
    for (size_t n = 1;; n++) {
        gqac_str out = {0};
        ir_module *module = NULL;
        gqac_alloc_fail_at(n, 0);
        gqac_arena *arena = gqac_arena_create(0);
        gqac_status status = arena ? parse(arena, golden, &module, NULL) : GQAC_NO_MEMORY;
        if (status == GQAC_OK)
            ir_print(&out, module, IR_PRINT_DIGEST);
        bool done = gqac_alloc_calls() < n;
        CU_ASSERT(done ? status == GQAC_OK && !out.failed : status != GQAC_OK || out.failed);
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
        CU_ASSERT(!done || strcmp(out.text, golden) == 0);
        gqac_str_free(&out);
        gqac_arena_free(arena);
        if (done)
            break;
    }
    gqac_alloc_fail_at(0, 0);
}
#endif

static const unit_case cases[] = {
    {"golden", test_golden},
    {"golden structure", test_golden_structure},
    {"free form", test_free_form},
    {"built", test_built},
    {"bits", test_bits},
    {"wide", test_wide},
    {"malformed", test_malformed},
    {"nesting", test_nesting},
    {"damage", test_damage},
    {"truncated", test_truncated},
    {"printed type", test_printed_type},
    {"no room", test_no_room},
#ifdef GQAC_TEST_ALLOC
    {"no memory", test_no_memory},
#endif
};

int main(int argc, char **argv) {
    return unit_run("ir text", cases, COUNT(cases), argc, argv);
}
