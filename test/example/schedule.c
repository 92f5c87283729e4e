/* Requests that share steps: each prompt of the command line is answered, and the ids of all
 * answers arrive while the others are computed. The last prompt has the highest priority. */
#include <gqac/gqac.h>
#include <gqac/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_id(void *arg, int64_t request, int64_t id) {
    (void)arg;
    printf("request %lld: id %lld\n", (long long)request, (long long)id);
    return true; /* false would end the request */
}

static void print_end(void *arg, const gqac_request_end *end) {
    const gqac_text *text = arg;
    char *said = NULL;
    size_t length = 0;
    if (end->diag)
        printf("request %lld: %s\n", (long long)end->request, end->diag->what);
    else if (gqac_text_detokenize(text, end->ids, end->n_ids, true, &said, &length, NULL) ==
             GQAC_OK)
        printf("request %lld: '%s' (%s)\n", (long long)end->request, said,
               gqac_finish_name(end->finish));
    gqac_release(said);
}

static int fail(const gqac_diag *diag) {
    fprintf(stderr, "schedule: %s\n", diag->what);
    return 1;
}

int main(int argc, char **argv) {
    gqac_program *program = NULL;
    gqac_text *text = NULL;
    gqac_context *context = NULL;
    gqac_scheduler *scheduler = NULL;
    gqac_diag diag = {0};
    int64_t number = 0, left = 1;
    if (argc < 3)
        return fprintf(stderr, "usage: schedule MODEL-FOLDER PROMPT...\n"), 2;
    if (gqac_model_open(argv[1], NULL, GQAC_TEXT_ALL, &program, &text, &diag) != GQAC_OK ||
        gqac_context_create(program, 0, &context, &diag) != GQAC_OK ||
        gqac_scheduler_create(context, NULL, &scheduler, &diag) != GQAC_OK)
        return fail(&diag);
    for (int i = 2; i < argc; i++) {
        int64_t *ids = NULL;
        size_t n = 0;
        gqac_request request;
        if (gqac_text_tokenize(text, argv[i], strlen(argv[i]), true, &ids, &n, &diag) != GQAC_OK)
            return fail(&diag);
        gqac_request_init(&request, ids, n);
        request.max_new = 12;
        request.priority = i == argc - 1;
        request.on_token = print_id;
        request.on_end = print_end;
        request.arg = text;
        if (gqac_scheduler_submit(scheduler, &request, &number, &diag) != GQAC_OK)
            return fail(&diag);
        gqac_release(ids);
    }
    while (left)
        if (gqac_scheduler_step(scheduler, &left, &diag) != GQAC_OK)
            return fail(&diag);
    gqac_scheduler_free(scheduler);
    gqac_context_free(context);
    gqac_text_free(text);
    gqac_program_free(program);
    return 0;
}
