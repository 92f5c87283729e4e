/* Numbers. A range of whole numbers is built digit by digit: as long as the digits are those of the
 * minimum, or of the maximum, the next one is limited. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/grammar/schema.h"

enum { MOST_DIGITS = 15 }; /* a double has them all */
static const int64_t largest = 999999999999999;

/* A limit of whole numbers; false: it is absent. */
static bool read_limit(schema *s, const json_t *node, const char *name, bool upper, int64_t *out) {
    const json_t *value = json_object_get(node, name);
    const double real = json_number_value(value);
    if (!value)
        return false;
    if (!json_is_number(value) || !isfinite(real)) {
        schema_refuse(s, GQAC_INVALID_INPUT, "a limit is a number", "'%s' is no number", name);
        return false;
    }
    const double whole = upper ? floor(real) : ceil(real);
    *out = whole > (double)largest    ? largest + 1
           : whole < -(double)largest ? -largest - 1
                                      : (int64_t)whole;
    if (!strncmp(name, "exclusive", 9) && whole == real)
        *out += upper ? -1 : 1;
    return true;
}

/* Digits that follow a common beginning, position by position. */
typedef struct digits {
    builder *b;
    char low[MOST_DIGITS + 1], high[MOST_DIGITS + 1];
    uint32_t end;
} digits;

/* The instruction that accepts a digit in a range and continues somewhere. */
static uint32_t digit(const digits *d, int low, int high, uint32_t next) {
    return build_emit(d->b, (instruction){.op = GRAMMAR_BYTE,
                                          .low = (uint8_t)(low + '0'),
                                          .high = (uint8_t)(high + '0'),
                                          .next = next});
}

static uint32_t either(const digits *d, uint32_t a, uint32_t c) {
    if (a == BUILD_NONE || c == BUILD_NONE)
        return a == BUILD_NONE ? c : a;
    return build_emit(d->b, (instruction){.op = GRAMMAR_SPLIT, .next = a, .other = c});
}

/* Numbers of n digits from low to high, from the last digit to the first: entries after a beginning
 * that is equal to both, to low only, to high only, or to neither. */
static uint32_t same_length(const digits *d, size_t n) {
    uint32_t free = d->end, at_low = d->end, at_high = d->end, at_both = d->end;
    for (size_t i = n; i-- > 0;) {
        const int low = d->low[i] - '0', high = d->high[i] - '0';
        uint32_t both = BUILD_NONE;
        if (low == high) {
            both = digit(d, low, low, at_both);
        } else {
            both = either(d, digit(d, low, low, at_low), digit(d, high, high, at_high));
            if (low + 1 < high)
                both = either(d, both, digit(d, low + 1, high - 1, free));
        }
        at_low = either(d, digit(d, low, low, at_low),
                        low < 9 ? digit(d, low + 1, 9, free) : BUILD_NONE);
        at_high = either(d, digit(d, high, high, at_high),
                         high > 0 ? digit(d, 0, high - 1, free) : BUILD_NONE);
        free = digit(d, 0, 9, free);
        at_both = both;
    }
    return at_both;
}

/* Whole numbers from low to high, 0 <= low <= high; the entry. */
static uint32_t positive(digits *d, int64_t low, int64_t high) {
    uint32_t entry = BUILD_NONE;
    int64_t from = low;
    while (from <= high) {
        int64_t to = 9;
        size_t n = 1;
        for (; to < from; n++)
            to = 10 * to + 9;
        to = to < high ? to : high;
        snprintf(d->low, sizeof d->low, "%lld", (long long)from);
        snprintf(d->high, sizeof d->high, "%lld", (long long)to);
        entry = either(d, entry, same_length(d, n));
        from = to + 1;
    }
    return entry;
}

static fragment range(schema *s, int64_t low, int64_t high) {
    builder *b = s->b;
    fragment all = build_empty(b);
    const fragment end = build_empty(b);
    digits d = {.b = b, .end = end.begin};
    uint32_t entry = BUILD_NONE;
    if (high >= 0)
        entry = positive(&d, low > 0 ? low : 0, high);
    if (low < 0) {
        const uint32_t inner = positive(&d, high < 0 ? -high : 1, -low);
        const uint32_t sign = build_emit(
            b, (instruction){.op = GRAMMAR_BYTE, .low = '-', .high = '-', .next = inner});
        entry = either(&d, entry, sign);
    }
    if (b->status == GQAC_OK)
        b->code[all.end].next = entry;
    all.after = (uint32_t)b->n;
    all.end = end.end;
    return all;
}

fragment schema_number(schema *s, const json_t *node, bool whole) {
    static const char *const names[] = {"minimum", "exclusiveMinimum", "maximum",
                                        "exclusiveMaximum"};
    int64_t low = -largest, high = largest, one = 0;
    bool limited = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!read_limit(s, node, names[i], i > 1, &one))
            continue;
        limited = true;
        if (i < 2)
            low = one > low ? one : low;
        else
            high = one < high ? one : high;
    }
    if (!limited)
        return schema_json(s, whole ? "json-integer" : "json-number");
    if (!whole && json_object_size(node) &&
        json_number_value(json_object_get(node, names[0])) == 0 &&
        json_object_get(node, names[0]) && !json_object_get(node, names[1]) &&
        !json_object_get(node, names[2]) && !json_object_get(node, names[3]))
        return schema_json(s, "json-unsigned");
    if (!whole) {
        schema_refuse(s, GQAC_UNSUPPORTED,
                      "limits of type 'integer'; of type 'number', 'minimum' 0 alone",
                      "a limit of type 'number' is not supported");
        return build_never(s->b);
    }
    return low <= high ? range(s, low, high) : build_never(s->b);
}
