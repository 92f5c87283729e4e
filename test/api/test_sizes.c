/* Structs that begin with their size: a caller of an older gqac has shorter ones, one of a newer
 * gqac longer ones, and one that forgot to set the size gets an error. Shorter structs are at the
 * end of a page after which there is no memory, so reading a byte too many crashes. */
#include "unit.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gqac/text.h>

#define FOLDER GQAC_SOURCE_DIR "/test/models/llama"
#define MODEL  FOLDER "/model.onnx"
#define T5     GQAC_SOURCE_DIR "/test/traced/t5"

static gqac_diag diag;

/* `n` bytes directly before memory that cannot be accessed. */
static void *at_end_of_page(const void *from, size_t n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(memory != MAP_FAILED);
    CU_ASSERT_EQUAL_FATAL(mprotect(memory + page, page, PROT_NONE), 0);
    memcpy(memory + page - n, from, n);
    memcpy(memory + page - n, &n, sizeof n);
    return memory + page - n;
}

static void release(void *memory) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap((void *)((uintptr_t)memory & ~(page - 1)), 2 * page);
}

static gqac_program *open_model(void) {
    gqac_program *program = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(MODEL, NULL, &program, &diag), GQAC_OK);
    return program;
}

/* Every invalid size, for every call that takes options; nothing else is read. */
static void test_forgotten(void) {
    static const size_t wrong[] = {0, 1, 7, 9, 4097, 4104, SIZE_MAX};
    gqac_program *program = open_model(), *other = NULL;
    gqac_sequence *sequence = NULL;
    gqac_session *session = NULL;
    gqac_info *info = NULL;
    gqac_rewritten *done = NULL;
    gqac_seq2seq *seq2seq = NULL;
    gqac_text *text = NULL;
    char hex[65];
    CU_ASSERT_EQUAL_FATAL(gqac_text_open(FOLDER, GQAC_TEXT_TOKENIZER, &text, &diag), GQAC_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gqac_options options;
        gqac_options_init(&options);
        options.size = wrong[i];
        const gqac_sequence_options of_sequence = {.size = wrong[i]};
        const gqac_session_options of_session = {.size = wrong[i]};
        const gqac_sampling sampling = {.size = wrong[i]};
        const gqac_generate_request request = {.size = wrong[i]};
        const gqac_tokenize_options tokenize = {.size = wrong[i]};
        int64_t *tokens = NULL;
        size_t n_tokens = 0;
        const gqac_log log = {.size = wrong[i]};
        gqac_options with_log;
        gqac_options_init(&with_log);
        with_log.log = &log;
        gqac_memory memory = {.size = wrong[i]};
        gqac_generation *said = NULL;
        gqac_context *context = NULL;
        const float logits[2] = {0, 1};
        const int64_t ids[2] = {0, 1};
        int64_t id = 0;
        CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
#define REFUSED(name, call)                                                                        \
    do {                                                                                           \
        memset(&diag, 0, sizeof diag);                                                             \
        CU_ASSERT_EQUAL(call, GQAC_USAGE);                                                         \
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, name ".size"));                                   \
        CU_ASSERT(*diag.rule &&*diag.hint);                                                        \
    } while (0)
        REFUSED("gqac_options", gqac_program_open(MODEL, &options, &other, &diag));
        REFUSED("gqac_options", gqac_compile(MODEL, &options, GQAC_EMIT_NONE, NULL, &diag));
        REFUSED("gqac_options", gqac_info_open(MODEL, &options, &info, &diag));
        REFUSED("gqac_options", gqac_model_digest(MODEL, &options, hex, &diag));
        REFUSED("gqac_options", gqac_rewrite(MODEL, "raise", &options, "/none", &done, &diag));
        REFUSED("gqac_log", gqac_program_open(MODEL, &with_log, &other, &diag));
        REFUSED("gqac_options", gqac_model_open(MODEL, &options, 0, &other, NULL, &diag));
        REFUSED("gqac_sequence_options",
                gqac_sequence_load(program, &of_sequence, ids, sizeof ids, &sequence, &diag));
        REFUSED("gqac_sequence_options",
                gqac_sequence_create(program, &of_sequence, &sequence, &diag));
        REFUSED("gqac_session_options", gqac_session_create(program, &of_session, &session, &diag));
        REFUSED("gqac_sampling", gqac_sample(&sampling, logits, 2, NULL, 0, &id, NULL, &diag));
        REFUSED("gqac_generate_request", gqac_generate(context, NULL, 1, &request, &said, &diag));
        REFUSED("gqac_tokenize_options",
                gqac_text_tokenize_with(text, "a", 1, &tokenize, &tokens, &n_tokens, &diag));
        REFUSED("gqac_options", gqac_seq2seq_open(T5, &options, &seq2seq, &diag));
        REFUSED("gqac_memory", gqac_program_memory(program, 4, 4, &memory, &diag));
        CU_ASSERT(!other && !sequence && !session && !info && !said && !done);
        CU_ASSERT(!tokens && !seq2seq);
        gqac_context_free(context);
    }
    gqac_text_free(text);
    gqac_program_free(program);
}

/* With every size that an older gqac may have had, options open the model: missing fields have
 * their defaults. */
static void test_older_options(void) {
    gqac_options options;
    gqac_options_init(&options);
    options.target = "ref";
    options.stateless = true;
    for (size_t n = sizeof(size_t); n <= sizeof options; n += sizeof(size_t)) {
        gqac_program *program = NULL;
        void *older = at_end_of_page(&options, n);
        CU_ASSERT_EQUAL_FATAL(gqac_program_open(MODEL, older, &program, &diag), GQAC_OK);
        const bool has_target = n > offsetof(gqac_options, target);
        CU_ASSERT_EQUAL(strstr(gqac_program_profile(program), "/ref/") != NULL, has_target);
        CU_ASSERT_EQUAL(gqac_program_is_stateless(program), n > offsetof(gqac_options, stateless));
        gqac_program_free(program);
        release(older);
    }
    options.target = "nope";
    gqac_program *program = NULL;
    void *older = at_end_of_page(&options, 2 * sizeof(size_t));
    CU_ASSERT_EQUAL(gqac_program_open(MODEL, older, &program, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "nope"));
    release(older);
}

/* Texts that are NULL also mean the defaults. */
static void test_unset_texts(void) {
    const gqac_options options = {.size = sizeof options};
    gqac_program *program = NULL, *plain = open_model();
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(MODEL, &options, &program, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(gqac_program_profile(program), gqac_program_profile(plain));
    gqac_program_free(program);
    gqac_program_free(plain);
}

static void test_older_others(void) {
    gqac_program *program = open_model();
    gqac_sequence *sequence = NULL;
    const gqac_sequence_options options = {.size = sizeof options, .kv = "basic", .capacity = -1};
    void *older = at_end_of_page(&options, offsetof(gqac_sequence_options, capacity));
    CU_ASSERT_EQUAL(gqac_sequence_create(program, older, &sequence, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_create(program, &options, &sequence, &diag), GQAC_OUT_OF_RANGE);
    gqac_sequence_free(sequence);
    release(older);

    /* as many fields as fit are written, and the rest is unchanged */
    gqac_memory whole = {.size = sizeof whole}, part;
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 70, 70, &whole, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(whole.size, sizeof whole);
    memset(&part, 0xa5, sizeof part);
    const gqac_memory untouched = part;
    part.size = offsetof(gqac_memory, prefill);
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 70, 70, &part, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(part.size, offsetof(gqac_memory, prefill));
    CU_ASSERT_EQUAL(part.kv_blocks, whole.kv_blocks);
    CU_ASSERT_EQUAL(part.weights, whole.weights);
    CU_ASSERT(!memcmp(&part.prefill, &untouched.prefill, sizeof part - part.size));

    /* not all defaults of sampling are 0 */
    gqac_sampling sampling = {.size = sizeof sampling};
    const float logits[] = {1, 5, 3};
    int64_t id = -1;
    CU_ASSERT_EQUAL(gqac_sample(&sampling, logits, 3, NULL, 0, &id, NULL, &diag), GQAC_USAGE);
    older = at_end_of_page(&sampling, offsetof(gqac_sampling, temperature));
    CU_ASSERT_EQUAL(gqac_sample(older, logits, 3, NULL, 0, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 1);
    release(older);
    gqac_program_free(program);
}

/* Longer structs: fields after ours must be 0, because their meaning is unknown. */
static void test_newer(void) {
    struct {
        gqac_options options;
        int64_t more[3];
    } newer = {.more = {0, 0, 0}};
    gqac_program *program = NULL;
    gqac_options_init(&newer.options);
    newer.options.size = sizeof newer;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(MODEL, &newer.options, &program, &diag), GQAC_OK);
    gqac_program *other = NULL;
    newer.more[2] = 1;
    CU_ASSERT_EQUAL(gqac_program_open(MODEL, &newer.options, &other, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.hint, "newer"));
    CU_ASSERT_PTR_NULL(other);
    struct {
        gqac_memory memory;
        int64_t more[2];
    } memory = {.memory = {.size = sizeof memory}, .more = {7, 7}};
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(program, 4, 4, &memory.memory, &diag), GQAC_OK);
    CU_ASSERT(memory.memory.weights > 0 && !memory.more[0] && !memory.more[1]);
    gqac_program_free(program);
}

/* Several requests whose size differs from ours: each is read at the address where the caller put
 * it. */
static void test_requests(void) {
    typedef struct newer_request {
        gqac_generate_request request;
        int64_t more;
    } newer_request;
    const int64_t prompt[] = {72, 101, 108, 108, 111};
    gqac_program *program = open_model();
    gqac_context *context = NULL;
    gqac_session *sessions[2] = {0};
    gqac_generation *said[2] = {0}, *plain = NULL;
    newer_request q[2];
    memset(q, 0, sizeof q);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL_FATAL(gqac_session_create(program, NULL, &sessions[i], &diag), GQAC_OK);
        gqac_generate_request_init(&q[i].request, NULL, sessions[i], prompt, (size_t)(3 + 2 * i));
        q[i].request.max_new = 4 + i;
    }
    CU_ASSERT_EQUAL_FATAL(gqac_generate(context, NULL, 1, &q[1].request, &plain, &diag), GQAC_OK);
    q[0].request.size = sizeof *q;
    CU_ASSERT_EQUAL(gqac_generate(context, NULL, 2, &q->request, said, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "size"));
    q[1].request.size = sizeof *q;
    CU_ASSERT_EQUAL_FATAL(gqac_generate(context, NULL, 2, &q->request, said, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(said[0]->n_ids, 4);
    CU_ASSERT_EQUAL(said[1]->n_ids, 5);
    CU_ASSERT(!memcmp(said[1]->ids, plain->ids, 5 * sizeof *plain->ids));
    CU_ASSERT_EQUAL(said[0]->size, sizeof *said[0]);
    CU_ASSERT_EQUAL(said[0]->metrics.size, sizeof said[0]->metrics);
    for (int i = 0; i < 2; i++) {
        gqac_generation_free(said[i]);
        gqac_session_free(sessions[i]);
    }
    gqac_generation_free(plain);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* Wrong sizes of the structs for a model with an encoder. */
static void test_seq2seq(void) {
    static const size_t wrong[] = {0, 7, 4104};
    const int64_t ids[] = {5, 6};
    gqac_seq2seq *model = NULL;
    gqac_threads *threads = NULL;
    gqac_seq2seq_context *context = NULL;
    gqac_generation *said = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_seq2seq_open(T5, NULL, &model, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_threads_create(1, &threads, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_seq2seq_context_create(model, threads, &context, &diag), GQAC_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gqac_generate_request request;
        gqac_seq2seq_source source = {.size = sizeof source, .ids = ids, .n_ids = 2};
        gqac_monitor monitor = {.size = wrong[i]};
        gqac_seq2seq_request_init(&request, model);
        CU_ASSERT_EQUAL(gqac_seq2seq_context_set_monitor(context, &monitor, &diag), GQAC_USAGE);
        source.size = wrong[i];
        CU_ASSERT_EQUAL(gqac_seq2seq_generate(context, NULL, &source, &request, &said, &diag),
                        GQAC_USAGE);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "gqac_seq2seq_source.size"));
        source.size = sizeof source;
        request.size = wrong[i];
        CU_ASSERT_EQUAL(gqac_seq2seq_generate(context, NULL, &source, &request, &said, &diag),
                        GQAC_USAGE);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "gqac_generate_request.size"));
        CU_ASSERT_PTR_NULL(said);
    }
    CU_ASSERT_EQUAL(gqac_seq2seq_get_settings(model)->size, sizeof(gqac_seq2seq_settings));
    gqac_seq2seq_context_free(context);
    gqac_threads_free(threads);
    gqac_seq2seq_free(model);
}

/* Structs from the library have their size set, and a list of them is walked by this size. */
static void test_lists(void) {
    gqac_program *program = open_model();
    const gqac_kv_pair *pairs = NULL;
    const gqac_io *inputs = NULL;
    gqac_info *info = NULL;
    gqac_plan *plan = NULL;
    const int n = gqac_program_kv_pairs(program, &pairs);
    CU_ASSERT_FATAL(n >= 2 && gqac_program_inputs(program, &inputs) > 0);
    const gqac_kv_pair *last = GQAC_AT(pairs, n - 1);
    CU_ASSERT_PTR_EQUAL(last, &pairs[n - 1]);
    CU_ASSERT(last->size == sizeof *last && inputs->size == sizeof *inputs);
    CU_ASSERT_EQUAL_FATAL(gqac_info_open(MODEL, NULL, &info, &diag), GQAC_OK);
    CU_ASSERT(info->size == sizeof *info && info->inputs->size == sizeof *info->inputs);
    CU_ASSERT_EQUAL(info->kv_pairs->size, sizeof *info->kv_pairs);
    CU_ASSERT_EQUAL_FATAL(gqac_plan_open(program, 0, &plan, &diag), GQAC_OK);
    CU_ASSERT(plan->size == sizeof *plan && plan->steps->size == sizeof *plan->steps);
    CU_ASSERT_EQUAL(plan->total.size, sizeof plan->total);
    gqac_plan_free(plan);
    gqac_info_free(info);
    gqac_program_free(program);
}

/* Limits of an older caller, of one that forgot the size, and invalid values. */
static void test_limits(void) {
    gqac_limits limits;
    gqac_options options;
    gqac_program *program = NULL;
    gqac_limits_init(&limits);
    gqac_options_init(&options);
    limits.model_bytes = 1;
    gqac_limits *older = at_end_of_page(&limits, offsetof(gqac_limits, nodes));
    options.limits = older;
    CU_ASSERT_EQUAL(gqac_program_open(MODEL, &options, &program, &diag), GQAC_LIMIT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.rule, "limit model-bytes is 1"));
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, "model.onnx"));
    release(older);
    options.limits = &limits;
    limits.model_bytes = -1;
    CU_ASSERT_EQUAL(gqac_program_open(MODEL, &options, &program, &diag), GQAC_USAGE);
    limits.model_bytes = 0; /* the default */
    limits.size = 0;
    CU_ASSERT_EQUAL(gqac_program_open(MODEL, &options, &program, &diag), GQAC_USAGE);
    limits.size = sizeof limits;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(MODEL, &options, &program, &diag), GQAC_OK);
    gqac_program_free(program);
}

/* Each name of a limit refers to the field at its position. */
static void test_names_of_limits(void) {
    const int n = (int)((sizeof(gqac_limits) - sizeof(size_t)) / sizeof(int64_t));
    const char *name, *summary;
    int64_t value;
    for (int i = 0; i < n; i++) {
        gqac_limits limits;
        gqac_limits_init(&limits);
        CU_ASSERT_TRUE_FATAL(gqac_limit_at(i, NULL, &name, &summary, &value));
        CU_ASSERT_TRUE(value > 1 && *summary);
        CU_ASSERT_EQUAL(gqac_limits_set(&limits, name, 1, &diag), GQAC_OK);
        for (int k = 0; k < n; k++) {
            int64_t field;
            memcpy(&field, (const char *)&limits + sizeof(size_t) + (size_t)k * sizeof field,
                   sizeof field);
            CU_ASSERT_EQUAL(field, k == i);
        }
        CU_ASSERT_TRUE(gqac_limit_at(i, &limits, &name, &summary, &value) && value == 1);
        CU_ASSERT_EQUAL(gqac_limits_set(&limits, name, 0, &diag), GQAC_USAGE);
    }
    CU_ASSERT_FALSE(gqac_limit_at(n, NULL, &name, &summary, &value));
    CU_ASSERT_FALSE(gqac_limit_at(-1, NULL, &name, &summary, &value));
}

static const unit_case cases[] = {
    {"limits", test_limits},
    {"names of limits", test_names_of_limits},
    {"sizes that cannot be", test_forgotten},
    {"options of every older size", test_older_options},
    {"texts that are not set", test_unset_texts},
    {"other older structs", test_older_others},
    {"newer structs", test_newer},
    {"requests one after another", test_requests},
    {"an encoder and a decoder", test_seq2seq},
    {"what the library makes", test_lists},
};

int main(int argc, char **argv) {
    return unit_run("sizes", cases, sizeof cases / sizeof *cases, argc, argv);
}
