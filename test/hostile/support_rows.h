/* Valid graphs of one op, for tests that spoil them. One row serves several ops. An op without a
 * row is tried with tensors of a few simple shapes. */
#ifndef GQAC_TEST_HOSTILE_SUPPORT_ROWS_H
#define GQAC_TEST_HOSTILE_SUPPORT_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/op.h"
#include "targets/target.h"

enum { ROW_INPUTS = 24, ROW_OUTPUTS = 4, ROW_TEXT = 1 << 16, ROW_DATA = 160 };

typedef struct row_seed {
    const char *ops;    /* names with their domains (except "gqac"), separated by blanks */
    const char *attrs;  /* "axis=1, to=f16" */
    const char *inputs; /* "f32[2,3] | _ | i64[2]=1,2"; without data, small numbers are generated */
    int n_out;          /* 0: all outputs of the schema, at most ROW_OUTPUTS */
} row_seed;
extern const row_seed row_seeds[];
extern const size_t n_row_seeds;
/* Seed number `n` of an op; NULL: it has no more. */
const row_seed *row_seed_of(const ir_schema *op, int n);

typedef struct row_input {
    bool absent;
    char dtype[8]; /* "f32", also "token" */
    int rank;
    int64_t dims[GQAC_MAX_RANK + 1];
    char data[ROW_DATA]; /* of a constant; empty: generated */
} row_input;

typedef struct row_graph {
    const ir_schema *op;
    char attrs[1024];
    int n_in;
    row_input in[ROW_INPUTS];
    int n_out;
    unsigned named, read; /* outputs with a name, and outputs that are results of the graph */
} row_graph;

/* Which operands are inputs of the graph; the others are constants. */
typedef enum row_mode {
    ROW_CONSTANTS,
    ROW_INPUTS_KNOWN,   /* all, with the types and shapes of the operands */
    ROW_INPUTS_UNKNOWN, /* all, of unknown shape */
    ROW_MODES,
    ROW_WEIGHTS = ROW_MODES, /* only the first one: kernels read the others as weights */
    ROW_TABLE                /* all except the first one */
} row_mode;

/* The graph of a seed, with all outputs named and read. */
row_graph row_open(const ir_schema *op, const row_seed *seed);
/* Sets an attribute, replacing its value. */
void row_set_attr(row_graph *graph, const char *name, const char *value);
int64_t row_count(const row_input *in); /* elements; -1: more than 2^20 */
/* Its text; false if it would be longer than ROW_TEXT. */
bool row_text(const row_graph *graph, row_mode mode, char *text);
/* True if the target has a kernel of its own for the op in this mode. */
bool row_has_kernel(const row_graph *graph, row_mode mode, const gqac_target *target);
/* The text of a graph that consists of constants with the names of the graph's inputs, which are
 * the inputs of gqac_run. */
bool row_values(const row_graph *graph, row_mode mode, char *text);
/* True if there is a device for target gpu. It is opened in a process of its own, because a
 * driver's threads do not survive a fork. This also compiles the kernels, which are then cached on
 * disk: the time of a graph is limited. */
bool row_has_device(void);

#endif
