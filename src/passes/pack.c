/* pack: the target packs constant weights into the form that its kernels read. An artefact holds
 * the packed weights, so opening one copies nothing. Targets without such a form change nothing. */
#include "passes/rewrite.h"

static gqac_status run(pass_context *context) {
    if (!context->target || !context->target->pack)
        return GQAC_OK;
    return context->target->pack(context->module, &context->options, &context->changed,
                                 context->poll, context->diag);
}

const gqac_pass pass_pack = {
    .name = "pack",
    .summary = "weights in the form that the target's kernels read",
    .needs = PASS_TYPED,
    .breaks = PASS_ONNX,
    .retidy = true,
    .run = run,
};
