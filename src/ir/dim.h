/* Dimensions: integer polynomials over named symbols ("P+S", "2*S", "B*S"), interned so that equal
 * polynomials are the same pointer. Symbols stand for integers >= 0. What ONNX computes at run time
 * is a symbol of its own. NULL stands for "not known" and is contagious: every operation on NULL
 * gives NULL, and so does one that overflows, exceeds a limit (64 terms, degree 8, 4096 bytes of
 * text; docs/ir.md) or runs out of memory (see ir_dims_failed). */
#ifndef GQAC_IR_DIM_H
#define GQAC_IR_DIM_H

#include "base/arena.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ir_dims ir_dims; /* the intern table; lives in an arena */
typedef struct ir_dim ir_dim;

ir_dims *ir_dims_create(gqac_arena *arena); /* NULL when memory is short */
bool ir_dims_failed(const ir_dims *dims);   /* an allocation failed since creation */

const ir_dim *ir_dim_const(ir_dims *dims, int64_t value);
/* Any text is a symbol; text that parses as a polynomial ("P+S") becomes that polynomial only
 * through ir_dim_parse. Symbols print bare when they are identifiers, else in back-quotes. */
const ir_dim *ir_dim_symbol(ir_dims *dims, const char *name);
/* A symbol no other dimension has, named hint, hint.1, hint.2, ... */
const ir_dim *ir_dim_fresh(ir_dims *dims, const char *hint);
const ir_dim *ir_dim_add(ir_dims *dims, const ir_dim *a, const ir_dim *b);
const ir_dim *ir_dim_sub(ir_dims *dims, const ir_dim *a, const ir_dim *b);
const ir_dim *ir_dim_mul(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* The quotient when b divides a as polynomials; else NULL. */
const ir_dim *ir_dim_div_exact(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* max(a, b): a or b when a - b has only non-negative (or non-positive) coefficients, else the
 * opaque symbol `max(a,b)`. ir_dim_eval computes such symbols from their parts. */
const ir_dim *ir_dim_max(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* floor(a / n), n > 0: the exact quotient when there is one; else terms that n divides are divided,
 * and the rest is the opaque symbol `a/n` that ir_dim_eval computes. */
const ir_dim *ir_dim_floordiv(ir_dims *dims, const ir_dim *a, int64_t n);

bool ir_dim_is_const(const ir_dim *dim, int64_t *value); /* false for NULL */
/* Replaces symbols: those in `from` by those in `to`, simultaneously. */
const ir_dim *ir_dim_substitute(ir_dims *dims, const ir_dim *dim, int n, const ir_dim *const *from,
                                const ir_dim *const *to);

/* Values of symbols for ir_dim_eval: returns false when the symbol has none. */
typedef bool ir_dim_lookup(void *arg, const char *symbol, int64_t *value);
bool ir_dim_eval(const ir_dim *dim, ir_dim_lookup *lookup, void *arg, int64_t *value);
/* True when dim is a lone symbol; its name. False for max and floordiv, which are computed. */
bool ir_dim_is_symbol(const ir_dim *dim, const char **name);

void ir_dim_print(gqac_str *out, const ir_dim *dim); /* NULL prints "?" */
/* Parses what ir_dim_print writes, from *text on, and sets *text after it. NULL on a syntax error
 * or for "?" (then *ok is true). */
const ir_dim *ir_dim_parse(ir_dims *dims, const char **text, bool *ok);

#endif
