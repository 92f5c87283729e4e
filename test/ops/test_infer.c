/* Shape arithmetic as exporters write it: the types that infer finds in whole graphs, with
 * symbols. */
#include <string.h>

#include "support.h"

static gqac_status infer_node(void *arg, ir_node *node) {
    return op_infer(node, arg);
}

/* Finds a value by name in a graph and its nested graphs. */
typedef struct search {
    const char *name;
    const ir_value *found;
} search;

static gqac_status find(void *arg, ir_node *node) {
    search *s = arg;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && strcmp(node->outputs[i]->name, s->name) == 0)
            s->found = node->outputs[i];
    return GQAC_OK;
}

static void print(gqac_str *out, const ir_value *value) {
    gqac_str_printf(out, "%s[", gqac_dtype_name(value->type.dtype));
    for (int i = 0; i < value->type.rank; i++) {
        gqac_str_append(out, i ? "," : "");
        ir_dim_print(out, value->type.dims[i]);
    }
    gqac_str_append(out, value->type.rank < 0 ? "*]" : "]");
    for (int64_t i = 0; value->elements && i < value->n_elements; i++) {
        gqac_str_append(out, i ? "," : "=");
        ir_dim_print(out, value->elements[i]);
    }
}

/* The language requires types for outputs; adds unknown types to lines that begin with % and are
 * whole nodes. */
static char *complete(gqac_arena *arena, const char *text) {
    gqac_str out = {0};
    while (*text) {
        size_t n = strcspn(text, "\n");
        size_t head = strcspn(text, "=\n");
        gqac_str_append_n(&out, text, n);
        if (*text == '%' && n > 0 && text[n - 1] != '{') {
            gqac_str_append(&out, " : ?");
            for (size_t i = 0; i < head; i++)
                gqac_str_append(&out, text[i] == ',' ? ", ?" : "");
        }
        gqac_str_append(&out, "\n");
        text += n + (text[n] == '\n');
    }
    char *copy = gqac_arena_strdup(arena, out.text);
    gqac_str_free(&out);
    return copy;
}

/* Infers a graph to a fixed point and compares the value %r (type, "=", elements). */
static void expect(const char *short_text, const char *want) {
    gqac_arena *arena = gqac_arena_create(0);
    const char *text = complete(arena, short_text);
    gqac_diag diag = {0};
    ir_module *module;
    gqac_str got = {0};
    search s = {.name = "r"};
    if (ir_parse(arena, text, op_schema, &module, &diag) != GQAC_OK) {
        CU_assertImplementation(CU_FALSE, 0, diag.what, text, "", CU_FALSE);
    } else {
        for (int round = 0; round < 3; round++)
            if (ir_graph_walk(module->graph, infer_node, &diag) != GQAC_OK)
                CU_assertImplementation(CU_FALSE, 0, diag.what, text, "", CU_FALSE);
        (void)ir_graph_walk(module->graph, find, &s);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s.found);
        print(&got, s.found);
        if (strcmp(got.text, want) != 0)
            CU_assertImplementation(CU_FALSE, 0, got.text, want, "", CU_FALSE);
    }
    gqac_str_free(&got);
    gqac_arena_free(arena);
}

#define BSX "graph @g(%x: f32[B,S,64], %k: f32[B,8,P,16]) {\n"
#define END "\nreturn %r }"

static void reshapes(void) {
    expect(BSX "const %i: i64[] = 0\n"
               "const %j: i64[] = 1\n"
               "const %a: i64[1] = [0]\n"
               "const %h: i64[2] = [4, -1]\n"
               "%s = Shape %x\n"
               "%b = Gather %s, %i\n"
               "%n = Gather %s, %j\n"
               "%b1 = Unsqueeze %b, %a\n"
               "%n1 = Unsqueeze %n, %a\n"
               "%t = Concat %b1, %n1, %h {axis=0}\n"
               "%r = Reshape %x, %t" END,
           "f32[B,S,4,16]");
    expect(BSX "const %t: i64[4] = [0, 0, -1, 16]\n"
               "%r = Reshape %x, %t" END,
           "f32[B,S,4,16]");
    expect(BSX "const %t: i64[2] = [-1, 64]\n"
               "%r = Reshape %x, %t" END,
           "f32[B*S,64]");
    expect(BSX "const %t: i64[2] = [-1, 64]\n"
               "const %l: i64[1] = [-1]\n"
               "%y = Reshape %x, %t\n"
               "%s = Shape %x {end=2}\n"
               "%u = Concat %s, %l {axis=0}\n"
               "%r = Reshape %y, %u" END,
           "f32[B,S,64]");
    expect(BSX "const %t: i64[3] = [0, 8, -1]\n"
               "%r = Reshape %k, %t" END,
           "f32[B,8,16*P]");
    expect("graph @g(%x: f32[B,S,64], %t: i64[2]) {\n%r = Reshape %x, %t" END, "f32[dim,dim.1]");
    expect("graph @g(%x: f32[B,S,64], %t: i64[N]) {\n%r = Reshape %x, %t" END, "f32[*]");
    expect(BSX "%r = Flatten %k {axis=2}" END, "f32[8*B,16*P]");
}

static void lengths(void) {
    expect(BSX "%s = Shape %x {start=1, end=2}\n"
               "%p = Shape %k {start=2, end=3}\n"
               "%r = Add %s, %p" END,
           "i64[1]=P+S");
    expect(BSX "const %o: i64[] = 1\n"
               "const %z: i64[1] = [0]\n"
               "%s = Shape %x {start=1, end=2}\n"
               "%p = Shape %k {start=2, end=3}\n"
               "%e = Add %s, %p\n"
               "%e0 = Squeeze %e, %z\n"
               "%p0 = Squeeze %p, %z\n"
               "%r = Range %p0, %e0, %o" END,
           "i64[S]");
    expect(BSX "const %two: i64[] = 2\n"
               "%s = Shape %x {start=2}\n"
               "%r = Div %s, %two" END,
           "i64[1]=32");
    expect(BSX "const %two: i64[] = 2\n"
               "%s = Shape %x {start=1, end=2}\n"
               "%d = Div %s, %two\n"
               "%r = Mul %d, %two" END,
           "i64[1]=2*(S/2)");
    expect(BSX "const %z: i64[1] = [0]\n"
               "%s = Size %x\n"
               "%t = Unsqueeze %s, %z\n"
               "%r = Cast %t {to=i32}" END,
           "i32[1]=64*B*S");
    expect(BSX "%s = Shape %x\n"
               "%r = ReduceProd %s {keepdims=0}" END,
           "i64[]=64*B*S");
}

static void masks(void) {
    /* Expand with -1 meaning "keep", as written by torch */
    expect(BSX "const %z: i64[1] = [0]\n"
               "const %m: i64[1] = [-1]\n"
               "%s = Shape %x\n"
               "%n = Shape %s\n"
               "%ones = ConstantOfShape %n {value=i64[1] [1]}\n"
               "%neg = Mul %ones, %m\n"
               "%eq = Equal %s, %neg\n"
               "%t = Where %eq, %ones, %s\n"
               "%y = Unsqueeze %x, %z\n"
               "%r = Expand %y, %t" END,
           "f32[1,B,S,64]");
    expect(BSX "%s = Shape %x\n"
               "%r = GreaterOrEqual %s, %s" END,
           "bool[3]=1,1,1");
    expect("graph @g(%a: bool[B,1,S,1], %b: f32[T], %c: f32[]) {\n"
           "%r = Where %a, %b, %c" END,
           "f32[B,1,S,T]");
    expect("graph @g(%a: f32[B,1,S], %b: f32[T,S]) {\n%r = Add %a, %b" END, "f32[B,T,S]");
    expect("graph @g(%a: f32[M], %b: f32[N]) {\n%r = Add %a, %b" END, "f32[dim]");
}

static void pieces(void) {
    expect(BSX "const %w: i64[3] = [32, 16, 16]\n"
               "%a, %r, %c = Split %x, %w {axis=-1}" END,
           "f32[B,S,16]");
    expect(BSX "%a, %r = Split %x {axis=2, num_outputs=2}" END, "f32[B,S,32]");
    expect(BSX "%s = Shape %x\n"
               "%a, %b, %r = Split %s {num_outputs=3}" END,
           "i64[1]=64");
    expect("graph @g(%a: f32[B,P,4], %b: f32[B,S,4]) {\n%r = Concat %a, %b {axis=1}" END,
           "f32[B,P+S,4]");
    expect(BSX "const %a: i64[1] = [1]\n"
               "const %b: i64[1] = [9223372036854775807]\n"
               "const %c: i64[1] = [2]\n"
               "%r = Slice %x, %a, %b, %c" END,
           "f32[B,S,63]");
    expect(BSX "const %a: i64[1] = [0]\n"
               "%s = Shape %x {start=1, end=2}\n"
               "%p = Shape %k {start=2, end=3}\n"
               "%e = Add %s, %p\n"
               "%q = ConstantOfShape %e\n"
               "%r = Slice %q, %a, %p, %a" END,
           "f32[P]");
    expect(BSX "const %a: i64[1] = [1]\n"
               "const %e: i64[1] = [9]\n"
               "%s = Shape %k\n"
               "%r = Slice %s, %a, %e" END,
           "i64[3]=8,P,16");
    expect(BSX "const %i: i64[] = -1\n"
               "%r = Gather %x, %i {axis=1}" END,
           "f32[B,64]");
    expect(BSX "const %t: i64[3] = [1, 2, 3]\n"
               "%r = Tile %x, %t" END,
           "f32[B,2*S,192]");
}

static void branches(void) {
    expect("graph @g(%c: bool[]) {\n"
           "%r = If %c {\n"
           "then_branch=graph @t() { const %o: f32[2,4] = [1, 2, 3, 4, 5, 6, 7, 8] return %o },\n"
           "else_branch=graph @e() { const %p: f32[1,4] = [1, 2, 3, 4] return %p }} : ?" END,
           "f32[dim,4]");
    expect("graph @g(%c: bool[], %x: f32[B,S]) {\n"
           "%r = If %c {\n"
           "then_branch=graph @t() {\n"
           "%a = Neg %x\n"
           "return %a },\n"
           "else_branch=graph @e() { return %x }} : ?" END,
           "f32[B,S]");
}

static void mixing(void) {
    static const struct {
        const char *text;
        bool mixes;
    } cases[] = {
        {"%r = Softmax %x", false},
        {"%r = Softmax %x {axis=1}", true},
        {"%r = Softmax %x {axis=0}", true},
        {"%r = Softmax %k", false},
        {"const %a: i64[1] = [-1]\n%r = ReduceMean %x, %a", false},
        {"const %a: i64[1] = [1]\n%r = ReduceMean %x, %a", true},
        {"%r = ReduceSum %x", true},
        {"%r = ReduceSum %x {noop_with_empty_axes=1}", false},
        {"const %a: i64[] = 2\n%r = CumSum %x, %a", false},
        {"const %a: i64[] = -2\n%r = CumSum %x, %a", true},
        {"%r = ArgMax %x {axis=2}", false},
        {"%r = ArgMax %x", true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        gqac_arena *arena = gqac_arena_create(0);
        gqac_diag diag = {0};
        ir_module *module;
        char text[400] = BSX;
        strcat(strcat(text, cases[i].text), END);
        CU_ASSERT_EQUAL_FATAL(ir_parse(arena, complete(arena, text), op_schema, &module, &diag),
                              GQAC_OK);
        const ir_node *node = module->graph->last;
        CU_ASSERT_EQUAL(node->op->rows, IR_ROWS_SHAPE);
        if (op_of(node)->mixes(node) != cases[i].mixes)
            CU_assertImplementation(CU_FALSE, 0, cases[i].text, "", "", CU_FALSE);
        gqac_arena_free(arena);
    }
}

static void table(void) {
    CU_ASSERT_PTR_EQUAL(op_schema("gqac", "return"), &ir_return_schema);
    CU_ASSERT_PTR_NULL(op_find("", "return"));
    CU_ASSERT_PTR_NULL(op_find("com.microsoft", "Add"));
    CU_ASSERT_PTR_EQUAL(op_find("ai.onnx", "Add"), op_find("", "Add"));
    for (int i = 0; i < gqac_op_count; i++) {
        const gqac_op *op = gqac_op_table[i];
        CU_ASSERT_PTR_EQUAL(op_find(op->schema.domain, op->schema.name), op);
        CU_ASSERT_TRUE(!op->eval || !op->expand);
        CU_ASSERT_TRUE(op->schema.since >= 1 && op->schema.doc != NULL);
        CU_ASSERT_TRUE(!op->mixes || op->schema.rows == IR_ROWS_SHAPE ||
                       op->schema.rows == IR_ROWS_STATE);
    }
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"reshapes", reshapes}, {"lengths", lengths},    {"masks", masks}, {"pieces", pieces},
        {"branches", branches}, {"mixing rows", mixing}, {"table", table},
    };
    return unit_run("ops: infer", cases, COUNT(cases), argc, argv);
}
