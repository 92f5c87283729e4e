/* Monitors: progress of a long call, and a way to end it.
 *
 * A context takes a monitor for its steps and stateless runs (gqac_context_set_monitor); the
 * options of a model take one for opening and compiling (gqac_options.monitor). The thread that
 * made the call invokes its functions between pieces of work, until the call returns. The functions
 * must not use the context, sequences or program of the call, and should be quick: they are invoked
 * often. */
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
    /* Returns true to end the call with ABORTED. A step, a run or a compilation then leaves
     * everything as it was: no sequence has new tokens, no file is written, and the context can be
     * used again. gqac_generate keeps the steps that were complete; gqac_prefill leaves the
     * sequence empty. It is called after each node of a graph and about every millisecond inside
     * long nodes; between the passes of a compilation; and every few MiB of weights (but not while
     * text is written, nor while waiting for a disk). NULL: the call runs to its end. */
    bool (*abort)(void *arg);
    /* Reports how far the call is: `done` never decreases, total > 0. NULL: no reports.
     *   gqac_step: tokens. All tokens of a step go through the model together, node by node, so
     *     `done` is the share of nodes that have run, times the tokens. total includes tokens that
     *     are computed again after a rewind. done == total is reported before the new lengths are
     *     published: the step can still be aborted then.
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
