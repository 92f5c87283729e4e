/* The ref target: the definition of results. It runs the fully expanded graph, every op by its own
 * eval; only ops of the KV state have kernels here. KV blocks are gathered into plain rows
 * [B,H,T,D]. */
#include "targets/bind.h"
#include "targets/kv_rows.h"
#include "targets/recurrent.h"

static const target_kernel kernels[] = {
    {.name = "kv_state",
     .domain = "gqac",
     .op = "kv_state",
     .bind = bind_kv_state,
     .run = target_kv_state_run},
    {.name = "kv_append",
     .domain = "gqac",
     .op = "kv_append",
     .bind = bind_kv_append,
     .run = target_kv_append_run},
    {.name = "recurrent_attention",
     .domain = "gqac",
     .op = "recurrent_attention",
     .bind = bind_recurrent_attention,
     .run = target_recurrent_run},
    {.name = NULL},
};

extern const gqac_target target_ref;
const gqac_target target_ref = {.name = "ref", .kernels = kernels};
