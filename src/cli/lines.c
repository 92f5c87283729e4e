/* See lines.h. */
#include "cli/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/interrupt.h"

#ifdef GQAC_EDIT
#include <histedit.h>
#include <locale.h>
#include <wchar.h>
#endif

static const char prompt[] = "> ";

struct lines {
    cli *c;
    bool terminal;
    char *data; /* what was read and not yet returned */
    size_t length, capacity, at;
    bool ended;
#ifdef GQAC_EDIT
    EditLine *editor; /* NULL: lines are read without an editor */
    History *history;
#endif
};

/* ---- as they come -------------------------------------------------------- */

static gqac_status read_more(lines *l) {
    if (l->at) {
        memmove(l->data, l->data + l->at, l->length - l->at);
        l->length -= l->at;
        l->at = 0;
    }
    if (l->length == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 4096;
        char *data = realloc(l->data, capacity);
        if (!data)
            return cli_fail(l->c, GQAC_NO_MEMORY, "out of memory");
        l->data = data;
        l->capacity = capacity;
    }
    if (!interrupt_wait(STDIN_FILENO)) {
        l->ended = true;
        l->length = 0;
        return GQAC_OK;
    }
    const ssize_t got = read(STDIN_FILENO, l->data + l->length, l->capacity - l->length);
    if (got < 0 && errno != EINTR)
        return cli_fail(l->c, GQAC_IO, "cannot read standard input: %s", strerror(errno));
    l->ended = got == 0;
    l->length += got > 0 ? (size_t)got : 0;
    return GQAC_OK;
}

/* Returns the length without the line end, which is \n or \r\n. */
static size_t without_end(const char *line, size_t length) {
    length -= length && line[length - 1] == '\n';
    return length - (length && line[length - 1] == '\r');
}

static gqac_status next_read(lines *l, const char **line, size_t *length) {
    size_t seen = 0; /* bytes that were searched for the end of the line */
    if (l->terminal)
        fputs(prompt, stderr);
    for (;;) {
        const size_t left = l->length - l->at;
        const char *start = l->data ? l->data + l->at : "";
        const char *end = left > seen ? memchr(start + seen, '\n', left - seen) : NULL;
        if (end || (l->ended && left)) {
            const size_t taken = end ? (size_t)(end - start) + 1 : left;
            *line = start;
            *length = without_end(start, taken);
            l->at += taken;
            return GQAC_OK;
        }
        if (l->ended)
            return GQAC_OK;
        seen = left;
        GQAC_TRY(read_more(l));
    }
}

/* ---- edited -------------------------------------------------------------- */

#ifdef GQAC_EDIT

static char *get_prompt(EditLine *editor) {
    (void)editor;
    static char text[sizeof prompt] = "> ";
    return text;
}

/* Reads a character; returns 0 at the end and after Ctrl-C. (The editor's own read would miss
 * Ctrl-C.) */
static int get_character(EditLine *editor, wchar_t *character) {
    mbstate_t state;
    (void)editor;
    memset(&state, 0, sizeof state);
    for (;;) {
        char byte = 0;
        if (!interrupt_wait(STDIN_FILENO))
            return 0;
        const ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got <= 0)
            return got == 0 ? 0 : -1;
        const size_t used = mbrtowc(character, &byte, 1, &state);
        if (used == (size_t)-1) /* not UTF-8: skipped */
            memset(&state, 0, sizeof state);
        else if (used != (size_t)-2)
            return 1;
    }
}

static gqac_status open_editor(lines *l) {
    HistEvent event;
    if (!l->terminal || !isatty(STDERR_FILENO))
        return GQAC_OK;
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    l->editor = el_init("gqac", stdin, stderr, stderr);
    l->history = history_init();
    if (!l->editor || !l->history)
        return cli_fail(l->c, GQAC_NO_MEMORY, "out of memory");
    history(l->history, &event, H_SETSIZE, 1000);
    history(l->history, &event, H_SETUNIQUE, 1);
    el_set(l->editor, EL_PROMPT, get_prompt);
    el_set(l->editor, EL_EDITOR, "emacs");
    el_set(l->editor, EL_SIGNAL, 0);
    el_set(l->editor, EL_HIST, history, l->history);
    el_set(l->editor, EL_GETCFN, get_character);
    el_source(l->editor, NULL);
    return GQAC_OK;
}

static void next_edited(lines *l, const char **line, size_t *length) {
    HistEvent event;
    int count = 0;
    el_resize(l->editor);
    *line = el_gets(l->editor, &count);
    if (count <= 0 || !*line || interrupt_seen()) {
        *line = NULL;
        return;
    }
    *length = without_end(*line, (size_t)count);
    if (*length)
        history(l->history, &event, H_ENTER, *line);
}

#endif

/* ---- both ---------------------------------------------------------------- */

gqac_status lines_open(cli *c, lines **l) {
    *l = calloc(1, sizeof **l);
    if (!*l)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    (*l)->c = c;
    (*l)->terminal = isatty(STDIN_FILENO);
#ifdef GQAC_EDIT
    return open_editor(*l);
#else
    return GQAC_OK;
#endif
}

void lines_free(lines *l) {
    if (!l)
        return;
#ifdef GQAC_EDIT
    if (l->editor)
        el_end(l->editor);
    if (l->history)
        history_end(l->history);
#endif
    free(l->data);
    free(l);
}

gqac_status lines_next(lines *l, const char **line, size_t *length) {
    gqac_status status = GQAC_OK;
    *line = NULL;
    *length = 0;
#ifdef GQAC_EDIT
    if (l->editor)
        next_edited(l, line, length);
    else
        status = next_read(l, line, length);
#else
    status = next_read(l, line, length);
#endif
    if (l->terminal && status == GQAC_OK && !*line)
        fputc('\n', stderr);
    return status;
}
