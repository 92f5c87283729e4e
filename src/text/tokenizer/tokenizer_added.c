/* Added tokens: texts with an id of their own, at which a text is cut before the model encodes it.
 * Those that are not `normalized` are found in the text as it is, the others (their own text is
 * normalised too) in the normalised text. lstrip and rstrip remove white space beside a token; a
 * single_word token beside word characters does not count. */
#include "base/alloc.h"
#include "text/tokenizer/tokenizer_impl.h"

/* ---- reading ------------------------------------------------------------------ */

static gqac_status read_flags(const json_t *entry, added_token *token, gqac_diag *diag) {
    token->normalized = !token->special;
    GQAC_TRY(json_may_bool(entry, "lstrip", &token->lstrip, diag));
    GQAC_TRY(json_may_bool(entry, "rstrip", &token->rstrip, diag));
    GQAC_TRY(json_may_bool(entry, "single_word", &token->single_word, diag));
    return json_may_bool(entry, "normalized", &token->normalized, diag);
}

static gqac_status read_token(const json_t *entry, tokenizer *t, added_token *token,
                              gqac_diag *diag) {
    *token = (added_token){0};
    if (!json_is_object(entry))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the entry is not an object");
    GQAC_TRY(json_need_text(entry, "content", &token->text, diag));
    if (token->text.length == 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'content' is empty");
    GQAC_TRY(json_to_index(json_object_get(entry, "id"), "id", TOKEN_MAX_ID, &token->id, diag));
    GQAC_TRY(json_may_bool(entry, "special", &token->special, diag));
    GQAC_TRY(read_flags(entry, token, diag));
    int64_t known = words_find(&t->words, token->text.bytes, token->text.length);
    if (known >= 0 && known != token->id) {
        gqac_diag_set(diag, GQAC_INVALID_MODEL,
                      "'%s' has id %lld here and id %lld in the vocabulary", token->text.bytes,
                      (long long)token->id, (long long)known);
        return GQAC_INVALID_MODEL;
    }
    GQAC_TRY(words_add(&t->words, token->text, token->id, false, diag));
    t->words.tokens[token->id].flags |= TOKEN_ADDED | (token->special ? TOKEN_SPECIAL : 0u);
    return span_keep(t->arena, &token->text, diag);
}

/* The text to find: that of a normalised token is normalised. */
static gqac_status sought(tokenizer *t, normal_scratch *s, growth *growth, const added_token *token,
                          span *out, gqac_diag *diag) {
    *out = token->text;
    if (!token->normalized || t->normalizer.n == 0)
        return GQAC_OK;
    bool first = true;
    GQAC_TRY(normalizer_run(&t->normalizer, s, *out, growth, &first, diag));
    *out = (span){s->text.text, s->text.length};
    if (out->length == 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the normalizer leaves nothing of '%s'",
                  token->text.bytes);
    GQAC_TRY(span_keep(t->arena, out, diag));
    /* the decoder undoes what the normalizer did */
    return words_show(&t->words, token->id, *out, diag);
}

/* `texts` can hold one for each token of the set. */
static gqac_status fill_set(tokenizer *t, const added_token *all, size_t n, bool normalized,
                            normal_scratch *scratch, span *texts, added_set *set, gqac_diag *diag) {
    growth growth;
    growth_begin(&growth);
    for (size_t i = 0; i < n; i++)
        growth_admit(&growth, all[i].text.length);
    for (int special = 1; special >= 0; special--) /* of equal texts a special one wins */
        for (size_t i = 0; i < n; i++) {
            if (all[i].normalized != normalized || all[i].special != (special == 1))
                continue;
            GQAC_TRY(sought(t, scratch, &growth, &all[i], &texts[set->n], diag));
            set->tokens[set->n] = all[i];
            set->tokens[set->n].text = texts[set->n];
            set->n++;
        }
    return matcher_create(texts, set->n, &set->matcher, diag);
}

static gqac_status make_set(tokenizer *t, const added_token *all, size_t n, bool normalized,
                            added_set *set, gqac_diag *diag) {
    const size_t count = n ? n : 1;
    normal_scratch scratch = {0};
    set->tokens = GQAC_ARENA_ARRAY(t->arena, added_token, count);
    span *texts = gqac_calloc(count, sizeof *texts);
    const gqac_status status = set->tokens && texts
                                   ? fill_set(t, all, n, normalized, &scratch, texts, set, diag)
                                   : gqac_diag_oom(diag, "added tokens");
    normal_scratch_free(&scratch);
    gqac_free(texts);
    return status;
}

/* Two entries of one text must agree on the id. */
static gqac_status check_texts(const added_token *all, size_t n, words *seen, gqac_diag *diag) {
    for (size_t i = 0; i < n; i++) {
        int64_t other = words_find(seen, all[i].text.bytes, all[i].text.length);
        if (other >= 0)
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'%s' is listed twice", all[i].text.bytes);
        GQAC_TRY(words_add(seen, all[i].text, all[i].id, true, diag));
    }
    return GQAC_OK;
}

static gqac_status read_all(const json_t *list, tokenizer *t, added_token *all, gqac_diag *diag) {
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        gqac_status status = read_token(json_array_get(list, i), t, &all[i], diag);
        if (status != GQAC_OK) {
            gqac_diag_where(diag, "entry %zu", i);
            return status;
        }
    }
    words seen = {0};
    const gqac_status status = check_texts(all, n, &seen, diag);
    words_free(&seen);
    GQAC_TRY(status);
    GQAC_TRY(make_set(t, all, n, false, &t->raw, diag));
    return make_set(t, all, n, true, &t->normalized, diag);
}

gqac_status added_read(const json_t *list, tokenizer *t, gqac_diag *diag) {
    gqac_status status;
    if (list && !json_is_null(list) && !json_is_array(list)) {
        status = gqac_diag_set(diag, GQAC_INVALID_MODEL, "'added_tokens' is not an array");
    } else {
        size_t n = json_array_size(list);
        added_token *all = gqac_calloc(n ? n : 1, sizeof *all);
        status = all ? read_all(list, t, all, diag) : gqac_diag_oom(diag, "added tokens");
        gqac_free(all);
    }
    if (status != GQAC_OK)
        gqac_diag_where(diag, "added_tokens");
    return status;
}

/* ---- cutting ------------------------------------------------------------------------ */

static bool word_around(span text, size_t begin, size_t end) {
    int32_t c;
    if (begin > 0) {
        size_t at = unicode_before(text.bytes, 0, begin);
        unicode_read(text.bytes + at, begin - at, &c);
        if (in_word(c))
            return true;
    }
    if (end < text.length) {
        unicode_read(text.bytes + end, text.length - end, &c);
        return in_word(c);
    }
    return false;
}

static size_t strip_left(span text, size_t begin, size_t least) {
    while (begin > least) {
        int32_t c;
        size_t at = unicode_before(text.bytes, 0, begin);
        unicode_read(text.bytes + at, begin - at, &c);
        if (!unicode_is_space(c))
            break;
        begin = at;
    }
    return begin;
}

static size_t strip_right(span text, size_t end) {
    while (end < text.length) {
        int32_t c;
        size_t bytes = unicode_read(text.bytes + end, text.length - end, &c);
        if (!unicode_is_space(c))
            break;
        end += bytes;
    }
    return end;
}

/* As in Hugging Face's tokenizers, tokens are found even in white space that rstrip removed, and
 * `done` may then decrease. Matches never overlap. */
gqac_status added_cut(const added_set *set, span text, bool plain, hit_list *hits,
                      added_taker *take, void *arg, gqac_diag *diag) {
    size_t done = 0, free_from = 0, stripped = 0;
    GQAC_TRY(matcher_run(&set->matcher, text.bytes, text.length, hits, diag));
    for (size_t i = hits->n; i-- > 0;) {
        const hit *h = &hits->items[i];
        const added_token *token = &set->tokens[h->word];
        size_t begin = h->begin, end = begin + token->text.length;
        if (begin < free_from)
            continue;
        free_from = end;
        if (plain && token->special)
            continue;
        if (token->single_word && word_around(text, begin, end))
            continue;
        if (token->lstrip)
            begin = begin > done ? strip_left(text, begin, done) : done;
        if (token->rstrip) {
            /* white space that was measured for an earlier token is not measured again */
            end = end < stripped ? stripped : strip_right(text, end);
            stripped = end;
        }
        if (done < begin)
            GQAC_TRY(take(arg, -1, done, begin, diag));
        if (begin < end) /* a token within removed white space has no bytes left */
            GQAC_TRY(take(arg, token->id, begin, end, diag));
        done = end;
    }
    return done < text.length ? take(arg, -1, done, text.length, diag) : GQAC_OK;
}
