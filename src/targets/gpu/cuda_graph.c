/* Lists of launches, those that were seen before, and their graphs. A kept list always has the
 * arguments that its graph has, so only what differs from it is updated. */
#include "targets/gpu/cuda_graph.h"

#include <stdlib.h>
#include <string.h>

/* A launch: its arguments are in the bytes of its list, each at a multiple of ALIGNMENT. */
typedef struct launch {
    CUfunction function;
    unsigned groups[2], items[2];
    size_t at; /* of the first argument */
    int n_args;
    unsigned short sizes[CUDA_GRAPH_ARGS];
} launch;
enum { ALIGNMENT = 16 };

typedef struct list {
    launch launches[CUDA_GRAPH_LAUNCHES];
    int n;
    unsigned char *bytes;
    size_t used, capacity;
} list;

/* A list that was launched before, and its graph, once it was launched twice. */
typedef struct kept {
    list list;
    CUgraph graph;
    CUgraphExec exec; /* NULL: no graph yet */
    CUgraphNode nodes[CUDA_GRAPH_LAUNCHES];
    unsigned long used; /* clock of the last use; 0: free */
} kept;

struct cuda_launches {
    const cuda_graph_calls *calls;
    list waiting;
    kept kept[CUDA_GRAPH_KEPT];
    unsigned long clock;
    bool plain; /* no graphs: the driver has none, or could not make one */
    cuda_losses losses;
};

cuda_launches *cuda_launches_open(const cuda_graph_calls *calls) {
    cuda_launches *l = calloc(1, sizeof *l);
    if (l) {
        l->calls = calls;
        l->plain = !calls->has_graphs;
    }
    return l;
}

static size_t padded(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool reserve(list *l, size_t bytes) {
    if (l->used + bytes <= l->capacity)
        return true;
    const size_t capacity = 2 * (l->used + bytes);
    unsigned char *grown = realloc(l->bytes, capacity);
    if (!grown)
        return false;
    l->bytes = grown;
    l->capacity = capacity;
    return true;
}

bool cuda_launches_full(const cuda_launches *launches) {
    return launches->waiting.n == CUDA_GRAPH_LAUNCHES;
}

bool cuda_launches_add(cuda_launches *launches, CUfunction function, const gpu_grid *grid,
                       int n_args, const gpu_arg *args) {
    list *l = &launches->waiting;
    size_t bytes = 0;
    for (int i = 0; i < n_args; i++)
        bytes += padded(args[i].size);
    if (l->n == CUDA_GRAPH_LAUNCHES || !reserve(l, bytes))
        return false;
    launch *own = &l->launches[l->n++];
    *own = (launch){.function = function,
                    .groups = {(unsigned)grid->groups[0], (unsigned)grid->groups[1]},
                    .items = {(unsigned)grid->items[0], (unsigned)grid->items[1]},
                    .at = l->used,
                    .n_args = n_args};
    memset(l->bytes + l->used, 0, bytes); /* padding is compared, too */
    for (int i = 0; i < n_args; i++) {
        own->sizes[i] = (unsigned short)args[i].size;
        memcpy(l->bytes + l->used, args[i].value, args[i].size);
        l->used += padded(args[i].size);
    }
    return true;
}

/* The node of a launch; `values` has room for the addresses of its arguments. */
static cuda_node node_of(const list *l, int i, void **values) {
    const launch *own = &l->launches[i];
    size_t at = own->at;
    for (int k = 0; k < own->n_args; k++) {
        values[k] = l->bytes + at;
        at += padded(own->sizes[k]);
    }
    return (cuda_node){.function = own->function,
                       .groups = {own->groups[0], own->groups[1], 1},
                       .items = {own->items[0], own->items[1], 1},
                       .values = values};
}

static int launch_each(const cuda_graph_calls *calls, const list *l, CUstream stream) {
    void *values[CUDA_GRAPH_ARGS];
    int code = 0;
    for (int i = 0; i < l->n && code == 0; i++) {
        const cuda_node n = node_of(l, i, values);
        code = calls->LaunchKernel(n.function, n.groups[0], n.groups[1], 1, n.items[0], n.items[1],
                                   1, 0, stream, n.values, NULL);
    }
    return code;
}

/* ---- lists that were launched before ------------------------------------------- */

/* The same kernels with arguments of the same sizes, which may have other values. */
static bool same_kernels(const list *a, const list *b) {
    if (a->n != b->n || a->used != b->used)
        return false;
    for (int i = 0; i < a->n; i++) {
        const launch *x = &a->launches[i], *y = &b->launches[i];
        if (x->function != y->function || x->at != y->at || x->n_args != y->n_args ||
            memcmp(x->sizes, y->sizes, sizeof x->sizes) != 0)
            return false;
    }
    return true;
}

static void forget(const cuda_graph_calls *calls, kept *k) {
    if (k->exec)
        calls->GraphExecDestroy(k->exec);
    if (k->graph)
        calls->GraphDestroy(k->graph);
    free(k->list.bytes);
    memset(k, 0, sizeof *k);
}

void cuda_launches_forget(cuda_launches *launches) {
    for (int i = 0; i < CUDA_GRAPH_KEPT; i++)
        forget(launches->calls, &launches->kept[i]);
}

void cuda_launches_close(cuda_launches *launches) {
    if (!launches)
        return;
    cuda_launches_forget(launches);
    free(launches->waiting.bytes);
    free(launches);
}

static kept *find(cuda_launches *launches) {
    for (int i = 0; i < CUDA_GRAPH_KEPT; i++)
        if (launches->kept[i].used && same_kernels(&launches->kept[i].list, &launches->waiting))
            return &launches->kept[i];
    return NULL;
}

/* Remembers what waits, in the place of the least recently used list. */
static void remember(cuda_launches *launches) {
    kept *k = &launches->kept[0];
    for (int i = 1; i < CUDA_GRAPH_KEPT; i++)
        if (launches->kept[i].used < k->used)
            k = &launches->kept[i];
    forget(launches->calls, k);
    if (!reserve(&k->list, launches->waiting.used))
        return;
    unsigned char *bytes = k->list.bytes;
    const size_t capacity = k->list.capacity;
    k->list = launches->waiting;
    k->list.bytes = bytes;
    k->list.capacity = capacity;
    memcpy(bytes, launches->waiting.bytes, launches->waiting.used);
    k->used = launches->clock;
}

/* ---- graphs --------------------------------------------------------------------- */

/* Makes the graph of a list, one kernel after the other. */
static int instantiate(const cuda_graph_calls *calls, kept *k) {
    void *values[CUDA_GRAPH_ARGS];
    int code = calls->GraphCreate(&k->graph, 0);
    for (int i = 0; i < k->list.n && code == 0; i++) {
        const cuda_node node = node_of(&k->list, i, values);
        code = calls->GraphAddKernelNode(&k->nodes[i], k->graph, i ? &k->nodes[i - 1] : NULL,
                                         i ? 1 : 0, &node);
    }
    return code == 0 ? calls->GraphInstantiate(&k->exec, k->graph, 0) : code;
}

/* Updates a kept list, and its graph if it has one, to the launches that wait. */
static int update(const cuda_graph_calls *calls, kept *k, const list *now) {
    void *values[CUDA_GRAPH_ARGS];
    for (int i = 0; i < now->n; i++) {
        launch *before = &k->list.launches[i];
        const launch *after = &now->launches[i];
        const size_t end = i + 1 < now->n ? now->launches[i + 1].at : now->used;
        const size_t bytes = end - after->at;
        if (memcmp(before->groups, after->groups, sizeof after->groups) == 0 &&
            memcmp(before->items, after->items, sizeof after->items) == 0 &&
            memcmp(k->list.bytes + after->at, now->bytes + after->at, bytes) == 0)
            continue;
        *before = *after;
        memcpy(k->list.bytes + after->at, now->bytes + after->at, bytes);
        if (!k->exec)
            continue;
        const cuda_node node = node_of(&k->list, i, values);
        const int code = calls->GraphExecKernelNodeSetParams(k->exec, k->nodes[i], &node);
        if (code != 0)
            return code;
    }
    return 0;
}

/* The graph of what waits; NULL: there is none, and kernels are launched one by one. */
static const kept *graph_of(cuda_launches *launches) {
    kept *k = launches->plain || launches->waiting.n < 2 ? NULL : find(launches);
    launches->clock++;
    if (!k) {
        if (!launches->plain && launches->waiting.n >= 2)
            remember(launches);
        return NULL;
    }
    k->used = launches->clock;
    if (update(launches->calls, k, &launches->waiting) == 0 &&
        (k->exec || instantiate(launches->calls, k) == 0))
        return k;
    forget(launches->calls, k);
    launches->plain = true; /* a driver that failed once is not asked again */
    return NULL;
}

static int submit_waiting(cuda_launches *launches, CUstream stream) {
    const kept *k = graph_of(launches);
    return k ? launches->calls->GraphLaunch(k->exec, stream)
             : launch_each(launches->calls, &launches->waiting, stream);
}

int cuda_launches_submit(cuda_launches *launches, CUstream stream) {
    list *l = &launches->waiting;
    const int code = l->n > 0 ? submit_waiting(launches, stream) : 0;
    if (code != 0)
        launches->losses = (cuda_losses){launches->losses.count + 1, code};
    l->n = 0;
    l->used = 0;
    return code;
}

cuda_losses cuda_launches_losses(const cuda_launches *launches) {
    return launches->losses;
}
