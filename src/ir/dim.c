/* Dimensions as interned integer polynomials (see dim.h, dim_impl.h): arithmetic.
 *
 * The order of terms is graded and lexicographic by kind and text of atoms, which is a monomial
 * order; exact division relies on that. Every operation builds a dim_poly on the stack and interns
 * it. */
#include "ir/dim_impl.h"

#include <string.h>

#include "base/check.h"
#include "ir/impl.h"

ir_dims *ir_dims_create(gqac_arena *arena) {
    ir_dims *dims = GQAC_ARENA_NEW(arena, ir_dims);
    if (!dims)
        return NULL;
    dims->arena = arena;
    gqac_table_init(&dims->atoms, arena);
    gqac_table_init(&dims->dims, arena);
    return dims;
}

bool ir_dims_failed(const ir_dims *dims) {
    return dims->failed;
}

void ir_dims_fail(ir_dims *dims) {
    dims->failed = true;
}

static void *failed(ir_dims *dims) {
    dims->failed = true;
    return NULL;
}

/* ---- terms and sums ------------------------------------------------------ */

/* Symbols come before opaque atoms. */
static int compare_atoms(const dim_atom *a, const dim_atom *b) {
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return a == b ? 0 : strcmp(a->text, b->text);
}

static int compare_monomials(const dim_term *a, const dim_term *b) {
    if (a->degree != b->degree)
        return a->degree > b->degree ? -1 : 1;
    for (int i = 0; i < a->degree; i++)
        if (a->atoms[i] != b->atoms[i])
            return compare_atoms(a->atoms[i], b->atoms[i]);
    return 0;
}

int dim_compare(const ir_dim *a, const ir_dim *b) {
    for (int i = 0; i < a->n && i < b->n; i++) {
        int order = compare_monomials(&a->terms[i], &b->terms[i]);
        if (order)
            return order;
        if (a->terms[i].coef != b->terms[i].coef)
            return a->terms[i].coef < b->terms[i].coef ? -1 : 1;
    }
    return a->n - b->n;
}

bool dim_poly_add_term(dim_poly *poly, const dim_term *term, int64_t scale) {
    int64_t coef;
    if (!gqac_mul_i64(term->coef, scale, &coef))
        return false;
    if (coef == 0)
        return true;
    int low = 0, high = poly->n;
    while (low < high) {
        int middle = (low + high) / 2;
        int order = compare_monomials(&poly->terms[middle], term);
        if (order == 0) {
            dim_term *same = &poly->terms[middle];
            if (!gqac_add_i64(same->coef, coef, &same->coef))
                return false;
            if (same->coef == 0) {
                poly->n--;
                memmove(same, same + 1, (size_t)(poly->n - middle) * sizeof *same);
            }
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (poly->n == DIM_MAX_TERMS)
        return false;
    dim_term *at = &poly->terms[low];
    memmove(at + 1, at, (size_t)(poly->n - low) * sizeof *at);
    *at = *term;
    at->coef = coef;
    poly->n++;
    return true;
}

bool dim_poly_add(dim_poly *poly, const ir_dim *dim, int64_t scale) {
    for (int i = 0; i < dim->n; i++)
        if (!dim_poly_add_term(poly, &dim->terms[i], scale))
            return false;
    return true;
}

static bool multiply_terms(const dim_term *a, const dim_term *b, dim_term *out) {
    if (a->degree + b->degree > DIM_MAX_DEGREE || !gqac_mul_i64(a->coef, b->coef, &out->coef))
        return false;
    out->degree = a->degree + b->degree;
    int i = 0, j = 0;
    for (int k = 0; k < out->degree; k++) {
        bool left =
            j == b->degree || (i < a->degree && compare_atoms(a->atoms[i], b->atoms[j]) <= 0);
        out->atoms[k] = left ? a->atoms[i++] : b->atoms[j++];
    }
    return true;
}

static bool same_dim(const void *item, const void *key) {
    const ir_dim *dim = item;
    const dim_poly *poly = key;
    if (dim->n != poly->n)
        return false;
    for (int i = 0; i < dim->n; i++) {
        const dim_term *a = &dim->terms[i], *b = &poly->terms[i];
        if (a->coef != b->coef || a->degree != b->degree)
            return false;
        for (int j = 0; j < a->degree; j++)
            if (a->atoms[j] != b->atoms[j])
                return false;
    }
    return true;
}

const ir_dim *dim_poly_intern(ir_dims *dims, const dim_poly *poly) {
    uint64_t hash = gqac_hash_u64(dims->dims.seed, (uint64_t)poly->n);
    size_t length = 0;
    int depth = 0;
    bool nonneg = true;
    for (int i = 0; i < poly->n; i++) {
        const dim_term *term = &poly->terms[i];
        hash = gqac_hash_u64(hash, (uint64_t)term->coef);
        hash = gqac_hash_u64(hash, (uint64_t)term->degree);
        nonneg = nonneg && term->coef > 0;
        length += 1;
        for (int j = 0; j < term->degree; j++) {
            const dim_atom *atom = term->atoms[j];
            hash = gqac_hash_u64(hash, (uint64_t)(uintptr_t)atom);
            length += atom->length + 1;
            nonneg = nonneg && atom->nonneg;
            depth = atom->depth > depth ? atom->depth : depth;
        }
    }
    if (length > DIM_MAX_TEXT)
        return NULL;
    ir_dim *dim = gqac_table_find(&dims->dims, hash, same_dim, poly);
    if (dim)
        return dim;
    dim = GQAC_ARENA_NEW(dims->arena, ir_dim);
    if (!dim)
        return failed(dims);
    dim->n = poly->n;
    dim->nonneg = nonneg;
    dim->depth = depth;
    dim->terms = gqac_arena_copy(dims->arena, poly->terms, (size_t)poly->n * sizeof poly->terms[0]);
    if (!dim->terms || !gqac_table_add(&dims->dims, hash, dim))
        return failed(dims);
    return dim;
}

/* ---- atoms --------------------------------------------------------------- */

typedef struct atom_key {
    const char *text;
    size_t length;
} atom_key;

static bool same_atom(const void *item, const void *key) {
    const dim_atom *atom = item;
    const atom_key *k = key;
    return atom->length == k->length && memcmp(atom->text, k->text, k->length) == 0;
}

dim_atom *dim_atom_find(const ir_dims *dims, const char *text, size_t length) {
    return gqac_table_find(&dims->atoms, gqac_hash_bytes(dims->atoms.seed, text, length), same_atom,
                           &(atom_key){text, length});
}

dim_atom *dim_atom_intern(ir_dims *dims, const gqac_str *text, const dim_atom *model) {
    if (text->failed)
        return failed(dims);
    if (text->length > DIM_MAX_ATOM_TEXT || model->depth > DIM_MAX_DEPTH)
        return NULL;
    dim_atom *atom = dim_atom_find(dims, text->text, text->length);
    if (atom)
        return atom;
    atom = gqac_arena_copy(dims->arena, model, sizeof *model);
    if (!atom)
        return failed(dims);
    atom->length = text->length;
    atom->text = gqac_arena_strndup(dims->arena, text->text, text->length);
    atom->name = model->name ? gqac_arena_strdup(dims->arena, model->name) : NULL;
    if (!atom->text || (model->name && !atom->name))
        return failed(dims);
    uint64_t hash = gqac_hash_bytes(dims->atoms.seed, atom->text, atom->length);
    return gqac_table_add(&dims->atoms, hash, atom) ? atom : failed(dims);
}

const ir_dim *dim_of_atom(ir_dims *dims, const dim_atom *atom) {
    if (!atom)
        return NULL;
    dim_poly poly;
    poly.n = 1;
    poly.terms[0] = (dim_term){.coef = 1, .degree = 1, .atoms = {atom}};
    return dim_poly_intern(dims, &poly);
}

const dim_atom *dim_lone_atom(const ir_dim *dim) {
    if (!dim || dim->n != 1 || dim->terms[0].degree != 1 || dim->terms[0].coef != 1)
        return NULL;
    return dim->terms[0].atoms[0];
}

const ir_dim *ir_dim_symbol(ir_dims *dims, const char *name) {
    if (strlen(name) > DIM_MAX_ATOM_TEXT)
        return NULL;
    gqac_str text = {0};
    dim_quote(&text, name);
    dim_atom model = {.kind = DIM_SYMBOL, .name = name, .nonneg = true};
    dim_atom *atom = dim_atom_intern(dims, &text, &model);
    gqac_str_free(&text);
    return dim_of_atom(dims, atom);
}

static bool symbol_exists(const ir_dims *dims, const char *name, dim_atom **atom, bool *ok) {
    gqac_str text = {0};
    dim_quote(&text, name);
    *ok = !text.failed;
    *atom = text.failed ? NULL : dim_atom_find(dims, text.text, text.length);
    gqac_str_free(&text);
    return *atom != NULL;
}

const ir_dim *ir_dim_fresh(ir_dims *dims, const char *hint) {
    /* a quarter of the limit, as quoting may write four bytes for one; less the suffix
     */
    char *base = gqac_arena_strndup(dims->arena, hint, strnlen(hint, DIM_MAX_ATOM_TEXT / 4 - 16));
    if (!base)
        return failed(dims);
    dim_atom *first, *atom;
    bool ok;
    if (!symbol_exists(dims, base, &first, &ok))
        return ok ? ir_dim_symbol(dims, base) : failed(dims);
    /* each name in use is skipped only once: the next search starts after it */
    while (first->next_suffix < INT32_MAX) {
        char *name = gqac_arena_printf(dims->arena, "%s.%d", base, ++first->next_suffix);
        if (!name)
            return failed(dims);
        if (!symbol_exists(dims, name, &atom, &ok))
            return ok ? ir_dim_symbol(dims, name) : failed(dims);
    }
    return NULL;
}

/* ---- arithmetic ---------------------------------------------------------- */

const ir_dim *ir_dim_const(ir_dims *dims, int64_t value) {
    dim_poly poly;
    poly.n = value != 0;
    poly.terms[0] = (dim_term){.coef = value};
    return dim_poly_intern(dims, &poly);
}

static const ir_dim *combine(ir_dims *dims, const ir_dim *a, const ir_dim *b, int64_t scale) {
    if (!a || !b)
        return NULL;
    dim_poly poly;
    poly.n = 0;
    if (!dim_poly_add(&poly, a, 1) || !dim_poly_add(&poly, b, scale))
        return NULL;
    return dim_poly_intern(dims, &poly);
}

const ir_dim *ir_dim_add(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    return combine(dims, a, b, 1);
}

const ir_dim *ir_dim_sub(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    return combine(dims, a, b, -1);
}

const ir_dim *ir_dim_mul(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    if (!a || !b)
        return NULL;
    dim_poly poly;
    poly.n = 0;
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            dim_term term;
            if (!multiply_terms(&a->terms[i], &b->terms[j], &term) ||
                !dim_poly_add_term(&poly, &term, 1))
                return NULL;
        }
    return dim_poly_intern(dims, &poly);
}

/* Divides single terms, a / b; false: b does not divide a. */
static bool divide_terms(const dim_term *a, const dim_term *b, dim_term *out) {
    if ((b->coef == -1 && a->coef == INT64_MIN) || a->coef % b->coef != 0)
        return false;
    out->coef = a->coef / b->coef;
    out->degree = 0;
    int j = 0;
    for (int i = 0; i < a->degree; i++) {
        if (j < b->degree && a->atoms[i] == b->atoms[j])
            j++;
        else
            out->atoms[out->degree++] = a->atoms[i];
    }
    return j == b->degree;
}

const ir_dim *ir_dim_div_exact(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    if (!a || !b || b->n == 0)
        return NULL;
    dim_poly rest, quotient;
    rest.n = quotient.n = 0;
    if (!dim_poly_add(&rest, a, 1))
        return NULL;
    /* Long division by the leading term; each step removes the leading term of the rest. */
    for (int step = 0; rest.n > 0; step++) {
        dim_term term, product;
        if (step == DIM_MAX_TERMS || !divide_terms(&rest.terms[0], &b->terms[0], &term) ||
            !dim_poly_add_term(&quotient, &term, 1))
            return NULL;
        for (int i = 0; i < b->n; i++)
            if (!multiply_terms(&term, &b->terms[i], &product) ||
                !dim_poly_add_term(&rest, &product, -1))
                return NULL;
    }
    return dim_poly_intern(dims, &quotient);
}

bool ir_dim_is_const(const ir_dim *dim, int64_t *value) {
    if (!dim || dim->n > 1 || (dim->n == 1 && dim->terms[0].degree > 0))
        return false;
    *value = dim->n ? dim->terms[0].coef : 0;
    return true;
}

bool ir_dim_is_symbol(const ir_dim *dim, const char **name) {
    const dim_atom *atom = dim_lone_atom(dim);
    if (!atom || atom->kind != DIM_SYMBOL)
        return false;
    *name = atom->name;
    return true;
}
