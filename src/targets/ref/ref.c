/* The ref target: the definition of results. It runs the fully expanded graph, every op by its own
 * eval; only ops of the KV state have kernels here. KV blocks are gathered into plain rows
 * [B,H,T,D]. */
#include "targets/bind.h"
#include "targets/kv_rows.h"
#include "targets/recurrent.h"

static const target_kernel kernels[] = {
    BIND_KV_STATE_KERNEL,
    {.name = "kv_append",
     .domain = "gqac",
     .op = "kv_append",
     .bind = bind_kv_append,
     .run = target_kv_append_run},
    BIND_RECURRENT_KERNEL,
    {.name = NULL},
};

extern const gqac_target target_ref;
const gqac_target target_ref = {.name = "ref", .kernels = kernels};
