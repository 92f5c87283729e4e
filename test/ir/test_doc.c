/* The examples of docs/ir.md: every block marked gq is a module of existing ops in canonical
 * form. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "ops/op.h"

static char *read_doc(void) {
    FILE *file = fopen(unit_path("docs/ir.md"), "rb");
    char *text = calloc(1, 1 << 16);
    if (!file || !text || fread(text, 1, (1 << 16) - 1, file) == 0)
        CU_FAIL_FATAL("docs/ir.md cannot be read");
    fclose(file);
    return text;
}

static void check_block(const char *text) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_diag diag = {0};
    gqac_str out = {0};
    ir_module *module = NULL;
    if (ir_parse(arena, text, op_schema, &module, &diag) != GQAC_OK ||
        ir_verify(module, &diag) != GQAC_OK)
        printf("    %s: %s in\n%s", diag.where, diag.what, text);
    if (module)
        ir_print(&out, module, IR_PRINT_FULL);
    CU_ASSERT_STRING_EQUAL(out.text ? out.text : "", text);
    gqac_str_free(&out);
    gqac_arena_free(arena);
}

static void test_examples(void) {
    char *doc = read_doc(), *at = doc;
    int blocks = 0;
    while ((at = strstr(at, "```gq\n"))) {
        at += strlen("```gq\n");
        char *end = strstr(at, "```");
        CU_ASSERT_PTR_NOT_NULL_FATAL(end);
        *end = '\0';
        check_block(at);
        at = end + 1;
        blocks++;
    }
    CU_ASSERT(blocks >= 7);
    free(doc);
}

/* The table of dimensions: the written form, and the printed one. */
static void test_dimensions(void) {
    char *doc = read_doc();
    char *line = strstr(doc, "| written | prints |");
    int rows = 0;
    gqac_arena *arena = gqac_arena_create(0);
    ir_dims *dims = ir_dims_create(arena);
    for (line = line ? strstr(line, "| `") : NULL; line && strncmp(line, "| `", 3) == 0; rows++) {
        char written[64], prints[64];
        const char *text = written;
        bool ok;
        gqac_str out = {0};
        char *next = strchr(line, '\n') + 1;
        if (strncmp(line, "| `` ", 5) != 0) {
            CU_ASSERT_EQUAL(sscanf(line, "| `%63[^`]` | `%63[^`]` |", written, prints), 2);
            ir_dim_print(&out, ir_dim_parse(dims, &text, &ok));
            CU_ASSERT_STRING_EQUAL(out.text, prints);
            gqac_str_free(&out);
        }
        line = next;
    }
    CU_ASSERT(rows >= 9);
    gqac_arena_free(arena);
    free(doc);
}

static const unit_case cases[] = {
    {"examples", test_examples},
    {"dimensions", test_dimensions},
};

int main(int argc, char **argv) {
    return unit_run("ir doc", cases, COUNT(cases), argc, argv);
}
