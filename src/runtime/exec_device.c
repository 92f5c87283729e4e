/* Values on a device: calls of the target's mirror (targets/mirror.h). */
#include "runtime/exec_device.h"

#include "base/log.h"
#include "ops/shared.h"

static const target_mirror *mirror_of(const exec *e) {
    return e->program->target->mirror;
}

gqac_status exec_fetch_value(const exec *e, const ir_value *value, gqac_diag *diag) {
    return mirror_of(e)->fetch(e->mirror, &e->values[value->id], diag);
}

gqac_status exec_fetch_values(const exec *e, const ir_node *node, gqac_diag *diag) {
    for (int i = 0; i < node->n_inputs; i++)
        GQAC_TRY(exec_fetch(e, node->inputs[i].value, diag));
    return GQAC_OK;
}

bool exec_can_top(const gqac_tensor *logits, const exec_top *top) {
    return logits->rank == 3 && logits->dims[0] * logits->dims[1] == top->rows &&
           logits->dims[2] >= top->n && gqac_tensor_count(logits) <= TARGET_TOP_MOST;
}

/* Lets the device find the likeliest ids, if the wanted rows of logits are there and no others. */
static gqac_status make_top(exec *e, const op_work *work) {
    const gqac_tensor *t = exec_result(e, e->top.result);
    e->top.made = exec_can_top(t, &e->top) && mirror_of(e)->holds(e->mirror, t);
    return e->top.made ? mirror_of(e)->top(e->mirror, t, e->top.n, e->top.ids, work) : GQAC_OK;
}

gqac_status exec_fetch_results(exec *e, gqac_diag *diag) {
    const ir_node *ret = e->program->module->graph->ret;
    const op_work work = {.pool = e->pool, .diag = diag, .host = e};
    if (e->top.n)
        GQAC_TRY(make_top(e, &work));
    for (int i = 0; i < ret->n_inputs; i++)
        if (!e->top.made || i != e->top.result)
            GQAC_TRY(exec_fetch(e, ret->inputs[i].value, diag));
    GQAC_TRY(mirror_of(e)->finish(e->mirror, &work));
    return gqac_poll_check(&e->poll, diag);
}

void exec_values_changed(const exec *e, const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            mirror_of(e)->changed(e->mirror, &e->values[node->outputs[i]->id]);
}

bool exec_is_moved(const exec *e, const ir_node *node) {
    if (!(node->op->flags & IR_OP_MOVES))
        return false;
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        if (value && mirror_of(e)->holds(e->mirror, &e->values[value->id]))
            return true;
    }
    return false;
}

gqac_status exec_move(op_call *call, const op_box *box) {
    const exec *e = call->host;
    const op_work work = op_work_of(call);
    return mirror_of(e)->move(e->mirror, box, &work);
}

void exec_log_copies(const exec *e) {
    if (!e->mirror)
        return;
    const target_copies copies = mirror_of(e)->copies(e->mirror);
    gqac_log_line(&e->program->log, GQAC_LOG_DEBUG,
                  "copies of values: %lld to the device, %lld bytes; %lld back, %lld bytes",
                  (long long)copies.up, (long long)copies.up_bytes, (long long)copies.down,
                  (long long)copies.down_bytes);
}
