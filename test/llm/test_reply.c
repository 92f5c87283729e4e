/* Texts of answers: stop texts with every division into pieces, compared with a plain search; the
 * texts in events; and the same through gqac_generate. The detokenizer is a table
 * (generate_rig.h). */
#include "llm/generate_rig.h"

#include "llm/reply.h"

/* A small generator for test data. */
static uint32_t next_random(void) {
    static uint64_t state = 0x9e3779b97f4a7c15ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* ---- compared with a plain search ---------------------------------------- */

enum { MOST_STOPS = 4, LONGEST = 60, ROUNDS = 20000 };

/* Length of the text before the first stop text: the one that ends first, or, if several end at the
 * same place, the longest. */
static size_t plain_cut(const char *text, size_t length, const char *const *stop, int n,
                        bool *stopped) {
    for (size_t end = 1; end <= length; end++) {
        size_t best = 0;
        for (int i = 0; i < n; i++) {
            const size_t l = strlen(stop[i]);
            if (l <= end && l > best && !memcmp(text + end - l, stop[i], l))
                best = l;
        }
        if (best) {
            *stopped = true;
            return end - best;
        }
    }
    *stopped = false;
    return length;
}

/* Bytes at the end that could be the beginning of a stop text. */
static size_t plain_held(const char *text, size_t length, const char *const *stop, int n) {
    for (size_t held = length; held > 0; held--)
        for (int i = 0; i < n; i++)
            if (held < strlen(stop[i]) && !memcmp(text + length - held, stop[i], held))
                return held;
    return 0;
}

/* Letters of one and of two bytes; returns the length. */
static size_t random_text(char *out, size_t letters) {
    static const char *const alphabet[] = {"a", "b", "\xc3\xa9"};
    size_t at = 0;
    for (size_t i = 0; i < letters; i++) {
        const char *letter = alphabet[next_random() % 3];
        memcpy(out + at, letter, strlen(letter));
        at += strlen(letter);
    }
    out[at] = 0;
    return at;
}

/* Pushes `text` in random pieces and checks after each which text is returned. */
static void expect_reply(const char *text, size_t length, const char *const *stop, int n) {
    static char bytes[LONGEST * 2 + 1][LONGEST * 2 + 1];
    const char *table[LONGEST * 2 + 1];
    pieces p = {.text = table, .broken = -1};
    for (size_t at = 0; at < length; p.n++) {
        size_t size = 1 + next_random() % 5;
        size = size > length - at ? length - at : size;
        memcpy(bytes[p.n], text + at, size);
        bytes[p.n][size] = 0;
        table[p.n] = bytes[p.n];
        at += size;
    }
    const gqac_text source = pieces_text(&p);
    reply r = {0};
    char given[LONGEST * 2 + 1];
    size_t told = 0, seen = 0, more = 0;
    bool stopped = false;
    CU_ASSERT_EQUAL_FATAL(reply_open(&r, &source, n, stop, &diag), GQAC_OK);
    for (int i = 0; i < p.n && !r.stopped; i++) {
        CU_ASSERT_EQUAL_FATAL(reply_push(&r, i, &diag), GQAC_OK);
        seen += strlen(table[i]);
        const size_t whole = seen - (seen < length && ((unsigned char)text[seen] & 0xc0) == 0x80);
        const size_t cut = plain_cut(text, whole, stop, n, &stopped);
        const char *piece = reply_take(&r, false, &more);
        memcpy(given + told, piece, more);
        told += more;
        CU_ASSERT_EQUAL(r.stopped, stopped);
        CU_ASSERT_EQUAL(told, stopped ? cut : cut - plain_held(text, cut, stop, n));
    }
    CU_ASSERT_EQUAL(reply_finish(&r, &diag), GQAC_OK);
    const char *piece = reply_take(&r, true, &more);
    memcpy(given + told, piece, more);
    told += more;
    CU_ASSERT_EQUAL(told, plain_cut(text, length, stop, n, &stopped));
    CU_ASSERT(told == r.text.length && !memcmp(given, text, told));
    CU_ASSERT_EQUAL(r.stopped, stopped);
    reply_close(&r);
}

static void test_against_search(void) {
    int stopped = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char text[LONGEST * 2 + 1], stops[MOST_STOPS][32];
        const char *list[MOST_STOPS];
        const int n = (int)(next_random() % (MOST_STOPS + 1));
        bool found = false;
        const size_t length = random_text(text, next_random() % LONGEST);
        for (int i = 0; i < n; i++) {
            random_text(stops[i], 1 + next_random() % 8);
            list[i] = stops[i];
        }
        plain_cut(text, length, list, n, &found);
        stopped += found;
        expect_reply(text, length, list, n);
    }
    CU_ASSERT(stopped > ROUNDS / 4 && stopped < ROUNDS * 3 / 4);
}

/* ---- cases by hand ------------------------------------------------------- */

/* Pushes all pieces, and checks the text and whether it stopped. */
static void expect_text(const char *const *table, int n, const char *stop, const char *expected,
                        bool stopped) {
    const pieces p = {.text = table, .n = n, .broken = -1};
    const gqac_text source = pieces_text(&p);
    reply r = {0};
    CU_ASSERT_EQUAL_FATAL(reply_open(&r, &source, stop ? 1 : 0, &stop, &diag), GQAC_OK);
    for (int i = 0; i < n; i++)
        CU_ASSERT_EQUAL(reply_push(&r, i, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(reply_finish(&r, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(r.text.text ? r.text.text : "", expected);
    CU_ASSERT_EQUAL(r.stopped, stopped);
    reply_close(&r);
}

static void test_by_hand(void) {
    static const char *const halves[] = {"x\xe2\x82", "\xac", "y"};
    static const char *const left[] = {"on", "\xe2\x82"};
    static const char *const across[] = {"one", " tw", "o three"};
    static const char *const inside[] = {"ab ab", "ac"};
    static const char *const unknown[] = {"a", NULL, "b"};
    expect_text(halves, 3, NULL, "x\xe2\x82\xacy", false);
    expect_text(halves, 3, "\xe2\x82\xac", "x", true);
    expect_text(left, 2, NULL, "on\xef\xbf\xbd\xef\xbf\xbd", false);
    expect_text(left, 2, "\xef\xbf\xbd", "on", true); /* the text that the end of the ids returns */
    expect_text(across, 3, "two", "one ", true);
    expect_text(across, 3, "one two three", "", true);
    expect_text(across, 3, "three!", "one two three", false);
    expect_text(inside, 2, "abac", "ab ", true); /* it begins again within its own beginning */
    expect_text(unknown, 3, "ab", "", true);
    expect_text(unknown, 3, NULL, "ab", false);
}

/* ---- through gqac_generate ----------------------------------------------- */

typedef struct told {
    char text[1024];
    size_t length, last; /* bytes in all, and of the last event */
    int events;
} told;

static bool listen(void *arg, const gqac_generate_event *event) {
    told *t = arg;
    memcpy(t->text + t->length, event->text, event->length);
    t->length += event->length;
    t->text[t->length] = 0;
    t->last = event->length;
    t->events++;
    return true;
}

/* One greedy answer of `model` with ids of three letters, "<id>". */
static gqac_generation *speak(const rig *r, const pieces *p, const char *stop, int64_t eos,
                              int64_t max_new, told *t, gqac_status expected) {
    static const int64_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6};
    const gqac_text text = pieces_text(p);
    gqac_session *session = NULL;
    gqac_generation *g = NULL;
    gqac_generate_request q;
    *t = (told){0};
    CU_ASSERT_EQUAL_FATAL(gqac_session_create(r->program, NULL, &session, &diag), GQAC_OK);
    gqac_generate_request_init(&q, &text, session, prompt, 8);
    q.max_new = max_new;
    q.eos = &eos;
    q.n_eos = eos >= 0;
    q.stop = &stop;
    q.n_stop = stop != NULL;
    q.on_token = listen;
    q.arg = t;
    CU_ASSERT_EQUAL(gqac_generate(r->context, &text, 1, &q, &g, &diag), expected);
    gqac_session_free(session);
    if (g) {
        CU_ASSERT(g->length == strlen(g->text) && !strcmp(t->text, g->text));
        CU_ASSERT_EQUAL((size_t)t->events, g->n_ids);
    }
    return g;
}

static void test_generate(void) {
    static char names[258][8];
    const char *table[258];
    pieces p = {.text = table, .n = 258, .broken = -1};
    told t;
    for (int i = 0; i < 258; i++) {
        snprintf(names[i], sizeof names[i], "<%03d>", i);
        table[i] = names[i];
    }
    rig r = open_model("llama", 1);
    gqac_generation *all = speak(&r, &p, NULL, -1, 8, &t, GQAC_OK);
    CU_ASSERT_FATAL(all->n_ids == 8 && all->length == 40);
    /* a stop text that begins in the fourth id and ends in the fifth */
    char stop[16];
    snprintf(stop, sizeof stop, "%.4s", all->text + 18);
    gqac_generation *g = speak(&r, &p, stop, -1, 8, &t, GQAC_OK);
    CU_ASSERT(g->finish == GQAC_FINISH_STOP && g->n_ids == 5 && g->length == 18);
    CU_ASSERT(!memcmp(g->text, all->text, 18) && !memcmp(g->ids, all->ids, 5 * sizeof *g->ids));
    gqac_generation_free(g);
    /* text that might become a stop text is held back, and returned with the last id */
    snprintf(stop, sizeof stop, "%.7sx", all->text + 13);
    g = speak(&r, &p, stop, -1, 4, &t, GQAC_OK);
    CU_ASSERT(g->finish == GQAC_FINISH_LENGTH && g->length == 20 && t.last == 7);
    gqac_generation_free(g);
    /* the end-of-text id has no text, but returns the text that was held back */
    CU_ASSERT_NOT_EQUAL_FATAL(all->ids[3], all->ids[2]);
    snprintf(stop, sizeof stop, "%.5sx", all->text + 10);
    g = speak(&r, &p, stop, all->ids[3], 8, &t, GQAC_OK);
    CU_ASSERT(g->finish == GQAC_FINISH_EOS && g->n_ids <= 4);
    CU_ASSERT(g->length == 5 * (g->n_ids - 1) && !memcmp(g->text, all->text, g->length));
    CU_ASSERT(g->n_ids < 4 || t.last == 5);
    gqac_generation_free(g);
    /* a failure of the detokenizer is a failure of the call; an unknown id is not */
    p.broken = all->ids[2];
    g = speak(&r, &p, NULL, -1, 8, &t, GQAC_INTERNAL);
    CU_ASSERT_PTR_NULL(g);
    p.broken = -1;
    table[all->ids[0]] = NULL;
    g = speak(&r, &p, NULL, -1, 1, &t, GQAC_OK);
    CU_ASSERT(g->n_ids == 1 && !g->length);
    gqac_generation_free(g);
    gqac_generation_free(all);
    close_rig(&r);
}

static const unit_case cases[] = {
    {"random texts, stops and cuts: as a plain search", test_against_search},
    {"cases by hand", test_by_hand},
    {"events and texts of generate", test_generate},
};

int main(int argc, char **argv) {
    return unit_run("reply", cases, sizeof cases / sizeof *cases, argc, argv);
}
