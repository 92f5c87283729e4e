/* Launches that are submitted as graphs: the stream runs the same kernels, groups and arguments, in
 * the same order, as if each were launched separately, whatever was launched before and whichever
 * call fails. The driver is a fake in this file, which records what its stream runs. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "targets/gpu/cuda_graph.h"

/* ---- a driver ------------------------------------------------------------------ */

enum { FUNCTIONS = 5, MOST = 4096, BYTES = 40 };
static struct CUfunc_st {
    int n_args;
    size_t sizes[3];
} functions[FUNCTIONS] = {{1, {4}}, {2, {8, 4}}, {3, {4, 24, 8}}, {2, {16, 1}}, {2, {8, 4}}};

typedef struct ran {
    CUfunction function;
    unsigned groups[2], items[2];
    unsigned char bytes[BYTES];
} ran;
struct CUgraph_st {
    int n;
    ran nodes[CUDA_GRAPH_LAUNCHES];
};
struct CUgraphExec_st {
    CUgraph of;
    ran nodes[CUDA_GRAPH_LAUNCHES];
};

static struct {
    ran ran[MOST], wanted[MOST];
    int n_ran, n_wanted, graphs, updates, alive, calls,
        fail; /* number of the graph call that fails */
} seen;

static bool fails(void) {
    return ++seen.calls == seen.fail;
}

static ran copy_of(const cuda_node *node) {
    ran r = {.function = node->function,
             .groups = {node->groups[0], node->groups[1]},
             .items = {node->items[0], node->items[1]}};
    size_t at = 0;
    for (int i = 0; i < node->function->n_args; at += node->function->sizes[i++])
        memcpy(r.bytes + at, node->values[i], node->function->sizes[i]);
    return r;
}

static int launch_kernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared, CUstream stream, void **values,
                         void **extra) {
    CU_ASSERT(gz == 1 && bz == 1 && shared == 0 && stream != NULL && extra == NULL);
    seen.ran[seen.n_ran++] = copy_of(
        &(cuda_node){.function = f, .groups = {gx, gy, 1}, .items = {bx, by, 1}, .values = values});
    return 0;
}

static int create(CUgraph *graph, unsigned flags) {
    if (fails())
        return 2;
    *graph = calloc(1, sizeof **graph);
    seen.alive++;
    return (int)flags;
}

static int add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
               const cuda_node *params) {
    if (fails())
        return 2;
    CU_ASSERT_FATAL(graph->n < CUDA_GRAPH_LAUNCHES);
    CU_ASSERT(n == (size_t)(graph->n > 0));
    CU_ASSERT(n == 0 || (void *)*after == &graph->nodes[graph->n - 1]);
    graph->nodes[graph->n] = copy_of(params);
    *node = (CUgraphNode)(void *)&graph->nodes[graph->n++];
    return 0;
}

static int instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    if (fails())
        return 2;
    *exec = calloc(1, sizeof **exec);
    (*exec)->of = graph;
    memcpy((*exec)->nodes, graph->nodes, sizeof graph->nodes);
    seen.alive++;
    return (int)flags;
}

static int set_params(CUgraphExec exec, CUgraphNode node, const cuda_node *params) {
    if (fails())
        return 2;
    const long at = (long)((ran *)(void *)node - exec->of->nodes);
    CU_ASSERT_FATAL(at >= 0 && at < exec->of->n);
    CU_ASSERT(exec->nodes[at].function == params->function);
    exec->nodes[at] = copy_of(params);
    seen.updates++;
    return 0;
}

static int launch_graph(CUgraphExec exec, CUstream stream) {
    if (fails())
        return 2;
    CU_ASSERT(stream != NULL);
    for (int i = 0; i < exec->of->n; i++)
        seen.ran[seen.n_ran++] = exec->nodes[i];
    seen.graphs++;
    return 0;
}

static int destroy_exec(CUgraphExec exec) {
    free(exec);
    seen.alive--;
    return 0;
}

static int destroy(CUgraph graph) {
    free(graph);
    seen.alive--;
    return 0;
}

static const cuda_graph_calls calls = {
    launch_kernel, true, create, add, instantiate, set_params, launch_graph, destroy_exec, destroy};
static const cuda_graph_calls plain = {.LaunchKernel = launch_kernel};

/* ---- launches -------------------------------------------------------------------- */

static CUstream stream_of_test(void) {
    return (CUstream)(void *)&seen;
}

/* Adds a launch whose arguments depend on `value`, and records what should run. */
static void ask(cuda_launches *launches, int function, unsigned value) {
    unsigned char bytes[BYTES];
    gpu_arg args[3];
    size_t at = 0;
    const gpu_grid grid = {{1 + value % 3, 1 + value % 2}, {32, 1 + value % 5}};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(value * 31 + i * (1 + value));
    for (int i = 0; i < functions[function].n_args; at += args[i++].size)
        args[i] = (gpu_arg){bytes + at, functions[function].sizes[i]};
    CU_ASSERT_FATAL(
        cuda_launches_add(launches, &functions[function], &grid, functions[function].n_args, args));
    ran *wanted = &seen.wanted[seen.n_wanted++];
    *wanted = (ran){.function = &functions[function],
                    .groups = {(unsigned)grid.groups[0], (unsigned)grid.groups[1]},
                    .items = {(unsigned)grid.items[0], (unsigned)grid.items[1]}};
    memcpy(wanted->bytes, bytes, at);
    memset(bytes, 0xEE, sizeof bytes); /* the arguments were copied */
}

/* A step of n launches: its kernels depend on `kind`, and most arguments on `value`.
 * */
static int step(cuda_launches *launches, int n, unsigned kind, unsigned value) {
    for (int i = 0; i < n; i++)
        ask(launches, (int)((unsigned)i * (kind + 1) + kind) % FUNCTIONS,
            i % 4 == 1 ? value + (unsigned)i : (unsigned)i);
    return cuda_launches_submit(launches, stream_of_test());
}

static void begin(void) {
    memset(&seen, 0, sizeof seen);
}

static void compare(void) {
    CU_ASSERT(seen.n_ran == seen.n_wanted);
    CU_ASSERT(memcmp(seen.ran, seen.wanted, (size_t)seen.n_wanted * sizeof *seen.ran) == 0);
}

static void steps_are_graphs_from_the_second_on(void) {
    begin();
    cuda_launches *l = cuda_launches_open(&calls);
    for (unsigned value = 0; value < 5; value++)
        CU_ASSERT(step(l, 12, 3, value) == 0);
    compare();
    CU_ASSERT(seen.graphs == 4);
    CU_ASSERT(seen.updates == 3 * 3); /* three of the launches have different arguments each time */
    CU_ASSERT(step(l, 12, 3, 4) == 0);
    CU_ASSERT(seen.graphs == 5 && seen.updates == 3 * 3); /* nothing has changed */
    compare();
    cuda_launches_close(l);
    CU_ASSERT(seen.alive == 0);
}

/* Functions 1 and 4 have arguments of the same sizes. */
static void kernels_are_told_apart(void) {
    begin();
    cuda_launches *l = cuda_launches_open(&calls);
    for (unsigned i = 0; i < 12; i++) {
        for (int k = 0; k < 3; k++)
            ask(l, k == 1 && i % 3 == 2 ? 4 : 1, 1);
        CU_ASSERT(cuda_launches_submit(l, stream_of_test()) == 0);
    }
    compare();
    CU_ASSERT(seen.graphs == 10);
    cuda_launches_close(l);
}

static void any_steps(void) {
    begin();
    cuda_launches *l = cuda_launches_open(&calls);
    unsigned random = 1;
    for (int i = 0; i < 200; i++) {
        random = random * 1103515245u + 12345u;
        const int n = 1 + (int)(random >> 8) % 17;
        CU_ASSERT(step(l, n, (random >> 16) % 4, random >> 20) == 0); /* more kinds than are kept */
    }
    compare();
    CU_ASSERT(seen.graphs > 20);
    cuda_launches_close(l);
    CU_ASSERT(seen.alive == 0);
}

static void a_full_list_is_one_graph(void) {
    begin();
    cuda_launches *l = cuda_launches_open(&calls);
    for (unsigned value = 0; value < 2; value++) {
        for (int i = 0; i < CUDA_GRAPH_LAUNCHES; i++) {
            CU_ASSERT(!cuda_launches_full(l));
            ask(l, i % FUNCTIONS, value);
        }
        CU_ASSERT(cuda_launches_full(l));
        CU_ASSERT(!cuda_launches_add(l, &functions[0], &(gpu_grid){{1, 1}, {1, 1}}, 0, NULL));
        CU_ASSERT(cuda_launches_submit(l, stream_of_test()) == 0);
        CU_ASSERT(!cuda_launches_full(l));
    }
    compare();
    CU_ASSERT(seen.graphs == 1);
    CU_ASSERT(cuda_launches_submit(l, stream_of_test()) == 0); /* nothing was launched */
    compare();
    cuda_launches_close(l);
}

/* Each graph call fails in turn: the kernels are launched one by one, also in later steps. Only the
 * launch of a graph is different: its failure is reported. */
static void every_call_fails(void) {
    begin();
    cuda_launches *l = cuda_launches_open(&calls);
    for (unsigned value = 0; value < 3; value++)
        step(l, 6, 1, value);
    cuda_launches_close(l);
    const int all = seen.calls;
    CU_ASSERT(all > 10);
    for (int fail = 1; fail <= all; fail++) {
        begin();
        seen.fail = fail;
        int failures = 0;
        l = cuda_launches_open(&calls);
        for (unsigned value = 0; value < 5; value++) {
            const int before = seen.n_ran, code = step(l, 6, 1, value);
            if (code != 0) {
                failures++;
                CU_ASSERT(seen.n_ran == before);
                seen.n_wanted -= 6;
            }
        }
        CU_ASSERT(failures <= 1);
        compare();
        cuda_launches_close(l);
        CU_ASSERT(seen.alive == 0);
    }
}

static void without_graphs(void) {
    begin();
    cuda_launches *l = cuda_launches_open(&plain);
    for (unsigned value = 0; value < 3; value++)
        CU_ASSERT(step(l, 9, 2, value) == 0);
    compare();
    ask(l, 0, 1);
    cuda_launches_close(l); /* drops pending launches */
    CU_ASSERT(seen.n_ran == seen.n_wanted - 1 && seen.calls == 0);
}

static const unit_case cases[] = {
    {"steps are graphs from the second on", steps_are_graphs_from_the_second_on},
    {"kernels are told apart", kernels_are_told_apart},
    {"any steps", any_steps},
    {"a full list is one graph", a_full_list_is_one_graph},
    {"every call fails", every_call_fails},
    {"without graphs", without_graphs},
};

int main(int argc, char **argv) {
    return unit_run("targets/cuda_graph", cases, sizeof cases / sizeof *cases, argc, argv);
}
