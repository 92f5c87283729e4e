/* The normalizer "Precompiled": SentencePiece's table of replacements, applied as in Hugging Face's
 * tokenizers. A text is cut into grapheme clusters. A cluster of fewer than SHORT_CLUSTER bytes
 * that is in the table is replaced as a whole, any other one character by character. A text is in
 * the table if an entry is a prefix of it; the shortest such prefix counts, whatever follows it.
 *
 * Format: the bytes of the double array (u32, little endian), its units (u32), the texts. */
#include <string.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_impl.h"

enum { SHORT_CLUSTER = 6 };

/* ---- reading ------------------------------------------------------------------- */

static int base64_value(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Decodes into out, 3 bytes for each 4 characters; false: no base64. */
static bool base64_decode(span text, unsigned char *out, size_t *n) {
    size_t length = text.length, count = 0;
    if (length % 4 != 0)
        return false;
    for (int i = 0; i < 2 && length && text.bytes[length - 1] == '='; i++)
        length--;
    for (size_t i = 0; i < length; i += 4) {
        const size_t chars = length - i < 4 ? length - i : 4;
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            const int value = k < chars ? base64_value(text.bytes[i + k]) : 0;
            if (value < 0)
                return false;
            bits = bits << 6 | (uint32_t)value;
        }
        for (size_t k = 0; k + 1 < chars; k++)
            out[count++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    *n = count;
    return true;
}

static uint32_t read_u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

gqac_status charsmap_read(const json_t *part, gqac_arena *arena, charsmap *out, gqac_diag *diag) {
    span text;
    size_t n = 0;
    GQAC_TRY(json_need_text(part, "precompiled_charsmap", &text, diag));
    unsigned char *bytes = gqac_arena_calloc(arena, text.length / 4 * 3 + 4, 1);
    if (!bytes)
        return gqac_diag_oom(diag, "a normalizer");
    if (!base64_decode(text, bytes, &n))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'precompiled_charsmap' is not base64");
    const size_t array = n >= 4 ? read_u32(bytes) : 0;
    if (array < 4 || array % 4 != 0 || array > n - 4)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL,
                  "'precompiled_charsmap' has %zu bytes, but an array of %zu according to "
                  "its header",
                  n, array);
    out->texts = (span){(const char *)bytes + 4 + array, n - 4 - array};
    for (size_t i = 0, c; i < out->texts.length; i += c)
        if (!(c = gqac_utf8_char(out->texts.bytes + i, out->texts.length - i)))
            GQAC_FAIL(diag, GQAC_INVALID_MODEL,
                      "the strings of 'precompiled_charsmap' are not UTF-8");
    uint32_t *units = GQAC_ARENA_ARRAY(arena, uint32_t, array / 4);
    if (!units)
        return gqac_diag_oom(diag, "a normalizer");
    for (size_t i = 0; i < array / 4; i++)
        units[i] = read_u32(bytes + 4 + 4 * i);
    out->units = units;
    out->n_units = array / 4;
    return GQAC_OK;
}

/* ---- looking up ---------------------------------------------------------------- */

static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The value of the shortest entry that begins the text. */
static bool find(const charsmap *map, span text, size_t *value) {
    size_t at = offset_of(map->units[0]);
    for (size_t i = 0; i < text.length && text.bytes[i]; i++) {
        const unsigned char byte = (unsigned char)text.bytes[i];
        at ^= byte;
        if (at >= map->n_units)
            return false;
        const uint32_t unit = map->units[at];
        if ((unit & (1u << 31 | 0xffu)) != byte)
            return false;
        at ^= offset_of(unit);
        if (unit >> 8 & 1) {
            *value = at < map->n_units ? map->units[at] & ~(1u << 31) : SIZE_MAX;
            return true;
        }
    }
    return false;
}

/* Appends the replacement of the text; false: it is not in the table. */
static bool change(const charsmap *map, span text, gqac_str *out) {
    size_t value;
    if (!find(map, text, &value) || value > map->texts.length)
        return false;
    const char *to = map->texts.bytes + value;
    const size_t left = map->texts.length - value;
    if (left && ((unsigned char)*to & 0xc0) == 0x80) /* within a character */
        return false;
    gqac_str_append_n(out, to, strnlen(to, left));
    return true;
}

gqac_status charsmap_run(const charsmap *map, span text, size_t most, gqac_str *out,
                         gqac_diag *diag) {
    for (size_t i = 0; i < text.length;) {
        const size_t end = i + unicode_cluster(text.bytes + i, text.length - i);
        if (end - i < SHORT_CLUSTER && change(map, (span){text.bytes + i, end - i}, out))
            i = end;
        while (i < end) {
            int32_t c;
            const span one = {text.bytes + i, unicode_read(text.bytes + i, end - i, &c)};
            if (!change(map, one, out))
                gqac_str_append_n(out, one.bytes, one.length);
            i += one.length;
            GQAC_TRY(text_check(out, most, diag));
        }
        GQAC_TRY(text_check(out, most, diag));
    }
    return GQAC_OK;
}
