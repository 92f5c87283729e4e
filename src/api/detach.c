/* Detaching a module from the caller's memory (gqac_model_bytes.copy): what its constants and
 * attributes still read there is copied to the arena. It runs after the passes, so weights that the
 * target has packed are not copied again, and before kernels are bound to addresses. */
#include "api/load.h"

typedef struct detaching {
    const loaded *model;
    gqac_diag *diag;
} detaching;

/* Replaces a tensor whose data lie in the caller's memory by a copy. */
static gqac_status detach(const detaching *x, const gqac_tensor **tensor) {
    const gqac_tensor *t = *tensor;
    const size_t bytes = t ? gqac_tensor_bytes(t) : 0;
    if (!bytes || !t->data || !onnx_files_borrow(x->model->files, t->data))
        return GQAC_OK;
    gqac_tensor *copy = gqac_arena_copy(x->model->arena, t, sizeof *t);
    if (!copy || !(copy->data = gqac_arena_copy(x->model->arena, t->data, bytes)))
        return gqac_diag_oom(x->diag, "weights");
    *tensor = copy;
    return GQAC_OK;
}

static gqac_status detach_graph(const detaching *x, ir_graph *graph) {
    for (int i = 0; i < graph->n_constants; i++)
        GQAC_TRY(detach(x, &graph->constants[i]->constant));
    for (ir_node *n = graph->first; n; n = n->next)
        for (const ir_attr_spec *spec = n->op->attrs; spec && spec->name; spec++) {
            ir_attr *attr = &n->attrs[spec - n->op->attrs];
            GQAC_TRY(detach(x, &attr->tensor));
            if (attr->graph) /* not nested deeper than ONNX_MAX_GRAPH_DEPTH */
                GQAC_TRY(detach_graph(x, attr->graph));
        }
    return GQAC_OK;
}

gqac_status load_detach(loaded *model, gqac_diag *diag) {
    const detaching x = {model, diag};
    if (!model->bytes.copy || !model->files)
        return GQAC_OK;
    GQAC_TRY(detach_graph(&x, model->module->graph));
    onnx_files_forget(model->files);
    return GQAC_OK;
}
