/* The leaves of a chain: see chain.h. */
#include "targets/chain.h"

#include <string.h>

gqac_status target_chain_fit(const target_call *call, const target_chain *of, bool rows,
                             const gqac_tensor *const leaves[TARGET_CHAIN_LEAVES], int64_t *n) {
    for (int i = 0; i < of->n_leaves; i++)
        if (!leaves[i] || !OP_IN(OP_FLOATS, leaves[i]->dtype))
            OP_STOP(&call->work, GQAC_INVALID_INPUT, "an operand of the chain has no data or type");
    const gqac_tensor *first = leaves[of->shape];
    for (int i = 0; i < of->n_leaves; i++)
        if (of->leaves[i].form == TARGET_LEAF_FULL &&
            (leaves[i]->rank != first->rank ||
             memcmp(leaves[i]->dims, first->dims, (size_t)first->rank * sizeof *first->dims) != 0))
            OP_STOP(&call->work, GQAC_INVALID_INPUT, "operands of a chain differ in shape");
    *n = rows ? first->dims[first->rank - 1] : gqac_tensor_count(first);
    for (int i = 0; i < of->n_leaves; i++)
        if (of->leaves[i].form == TARGET_LEAF_ROW && gqac_tensor_count(leaves[i]) != *n)
            OP_STOP(&call->work, GQAC_INVALID_INPUT,
                    "a row operand of the chain has the wrong length");
    return GQAC_OK;
}
