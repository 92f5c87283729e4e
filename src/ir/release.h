/* Memory of mapped constants: ir_module.copied. */
#ifndef GQAC_IR_RELEASE_H
#define GQAC_IR_RELEASE_H

#include "ir/ir.h"

/* To be called after constant data were copied, hashed or written and will not be needed soon:
 * pages of a mapped file can then be released. */
static inline void ir_data_done(const ir_module *module, const void *data, size_t bytes) {
    if (module->copied)
        module->copied(module->copied_arg, data, bytes);
}

#endif
