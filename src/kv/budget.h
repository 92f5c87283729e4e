/* Blocks and states of a pool come out of a budget, which outlives the pool. To be said before any
 * is taken; without it they are not counted. */
#ifndef GQAC_KV_BUDGET_H
#define GQAC_KV_BUDGET_H

#include "base/budget.h"
#include "kv/kv.h"

void kv_pool_set_budget(kv_pool *pool, gqac_budget *budget);

#endif
