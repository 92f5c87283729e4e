/* A flag that ends calls: a ready-made gqac_monitor.abort.
 *
 *   bool stop = false;
 *   gqac_monitor monitor = {.size = sizeof monitor, .abort = gqac_stop_requested, .arg = &stop};
 *   gqac_context_set_monitor(context, &monitor, NULL, &diag);
 *
 * Another thread or a signal handler sets the flag, and the call ends with ABORTED. */
#ifndef GQAC_STOP_H
#define GQAC_STOP_H

#include <gqac/status.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the bool that `flag` points to, read atomically. Set it atomically too, for instance with
 * __atomic_store_n. */
GQAC_API bool gqac_stop_requested(void *flag);

#ifdef __cplusplus
}
#endif
#endif
