/* A user's first program: open a model, feed a prompt and one more token, print the best next id.
 * Built by a test against the installed library, through pkg-config and through find_package. */
#include <gqac/gqac.h>
#include <stdio.h>

static int fail(const gqac_diag *diag) {
    fprintf(stderr, "%s%s%s%s%s\n", diag->what, *diag->where ? "\n  where: " : "", diag->where,
            *diag->hint ? "\n  try: " : "", diag->hint);
    return gqac_status_exit_code(diag->status);
}

static int64_t best(const float *logits, int64_t vocabulary) {
    int64_t id = 0;
    for (int64_t v = 1; v < vocabulary; v++)
        if (logits[v] > logits[id])
            id = v;
    return id;
}

int main(int argc, char **argv) {
    const int64_t prompt[] = {72, 101, 108, 108, 111};
    int64_t count = 5, rows = 0, vocabulary = 0;
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    gqac_diag diag;
    if (argc != 2) {
        fprintf(stderr, "usage: example MODEL\n");
        return 2;
    }
    gqac_options_init(&options);
    if (gqac_program_open(argv[1], &options, &program, &diag) != GQAC_OK ||
        gqac_context_create(program, 1, &context, &diag) != GQAC_OK ||
        gqac_sequence_create(program, NULL, &sequence, &diag) != GQAC_OK)
        return fail(&diag);
    if (gqac_sequence_append(context, sequence, prompt, count, GQAC_LOGITS_ALL, &diag) != GQAC_OK)
        return fail(&diag);
    const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
    const int64_t next = best(logits + (rows - 1) * vocabulary, vocabulary);
    count = 1;
    if (gqac_sequence_append(context, sequence, &next, count, GQAC_LOGITS_ALL, &diag) != GQAC_OK)
        return fail(&diag);
    logits = gqac_context_logits(context, 0, &rows, &vocabulary);
    printf("gqac %s: prompt of 5, then %lld, then %lld; %lld tokens cached\n", gqac_version(),
           (long long)next, (long long)best(logits, vocabulary),
           (long long)gqac_sequence_length(sequence));
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_program_free(program);
    return 0;
}
