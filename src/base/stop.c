/* A flag that ends calls: see gqac/stop.h. */
#include <gqac/stop.h>

bool gqac_stop_requested(void *flag) {
    return __atomic_load_n((const bool *)flag, __ATOMIC_RELAXED);
}
