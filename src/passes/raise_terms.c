/* Arithmetic of the terms of a mask (see raise_terms.h). */
#include "passes/raise_terms.h"

bool term_hides(gqac_dtype dtype, double x) {
    return x <= (dtype == GQAC_F16 ? -65504 : -3.3e38);
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

/* not (p >= 0) is -p - 1 >= 0, which can stand in a conjunction. */
bool term_negate(ir_dims *dims, term_truth *t) {
    t->negated = !t->negated;
    if (t->n != 1 || !t->negated || !t->all[0].least)
        return true;
    const ir_dim *zero = ir_dim_const(dims, 0), *one = ir_dim_const(dims, 1);
    t->all[0].least = ir_dim_sub(dims, ir_dim_sub(dims, zero, t->all[0].least), one);
    t->negated = false;
    return t->all[0].least != NULL;
}

static bool same_atom(const term_atom *a, const term_atom *b) {
    return a->least == b->least && a->of == b->of && a->row == b->row && a->column == b->column;
}

bool term_and(const term_truth *a, const term_truth *b, term_truth *out) {
    if (!a->n || !b->n) {
        const term_truth *sure = a->n ? b : a, *other = a->n ? a : b;
        *out = sure->negated ? *sure : *other;
        return true;
    }
    if (a->negated || b->negated)
        return false;
    term_truth both = *a;
    for (int i = 0; i < b->n; i++) {
        bool there = false;
        for (int k = 0; k < both.n; k++)
            there |= same_atom(&both.all[k], &b->all[i]);
        if (!there && both.n == TERM_ATOMS)
            return false;
        if (!there)
            both.all[both.n++] = b->all[i];
    }
    *out = both;
    return true;
}

/* not (not a and not b) */
bool term_or(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out) {
    term_truth x = *a, y = *b;
    return term_negate(dims, &x) && term_negate(dims, &y) && term_and(&x, &y, out) &&
           term_negate(dims, out);
}

/* An integer constant, and a truth, are numbers too. */
static bool as_choice(const term *a, term *out) {
    int64_t value;
    *out = *a;
    out->kind = TERM_CHOICE;
    if (a->kind != TERM_INT)
        return true;
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

/* Takes away a negation; what is sure is both numbers. */
static void straighten(term *a) {
    const double yes = a->when.negated ? a->no : a->yes, no = a->when.negated ? a->yes : a->no;
    a->when.negated = false;
    a->yes = yes;
    a->no = a->when.n ? no : yes;
}

/* One of two numbers each: both depend on one truth, or what both say stands in a conjunction. */
static bool calculate_choices(char op, const term *a, const term *b, term *out) {
    const bool sure = term_is_sure(&a->when) || term_is_sure(&b->when);
    *out = (term){.kind = TERM_CHOICE, .when = term_is_sure(&a->when) ? b->when : a->when};
    out->yes = calculate(op, a->yes, b->yes);
    out->no = calculate(op, a->no, b->no);
    if (sure || same_truth(&a->when, &b->when))
        return true;
    const bool masks = op == '+' && !a->yes && !b->yes && term_hides(GQAC_F16, a->no) &&
                       term_hides(GQAC_F16, b->no);
    const bool flags = op == '*' && !a->no && !b->no;
    return (masks || flags) && term_and(&a->when, &b->when, &out->when);
}

static bool numbers(const term *a, const term *b, term *x, term *y) {
    if (!as_choice(a, x) || !as_choice(b, y))
        return false;
    straighten(x);
    straighten(y);
    return true;
}

bool term_arithmetic(ir_dims *dims, char op, const term *a, const term *b, term *out) {
    term x, y;
    if (a->kind == TERM_INT && b->kind == TERM_INT) {
        *out = term_of_int(op == '+'   ? ir_dim_add(dims, a->number, b->number)
                           : op == '-' ? ir_dim_sub(dims, a->number, b->number)
                                       : ir_dim_mul(dims, a->number, b->number));
        return out->number != NULL;
    }
    return numbers(a, b, &x, &y) && calculate_choices(op, &x, &y, out);
}

/* A number that is 0 or not by a truth. */
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
    return numbers(a, b, &x, &y) &&
           (term_is_sure(&x.when) || term_is_sure(&y.when) || same_truth(&x.when, &y.when)) &&
           calculate_choices(op, &x, &y, &z) && choice_as_truth(dims, &z, out);
}

bool term_as_truth(ir_dims *dims, const term *a, term_truth *out) {
    term x = term_number(0), zero = x;
    if (a->kind == TERM_TRUTH) {
        *out = a->when;
        return true;
    }
    return numbers(a, &zero, &x, &zero) && choice_as_truth(dims, &x, out);
}

/* when ? a : b where both are numbers. With a truth that is sure, the one it picks. */
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
    if (!numbers(a, b, &x, &y) || !term_negate(dims, &other))
        return false;
    const bool truths = a->kind == TERM_TRUTH && b->kind == TERM_TRUTH;
    *out = (term){.kind = truths ? TERM_TRUTH : TERM_CHOICE};
    if (term_is_sure(&x.when) && term_is_sure(&y.when)) {
        *out = (term){.kind = TERM_CHOICE, .when = *when, .yes = x.yes, .no = y.yes};
        straighten(out);
    } else if (term_is_sure(&y.when) && x.no == y.yes) { /* when ? (c ? u : w) : w */
        out->yes = x.yes;
        out->no = x.no;
        if (!term_and(when, &x.when, &out->when))
            return false;
    } else if (term_is_sure(&x.when) && y.no == x.yes) { /* when ? w : (c ? u : w) */
        out->yes = y.yes;
        out->no = y.no;
        if (!term_and(&other, &y.when, &out->when))
            return false;
    } else {
        return false;
    }
    if (!truths)
        return true;
    out->kind = TERM_CHOICE;
    term_truth truth;
    if (!choice_as_truth(dims, out, &truth))
        return false;
    *out = term_of_truth(truth);
    return true;
}
