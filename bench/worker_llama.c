/* llama.cpp and its ggml as one of the benchmark's engines; lines as in worker_gqac.c.
 *
 *   worker_llama threads=N kind=attention heads= kv_heads= head= past=P tokens=S dtype=f32|f16
 *                          softcap= rotate=R     ggml_flash_attn_ext, causal mask made in advance
 *   worker_llama threads=N kind=matmul k= layers= tokens=M dtype=f32|q4_0     square ggml_mul_mat's
 *   worker_llama threads=N kind=model model=FILE.gguf past=P tokens=S calls=C vocab=V batch=B
 *                          chunk=S1      B sequences, each in its own stream of the cache;
 *                          gpu=1         all layers on a device, and rows of f16 in the cache
 *
 * Values are normally distributed. Weights are where llama.cpp would put them: q4_0 in the
 * repacking buffer. A model stores fp32 rows in its cache, as the ONNX file does, and uses flash
 * attention. */
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <llama.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

enum { MOST_ROTATE = 64, CONTEXT_BYTES = 64 << 20 };

typedef struct worker {
    const char *kind, *model, *dtype;
    long threads, heads, kv_heads, head, past, tokens, softcap, rotate, k, layers, calls, vocab;
    long batch, chunk, gpu;
    uint64_t random;
    long sample;
    /* operators */
    ggml_backend_t cpu;
    struct ggml_cgraph *graphs[MOST_ROTATE];
    struct ggml_tensor *last;
    /* models */
    struct llama_context *llama;
    struct llama_batch tokens_of_call;
} worker;

static int fail(const char *what) {
    printf("failed %s\n", what);
    fflush(stdout);
    return 1;
}

static void quiet(enum ggml_log_level level, const char *text, void *arg) {
    (void)level, (void)text, (void)arg;
}

/* ---- data ---------------------------------------------------------------- */

static float uniform(worker *w) {
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return ((float)(w->random >> 40) + 0.5f) * 0x1p-24f;
}

/* Fills a tensor of any type with normally distributed values; one block of 2^20 is repeated. */
static void fill(worker *w, struct ggml_tensor *t, float scale) {
    enum { POOL = 1 << 20 };
    const int64_t n = ggml_nelements(t);
    float *pool = malloc(POOL * sizeof *pool), *values = malloc((size_t)n * sizeof *values);
    void *quantised = malloc(ggml_nbytes(t));
    for (int i = 0; i < POOL; i++)
        pool[i] = scale * sqrtf(-2.0f * logf(uniform(w))) * cosf(6.2831853f * uniform(w));
    for (int64_t i = 0; i < n; i++)
        values[i] = pool[i & (POOL - 1)];
    if (t->type == GGML_TYPE_F32)
        memcpy(quantised, values, ggml_nbytes(t));
    else
        ggml_quantize_chunk(t->type, values, quantised, 0, n / t->ne[0], t->ne[0], NULL);
    ggml_backend_tensor_set(t, quantised, 0, ggml_nbytes(t));
    free(pool), free(values), free(quantised);
}

static struct ggml_context *new_context(void) {
    return ggml_init((struct ggml_init_params){.mem_size = CONTEXT_BYTES, .no_alloc = true});
}

static enum ggml_type type_named(const char *name) {
    return !strcmp(name, "f16")    ? GGML_TYPE_F16
           : !strcmp(name, "q4_0") ? GGML_TYPE_Q4_0
                                   : GGML_TYPE_F32;
}

/* ---- operators ----------------------------------------------------------- */

static ggml_backend_buffer_type_t weights_type(const worker *w) {
    ggml_backend_dev_t device = ggml_backend_get_device(w->cpu);
    ggml_backend_dev_get_extra_bufts_t get =
        (ggml_backend_dev_get_extra_bufts_t)ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    if (!strcmp(w->dtype, "q4_0") && get)
        for (ggml_backend_buffer_type_t *type = get(device); type && *type; type++)
            if (!strcmp(ggml_backend_buft_name(*type), "CPU_REPACK"))
                return *type;
    return ggml_backend_get_default_buffer_type(w->cpu);
}

static bool allocate(struct ggml_context *c, ggml_backend_buffer_type_t type) {
    return ggml_backend_alloc_ctx_tensors_from_buft(c, type);
}

static bool finish_graph(worker *w, struct ggml_context *c, struct ggml_tensor *out, long r) {
    w->graphs[r] = ggml_new_graph(c);
    ggml_build_forward_expand(w->graphs[r], out);
    ggml_gallocr_t plan = ggml_gallocr_new(ggml_backend_get_default_buffer_type(w->cpu));
    w->last = out;
    return ggml_gallocr_alloc_graph(plan, w->graphs[r]);
}

static void fill_mask(const worker *w, struct ggml_tensor *mask) {
    ggml_fp16_t *rows = malloc(ggml_nbytes(mask));
    for (int64_t s = 0; s < mask->ne[1]; s++)
        for (int64_t t = 0; t < mask->ne[0]; t++)
            rows[s * mask->ne[0] + t] = ggml_fp32_to_fp16(t <= w->past + s ? 0.0f : -INFINITY);
    ggml_backend_tensor_set(mask, rows, 0, ggml_nbytes(mask));
    free(rows);
}

static bool open_attention(worker *w) {
    const int64_t total = w->past + w->tokens;
    struct ggml_context *c = new_context();
    struct ggml_tensor *q = ggml_new_tensor_3d(c, GGML_TYPE_F32, w->head, w->tokens, w->heads);
    struct ggml_tensor *mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, total, w->tokens);
    struct ggml_tensor *k[MOST_ROTATE], *v[MOST_ROTATE];
    for (long r = 0; r < w->rotate; r++) {
        k[r] = ggml_new_tensor_3d(c, type_named(w->dtype), w->head, total, w->kv_heads);
        v[r] = ggml_new_tensor_3d(c, type_named(w->dtype), w->head, total, w->kv_heads);
    }
    if (!allocate(c, ggml_backend_get_default_buffer_type(w->cpu)))
        return false;
    fill(w, q, 1.0f);
    fill_mask(w, mask);
    for (long r = 0; r < w->rotate; r++) {
        fill(w, k[r], 1.0f);
        fill(w, v[r], 1.0f);
        struct ggml_context *g = new_context();
        if (!finish_graph(w, g,
                          ggml_flash_attn_ext(g, q, k[r], v[r], mask, 1 / sqrtf((float)w->head),
                                              0.0f, (float)w->softcap),
                          r))
            return false;
    }
    return true;
}

static bool open_matmul(worker *w) {
    struct ggml_context *c = new_context(), *inputs = new_context(), *g = new_context();
    struct ggml_tensor *weights[MOST_ROTATE];
    for (long i = 0; i < w->layers; i++)
        weights[i] = ggml_new_tensor_2d(c, type_named(w->dtype), w->k, w->k);
    struct ggml_tensor *x = ggml_new_tensor_2d(inputs, GGML_TYPE_F32, w->k, w->tokens), *y = x;
    if (!allocate(c, weights_type(w)) ||
        !allocate(inputs, ggml_backend_get_default_buffer_type(w->cpu)))
        return false;
    fill(w, x, 1.0f);
    for (long i = 0; i < w->layers; i++) {
        fill(w, weights[i], 1 / sqrtf((float)w->k));
        y = ggml_mul_mat(g, weights[i], y);
    }
    return finish_graph(w, g, y, 0);
}

/* ---- models -------------------------------------------------------------- */

/* Appends tokens from .. from + count - 1 of a sequence to the call. */
static void put_tokens(worker *w, long sequence, long from, long count) {
    struct llama_batch *b = &w->tokens_of_call;
    for (long i = from; i < from + count; i++) {
        const int32_t at = b->n_tokens++;
        b->token[at] = (llama_token)(((i + sequence) * 7919 + 13) % w->vocab);
        b->pos[at] = (llama_pos)i;
        b->n_seq_id[at] = 1;
        b->seq_id[at][0] = (llama_seq_id)sequence;
        b->logits[at] = i == from + count - 1;
    }
}

static bool decode(worker *w) {
    const bool done = !llama_decode(w->llama, w->tokens_of_call);
    llama_synchronize(w->llama);
    w->tokens_of_call.n_tokens = 0;
    return done;
}

static bool open_model(worker *w) {
    const long first = w->chunk ? w->chunk : w->tokens;
    const long length = w->past + (first > w->tokens ? first : w->tokens) * w->calls;
    const long call = first + (w->batch - 1) * w->tokens;
    struct llama_model_params of_model = llama_model_default_params();
    of_model.n_gpu_layers = w->gpu ? 999 : 0;
    struct llama_model *model = llama_model_load_from_file(w->model, of_model);
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = ((uint32_t)(length + 255) & ~255u) * (uint32_t)w->batch;
    p.n_batch = (uint32_t)(w->past > call ? w->past : call);
    p.n_ubatch = 512;
    p.n_seq_max = (uint32_t)w->batch;
    p.n_threads = p.n_threads_batch = (int32_t)w->threads;
    p.type_k = p.type_v = w->gpu ? GGML_TYPE_F16 : GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    w->llama = model ? llama_init_from_model(model, p) : NULL;
    if (!w->llama)
        return false;
    w->tokens_of_call = llama_batch_init((int32_t)p.n_batch, 0, 1);
    if (!w->past)
        return true;
    put_tokens(w, 0, 0, w->past);
    if (!decode(w))
        return false;
    for (long i = 1; i < w->batch; i++) /* copies, because streams share no memory */
        llama_memory_seq_cp(llama_get_memory(w->llama), 0, (llama_seq_id)i, -1, -1);
    return true;
}

static bool run_model(worker *w, double *ms) {
    for (long i = 0; i < w->batch; i++)
        llama_memory_seq_rm(llama_get_memory(w->llama), (llama_seq_id)i, (llama_pos)w->past, -1);
    const double began = now_ms();
    for (long c = 0; c < w->calls; c++) {
        for (long i = 0; i < w->batch; i++) {
            const long count = i == 0 && w->chunk ? w->chunk : w->tokens;
            put_tokens(w, i, w->past + c * count, count);
        }
        if (!decode(w))
            return false;
    }
    *ms = (now_ms() - began) / (double)w->calls;
    return isfinite(llama_get_logits_ith(w->llama, -1)[0]);
}

/* ---- the loop ------------------------------------------------------------ */

static bool run_once(worker *w, double *ms) {
    if (w->llama)
        return run_model(w, ms);
    const double began = now_ms();
    const enum ggml_status status =
        ggml_backend_graph_compute(w->cpu, w->graphs[w->sample++ % w->rotate]);
    *ms = now_ms() - began;
    return status == GGML_STATUS_SUCCESS;
}

static int serve(worker *w) {
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "run ", 4))
            continue;
        const long n = strtol(line + 4, NULL, 10);
        printf("times");
        for (long i = 0; i < n; i++) {
            double ms = 0;
            if (!run_once(w, &ms))
                return fail("a run failed, or its result is not finite");
            printf(" %.6f", ms);
        }
        puts("");
        fflush(stdout);
    }
    return 0;
}

static bool take(worker *w, char *word) {
    const struct {
        const char *key;
        const char **text;
        long *number;
    } known[] = {{"kind", &w->kind, NULL},     {"model", &w->model, NULL},
                 {"dtype", &w->dtype, NULL},   {"threads", NULL, &w->threads},
                 {"heads", NULL, &w->heads},   {"kv_heads", NULL, &w->kv_heads},
                 {"head", NULL, &w->head},     {"past", NULL, &w->past},
                 {"tokens", NULL, &w->tokens}, {"softcap", NULL, &w->softcap},
                 {"rotate", NULL, &w->rotate}, {"k", NULL, &w->k},
                 {"layers", NULL, &w->layers}, {"calls", NULL, &w->calls},
                 {"vocab", NULL, &w->vocab},   {"batch", NULL, &w->batch},
                 {"chunk", NULL, &w->chunk},   {"gpu", NULL, &w->gpu}};
    char *value = strchr(word, '=');
    for (size_t i = 0; value && i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].key) != (size_t)(value - word) ||
            strncmp(word, known[i].key, (size_t)(value - word)))
            continue;
        if (known[i].text)
            *known[i].text = value + 1;
        else
            *known[i].number = strtol(value + 1, NULL, 10);
        return true;
    }
    return false;
}

int main(int argc, char **argv) {
    static worker w = {.kind = "",
                       .model = "",
                       .dtype = "f32",
                       .threads = 1,
                       .rotate = 1,
                       .layers = 1,
                       .calls = 1,
                       .vocab = 1,
                       .batch = 1,
                       .random = 1};
    for (int i = 1; i < argc; i++)
        if (!take(&w, argv[i]))
            return fail("an argument is not known");
    if (w.rotate < 1 || w.rotate > MOST_ROTATE || w.layers > MOST_ROTATE)
        return fail("too many copies");
    llama_log_set(quiet, NULL);
    if (w.gpu && !llama_supports_gpu_offload())
        return fail("it was built without a driver of devices");
    const double began = now_ms();
    bool open = false;
    if (!strcmp(w.kind, "model")) {
        open = open_model(&w);
    } else {
        w.cpu = ggml_backend_cpu_init();
        ggml_backend_cpu_set_n_threads(w.cpu, (int)w.threads);
        open = !strcmp(w.kind, "matmul") ? open_matmul(&w) : open_attention(&w);
    }
    if (!open)
        return fail("it could not be opened");
    printf("ready {\"version\": \"llama.cpp %s, ggml %s\", \"open_ms\": %.3f}\n", llama_version(),
           ggml_version(), now_ms() - began);
    fflush(stdout);
    return serve(&w);
}
