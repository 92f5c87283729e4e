/* Launches of a CUDA stream that are submitted together: a list of kernels that is seen for the
 * second time becomes a CUDA graph, which is launched as a whole; of its kernels only those whose
 * arguments or groups have changed since are updated. So a decode step is a few submissions, not
 * hundreds. Source of the interfaces: the CUDA Driver API manual of NVIDIA, "Graph Management". */
#ifndef GQAC_TARGETS_GPU_CUDA_GRAPH_H
#define GQAC_TARGETS_GPU_CUDA_GRAPH_H

#include "targets/gpu/cuda_api.h"
#include "targets/gpu/driver.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;

/* CUDA_KERNEL_NODE_PARAMS_v2 */
typedef struct cuda_node {
    CUfunction function;
    unsigned groups[3], items[3], shared_bytes;
    void **values, **extra;
    void *kernel;
    CUcontext context;
} cuda_node;

/* F(name here, name in the library, arguments) */
#define CUDA_GRAPH_FUNCTIONS(F)                                                                    \
    F(GraphCreate, cuGraphCreate, CUgraph *, unsigned)                                             \
    F(GraphAddKernelNode, cuGraphAddKernelNode_v2, CUgraphNode *, CUgraph, const CUgraphNode *,    \
      size_t, const cuda_node *)                                                                   \
    F(GraphInstantiate, cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)   \
    F(GraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, CUgraphExec, CUgraphNode,   \
      const cuda_node *)                                                                           \
    F(GraphLaunch, cuGraphLaunch, CUgraphExec, CUstream)                                           \
    F(GraphExecDestroy, cuGraphExecDestroy, CUgraphExec)                                           \
    F(GraphDestroy, cuGraphDestroy, CUgraph)

typedef struct cuda_graph_calls {
    int (*LaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void **, void **);
    bool has_graphs; /* false: those below are not set, and kernels are launched one by one */
    CUDA_GRAPH_FUNCTIONS(CUDA_POINTER)
} cuda_graph_calls;

enum {
    CUDA_GRAPH_LAUNCHES =
        64,               /* of one submission at most: the device begins while the host goes on */
    CUDA_GRAPH_KEPT = 32, /* lists that a stream remembers */
    CUDA_GRAPH_ARGS = 48  /* arguments of a kernel at most */
};

typedef struct cuda_launches cuda_launches; /* that wait, and the graphs of a stream */

/* NULL: out of memory. `calls` must outlive it. */
cuda_launches *cuda_launches_open(const cuda_graph_calls *calls);
/* The context must be current where launches are submitted or closed. */
void cuda_launches_close(cuda_launches *launches); /* drops what waits; NULL is allowed */
/* Copies the arguments. false: out of memory, or the list is full. */
bool cuda_launches_add(cuda_launches *launches, CUfunction function, const gpu_grid *grid,
                       int n_args, const gpu_arg *args);
bool cuda_launches_full(const cuda_launches *launches);
/* Submits what waits to the stream; nothing waits afterwards, whether or not that fails. Returns a
 * CUresult. */
int cuda_launches_submit(cuda_launches *launches, CUstream stream);
/* The submissions that failed so far, and the CUresult of the last one. */
typedef struct cuda_losses {
    uint64_t count;
    int code;
} cuda_losses;
cuda_losses cuda_launches_losses(const cuda_launches *launches);
/* Destroys the graphs of the stream; to be called before the module of a kernel is unloaded. */
void cuda_launches_forget(cuda_launches *launches);

#endif
