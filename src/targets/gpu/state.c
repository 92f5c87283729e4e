/* What a program has on a device: queue, kernels, constants, scratch. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "numerics/contract.h"
#include "targets/gpu/blocks.h"
#include "targets/gpu/mirror.h"

/* The kernels of a product, for a kind of weights. */
#define FORMS(ID, PREFIX, KIND)                                                                    \
    [(ID) + GPU_FEW_1] = PREFIX "_few1_" KIND, [(ID) + GPU_FEW_4] = PREFIX "_few4_" KIND,          \
            [(ID) + GPU_TILE] = PREFIX "_tile_" KIND

/* Those of the projections of experts. */
#define MOE(ID, KIND) [ID] = "moe_" KIND, [(ID) + 1] = "moe_tile_" KIND

static const char *const kernel_names[GPU_KERNELS] = {
    FORMS(GPU_PRODUCT_F32, "product", "f32"),
    FORMS(GPU_PRODUCT_F16, "product", "f16"),
    FORMS(GPU_PRODUCT_BF16, "product", "bf16"),
    FORMS(GPU_PRODUCT_2, "product", "2"),
    FORMS(GPU_PRODUCT_4, "product", "4"),
    FORMS(GPU_PRODUCT_8, "product", "8"),
    FORMS(GPU_INT8_2, "int8", "2"),
    FORMS(GPU_INT8_4, "int8", "4"),
    FORMS(GPU_INT8_8, "int8", "8"),
    [GPU_PRODUCT_ADD] = "product_add",
    [GPU_NBITS_QUANTISE] = "nbits_quantise",
    [GPU_ATTEND_FEW] = "attend_few",
    [GPU_ATTEND_MANY] = "attend_many",
    [GPU_ATTEND_MERGE] = "attend_merge",
    [GPU_NORM] = "norm_rows",
    [GPU_HEADS] = "heads_rows",
    [GPU_GATHER_CODES] = "gather_codes",
    [GPU_COPY_BOX] = "copy_box",
    [GPU_COPY_BOX_16] = "copy_box_16",
    [GPU_COPY_BOX_128] = "copy_box_128",
    [GPU_COPY_ROWS] = "copy_rows",
    [GPU_COPY_ROWS_16] = "copy_rows_16",
    [GPU_COPY_ROWS_128] = "copy_rows_128",
    [GPU_SAME] = "unary_same",
    [GPU_NEG] = "unary_neg",
    [GPU_SQRT] = "unary_sqrt",
    [GPU_SIGMOID] = "unary_sigmoid",
    [GPU_TANH] = "unary_tanh",
    [GPU_ERF] = "unary_erf",
    [GPU_SWISH] = "unary_swish",
    [GPU_GELU] = "unary_gelu",
    [GPU_GELU_TANH] = "unary_gelu_tanh",
    [GPU_FAST_GELU] = "unary_fast_gelu",
    [GPU_ADD] = "binary_add",
    [GPU_SUB] = "binary_sub",
    [GPU_MUL] = "binary_mul",
    [GPU_DIV] = "binary_div",
    [GPU_GATE_SIGMOID] = "gate_sigmoid",
    [GPU_GATE_TANH] = "gate_tanh",
    [GPU_GATE_SWISH] = "gate_swish",
    [GPU_GATE_GELU] = "gate_gelu",
    [GPU_GATE_GELU_TANH] = "gate_gelu_tanh",
    [GPU_GATE_FAST_GELU] = "gate_fast_gelu",
    [GPU_CHAIN] = "chain_rows",
    [GPU_MOE_CHOOSE] = "moe_choose",
    [GPU_MOE_COUNT] = "moe_count",
    [GPU_MOE_SORT] = "moe_sort",
    MOE(GPU_MOE_F32, "f32"),
    MOE(GPU_MOE_F16, "f16"),
    MOE(GPU_MOE_BF16, "bf16"),
    MOE(GPU_MOE_2, "2"),
    MOE(GPU_MOE_4, "4"),
    MOE(GPU_MOE_8, "8"),
    [GPU_MOE_ACTIVATE] = "moe_activate",
    [GPU_MOE_ADD] = "moe_add",
    [GPU_SOFTMAX] = "softmax_rows",
    [GPU_ARG_ROWS] = "arg_rows",
    [GPU_TOP] = "top_rows",
    [GPU_TOP_F16] = "top_rows_f16",
    [GPU_TOP_BF16] = "top_rows_bf16",
    [GPU_BEST_OF_PARTS] = "best_of_parts",
    [GPU_BEST_ID] = "best_id",
    [GPU_TOP_OF_PARTS] = "top_of_parts",
    [GPU_TOP_IDS] = "top_ids",
};

/* Negative controls are in kernels/. */
#if defined(GQAC_CONTROL_KERNEL_BY_ROWS)
#define CONTROL "#define CONTROL_KERNEL_BY_ROWS\n"
#elif defined(GQAC_CONTROL_GPU_SPLIT_BY_GROUPS)
#define CONTROL "#define CONTROL_GPU_SPLIT_BY_GROUPS\n"
#elif defined(GQAC_CONTROL_GPU_PIECES_DESCEND)
#define CONTROL "#define CONTROL_GPU_PIECES_DESCEND\n"
#elif defined(GQAC_CONTROL_GPU_MERGE_DESCENDING)
#define CONTROL "#define CONTROL_GPU_MERGE_DESCENDING\n"
#elif defined(GQAC_CONTROL_GPU_LAST_OF_EQUAL)
#define CONTROL "#define CONTROL_GPU_LAST_OF_EQUAL\n"
#elif defined(GQAC_CONTROL_CODES_BY_ROWS)
#define CONTROL "#define CONTROL_CODES_BY_ROWS\n"
#elif defined(GQAC_CONTROL_SCALE_BY_ROWS)
#define CONTROL "#define CONTROL_SCALE_BY_ROWS\n"
#elif defined(GQAC_CONTROL_BF16_BY_ROWS)
#define CONTROL "#define CONTROL_BF16_BY_ROWS\n"
#elif defined(GQAC_CONTROL_GPU_ROWS_AFTER_END)
#define CONTROL "#define CONTROL_GPU_ROWS_AFTER_END\n"
#elif defined(GQAC_CONTROL_GPU_WARP_MAXIMUM)
#define CONTROL "#define CONTROL_GPU_WARP_MAXIMUM\n"
#else
#define CONTROL ""
#endif

/* The texts of the kernels, which cmake/gpu.cmake makes of src/numerics and kernels/. */
extern const char gpu_source[], gpu_attention_source[], gpu_tensor_source[],
    gpu_attend_tensor_source[];

#define TENSOR(ID, KIND)                                                                           \
    [(ID) + GPU_FEW_1] = "tensor_few1_" KIND, [(ID) + GPU_FEW_4] = "tensor_few_" KIND,             \
            [(ID) + GPU_TILE] = "tensor_tile_" KIND

static const char *const tensor_names[GPU_TENSOR_KERNELS] = {
    [GPU_TENSOR_PACK] = "tensor_pack",   [GPU_TENSOR_FACTORS] = "tensor_factors",
    TENSOR(GPU_TENSOR_FLOATS, "floats"), TENSOR(GPU_TENSOR_2, "2"),
    TENSOR(GPU_TENSOR_4, "4"),           TENSOR(GPU_TENSOR_8, "8"),
};

typedef struct kept {
    struct kept *next;
    gpu_buffer buffer;
    const void *of; /* data of the constant whose fp32 values the buffer has; NULL: of none */
    size_t bytes;   /* in fp32 */
} kept;

/* Kernels with constants of their own. */
typedef struct own_kernels {
    struct own_kernels *next;
    char *constants;
    gpu_kernel *kernels[GPU_OWN]; /* in the order of their names; the others are NULL */
} own_kernels;

typedef struct list {
    gpu_buffer buffer;
    unsigned char *data; /* a copy of the first `bytes` bytes of the buffer */
    size_t bytes, capacity;
} list;

enum { BLOCKS = 3 };

struct gpu_state {
    const gpu_driver *driver;
    gpu_queue *queue;
    gpu_notice notice;
    gpu_kernel *kernels[GPU_KERNELS];
    gpu_kernel *tensor[GPU_TENSOR_KERNELS]; /* NULL until a program needs them */
    char bf16_name[24];
    kept *constants;
    pthread_mutex_t lock; /* of what follows */
    own_kernels *own;
    gpu_blocks *blocks[BLOCKS]; /* by code bits / 4 */
    gpu_buffer scratch[GPU_SCRATCH], spare;
    list lists[GPU_LISTS];
    unsigned char *outbox; /* what kernels were sent since the device was last waited for */
    size_t sent;           /* bytes of it */
};

enum { OUTBOX = 256 << 10, SENT_ALIGNMENT = 64 };

/* The constants of all kernels, then `more`; the caller frees the text with free(). */
static char *constants_text(const char *more) {
    enum { MOST = 1024 };
    const size_t size = MOST + strlen(more);
    char *text = malloc(size);
    if (text)
        snprintf(text, size,
                 "#define GQAC_KEY_TILE %d\n#define GQAC_KEY_SPLIT %d\n"
                 "#define ATTEND_FEW_ROWS %d\n#define ATTEND_FEW_ITEMS %d\n"
                 "#define ATTEND_MANY_ITEMS %d\n#define ATTEND_MERGERS %d\n#define ATTEND_MOST %d\n"
                 "#define BROADCAST_RANK %d\n#define BOX_RANK %d\n#define KV_BLOCK %d\n"
                 "#define KV_SLABS %d\n#define ORDER_ITEMS %d\n#define ORDER_PART %d\n"
                 "#define ORDER_TOP %d\n" CONTROL "%s",
                 GQAC_KEY_TILE, GQAC_KEY_SPLIT, GPU_ATTEND_FEW_ROWS, GPU_ATTEND_FEW_ITEMS,
                 GPU_ATTEND_MANY_ITEMS, GPU_ATTEND_MERGERS, GPU_ATTEND_SIZE, GQAC_MAX_RANK,
                 OP_BOX_RANK, GQAC_KV_BLOCK, GPU_SLABS, GPU_ORDER_ITEMS, GPU_ORDER_PART,
                 GPU_ORDER_TOP, more);
    return text;
}

static gqac_status build(gpu_state *s, const char *more, const char *source, int n,
                         const char *const *names, gpu_kernel **kernels, gqac_diag *diag) {
    char *constants = constants_text(more);
    if (!constants)
        return gqac_diag_oom(diag, "a device");
    const gqac_status status = s->driver->build(s->queue, (const char *const[]){constants, source},
                                                n, names, kernels, &s->notice, diag);
    free(constants);
    return status;
}

/* Architectures may round sums in different ways. */
static void name_tensor_cores(gpu_state *s) {
    const char *name = s->driver->tensor_cores ? s->driver->tensor_cores(s->queue) : NULL;
    if (name)
        snprintf(s->bf16_name, sizeof s->bf16_name, "bf16.%s", name);
}

static gqac_status open_kernels(gpu_state *s, int own, gqac_diag *diag) {
    char rows[128];
    snprintf(rows, sizeof rows, "#define ATTEND_SIZE %d\n#define ATTEND_MANY_ROWS %d\n",
             GPU_ATTEND_COMMON, GPU_ATTEND_MANY_ROWS);
    GQAC_TRY(s->driver->open(own, &s->queue, diag));
    name_tensor_cores(s);
    for (int i = 0; i < BLOCKS; i++)
        if (!(s->blocks[i] = gpu_blocks_open(s->driver, s->queue)))
            return gqac_diag_oom(diag, "a device");
    return build(s, rows, gpu_source, GPU_KERNELS, kernel_names, s->kernels, diag);
}

/* Compiles kernels with these constants, and keeps them. */
static gqac_status add_own(gpu_state *s, gpu_own_form form, const char *constants,
                           gqac_diag *diag) {
    static const char *const names[] = {"attend_prepare", "attend_prompt", "attend_tensor"};
    own_kernels *own = calloc(1, sizeof *own);
    if (!own || !(own->constants = strdup(constants))) {
        free(own);
        return gqac_diag_oom(diag, "kernels of attention");
    }
    gpu_kernel **to = own->kernels;
    const gqac_status status =
        form == GPU_PLAIN
            ? build(s, constants, gpu_attention_source, 2, &kernel_names[GPU_ATTEND_FEW], to, diag)
        : form == GPU_TENSOR
            ? build(s, constants, gpu_attend_tensor_source, 1, &names[2], &to[2], diag)
            : build(s, constants, gpu_attend_tensor_source, 3, names, to, diag);
    if (status != GQAC_OK) {
        free(own->constants);
        free(own);
        return status;
    }
    own->next = s->own;
    s->own = own;
    return GQAC_OK;
}

gqac_status gpu_own_kernels(const void *state, gpu_own_form form, const char *constants,
                            gpu_kernel *kernels[GPU_OWN], gqac_diag *diag) {
    gpu_state *s = gpu_state_of(state);
    const own_kernels *own = s->own;
    while (own && strcmp(own->constants, constants) != 0)
        own = own->next;
    if (!own) {
        GQAC_TRY(add_own(s, form, constants, diag));
        own = s->own;
    }
    memcpy(kernels, own->kernels, sizeof own->kernels);
    if (form != GPU_PLAIN) {
        kernels[GPU_OWN_PREPARE] = own->kernels[0];
        kernels[GPU_OWN_PROMPT] = own->kernels[1];
        kernels[0] = kernels[1] = own->kernels[2];
    }
    return GQAC_OK;
}

void gpu_common_kernels(const void *state, gpu_kernel *kernels[GPU_OWN]) {
    memcpy(kernels, &gpu_state_of(state)->kernels[GPU_ATTEND_FEW], 2 * sizeof *kernels);
}

const char *gpu_bf16_name(const void *state) {
    const char *name = gpu_state_of(state)->bf16_name;
    return *name ? name : NULL;
}

gqac_status gpu_tensor_kernels(const void *state, gpu_kernel *const **kernels, gqac_diag *diag) {
    gpu_state *s = gpu_state_of(state);
    *kernels = s->tensor;
    return s->tensor[0]
               ? GQAC_OK
               : build(s, "", gpu_tensor_source, GPU_TENSOR_KERNELS, tensor_names, s->tensor, diag);
}

gqac_status gpu_open(int device, const gqac_log *log, const void **state, gqac_diag *diag) {
    const gpu_driver *driver;
    int own;
    GQAC_TRY(gpu_device_find(device, &driver, &own, diag));
    gpu_state *s = calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a device");
    s->driver = driver;
    s->notice.log = log;
    s->outbox = malloc(OUTBOX);
    if (!s->outbox || pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s->outbox);
        free(s);
        return gqac_diag_oom(diag, "a device");
    }
    const gqac_status status = open_kernels(s, own, diag);
    if (status != GQAC_OK) {
        gpu_close(s);
        return status;
    }
    *state = s;
    return GQAC_OK;
}

/* A state is constant for kernels; only the functions of this file change it. */
gpu_state *gpu_state_of(const void *state) {
    return (gpu_state *)(uintptr_t)state;
}

gpu_blocks *gpu_state_blocks(const void *state, int code_bits) {
    return gpu_state_of(state)->blocks[code_bits / 4];
}

void gpu_close(const void *state) {
    gpu_state *s = gpu_state_of(state);
    if (!s)
        return;
    if (s->sent)
        (void)s->driver->read(s->queue, &(gpu_buffer){0}, NULL, 0, NULL);
    while (s->constants) {
        kept *next = s->constants->next;
        s->driver->release(&s->constants->buffer);
        free(s->constants);
        s->constants = next;
    }
    for (int i = 0; i < BLOCKS; i++)
        gpu_blocks_close(s->blocks[i]);
    s->driver->release(&s->spare);
    for (int i = 0; i < GPU_SCRATCH; i++)
        s->driver->release(&s->scratch[i]);
    for (int i = 0; i < GPU_LISTS; i++) {
        s->driver->release(&s->lists[i].buffer);
        gqac_free(s->lists[i].data);
    }
    /* kernels after the memory: as that is released, launches that wait are submitted */
    while (s->own) {
        own_kernels *next = s->own->next;
        for (int i = 0; i < GPU_OWN; i++)
            s->driver->drop(s->own->kernels[i]);
        free(s->own->constants);
        free(s->own);
        s->own = next;
    }
    for (int i = 0; i < GPU_KERNELS; i++)
        s->driver->drop(s->kernels[i]);
    for (int i = 0; i < GPU_TENSOR_KERNELS; i++)
        s->driver->drop(s->tensor[i]);
    s->driver->close(s->queue);
    free(s->outbox);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

gqac_status gpu_keep(const void *state, const void *data, size_t bytes, gpu_buffer *buffer,
                     gqac_diag *diag) {
    gpu_state *s = gpu_state_of(state);
    kept *k = calloc(1, sizeof *k);
    if (!k)
        return gqac_diag_oom(diag, "a constant of the device");
    k->next = s->constants;
    s->constants = k;
    GQAC_TRY(s->driver->allocate(s->queue, bytes, &k->buffer, diag));
    *buffer = k->buffer;
    return data ? s->driver->write(s->queue, buffer, 0, data, bytes, diag) : GQAC_OK;
}

bool gpu_find_floats(const void *state, const gqac_tensor *constant, gpu_buffer *buffer) {
    const size_t bytes = (size_t)gqac_tensor_count(constant) * sizeof(float);
    const kept *k = gpu_state_of(state)->constants;
    while (k && (!k->of || k->of != constant->data || k->bytes != bytes))
        k = k->next;
    if (k)
        *buffer = k->buffer;
    return k;
}

gqac_status gpu_keep_floats(const void *state, const gqac_tensor *constant, gpu_buffer *buffer,
                            gqac_diag *diag) {
    gpu_state *s = gpu_state_of(state);
    const int64_t count = gqac_tensor_count(constant);
    const size_t bytes = (size_t)count * sizeof(float);
    if (gpu_find_floats(s, constant, buffer))
        return GQAC_OK;
    float *wide = constant->dtype == GQAC_F32 ? NULL : malloc(bytes + 1);
    if (constant->dtype != GQAC_F32 && !wide)
        return gqac_diag_oom(diag, "a constant of the device");
    if (wide)
        op_get_f32s(constant, 0, count, wide);
    const gqac_status status = gpu_keep(state, wide ? wide : constant->data, bytes, buffer, diag);
    if (status == GQAC_OK) {
        s->constants->of = constant->data;
        s->constants->bytes = bytes;
    }
    free(wide);
    return status;
}

size_t gpu_kept_bytes(const void *state) {
    size_t bytes = 0;
    for (const kept *k = gpu_state_of(state)->constants; k; k = k->next)
        bytes += k->buffer.bytes;
    return bytes;
}

/* ---- the work of a kernel ----------------------------------------------------- */

void gpu_lock(gpu_state *s) {
    pthread_mutex_lock(&s->lock);
}

void gpu_unlock(gpu_state *s) {
    pthread_mutex_unlock(&s->lock);
}

gqac_status gpu_allocate(gpu_state *s, size_t bytes, gpu_buffer *buffer, gqac_diag *diag) {
    gqac_status status = s->driver->allocate(s->queue, bytes, buffer, diag);
    if (status == GQAC_NO_MEMORY && gpu_drop_spare(s))
        status = s->driver->allocate(s->queue, bytes, buffer, diag);
    for (int i = 0; i < BLOCKS && status == GQAC_NO_MEMORY; i++)
        if (gpu_blocks_drop(s->blocks[i]))
            status = s->driver->allocate(s->queue, bytes, buffer, diag);
    return status;
}

void gpu_release(gpu_state *s, gpu_buffer *buffer) {
    s->driver->release(buffer);
}

void gpu_host_release(gpu_state *s, gpu_host *host) {
    if (host->of_driver)
        s->driver->give_host(s->queue, host->data);
    else
        gqac_free(host->data);
    *host = (gpu_host){0};
}

gqac_status gpu_host_reserve(gpu_state *s, size_t bytes, gpu_host *host, gqac_diag *diag) {
    if (bytes <= host->bytes)
        return GQAC_OK;
    const size_t more = bytes / 2 > host->bytes ? bytes : 2 * host->bytes;
    void *memory = NULL;
    gpu_host_release(s, host);
    const gqac_status status =
        s->driver->take_host ? s->driver->take_host(s->queue, more, &memory, diag) : GQAC_NO_MEMORY;
    if (status != GQAC_OK && status != GQAC_NO_MEMORY)
        return status;
    host->of_driver = status == GQAC_OK;
    host->data = host->of_driver ? memory : gqac_alloc(more);
    if (!host->data)
        return gqac_diag_oom(diag, "rows of a device");
    host->bytes = more;
    return GQAC_OK;
}

gqac_status gpu_upload(gpu_state *s, const gpu_buffer *to, const void *from, size_t bytes,
                       gqac_diag *diag) {
    return s->driver->write(s->queue, to, 0, from, bytes, diag);
}

gqac_status gpu_download(gpu_state *s, const gpu_buffer *from, void *to, size_t bytes,
                         gqac_diag *diag) {
    const gqac_status status = s->driver->read(s->queue, from, to, bytes, diag);
    if (status == GQAC_OK)
        s->sent = 0;
    for (int i = 0; i < GPU_LISTS && status != GQAC_OK; i++)
        s->lists[i].bytes = 0; /* they may not have arrived */
    return status;
}

uint64_t gpu_losses(const gpu_state *s) {
    return s->driver->losses ? s->driver->losses(s->queue) : 0;
}

gqac_status gpu_check_losses(const gpu_state *s, uint64_t before, gqac_diag *diag) {
    return gpu_losses(s) == before ? GQAC_OK : s->driver->lost(s->queue, diag);
}

gpu_work gpu_take(const target_call *call) {
    gpu_state *s = gpu_state_of(call->state);
    gpu_lock(s);
    return (gpu_work){.state = s, .mirror = call->mirror, .work = &call->work};
}

void gpu_give_back(gpu_work *w) {
    gpu_unlock(w->state);
}

gqac_status gpu_scratch(gpu_work *w, size_t bytes, gpu_buffer *buffer) {
    gpu_state *s = w->state;
    if (w->n == GPU_SCRATCH)
        OP_STOP(w->work, GQAC_INTERNAL, "a kernel has more than %d operands", GPU_SCRATCH);
    gpu_buffer *own = &s->scratch[w->n];
    if (own->bytes < bytes || !own->handle) {
        s->driver->release(own);
        GQAC_TRY(gpu_allocate(s, bytes, own, w->work->diag));
    }
    w->n++;
    *buffer = *own;
    return GQAC_OK;
}

bool gpu_drop_spare(gpu_state *s) {
    const bool some = s->spare.handle != NULL;
    s->driver->release(&s->spare);
    return some;
}

bool gpu_spare(gpu_work *w, size_t bytes, gpu_buffer *buffer) {
    gpu_state *s = w->state;
    if (s->spare.bytes < bytes) {
        gpu_drop_spare(s);
        if (s->driver->allocate(s->queue, bytes, &s->spare, NULL) != GQAC_OK)
            return false;
    }
    *buffer = s->spare;
    return true;
}

gqac_status gpu_write(gpu_work *w, const gpu_buffer *buffer, const void *data, size_t bytes) {
    gpu_state *s = w->state;
    unsigned char *copy = s->outbox + s->sent;
    if (bytes > OUTBOX - s->sent) {
        GQAC_TRY(s->driver->write(s->queue, buffer, 0, data, bytes, w->work->diag));
        s->sent = 0;
        return GQAC_OK;
    }
    memcpy(copy, data, bytes);
    s->sent += (bytes + SENT_ALIGNMENT - 1) / SENT_ALIGNMENT * SENT_ALIGNMENT;
    return s->driver->send(s->queue, buffer, copy, bytes, w->work->diag);
}

gqac_status gpu_put(gpu_work *w, const void *data, size_t bytes, gpu_buffer *buffer) {
    GQAC_TRY(gpu_scratch(w, bytes, buffer));
    return gpu_write(w, buffer, data, bytes);
}

gqac_status gpu_list_take(gpu_work *w, gpu_list which, size_t bytes, gpu_buffer *buffer) {
    list *l = &w->state->lists[which];
    if (l->buffer.bytes < bytes || !l->buffer.handle) {
        l->bytes = 0;
        w->state->driver->release(&l->buffer);
        GQAC_TRY(gpu_allocate(w->state, bytes, &l->buffer, w->work->diag));
    }
    *buffer = l->buffer;
    return GQAC_OK;
}

gqac_status gpu_list_write(gpu_work *w, gpu_list which, const void *data, size_t bytes) {
    list *l = &w->state->lists[which];
    if (l->bytes == bytes && memcmp(l->data, data, bytes) == 0)
        return GQAC_OK;
    l->bytes = 0;
    if (!gqac_reserve(&l->data, bytes, &l->capacity, 1))
        return gqac_diag_oom(w->work->diag, "lists of a device");
    GQAC_TRY(gpu_write(w, &l->buffer, data, bytes));
    memcpy(l->data, data, bytes);
    l->bytes = bytes;
    return GQAC_OK;
}

gqac_status gpu_launch(gpu_work *w, gpu_kernel_id kernel, const gpu_grid *grid, int n_args,
                       const gpu_arg *args) {
    return gpu_launch_own(w, w->state->kernels[kernel], grid, n_args, args);
}

gqac_status gpu_launch_own(gpu_work *w, gpu_kernel *kernel, const gpu_grid *grid, int n_args,
                           const gpu_arg *args) {
    const gpu_state *s = w->state;
    return s->driver->launch(s->queue, kernel, grid, n_args, args, w->work->diag);
}
