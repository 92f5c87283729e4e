/* Writing and opening artefacts; artefact.h describes the layout. */
#include "runtime/artefact.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "ir/release.h"
#include "ops/op.h"

enum { VERSION = 5, BAKED_VERSION = 6, BYTE_ORDER_MARK = 0x01020304, PAGE = 4096, LINE = 64 };
enum { META, GRAPH, TENSORS, WEIGHTS, SECTIONS };
enum { MOST_SECTIONS = SECTIONS + ARTEFACT_MAX_FILES + 1 };
static const char magic[8] = "GQACART";
static const char *const section_names[SECTIONS] = {"meta", "graph", "tensors", "weights"};
static const char file_prefix[] = "file:"; /* no other section name begins like this */
static const char baked_name[] = "baked";  /* the last section of BAKED_VERSION */
enum { PREFIX = sizeof file_prefix - 1 };

typedef struct header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t length;
    uint32_t sections, zero;
    unsigned char digest[32]; /* of this header with digest zero, then the table */
} header;

typedef struct section {
    char name[128]; /* the rest is zero */
    uint64_t offset, length, zero[2];
    unsigned char digest[32];
} section;

typedef struct tensor_row {
    uint64_t offset, bytes;
} tensor_row;

_Static_assert(sizeof(header) == LINE && sizeof(section) == 3 * LINE, "file layout");
_Static_assert(PREFIX + ARTEFACT_MAX_NAME < sizeof((section *)NULL)->name, "names end with NUL");

static uint64_t align_up(uint64_t offset, uint64_t alignment) {
    return (offset + alignment - 1) / alignment * alignment;
}

static bool is_baked(const header *h, uint32_t s) {
    return h->version == BAKED_VERSION && s + 1 == h->sections;
}

static uint64_t section_alignment(const header *h, uint32_t s) {
    return s == WEIGHTS || is_baked(h, s) ? PAGE : LINE;
}

static void sha256(const void *data, size_t bytes, unsigned char digest[32]) {
    gqac_sha256 state;
    gqac_sha256_init(&state);
    if (bytes)
        gqac_sha256_update(&state, data, bytes);
    gqac_sha256_final(&state, digest);
}

/* h->sections rows follow the header. */
static void head_digest(const header *h, const section *table, unsigned char digest[32]) {
    header clean = *h;
    gqac_sha256 state;
    memset(clean.digest, 0, sizeof clean.digest);
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, &clean, sizeof clean);
    gqac_sha256_update(&state, table, h->sections * sizeof *table);
    gqac_sha256_final(&state, digest);
}

/* ---- attached files ------------------------------------------------------ */

static bool is_plain(const char *name) {
    const size_t length = strnlen(name, ARTEFACT_MAX_NAME + 1);
    if (!length || length > ARTEFACT_MAX_NAME || !gqac_utf8_valid(name, length))
        return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '/' || name[i] == '\\')
            return false;
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

gqac_status artefact_check_files(int n, const gqac_attachment *files, gqac_status status,
                                 gqac_diag *diag) {
    if (n < 0 || n > ARTEFACT_MAX_FILES)
        GQAC_FAIL(diag, status, "%d attached files are too many: at most %d fit in an artefact", n,
                  ARTEFACT_MAX_FILES);
    for (int i = 0; i < n; i++) {
        if (!files[i].name || !is_plain(files[i].name)) {
            gqac_diag_set(diag, status, "attached file %d cannot have the name '%.*s'", i,
                          ARTEFACT_MAX_NAME, files[i].name ? files[i].name : "");
            gqac_diag_rule(diag,
                           "a name is a plain file name of at most %d bytes, without separators",
                           ARTEFACT_MAX_NAME);
            return status;
        }
        for (int k = 0; k < i; k++)
            if (!strcmp(files[k].name, files[i].name))
                GQAC_FAIL(diag, status, "two attached files are called '%s'", files[i].name);
        if (files[i].bytes > ARTEFACT_MAX_FILE_BYTES)
            GQAC_FAIL(diag, status, "attached file '%s' has %zu bytes, more than %d", files[i].name,
                      files[i].bytes, ARTEFACT_MAX_FILE_BYTES);
    }
    return GQAC_OK;
}

/* ---- large constants ----------------------------------------------------- */

/* Calls f for each constant that the text names by digest, in the order of the text. */
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
    for (const ir_node *n = graph->first; n; n = n->next) {
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(n, &at));)
            GQAC_TRY(visit_graph(v, inner));
    }
    return GQAC_OK;
}

/* ---- writing ------------------------------------------------------------- */

typedef struct layout {
    const ir_module *module;
    tensor_row *rows;
    size_t count, capacity;
    uint64_t bytes; /* of the weights section so far */
    gqac_sha256 digest;
    gqac_writer *writer; /* second visit */
    gqac_poll *poll;
} layout;

static const unsigned char zeros[PAGE];

/* Calls f for the bytes of a constant, piece by piece. Pages of a mapped file are released after
 * each, so that a constant that stays as it is in the file needs no memory. */
typedef gqac_status piece_function(layout *l, const void *data, size_t bytes, gqac_diag *diag);

static gqac_status in_pieces(layout *l, const gqac_tensor *constant, piece_function *f,
                             gqac_diag *diag) {
    const unsigned char *data = constant->data;
    const size_t bytes = gqac_tensor_bytes(constant);
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < GQAC_POLL_BYTES ? bytes - at : GQAC_POLL_BYTES;
        GQAC_TRY(f(l, data + at, n, diag));
        ir_data_done(l->module, data + at, n);
        GQAC_TRY(gqac_poll_add(l->poll, (int64_t)n, diag));
    }
    return GQAC_OK;
}

static gqac_status hash_piece(layout *l, const void *data, size_t bytes, gqac_diag *diag) {
    (void)diag;
    gqac_sha256_update(&l->digest, data, bytes);
    return GQAC_OK;
}

static gqac_status write_piece(layout *l, const void *data, size_t bytes, gqac_diag *diag) {
    return gqac_writer_write(l->writer, data, bytes, diag);
}

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
    l->rows[l->count++] = (tensor_row){offset, bytes};
    l->bytes = offset + bytes;
    return in_pieces(l, value->constant, hash_piece, diag);
}

static gqac_status emit(void *arg, ir_value *value, gqac_diag *diag) {
    layout *l = arg;
    const tensor_row *row = &l->rows[l->count++];
    GQAC_TRY(gqac_writer_write(l->writer, zeros, row->offset - l->bytes, diag));
    l->bytes = row->offset + row->bytes;
    return in_pieces(l, value->constant, write_piece, diag);
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
    {"per-row-quant ", offsetof(artefact_meta, per_row_quant)},
    {"disable ", offsetof(artefact_meta, disabled)},
    {"digest ", offsetof(artefact_meta, source_digest)},
    {"parameters ", offsetof(artefact_meta, parameters)},
    {"source ", offsetof(artefact_meta, source)},
};
enum { META_ROWS = sizeof meta_rows / sizeof *meta_rows };

static void print_meta(gqac_str *out, const artefact_meta *m) {
    for (int i = 0; i < META_ROWS; i++)
        gqac_str_printf(out, "%s%s\n", meta_rows[i].key,
                        *(const char *const *)(const void *)((const char *)m + meta_rows[i].field));
}

/* A new artefact, without the bytes of the weights: those are visited twice, for digests and for
 * writing. */
typedef struct draft {
    header head;
    section table[MOST_SECTIONS];
    const void *data[MOST_SECTIONS]; /* NULL: weights */
    gqac_str meta, graph;
    layout layout;
} draft;

static void add_section(draft *d, const char *prefix, const char *name, const void *data,
                        uint64_t length) {
    const uint32_t s = d->head.sections++;
    section *row = &d->table[s];
    snprintf(row->name, sizeof row->name, "%s%s", prefix, name);
    row->length = length;
    d->data[s] = data;
    if (s == WEIGHTS)
        gqac_sha256_final(&d->layout.digest, row->digest);
    else
        sha256(data, (size_t)length, row->digest);
}

/* Lays out the sections: fills header and table. */
static void place(draft *d, const artefact_parts *parts) {
    const layout *l = &d->layout;
    const uint64_t lengths[SECTIONS] = {d->meta.length, d->graph.length, l->count * sizeof *l->rows,
                                        l->bytes};
    const void *const data[SECTIONS] = {d->meta.text, d->graph.text, l->rows, NULL};
    for (int s = 0; s < SECTIONS; s++)
        add_section(d, "", section_names[s], data[s], lengths[s]);
    for (int i = 0; i < parts->n_files; i++)
        add_section(d, file_prefix, parts->files[i].name, parts->files[i].data,
                    parts->files[i].bytes);
    d->head.version = parts->baked ? BAKED_VERSION : VERSION;
    if (parts->baked)
        add_section(d, "", baked_name, parts->baked, parts->baked_bytes);
    uint64_t end = sizeof d->head + d->head.sections * sizeof *d->table;
    for (uint32_t s = 0; s < d->head.sections; s++) {
        d->table[s].offset = align_up(end, section_alignment(&d->head, s));
        end = d->table[s].offset + d->table[s].length;
    }
    memcpy(d->head.magic, magic, sizeof magic);
    d->head.byte_order = BYTE_ORDER_MARK;
    d->head.length = end;
    head_digest(&d->head, d->table, d->head.digest);
}

static gqac_status write_all(gqac_writer *w, const ir_module *module, draft *d, gqac_diag *diag) {
    GQAC_TRY(gqac_writer_write(w, &d->head, sizeof d->head, diag));
    GQAC_TRY(gqac_writer_write(w, d->table, d->head.sections * sizeof *d->table, diag));
    for (uint32_t s = 0; s < d->head.sections; s++) {
        GQAC_TRY(pad(w, d->table[s].offset, diag));
        if (s != WEIGHTS) {
            GQAC_TRY(gqac_writer_write(w, d->data[s], (size_t)d->table[s].length, diag));
            continue;
        }
        d->layout.writer = w;
        d->layout.count = 0;
        d->layout.bytes = 0;
        GQAC_TRY(visit_graph(&(visit){emit, &d->layout, diag}, module->graph));
    }
    return GQAC_OK;
}

static gqac_status write_draft(const char *path, const artefact_parts *parts, draft *d,
                               gqac_diag *diag) {
    gqac_writer *w = NULL;
    print_meta(&d->meta, &parts->meta);
    ir_print(&d->graph, parts->module, IR_PRINT_DIGEST);
    gqac_sha256_init(&d->layout.digest);
    GQAC_TRY(visit_graph(&(visit){measure, &d->layout, diag}, parts->module->graph));
    if (d->meta.failed || d->graph.failed)
        return gqac_diag_oom(diag, "an artefact");
    place(d, parts);
    GQAC_TRY(gqac_writer_open(path, &w, diag));
    gqac_status status = write_all(w, parts->module, d, diag);
    if (status == GQAC_OK)
        return gqac_writer_commit(w, diag);
    gqac_writer_abort(w);
    return status;
}

gqac_status artefact_write(const char *path, const artefact_parts *parts, gqac_poll *poll,
                           gqac_diag *diag) {
    GQAC_TRY(artefact_check_files(parts->n_files, parts->files, GQAC_USAGE, diag));
    draft *d = gqac_calloc(1, sizeof *d);
    if (!d)
        return gqac_diag_oom(diag, "an artefact");
    d->layout.module = parts->module;
    d->layout.poll = poll;
    gqac_status status = write_draft(path, parts, d, diag);
    gqac_str_free(&d->meta);
    gqac_str_free(&d->graph);
    gqac_free(d->layout.rows);
    gqac_free(d);
    return status;
}

/* ---- opening ------------------------------------------------------------- */

static gqac_status damaged(const char *path, gqac_diag *diag, const char *what) {
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "the artefact is damaged or foreign: %s", what);
    gqac_diag_where(diag, "%s", path);
    gqac_diag_hint(diag, "compile the model again with this version of gqac");
    return GQAC_INVALID_MODEL;
}

static bool is_named(const header *h, uint32_t s, const char *name) {
    if (s < SECTIONS || is_baked(h, s))
        return !strcmp(name, s < SECTIONS ? section_names[s] : baked_name);
    return !strncmp(name, file_prefix, PREFIX);
}

/* Checks the table: the sections that every artefact has, then files, then the baked prefix, each
 * starting where the one before ends. */
static gqac_status check_table(const char *path, const gqac_map *map, const header *h,
                               const section *t, gqac_diag *diag) {
    static const section clean;
    uint64_t end = sizeof *h + h->sections * sizeof *t;
    for (uint32_t s = 0; s < h->sections; s++) {
        const size_t n = strnlen(t[s].name, sizeof t[s].name);
        const uint64_t offset = align_up(end, section_alignment(h, s));
        if (n == sizeof t[s].name || memcmp(t[s].name + n, clean.name, sizeof t[s].name - n) != 0 ||
            !is_named(h, s, t[s].name) || t[s].zero[0] || t[s].zero[1] || t[s].offset != offset ||
            offset > map->size || t[s].length > map->size - offset)
            return damaged(path, diag, "its section table is wrong");
        for (uint64_t i = end; i < offset; i++)
            if (map->data[i])
                return damaged(path, diag, "padding between sections is not zero");
        end = offset + t[s].length;
    }
    return end == map->size ? GQAC_OK : damaged(path, diag, "it has bytes after its last section");
}

static uint32_t files_end(const header *h) {
    return h->sections - (h->version == BAKED_VERSION);
}

static int list_files(const header *h, const section *t, const gqac_map *map,
                      gqac_attachment *files) {
    const int n = (int)files_end(h) - SECTIONS;
    for (int i = 0; i < n; i++)
        files[i] = (gqac_attachment){.name = t[SECTIONS + i].name + PREFIX,
                                     .data = map->data + t[SECTIONS + i].offset,
                                     .bytes = (size_t)t[SECTIONS + i].length};
    return n;
}

static gqac_status check_head(const char *path, const gqac_map *map, const section **table,
                              gqac_diag *diag) {
    unsigned char digest[32];
    gqac_attachment files[MOST_SECTIONS];
    const header *h = (const void *)map->data;
    const section *t = (const void *)(map->data + sizeof *h);
    if (map->size < sizeof *h)
        return damaged(path, diag, "it is shorter than its header");
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return damaged(path, diag, "it does not start with the magic of a .gqac file");
    if (h->byte_order != BYTE_ORDER_MARK)
        return damaged(path, diag, "it has another byte order");
    if (h->version != VERSION && h->version != BAKED_VERSION)
        return damaged(path, diag, "it has another format version");
    if (files_end(h) < SECTIONS || h->sections > MOST_SECTIONS)
        return damaged(path, diag, "it has another number of sections");
    if (map->size < sizeof *h + h->sections * sizeof *t)
        return damaged(path, diag, "it is shorter than its section table");
    head_digest(h, t, digest);
    if (memcmp(digest, h->digest, sizeof digest) != 0)
        return damaged(path, diag, "the checksum of its header is wrong");
    if (h->length != map->size)
        return damaged(path, diag, "its length is not the one in its header");
    GQAC_TRY(check_table(path, map, h, t, diag));
    const int n = list_files(h, t, map, files);
    gqac_status status = artefact_check_files(n, files, GQAC_INVALID_MODEL, diag);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%s", path);
    *table = t;
    return status;
}

static gqac_status check_section(const char *path, const gqac_map *map, const section *table, int s,
                                 gqac_poll *poll, gqac_diag *diag) {
    unsigned char digest[32];
    char what[200];
    gqac_sha256 state;
    gqac_sha256_init(&state);
    GQAC_TRY(gqac_sha256_update_long(&state, map->data + table[s].offset, (size_t)table[s].length,
                                     poll, diag));
    gqac_sha256_final(&state, digest);
    if (!memcmp(digest, table[s].digest, sizeof digest))
        return GQAC_OK;
    snprintf(what, sizeof what, "the checksum of section '%s' is wrong", table[s].name);
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
        if (!end || strncmp(at, meta_rows[i].key, n) != 0)
            return damaged(path, diag, "its meta section does not parse");
        *end = 0;
        *(const char **)(void *)((char *)m + meta_rows[i].field) = at + n;
        at = end + 1;
    }
    if ((size_t)(at - all) != s->length)
        return damaged(path, diag, "its meta section has too many lines");
    return GQAC_OK;
}

typedef struct binder {
    const char *path;
    gqac_arena *arena;
    const gqac_map *map;
    const section *table;
    size_t next;
    uint64_t end; /* of the tensor before */
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
    if (row.bytes != gqac_tensor_bytes(t) || row.offset != align_up(b->end, LINE) ||
        row.offset > weights->length || row.bytes > weights->length - row.offset)
        return damaged(b->path, diag, "a tensor is not at its place in the weights section");
    b->end = row.offset + row.bytes;
    t->data = (void *)(uintptr_t)(b->map->data + weights->offset + row.offset);
    value->constant = t;
    value->digest = NULL;
    return GQAC_OK;
}

static gqac_status open_meta(const char *path, const gqac_map *map, gqac_arena *arena,
                             const section **table, artefact_meta *meta, gqac_diag *diag) {
    GQAC_TRY(check_head(path, map, table, diag));
    GQAC_TRY(check_section(path, map, *table, META, NULL, diag));
    return parse_meta(path, arena, map, &(*table)[META], meta, diag);
}

gqac_status artefact_read_meta(const char *path, const gqac_map *map, gqac_arena *arena,
                               artefact_meta *meta, gqac_diag *diag) {
    const section *table = NULL;
    return open_meta(path, map, arena, &table, meta, diag);
}

gqac_status artefact_open(const char *path, const gqac_map *map, gqac_arena *arena,
                          ir_module **module, artefact_meta *meta, gqac_diag *diag) {
    const section *table = NULL;
    GQAC_TRY(open_meta(path, map, arena, &table, meta, diag));
    for (int s = META + 1; s < WEIGHTS; s++)
        GQAC_TRY(check_section(path, map, table, s, NULL, diag));
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
    binder b = {path, arena, map, table, 0, 0};
    GQAC_TRY(visit_graph(&(visit){bind, &b, diag}, (*module)->graph));
    if (b.next != table[TENSORS].length / sizeof(tensor_row) ||
        table[TENSORS].length % sizeof(tensor_row))
        return damaged(path, diag, "it has more tensors than its graph");
    if (b.end != table[WEIGHTS].length)
        return damaged(path, diag, "its weights section is longer than its tensors");
    return GQAC_OK;
}

static const header *header_of(const gqac_map *map) {
    return (const void *)map->data;
}

const void *artefact_baked(const gqac_map *map, size_t *bytes) {
    const header *h = header_of(map);
    const section *last = (const section *)(const void *)(map->data + sizeof *h) + h->sections - 1;
    if (h->version != BAKED_VERSION)
        return NULL;
    *bytes = (size_t)last->length;
    return map->data + last->offset;
}

gqac_status artefact_verify(const char *path, const gqac_map *map, gqac_poll *poll,
                            gqac_diag *diag) {
    const section *table = NULL;
    GQAC_TRY(check_head(path, map, &table, diag));
    for (int s = META; s < (int)header_of(map)->sections; s++)
        GQAC_TRY(check_section(path, map, table, s, poll, diag));
    return GQAC_OK;
}

gqac_status artefact_files(const char *path, gqac_arena *arena, const gqac_map *map,
                           const gqac_attachment **files, int *n, gqac_diag *diag) {
    const section *table = NULL;
    GQAC_TRY(check_head(path, map, &table, diag));
    for (int s = SECTIONS; s < (int)files_end(header_of(map)); s++)
        GQAC_TRY(check_section(path, map, table, s, NULL, diag));
    gqac_attachment *list = GQAC_ARENA_ARRAY(arena, gqac_attachment, MOST_SECTIONS);
    if (!list)
        return gqac_diag_oom(diag, "attached files");
    *n = list_files(header_of(map), table, map, list);
    *files = list;
    return GQAC_OK;
}

/* Copies list, names and data to one piece of memory; data are aligned as by malloc and followed by
 * a NUL. */
static gqac_attachment *copy_files(const gqac_attachment *files, int n) {
    enum { ALIGN = 16 };
    size_t bytes = (size_t)align_up((size_t)n * sizeof *files, ALIGN);
    for (int i = 0; i < n; i++) /* at most 64 of at most 2^28: no overflow */
        bytes += (size_t)align_up(files[i].bytes + 1, ALIGN) +
                 (size_t)align_up(strlen(files[i].name) + 1, ALIGN);
    gqac_attachment *copy = gqac_calloc(1, bytes ? bytes : 1);
    char *at = copy ? (char *)copy + align_up((size_t)n * sizeof *files, ALIGN) : NULL;
    for (int i = 0; copy && i < n; i++) {
        copy[i] = (gqac_attachment){.data = at, .bytes = files[i].bytes};
        memcpy(at, files[i].data, files[i].bytes);
        at += align_up(files[i].bytes + 1, ALIGN);
        copy[i].name = memcpy(at, files[i].name, strlen(files[i].name) + 1);
        at += align_up(strlen(files[i].name) + 1, ALIGN);
    }
    return copy;
}

gqac_status artefact_read_files(const char *path, const gqac_map *map, gqac_attachment **files,
                                int *n, gqac_diag *diag) {
    const gqac_attachment *list = NULL;
    gqac_arena *arena = gqac_arena_create(0);
    if (!arena)
        return gqac_diag_oom(diag, "attached files");
    gqac_status status = artefact_files(path, arena, map, &list, n, diag);
    if (status == GQAC_OK && !(*files = copy_files(list, *n)))
        status = gqac_diag_oom(diag, "attached files");
    gqac_arena_free(arena);
    return status;
}

bool artefact_is(const gqac_map *map) {
    return map->size >= sizeof magic && !memcmp(map->data, magic, sizeof magic);
}
