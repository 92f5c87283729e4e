/* The gpu target: kernels of a device, and the memory that they use.
 *
 * Constant weights are copied to the device when a program is made, and stay there. Float values
 * and cached rows stay on the device from kernel to kernel (mirror.h, blocks.h). Kernels compute in
 * fp32. Most read and write values of 16 bits as they are (gpu_in_as_is, gpu_out_as_is); for the
 * others, another kernel widens operands before and rounds results after (gpu_in, gpu_done). */
#ifndef GQAC_TARGETS_GPU_GPU_H
#define GQAC_TARGETS_GPU_GPU_H

#include "targets/call.h"
#include "targets/gpu/driver.h"

/* The kernels of a product: for one row, for up to four rows of an item, and for tiles. */
enum { GPU_FEW_1, GPU_FEW_4, GPU_TILE, GPU_FORMS };

/* The kernels of kernels/, in the order of kernel_names (state.c). */
typedef enum gpu_kernel_id {
    /* GPU_FORMS kernels for each kind of weights; codes have 2, 4 or 8 bits */
    GPU_PRODUCT_F32,
    GPU_PRODUCT_F16 = GPU_PRODUCT_F32 + GPU_FORMS,
    GPU_PRODUCT_BF16 = GPU_PRODUCT_F16 + GPU_FORMS,
    GPU_PRODUCT_2 = GPU_PRODUCT_BF16 + GPU_FORMS,
    GPU_PRODUCT_4 = GPU_PRODUCT_2 + GPU_FORMS,
    GPU_PRODUCT_8 = GPU_PRODUCT_4 + GPU_FORMS,
    GPU_INT8_2 = GPU_PRODUCT_8 + GPU_FORMS,
    GPU_INT8_4 = GPU_INT8_2 + GPU_FORMS,
    GPU_INT8_8 = GPU_INT8_4 + GPU_FORMS,
    GPU_PRODUCT_ADD = GPU_INT8_8 + GPU_FORMS,
    GPU_NBITS_QUANTISE,
    GPU_ATTEND_FEW,
    GPU_ATTEND_MANY,
    GPU_ATTEND_MERGE,
    GPU_NORM,
    GPU_HEADS,
    GPU_GATHER_CODES,
    GPU_COPY_BOX,
    GPU_COPY_BOX_16,
    GPU_COPY_BOX_128,
    GPU_COPY_ROWS,
    GPU_COPY_ROWS_16,
    GPU_COPY_ROWS_128,
    GPU_SAME,
    GPU_NEG,
    GPU_SQRT,
    GPU_SIGMOID,
    GPU_TANH,
    GPU_ERF,
    GPU_SWISH,
    GPU_GELU,
    GPU_GELU_TANH,
    GPU_FAST_GELU,
    GPU_ADD,
    GPU_SUB,
    GPU_MUL,
    GPU_DIV,
    GPU_GATE_SIGMOID,
    GPU_GATE_TANH,
    GPU_GATE_SWISH,
    GPU_GATE_GELU,
    GPU_GATE_GELU_TANH,
    GPU_GATE_FAST_GELU,
    GPU_CHAIN,
    GPU_MOE_CHOOSE,
    GPU_MOE_COUNT,
    GPU_MOE_SORT,
    GPU_MOE_F32, /* a kernel of single pairs, then one of tiles */
    GPU_MOE_F16 = GPU_MOE_F32 + 2,
    GPU_MOE_BF16 = GPU_MOE_F16 + 2,
    GPU_MOE_2 = GPU_MOE_BF16 + 2,
    GPU_MOE_4 = GPU_MOE_2 + 2,
    GPU_MOE_8 = GPU_MOE_4 + 2,
    GPU_MOE_TILE_8,
    GPU_MOE_ACTIVATE,
    GPU_MOE_ADD,
    GPU_SOFTMAX,
    GPU_ARG_ROWS,
    GPU_TOP,
    GPU_TOP_F16,
    GPU_TOP_BF16,
    GPU_BEST_OF_PARTS,
    GPU_BEST_ID,
    GPU_TOP_OF_PARTS,
    GPU_TOP_IDS,
    GPU_KERNELS
} gpu_kernel_id;

enum {
    /* constants of kernels/, where they have no prefix */
    GPU_ATTEND_SIZE = 256,   /* maximum elements of a head */
    GPU_ATTEND_COMMON = 64,  /* the same for kernels of all models */
    GPU_ATTEND_FEW_ROWS = 8, /* rows of a tile, and items of a group */
    GPU_ATTEND_FEW_ITEMS = 128,
    GPU_ATTEND_MANY_ROWS = 64, /* or half of them */
    GPU_ATTEND_MANY_ITEMS = 256,
    GPU_ATTEND_WARP_ROWS = 16, /* rows of a warp, and items of a group, in tensor cores */
    GPU_ATTEND_TENSOR_ITEMS = 128,
    GPU_ATTEND_MERGERS = 128, /* items of a group */
    GPU_ORDER_ITEMS = 256,    /* items of a group, a multiple of the lanes */
    GPU_ORDER_PART = 4096,    /* logits that a group searches first */
    GPU_ORDER_TOP = 1024,     /* maximum k of TopK */
    GPU_SCRATCH = 10          /* buffers for the operands and results of one kernel */
};

/* What a program has on its device: target_call.state. Programs share nothing. */
typedef struct gpu_state gpu_state;

/* target.open_device and target.close_device. */
gqac_status gpu_open(int device, const gqac_log *log, const void **state, gqac_diag *diag);
void gpu_close(const void *state);

/* Copies a constant to the device, where it stays until gpu_close. For bind. data NULL: the memory
 * is only taken. */
gqac_status gpu_keep(const void *state, const void *data, size_t bytes, gpu_buffer *buffer,
                     gqac_diag *diag);

/* The same for a constant of floats, as fp32; constants that are the same tensor share a copy. */
gqac_status gpu_keep_floats(const void *state, const gqac_tensor *constant, gpu_buffer *buffer,
                            gqac_diag *diag);
/* Sets *buffer to that copy; false: there is none. */
bool gpu_find_floats(const void *state, const gqac_tensor *constant, gpu_buffer *buffer);
/* The bytes of all of them. */
size_t gpu_kept_bytes(const void *state);

/* The kernels of attention, compiled with further constants (lines of #define): set to kernels that
 * live as long as the state. For bind; the same constants have the same kernels. */
typedef enum gpu_own_form {
    GPU_PLAIN,  /* attend_few and attend_many */
    GPU_TENSOR, /* attend_tensor for all tiles */
    GPU_PROMPT  /* attend_tensor; and attend_prepare and attend_prompt, for prompts */
} gpu_own_form;
enum { GPU_OWN_PREPARE = 2 /* after those of gpu_tiles */, GPU_OWN_PROMPT, GPU_OWN };
gqac_status gpu_own_kernels(const void *state, gpu_own_form form, const char *constants,
                            gpu_kernel *kernels[GPU_OWN], gqac_diag *diag);
/* Those of GPU_ATTEND_FEW and GPU_ATTEND_MANY, for heads of at most GPU_ATTEND_COMMON elements. */
void gpu_common_kernels(const void *state, gpu_kernel *kernels[GPU_OWN]);

/* The device, for the work of one kernel: other threads wait until gpu_give_back. */
typedef struct gpu_work {
    gpu_state *state;
    void *mirror; /* target_call.mirror */
    const op_work *work;
    int n; /* scratch buffers that have been taken */
} gpu_work;
gpu_work gpu_take(const target_call *call);
void gpu_give_back(gpu_work *w);

/* The kernels of kernels/tensor.cl, in the order of tensor_names (state.c). */
typedef enum gpu_tensor_id {
    GPU_TENSOR_PACK,
    GPU_TENSOR_FACTORS,
    GPU_TENSOR_FLOATS, /* GPU_FORMS kernels: one row, up to 16, tiles; then those for codes */
    GPU_TENSOR_2 = GPU_TENSOR_FLOATS + GPU_FORMS,
    GPU_TENSOR_4 = GPU_TENSOR_2 + GPU_FORMS,
    GPU_TENSOR_8 = GPU_TENSOR_4 + GPU_FORMS,
    GPU_TENSOR_KERNELS = GPU_TENSOR_8 + GPU_FORMS
} gpu_tensor_id;
/* Sets *kernels to GPU_TENSOR_KERNELS kernels that live as long as the state; compiles them the
 * first time. For bind, if there are tensor cores. */
gqac_status gpu_tensor_kernels(const void *state, gpu_kernel *const **kernels, gqac_diag *diag);
/* gqac_target.bf16_name. NULL: the device has no tensor cores for bf16. */
const char *gpu_bf16_name(const void *state);

/* The KV blocks on the device, for bind and between gpu_take and gpu_give_back: those of sequences
 * that keep rows (code_bits 0), or codes of 8 or 4 bits. Scratch is taken before they are placed:
 * it may need their memory. */
struct gpu_blocks *gpu_state_blocks(const void *state, int code_bits);

/* Takes scratch of the device, and sets *buffer; its content is undefined. */
gqac_status gpu_scratch(gpu_work *w, size_t bytes, gpu_buffer *buffer);
/* The same for memory that the kernel can do without; false: the device has too little. Taken after
 * blocks are placed, and released as soon as blocks or other memory do not fit. */
bool gpu_spare(gpu_work *w, size_t bytes, gpu_buffer *buffer);
/* Releases it; false: there was none. */
bool gpu_drop_spare(gpu_state *state);
/* Copies data to the device for the kernels that are launched next; does not wait for those before,
 * if `data` is small. */
gqac_status gpu_write(gpu_work *w, const gpu_buffer *buffer, const void *data, size_t bytes);
/* gpu_scratch, then gpu_write. */
gqac_status gpu_put(gpu_work *w, const void *data, size_t bytes, gpu_buffer *buffer);
/* Lists that kernels of one kind share in a step: first memory for one, then its content, which is
 * copied only if it is not what the last kernel had. */
typedef enum gpu_list {
    GPU_LIST_APPEND,
    GPU_LIST_ATTEND,
    GPU_LIST_WINDOW, /* attention with a window */
    GPU_LIST_POSITIONS,
    GPU_LISTS
} gpu_list;
gqac_status gpu_list_take(gpu_work *w, gpu_list which, size_t bytes, gpu_buffer *buffer);
gqac_status gpu_list_write(gpu_work *w, gpu_list which, const void *data, size_t bytes);
/* Types of elements, as in kernels/values.h. */
typedef enum gpu_rows_type {
    GPU_ROWS_F32,
    GPU_ROWS_F16,
    GPU_ROWS_BF16,
    GPU_ROWS_I8, /* codes of kv_quantise */
    GPU_ROWS_U4
} gpu_rows_type;
gpu_rows_type gpu_type_of(gqac_dtype floats);

/* LIMIT: a tensor with more elements than a kernel can count. */
gqac_status gpu_fits(const op_work *work, const gqac_tensor *tensor);
/* Sets *buffer to all elements of a float tensor, as fp32. */
gqac_status gpu_in(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer);
/* Takes memory for all elements of a float tensor, as fp32; after the kernel that writes them,
 * gpu_done rounds them once to the type of the tensor. */
gqac_status gpu_out(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer);
gqac_status gpu_done(gpu_work *w, const gpu_buffer *buffer, const gqac_tensor *tensor);
/* The same for kernels that read and write values of 16 bits as they are. */
gqac_status gpu_in_as_is(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer);
gqac_status gpu_out_as_is(gpu_work *w, const gqac_tensor *tensor, gpu_buffer *buffer);

/* The grid of an elementwise kernel on n elements, whose items have two units of elements: sets
 * *step, the units between them. Few elements have an item for each unit. */
gpu_grid gpu_element_grid(int64_t n, int32_t unit, int32_t *step);
/* An operand of a kernel: a value, and its memory on the device if it is a constant. */
typedef struct gpu_operand {
    int value; /* -1: absent */
    gpu_buffer kept;
} gpu_operand;

/* Sets *buffer to an operand; one that is absent becomes `other`, any memory, which is not read. A
 * value that is a view of a constant of gpu_keep_floats is not copied. */
gqac_status gpu_operand_in(gpu_work *w, const target_call *call, const gpu_operand *of,
                           const gpu_buffer *other, gpu_buffer *buffer);

/* The same, but a value of 16 bits stays as it is: sets *type to a gpu_rows_type. */
gqac_status gpu_operand_as_is(gpu_work *w, const target_call *call, const gpu_operand *of,
                              const gpu_buffer *other, gpu_buffer *buffer, int32_t *type);

gqac_status gpu_launch(gpu_work *w, gpu_kernel_id kernel, const gpu_grid *grid, int n_args,
                       const gpu_arg *args);
gqac_status gpu_launch_own(gpu_work *w, gpu_kernel *kernel, const gpu_grid *grid, int n_args,
                           const gpu_arg *args);

/* For mirror.c: the device's memory, and its lock, which a gpu_work holds. */
gpu_state *gpu_state_of(const void *state);
void gpu_lock(gpu_state *s);
void gpu_unlock(gpu_state *s);
gqac_status gpu_allocate(gpu_state *s, size_t bytes, gpu_buffer *buffer, gqac_diag *diag);
void gpu_release(gpu_state *s, gpu_buffer *buffer);
/* Memory of the host that gpu_download writes to: that of the driver, if it has any. */
typedef struct gpu_host {
    unsigned char *data;
    size_t bytes;
    bool of_driver;
} gpu_host;
/* Makes it at least that large; its contents are lost. */
gqac_status gpu_host_reserve(gpu_state *s, size_t bytes, gpu_host *host, gqac_diag *diag);
void gpu_host_release(gpu_state *s, gpu_host *host);
gqac_status gpu_upload(gpu_state *s, const gpu_buffer *to, const void *from, size_t bytes,
                       gqac_diag *diag);
gqac_status gpu_download(gpu_state *s, const gpu_buffer *from, void *to, size_t bytes,
                         gqac_diag *diag);
/* The number of submissions of kernels that failed so far, those of any thread among them: results
 * of a run that sees it change may be lost. gpu_check_losses fails then, like the last of them. */
uint64_t gpu_losses(const gpu_state *s);
gqac_status gpu_check_losses(const gpu_state *s, uint64_t before, gqac_diag *diag);

#endif
