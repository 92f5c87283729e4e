/* The names of a module's values. A name that is in use gets the first free suffix of .1, .2, ...;
 * the search starts after the last one that was tried for that name, so a million requests for one
 * name take a million steps. Names of removed values stay in use, so dumps never use one name for
 * two values. */
#include "ir/impl.h"

#include <string.h>

typedef struct name_key {
    const char *text;
    size_t length;
} name_key;

static bool same_name(const void *item, const void *key) {
    const ir_name *name = item;
    const name_key *k = key;
    return name->length == k->length && memcmp(name->text, k->text, k->length) == 0;
}

bool ir_names_create(ir_module *module) {
    gqac_table *table = GQAC_ARENA_NEW(module->arena, gqac_table);
    if (!table)
        return false;
    gqac_table_init(table, module->arena);
    module->names = table;
    return true;
}

ir_name *ir_names_find(const ir_module *module, const char *text, size_t length) {
    const gqac_table *table = module->names;
    return gqac_table_find(table, gqac_hash_bytes(table->seed, text, length), same_name,
                           &(name_key){text, length});
}

static ir_name *add(ir_module *module, const char *text, size_t length) {
    gqac_table *table = module->names;
    ir_name *name = GQAC_ARENA_NEW(module->arena, ir_name);
    if (!name)
        return NULL;
    name->text = gqac_arena_strndup(module->arena, text, length);
    name->length = length;
    if (!name->text || !gqac_table_add(table, gqac_hash_bytes(table->seed, text, length), name))
        return NULL;
    return name;
}

ir_name *ir_names_claim(ir_module *module, const char *wanted) {
    if (!wanted || !*wanted)
        wanted = "v";
    size_t length = strlen(wanted);
    ir_name *base = ir_names_find(module, wanted, length);
    if (!base)
        return add(module, wanted, length);
    gqac_str text = {0};
    ir_name *name = NULL;
    while (base->next_suffix < INT32_MAX) {
        text.length = 0;
        gqac_str_append_n(&text, wanted, length);
        gqac_str_printf(&text, ".%d", ++base->next_suffix);
        if (text.failed)
            break;
        if (ir_names_find(module, text.text, text.length))
            continue;
        name = add(module, text.text, text.length);
        break;
    }
    gqac_str_free(&text);
    return name;
}
