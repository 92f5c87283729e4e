/* Building graphs, for expansions and passes. A call reads like the line of a dump:
 *
 *     %lo, %hi = visible_range %past_len, %new_len, %q {causal=1, window=8}
 *
 *     OP_BUILD(b, "visible_range", .in = {past_len, new_len, q},
 *              .ints = {{"causal", 1}, {"window", 8}}, .out = {&lo, &hi});
 *
 * The first failure stays in b->status, and all later builds return NULL. So a function need not
 * check each build; its caller checks the status once. */
#ifndef GQAC_OPS_BUILD_H
#define GQAC_OPS_BUILD_H

#include "ops/op.h"

enum {
    OP_LINE_INPUTS = 16,
    OP_LINE_OUTPUTS = 4,
    OP_LINE_INTS = 8,
    OP_LINE_FLOATS = 4,
    OP_LINE_TEXTS = 2
};

/* One node. Everything but the inputs may be left out. */
typedef struct op_line {
    /* Values, NULL for absent inputs. Absent optional inputs at the end are not passed. `list` is
     * used instead for any number of values. */
    ir_value *in[OP_LINE_INPUTS];
    struct {
        int n;
        ir_value *const *values;
    } list;
    /* Where the results are stored; NULL: that result is not used. Empty: the node has one
     * result. */
    ir_value **out[OP_LINE_OUTPUTS];
    /* Attributes by name; an entry whose name is NULL is left out. An attribute that the op does
     * not have, or has of another kind, is an INTERNAL failure. Lists and texts are copied. */
    struct {
        const char *name;
        int64_t value;
    } ints[OP_LINE_INTS];
    struct {
        const char *name;
        float value;
    } floats[OP_LINE_FLOATS];
    struct {
        const char *name;
        gqac_dtype value;
    } dtype;
    struct {
        const char *name, *value;
    } text[OP_LINE_TEXTS];
    struct {
        const char *name;
        int64_t n;
        const int64_t *values;
    } numbers;
    /* A node whose attributes are copied: those named in `same`, or all if it is empty. Attributes
     * given above take precedence. Graphs are not copied. */
    const ir_node *of;
    const char *same[OP_LINE_INTS];
} op_line;

/* Builds a node of an op, by its name in dumps ("Add", "rotary", "com.microsoft.MoE"), and returns
 * its first result. gcc and clang evaluate initialisers from left to right, although C leaves the
 * order open. Arguments of a function call have no common order: do not build two nodes in the
 * arguments of one call, or names in a dump depend on the compiler. */
#define OP_BUILD(b, op, ...) op_build_line((b), (op), &(op_line){__VA_ARGS__})
ir_value *op_build_line(ir_builder *b, const char *op, const op_line *line);

/* The integers as a constant, i64 [n]. */
#define OP_I64S(b, ...)                                                                            \
    ir_build_i64s((b), (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),              \
                  (int64_t[]){__VA_ARGS__})

/* Fails the builder with UNSUPPORTED at a node, unless it has failed already. */
void op_refuse(ir_builder *b, const ir_node *node, const char *fmt, ...) GQAC_PRINTF(3, 4);

/* A constant of `graph`; the caller fills in its data, which are uninitialised. */
ir_value *op_build_constant(ir_builder *b, ir_graph *graph, const char *name, gqac_dtype dtype,
                            int rank, const int64_t *dims, void **data);
/* x as type `to`. */
ir_value *op_build_cast(ir_builder *b, ir_value *x, gqac_dtype to);
/* x rounded to bf16, stored as f32: a factor of --math bf16, for targets without a kernel. */
ir_value *op_build_rounded(ir_builder *b, ir_value *x);
/* The lengths of n axes of x, from axis `first` on: i64 [n]. */
ir_value *op_build_lengths(ir_builder *b, ir_value *x, int first, int n);
/* The length of one axis: i64 []. */
ir_value *op_build_length(ir_builder *b, ir_value *x, int axis);
/* n values concatenated along an axis. */
ir_value *op_build_concat(ir_builder *b, int64_t axis, int n, ir_value *const *values);
/* x with another shape, where 0 copies a length and -1 is inferred. */
#define OP_RESHAPE(b, x, ...) OP_BUILD(b, "Reshape", .in = {x, OP_I64S(b, __VA_ARGS__)})
/* x with its axes in another order. */
#define OP_TRANSPOSE(b, x, ...)                                                                    \
    op_build_transpose((b), (x), (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),    \
                       (int64_t[]){__VA_ARGS__})
ir_value *op_build_transpose(ir_builder *b, ir_value *x, int64_t n, const int64_t *perm);

#endif
