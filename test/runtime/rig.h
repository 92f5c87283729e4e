/* What tests of saved sequences, snapshots and stores share: programs, contexts and sequences that
 * must open, ids, and the bits of logits. */
#ifndef GQAC_TEST_RUNTIME_RIG_H
#define GQAC_TEST_RUNTIME_RIG_H

#include "base/file.h"
#include "base/table.h"
#include "unit.h"

#include <gqac/gqac.h>

/* `path` is absolute, or below the root of the repository. */
static inline gqac_program *rig_program(const char *path, const char *target) {
    gqac_diag diag;
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    options.target = target;
    if (*path != '/')
        path = unit_path(path);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &program, &diag), GQAC_OK);
    return program;
}

static inline gqac_context *rig_context(const gqac_program *program) {
    gqac_diag diag;
    gqac_context *context = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    return context;
}

static inline gqac_sequence *rig_sequence(const gqac_program *program, int64_t final_length) {
    gqac_diag diag;
    gqac_sequence *sequence = NULL;
    const gqac_sequence_options options = {.size = sizeof options, .final_length = final_length};
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &sequence, &diag), GQAC_OK);
    return sequence;
}

/* Writes the digest of data, as in files. */
static inline void rig_digest(unsigned char to[32], const void *data, size_t bytes) {
    gqac_sha256 state;
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, data, bytes);
    gqac_sha256_final(&state, to);
}

static inline gqac_store *rig_store_of(const gqac_program *program,
                                       const gqac_store_options *options) {
    gqac_diag diag;
    gqac_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(program, options, &store, &diag), GQAC_OK);
    return store;
}

/* A store in memory. */
static inline gqac_store *rig_store(const gqac_program *program, int64_t budget,
                                    int64_t tenant_budget) {
    const gqac_store_options options = {
        .size = sizeof options, .budget = budget, .tenant_budget = tenant_budget};
    return rig_store_of(program, &options);
}

/* A store with a folder, whose files may have that many bytes. */
static inline gqac_store *rig_folder_store(const gqac_program *program, const char *folder,
                                           int64_t folder_budget) {
    const gqac_store_options options = {
        .size = sizeof options, .folder = folder, .folder_budget = folder_budget};
    return rig_store_of(program, &options);
}

static inline gqac_store_statistics rig_counts(gqac_store *store) {
    gqac_diag diag;
    gqac_store_statistics s = {.size = sizeof s};
    CU_ASSERT_EQUAL_FATAL(gqac_store_get_statistics(store, &s, &diag), GQAC_OK);
    return s;
}

/* Makes n ids, different for each seed. */
static inline void rig_ids(int64_t *ids, int64_t n, int seed) {
    for (int64_t i = 0; i < n; i++)
        ids[i] = (i * (31 + 2 * seed) + seed * 17 + i / 5) % 250;
}

/* A hash of the logits of item 0 of the last step; never 0. */
static inline uint64_t rig_logits(const gqac_context *context) {
    int64_t rows = 0, width = 0;
    const float *logits = gqac_context_logits(context, 0, &rows, &width);
    return gqac_hash_bytes(1, logits, (size_t)(rows * width) * sizeof *logits) | 1;
}

#endif
