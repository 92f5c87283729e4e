/* Dimensions that are not polynomials: max and floor division, kept as atoms with their parts; and
 * the functions that look inside them, substitution and evaluation.
 *
 * Invariants: a max has its parts in dim_compare order and neither is known to be the larger one;
 * in floor(a / n) no coefficient of a is a multiple of n, the constant is in [0, n), and the gcd of
 * n and the other coefficients is 1. So the printed text parses to the same dimension. */
#include "ir/dim_impl.h"

#include "base/check.h"

static void print_opaque(gqac_str *out, const dim_atom *atom) {
    if (atom->kind == DIM_MAX) {
        gqac_str_append(out, "max(");
        ir_dim_print(out, atom->a);
        gqac_str_append(out, ",");
        ir_dim_print(out, atom->b);
        gqac_str_append(out, ")");
        return;
    }
    bool bare = dim_lone_atom(atom->a) != NULL;
    gqac_str_append(out, bare ? "" : "(");
    ir_dim_print(out, atom->a);
    gqac_str_printf(out, bare ? "/%lld" : ")/%lld", (long long)atom->n);
}

static const ir_dim *opaque(ir_dims *dims, dim_atom *model) {
    gqac_str text = {0};
    int depth = model->a->depth;
    if (model->b && model->b->depth > depth)
        depth = model->b->depth;
    model->depth = depth + 1;
    print_opaque(&text, model);
    const dim_atom *atom = dim_atom_intern(dims, &text, model);
    gqac_str_free(&text);
    return dim_of_atom(dims, atom);
}

static bool max_holds(const ir_dim *dim, const ir_dim *part) {
    const dim_atom *atom = dim_lone_atom(dim);
    return atom && atom->kind == DIM_MAX && (atom->a == part || atom->b == part);
}

const ir_dim *ir_dim_max(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    const ir_dim *more = ir_dim_sub(dims, a, b);
    const ir_dim *less = ir_dim_sub(dims, b, a);
    if (!more || !less)
        return NULL;
    if (more->nonneg || max_holds(a, b))
        return a;
    if (less->nonneg || max_holds(b, a))
        return b;
    bool swap = dim_compare(a, b) > 0;
    dim_atom model = {
        .kind = DIM_MAX, .a = swap ? b : a, .b = swap ? a : b, .nonneg = a->nonneg || b->nonneg};
    return opaque(dims, &model);
}

static int64_t floor_div(int64_t a, int64_t n) {
    return a / n - (a % n < 0);
}

/* n > 0, so the result is at most n. */
static int64_t gcd(int64_t n, int64_t value) {
    uint64_t a = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, b = (uint64_t)n;
    while (a) {
        uint64_t rest = b % a;
        b = a;
        a = rest;
    }
    return (int64_t)b;
}

/* Splits a into whole * n + rest, where rest has a constant in [0, n) and no other coefficient that
 * is a multiple of n. Then divides rest and n by their common factor, which does not change the
 * floor. */
static bool split(const ir_dim *a, int64_t *n, dim_poly *whole, dim_poly *rest) {
    int64_t common = *n;
    whole->n = rest->n = 0;
    for (int i = 0; i < a->n; i++) {
        dim_term term = a->terms[i];
        bool whole_term = term.degree == 0 || term.coef % *n == 0;
        if (!whole_term)
            common = gcd(common, term.coef);
        int64_t quotient = floor_div(term.coef, *n);
        term.coef -= whole_term ? quotient * *n : 0;
        if (!dim_poly_add_term(rest, &term, 1))
            return false;
        term.coef = whole_term ? quotient : 0;
        if (!dim_poly_add_term(whole, &term, 1))
            return false;
    }
    int kept = 0;
    for (int i = 0; i < rest->n; i++) {
        rest->terms[i].coef = floor_div(rest->terms[i].coef, common);
        if (rest->terms[i].coef)
            rest->terms[kept++] = rest->terms[i];
    }
    rest->n = kept;
    *n /= common;
    return true;
}

/* floor((floor(x / m) + c) / n) = floor((x + c*m) / (m*n)): returns the dimension to divide by the
 * new *n; or rest itself, and *n stays, if rest has no such form. */
static const ir_dim *unnest(ir_dims *dims, const ir_dim *rest, int64_t *n) {
    if (rest->n == 0 || rest->n > 2 || rest->terms[0].degree != 1 || rest->terms[0].coef != 1)
        return rest;
    const dim_atom *atom = rest->terms[0].atoms[0];
    if (atom->kind != DIM_DIV || (rest->n == 2 && rest->terms[1].degree > 0))
        return rest;
    int64_t shift = 0, product;
    if ((rest->n == 2 && !gqac_mul_i64(rest->terms[1].coef, atom->n, &shift)) ||
        !gqac_mul_i64(atom->n, *n, &product))
        return rest;
    const ir_dim *sum = ir_dim_add(dims, atom->a, ir_dim_const(dims, shift));
    if (!sum)
        return rest;
    *n = product;
    return sum;
}

const ir_dim *ir_dim_floordiv(ir_dims *dims, const ir_dim *a, int64_t n) {
    dim_poly whole, rest;
    const ir_dim *sum = ir_dim_const(dims, 0);
    /* each round removes one of at most DIM_MAX_DEPTH levels of nested floor divisions */
    for (int round = 0; round <= DIM_MAX_DEPTH + 1; round++) {
        if (!a || n <= 0 || !split(a, &n, &whole, &rest))
            return NULL;
        sum = ir_dim_add(dims, sum, dim_poly_intern(dims, &whole));
        const ir_dim *dividend = dim_poly_intern(dims, &rest);
        if (!sum || !dividend)
            return NULL;
        if (dividend->n == 0 || (dividend->n == 1 && dividend->terms[0].degree == 0))
            return sum; /* a constant in [0, n) */
        a = unnest(dims, dividend, &n);
        if (a == dividend) {
            dim_atom model = {.kind = DIM_DIV, .a = a, .n = n, .nonneg = a->nonneg};
            return ir_dim_add(dims, sum, opaque(dims, &model));
        }
    }
    return NULL;
}

/* ---- substitution and evaluation ----------------------------------------- */

typedef struct substitution {
    ir_dims *dims;
    int n;
    const ir_dim *const *from, *const *to;
} substitution;

static const ir_dim *replace(const substitution *s, const ir_dim *dim);

static const ir_dim *replace_atom(const substitution *s, const dim_atom *atom) {
    for (int i = 0; i < s->n; i++)
        if (dim_lone_atom(s->from[i]) == atom)
            return s->to[i];
    if (atom->kind == DIM_SYMBOL)
        return dim_of_atom(s->dims, atom);
    const ir_dim *a = replace(s, atom->a);
    if (atom->kind == DIM_DIV)
        return a == atom->a ? dim_of_atom(s->dims, atom) : ir_dim_floordiv(s->dims, a, atom->n);
    const ir_dim *b = replace(s, atom->b);
    if (a == atom->a && b == atom->b)
        return dim_of_atom(s->dims, atom);
    return ir_dim_max(s->dims, a, b);
}

/* Recursion follows atoms into their parts, at most DIM_MAX_DEPTH deep. The maximum length of an
 * atom's text limits how many parts there are. */
static const ir_dim *replace(const substitution *s, const ir_dim *dim) {
    const ir_dim *sum = ir_dim_const(s->dims, 0);
    for (int i = 0; i < dim->n; i++) {
        const dim_term *term = &dim->terms[i];
        const ir_dim *product = ir_dim_const(s->dims, term->coef);
        for (int j = 0; j < term->degree; j++)
            product = ir_dim_mul(s->dims, product, replace_atom(s, term->atoms[j]));
        sum = ir_dim_add(s->dims, sum, product);
    }
    return sum;
}

const ir_dim *ir_dim_substitute(ir_dims *dims, const ir_dim *dim, int n, const ir_dim *const *from,
                                const ir_dim *const *to) {
    if (!dim)
        return NULL;
    return replace(&(substitution){dims, n, from, to}, dim);
}

static bool eval_atom(const dim_atom *atom, ir_dim_lookup *lookup, void *arg, int64_t *value) {
    int64_t a, b = 0;
    if (atom->kind == DIM_SYMBOL)
        return lookup(arg, atom->name, value);
    if (!ir_dim_eval(atom->a, lookup, arg, &a) ||
        (atom->b && !ir_dim_eval(atom->b, lookup, arg, &b)))
        return false;
    if (atom->kind == DIM_MAX)
        *value = a > b ? a : b;
    else
        *value = floor_div(a, atom->n);
    return true;
}

bool ir_dim_eval(const ir_dim *dim, ir_dim_lookup *lookup, void *arg, int64_t *value) {
    int64_t sum = 0;
    if (!dim)
        return false;
    for (int i = 0; i < dim->n; i++) {
        int64_t product = dim->terms[i].coef;
        for (int j = 0; j < dim->terms[i].degree; j++) {
            int64_t factor;
            if (!eval_atom(dim->terms[i].atoms[j], lookup, arg, &factor) ||
                !gqac_mul_i64(product, factor, &product))
                return false;
        }
        if (!gqac_add_i64(sum, product, &sum))
            return false;
    }
    *value = sum;
    return true;
}
