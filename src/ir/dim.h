/* Dimensions: integer polynomials over named symbols ("P+S", "2*S", "B*S"), interned so that equal
 * polynomials are the same pointer. Symbols stand for integers >= 0; a length that is computed at
 * run time has a symbol of its own. NULL means "not known". Every operation on NULL returns NULL,
 * and so does one that overflows, exceeds a limit (64 terms, degree 8, 4096 bytes of text;
 * docs/ir.md) or runs out of memory (see ir_dims_failed). */
#ifndef GQAC_IR_DIM_H
#define GQAC_IR_DIM_H

#include "base/arena.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ir_dims ir_dims; /* the intern table; lives in an arena */
typedef struct ir_dim ir_dim;

ir_dims *ir_dims_create(gqac_arena *arena); /* NULL: out of memory */
bool ir_dims_failed(const ir_dims *dims);   /* true: an allocation has failed */

const ir_dim *ir_dim_const(ir_dims *dims, int64_t value);
/* The symbol with that name, which may be any text: "P+S" is a symbol here, and a polynomial only
 * for ir_dim_parse. Symbols print bare if they are identifiers, else in back-quotes. */
const ir_dim *ir_dim_symbol(ir_dims *dims, const char *name);
/* A new symbol, named hint, hint.1, hint.2, ... */
const ir_dim *ir_dim_fresh(ir_dims *dims, const char *hint);
const ir_dim *ir_dim_add(ir_dims *dims, const ir_dim *a, const ir_dim *b);
const ir_dim *ir_dim_sub(ir_dims *dims, const ir_dim *a, const ir_dim *b);
const ir_dim *ir_dim_mul(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* The quotient if b divides a as polynomials; else NULL. */
const ir_dim *ir_dim_div_exact(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* max(a, b): a or b if a - b has only non-negative (or non-positive) coefficients, else the opaque
 * symbol `max(a,b)`. ir_dim_eval computes such symbols from their parts. */
const ir_dim *ir_dim_max(ir_dims *dims, const ir_dim *a, const ir_dim *b);
/* floor(a / n), n > 0: the exact quotient if there is one; else terms that n divides are divided,
 * and the rest becomes the opaque symbol `a/n`, which ir_dim_eval computes. */
const ir_dim *ir_dim_floordiv(ir_dims *dims, const ir_dim *a, int64_t n);

bool ir_dim_is_const(const ir_dim *dim, int64_t *value); /* false for NULL */
/* Replaces symbols: those in `from` by those in `to`, simultaneously. */
const ir_dim *ir_dim_substitute(ir_dims *dims, const ir_dim *dim, int n, const ir_dim *const *from,
                                const ir_dim *const *to);

/* Returns the value of a symbol for ir_dim_eval; false: it has none. */
typedef bool ir_dim_lookup(void *arg, const char *symbol, int64_t *value);
bool ir_dim_eval(const ir_dim *dim, ir_dim_lookup *lookup, void *arg, int64_t *value);
/* True if dim is a single symbol, whose name is stored; false for max and floor divisions. */
bool ir_dim_is_symbol(const ir_dim *dim, const char **name);

void ir_dim_print(gqac_str *out, const ir_dim *dim); /* NULL prints "?" */
/* Parses text of ir_dim_print from *text on, and sets *text to its end. NULL: a syntax error (*ok
 * is false), or "?" (*ok is true). */
const ir_dim *ir_dim_parse(ir_dims *dims, const char **text, bool *ok);

#endif
