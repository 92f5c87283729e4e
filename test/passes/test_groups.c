/* Groups that one kernel computes: where `claim` places them, which ones it declines, that `order`
 * keeps them together, and to which of their values `plan` assigns a buffer. The target of these
 * tests fuses every Neg before a Neg, and every Exp before an Exp. */
#include "support_passes.h"

#include <string.h>

#include "base/alloc.h"

static int others(const ir_node *root, ir_node **nodes) {
    int n = 0;
    for (ir_node *node = root->prev; node && n < TARGET_MAX_FUSED; node = node->prev)
        if (node->op == root->op && !node->fused_into && !(node->mark & TARGET_CLAIMED))
            nodes[n++] = node;
    return n;
}

/* A pattern that comes after its root. */
static int behind(const ir_node *root, ir_node **nodes) {
    nodes[0] = root->next;
    return root->next != NULL;
}

static const target_kernel kernels[] = {
    {.name = "negs", .domain = "", .op = "Neg", .fuse = others},
    {.name = "exps", .domain = "", .op = "Exp", .fuse = others},
    {.name = "behind", .domain = "", .op = "Abs", .fuse = behind},
    {.name = "neg", .domain = "", .op = "Neg"},
    {.name = NULL},
};
static const gqac_target target = {.name = "test", .kernels = kernels};

/* "a+c b d": values in the order of their nodes, those of a group joined, and ? for a node without
 * a kernel. */
static void check(const char *body, const char *expected, const char *after) {
    static const gqac_pass *const passes[] = {&pass_claim, &pass_order, &pass_plan};
    fixture f;
    gqac_str text = {0}, found = {0};
    gqac_str_printf(&text, "graph @g(%%x: f32[S]) {\n%s}\n", body);
    CU_ASSERT_FATAL(fixture_open(&f, text.text));
    f.context.target = &target;
    for (size_t i = 0; i < COUNT(passes); i++) {
        CU_ASSERT_EQUAL_FATAL(i ? fixture_run(&f, passes[i]) : fixture_typed_run(&f, passes[i]),
                              GQAC_OK);
        gqac_str_free(&found);
        for (const ir_node *n = f.module->graph->first; n; n = n->next)
            gqac_str_printf(&found, "%s%s%s", n->kernel ? "" : "?", n->outputs[0]->name,
                            n->fused_into ? "+"
                            : n->next     ? " "
                                          : "");
        CU_ASSERT_STRING_EQUAL(found.text, i ? after : expected);
        if (strcmp(found.text, i ? after : expected) != 0)
            printf("%s: %s\n", passes[i]->name, found.text);
    }
    gqac_str_free(&found);
    gqac_str_free(&text);
    fixture_close(&f);
}

static void test_place(void) {
    /* b reads a, which the kernel of c computes */
    check("%a = Neg %x : f32[S]\n%b = Abs %a : f32[S]\n%c = Neg %x : f32[S]\n"
          "%d = Add %b, %c : f32[S]\nreturn %d\n",
          "a+c b d", "a+c b d");
    /* the group needs b, which stays before it */
    check("%a = Neg %x : f32[S]\n%b = Sqrt %x : f32[S]\n%c = Neg %b : f32[S]\n"
          "%d = Add %a, %c : f32[S]\nreturn %d\n",
          "b a+c d", "b a+c d");
    /* nothing else reads a: it stays where it is */
    check("%a = Neg %x : f32[S]\n%b = Sqrt %x : f32[S]\n%c = Neg %a : f32[S]\n"
          "%d = Add %b, %c : f32[S]\nreturn %d\n",
          "a+b c d", "b a+c d");
    /* the reader is in a nested graph */
    check("%t = Cast %x {to=bool} : bool[S]\n%a = Neg %x : f32[S]\n"
          "%b = If %t {then_branch=graph @t() {\n%g = Sqrt %a : f32[S]\nreturn %g\n},"
          " else_branch=graph @e() {\n%h = Sqrt %x : f32[S]\nreturn %h\n}} : f32[S]\n"
          "%c = Neg %x : f32[S]\n%d = Add %b, %c : f32[S]\nreturn %d\n",
          "t a+c b d", "t a+c b d");
}

static void test_declined(void) {
    /* c needs a through b */
    check("%a = Neg %x : f32[S]\n%b = Sqrt %a : f32[S]\n%c = Neg %b : f32[S]\nreturn %c, %a\n",
          "a b c", "a b c");
    /* e and f would be one kernel; but c would need f, which needs a */
    check("%a = Neg %x : f32[S]\n%e = Exp %x : f32[S]\n%c = Neg %e : f32[S]\n"
          "%f = Exp %a : f32[S]\n%d = Add %c, %f : f32[S]\nreturn %d\n",
          "a e+f c d", "a e+f c d");
    /* after the root */
    check("%a = Abs %x : f32[S]\n%b = Sqrt %a : f32[S]\nreturn %b\n", "a b", "a b");
}

/* Values that are used outside their group get a buffer from its root on; the others get none. */
static void test_buffers(void) {
    fixture f;
    CU_ASSERT_FATAL(fixture_open(&f, "graph @g(%x: f32[S]) {\n%a = Neg %x : f32[S]\n"
                                     "%b = Neg %a : f32[S]\n%c = Neg %b : f32[S]\n"
                                     "%d = Add %b, %c : f32[S]\n%e = Abs %d : f32[S]\n"
                                     "return %e\n}\n"));
    f.context.target = &target;
    CU_ASSERT_EQUAL_FATAL(fixture_typed_run(&f, &pass_claim), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(fixture_run(&f, &pass_order), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(fixture_run(&f, &pass_plan), GQAC_OK);
    int slots[5], n = 0;
    for (const ir_node *node = f.module->graph->first; node; node = node->next)
        slots[n++] = node->outputs[0]->slot;
    CU_ASSERT_EQUAL(slots[0], -1); /* a: only b reads it, in the kernel */
    CU_ASSERT(slots[1] >= 0);
    CU_ASSERT(slots[2] >= 0);
    CU_ASSERT_NOT_EQUAL(slots[1], slots[2]);
    CU_ASSERT(slots[3] >= 0);
    CU_ASSERT(slots[3] != slots[1] && slots[3] != slots[2]);
    fixture_close(&f);
}

static const unit_case cases[] = {
    {"groups are put together", test_place},
    {"groups that need themselves", test_declined},
    {"buffers of groups", test_buffers},
};

int main(int argc, char **argv) {
    return unit_run("groups", cases, sizeof cases / sizeof *cases, argc, argv);
}
