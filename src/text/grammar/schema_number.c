/* Numbers. A range of whole numbers is built digit by digit: as long as the digits are those of the
 * minimum, or of the maximum, the next one is limited. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/grammar/schema.h"

enum { MOST_DIGITS = 15 }; /* a double has them all */
static const int64_t largest = 999999999999999;

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

/* Numbers of n digits from low to high; returns the entry. Built from the last digit to the first.
 * `at_both`, `at_low`, `at_high` and `free` are the entries after digits that are the first ones of
 * both limits, of low only, of high only, or of neither. */
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

/* Whole numbers from low to high, 0 <= low <= high. */
static fragment whole_range(schema *s, int64_t low, int64_t high) {
    builder *b = s->b;
    fragment all = build_empty(b);
    const fragment end = build_empty(b);
    digits d = {.b = b, .end = end.begin};
    const uint32_t entry = positive(&d, low, high);
    if (b->status == GQAC_OK)
        b->code[all.end].next = entry;
    all.after = (uint32_t)b->n;
    all.end = end.end;
    return all;
}

/* ---- limits -------------------------------------------------------------- */

typedef struct limits {
    int64_t low, high;
    bool without_low, without_high; /* these are not in the range themselves */
} limits;

static fragment one_of(builder *b, bool *any, fragment all, fragment one) {
    const fragment both = *any ? build_either(b, all, one) : one;
    *any = true;
    return both;
}

/* How many digits may follow the point: with at most 15 in all, no number is rounded to the next
 * whole one. */
static uint32_t decimals(int64_t whole) {
    uint32_t n = MOST_DIGITS;
    for (; whole > 0; whole /= 10)
        n--;
    return n;
}

/* Adds least to most digits from '0' to `high`. */
static fragment add_digits(builder *b, fragment f, char high, uint32_t least, uint32_t most) {
    const fragment one = build_bytes(b, '0', (uint8_t)high);
    return build_join(b, f, build_repeat(b, one, least, most));
}

/* A point and 1 to n digits. */
static fragment fraction(builder *b, uint32_t n) {
    return add_digits(b, build_bytes(b, '.', '.'), '9', 1, n);
}

/* The same, but not zero. */
static fragment nonzero(builder *b, uint32_t n) {
    const uint32_t zeros = (n - 1) / 2;
    const fragment f = add_digits(b, build_bytes(b, '.', '.'), '0', 0, zeros);
    const fragment first = build_join(b, f, build_bytes(b, '1', '9'));
    return add_digits(b, first, '9', 0, n - 1 - zeros);
}

/* Numbers without a sign, 0 <= low. A limit may be followed by a fraction only if the number stays
 * within the limits. */
static fragment magnitudes(schema *s, limits x, bool whole) {
    builder *b = s->b;
    const int64_t from = x.low + x.without_low, to = x.high - x.without_high;
    fragment all = {0};
    bool any = false;
    if (whole)
        return from <= to ? whole_range(s, from, to) : build_never(b);
    if (x.without_low && x.low < x.high && decimals(x.low)) {
        const fragment low = whole_range(s, x.low, x.low);
        all = one_of(b, &any, all, build_join(b, low, nonzero(b, decimals(x.low))));
    }
    if (from < x.high) {
        const uint32_t n = x.without_high ? decimals(x.high - 1) : MOST_DIGITS;
        fragment inner = whole_range(s, from, x.high - 1);
        if (n)
            inner = build_join(b, inner, build_repeat(b, fraction(b, n), 0, 1));
        all = one_of(b, &any, all, inner);
    }
    if (!x.without_high && from <= x.high) {
        const fragment high = whole_range(s, x.high, x.high);
        const fragment zeros = schema_json(s, "json-zeros");
        all = one_of(b, &any, all, build_join(b, high, build_repeat(b, zeros, 0, 1)));
    }
    return any ? all : build_never(b);
}

static fragment range(schema *s, limits x, bool whole) {
    builder *b = s->b;
    fragment all = {0};
    bool any = false;
    if (x.high >= 0) {
        limits upper = x;
        if (x.low < 0) {
            upper.low = 0;
            upper.without_low = false;
        }
        all = one_of(b, &any, all, magnitudes(s, upper, whole));
    }
    if (x.low < 0) {
        const limits lower = {x.high < 0 ? -x.high : 0, -x.low,
                              x.high < 0 ? x.without_high : whole || x.high == 0, x.without_low};
        const fragment sign = build_bytes(b, '-', '-');
        all = one_of(b, &any, all, build_join(b, sign, magnitudes(s, lower, whole)));
    }
    return any ? all : build_never(b);
}

/* Sharpens a limit; false: the keyword is absent. */
static bool read_limit(schema *s, const json_t *node, const char *name, bool whole, limits *x) {
    const json_t *value = json_object_get(node, name);
    const bool upper = strstr(name, "axi") != NULL, without = !strncmp(name, "exclusive", 9);
    double real = json_number_value(value);
    if (!value)
        return false;
    if (!json_is_number(value) || !isfinite(real)) {
        schema_refuse(s, GQAC_INVALID_INPUT, "a limit is a number", "'%s' is not a number", name);
        return true;
    }
    if (!whole && (real != floor(real) || fabs(real) > (double)largest)) {
        schema_refuse(s, GQAC_UNSUPPORTED,
                      "limits of type 'number' are whole numbers of at most 15 digits",
                      "'%s' of %g is not supported", name, real);
        return true;
    }
    const bool exact = real == floor(real);
    real = upper ? floor(real) : ceil(real);
    const bool beyond = fabs(real) > (double)largest; /* all numbers are on one side of it */
    const int64_t limit = beyond ? (real > 0 ? largest + 1 : -largest - 1) : (int64_t)real;
    const bool sharper = upper ? limit < x->high : limit > x->low;
    bool *excluded = upper ? &x->without_high : &x->without_low;
    if (sharper) {
        *(upper ? &x->high : &x->low) = limit;
        *excluded = without && exact;
    } else if (limit == (upper ? x->high : x->low)) {
        *excluded |= without && exact;
    }
    return true;
}

fragment schema_number(schema *s, const json_t *node, bool whole) {
    static const char *const names[] = {"minimum", "exclusiveMinimum", "maximum",
                                        "exclusiveMaximum"};
    limits x = {.low = -largest, .high = largest};
    int given = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        given += read_limit(s, node, names[i], whole, &x);
    if (!given)
        return schema_json(s, whole ? "json-integer" : "json-number");
    if (!whole && given == 1 && x.low == 0 && !x.without_low)
        return schema_json(s, "json-unsigned");
    return x.low <= x.high && s->b->status == GQAC_OK ? range(s, x, whole) : build_never(s->b);
}
