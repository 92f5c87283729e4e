/* What the files that call CUDA's libraries share. */
#ifndef GQAC_TARGETS_GPU_CUDA_API_H
#define GQAC_TARGETS_GPU_CUDA_API_H

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUfunc_st *CUfunction;

/* For lists of F(name here, name in the library, arguments): a member that points to the function,
 * and code that finds it in `library`, a handle of dlopen, and sets that member of FROM. If there
 * is none, this returns its name from the function around it. */
#define CUDA_POINTER(own, name, ...) int (*own)(__VA_ARGS__);
#define CUDA_FIND(own, name, ...)                                                                  \
    *(void **)(void *)&FROM.own = dlsym(library, #name);                                           \
    if (!FROM.own)                                                                                 \
        return #name;

#endif
