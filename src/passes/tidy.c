/* tidy: infer, fold and simplify again and again until nothing changes. Each part is one linear
 * sweep; a round that changed nothing is the last. Parts that are disabled are left out. */
#include "passes/rewrite.h"

enum { MAX_ROUNDS = 32 }; /* models need three or four, and one more per level of nested Ifs */

static const gqac_pass *const parts[] = {&pass_infer, &pass_fold, &pass_simplify};

static gqac_status run(pass_context *context) {
    for (int round = 0; round < MAX_ROUNDS; round++) {
        const size_t before = context->changed;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (!pass_listed(context->disable, parts[i]->name))
                GQAC_TRY(parts[i]->run(context));
        pass_sweep(context->module);
        if (context->changed == before)
            break;
    }
    return GQAC_OK;
}

const gqac_pass pass_tidy = {
    .name = "tidy",
    .summary = "infer, fold and simplify to a fixed point",
    .provides = PASS_TYPED,
    .breaks = PASS_ORDERED | PASS_PLANNED,
    .run = run,
};
