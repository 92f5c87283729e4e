/* The pre-scan (see scan.h).
 *
 * The schema is protobuf-c's description of our proto. The table below only has what that lacks:
 * which fields to skip, and how many of a field are allowed. The thinned copy of a message is never
 * longer than the message, so its length is patched into as many bytes as the original length
 * needs; a varint with unused leading groups is legal. Invariant: data[at, frame.end) is inside the
 * frame, which is inside its parent. */
#include "onnx/scan.h"

#include <gqac/tensor.h>

#include "base/alloc.h"
#include "base/diag.h"
#include "base/limits.h"

#include <stdio.h>
#include <string.h>

enum { MAX_FIELD = 32 }; /* field numbers of our schema are smaller */

typedef enum scan_action {
    SCAN_KEEP,
    SCAN_SKIP, /* left out; messages are checked nevertheless, text is not */
    SCAN_VIEW, /* replaced, if large, by a note of its offset and length */
} scan_action;

typedef enum scan_total { TOTAL_NONE, TOTAL_NODES, TOTAL_INITIALIZERS, TOTALS } scan_total;

typedef struct scan_rule {
    scan_action action;
    scan_total total; /* the count over the whole file to which it adds */
    unsigned share;   /* number of the field whose count this one adds to; 0: its own */
    uint32_t most;    /* elements in one message; 0: no limit */
} scan_rule;

typedef struct scan_message {
    const ProtobufCMessageDescriptor *type;
    scan_rule rules[MAX_FIELD]; /* by field number */
} scan_message;

static const scan_message messages[] = {
    {&onnx__model_proto__descriptor,
     {[6] = {.action = SCAN_SKIP},
      [8] = {.most = ONNX_MAX_OPSETS},
      [14] = {.action = SCAN_SKIP},
      [20] = {.action = SCAN_SKIP},
      [25] = {.most = ONNX_MAX_FUNCTIONS}}},
    {&onnx__graph_proto__descriptor,
     {[1] = {.total = TOTAL_NODES},
      [5] = {.total = TOTAL_INITIALIZERS},
      [10] = {.action = SCAN_SKIP},
      [11] = {.most = ONNX_MAX_IO},
      [12] = {.most = ONNX_MAX_IO},
      [13] = {.action = SCAN_SKIP},
      [14] = {.action = SCAN_SKIP},
      [15] = {.total = TOTAL_INITIALIZERS},
      [16] = {.action = SCAN_SKIP}}},
    {&onnx__node_proto__descriptor,
     {[1] = {.most = ONNX_MAX_OPERANDS},
      [2] = {.most = ONNX_MAX_OPERANDS, .share = 1},
      [5] = {.most = ONNX_MAX_ATTRIBUTES},
      [6] = {.action = SCAN_SKIP},
      [9] = {.action = SCAN_SKIP}}},
    {&onnx__attribute_proto__descriptor,
     {[10] = {.action = SCAN_SKIP},
      [11] = {.action = SCAN_SKIP},
      [13] = {.action = SCAN_SKIP},
      [15] = {.action = SCAN_SKIP},
      [23] = {.action = SCAN_SKIP}}},
    {&onnx__function_proto__descriptor,
     {[4] = {.most = ONNX_MAX_OPERANDS},
      [5] = {.most = ONNX_MAX_OPERANDS, .share = 4},
      [6] = {.most = ONNX_MAX_ATTRIBUTES},
      [7] = {.total = TOTAL_NODES},
      [8] = {.action = SCAN_SKIP},
      [9] = {.most = ONNX_MAX_OPSETS},
      [11] = {.most = ONNX_MAX_ATTRIBUTES, .share = 6},
      [12] = {.action = SCAN_SKIP},
      [14] = {.action = SCAN_SKIP}}},
    {&onnx__tensor_proto__descriptor,
     {[1] = {.most = GQAC_MAX_RANK},
      [4] = {.action = SCAN_VIEW},
      [5] = {.action = SCAN_VIEW},
      [6] = {.action = SCAN_SKIP},
      [7] = {.action = SCAN_VIEW},
      [9] = {.action = SCAN_VIEW},
      [10] = {.action = SCAN_VIEW},
      [11] = {.action = SCAN_VIEW},
      [12] = {.action = SCAN_SKIP},
      [13] = {.most = 16},
      [16] = {.action = SCAN_SKIP}}},
    {&onnx__sparse_tensor_proto__descriptor, {[3] = {.most = GQAC_MAX_RANK}}},
    {&onnx__value_info_proto__descriptor,
     {[3] = {.action = SCAN_SKIP}, [4] = {.action = SCAN_SKIP}}},
    {&onnx__tensor_shape_proto__descriptor, {[1] = {.most = GQAC_MAX_RANK}}},
    {&onnx__tensor_shape_proto__dimension__descriptor, {[3] = {.action = SCAN_SKIP}}},
    {&onnx__type_proto__descriptor, {[6] = {.action = SCAN_SKIP}}},
    {.type = NULL}, /* every other message */
};

typedef struct scan_frame {
    const ProtobufCMessageDescriptor *type;
    const scan_rule *rules;
    size_t end;
    size_t body;           /* where its thinned bytes begin */
    int width;             /* bytes before `body` that are kept for its length */
    bool muted;            /* inside something that is left out: only checked */
    uint32_t seen;         /* singular fields seen, by number; bit 0 stands for the oneof */
    uint32_t viewed;       /* data fields seen as one large block */
    uint32_t n[MAX_FIELD]; /* elements, by field number */
} scan_frame;

typedef struct scanner {
    const unsigned char *data;
    size_t at, size;
    gqac_str *thin;
    gqac_diag *diag;
    int depth;  /* frames in use */
    int graphs; /* number of graphs among the frames */
    uint32_t unknown;
    uint32_t totals[TOTALS];
    int64_t nodes; /* the maximum */
    scan_frame frames[ONNX_MAX_DEPTH];
} scanner;

/* One field: its number, wire type and the extent of its payload. */
typedef struct scan_field {
    const ProtobufCFieldDescriptor *field; /* NULL: unknown */
    uint32_t number;
    unsigned wire;
    size_t start; /* of the tag */
    size_t value; /* of the payload */
    size_t end;
    uint64_t scalar; /* of a varint */
} scan_field;

static gqac_status fail(scanner *s, size_t at, gqac_status status, const char *what) {
    gqac_diag_set(s->diag, status, "%s", what);
    gqac_diag_where(s->diag, "byte %zu (%s)", at, s->frames[s->depth - 1].type->short_name);
    return status;
}

/* Fails because a message ends before its content does. If it is the outermost message, the file
 * was truncated. */
static gqac_status fail_short(scanner *s, size_t at, const char *what) {
    fail(s, at, GQAC_INVALID_MODEL, what);
    if (s->frames[s->depth - 1].end == s->frames[0].end)
        gqac_diag_hint(s->diag,
                       "the file may be incomplete (%zu bytes): copy, download or export "
                       "it again",
                       s->frames[0].end);
    return GQAC_INVALID_MODEL;
}

static gqac_status fail_field(scanner *s, const scan_field *f, gqac_status status,
                              const char *what) {
    gqac_diag_set(s->diag, status, "field '%s' %s", f->field->name, what);
    gqac_diag_where(s->diag, "byte %zu (%s)", f->start, s->frames[s->depth - 1].type->short_name);
    return status;
}

const char *onnx_varint(const unsigned char *data, size_t end, size_t *at, uint64_t *value) {
    uint64_t v = 0;
    for (unsigned i = 0; i < 10; i++) {
        if (*at >= end)
            return "truncated varint";
        unsigned char byte = data[(*at)++];
        if (i == 9 && byte > 1)
            return "varint of more than 64 bits";
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            *value = v;
            return NULL;
        }
    }
    return "varint of more than 10 bytes";
}

static const scan_rule *rules_of(const ProtobufCMessageDescriptor *type) {
    const scan_message *m = messages;
    while (m->type && m->type != type)
        m++;
    return m->rules;
}

/* ---- thinned output ------------------------------------------------------ */

static int varint_width(uint64_t value) {
    int n = 1;
    while (value >>= 7)
        n++;
    return n;
}

static void put_varint(gqac_str *out, uint64_t value) {
    char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    gqac_str_append_n(out, bytes, n);
}

static void patch_varint(char *at, int width, uint64_t value) {
    for (int i = 0; i < width; i++, value >>= 7)
        at[i] = (char)((value & 0x7f) | (i + 1 < width ? 0x80 : 0));
}

static gqac_status emitted(scanner *s) {
    if (s->thin->failed)
        return gqac_diag_oom(s->diag, "the model's structure");
    if (s->thin->length > ONNX_MAX_THIN)
        return fail(s, s->at, GQAC_LIMIT,
                    "the model needs more than 256 MiB in addition to its weights");
    return GQAC_OK;
}

static gqac_status emit(scanner *s, const scan_field *f) {
    if (s->frames[s->depth - 1].muted)
        return GQAC_OK;
    gqac_str_append_n(s->thin, (const char *)s->data + f->start, f->end - f->start);
    return emitted(s);
}

/* ---- fields -------------------------------------------------------------- */

/* Reads tag and extent of the next field. */
static gqac_status read_field(scanner *s, scan_field *f) {
    const scan_frame *frame = &s->frames[s->depth - 1];
    uint64_t tag, length;
    f->start = s->at;
    const char *wrong = onnx_varint(s->data, frame->end, &s->at, &tag);
    if (wrong)
        return fail(s, f->start, GQAC_INVALID_MODEL, wrong);
    if (tag > UINT32_MAX || tag >> 3 == 0 || s->at - f->start > 5)
        return fail(s, f->start, GQAC_INVALID_MODEL, "a field number is out of range");
    f->number = (uint32_t)(tag >> 3);
    f->wire = (unsigned)(tag & 7);
    f->value = s->at;
    switch (f->wire) {
    case 0:
        if ((wrong = onnx_varint(s->data, frame->end, &s->at, &f->scalar)))
            return fail_short(s, f->start, wrong);
        break;
    case 1:
    case 5:
        length = f->wire == 1 ? 8 : 4;
        if (frame->end - s->at < length)
            return fail_short(s, f->start, "truncated number");
        s->at += length;
        break;
    case 2:
        if ((wrong = onnx_varint(s->data, frame->end, &s->at, &length)))
            return fail_short(s, f->start, wrong);
        if (s->at - f->value > 5 || length > frame->end - s->at)
            return fail_short(s, f->start, "a length extends past the end");
        f->value = s->at;
        s->at += length;
        break;
    default:
        return fail(s, f->start, GQAC_INVALID_MODEL,
                    "the field has an unknown wire type, or is a group");
    }
    f->end = s->at;
    f->field = protobuf_c_message_descriptor_get_field(frame->type, f->number);
    return GQAC_OK;
}

/* The wire type of one element of a field. */
static unsigned wire_of(const ProtobufCFieldDescriptor *field) {
    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT:
        return 5;
    case PROTOBUF_C_TYPE_DOUBLE:
        return 1;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return 2;
    default:
        return 0;
    }
}

static bool is_narrow(const ProtobufCFieldDescriptor *field) {
    return field->type == PROTOBUF_C_TYPE_INT32 || field->type == PROTOBUF_C_TYPE_ENUM;
}

static bool fits_narrow(uint64_t value) {
    return (int64_t)value >= INT32_MIN && (int64_t)value <= INT32_MAX;
}

/* Checks a block of packed elements and counts them. Varints in large blocks are checked later,
 * when their view is decoded. */
static gqac_status check_packed(scanner *s, const scan_field *f, bool large, size_t *count) {
    size_t bytes = f->end - f->value;
    unsigned wire = wire_of(f->field);
    if (wire) {
        size_t size = wire == 1 ? 8 : 4;
        if (bytes % size)
            return fail_field(s, f, GQAC_INVALID_MODEL, "does not contain whole elements");
        *count = bytes / size;
        return GQAC_OK;
    }
    *count = 0;
    for (size_t at = f->value; at < f->end && !large; ++*count) {
        uint64_t value;
        const char *wrong = onnx_varint(s->data, f->end, &at, &value);
        if (wrong)
            return fail(s, f->start, GQAC_INVALID_MODEL, wrong);
        if (is_narrow(f->field) && !fits_narrow(value))
            return fail_field(s, f, GQAC_INVALID_MODEL, "is out of range");
    }
    return GQAC_OK;
}

static gqac_status check_string(scanner *s, const scan_field *f) {
    size_t bytes = f->end - f->value;
    if (bytes > ONNX_MAX_NAME && !s->frames[s->depth - 1].muted)
        return fail_field(s, f, GQAC_LIMIT, "has more than 1024 bytes");
    if (bytes && !gqac_utf8_valid((const char *)s->data + f->value, bytes))
        return fail_field(s, f, GQAC_INVALID_MODEL, "is not valid UTF-8 or has a NUL");
    return GQAC_OK;
}

/* A singular field may occur only once: merging sub-messages takes quadratic time, and of two
 * values other readers may use the other one. */
static gqac_status check_singular(scanner *s, const scan_field *f) {
    scan_frame *frame = &s->frames[s->depth - 1];
    bool oneof = f->field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    uint32_t bit = oneof ? 1u : 1u << f->number;
    if (f->field->label != PROTOBUF_C_LABEL_REPEATED && (frame->seen & bit))
        return fail_field(s, f, GQAC_INVALID_MODEL,
                          oneof ? "sets a oneof a second time" : "appears twice");
    frame->seen |= bit;
    return GQAC_OK;
}

/* Counts a node or an initializer of the whole file. */
static gqac_status count_total(scanner *s, const scan_field *f, scan_total total) {
    const uint32_t n = ++s->totals[total];
    if (total == TOTAL_NODES && n > s->nodes) {
        char what[64];
        snprintf(what, sizeof what, "the model has more than %lld nodes", (long long)s->nodes);
        fail(s, f->start, GQAC_LIMIT, what);
        gqac_limits_explain(s->diag, "nodes", s->nodes);
        return GQAC_LIMIT;
    }
    if (total == TOTAL_INITIALIZERS && n > ONNX_MAX_INITIALIZERS)
        return fail(s, f->start, GQAC_LIMIT, "the model has more than 1000000 initializers");
    return GQAC_OK;
}

static gqac_status count_elements(scanner *s, const scan_field *f, const scan_rule *rule,
                                  size_t count) {
    uint32_t *n = &s->frames[s->depth - 1].n[rule->share ? rule->share : f->number];
    if (rule->most && count > rule->most - *n) {
        char what[64];
        snprintf(what, sizeof what, "has more than %u entries%s", rule->most,
                 rule->most == GQAC_MAX_RANK ? ", the highest rank" : "");
        return fail_field(s, f, GQAC_LIMIT, what);
    }
    if (rule->most)
        *n += (uint32_t)count;
    return rule->total ? count_total(s, f, rule->total) : GQAC_OK;
}

/* Tensor data: a large block is replaced by a note, (offset, length) with a field number of its
 * own. */
static gqac_status scan_data(scanner *s, const scan_field *f, bool large) {
    scan_frame *frame = &s->frames[s->depth - 1];
    uint32_t bit = 1u << f->number;
    bool again = frame->n[f->number]++ > 0;
    if ((frame->viewed & bit) || (large && again))
        return fail_field(s, f, GQAC_INVALID_MODEL, "is split into several blocks");
    if (!large)
        return emit(s, f);
    frame->viewed |= bit;
    if (frame->muted)
        return GQAC_OK;
    uint64_t note[2] = {f->value, f->end - f->value};
    put_varint(s->thin, (uint64_t)(1000 + f->number) << 3 | 2);
    put_varint(s->thin, sizeof note);
    gqac_str_append_n(s->thin, (const char *)note, sizeof note);
    return emitted(s);
}

static gqac_status enter(scanner *s, const scan_field *f, bool muted) {
    const ProtobufCMessageDescriptor *type = f->field->descriptor;
    if (s->depth == ONNX_MAX_DEPTH)
        return fail(s, f->start, GQAC_LIMIT, "messages are nested to a depth of more than 100");
    if (type == &onnx__graph_proto__descriptor && ++s->graphs > ONNX_MAX_GRAPH_DEPTH + 1)
        return fail(s, f->start, GQAC_LIMIT, "graphs are nested to a depth of more than 16");
    scan_frame *frame = &s->frames[s->depth];
    memset(frame, 0, sizeof *frame);
    frame->type = type;
    frame->rules = rules_of(type);
    frame->end = f->end;
    frame->muted = muted || frame[-1].muted;
    s->depth++;
    s->at = f->value;
    if (frame->muted)
        return GQAC_OK;
    frame->width = varint_width(f->end - f->value);
    put_varint(s->thin, (uint64_t)f->number << 3 | 2);
    gqac_str_append_n(s->thin, "\0\0\0\0\0\0\0\0\0", (size_t)frame->width);
    frame->body = s->thin->length;
    return emitted(s);
}

static void leave(scanner *s) {
    scan_frame *frame = &s->frames[--s->depth];
    if (frame->type == &onnx__graph_proto__descriptor)
        s->graphs--;
    if (frame->width)
        patch_varint(s->thin->text + frame->body - frame->width, frame->width,
                     s->thin->length - frame->body);
}

static gqac_status scan_known(scanner *s, const scan_field *f) {
    const scan_rule *rule = &s->frames[s->depth - 1].rules[f->number];
    bool repeated = f->field->label == PROTOBUF_C_LABEL_REPEATED;
    unsigned wire = wire_of(f->field);
    bool packed = f->wire == 2 && wire != 2 && repeated;
    bool large = rule->action == SCAN_VIEW && f->wire == 2 && f->end - f->value >= ONNX_VIEW_BYTES;
    if (f->wire != wire && !packed)
        return fail_field(s, f, GQAC_INVALID_MODEL, "has the wrong wire type");
    bool skipped = rule->action == SCAN_SKIP;
    if (skipped && f->field->type != PROTOBUF_C_TYPE_MESSAGE)
        return GQAC_OK;
    size_t count = 1;
    if (packed)
        GQAC_TRY(check_packed(s, f, large, &count));
    else if (is_narrow(f->field) && !fits_narrow(f->scalar))
        return fail_field(s, f, GQAC_INVALID_MODEL, "is out of range");
    if (!repeated)
        GQAC_TRY(check_singular(s, f));
    GQAC_TRY(count_elements(s, f, rule, count));
    if (f->field->type == PROTOBUF_C_TYPE_MESSAGE)
        return enter(s, f, skipped);
    if (f->field->type == PROTOBUF_C_TYPE_STRING)
        GQAC_TRY(check_string(s, f));
    return rule->action == SCAN_VIEW ? scan_data(s, f, large) : emit(s, f);
}

static gqac_status scan_all(scanner *s) {
    while (s->depth > 0) {
        if (s->at == s->frames[s->depth - 1].end) {
            leave(s);
            continue;
        }
        scan_field f = {0};
        GQAC_TRY(read_field(s, &f));
        if (f.field)
            GQAC_TRY(scan_known(s, &f));
        else if (++s->unknown > ONNX_MAX_UNKNOWN)
            return fail(s, f.start, GQAC_LIMIT, "more than 1000000 unknown fields");
    }
    return GQAC_OK;
}

gqac_status onnx_scan(const unsigned char *data, size_t size,
                      const ProtobufCMessageDescriptor *root, int64_t nodes, gqac_str *thin,
                      gqac_diag *diag) {
    if (size == 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the file is empty");
    if (size > ONNX_MAX_FILE)
        GQAC_FAIL(diag, GQAC_LIMIT, "the file has %zu bytes, at most 2 GiB - 1 are allowed", size);
    scanner *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "the pre-scan");
    s->data = data;
    s->size = size;
    s->thin = thin;
    s->nodes = nodes;
    s->diag = diag;
    s->depth = 1;
    s->frames[0].type = root;
    s->frames[0].rules = rules_of(root);
    s->frames[0].end = size;
    gqac_status status = scan_all(s);
    gqac_free(s);
    return status;
}
