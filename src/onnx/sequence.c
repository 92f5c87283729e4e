/* Sequences of tensors. The IR has none: a sequence exists only during the import, as the list of
 * its elements, and the ops on sequences pick, add and join values. So how many elements there are,
 * and which one is meant, must not depend on the inputs of the graph. Ops that get a sequence in
 * any other way (Loop, SequenceMap, the graph's results) are reported as not supported.
 *
 * SplitToSequence into parts of one size does not determine how many there are, because dims are
 * not known yet. Such a sequence keeps the whole tensor, and its elements become slices on use. */
#include "onnx/importer.h"
#include "ops/build.h"

#include <string.h>

struct onnx_sequence {
    size_t n;
    ir_value **values;
    /* Parts of `whole` along `axis` with `size` elements each; NULL: the n values. */
    ir_value *whole;
    int64_t axis, size;
    bool squeeze; /* parts of one element, without the axis */
};

/* A node of an op on sequences. */
typedef struct sequence_node {
    onnx_scope *scope;
    const Onnx__NodeProto *proto;
    ir_builder build;
    int64_t axis, keepdims, new_axis;
    bool has_axis;
    onnx_sequence *made; /* the result, or */
    ir_value *result;    /* a tensor, */
    bool built;          /* which has no name of its own yet */
} sequence_node;

enum { UNKNOWN_COUNT = -1 };

#define INVALID(node, ...)     GQAC_FAIL((node)->build.diag, GQAC_INVALID_MODEL, __VA_ARGS__)
#define UNSUPPORTED(node, ...) GQAC_FAIL((node)->build.diag, GQAC_UNSUPPORTED, __VA_ARGS__)

/* ---- operands ------------------------------------------------------------ */

static const char *operand(const sequence_node *node, size_t i) {
    return i < node->proto->n_input ? node->proto->input[i] : "";
}

onnx_sequence *onnx_sequence_find(const onnx_scope *scope, const char *text) {
    const onnx_name *name = *text ? onnx_scope_find_all(scope, text) : NULL;
    return name && name->kind == ONNX_NAME_SEQUENCE ? name->sequence : NULL;
}

static gqac_status tensor_operand(const sequence_node *node, size_t i, ir_value **value) {
    GQAC_TRY(onnx_scope_value(node->scope, operand(node, i), value));
    if (!*value)
        INVALID(node, "input %d is missing", (int)i);
    return GQAC_OK;
}

/* The first operand. UNSUPPORTED: it is the result of an op that cannot be imported. */
static gqac_status sequence_operand(const sequence_node *node, const onnx_sequence **sequence) {
    ir_value *value;
    *sequence = onnx_sequence_find(node->scope, operand(node, 0));
    if (*sequence)
        return GQAC_OK;
    GQAC_TRY(tensor_operand(node, 0, &value));
    UNSUPPORTED(node, "the elements of the sequence are not known");
}

/* The integers of an operand of rank 0 or 1. */
static gqac_status constant_operand(const sequence_node *node, size_t i, int64_t max, int64_t *ints,
                                    int64_t *n, int *rank) {
    ir_value *value;
    GQAC_TRY(tensor_operand(node, i, &value));
    if (!value->constant)
        UNSUPPORTED(node, "input %d is not a constant", (int)i);
    *rank = value->constant->rank;
    if (*rank > 1 || !ir_const_ints(value, max, ints, n))
        INVALID(node, "input %d is not a list of at most %lld integers", (int)i, (long long)max);
    return GQAC_OK;
}

/* The position that operand i names, counted from the end of `count` tensors if it is negative, or
 * `absent`; at most `most`. */
static gqac_status position_operand(const sequence_node *node, size_t i, int64_t count,
                                    int64_t most, int64_t absent, int64_t *at) {
    int64_t n;
    int rank;
    *at = absent;
    if (*operand(node, i)) {
        GQAC_TRY(constant_operand(node, i, 1, at, &n, &rank));
        if (n != 1)
            INVALID(node, "input %d must be one integer, a position in the sequence", (int)i);
        if (count == UNKNOWN_COUNT)
            return GQAC_OK;
        *at += *at < 0 ? count : 0;
    }
    if (*at < 0 || *at > most)
        INVALID(node, "position %lld is out of range for a sequence of %lld tensors",
                (long long)*at, (long long)count);
    return GQAC_OK;
}

static gqac_status read_attributes(sequence_node *node) {
    importer *im = node->scope->im;
    node->keepdims = 1;
    struct {
        const char *name;
        int64_t *value;
    } known[] = {
        {"axis", &node->axis}, {"keepdims", &node->keepdims}, {"new_axis", &node->new_axis}};
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const Onnx__AttributeProto *a;
        const char *name = onnx_text(node->proto->attribute[i]->name);
        GQAC_TRY(onnx_attr_resolve(node->scope, node->proto->attribute[i], &a));
        for (size_t k = 0; a && k < sizeof known / sizeof *known; k++) {
            ir_attr_kind kind;
            ir_attr attr;
            if (strcmp(name, known[k].name) != 0)
                continue;
            GQAC_TRY(onnx_attr_read(node->scope, a, &kind, &attr));
            if (kind != IR_ATTR_INT)
                GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "attribute %s is not an integer", name);
            *known[k].value = attr.i;
            node->has_axis |= k == 0;
        }
    }
    return GQAC_OK;
}

/* ---- elements ------------------------------------------------------------ */

static gqac_status create(sequence_node *node, size_t n) {
    importer *im = node->scope->im;
    node->made = GQAC_ARENA_NEW(im->scratch, onnx_sequence);
    ir_value **values = GQAC_ARENA_ARRAY(im->scratch, ir_value *, n);
    if (!node->made || !values)
        return onnx_oom(im);
    *node->made = (onnx_sequence){.n = n, .values = values};
    return onnx_count_operands(im, n);
}

/* Part `at` of a tensor that was split into parts of one size; without elements if there are fewer
 * parts, which is an error in ONNX. */
static ir_value *slice(ir_builder *b, const onnx_sequence *s, int64_t at) {
    if (s->squeeze)
        return OP_BUILD(b, "Gather", .in = {s->whole, ir_build_i64(b, at)},
                        .ints = {{"axis", s->axis}});
    ir_value *start = OP_I64S(b, at * s->size);
    ir_value *end = OP_I64S(b, at == -1 ? INT64_MAX : (at + 1) * s->size);
    return OP_BUILD(b, "Slice", .in = {s->whole, start, end, OP_I64S(b, s->axis)});
}

static gqac_status need_count(const sequence_node *node, const onnx_sequence *s) {
    if (s->whole)
        UNSUPPORTED(node, "the number of tensors in the sequence is not known");
    return GQAC_OK;
}

/* ---- ops ----------------------------------------------------------------- */

static gqac_status import_empty(sequence_node *node) {
    return create(node, 0);
}

static gqac_status import_construct(sequence_node *node) {
    GQAC_TRY(create(node, node->proto->n_input));
    for (size_t i = 0; i < node->proto->n_input; i++)
        GQAC_TRY(tensor_operand(node, i, &node->made->values[i]));
    return GQAC_OK;
}

static gqac_status import_insert(sequence_node *node) {
    const onnx_sequence *from;
    ir_value *value;
    int64_t at;
    GQAC_TRY(sequence_operand(node, &from));
    GQAC_TRY(need_count(node, from));
    GQAC_TRY(tensor_operand(node, 1, &value));
    const int64_t n = (int64_t)from->n;
    GQAC_TRY(position_operand(node, 2, n, n, n, &at));
    GQAC_TRY(create(node, from->n + 1));
    for (int64_t i = 0; i <= n; i++)
        node->made->values[i] = i == at ? value : from->values[i - (i > at)];
    return GQAC_OK;
}

static gqac_status import_erase(sequence_node *node) {
    const onnx_sequence *from;
    int64_t at;
    GQAC_TRY(sequence_operand(node, &from));
    GQAC_TRY(need_count(node, from));
    const int64_t n = (int64_t)from->n;
    GQAC_TRY(position_operand(node, 1, n, n - 1, n - 1, &at));
    GQAC_TRY(create(node, from->n - 1));
    for (int64_t i = 0; i < n - 1; i++)
        node->made->values[i] = from->values[i + (i >= at)];
    return GQAC_OK;
}

static gqac_status import_at(sequence_node *node) {
    const onnx_sequence *from;
    int64_t at;
    GQAC_TRY(sequence_operand(node, &from));
    const int64_t n = from->whole ? UNKNOWN_COUNT : (int64_t)from->n;
    GQAC_TRY(position_operand(node, 1, n, n - 1, -1, &at));
    if (!from->whole) {
        node->result = from->values[at];
        return GQAC_OK;
    }
    if (at < 0 && from->size != 1)
        UNSUPPORTED(node, "the position counts from the end, but the number of tensors in the "
                          "sequence is not known");
    if (at > INT32_MAX / from->size || at < INT32_MIN)
        INVALID(node, "position %lld is out of range for the parts of a tensor", (long long)at);
    node->result = slice(&node->build, from, at);
    node->built = true;
    return node->build.status;
}

static gqac_status import_length(sequence_node *node) {
    const onnx_sequence *from;
    GQAC_TRY(sequence_operand(node, &from));
    GQAC_TRY(need_count(node, from));
    node->result = ir_build_i64(&node->build, (int64_t)from->n);
    node->built = true;
    return node->build.status;
}

/* With new_axis the tensors are stacked, else concatenated. */
static gqac_status import_concat(sequence_node *node) {
    const onnx_sequence *from;
    ir_builder *b = &node->build;
    GQAC_TRY(sequence_operand(node, &from));
    if (!node->has_axis)
        INVALID(node, "attribute 'axis' is missing");
    GQAC_TRY(need_count(node, from));
    if (from->n == 0)
        INVALID(node, "the sequence is empty");
    ir_value **values = GQAC_ARENA_ARRAY(node->scope->im->scratch, ir_value *, from->n);
    if (!values)
        return onnx_oom(node->scope->im);
    GQAC_TRY(onnx_count_operands(node->scope->im, from->n));
    ir_value *axis = node->new_axis ? OP_I64S(b, node->axis) : NULL;
    for (size_t i = 0; i < from->n; i++)
        values[i] =
            axis ? OP_BUILD(b, "Unsqueeze", .in = {from->values[i], axis}) : from->values[i];
    node->result = op_build_concat(b, node->axis, (int)from->n, values);
    node->built = true;
    return b->status;
}

/* Parts of the given lengths: the results of one Split, which checks their sum. */
static gqac_status split_by(sequence_node *node, ir_value *whole, ir_value *lengths, int64_t n) {
    ir_builder *b = &node->build;
    if (n < 1)
        INVALID(node, "the tensor would be split into no parts");
    GQAC_TRY(create(node, (size_t)n));
    ir_node *split = ir_build(b, &op_find("", "Split")->schema, "split", 2,
                              (ir_value *const[]){whole, lengths}, (int)n);
    for (int64_t i = 0; i < n; i++)
        node->made->values[i] = ir_build_result(b, split, (int)i);
    if (split)
        ir_attr_set_int(split, "axis", node->axis);
    return b->status;
}

static gqac_status import_split(sequence_node *node) {
    int64_t lengths[ONNX_MAX_PARTS], n = 1;
    int rank = 0;
    ir_value *whole;
    lengths[0] = 1;
    GQAC_TRY(tensor_operand(node, 0, &whole));
    const bool given = *operand(node, 1);
    if (given)
        GQAC_TRY(constant_operand(node, 1, ONNX_MAX_PARTS, lengths, &n, &rank));
    if (rank == 1) {
        ir_value *list;
        GQAC_TRY(tensor_operand(node, 1, &list));
        return split_by(node, whole, list, n);
    }
    if (lengths[0] < 1 || lengths[0] > INT32_MAX)
        INVALID(node, "parts of %lld elements are not possible: the length must be 1 or more",
                (long long)lengths[0]);
    GQAC_TRY(create(node, 0));
    node->made->whole = whole;
    node->made->axis = node->axis;
    node->made->size = lengths[0];
    node->made->squeeze = !given && !node->keepdims;
    return GQAC_OK;
}

static gqac_status import_identity(sequence_node *node) {
    node->made = onnx_sequence_find(node->scope, operand(node, 0));
    return GQAC_OK;
}

/* ---- the node ------------------------------------------------------------ */

typedef gqac_status import_fn(sequence_node *node);

static import_fn *find_import(const onnx_scope *scope, const Onnx__NodeProto *node) {
    static const struct {
        const char *op;
        import_fn *import;
    } ops[] = {
        {"ConcatFromSequence", import_concat},   {"SequenceAt", import_at},
        {"SequenceConstruct", import_construct}, {"SequenceEmpty", import_empty},
        {"SequenceErase", import_erase},         {"SequenceInsert", import_insert},
        {"SequenceLength", import_length},       {"SplitToSequence", import_split},
    };
    if (*onnx_domain(node->domain))
        return NULL;
    const char *type = onnx_text(node->op_type);
    if (strcmp(type, "Identity") == 0 && node->n_input == 1 &&
        onnx_sequence_find(scope, node->input[0]))
        return import_identity;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(type, ops[i].op) == 0)
            return ops[i].import;
    return NULL;
}

bool onnx_sequence_handles(const onnx_scope *scope, const Onnx__NodeProto *node) {
    return find_import(scope, node) && onnx_opset(scope, "") >= 11;
}

gqac_status onnx_import_sequence(onnx_scope *scope, const Onnx__NodeProto *proto) {
    importer *im = scope->im;
    sequence_node node = {
        .scope = scope, .proto = proto, .build = {.graph = scope->graph, .diag = im->diag}};
    if (proto->n_output != 1 || !*proto->output[0])
        INVALID(&node, "the node has %d outputs: it must have one, with a name",
                (int)proto->n_output);
    gqac_status status = read_attributes(&node);
    if (status == GQAC_OK)
        status = find_import(scope, proto)(&node);
    if (status == GQAC_UNSUPPORTED)
        return onnx_pass_over(scope, proto, gqac_arena_strdup(im->scratch, im->diag->what));
    GQAC_TRY(status);
    const char *label = onnx_scope_label(scope, proto->output[0]);
    if (!label || (node.built && !ir_value_rename(node.result, label)))
        return onnx_oom(im);
    onnx_name *name = onnx_scope_find(scope, proto->output[0]);
    name->kind = node.made ? ONNX_NAME_SEQUENCE : ONNX_NAME_VALUE;
    name->sequence = node.made;
    name->value = node.result;
    return GQAC_OK;
}
