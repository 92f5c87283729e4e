/* Arithmetic of the terms of a mask (see raise_terms.h). */
#include "passes/raise_terms.h"

#include <math.h>

#include "ops/quantise.h"
#include "ops/shared.h"

bool term_hides(gqac_dtype dtype, double x) {
    return x <= (dtype == GQAC_F16 ? -65504 : -1e9);
}

bool term_hides_scaled(gqac_dtype dtype, double x, double factor) {
    if (dtype == GQAC_F16)
        return term_hides(dtype, x) && (factor == 0 || factor >= 1.0 / 16);
    return term_hides(dtype, factor != 0 ? x * factor : x);
}

static bool is_variable(const term *a) {
    int64_t n;
    return a->kind == TERM_INT && !ir_dim_is_const(a->number, &n);
}

static term bias_of(const ir_dim *number) {
    term bias = term_number(0);
    bias.kind = TERM_BIAS;
    bias.number = number;
    bias.factor = 1;
    return bias;
}

void term_as_bias(term *a) {
    if (is_variable(a))
        *a = bias_of(a->number);
}

/* Slopes alone are constants of that type already, or of one that it can represent. */
static bool store_slopes(const term *a, gqac_dtype dtype) {
    for (int h = 0; h < a->heads; h++)
        if (quant_rounded(dtype, a->slopes[h]) != a->slopes[h])
            return false;
    return a->factor == 1;
}

static bool adds_nothing(gqac_dtype dtype, double x) {
    return x == 0 || term_hides(dtype, x);
}

/* The value was rounded once, by the op that made it or by a Cast. */
static bool store_bias(term *a, gqac_dtype dtype) {
    int64_t n;
    if (a->slopes && ir_dim_is_const(a->number, &n))
        return n == 1 && store_slopes(a, dtype);
    if (!adds_nothing(dtype, a->yes) || !adds_nothing(dtype, a->no))
        return false; /* the sum was rounded, not the bias alone */
    if (a->factor != 1 || (a->rounded != GQAC_NONE && a->rounded != dtype) ||
        (a->number_rounded != GQAC_NONE && a->number_rounded != dtype))
        return false;
    a->rounded = dtype;
    if (!a->slopes)
        a->number_rounded = dtype;
    return true;
}

bool term_store(term *a, gqac_dtype dtype) {
    const int64_t most = dtype == GQAC_F16 ? 1 << 11 : 1 << 8; /* f16 rounds 2049 to 2048 */
    int64_t n;
    if (!OP_IN(OP_BIT(F16) | OP_BIT(BF16), dtype))
        return a->kind != TERM_BIAS ||
               (dtype == GQAC_F32 && (a->number_rounded == GQAC_NONE || a->rounded != GQAC_NONE));
    if (a->kind == TERM_INT && ir_dim_is_const(a->number, &n))
        return n >= -most && n <= most;
    term_as_bias(a);
    return a->kind != TERM_BIAS || store_bias(a, dtype);
}

term term_number(double x) {
    return (term){.kind = TERM_CHOICE, .yes = x, .no = x};
}

term term_of_int(const ir_dim *number) {
    return (term){.kind = TERM_INT, .number = number};
}

term term_of_truth(term_truth truth) {
    return (term){.kind = TERM_TRUTH, .when = truth, .yes = 1, .no = 0};
}

term_truth term_at_least_0(const ir_dim *number) {
    int64_t value;
    if (ir_dim_is_const(number, &value))
        return (term_truth){.negated = value < 0};
    return (term_truth){.n = 1, .all = {{.least = number}}};
}

/* not (p >= 0) is -p - 1 >= 0, which is a condition again. */
static bool negate_atom(ir_dims *dims, term_atom *atom) {
    if (!atom->least) {
        atom->zero = !atom->zero;
        return true;
    }
    const ir_dim *zero = ir_dim_const(dims, 0), *one = ir_dim_const(dims, 1);
    atom->least = ir_dim_sub(dims, ir_dim_sub(dims, zero, atom->least), one);
    return atom->least != NULL;
}

bool term_negate(ir_dims *dims, term_truth *t) {
    t->negated = !t->negated;
    if (t->n != 1 || !t->negated)
        return true;
    t->negated = false;
    return negate_atom(dims, &t->all[0]);
}

static bool same_atom(const term_atom *a, const term_atom *b) {
    return a->least == b->least && a->of == b->of && a->row == b->row && a->column == b->column &&
           a->zero == b->zero;
}

/* True if b holds wherever a does. */
static bool implies(ir_dims *dims, const term_atom *a, const term_atom *b) {
    return same_atom(a, b) ||
           (a->least && b->least && op_dim_nonneg(dims, ir_dim_sub(dims, b->least, a->least)));
}

static bool any_implies(ir_dims *dims, const term_truth *all, const term_atom *b) {
    for (int i = 0; i < all->n; i++)
        if (implies(dims, &all->all[i], b))
            return true;
    return false;
}

/* The conditions of both, without those that another one implies. */
static bool join(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out) {
    term_truth both = {.n = 0};
    for (int i = 0; i < a->n; i++)
        if (!any_implies(dims, b, &a->all[i]))
            both.all[both.n++] = a->all[i];
    for (int i = 0; i < b->n; i++) {
        if (any_implies(dims, &both, &b->all[i]))
            continue;
        if (both.n == TERM_ATOMS)
            return false;
        both.all[both.n++] = b->all[i];
    }
    *out = both;
    return true;
}

/* a and not b: at most one condition of b may not follow from a; it is negated. */
static bool join_negated(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out) {
    term_truth rest = {.n = 0};
    for (int i = 0; i < b->n; i++) {
        term_atom opposite = b->all[i];
        if (!negate_atom(dims, &opposite))
            return false;
        if (any_implies(dims, a, &opposite)) {
            *out = *a;
            return true;
        }
        if (!any_implies(dims, a, &b->all[i]))
            rest.all[rest.n++] = opposite;
    }
    if (rest.n > 1)
        return false;
    if (!rest.n) {
        *out = (term_truth){.negated = true};
        return true;
    }
    return join(dims, a, &rest, out);
}

bool term_and(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out) {
    if (!a->n || !b->n) {
        const term_truth *sure = a->n ? b : a, *other = a->n ? a : b;
        *out = sure->negated ? *sure : *other;
        return true;
    }
    if (a->negated || b->negated)
        return a->negated != b->negated &&
               join_negated(dims, a->negated ? b : a, a->negated ? a : b, out);
    return join(dims, a, b, out);
}

/* not (not a and not b) */
bool term_or(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out) {
    term_truth x = *a, y = *b;
    return term_negate(dims, &x) && term_negate(dims, &y) && term_and(dims, &x, &y, out) &&
           term_negate(dims, out);
}

/* An integer constant or a truth value as a number. */
static bool as_choice(const term *a, term *out) {
    int64_t value;
    *out = *a;
    out->kind = TERM_CHOICE;
    if (a->kind != TERM_INT)
        return a->kind != TERM_SUM && a->kind != TERM_BIAS;
    if (!ir_dim_is_const(a->number, &value))
        return false;
    *out = term_number((double)value);
    return true;
}

static bool same_truth(const term_truth *a, const term_truth *b) {
    bool same = a->negated == b->negated && a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = same_atom(&a->all[i], &b->all[i]);
    return same;
}

static double calculate(char op, double x, double y) {
    switch (op) {
    case '+':
        return x + y;
    case '-':
        return x - y;
    case '*':
        return x * y;
    case '<':
        return x < y;
    case '[':
        return x <= y;
    default:
        return x == y;
    }
}

/* Removes a negation; if the truth value is certain, both numbers become the one that it
 * selects. */
static void straighten(term *a) {
    const double yes = a->when.negated ? a->no : a->yes, no = a->when.negated ? a->yes : a->no;
    a->when.negated = false;
    a->yes = yes;
    a->no = a->when.n ? no : yes;
}

/* Two choices: they depend on the same truth value, or on a conjunction of theirs. Other sums stay
 * sums. */
static bool calculate_choices(ir_dims *dims, char op, const term *a, const term *b, term *out) {
    const bool sure = term_is_sure(&a->when) || term_is_sure(&b->when);
    *out = (term){.kind = TERM_CHOICE, .when = term_is_sure(&a->when) ? b->when : a->when};
    out->yes = calculate(op, a->yes, b->yes);
    out->no = calculate(op, a->no, b->no);
    if (sure || same_truth(&a->when, &b->when))
        return true;
    const bool masks = op == '+' && a->yes == 0 && b->yes == 0 && term_hides(GQAC_F16, a->no) &&
                       term_hides(GQAC_F16, b->no);
    const bool flags = op == '*' && a->no == 0 && b->no == 0;
    if ((masks || flags) && term_and(dims, &a->when, &b->when, &out->when)) {
        if (masks) /* if one hides, the result is its number */
            out->no = fmax(a->no, b->no);
        return true;
    }
    *out = *a;
    out->kind = TERM_SUM;
    out->plus.when = b->when;
    out->plus.yes = b->yes;
    out->plus.no = b->no;
    return op == '+';
}

/* t, or not t. */
static bool either(ir_dims *dims, const term_truth *t, bool yes, term_truth *out) {
    *out = *t;
    return yes || term_negate(dims, out);
}

/* A sum of two choices compared with z has four cases: all with the same result, or one that
 * differs from the others, or two and two, which one of the choices decides. */
static bool compare_sum(ir_dims *dims, char op, const term *sum, double z, bool swapped,
                        term_truth *out) {
    bool holds[2][2];
    int n = 0, at = 0;
    for (int i = 0; i < 4; i++) {
        const float x =
            (float)((i & 2 ? sum->no : sum->yes) + (i & 1 ? sum->plus.no : sum->plus.yes));
        holds[i >> 1][i & 1] =
            swapped ? calculate(op, z, (double)x) != 0 : calculate(op, (double)x, z) != 0;
        n += holds[i >> 1][i & 1];
    }
    if (n == 0 || n == 4) {
        *out = (term_truth){.negated = n == 0};
        return true;
    }
    if (n == 2)
        return holds[0][0] == holds[0][1]   ? either(dims, &sum->when, holds[0][0], out)
               : holds[0][0] == holds[1][0] ? either(dims, &sum->plus.when, holds[0][0], out)
                                            : false;
    while (holds[at >> 1][at & 1] != (n == 1))
        at++;
    term_truth a, b;
    return either(dims, &sum->when, !(at & 2), &a) &&
           either(dims, &sum->plus.when, !(at & 1), &b) && term_and(dims, &a, &b, out) &&
           (n == 1 || term_negate(dims, out));
}

static bool numbers(const term *a, const term *b, term *x, term *y) {
    if (!as_choice(a, x) || !as_choice(b, y))
        return false;
    straighten(x);
    straighten(y);
    return true;
}

/* The choice of a bias. */
static term choice_of(const term *bias) {
    term alone = *bias;
    alone.kind = TERM_CHOICE;
    straighten(&alone);
    return alone;
}

static bool is_plain(const term *bias) {
    const term alone = choice_of(bias);
    return term_is_sure(&alone.when) && alone.yes == 0;
}

/* Slopes alone times a number without slopes. */
static bool multiply_biases(const term *a, const term *b, term *out) {
    const term *slopes = a->slopes ? a : b, *of = slopes == a ? b : a;
    int64_t n;
    *out = *of;
    out->slopes = slopes->slopes;
    out->heads = slopes->heads;
    out->rounded = GQAC_NONE;
    return slopes->slopes && !of->slopes && slopes->factor == 1 && of->factor == 1 && is_plain(a) &&
           is_plain(b) && ir_dim_is_const(slopes->number, &n) && n == 1;
}

/* A bias times a whole number that may be a variable, or times a constant. */
static bool multiply_bias(ir_dims *dims, const term *bias, const term *other, term *out) {
    term x;
    *out = *bias;
    if (!is_plain(bias))
        return false;
    if (other->kind == TERM_INT && bias->rounded == GQAC_NONE && bias->factor == 1) {
        out->number = ir_dim_mul(dims, bias->number, other->number);
        return out->number != NULL;
    }
    if (!as_choice(other, &x) || !term_is_sure(&x.when))
        return false;
    out->factor *= x.when.negated ? x.no : x.yes;
    return isfinite(out->factor);
}

/* A bias times a number, or with a mask or a number added to it. */
static bool bias_arithmetic(ir_dims *dims, char op, const term *a, const term *b, term *out) {
    const term *bias = a->kind == TERM_BIAS ? a : b, *other = bias == a ? b : a;
    term alone = choice_of(bias), x, sum;
    if (op == '*')
        return a->kind == b->kind ? multiply_biases(a, b, out)
                                  : multiply_bias(dims, bias, other, out);
    if (a->kind == b->kind || (op == '-' && (bias == a || !is_plain(bias))) ||
        !numbers(&alone, other, &alone, &x) || !calculate_choices(dims, '+', &alone, &x, &sum) ||
        sum.kind != TERM_CHOICE)
        return false;
    *out = *bias;
    out->factor = op == '-' ? -bias->factor : bias->factor;
    out->when = sum.when;
    out->yes = sum.yes;
    out->no = sum.no;
    return true;
}

/* A number to combine with a variable integer: small and whole, so that floats hold the result. */
static bool as_integer(ir_dims *dims, term *a) {
    const double x = a->when.negated ? a->no : a->yes;
    if (a->kind != TERM_CHOICE || !term_is_sure(&a->when) || x != trunc(x) || fabs(x) > 0x1p16)
        return false;
    *a = term_of_int(ir_dim_const(dims, (int64_t)x));
    return true;
}

bool term_arithmetic(ir_dims *dims, char op, const term *a, const term *b, term *out) {
    term x = *a, y = *b, u, v;
    if (is_variable(a) && b->kind == TERM_CHOICE && !as_integer(dims, &y))
        term_as_bias(&x);
    else if (is_variable(b) && a->kind == TERM_CHOICE && !as_integer(dims, &x))
        term_as_bias(&y);
    if (x.kind == TERM_BIAS || y.kind == TERM_BIAS)
        return bias_arithmetic(dims, op, &x, &y, out);
    if (x.kind == TERM_INT && y.kind == TERM_INT) {
        *out = term_of_int(op == '+'   ? ir_dim_add(dims, x.number, y.number)
                           : op == '-' ? ir_dim_sub(dims, x.number, y.number)
                                       : ir_dim_mul(dims, x.number, y.number));
        return out->number != NULL;
    }
    return numbers(&x, &y, &u, &v) && calculate_choices(dims, op, &u, &v, out);
}

bool term_invert(term *a) {
    term x;
    if (!as_choice(a, &x) || !term_is_sure(&x.when))
        return false;
    straighten(&x);
    *a = term_number(1 / x.yes);
    return isfinite(a->yes);
}

/* One key, *zero, has no bias; the slope of each head is the bias of the key after or before it.
 * The bias of every other key must be the slope times its distance from *zero, except for a last
 * bit. */
static bool find_slopes(const gqac_tensor *t, int heads, int keys, float *slopes, int64_t *zero) {
    const int64_t n = t->dims[keys], by = heads < keys ? 1 : t->dims[heads];
    const int64_t step = heads < keys ? n : 1;
    *zero = -1;
    for (int64_t j = 0; j < n; j++)
        if (op_get_f32(t, j * by) == 0.0f)
            *zero = j;
    for (int64_t h = 0; h < t->dims[heads]; h++) {
        const int64_t other = *zero > 0 ? *zero - 1 : *zero + 1;
        if (*zero < 0 || n < 2)
            return false;
        slopes[h] = op_get_f32(t, h * step + other * by) / (float)(other - *zero);
        for (int64_t j = 0; j < n; j++) {
            const double want = (double)slopes[h] * (double)(j - *zero);
            if (!(fabs((double)op_get_f32(t, h * step + j * by) - want) <= 2.5e-7 * fabs(want)))
                return false;
        }
    }
    return true;
}

bool term_of_slopes(ir_dims *dims, const gqac_tensor *table, int heads, int keys, const ir_dim *key,
                    float *slopes, term *out) {
    int64_t zero = 0;
    if (!OP_IN(OP_FLOATS, table->dtype))
        return false;
    if (keys >= 0) {
        if (!find_slopes(table, heads, keys, slopes, &zero))
            return false;
        key = ir_dim_sub(dims, key, ir_dim_const(dims, zero));
    } else {
        key = ir_dim_const(dims, 1);
        for (int64_t h = 0; h < table->dims[heads]; h++)
            slopes[h] = op_get_f32(table, h);
    }
    *out = bias_of(key);
    out->slopes = slopes;
    out->heads = (int)table->dims[heads];
    return key != NULL;
}

bool term_of_triangle(ir_dims *dims, const gqac_tensor *table, const ir_dim *row,
                      const ir_dim *column, term *out) {
    const int64_t n = table->rank >= 2 ? table->dims[table->rank - 1] : 0;
    int64_t width = 0;
    if (n < 2 || table->dims[table->rank - 2] != n || gqac_tensor_count(table) != n * n)
        return false;
    for (int64_t j = 0; j < n; j++) /* the number of keys that the last row sees */
        width += op_get_i64(table, (n - 1) * n + j) != 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            if ((op_get_i64(table, i * n + j) != 0) != (j <= i && j > i - width))
                return false;
    const ir_dim *distance = ir_dim_sub(dims, row, column);
    const ir_dim *left = ir_dim_sub(dims, ir_dim_const(dims, width - 1), distance);
    if (!distance || !left || width == 0)
        return false;
    const term_truth past = term_at_least_0(distance), near = term_at_least_0(left);
    term_truth seen = past;
    if (width < n && !term_and(dims, &past, &near, &seen))
        return false;
    *out = term_of_truth(seen);
    return true;
}

static bool choice_as_truth(ir_dims *dims, const term *a, term_truth *out) {
    const bool yes = a->yes != 0, no = a->no != 0;
    if (term_is_sure(&a->when) || yes == no) {
        *out = (term_truth){.negated = !yes};
        return true;
    }
    *out = a->when;
    return yes || term_negate(dims, out);
}

static bool equal_ints(const ir_dim *d, term_truth *out) {
    int64_t value;
    if (!ir_dim_is_const(d, &value))
        return false;
    *out = (term_truth){.negated = value != 0};
    return true;
}

bool term_compare(ir_dims *dims, char op, const term *a, const term *b, term_truth *out) {
    term x, y, z;
    if (a->kind == TERM_INT && b->kind == TERM_INT) {
        const ir_dim *d = ir_dim_sub(dims, b->number, a->number);
        if (op == '<')
            d = ir_dim_sub(dims, d, ir_dim_const(dims, 1));
        if (!d || op == '=')
            return d && equal_ints(d, out);
        *out = term_at_least_0(d);
        return true;
    }
    const term *sum = a->kind == TERM_SUM ? a : b, *other = sum == a ? b : a;
    if (sum->kind == TERM_SUM)
        return as_choice(other, &x) && term_is_sure(&x.when) &&
               compare_sum(dims, op, sum, x.when.negated ? x.no : x.yes, sum == b, out);
    return numbers(a, b, &x, &y) &&
           (term_is_sure(&x.when) || term_is_sure(&y.when) || same_truth(&x.when, &y.when)) &&
           calculate_choices(dims, op, &x, &y, &z) && choice_as_truth(dims, &z, out);
}

bool term_as_truth(ir_dims *dims, const term *a, term_truth *out) {
    term x = term_number(0), zero = x;
    if (a->kind == TERM_TRUTH) {
        *out = a->when;
        return true;
    }
    return numbers(a, &zero, &x, &zero) && choice_as_truth(dims, &x, out);
}

/* Swaps the numbers of a choice. */
static bool flip(ir_dims *dims, term *c) {
    const double yes = c->yes;
    c->yes = c->no;
    c->no = yes;
    return term_negate(dims, &c->when) && !c->when.negated;
}

/* when ? (c ? u : w) : w */
static bool pick_inner(ir_dims *dims, const term_truth *when, const term *choice, double w,
                       term *out) {
    term c = *choice;
    if (c.no != w && !flip(dims, &c))
        return false;
    out->yes = c.yes;
    out->no = c.no;
    return c.no == w && term_and(dims, when, &c.when, &out->when);
}

/* when ? a : b, where one is a bias and the other a number that hides. */
static bool pick_bias(const term_truth *when, const term *a, const term *b, term *out) {
    const bool first = b->kind == TERM_CHOICE;
    const term *hides = first ? b : a;
    term bias = first ? *a : *b, x;
    term_as_bias(&bias);
    if (bias.kind != TERM_BIAS || !is_plain(&bias) || !as_choice(hides, &x))
        return false;
    straighten(&x);
    *out = bias;
    out->when = *when;
    out->yes = first ? 0 : x.yes;
    out->no = first ? x.yes : 0;
    return term_is_sure(&x.when) && term_hides(GQAC_F16, x.yes);
}

bool term_pick(ir_dims *dims, const term_truth *when, const term *a, const term *b, term *out) {
    term x, y;
    term_truth other = *when;
    if (term_is_sure(when)) {
        *out = when->negated ? *b : *a;
        return true;
    }
    if (a->kind == TERM_INT && b->kind == TERM_INT && a->number == b->number) {
        *out = *a;
        return true;
    }
    if (!numbers(a, b, &x, &y))
        return pick_bias(when, a, b, out);
    if (!term_negate(dims, &other))
        return false;
    const bool truths = a->kind == TERM_TRUTH && b->kind == TERM_TRUTH;
    *out = (term){.kind = TERM_CHOICE};
    if (term_is_sure(&x.when) && term_is_sure(&y.when)) {
        *out = (term){.kind = TERM_CHOICE, .when = *when, .yes = x.yes, .no = y.yes};
    } else if (term_is_sure(&y.when)) {
        if (!pick_inner(dims, when, &x, y.yes, out))
            return false;
    } else if (!term_is_sure(&x.when) || !pick_inner(dims, &other, &y, x.yes, out)) {
        return false;
    }
    straighten(out);
    term_truth truth;
    if (!truths)
        return true;
    if (!choice_as_truth(dims, out, &truth))
        return false;
    *out = term_of_truth(truth);
    return true;
}
