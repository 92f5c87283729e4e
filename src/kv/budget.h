/* The memory budget of a pool, from which its blocks and states are taken. To be set before the
 * first is taken; it must outlive the pool. Without it they are not counted. */
#ifndef GQAC_KV_BUDGET_H
#define GQAC_KV_BUDGET_H

#include "base/budget.h"
#include "kv/kv.h"

void kv_pool_set_budget(kv_pool *pool, gqac_budget *budget);

#endif
