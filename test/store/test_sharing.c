/* What sequences share in a store: blocks that two computed at the same time are stored once; and a
 * tenant that floods the store does not evict what others use. */
#include "base/table.h"
#include "runtime/program.h"
#include "runtime/rig.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <string.h>

enum { N = 150 };

static gqac_diag diag;

static uint64_t feed(gqac_context *context, gqac_sequence *s, const int64_t *ids, int64_t n) {
    int64_t rows = 0, width = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids, n, 1, &diag), GQAC_OK);
    const float *logits = gqac_context_logits(context, 0, &rows, &width);
    return gqac_hash_bytes(1, logits, (size_t)width * sizeof *logits);
}

/* ---- computed at the same time ------------------------------------------- */

/* Two sequences that both missed, with `same` common tokens; then both again, from the store. */
static void twice(const char *model, const char *kv, int64_t same, int64_t first, int64_t blocks) {
    gqac_program *p = rig_program(model, "cpu");
    gqac_context *context = NULL;
    gqac_store *store = rig_store(p, 0, 0);
    gqac_sequence *s[2] = {NULL, NULL};
    int64_t ids[2][N], reused = -1;
    uint64_t bits[2];
    const int64_t n[2] = {first, N};
    const gqac_sequence_options options = {.size = sizeof options, .kv = kv};
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &context, &diag), GQAC_OK);
    for (int i = 0; i < 2; i++) {
        rig_ids(ids[i], N, 1);
        for (int64_t k = same; k < N; k++)
            ids[i][k] = (ids[i][k] + i) % 250;
        CU_ASSERT_EQUAL_FATAL(
            gqac_store_open(store, NULL, ids[i], n[i], &options, &s[i], &reused, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(reused, 0);
    }
    for (int i = 0; i < 2; i++)
        bits[i] = feed(context, s[i], ids[i], n[i]);
    for (int i = 0; i < 2; i++)
        gqac_sequence_free(s[i]);
    const gqac_store_statistics x = rig_counts(store);
    CU_ASSERT_EQUAL(x.blocks, blocks);
    CU_ASSERT_EQUAL((int64_t)kv_pool_blocks_in_use(p->pool), blocks);
    CU_ASSERT(x.misses == 2 && x.computed_tokens == first + N);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL_FATAL(
            gqac_store_open(store, NULL, ids[i], n[i], &options, &s[i], &reused, &diag), GQAC_OK);
        CU_ASSERT(reused >= 64);
        CU_ASSERT_EQUAL(feed(context, s[i], ids[i] + reused, n[i] - reused), bits[i]);
        gqac_sequence_free(s[i]);
    }
    gqac_store_evict(store, 0);
    CU_ASSERT(rig_counts(store).bytes == 0 && !kv_pool_blocks_in_use(p->pool));
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

static void computed_twice(void) {
    static const char *const kinds[] = {"contiguous", "paged", "windowed", "quantised"};
    for (int i = 0; i < 4; i++) {
        twice("models/tiny-gqa/model.onnx", kinds[i], 130, N, 2 + 1 + 1); /* they diverge */
        twice("models/tiny-gqa/model.onnx", kinds[i], 60, N, 6);
        twice("models/tiny-gqa/model.onnx", kinds[i], 128, 128, 3); /* one continues the other */
        twice("models/tiny-gqa/model.onnx", kinds[i], N, N, 3);
    }
    twice("test/models/lfm2/model.onnx", NULL, 128, 128, 3);
    twice("test/models/qwen3.5/model.onnx", NULL, 128, 128, 3);
}

/* ---- tenants ------------------------------------------------------------- */

static int64_t visit(gqac_store *store, gqac_context *context, const char *tenant, int seed,
                     int64_t n) {
    int64_t ids[N], reused = 0;
    gqac_sequence *s = NULL;
    rig_ids(ids, n, seed);
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, tenant, ids, n, NULL, &s, &reused, &diag),
                          GQAC_OK);
    feed(context, s, ids + reused, n - reused);
    gqac_sequence_free(s);
    return reused;
}

/* The number of tokens that one tenant reuses while another sends `flood` prompts between its
 * own. */
static int64_t reused_beside(const gqac_program *p, gqac_context *context, int64_t budget,
                             int64_t tenant_budget, int flood) {
    gqac_store *store = rig_store(p, budget, tenant_budget);
    int64_t reused = 0;
    for (int i = 0, other = 100; i < 40; i++) {
        reused += visit(store, context, "steady", i * i % 7, 60 + i % 5);
        for (int k = 0; k < flood; k++)
            visit(store, context, "flood", other++, N);
    }
    CU_ASSERT(rig_counts(store).bytes <= budget && (!flood || rig_counts(store).evictions > 50));
    gqac_store_free(store);
    return reused;
}

/* If a tenant has reached its budget, another one still reuses at least 95 % of the tokens that it
 * reuses alone; without separate budgets it does not. */
static void flooded(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = NULL;
    gqac_memory memory = {.size = sizeof memory};
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(p, 1, 1, &memory, &diag), GQAC_OK);
    const int64_t budget = 10 * memory.kv_block;
    const int64_t alone = reused_beside(p, context, 2 * budget, budget, 0);
    CU_ASSERT(alone > 30 * 55);
    CU_ASSERT(reused_beside(p, context, 2 * budget, budget, 4) * 100 >= alone * 95);
    CU_ASSERT(reused_beside(p, context, 2 * budget, 0, 4) * 2 < alone);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* Partitions of a tenant share its budget, but find only their own rows. */
static void parts(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_memory memory = {.size = sizeof memory};
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(p, 1, 1, &memory, &diag), GQAC_OK);
    const int64_t budget = 10 * memory.kv_block;
    gqac_store *store = rig_store(p, 4 * budget, budget);
    visit(store, context, "steady", 1, 60);
    for (int i = 0; i < 40; i++) {
        char name[20];
        snprintf(name, sizeof name, "flood\n%d", i);
        CU_ASSERT_EQUAL(visit(store, context, name, 2, N), 0);
        CU_ASSERT_EQUAL(visit(store, context, name, 2, N), N - 1);
    }
    CU_ASSERT(rig_counts(store).bytes <= budget + 2 * memory.kv_block); /* flood, and steady */
    CU_ASSERT_EQUAL(visit(store, context, "steady", 1, 60), 59);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* A tenant whose name begins with the name of another is a different tenant. */
static void beginnings(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_store(p, 0, 0);
    static const char *const names[] = {"flood", "flo", "", "floods", "flo\nod"};
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(visit(store, context, names[i], 2, 60), 0);
        CU_ASSERT_EQUAL(visit(store, context, names[i], 2, 60), 59);
    }
    CU_ASSERT_EQUAL(rig_counts(store).tenants, 5);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* Entries larger than a budget are not added, and evict nothing. */
static void too_large(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_memory memory = {.size = sizeof memory};
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(p, 1, 1, &memory, &diag), GQAC_OK);
    const int64_t budget = memory.kv_block * 5 / 2;
    for (int i = 0; i < 2; i++) {
        gqac_store *store = i ? rig_store(p, 0, budget) : rig_store(p, budget, 0);
        CU_ASSERT_EQUAL(visit(store, context, "a", 1, 60), 0);
        CU_ASSERT_EQUAL(visit(store, context, "a", 2, N), 0); /* three blocks */
        CU_ASSERT_EQUAL(visit(store, context, "a", 1, 60), 59);
        CU_ASSERT_EQUAL(rig_counts(store).evictions, 0);
        gqac_store_free(store);
    }
    gqac_context_free(context);
    gqac_program_free(p);
}

/* Rows of one rope table are not found for a prompt that uses the other. The longest length of the
 * short table is the LongRoPE threshold itself. */
static void rope_tables(void) {
    gqac_program *p = rig_program("test/models/phi3/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    int64_t threshold = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_program_rope_threshold(p, &threshold, &diag), GQAC_OK);
    CU_ASSERT_FATAL(threshold > 10 && threshold + 10 < N);
    for (int64_t n = threshold - 1; n <= threshold + 2; n++) {
        gqac_store *store = rig_store(p, 0, 0);
        CU_ASSERT_EQUAL(visit(store, context, "a", 1, threshold + 9), 0);
        CU_ASSERT_EQUAL(visit(store, context, "a", 1, n), n <= threshold ? 0 : n - 1);
        CU_ASSERT_EQUAL(visit(store, context, "a", 1, n), n - 1);
        gqac_store_free(store);
    }
    gqac_context_free(context);
    gqac_program_free(p);
}

/* Tenants without rows take no memory; names that were returned stay valid. */
static void gone(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_store(p, 0, 0);
    gqac_store_prefix prefix;
    gqac_sequence *s = NULL, *fork = NULL;
    int64_t ids[N], reused = 0;
    for (int i = 0; i < 50; i++) {
        char name[20];
        snprintf(name, sizeof name, "%s\n%d", i % 2 ? "a" : "b", i);
        visit(store, context, name, 1, 40);
    }
    CU_ASSERT_EQUAL(rig_counts(store).tenants, 52); /* including "a" and "b" */
    CU_ASSERT_EQUAL(visit(store, context, "a\n1", 1, 40) + visit(store, context, "a\n1", 1, 40),
                    78);
    CU_ASSERT(gqac_store_prefixes(store, 1, &prefix) == 1 && !strcmp(prefix.tenant, "a\n1"));
    rig_ids(ids, N, 3);
    CU_ASSERT_EQUAL(gqac_store_open(store, "c", ids, N, NULL, &s, &reused, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_fork(s, &fork, &diag), GQAC_OK);
    gqac_sequence_free(s);
    gqac_store_evict(store, 0);
    CU_ASSERT_EQUAL(rig_counts(store).tenants, 3); /* "a", "a\n1" and "c" */
    CU_ASSERT_STRING_EQUAL(prefix.tenant, "a\n1");
    feed(context, fork, ids, 40);
    CU_ASSERT_EQUAL(gqac_store_match(store, "c", NULL, ids, N), 40);
    gqac_store_evict(store, 0);
    gqac_sequence_free(fork);
    CU_ASSERT_EQUAL(gqac_store_match(store, "c", NULL, ids, N), 40); /* added when it was freed */
    gqac_store_evict(store, 0);
    CU_ASSERT_EQUAL(rig_counts(store).tenants, 2);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* ---- drafts -------------------------------------------------------------- */

/* Steps of an id with drafts after it, some of which are rejected: while the sequence exists, the
 * store has its full blocks without the rejected ones, and afterwards all its rows. */
static void drafted(const char *kv, int64_t drafts, int64_t wrong) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = NULL;
    gqac_store *store = rig_store(p, 0, 0);
    gqac_sequence *s = NULL;
    int64_t ids[N + 64], reused = 0, at = 50;
    const gqac_sequence_options options = {.size = sizeof options, .kv = kv};
    rig_ids(ids, N + 64, 1);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, NULL, ids, N, &options, &s, &reused, &diag),
                          GQAC_OK);
    feed(context, s, ids, at);
    while (at + 1 + drafts <= N) {
        int64_t given[65];
        memcpy(given, ids + at, sizeof given);
        for (int64_t i = 1 + drafts - wrong; i < 1 + drafts; i++)
            given[i] = 255;
        const gqac_step_item item = {.size = sizeof item,
                                     .sequence = s,
                                     .tokens = given,
                                     .count = 1 + drafts,
                                     .drafts = drafts};
        const int64_t before = at > 50 && at >= 64 ? at / 64 * 64 : 50;
        CU_ASSERT_EQUAL_FATAL(gqac_step(context, 1, &item, &diag), GQAC_OK);
        at++;
        const int64_t sure = at / 64 * 64 > before ? at / 64 * 64 : before;
        CU_ASSERT_EQUAL(gqac_store_match(store, NULL, kv, ids, N), sure);
        CU_ASSERT_EQUAL(rig_counts(store).prefixes, 1);
        at += drafts - wrong;
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(s, at, &diag), GQAC_OK);
    }
    gqac_sequence_free(s);
    CU_ASSERT_EQUAL(gqac_store_match(store, NULL, kv, ids, N), at);
    const gqac_store_statistics x = rig_counts(store);
    CU_ASSERT(x.computed_tokens == at && x.prefixes == 1 && x.blocks == (at + 63) / 64);
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, NULL, ids, N, &options, &s, &reused, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL(reused, at < N ? at : N - 1);
    const uint64_t bits = feed(context, s, ids + reused, N - reused);
    gqac_sequence_free(s);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(p, &options, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(feed(context, s, ids, N), bits);
    gqac_sequence_free(s);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

/* A fork after accepted drafts computes nothing until it steps: the store counts each token once,
 * whichever of the two continues or ends first. */
static void drafted_and_forked(bool fork_first, bool both) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = NULL;
    gqac_store *store = rig_store(p, 0, 0);
    gqac_sequence *s = NULL, *fork = NULL;
    int64_t ids[N], reused = 0;
    rig_ids(ids, N, 1);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, NULL, ids, N, NULL, &s, &reused, &diag), GQAC_OK);
    const gqac_step_item item = {
        .size = sizeof item, .sequence = s, .tokens = ids, .count = 70, .drafts = 7};
    CU_ASSERT_EQUAL_FATAL(gqac_step(context, 1, &item, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(s, 68, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(s, &fork, &diag), GQAC_OK);
    if (both)
        feed(context, fork, ids + 68, 1);
    gqac_sequence_free(fork_first ? fork : s);
    feed(context, fork_first ? s : fork, ids + (both && !fork_first ? 69 : 68), 1);
    gqac_sequence_free(fork_first ? s : fork);
    CU_ASSERT_EQUAL(rig_counts(store).computed_tokens, 68 + 1 + both);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
}

static void forked_after_drafts(void) {
    for (int i = 0; i < 4; i++)
        drafted_and_forked(i & 1, i & 2);
}

static void drafts(void) {
    static const char *const kinds[] = {"contiguous", "paged", "windowed"};
    for (int k = 0; k < 3; k++) {
        drafted(kinds[k], 1, 1);
        drafted(kinds[k], 4, 2);
        drafted(kinds[k], 20, 7);
        drafted(kinds[k], 30, 0);
        drafted(kinds[k], 64, 64);
    }
}

static const unit_case cases[] = {
    {"computed twice", computed_twice},
    {"drafts", drafts},
    {"drafts and forks", forked_after_drafts},
    {"parts of a tenant", parts},
    {"tenants whose names begin alike", beginnings},
    {"larger than the budget", too_large},
    {"two rope tables", rope_tables},
    {"tenants that are gone", gone},
    {"a tenant that floods the store", flooded},
};

int main(int argc, char **argv) {
    return unit_run("store/sharing", cases, sizeof cases / sizeof *cases, argc, argv);
}
