/* The order of the passes. The runner goes down this list; after each pass that asks for it
 * (retidy) and changed something it tidies again, and a pass with `again` sends it back up.
 *
 *   infer fold simplify   once each, so that each can be looked at alone
 *   tidy                  the three until nothing changes
 *   lower                 GroupQueryAttention, MultiHeadAttention, Attention… -> our own few ops
 *   stateful              past/present pairs -> sequence state (not for a stateless run)
 *   claim <-> expand      kernels take nodes; what none took is expanded one level and offered
 * again order, plan           the order of nodes, their buffers */
#include "passes/pass.h"

const gqac_pass *const gqac_pipeline[] = {
    &pass_infer, &pass_fold,   &pass_simplify, &pass_tidy, &pass_lower, &pass_stateful,
    &pass_claim, &pass_expand, &pass_order,    &pass_plan, NULL,
};
