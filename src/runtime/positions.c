/* Tables of positions in the graph: cosines and sines of rotary embeddings, and learned position
 * embeddings, which a Gather reads by position. A table may be the result of an If (LongRoPE). */
#include "runtime/positions.h"

#include "ops/rotary.h"

/* Rows of a table; of the longer one where an If chooses. INT64_MAX: the value is not a table. */
static int64_t table_rows(const ir_value *value) {
    const gqac_tensor *t = value ? value->constant : NULL;
    int64_t most = -1;
    if (t)
        return t->rank == 2 ? t->dims[0] : INT64_MAX;
    if (!value || !value->def || !op_is(value->def, "", "If"))
        return INT64_MAX;
    const ir_graph *branch;
    for (int at = 0; (branch = ir_next_graph(value->def, &at));) {
        const ir_value *result = branch->ret->inputs[value->result].value;
        const int64_t rows = result && result->constant ? table_rows(result) : INT64_MAX;
        most = rows > most ? rows : most;
    }
    return most;
}

/* The positions, in any integer type, or a part of them that ops without arithmetic select: one of
 * three planes. */
static bool are_positions(const ir_value *value, const ir_value *positions) {
    static const char *const selecting[] = {"Gather",  "Slice",     "Split",    "Squeeze",
                                            "Reshape", "Unsqueeze", "Identity", "Cast"};
    while (value && value != positions && value->def) {
        bool selects = false;
        for (size_t i = 0; i < sizeof selecting / sizeof *selecting; i++)
            selects |= op_is(value->def, "", selecting[i]);
        value = selects ? ir_node_input(value->def, 0) : NULL;
    }
    return value == positions;
}

/* True if a Gather's index is the position of a token, plus a constant number of rows (OPT: 2),
 * which *before is set to.
 */
static bool is_position(const ir_value *index, const ir_value *positions, int64_t *before) {
    *before = 0;
    if (are_positions(index, positions))
        return true;
    const ir_node *add = index ? index->def : NULL;
    if (!add || !op_is(add, "", "Add") || index->type.dtype != GQAC_I64)
        return false;
    const bool second = are_positions(ir_node_input(add, 1), positions);
    const gqac_tensor *t = ir_node_input(add, second ? 0 : 1)->constant;
    if ((!second && !are_positions(ir_node_input(add, 0), positions)) || !t ||
        gqac_tensor_count(t) != 1)
        return false;
    *before = *(const int64_t *)t->data;
    return *before >= 0;
}

int64_t positions_capacity(const gqac_program *p) {
    const ir_graph *g = p->module->graph;
    const int at = p->roles.position_ids;
    int64_t most = INT64_MAX;
    for (const ir_node *n = g->first; n; n = n->next) {
        const ir_value *table = NULL;
        int64_t before = 0;
        if (op_is(n, "gqac", "rotary"))
            table = ir_node_input(n, ROTARY_COS);
        else if (op_is(n, "", "Gather") && at >= 0 &&
                 is_position(ir_node_input(n, 1), g->inputs[at], &before))
            table = ir_node_input(n, 0);
        const int64_t rows = table_rows(table);
        if (rows < INT64_MAX && rows - before < most)
            most = rows - before;
    }
    return most;
}
