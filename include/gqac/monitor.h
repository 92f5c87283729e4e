/* Watching a long call, and ending it.
 *
 * A monitor is given to a context (gqac_context_set_monitor: steps and stateless runs), to the
 * options of a model (gqac_options.monitor: opening and compiling) or to neither. Its functions are
 * called by the thread that made the call, between pieces of its work, until it returns. They must
 * not call back into what is being computed, and should return soon: they are called often. */
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
    /* True ends the call with ABORTED. A step, a run or a compilation leaves everything as it was:
     * no sequence has new tokens, no file is written, and the context can be used again;
     * gqac_generate keeps the steps that were complete, gqac_prefill leaves the sequence empty. It
     * is asked after each node of a graph and, about every millisecond, inside of long ones;
     * between the passes of a compilation and every few MiB of weights (but not while text is
     * written, or a disk is waited for). NULL: the call runs to its end. */
    bool (*abort)(void *arg);
    /* How far the call is: `done` never falls, total > 0. NULL: nobody wants to know.
     *   gqac_step: tokens. All tokens of a step go through the model together, node by node, so
     *     `done` is the share of its nodes that have run, times the tokens; total counts those that
     *     a rewind left to be computed again as well. done == total is told before the new lengths
     *     are published: a step can still be aborted then.
     *   gqac_run: nodes of the graph.
     *   gqac_generate: tokens of the prompts; answers are not told of.
     *   gqac_program_open, gqac_compile, gqac_rewrite: bytes of weights that were packed, hashed
     * and written. total is an estimate until all of them are packed, and may change. */
    void (*progress)(void *arg, int64_t done, int64_t total);
    void *arg;
} gqac_monitor;

#ifdef __cplusplus
}
#endif
#endif
