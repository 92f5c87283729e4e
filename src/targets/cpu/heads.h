/* Heads of queries, keys or values from a projection: taken out of a packed row, or read as heads
 * [B,H,S,D], then normalised and rotated. */
#ifndef GQAC_TARGETS_CPU_HEADS_H
#define GQAC_TARGETS_CPU_HEADS_H

#include "ops/rotation.h"
#include "targets/cpu/rows.h"

/* Which heads to make, as bound. Value numbers are -1 where absent. */
typedef struct cpu_heads {
    op_origin origin;      /* for messages about x */
    int x;                 /* [B,S,width], or with width 0 [B,heads,S,size] */
    int64_t column, width; /* column of the first head; width of a packed row */
    int64_t heads, size;   /* heads 0: as many as x has */
    bool norms, rotates;
    int weight; /* of the norm, a root mean square over a head */
    float epsilon;
    bool round_before; /* the normalised value is rounded before the weight, and has its type */
    op_origin norm;
    int cos, sin, past_len, new_len, position_ids;
    bool interleaved;
    op_origin rotary;
} cpu_heads;

/* The heads of one call, with checked operands. */
typedef struct cpu_heads_run {
    const cpu_heads *of;
    int64_t batch, heads, rows;
    int64_t step_b, step_h, step_s; /* strides of x, in elements */
    const unsigned char *x;
    cpu_head p; /* p.type is that of the results */
    rotation r;
    const struct cpu_row_kernels *kernels;
} cpu_heads_run;

gqac_status cpu_heads_open(const target_call *call, const cpu_heads *of, cpu_heads_run *r);
/* Checks x alone, and sets the numbers of batch rows, heads and rows. */
gqac_status cpu_heads_count(const target_call *call, const cpu_heads *of, cpu_heads_run *r);
/* Computes rows [from, to) of a head of batch row b; y: the first of these rows. */
void cpu_heads_make(const cpu_heads_run *r, int64_t b, int64_t head, int64_t from, int64_t to,
                    unsigned char *y);

/* The kernel of a rotary, alone or with the nodes before it: y [B,H,S,D]. */
typedef struct cpu_heads_record {
    cpu_heads heads;
    int y;
} cpu_heads_record;
gqac_status cpu_heads_kernel(target_call *call, const void *record);

/* The heads that attention reads, made in one call (append.c). */
enum { CPU_STREAMS = 3 }; /* queries, keys, values */
typedef enum cpu_stream_end {
    CPU_TO_QUERIES, /* written to a value of their own */
    CPU_IN_PLACE,   /* queries that are read in place: their value has a shape, but no data */
    CPU_TO_BLOCKS,  /* written by a kv_append */
    CPU_TO_PRESENT, /* written by a concat_past_present */
} cpu_stream_end;

typedef struct cpu_stream {
    cpu_stream_end end;
    cpu_heads heads;
    int y;            /* queries or present */
    op_origin append; /* of keys and values, for messages */
    int token, rows;  /* results of kv_append */
    int slot;
    int past, past_len, new_len, total; /* operands of concat_past_present */
} cpu_stream;

typedef struct cpu_append_record {
    int n;
    cpu_stream streams[CPU_STREAMS];
} cpu_append_record;
gqac_status cpu_append_run(target_call *call, const void *record);
gqac_status cpu_append_scratch(const target_call *call, int threads, const void *record,
                               gqac_parts *parts);

#endif
