/* Text in, text out: continues a prompt with a model folder or an artefact, and prints each piece
 * as soon as it is certain. */
#include <gqac/text.h>
#include <stdio.h>
#include <string.h>

static int fail(const gqac_diag *diag) {
    fprintf(stderr, "%s%s%s%s%s\n", diag->what, *diag->where ? "\n  where: " : "", diag->where,
            *diag->hint ? "\n  try: " : "", diag->hint);
    return gqac_status_exit_code(diag->status);
}

static bool print(void *arg, const gqac_generate_event *event) {
    (void)arg;
    fwrite(event->text, 1, event->length, stdout);
    return fflush(stdout) == 0; /* false ends the answer */
}

int main(int argc, char **argv) {
    gqac_diag diag;
    gqac_program *program = NULL;
    gqac_text *text = NULL;
    gqac_context *context = NULL;
    gqac_session *session = NULL;
    gqac_generation *answer = NULL;
    gqac_generate_request request;
    int64_t *ids = NULL;
    size_t n = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: generate MODEL PROMPT\n");
        return 2;
    }
    if (gqac_model_open(argv[1], NULL, GQAC_TEXT_ALL, &program, &text, &diag) != GQAC_OK ||
        gqac_text_tokenize(text, argv[2], strlen(argv[2]), true, &ids, &n, &diag) != GQAC_OK ||
        gqac_context_create(program, gqac_threads_default(), &context, &diag) != GQAC_OK ||
        gqac_session_create(program, NULL, &session, &diag) != GQAC_OK)
        return fail(&diag);
    gqac_generate_request_init(&request, text, session, ids, n);
    request.max_new = 40;
    request.on_token = print;
    if (gqac_generate(context, text, 1, &request, &answer, &diag) != GQAC_OK)
        return fail(&diag);
    printf("\n(%s, %.0f tokens/s)\n", gqac_finish_name(answer->finish),
           answer->metrics.decode_tokens_per_second);
    gqac_generation_free(answer);
    gqac_session_free(session);
    gqac_context_free(context);
    gqac_release(ids);
    gqac_text_free(text);
    gqac_program_free(program);
    return 0;
}
