/* One element of a mask as a term in its coordinates: an integer (a polynomial in coordinates and
 * dims), a truth value (a conjunction of conditions), or one of two numbers, chosen by a truth
 * value. */
#ifndef GQAC_PASSES_RAISE_TERMS_H
#define GQAC_PASSES_RAISE_TERMS_H

#include "passes/raise.h"

enum { TERM_ATOMS = 6 };

/* A condition: `least` >= 0; or, if that is NULL, `of`[row,column] is not 0 (zero: it is 0). */
typedef struct term_atom {
    const ir_dim *least;
    ir_value *of;
    const ir_dim *row, *column;
    bool zero;
} term_atom;

/* True if all of n conditions hold; negated: if not. n = 0 is the constant true, or false. */
typedef struct term_truth {
    bool negated;
    int n;
    term_atom all[TERM_ATOMS];
} term_truth;

typedef enum term_kind { TERM_INT, TERM_TRUTH, TERM_CHOICE, TERM_SUM, TERM_BIAS } term_kind;

typedef struct term {
    term_kind kind;
    const ir_dim *number;
    term_truth when; /* of TRUTH and CHOICE */
    double yes, no;  /* of CHOICE; the same when n = 0 */
    struct {
        term_truth when;
        double yes, no;
    } plus; /* of SUM: it is a CHOICE plus this one, and can only be compared */
    /* Of BIAS: it is a CHOICE plus factor * slopes[h] * number, for head h. */
    const float *slopes; /* NULL: 1 */
    double factor;
    /* The types to which slopes[h] * number was rounded, and number before it. NONE: it was not. A
     * rounded number times slopes is a term only once the product is rounded to the same type. */
    gqac_dtype rounded, number_rounded;
    int heads; /* number of slopes */
} term;

static inline bool term_is_sure(const term_truth *t) {
    return t->n == 0;
}

term term_number(double x);
term term_of_int(const ir_dim *number);
term term_of_truth(term_truth truth);
term_truth term_at_least_0(const ir_dim *number);

/* Each function returns false if no term can express the result. */
bool term_negate(ir_dims *dims, term_truth *t);
bool term_and(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out);
bool term_or(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out);
/* The sum of two masks hides what either of them hides. */
bool term_arithmetic(ir_dims *dims, char op, const term *a, const term *b, term *out);
bool term_invert(term *a); /* 1 / a; a must be a constant */
/* a < b ('<'), a <= b ('['), a == b ('=') */
bool term_compare(ir_dims *dims, char op, const term *a, const term *b, term_truth *out);
bool term_pick(ir_dims *dims, const term_truth *when, const term *a, const term *b, term *out);
/* An element of `table`, in which all dims except those of heads and keys are 1: slopes[h] * (index
 * of the key - c). keys < 0: all keys have the same number. slopes has capacity for one number per
 * head; `out` refers to it.
 */
bool term_of_slopes(ir_dims *dims, const gqac_tensor *table, int heads, int keys, const ir_dim *key,
                    float *slopes, term *out);
/* An element of a square bool table that is true at column j of row i where j <= i, or where
 * i - width < j <= i. */
bool term_of_triangle(ir_dims *dims, const gqac_tensor *table, const ir_dim *row,
                      const ir_dim *column, term *out);
bool term_as_truth(ir_dims *dims, const term *a, term_truth *out); /* it is not 0 */
/* Changes the term as storing it as that type does; false: no term can express the result. In f32
 * whole numbers are exact for more tokens than a sequence can have; in 16 bits they are rounded,
 * and can only be a bias. */
bool term_store(term *a, gqac_dtype dtype);
/* An integer that is not constant becomes a bias without slopes. */
void term_as_bias(term *a);
/* True if x hides a score of that type that it is added to or that it replaces. In f32 the softmax
 * of -1e9 is exactly 0 if another score is above -9.9e8, as scores of models are; -1e4 is too high
 * to be sure. */
bool term_hides(gqac_dtype dtype, double x);
/* The same if score and x are multiplied by a factor afterwards; 0: they are not. The lowest number
 * of f16 hides a score with a factor of 1/16 or more, that of head size 256, unless scores before
 * the factor differ by more than 63,000. */
bool term_hides_scaled(gqac_dtype dtype, double x, double factor);

#endif
