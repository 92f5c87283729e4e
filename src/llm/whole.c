/* Models without a cache: each call is one stateless run over all ids, with a mask of ones and
 * positions from 0. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "llm/session.h"

#define LOGITS "logits"

enum { IDS, MASK, POSITIONS, KINDS };
static const char *const names[KINDS] = {"input_ids", "attention_mask", "position_ids"};

static int kind_of(const char *name) {
    int kind = 0;
    while (kind < KINDS && strcmp(names[kind], name) != 0)
        kind++;
    return kind;
}

/* The kind of input i, or KINDS. As with a cache, the only input [B,S] without a known name is the
 * ids. */
static int kind_at(const gqac_io *inputs, int n, int i) {
    const int kind = kind_of(inputs[i].name);
    if (kind < KINDS || inputs[i].rank != 2)
        return kind;
    for (int j = 0; j < n; j++) {
        const int other = kind_of(inputs[j].name);
        if (j != i && (other == IDS || other == KINDS))
            return KINDS;
    }
    return IDS;
}

static gqac_status refuse_shape(const char *shape, gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "the output '%s' has the shape %s", LOGITS, shape);
    gqac_diag_rule(diag, "a model without a cache returns " LOGITS " [B,S,V]");
    gqac_diag_hint(diag, "`gqac run` returns an output of any shape");
    return GQAC_UNSUPPORTED;
}

/* Refuses a model without an output logits, and lists the outputs that it has. */
static gqac_status check_outputs(const gqac_program *program, gqac_diag *diag) {
    const gqac_io *outputs = NULL;
    const int n = gqac_program_outputs(program, &outputs);
    char text[256] = "";
    for (int i = 0; i < n; i++) {
        const size_t used = strlen(text);
        if (!strcmp(outputs[i].name, LOGITS))
            return outputs[i].rank < 0 || outputs[i].rank == 3
                       ? GQAC_OK
                       : refuse_shape(outputs[i].shape, diag);
        snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", outputs[i].name);
    }
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "the model has no output '%s'; its outputs are: %s",
                  LOGITS, text);
    gqac_diag_rule(diag, "a model without a cache returns " LOGITS " [B,S,V]");
    gqac_diag_hint(diag, "rename the output in the file; `gqac run` returns any output");
    return GQAC_UNSUPPORTED;
}

static gqac_status check_logits(const gqac_tensor *logits, gqac_diag *diag) {
    if (logits->rank == 3 && logits->dims[0] == 1 && logits->dims[1] >= 1)
        return GQAC_OK;
    char shape[GQAC_MAX_RANK * 24] = "[";
    for (int i = 0; i < logits->rank; i++) {
        const size_t used = strlen(shape);
        snprintf(shape + used, sizeof shape - used, "%s%lld", i ? "," : "",
                 (long long)logits->dims[i]);
    }
    snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "]");
    return refuse_shape(shape, diag);
}

gqac_status whole_check(const gqac_program *program, gqac_diag *diag) {
    const gqac_io *inputs = NULL;
    const int n = gqac_program_inputs(program, &inputs);
    bool ids = false;
    for (int i = 0; i < n; i++) {
        const int kind = kind_at(inputs, n, i);
        ids = ids || kind == IDS;
        if (kind < KINDS && inputs[i].dtype == GQAC_I64)
            continue;
        gqac_diag_set(diag, GQAC_UNSUPPORTED, "the input '%s' %s %s is not known", inputs[i].name,
                      gqac_dtype_name(inputs[i].dtype), inputs[i].shape);
        gqac_diag_rule(diag, "a model without a cache has the inputs input_ids, attention_mask and "
                             "position_ids, i64 [B,S]; ids may have another name if no other "
                             "input has");
        gqac_diag_hint(diag, "`gqac run` accepts any input");
        return GQAC_UNSUPPORTED;
    }
    if (!ids)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "the model has no input 'input_ids' [B,S]");
    return check_outputs(program, diag);
}

/* n ones, then the positions 0 to n-1. */
static gqac_status make_counts(int64_t n, int64_t **counts, gqac_diag *diag) {
    size_t bytes = 0;
    if (!gqac_mul_size((size_t)n, 2 * sizeof **counts, &bytes) || !(*counts = gqac_alloc(bytes)))
        return gqac_diag_oom(diag, "the mask of a text");
    for (int64_t i = 0; i < n; i++) {
        (*counts)[i] = 1;
        (*counts)[n + i] = i;
    }
    return GQAC_OK;
}

gqac_status gqac_forward_stateless(gqac_context *context, const gqac_program *program,
                                   const int64_t *ids, int64_t n, gqac_tensor *logits,
                                   gqac_diag *diag) {
    static const char *const wanted[] = {LOGITS};
    const char *given[KINDS];
    gqac_tensor in[KINDS];
    const gqac_io *inputs = NULL;
    int64_t *counts = NULL;
    if (n < 1 || n > INT32_MAX)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld ids are given; at least one is needed",
                  (long long)n);
    GQAC_TRY(whole_check(program, diag));
    GQAC_TRY(make_counts(n, &counts, diag));
    const int n_inputs = gqac_program_inputs(program, &inputs);
    for (int i = 0; i < n_inputs; i++) {
        void *const data[KINDS] = {(void *)(uintptr_t)ids, counts, counts + n};
        given[i] = inputs[i].name;
        in[i] = (gqac_tensor){.dtype = GQAC_I64,
                              .rank = 2,
                              .dims = {1, n},
                              .data = data[kind_at(inputs, n_inputs, i)]};
    }
    gqac_status status = gqac_run(context, n_inputs, given, in, 1, wanted, logits, diag);
    gqac_free(counts);
    return status == GQAC_OK ? check_logits(logits, diag) : status;
}

gqac_status whole_step(gqac_session *session, gqac_context *context, const int64_t *ids, size_t n,
                       gqac_diag *diag) {
    gqac_tensor all;
    GQAC_TRY(gqac_forward_stateless(context, session->program, ids, (int64_t)n, &all, diag));
    const int64_t columns = all.dims[2], first = (all.dims[1] - 1) * columns;
    if (columns != gqac_program_vocabulary(session->program))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL,
                  "the logits have %lld columns, but the graph declares %lld", (long long)columns,
                  (long long)gqac_program_vocabulary(session->program));
    for (int64_t i = 0; i < columns; i++)
        session->logits[i] = (float)gqac_tensor_get(&all, first + i);
    return GQAC_OK;
}
