/* See support_passes.h. */
#include "support_passes.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

bool fixture_open(fixture *f, const char *text) {
    memset(f, 0, sizeof *f);
    f->arena = gqac_arena_create(0);
    f->context.diag = &f->diag;
    if (!f->arena)
        return false;
    gqac_status status = ir_parse(f->arena, text, op_schema, &f->module, &f->diag);
    if (status == GQAC_OK)
        status = gqac_target_find("ref", &f->context.target, &f->diag);
    if (status != GQAC_OK && status != GQAC_NO_MEMORY)
        printf("%s\n", f->diag.what);
    f->context.module = f->module;
    return status == GQAC_OK;
}

void fixture_close(fixture *f) {
    gqac_arena_free(f->arena);
    f->arena = NULL;
}

char *fixture_text(const fixture *f) {
    gqac_str text = {0};
    ir_print(&text, f->module, IR_PRINT_FULL);
    if (!text.failed)
        return text.text;
    gqac_str_free(&text);
    return NULL;
}

gqac_status fixture_run(fixture *f, const gqac_pass *pass) {
    GQAC_TRY(pass_run(&f->context, pass));
    pass_sweep(f->module);
    return ir_verify(f->module, &f->diag);
}

gqac_status fixture_typed_run(fixture *f, const gqac_pass *pass) {
    if (pass != &pass_infer)
        GQAC_TRY(fixture_run(f, &pass_infer));
    return fixture_run(f, pass);
}

const gqac_pass *fixture_pass(const char *name) {
    for (int i = 0; gqac_pipeline[i]; i++)
        if (strcmp(gqac_pipeline[i]->name, name) == 0)
            return gqac_pipeline[i];
    for (int i = 0; gqac_rewrites[i]; i++) /* a rewrite has the name of its last pass */
        for (const gqac_pass *const *pass = gqac_rewrites[i]->files[0].passes; *pass; pass++)
            if (strcmp((*pass)->name, name) == 0)
                return *pass;
    return NULL;
}

char *text_after(const char *text, const gqac_pass *pass) {
    fixture f;
    char *out = NULL;
    if (fixture_open(&f, text) && fixture_typed_run(&f, pass) == GQAC_OK)
        out = fixture_text(&f);
    else
        printf("%s: %s\n", f.diag.where, f.diag.what);
    fixture_close(&f);
    return out;
}
