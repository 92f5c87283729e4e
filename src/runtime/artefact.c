/* Writing and opening artefacts; the layout is drawn in artefact.h. */
#include "runtime/artefact.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "ops/op.h"

enum { VERSION = 1, BYTE_ORDER_MARK = 0x01020304, PAGE = 4096, LINE = 64 };
enum { META, GRAPH, TENSORS, WEIGHTS, SECTIONS };
static const char magic[8] = "GQACART";
static const char *const section_names[SECTIONS] = {"meta", "graph", "tensors", "weights"};

typedef struct header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t length;
    uint32_t sections, zero;
    unsigned char digest[32]; /* of this header with digest zero, then the table */
} header;

typedef struct section {
    char name[8];
    uint64_t offset, length, zero;
    unsigned char digest[32];
} section;

typedef struct tensor_row {
    uint64_t offset, bytes;
} tensor_row;

_Static_assert(sizeof(header) == LINE && sizeof(section) == LINE, "file layout");

static uint64_t align_up(uint64_t offset, uint64_t alignment) {
    return (offset + alignment - 1) / alignment * alignment;
}

static uint64_t section_alignment(int s) {
    return s == WEIGHTS ? PAGE : LINE;
}

static void sha256(const void *data, size_t bytes, unsigned char digest[32]) {
    gqac_sha256 state;
    gqac_sha256_init(&state);
    if (bytes)
        gqac_sha256_update(&state, data, bytes);
    gqac_sha256_final(&state, digest);
}

static void head_digest(const header *h, const section *table, unsigned char digest[32]) {
    header clean = *h;
    gqac_sha256 state;
    memset(clean.digest, 0, sizeof clean.digest);
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, &clean, sizeof clean);
    gqac_sha256_update(&state, table, SECTIONS * sizeof *table);
    gqac_sha256_final(&state, digest);
}

/* ---- large constants ----------------------------------------------------- */

/* Calls f for each constant that the text holds by digest, in the order of the text. */
typedef gqac_status constant_visitor(void *arg, ir_value *value, gqac_diag *diag);

typedef struct visit {
    constant_visitor *f;
    void *arg;
    gqac_diag *diag;
} visit;

static gqac_status visit_graph(const visit *v, ir_graph *graph) {
    for (int i = 0; i < graph->n_constants; i++)
        if (ir_prints_digest(graph->constants[i]))
            GQAC_TRY(v->f(v->arg, graph->constants[i], v->diag));
    for (ir_node *n = graph->first; n; n = n->next)
        for (const ir_attr_spec *spec = n->op->attrs; spec && spec->name; spec++)
            if (n->attrs[spec - n->op->attrs].graph)
                GQAC_TRY(visit_graph(v, n->attrs[spec - n->op->attrs].graph));
    return GQAC_OK;
}

/* ---- writing ------------------------------------------------------------- */

typedef struct layout {
    tensor_row *rows;
    size_t count, capacity;
    uint64_t bytes; /* of the weights section so far */
    gqac_sha256 digest;
    uint64_t hashed;
    gqac_writer *writer; /* second visit */
} layout;

static const unsigned char zeros[PAGE];

static gqac_status measure(void *arg, ir_value *value, gqac_diag *diag) {
    layout *l = arg;
    if (value->digest)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "constant '%s' has no data: the text is a dump",
                  value->name);
    if (l->count == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 64;
        tensor_row *rows = gqac_realloc(l->rows, capacity * sizeof *rows);
        if (!rows)
            return gqac_diag_oom(diag, "an artefact");
        l->rows = rows;
        l->capacity = capacity;
    }
    const size_t bytes = gqac_tensor_bytes(value->constant);
    const uint64_t offset = align_up(l->bytes, LINE);
    gqac_sha256_update(&l->digest, zeros, offset - l->bytes);
    gqac_sha256_update(&l->digest, value->constant->data, bytes);
    l->rows[l->count++] = (tensor_row){offset, bytes};
    l->bytes = offset + bytes;
    return GQAC_OK;
}

static gqac_status emit(void *arg, ir_value *value, gqac_diag *diag) {
    layout *l = arg;
    const tensor_row *row = &l->rows[l->count++];
    GQAC_TRY(gqac_writer_write(l->writer, zeros, row->offset - l->bytes, diag));
    l->bytes = row->offset + row->bytes;
    return gqac_writer_write(l->writer, value->constant->data, row->bytes, diag);
}

static gqac_status pad(gqac_writer *w, uint64_t offset, gqac_diag *diag) {
    while (gqac_writer_offset(w) < offset) {
        const uint64_t left = offset - gqac_writer_offset(w);
        GQAC_TRY(gqac_writer_write(w, zeros, left < PAGE ? (size_t)left : PAGE, diag));
    }
    return GQAC_OK;
}

/* The lines of the meta section, in order. */
static const struct {
    const char *key;
    size_t field; /* offset of a const char * in artefact_meta */
} meta_rows[] = {
    {"target ", offsetof(artefact_meta, target)},
    {"math ", offsetof(artefact_meta, math)},
    {"profile ", offsetof(artefact_meta, profile)},
    {"seqlens-k ", offsetof(artefact_meta, seqlens_k)},
    {"legacy-window ", offsetof(artefact_meta, legacy_window)},
    {"digest ", offsetof(artefact_meta, source_digest)},
    {"source ", offsetof(artefact_meta, source)},
};
enum { META_ROWS = sizeof meta_rows / sizeof *meta_rows };

static void print_meta(gqac_str *out, const artefact_meta *m) {
    for (int i = 0; i < META_ROWS; i++)
        gqac_str_printf(out, "%s%s\n", meta_rows[i].key,
                        *(const char *const *)(const void *)((const char *)m + meta_rows[i].field));
}

/* Places the sections and fills header and table. */
static void place(header *h, section *table, const gqac_str *meta, const gqac_str *graph,
                  layout *l) {
    const uint64_t lengths[SECTIONS] = {meta->length, graph->length, l->count * sizeof *l->rows,
                                        l->bytes};
    const void *const data[SECTIONS] = {meta->text, graph->text, l->rows, NULL};
    uint64_t end = sizeof *h + SECTIONS * sizeof *table;
    for (int s = 0; s < SECTIONS; s++) {
        memcpy(table[s].name, section_names[s], strlen(section_names[s]));
        table[s].offset = align_up(end, section_alignment(s));
        table[s].length = lengths[s];
        end = table[s].offset + lengths[s];
        if (s == WEIGHTS)
            gqac_sha256_final(&l->digest, table[s].digest);
        else
            sha256(data[s], (size_t)lengths[s], table[s].digest);
    }
    memcpy(h->magic, magic, sizeof magic);
    h->version = VERSION;
    h->byte_order = BYTE_ORDER_MARK;
    h->length = end;
    h->sections = SECTIONS;
    head_digest(h, table, h->digest);
}

static gqac_status write_all(gqac_writer *w, const ir_module *module, const gqac_str *meta,
                             const gqac_str *graph, layout *l, gqac_diag *diag) {
    header h = {0};
    section table[SECTIONS] = {0};
    place(&h, table, meta, graph, l);
    GQAC_TRY(gqac_writer_write(w, &h, sizeof h, diag));
    GQAC_TRY(gqac_writer_write(w, table, sizeof table, diag));
    GQAC_TRY(pad(w, table[META].offset, diag));
    GQAC_TRY(gqac_writer_write(w, meta->text, meta->length, diag));
    GQAC_TRY(pad(w, table[GRAPH].offset, diag));
    GQAC_TRY(gqac_writer_write(w, graph->text, graph->length, diag));
    GQAC_TRY(pad(w, table[TENSORS].offset, diag));
    GQAC_TRY(gqac_writer_write(w, l->rows, l->count * sizeof *l->rows, diag));
    GQAC_TRY(pad(w, table[WEIGHTS].offset, diag));
    l->writer = w;
    l->count = 0;
    l->bytes = 0;
    return visit_graph(&(visit){emit, l, diag}, module->graph);
}

gqac_status artefact_write(const char *path, const ir_module *module, const artefact_meta *meta,
                           gqac_diag *diag) {
    gqac_str meta_text = {0}, graph_text = {0};
    layout l = {0};
    gqac_writer *w = NULL;
    print_meta(&meta_text, meta);
    ir_print(&graph_text, module, IR_PRINT_DIGEST);
    gqac_sha256_init(&l.digest);
    gqac_status status = visit_graph(&(visit){measure, &l, diag}, module->graph);
    if (status == GQAC_OK && (meta_text.failed || graph_text.failed))
        status = gqac_diag_oom(diag, "an artefact");
    if (status == GQAC_OK)
        status = gqac_writer_open(path, &w, diag);
    if (status == GQAC_OK)
        status = write_all(w, module, &meta_text, &graph_text, &l, diag);
    if (status == GQAC_OK)
        status = gqac_writer_commit(w, diag);
    else if (w)
        gqac_writer_abort(w);
    gqac_str_free(&meta_text);
    gqac_str_free(&graph_text);
    gqac_free(l.rows);
    return status;
}

/* ---- opening ------------------------------------------------------------- */

static gqac_status damaged(const char *path, gqac_diag *diag, const char *what) {
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "the artefact is damaged or foreign: %s", what);
    gqac_diag_where(diag, "%s", path);
    gqac_diag_hint(diag, "compile the model again with this version of gqac");
    return GQAC_INVALID_MODEL;
}

static gqac_status check_head(const char *path, const gqac_map *map, const section **table,
                              gqac_diag *diag) {
    unsigned char digest[32];
    const header *h = (const void *)map->data;
    const section *t = (const void *)(map->data + sizeof *h);
    if (map->size < sizeof *h + SECTIONS * sizeof *t)
        return damaged(path, diag, "it is shorter than its header");
    if (memcmp(h->magic, magic, sizeof magic))
        return damaged(path, diag, "it does not start with the magic of a .gqac file");
    if (h->byte_order != BYTE_ORDER_MARK)
        return damaged(path, diag, "it has another byte order");
    if (h->version != VERSION)
        return damaged(path, diag, "it has another format version");
    if (h->sections != SECTIONS)
        return damaged(path, diag, "it has another number of sections");
    head_digest(h, t, digest);
    if (memcmp(digest, h->digest, sizeof digest))
        return damaged(path, diag, "the checksum of its header is wrong");
    if (h->length != map->size)
        return damaged(path, diag, "its length is not the one in its header");
    uint64_t end = sizeof *h + SECTIONS * sizeof *t;
    for (int s = 0; s < SECTIONS; s++) {
        const uint64_t offset = align_up(end, section_alignment(s));
        if (strncmp(t[s].name, section_names[s], sizeof t[s].name) || t[s].offset != offset ||
            offset > map->size || t[s].length > map->size - offset)
            return damaged(path, diag, "its section table is wrong");
        for (uint64_t i = end; i < offset; i++)
            if (map->data[i])
                return damaged(path, diag, "padding between sections is not zero");
        end = offset + t[s].length;
    }
    if (end != map->size)
        return damaged(path, diag, "it has bytes behind its last section");
    *table = t;
    return GQAC_OK;
}

static gqac_status check_section(const char *path, const gqac_map *map, const section *table, int s,
                                 gqac_diag *diag) {
    unsigned char digest[32];
    char what[64];
    sha256(map->data + table[s].offset, (size_t)table[s].length, digest);
    if (!memcmp(digest, table[s].digest, sizeof digest))
        return GQAC_OK;
    snprintf(what, sizeof what, "the checksum of section '%s' is wrong", section_names[s]);
    return damaged(path, diag, what);
}

static gqac_status parse_meta(const char *path, gqac_arena *arena, const gqac_map *map,
                              const section *s, artefact_meta *m, gqac_diag *diag) {
    char *at = gqac_arena_strndup(arena, (const char *)map->data + s->offset, (size_t)s->length);
    if (!at)
        return gqac_diag_oom(diag, "an artefact");
    const char *const all = at;
    for (int i = 0; i < META_ROWS; i++) {
        const size_t n = strlen(meta_rows[i].key);
        char *end = strchr(at, '\n');
        if (!end || strncmp(at, meta_rows[i].key, n))
            return damaged(path, diag, "its meta section does not parse");
        *end = 0;
        *(const char **)(void *)((char *)m + meta_rows[i].field) = at + n;
        at = end + 1;
    }
    if ((size_t)(at - all) != s->length)
        return damaged(path, diag, "its meta section has lines too many");
    return GQAC_OK;
}

typedef struct binder {
    const char *path;
    gqac_arena *arena;
    const gqac_map *map;
    const section *table;
    size_t next;
} binder;

static gqac_status bind(void *arg, ir_value *value, gqac_diag *diag) {
    binder *b = arg;
    const section *rows = &b->table[TENSORS], *weights = &b->table[WEIGHTS];
    if (b->next >= rows->length / sizeof(tensor_row))
        return damaged(b->path, diag, "it has fewer tensors than its graph");
    tensor_row row;
    memcpy(&row, b->map->data + rows->offset + b->next++ * sizeof row, sizeof row);
    gqac_tensor *t = gqac_arena_copy(b->arena, value->constant, sizeof *t);
    if (!t)
        return gqac_diag_oom(diag, "an artefact");
    if (row.bytes != gqac_tensor_bytes(t) || row.offset % LINE || row.offset > weights->length ||
        row.bytes > weights->length - row.offset)
        return damaged(b->path, diag, "a tensor lies outside of its weights");
    t->data = (void *)(uintptr_t)(b->map->data + weights->offset + row.offset);
    value->constant = t;
    value->digest = NULL;
    return GQAC_OK;
}

static gqac_status open_mapped(const char *path, gqac_arena *arena, ir_module **module,
                               artefact_meta *meta, const gqac_map *map, gqac_diag *diag) {
    const section *table = NULL;
    GQAC_TRY(check_head(path, map, &table, diag));
    for (int s = META; s < WEIGHTS; s++)
        GQAC_TRY(check_section(path, map, table, s, diag));
    GQAC_TRY(parse_meta(path, arena, map, &table[META], meta, diag));
    char *text = gqac_alloc((size_t)table[GRAPH].length + 1);
    if (!text)
        return gqac_diag_oom(diag, "an artefact");
    memcpy(text, map->data + table[GRAPH].offset, (size_t)table[GRAPH].length);
    text[table[GRAPH].length] = 0;
    gqac_status status = ir_parse(arena, text, op_schema, module, diag);
    gqac_free(text);
    if (status != GQAC_OK) {
        gqac_diag_where(diag, "%s, graph", path);
        return status;
    }
    binder b = {path, arena, map, table, 0};
    GQAC_TRY(visit_graph(&(visit){bind, &b, diag}, (*module)->graph));
    if (b.next != table[TENSORS].length / sizeof(tensor_row) ||
        table[TENSORS].length % sizeof(tensor_row))
        return damaged(path, diag, "it has more tensors than its graph");
    return GQAC_OK;
}

gqac_status artefact_open(const char *path, gqac_arena *arena, ir_module **module,
                          artefact_meta *meta, gqac_map *map, gqac_diag *diag) {
    GQAC_TRY(gqac_map_file(path, map, diag));
    gqac_status status = open_mapped(path, arena, module, meta, map, diag);
    if (status != GQAC_OK)
        gqac_unmap(map);
    return status;
}

gqac_status artefact_verify(const char *path, gqac_diag *diag) {
    gqac_map map;
    GQAC_TRY(gqac_map_file(path, &map, diag));
    const section *table = NULL;
    gqac_status status = check_head(path, &map, &table, diag);
    for (int s = META; s < SECTIONS && status == GQAC_OK; s++)
        status = check_section(path, &map, table, s, diag);
    gqac_unmap(&map);
    return status;
}

bool artefact_is(const char *path) {
    gqac_map map;
    if (gqac_map_file(path, &map, NULL) != GQAC_OK)
        return false; /* whoever reads it says why */
    const bool is = map.size >= sizeof magic && !memcmp(map.data, magic, sizeof magic);
    gqac_unmap(&map);
    return is;
}
