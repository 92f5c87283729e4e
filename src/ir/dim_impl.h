/* Private to dim*.c: how dimensions are stored.
 *
 * A dimension is a sum of terms; a term is a coefficient times a product of atoms; an atom is a
 * symbol, a max or a floor division. Atoms are interned by their printed text, dimensions by their
 * terms. The order of atoms and terms depends only on the text, not on the order of creation, so a
 * module that is printed and parsed prints the same again. Limits keep the time linear even for
 * hostile models; a dimension that exceeds one is NULL ("not known"). */
#ifndef GQAC_IR_DIM_IMPL_H
#define GQAC_IR_DIM_IMPL_H

#include "base/table.h"
#include "ir/dim.h"

enum {
    DIM_MAX_TERMS = 64,
    DIM_MAX_DEGREE = 8,
    DIM_MAX_DEPTH = 16,       /* of nested max and floor divisions */
    DIM_MAX_ATOM_TEXT = 1024, /* bytes of an atom's text */
    DIM_MAX_TEXT = 4096,      /* bytes of a dimension's text, roughly */
};

typedef enum dim_kind { DIM_SYMBOL, DIM_MAX, DIM_DIV } dim_kind;

typedef struct dim_atom {
    dim_kind kind;
    const char *text;    /* as printed; the key */
    const char *name;    /* of a symbol, unquoted; else NULL */
    size_t length;       /* of text */
    const ir_dim *a, *b; /* parts of max(a, b) or floor(a / n) */
    int64_t n;
    bool nonneg; /* its value is known to be >= 0 */
    int depth;
    int next_suffix; /* next suffix of ir_dim_fresh for this symbol's name */
} dim_atom;

typedef struct dim_term {
    int64_t coef; /* never 0 */
    int degree;
    const dim_atom *atoms[DIM_MAX_DEGREE]; /* symbols first, then by text; may repeat */
} dim_term;

struct ir_dim {
    int n;
    bool nonneg;
    int depth;
    const dim_term *terms; /* by degree, highest first, then by atoms; the constant is last */
};

/* A sum under construction. */
typedef struct dim_poly {
    int n;
    dim_term terms[DIM_MAX_TERMS];
} dim_poly;

struct ir_dims {
    gqac_arena *arena;
    bool failed;
    gqac_table atoms, dims;
};

/* Add scale times a term or a dimension to a sum; false: overflow, or too many terms. */
bool dim_poly_add_term(dim_poly *poly, const dim_term *term, int64_t scale);
bool dim_poly_add(dim_poly *poly, const ir_dim *dim, int64_t scale);
const ir_dim *dim_poly_intern(ir_dims *dims, const dim_poly *poly);
int dim_compare(const ir_dim *a, const ir_dim *b); /* a total order, by terms */

/* The atom with this text. If there is none, _find returns NULL, and _intern makes it from `model`.
 * _intern returns NULL if a limit is exceeded or memory is exhausted. */
dim_atom *dim_atom_intern(ir_dims *dims, const gqac_str *text, const dim_atom *model);
dim_atom *dim_atom_find(const ir_dims *dims, const char *text, size_t length);
const ir_dim *dim_of_atom(ir_dims *dims, const dim_atom *atom); /* NULL for NULL */
const dim_atom *dim_lone_atom(const ir_dim *dim); /* the atom that dim consists of, or NULL */
/* Appends a symbol's name as it is printed: bare or in back-quotes. */
void dim_quote(gqac_str *out, const char *name);

#endif
