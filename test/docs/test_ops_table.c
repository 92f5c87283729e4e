/* docs/ops.md lists every row of the op table. With GQAC_UPDATE_GOLDEN=1 the test writes it. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "ops/op.h"

static void print_row(gqac_str *out, const gqac_op *op) {
    const ir_schema *s = &op->schema;
    const bool own = !strcmp(s->domain, "gqac");
    const char *kind = op->eval ? "primitive" : s->flags & IR_OP_LOWER ? "lowered" : "composite";
    gqac_str_printf(out, "| `%s%s%s` | ", *s->domain && !own ? s->domain : "",
                    *s->domain && !own ? "." : "", s->name);
    if (own)
        gqac_str_append(out, "own");
    else if (s->until)
        gqac_str_printf(out, "%d-%d", s->since, s->until);
    else
        gqac_str_printf(out, "%d", s->since);
    gqac_str_printf(out, " | %s | %s |\n", kind, s->doc ? s->doc : "");
}

static void print_table(gqac_str *out) {
    gqac_str_append(out,
                    "# Ops\n\n"
                    "Written by `test/docs/test_ops_table.c` from the op table. Version: the opset "
                    "whose form a node has in the\nIR; older ones are upgraded on import. A "
                    "primitive has an `eval`; a composite is expanded when the target has\nno "
                    "kernel for it; what is lowered never reaches a target.\n\n"
                    "| op | version | kind | meaning |\n|---|---|---|---|\n");
    for (int i = 0; i < gqac_op_count; i++)
        print_row(out, gqac_op_table[i]);
}

static void test_is_current(void) {
    gqac_str text = {0};
    static char old[1 << 18];
    const char *path = unit_path("docs/ops.md");
    print_table(&text);
    CU_ASSERT_FATAL(!text.failed);
    if (getenv("GQAC_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "wb");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        fwrite(text.text, 1, text.length, f);
        fclose(f);
    }
    FILE *f = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    const size_t n = fread(old, 1, sizeof old - 1, f);
    fclose(f);
    CU_ASSERT(n == text.length && !memcmp(old, text.text, n));
    gqac_str_free(&text);
}

static void test_rows(void) {
    for (int i = 0; i < gqac_op_count; i++) {
        const gqac_op *op = gqac_op_table[i];
        CU_ASSERT_PTR_EQUAL(op_find(op->schema.domain, op->schema.name), op);
        CU_ASSERT((op->eval != NULL) != (op->expand != NULL));
        CU_ASSERT(op->schema.doc && *op->schema.doc);
    }
}

static const unit_case cases[] = {
    {"docs/ops.md is current", test_is_current},
    {"every row has a doc and exactly one of eval and expand", test_rows},
};

int main(int argc, char **argv) {
    return unit_run("ops_table", cases, sizeof cases / sizeof *cases, argc, argv);
}
