/* Monitors: progress of a long call, and a way to end it.
 *
 * gqac_context_set_monitor sets the monitor of a context's steps and stateless runs;
 * gqac_options.monitor is that of opening and compiling a model. The functions of a monitor are
 * called on the thread that made the monitored call, and never after that call has returned. They
 * must not use the context, sequences or program of the call, and should be quick, because they are
 * called often. */
#ifndef GQAC_MONITOR_H
#define GQAC_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_monitor {
    size_t size;
    /* Returns true to end the call with ABORTED. A step, a run or a compilation then changes
     * nothing: no sequence has new tokens, no file is written, and the context can be used again.
     * gqac_generate keeps the steps that were complete; gqac_prefill leaves the sequence empty. The
     * function is called after each node of a graph and about every millisecond inside long nodes;
     * between the passes of a compilation; and every few MiB of weights (but not while text IR is
     * written, nor while waiting for a disk). NULL: the call runs to its end. */
    bool (*abort)(void *arg);
    /* Receives the progress of the call: `done` of `total`; done never decreases, total > 0. NULL:
     * no reports.
     *   gqac_step: tokens. All tokens of a step go through the model together, node by node, so
     *     `done` is the number of tokens times the share of nodes that have run. `total` includes
     *     tokens that are computed again after a rewind. done == total is reported before the new
     *     lengths are published, so the step can still be aborted then.
     *   gqac_run: nodes of the graph.
     *   gqac_generate: tokens of the prompts; tokens of answers are not reported.
     *   gqac_program_open, gqac_compile, gqac_rewrite: bytes of weights that were packed, hashed
     *     and written. total is an estimate until all weights are packed, and may change.
     */
    void (*progress)(void *arg, int64_t done, int64_t total);
    void *arg;
} gqac_monitor;

#ifdef __cplusplus
}
#endif
#endif
