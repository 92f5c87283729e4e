/* Calls of tools in an answer: its text, divided into content and calls. */
#include <sys/random.h>

#include "serve/serve_impl.h"

/* An id that fits templates that demand nine letters or digits. */
static void name_call(char id[10]) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    static uint64_t count;
    unsigned char random[9];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) {
        count++;
        for (size_t i = 0; i < sizeof random; i++)
            random[i] = (unsigned char)(count >> (4 * i) & 15);
    }
    for (size_t i = 0; i < sizeof random; i++)
        id[i] = digits[random[i] % (sizeof digits - 1)];
    id[9] = '\0';
}

bool shape_divide(leg *l, const fresh *f, shape_part *add, void *arg) {
    gqac_call_part part = {.size = sizeof part};
    gqac_diag diag = {0};
    if (!l->calls) {
        part = (gqac_call_part){.size = sizeof part, .text = f->text, .length = f->length};
        return !f->length || add(arg, &part);
    }
    bool fine = gqac_calls_push(l->calls, f->text ? f->text : "", f->length, &diag) == GQAC_OK &&
                (!f->last || gqac_calls_finish(l->calls, &diag) == GQAC_OK);
    while (fine && gqac_calls_next(l->calls, &part)) {
        char id[10];
        if (!part.text && !part.id) {
            name_call(id);
            part.id = id;
        }
        fine = add(arg, &part);
        l->n_calls += !part.text;
    }
    return fine;
}
