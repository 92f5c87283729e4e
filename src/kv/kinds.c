/* Cache kinds by name. A new kind is a new row. */
#include <string.h>

#include "base/str.h"
#include "kv/kv_impl.h"

static const kv_kind kinds[] = {
    {.name = "contiguous", .alias = "basic", .part = KV_WHOLE, .profile = ""},
    {.name = "paged", .part = KV_WHOLE, .dense = true, .profile = ""},
    {.name = "windowed", .part = KV_REST, .window = true, .profile = ""},
    {.name = "quantised", .alias = "int8", .part = KV_CODES, .profile = "/kv8"},
    {.name = "quantised4", .alias = "int4", .part = KV_CODES4, .profile = "/kv4"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* True if the names are equal, except for blanks around the first. */
static bool is_named(const char *name, const char *kind) {
    static const char blanks[] = " \t\r\n";
    const size_t n = kind ? strlen(kind) : 0;
    name += strspn(name, blanks);
    return n && !strncmp(name, kind, n) && !name[n + strspn(name + n, blanks)];
}

static gqac_status find(const char *name, const kv_kind **kind, gqac_diag *diag) {
    for (int i = 0; i < KINDS; i++)
        if (is_named(name, kinds[i].name) || is_named(name, kinds[i].alias)) {
            *kind = &kinds[i];
            return GQAC_OK;
        }
    gqac_str known = {0};
    for (int i = 0; i < KINDS; i++) {
        gqac_str_printf(&known, "%s%s", i ? ", " : "", kinds[i].name);
        if (kinds[i].alias)
            gqac_str_printf(&known, " (or %s)", kinds[i].alias);
    }
    gqac_diag_set(diag, GQAC_USAGE, "unknown cache kind '%s'", name);
    gqac_diag_rule(diag, "the kinds are %s", known.failed ? kinds[0].name : known.text);
    gqac_str_free(&known);
    return GQAC_USAGE;
}

gqac_status kv_pool_kind(const kv_pool *pool, const char *name, const kv_kind **kind,
                         gqac_diag *diag) {
    GQAC_TRY(find(name, kind, diag));
    if (!kv_part_bits((*kind)->part) || kv_pool_has_codes(pool))
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "the model cannot have a cache of the kind '%s'",
                  (*kind)->name);
    gqac_diag_rule(diag, "some layer caches keys and values of type f32, f16 or bf16");
    gqac_diag_hint(diag, "use the kind contiguous; `gqac inspect MODEL --kv` shows the types");
    return GQAC_UNSUPPORTED;
}
