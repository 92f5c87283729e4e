/* The rewrites of model files. Each is a list of passes; the last one does the rewrite, and those
 * before it bring the graph into the form that it reads. */
#include "passes/pass.h"

static const gqac_pass *const dynamic_seq[] = {&pass_import, &pass_infer, &pass_dynamic_seq, NULL};

static const pass_rewrite rewrite_dynamic_seq = {
    .name = "dynamic-seq",
    .summary = "lets a graph that was exported for one token per call accept any number of tokens",
    .counted = "shapes now accept any number of tokens",
    .files = {{.passes = dynamic_seq}},
};

static const gqac_pass *const insert_kv[] = {&pass_import, &pass_tidy, &pass_raise, &pass_insert_kv,
                                             NULL};

static const pass_rewrite rewrite_insert_kv = {
    .name = "insert-kv",
    .summary = "adds past and present to a decoder that was exported without a cache",
    .counted = "attention nodes now have a cache",
    .files = {{.passes = insert_kv}},
};

static const gqac_pass *const static_cross_cache[] = {
    &pass_import, &pass_tidy, &pass_raise_portable, &pass_static_cross_cache, NULL};

static const pass_rewrite rewrite_static_cross_cache = {
    .name = "static-cross-cache",
    .summary =
        "computes keys and values of the encoder's states once, and then reuses them as inputs",
    .counted = "cross attention nodes now have a cache",
    .files = {{.passes = static_cross_cache}},
};

static const gqac_pass *const prefill[] = {&pass_import, &pass_tidy,    &pass_defaults,
                                           &pass_raise,  &pass_prefill, NULL};
static const gqac_pass *const decode[] = {&pass_import, &pass_tidy,   &pass_defaults,
                                          &pass_raise,  &pass_decode, NULL};

static const pass_rewrite rewrite_two_graph = {
    .name = "two-graph",
    .summary = "a graph for prompts and one for single tokens, with a cache that stays in place",
    .counted = "attention nodes in the two graphs",
    .files = {{"prefill", prefill}, {"decode", decode}},
};

static const gqac_pass *const raised[] = {&pass_import, &pass_tidy, &pass_raise_portable, NULL};

static const pass_rewrite rewrite_raise = {
    .name = "raise",
    .summary = "attention, rotary, norms and activations in simple ops become one ONNX op each",
    .counted = "patterns became one op each",
    .files = {{.passes = raised}},
};

const pass_rewrite *const gqac_rewrites[] = {&rewrite_dynamic_seq, &rewrite_insert_kv,
                                             &rewrite_raise,       &rewrite_static_cross_cache,
                                             &rewrite_two_graph,   NULL};
