/* The fused nodes: in a Run, each is one gqac_run of its program.
 *
 * Inputs are views of the runtime's tensors. Shapes are computed first (gqac_run_shapes), so that
 * the runtime can say where each output is to be written; a present whose buffer is that of its
 * past is then updated in place. Outputs whose shape only a run computes are copied after it. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

/* A context of the pool, and the tensors of its Run. */
typedef struct lease {
    struct lease *next;
    gqac_context *context;
    gqac_threads *threads;      /* of the runtime; NULL: the context has others */
    ort_kernel_context *kernel; /* of the Run, whose threads these are */
    const ort_api *api;
    const char **in_names; /* of the inputs that this Run has */
    gqac_tensor *in, *out;
    bool *bound; /* [outputs] */
} lease;

static void lease_free(lease *l) {
    if (!l)
        return;
    gqac_context_free(l->context);
    gqac_threads_free(l->threads);
    free(l->in_names);
    free(l->in);
    free(l->out);
    free(l->bound);
    free(l);
}

/* A region of gqac on threads of the runtime. */
typedef struct region {
    gqac_task *task;
    void *arg;
    int n;
    atomic_int next;
} region;

/* Computes one task that has not begun, whichever one the runtime asks for. */
static void run_task(void *arg, size_t i) {
    region *r = arg;
    (void)i;
    const int next = atomic_fetch_add(&r->next, 1);
    if (next < r->n)
        r->task(r->arg, next);
}

/* A gqac_parallel_for; what the runtime has not begun, the caller's thread computes. */
static void run_region(void *arg, int n, gqac_task *task, void *task_arg) {
    const lease *l = arg;
    region r = {task, task_arg, n, 0};
    ort_status *status = NULL;
    if (l->kernel)
        status = l->api->KernelContext_ParallelFor(l->kernel, run_task, (size_t)n, 0, &r);
    if (status)
        l->api->ReleaseStatus(status);
    while (atomic_load(&r.next) < n)
        run_task(&r, 0);
}

static gqac_status context_create(const part *t, lease *l, gqac_diag *diag) {
    const provider *p = t->p;
    gqac_threads *threads = p->threads;
    if (p->options.threads == THREADS_OF_RUNTIME) {
        const gqac_status status = gqac_threads_wrap(0, run_region, l, &l->threads, diag);
        if (status != GQAC_OK)
            return status;
        threads = l->threads;
    }
    return threads ? gqac_context_create_on(t->program, threads, &l->context, diag)
                   : gqac_context_create(t->program, 1, &l->context, diag);
}

static ort_status *lease_create(const part *t, lease **created) {
    provider *p = t->p;
    gqac_diag diag;
    lease *l = calloc(1, sizeof *l);
    if (!l)
        return status_no_memory(p->api);
    l->in_names = calloc(t->n_in + 1, sizeof *l->in_names);
    l->in = calloc(t->n_in + 1, sizeof *l->in);
    l->out = calloc(t->n_out + 1, sizeof *l->out);
    l->bound = calloc(t->n_out + 1, sizeof *l->bound);
    if (!l->in_names || !l->in || !l->out || !l->bound) {
        lease_free(l);
        return status_no_memory(p->api);
    }
    l->api = p->api;
    if (context_create(t, l, &diag) != GQAC_OK) {
        lease_free(l);
        return status_of(p->api, &diag);
    }
    *created = l;
    return NULL;
}

static ort_status *lease_take(part *t, lease **taken) {
    pthread_mutex_lock(&t->p->lock);
    *taken = t->idle;
    if (*taken)
        t->idle = (*taken)->next;
    pthread_mutex_unlock(&t->p->lock);
    return *taken ? NULL : lease_create(t, taken);
}

static void lease_return(part *t, lease *l) {
    pthread_mutex_lock(&t->p->lock);
    l->next = t->idle;
    t->idle = l;
    pthread_mutex_unlock(&t->p->lock);
}

/* ---- a Run ----------------------------------------------------------------- */

static ort_status *read_info(const ort_api *api, const ort_tensor_info *info, const char *name,
                             gqac_tensor *tensor) {
    int type;
    size_t rank;
    ORT_TRY(api->GetTensorElementType(info, &type));
    ORT_TRY(api->GetDimensionsCount(info, &rank));
    tensor->dtype = gqac_dtype_from_onnx(type);
    if (tensor->dtype == GQAC_NONE || rank > GQAC_MAX_RANK)
        return status_printf(api, ORT_INVALID_ARGUMENT,
                             "gqac: the input '%s' has the ONNX element type %d and rank %zu\n"
                             "  rule:  numbers or bool, of rank %d at most",
                             name, type, rank, GQAC_MAX_RANK);
    tensor->rank = (int)rank;
    return api->GetDimensions(info, tensor->dims, rank);
}

/* A view of a tensor of the runtime. */
static ort_status *view(const ort_api *api, const ort_value *value, const char *name,
                        gqac_tensor *tensor) {
    ort_tensor_info *info;
    ORT_TRY(api->GetTensorTypeAndShape(value, &info));
    ort_status *status = read_info(api, info, name, tensor);
    api->ReleaseTensorTypeAndShapeInfo(info);
    ORT_TRY(status);
    /* Inputs are only read; the interface has one function for both directions. */
    return api->GetTensorMutableData((ort_value *)(uintptr_t)value, &tensor->data);
}

static ort_status *take_inputs(const part *t, lease *l, ort_kernel_context *k, int *n) {
    const ort_api *api = t->p->api;
    size_t n_in, n_out;
    ORT_TRY(api->KernelContext_GetInputCount(k, &n_in));
    ORT_TRY(api->KernelContext_GetOutputCount(k, &n_out));
    if (n_in != t->n_in || n_out != t->n_out)
        return status_printf(api, ORT_EP_FAIL,
                             "gqac: the run has %zu inputs and %zu outputs, but the model has %zu "
                             "and %zu",
                             n_in, n_out, t->n_in, t->n_out);
    for (size_t i = 0; i < n_in; i++) {
        const ort_value *value = NULL;
        ORT_TRY(api->KernelContext_GetInput(k, i, &value));
        if (!value)
            continue; /* an optional input; gqac_run names it if it needs it */
        l->in_names[*n] = t->in[i];
        ORT_TRY(view(api, value, t->in[i], &l->in[*n]));
        ++*n;
    }
    return NULL;
}

/* Asks the runtime for the memory of output i. *data is NULL if nobody wants the output. */
static ort_status *output_memory(const part *t, ort_kernel_context *k, size_t i,
                                 const gqac_tensor *shape, void **data) {
    const ort_api *api = t->p->api;
    ort_value *value = NULL;
    *data = NULL;
    ORT_TRY(api->KernelContext_GetOutput(k, i, shape->dims, (size_t)shape->rank, &value));
    return value ? api->GetTensorMutableData(value, data) : NULL;
}

static bool is_known(const gqac_tensor *shape) {
    bool known = shape->rank >= 0 && shape->dtype != GQAC_NONE;
    for (int i = 0; known && i < shape->rank; i++)
        known = shape->dims[i] >= 0;
    return known;
}

/* Binds the outputs whose shape is known to the runtime's memory. */
static ort_status *bind_outputs(const part *t, lease *l, ort_kernel_context *k, int n) {
    const ort_api *api = t->p->api;
    gqac_diag diag;
    if (gqac_run_shapes(l->context, n, l->in_names, l->in, (int)t->n_out,
                        (const char *const *)t->out, l->out, &diag) != GQAC_OK)
        return status_of(api, &diag);
    for (size_t i = 0; i < t->n_out; i++) {
        void *data;
        if (!is_known(&l->out[i]))
            continue;
        ORT_TRY(output_memory(t, k, i, &l->out[i], &data));
        const size_t bytes = gqac_tensor_bytes(&l->out[i]);
        if (!data || !bytes)
            continue;
        if (gqac_context_bind_output(l->context, t->out[i], data, bytes, &diag) != GQAC_OK)
            return status_of(api, &diag);
        l->bound[i] = true;
    }
    return NULL;
}

static ort_status *run(const part *t, lease *l, ort_kernel_context *k) {
    const ort_api *api = t->p->api;
    gqac_diag diag;
    int n = 0;
    ORT_TRY(take_inputs(t, l, k, &n));
    ORT_TRY(bind_outputs(t, l, k, n));
    if (gqac_run(l->context, n, l->in_names, l->in, (int)t->n_out, (const char *const *)t->out,
                 l->out, &diag) != GQAC_OK)
        return status_of(api, &diag);
    for (size_t i = 0; i < t->n_out; i++) {
        void *data;
        if (l->bound[i])
            continue;
        ORT_TRY(output_memory(t, k, i, &l->out[i], &data));
        if (data && gqac_tensor_bytes(&l->out[i]))
            memcpy(data, l->out[i].data, gqac_tensor_bytes(&l->out[i]));
    }
    return NULL;
}

/* The runtime's memory is only bound during a Run. */
static void unbind_outputs(const part *t, lease *l) {
    for (size_t i = 0; i < t->n_out; i++)
        if (l->bound[i]) {
            gqac_context_bind_output(l->context, t->out[i], NULL, 0, NULL);
            l->bound[i] = false;
        }
}

static ort_status *compute(ort_compute *self, void *state, ort_kernel_context *k) {
    part *t = (part *)self;
    lease *l;
    (void)state;
    ORT_TRY(lease_take(t, &l));
    l->kernel = k;
    ort_status *status = run(t, l, k);
    l->kernel = NULL;
    unbind_outputs(t, l);
    lease_return(t, l);
    return status;
}

static ort_status *create_state(ort_compute *self, ort_compute_context *context, void **state) {
    (void)context;
    *state = self; /* there is none: contexts belong to the provider */
    return NULL;
}

static void release_state(ort_compute *self, void *state) {
    (void)self;
    (void)state;
}

/* ---- the node -------------------------------------------------------------- */

ort_status *compute_open(part *t, const ort_node *node) {
    const ort_api *api = t->p->api;
    t->compute = (ort_compute){ORT_VERSION, create_state, compute, release_state};
    ORT_TRY(node_names(api, node, api->Node_GetNumInputs, api->Node_GetInputs, &t->in, &t->n_in));
    ORT_TRY(
        node_names(api, node, api->Node_GetNumOutputs, api->Node_GetOutputs, &t->out, &t->n_out));
    return match_fused(t, node);
}

void compute_close(part *t) {
    while (t->idle) {
        lease *l = t->idle;
        t->idle = l->next;
        lease_free(l);
    }
    node_names_free(t->in, t->n_in);
    node_names_free(t->out, t->n_out);
    t->in = t->out = NULL;
    t->n_in = t->n_out = 0;
}
