/* What the tests of ops share: tensors and attributes written as text, and one call that evaluates
 * a node in every possible way (inferred from constants, from plain types, from symbols; with and
 * without threads) and checks that all ways agree.
 *
 *   "f32[2,3]: 1 2 3 4 5 6"   values; also nan, inf, -inf; "i64[]: 7"; "f32[0]:"
 *   "a | _ | b"               inputs; _ is absent
 *   "axis=1 perm=1,0 to=f16 mode='tanh' alpha=0.5f value=[i64[1]: 7]"    attributes */
#ifndef GQAC_TEST_OPS_SUPPORT_H
#define GQAC_TEST_OPS_SUPPORT_H

#include "../unit.h"
#include "base/arena.h"
#include "ops/op.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { SUPPORT_MAX = 16 };

/* One op on concrete tensors. */
typedef struct op_case {
    const char *domain, *op, *attrs, *inputs;
    const char *outputs; /* expected, separated by "|"; NULL: not compared */
    gqac_status status;  /* if not OK: the status that infer or eval must return */
    int opset;           /* if not 0: upgrade is called with it, and with `raw` */
    const char *raw;     /* attributes of the old form */
} op_case;

/* Runs a case; every disagreement is a CUnit failure with the name of the case. */
void run_case(const op_case *c);
void run_cases(const op_case *cases, size_t count);

/* For tests that make their own inputs. */
gqac_tensor *parse_tensor(gqac_arena *arena, const char *text, size_t length);
typedef struct op_probe {
    gqac_arena *arena;
    ir_module *module;
    int n_in, n_out;
    const gqac_tensor *in[SUPPORT_MAX];
    gqac_tensor out[SUPPORT_MAX];
    const char *op, *domain, *attrs;
    int opset;
    const char *raw;
    bool failed; /* a disagreement was found */
    gqac_diag diag;
} op_probe;
/* Tries all ways of infer and eval. Returns the first failing status among the ways that know the
 * values, or OK. */
gqac_status run_probe(op_probe *probe);

uint32_t random_below(uint64_t *state, uint32_t n);

#endif
