/* gqac_run_shapes and gqac_run_valid_rows against runs: of real models with their stored inputs, of
 * graphs whose shapes depend on values, and of inputs that do not fit. `gqac test` compares them
 * with every node test. */
#include "unit.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gqac/gqac.h>

#include "base/alloc.h"

enum { MOST = 64 };

static gqac_diag diag;

typedef struct rig {
    gqac_program *program;
    gqac_context *context;
    int n, n_out;
    char names[MOST][100];
    const char *list[MOST];
    gqac_tensor in[MOST], shapes[MOST], out[MOST];
} rig;

static gqac_status open_file(rig *r, const char *path) {
    gqac_options options;
    const gqac_io *outputs;
    memset(r, 0, sizeof *r);
    for (int i = 0; i < MOST; i++)
        r->list[i] = r->names[i];
    gqac_options_init(&options);
    options.stateless = true;
    gqac_status status = gqac_program_open(path, &options, &r->program, &diag);
    if (status == GQAC_OK)
        status = gqac_context_create(r->program, 2, &r->context, &diag);
    if (status == GQAC_OK)
        r->n_out = gqac_program_outputs(r->program, &outputs);
    return status;
}

static void open_text(rig *r, const char *text) {
    char path[] = "/tmp/gqac-shapes-XXXXXX.gq";
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    const gqac_status status = open_file(r, path);
    if (status != GQAC_OK)
        printf("%s: %s\n", diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    unlink(path);
}

static void add(rig *r, const char *name, gqac_dtype dtype, int rank, const int64_t *dims,
                void *data) {
    gqac_tensor *t = &r->in[r->n];
    snprintf(r->names[r->n++], sizeof *r->names, "%s", name);
    *t = (gqac_tensor){.dtype = dtype, .rank = rank, .data = data};
    for (int i = 0; i < rank; i++)
        t->dims[i] = dims[i];
}

static void close_rig(rig *r) {
    gqac_context_free(r->context);
    gqac_program_free(r->program);
}

static gqac_status tell(rig *r) {
    memset(&diag, 0, sizeof diag);
    memset(r->shapes, 0xa5, sizeof r->shapes);
    return gqac_run_shapes(r->context, r->n, r->list, r->in, r->n_out, NULL, r->shapes, &diag);
}

static bool same_type(const gqac_tensor *a, const gqac_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dims, b->dims, (size_t)(a->rank > 0 ? a->rank : 0) * sizeof *a->dims);
}

/* ---- models -------------------------------------------------------------- */

static void read_inputs(rig *r, const char *dir) {
    DIR *d = opendir(dir);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    const gqac_io *inputs;
    const int n = gqac_program_inputs(r->program, &inputs);
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[4400];
        char *end = strstr(entry->d_name, ".npy");
        if (!end)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        *end = 0;
        gqac_dtype as = GQAC_NONE;
        for (int i = 0; i < n; i++)
            as = strcmp(inputs[i].name, entry->d_name) ? as : inputs[i].dtype;
        snprintf(r->names[r->n], sizeof *r->names, "%s", entry->d_name);
        CU_ASSERT_EQUAL_FATAL(gqac_npy_read(path, as, &r->in[r->n++], &diag), GQAC_OK);
    }
    closedir(d);
}

/* Outputs bound to memory of the caller, of the reported sizes, have the bits of a plain run. */
static void expect_bound(rig *r, int index) {
    const gqac_io *outputs;
    gqac_program_outputs(r->program, &outputs);
    const size_t bytes = gqac_tensor_bytes(&r->shapes[index]);
    void *memory = malloc(bytes + 1), *before = malloc(bytes + 1);
    memcpy(before, r->out[index].data, bytes);
    CU_ASSERT_EQUAL(gqac_context_bind_output(r->context, outputs[index].name, memory, bytes, &diag),
                    GQAC_OK);
    gqac_tensor out[MOST];
    CU_ASSERT_EQUAL(gqac_run(r->context, r->n, r->list, r->in, r->n_out, NULL, out, &diag),
                    GQAC_OK);
    CU_ASSERT(out[index].data == memory && !memcmp(memory, before, bytes));
    CU_ASSERT_EQUAL(gqac_context_bind_output(r->context, outputs[index].name, NULL, 0, &diag),
                    GQAC_OK);
    free(memory);
    free(before);
}

static void expect_model(const char *model, const char *run) {
    char path[4200];
    rig r;
    snprintf(path, sizeof path, "%s/model.onnx", unit_path(model));
    CU_ASSERT_EQUAL_FATAL(open_file(&r, path), GQAC_OK);
    snprintf(path, sizeof path, "%s/ref/%s/inputs", unit_path(model), run);
    read_inputs(&r, path);
    CU_ASSERT_EQUAL_FATAL(tell(&r), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_run(r.context, r.n, r.list, r.in, r.n_out, NULL, r.out, &diag),
                          GQAC_OK);
    CU_ASSERT_FATAL(r.n_out > 2);
    for (int i = 0; i < r.n_out; i++) {
        CU_ASSERT_PTR_NULL(r.shapes[i].data);
        if (!same_type(&r.shapes[i], &r.out[i]))
            printf("%s, %s: output %d\n", model, run, i);
        CU_ASSERT(same_type(&r.shapes[i], &r.out[i]));
    }
    expect_bound(&r, 0);
    expect_bound(&r, r.n_out - 1);
    for (int i = 0; i < r.n; i++)
        gqac_tensor_free(&r.in[i]);
    close_rig(&r);
}

static void test_models(void) {
    static const char *const models[] = {"llama", "llama-int4-acc1", "mistral", "phi3",
                                         "qwen2", "gemma2",          "lfm2"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char model[64];
        snprintf(model, sizeof model, "test/models/%s", models[i]);
        expect_model(model, "prefill");
        expect_model(model, "decode");
    }
    expect_model("test/models/llama", "static"); /* a past with capacity; total_length is a value */
    expect_model("test/models/llama", "batch");
}

/* ---- values -------------------------------------------------------------- */

static const char by_value[] =
    "graph @g(%x: f32[R,3], %n: i64[], %c: bool[]) {\n"
    "  const %zero: i64[1] = [0]\n"
    "  const %one: i64[1] = [1]\n"
    "  const %four: i64[1] = [4]\n"
    "  %u = Unsqueeze %n, %zero : i64[1]\n"
    "  %m = Add %u, %one : i64[1]\n"
    "  %pair = Concat %m, %four {axis=0} : i64[2]\n"
    "  %e = ConstantOfShape %pair : f32[A,B]\n"
    "  %z = NonZero %x : i64[2,K]\n"
    "  return %e as \"by_input\", %z as \"by_data\", %x as \"same\"\n}\n";

static void test_values(void) {
    rig r;
    float x[6] = {0, 1, 2, 0, 0, 5};
    int64_t n = 6;
    unsigned char c = 1;
    open_text(&r, by_value);
    add(&r, "x", GQAC_F32, 2, (int64_t[]){2, 3}, NULL);
    add(&r, "n", GQAC_I64, 0, NULL, &n);
    add(&r, "c", GQAC_BOOL, 0, NULL, &c);
    CU_ASSERT_EQUAL_FATAL(tell(&r), GQAC_OK);
    CU_ASSERT(r.shapes[0].dtype == GQAC_F32 && r.shapes[0].rank == 2);
    CU_ASSERT(r.shapes[0].dims[0] == 7 && r.shapes[0].dims[1] == 4);
    CU_ASSERT(r.shapes[1].dtype == GQAC_I64 && r.shapes[1].rank == 2);
    CU_ASSERT(r.shapes[1].dims[0] == 2 && r.shapes[1].dims[1] == -1);
    CU_ASSERT(r.shapes[2].dims[0] == 2 && r.shapes[2].dims[1] == 3);
    /* six floats are few enough to be read */
    r.in[0].data = x;
    CU_ASSERT_EQUAL_FATAL(tell(&r), GQAC_OK);
    CU_ASSERT_EQUAL(r.shapes[1].dims[1], 3);
    /* the value is missing */
    r.in[1].data = NULL;
    CU_ASSERT_EQUAL_FATAL(tell(&r), GQAC_OK);
    CU_ASSERT(r.shapes[0].dims[0] == -1 && r.shapes[0].dims[1] == 4);
    /* one output, by name, and a parameter of the context in place of an input */
    r.in[1].data = &n;
    CU_ASSERT_EQUAL_FATAL(gqac_context_upload(r.context, "n", &r.in[1], &diag), GQAC_OK);
    const char *const wanted[] = {"same", "by_input"};
    const char *const given[] = {"x", "c"};
    const gqac_tensor in[] = {r.in[0], r.in[2]};
    CU_ASSERT_EQUAL(gqac_run_shapes(r.context, 2, given, in, 2, wanted, r.shapes, &diag), GQAC_OK);
    CU_ASSERT(r.shapes[0].dims[1] == 3 && r.shapes[1].dims[0] == 7);
    close_rig(&r);
}

static const char branches[] = "graph @g(%x: f32[R,3], %c: bool[]) {\n"
                               "  %y = If %c {then_branch=graph @t() {\n"
                               "    %a = Concat %x, %x {axis=0} : f32[?,3]\n"
                               "    return %a\n"
                               "  }, else_branch=graph @e() {\n"
                               "    %b = Abs %x : f32[R,3]\n"
                               "    return %b\n"
                               "  }} : f32[?,3]\n"
                               "  return %y as \"y\"\n}\n";

static void test_branches(void) {
    rig r;
    unsigned char c = 1;
    open_text(&r, branches);
    add(&r, "x", GQAC_F32, 2, (int64_t[]){500, 3}, NULL);
    add(&r, "c", GQAC_BOOL, 0, NULL, &c);
    CU_ASSERT_EQUAL_FATAL(tell(&r), GQAC_OK);
    CU_ASSERT_EQUAL(r.shapes[0].dims[0], 1000);
    c = 0;
    CU_ASSERT_EQUAL_FATAL(tell(&r), GQAC_OK);
    CU_ASSERT_EQUAL(r.shapes[0].dims[0], 500);
    r.in[1].data = NULL; /* either branch: what both have in common */
    CU_ASSERT_EQUAL_FATAL(tell(&r), GQAC_OK);
    CU_ASSERT(r.shapes[0].rank == 2 && r.shapes[0].dims[0] == -1 && r.shapes[0].dims[1] == 3);
    close_rig(&r);
}

/* ---- valid rows ---------------------------------------------------------- */

/* Attention over a buffer of C rows, and over one that contains the last rows of a window of 5. */
static const char caches[] =
    "graph @g(%qkv: f32[B,S,96], %k: f32[B,1,C,16], %v: f32[B,1,C,16], %wk: f32[B,1,W,16], "
    "%wv: f32[B,1,W,16], %n: i32[B], %t: i32[]) {\n"
    "  %y, %pk, %pv = com.microsoft.GroupQueryAttention %qkv, _, _, %k, %v, %n, %t {num_heads=4, "
    "kv_num_heads=1} : f32[B,S,64], f32[B,1,C,16], f32[B,1,C,16]\n"
    "  %z, %wpk, %wpv = com.microsoft.GroupQueryAttention %qkv, _, _, %wk, %wv, %n, %t "
    "{num_heads=4, kv_num_heads=1, local_window_size=5, sliding_window_cache=1} : f32[B,S,64], "
    "f32[B,1,W,16], f32[B,1,W,16]\n"
    "  return %pk as \"pk\", %y as \"y\", %wpv as \"wpv\", %z as \"z\", %pv as \"pv\"\n}\n";

/* The rows that a run leaves unchanged, if the past contains 7 everywhere and the new rows do
 * not. */
static int64_t rows_of_past(const gqac_tensor *t, int64_t b) {
    int64_t first = t->dims[2];
    for (int64_t row = t->dims[2] - 1; row >= 0; row--) {
        const float *at = (const float *)t->data + (b * t->dims[2] + row) * 16;
        if (at[0] != 7)
            return first;
        first = row;
    }
    return first;
}

/* A call of two batch rows with `chunk` new tokens each, and the valid rows in both caches. */
static void expect_valid(int64_t chunk, int64_t total, const int32_t seqlens[2],
                         const int64_t valid[2], const int64_t windowed[2]) {
    enum { C = 12, W = 8 };
    rig r;
    float *qkv = calloc(2 * 12 * 96, sizeof *qkv), past[4][2 * C * 16];
    int32_t n[2] = {seqlens[0], seqlens[1]}, t = (int32_t)total;
    int64_t rows[5][2];
    for (int i = 0; i < 4 * 2 * C * 16; i++)
        past[i / (2 * C * 16)][i % (2 * C * 16)] = 7;
    open_text(&r, caches);
    add(&r, "qkv", GQAC_F32, 3, (int64_t[]){2, chunk, 96}, qkv);
    add(&r, "k", GQAC_F32, 4, (int64_t[]){2, 1, C, 16}, past[0]);
    add(&r, "v", GQAC_F32, 4, (int64_t[]){2, 1, C, 16}, past[1]);
    add(&r, "wk", GQAC_F32, 4, (int64_t[]){2, 1, W, 16}, past[2]);
    add(&r, "wv", GQAC_F32, 4, (int64_t[]){2, 1, W, 16}, past[3]);
    add(&r, "n", GQAC_I32, 1, (int64_t[]){2}, n);
    add(&r, "t", GQAC_I32, 0, NULL, &t);
    CU_ASSERT_EQUAL_FATAL(
        gqac_run_valid_rows(r.context, r.n, r.list, r.in, 5, NULL, 2, rows[0], &diag), GQAC_OK);
    if (gqac_run(r.context, r.n, r.list, r.in, 5, NULL, r.out, &diag) != GQAC_OK)
        CU_FAIL_FATAL(diag.what);
    for (int b = 0; b < 2; b++) {
        CU_ASSERT(rows[0][b] == valid[b] && rows[4][b] == valid[b]);
        CU_ASSERT_EQUAL(rows[2][b], windowed[b]);
        CU_ASSERT(rows[1][b] == -1 && rows[3][b] == -1);
        CU_ASSERT_EQUAL(rows_of_past(&r.out[0], b), valid[b]);
    }
    /* by name; without the lengths nothing is known */
    CU_ASSERT_EQUAL(gqac_run_valid_rows(r.context, r.n, r.list, r.in, 1,
                                        (const char *const[]){"wpv"}, 2, rows[0], &diag),
                    GQAC_OK);
    CU_ASSERT_EQUAL(rows[0][1], windowed[1]);
    r.in[5].data = NULL;
    CU_ASSERT_EQUAL(gqac_run_valid_rows(r.context, r.n, r.list, r.in, 5, NULL, 2, rows[0], &diag),
                    GQAC_OK);
    CU_ASSERT(rows[0][0] == -1 && rows[2][0] == -1);
    free(qkv);
    close_rig(&r);
}

static void test_valid_rows(void) {
    expect_valid(6, 6, (const int32_t[]){5, 5}, (const int64_t[]){6, 6}, (const int64_t[]){6, 6});
    /* 2 more tokens after 8 and 3; the window of 5 drops 4 rows when its buffer of 8 is full */
    expect_valid(2, 10, (const int32_t[]){9, 4}, (const int64_t[]){10, 5}, (const int64_t[]){6, 5});
}

/* ---- what is refused ----------------------------------------------------- */

static const char product[] = "graph @g(%a: f32[M,K], %b: f32[L,N]) {\n"
                              "  %y = MatMul %a, %b : f32[M,N]\n"
                              "  return %y as \"y\"\n}\n";

static void test_refused(void) {
    rig r;
    open_text(&r, product);
    add(&r, "a", GQAC_F32, 2, (int64_t[]){500, 4}, NULL);
    CU_ASSERT_EQUAL(tell(&r), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "'b'"));
    add(&r, "b", GQAC_F32, 2, (int64_t[]){4, 300}, NULL);
    CU_ASSERT_EQUAL(tell(&r), GQAC_OK);
    CU_ASSERT(r.shapes[0].dims[0] == 500 && r.shapes[0].dims[1] == 300);
    r.in[1].dims[0] = 5; /* a run would report this */
    CU_ASSERT_EQUAL(tell(&r), GQAC_INVALID_INPUT);
    CU_ASSERT(diag.status == GQAC_INVALID_INPUT && strstr(diag.where, "MatMul"));
    r.in[1].dims[0] = -4;
    CU_ASSERT_EQUAL(tell(&r), GQAC_INVALID_INPUT);
    r.in[1].dims[0] = 4;
    r.in[1].dtype = GQAC_I64;
    CU_ASSERT_EQUAL(tell(&r), GQAC_INVALID_INPUT);
    r.in[1].dtype = GQAC_F32;
    r.list[1] = "c";
    CU_ASSERT_EQUAL(tell(&r), GQAC_USAGE);
    r.list[1] = "b";
    const char *const wrong[] = {"z"};
    CU_ASSERT_EQUAL(gqac_run_shapes(r.context, 2, r.list, r.in, 1, wrong, r.shapes, &diag),
                    GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_run_shapes(r.context, 2, r.list, r.in, 2, NULL, r.shapes, &diag),
                    GQAC_USAGE);
    close_rig(&r);
    gqac_options options;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &r.program, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, 1, &r.context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_run_shapes(r.context, 0, NULL, NULL, 0, NULL, NULL, &diag), GQAC_USAGE);
    close_rig(&r);
}

static void test_memory(void) {
    rig r;
    int64_t n = 6;
    unsigned char c = 1;
    open_text(&r, by_value);
    add(&r, "x", GQAC_F32, 2, (int64_t[]){2, 3}, NULL);
    add(&r, "n", GQAC_I64, 0, NULL, &n);
    add(&r, "c", GQAC_BOOL, 0, NULL, &c);
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL_FATAL(tell(&r), GQAC_OK);
    const size_t calls = gqac_alloc_calls();
    CU_ASSERT_FATAL(calls > 3);
    for (size_t i = 1; i <= calls; i++) {
        gqac_alloc_fail_at(i, 0);
        const gqac_status status = tell(&r);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_EQUAL(status, GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    CU_ASSERT_EQUAL(tell(&r), GQAC_OK);
    close_rig(&r);
}

static const unit_case cases[] = {
    {"stored inputs of models", test_models},
    {"shapes by value", test_values},
    {"branches", test_branches},
    {"valid rows", test_valid_rows},
    {"what is refused", test_refused},
    {"allocations that fail", test_memory},
};

int main(int argc, char **argv) {
    return unit_run("run shapes", cases, sizeof cases / sizeof *cases, argc, argv);
}
