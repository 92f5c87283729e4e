/* One element of a mask as a term over where it lies: an integer (a polynomial in the coordinates
 * and in dims), a truth (a conjunction of conditions), or one of two numbers by a truth. */
#ifndef GQAC_PASSES_RAISE_TERMS_H
#define GQAC_PASSES_RAISE_TERMS_H

#include "passes/raise.h"

enum { TERM_ATOMS = 6 };

/* Holds when `least` >= 0; or, when that is NULL, when `of`[row,column] is not 0 (zero: is 0). */
typedef struct term_atom {
    const ir_dim *least;
    ir_value *of;
    const ir_dim *row, *column;
    bool zero;
} term_atom;

/* All of n conditions; negated: the opposite. n = 0 is true, or false. */
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
    } plus;              /* of SUM, which is a CHOICE and this one: good for comparisons alone */
    const float *slopes; /* of BIAS, which is a CHOICE and slopes[h] * number, for head h */
} term;

static inline bool term_is_sure(const term_truth *t) {
    return t->n == 0;
}

term term_number(double x);
term term_of_int(const ir_dim *number);
term term_of_truth(term_truth truth);
term_truth term_at_least_0(const ir_dim *number);

/* Each gives false when the result cannot be said. */
bool term_negate(ir_dims *dims, term_truth *t);
bool term_and(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out);
bool term_or(ir_dims *dims, const term_truth *a, const term_truth *b, term_truth *out);
/* f of two numbers; masks that are added hide what one of them hides. */
bool term_arithmetic(ir_dims *dims, char op, const term *a, const term *b, term *out);
/* a < b ('<'), a <= b ('['), a == b ('=') */
bool term_compare(ir_dims *dims, char op, const term *a, const term *b, term_truth *out);
bool term_pick(ir_dims *dims, const term_truth *when, const term *a, const term *b, term *out);
/* An element of `table` where all dims but heads and keys are 1: slopes[h] * (keys' index - c).
 * keys < 0: every key has the same. slopes: room for one number a head, which `out` keeps. */
bool term_of_slopes(ir_dims *dims, const gqac_tensor *table, int heads, int keys, const ir_dim *key,
                    float *slopes, term *out);
/* An element of a square table of truths that sees each place up to its own row's, or the last few
 * of them. */
bool term_of_triangle(ir_dims *dims, const gqac_tensor *table, const ir_dim *row,
                      const ir_dim *column, term *out);
bool term_as_truth(ir_dims *dims, const term *a, term_truth *out); /* is it not 0? */
/* Is it what a value of that type holds? Slopes are rounded as f32, the only way that key_bias
 * knows; whole numbers are exact, in f32 further than there are tokens, in 16 bits not. */
bool term_fits(const term *a, gqac_dtype dtype);
/* Nothing is left of a score of that type that x is added to, or put in the place of: in f32 the
 * softmax of -1e9 is exactly 0 beside any score above -9.9e8, which no model computes; -1e4 is not
 * low enough for that to be sure. */
bool term_hides(gqac_dtype dtype, double x);

#endif
