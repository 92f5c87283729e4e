/* Sets the memory budget from which blocks and states of a pool are taken, before the first is
 * taken. The budget must outlive the pool. Without one, they are not counted. */
#ifndef GQAC_KV_BUDGET_H
#define GQAC_KV_BUDGET_H

#include "base/budget.h"
#include "kv/kv.h"

void kv_pool_set_budget(kv_pool *pool, gqac_budget *budget);

#endif
