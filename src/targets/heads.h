/* Heads of queries, keys or values from a projection: taken out of a packed row, or read as heads
 * [B,H,S,D], then normalised and rotated, and written to a value or appended to a cache. The
 * records of the kernels that do so (fuse_heads.h makes them), and the checks of their operands. */
#ifndef GQAC_TARGETS_HEADS_H
#define GQAC_TARGETS_HEADS_H

#include "ops/rotation.h"
#include "targets/call.h"

enum {
    TARGET_HEAD_SIZE = 1024, /* maximum elements of a head */
    TARGET_STREAMS = 3       /* queries, keys, values */
};

/* Which heads to make, as bound. Value numbers are -1 where absent. */
typedef struct target_heads {
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
} target_heads;

typedef enum target_stream_end {
    TARGET_TO_QUERIES, /* written to a value of their own */
    TARGET_IN_PLACE,   /* queries that are read in place: their value has a shape, but no data */
    TARGET_TO_BLOCKS,  /* written by a kv_append */
    TARGET_TO_PRESENT, /* written by a concat_past_present */
} target_stream_end;

typedef struct target_stream {
    target_stream_end end;
    target_heads heads;
    int y;            /* queries or present */
    op_origin append; /* of keys and values, for messages */
    int token, rows;  /* results of kv_append */
    int slot;
    int past, past_len, new_len, total; /* operands of concat_past_present */
    int bits, scale;                    /* bits of the codes that a kv_quantise makes; 0: none */
    bool per_channel;
    op_origin quantise;
} target_stream;

/* The heads that attention reads, made in one call. */
typedef struct target_streams {
    int n;
    target_stream streams[TARGET_STREAMS];
} target_streams;

/* The heads of one call, with checked operands. */
typedef struct target_heads_run {
    const target_heads *of;
    int64_t batch, heads, rows;
    int64_t step_b, step_h, step_s; /* strides of x, in elements */
    const gqac_tensor *x, *weight;  /* weight: NULL without a norm */
    gqac_dtype type;                /* of the results */
    bool round_before;              /* to the type of x, which has 16 bits */
    rotation r;
} target_heads_run;

gqac_status target_heads_open(const target_call *call, const target_heads *of, target_heads_run *r);
/* Checks x alone, and sets what follows from it. */
gqac_status target_heads_count(const target_call *call, const target_heads *of,
                               target_heads_run *r);

#endif
