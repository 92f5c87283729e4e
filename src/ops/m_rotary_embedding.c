/* com.microsoft.MRotaryEmbedding: RotaryEmbedding whose position has three parts (time, height,
 * width). position_ids are [3,B,S]; each column of the tables belongs to one part, whose position
 * selects its row. mrope_layout 0: mrope_section [t,h,w] are lengths of runs of columns; 1: column
 * 3i + 1 belongs to height for i < h, column 3i + 2 to width for i < w, the others to time. Becomes
 * Gather, Where and RotaryEmbedding. Source: ONNX Runtime contrib operators. */
#include "ops/build.h"
#include "ops/rotary.h"

enum { X, POSITION_IDS, COS, SIN };
enum { TIME, HEIGHT, WIDTH, PARTS };
enum { MOST_COLUMNS = 1 << 16 };

static const ir_attr_spec attrs[] = {
    {"mrope_section", IR_ATTR_INTS, .required = true, .doc = "columns of time, height and width"},
    OP_ATTR_INT("mrope_layout", 0, "0: three runs of columns, 1: every third column"),
    MS_ROTARY_ATTRS,
    OP_ATTR_FLOAT("scale", 1, "only 1"),
    OP_ATTR_INT("is_packed_batching", 0, "only 0"),
    {.name = NULL},
};

/* Columns of the tables; 0: mrope_section is invalid. */
static int64_t columns_of(const ir_node *node) {
    const ir_attr *section = ir_attr_get(node, "mrope_section");
    int64_t n = 0;
    if (section->count != PARTS)
        return 0;
    for (int i = 0; i < PARTS; i++) {
        if (section->ints[i] < 0 || section->ints[i] > MOST_COLUMNS)
            return 0;
        n += section->ints[i];
    }
    return n <= MOST_COLUMNS ? n : 0;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const int64_t width = ir_attr_int(node, "rotary_embedding_dim");
    GQAC_TRY(ms_rotary_verify(node, diag));
    if (ir_attr_float(node, "scale") != 1.0f)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute scale = %g: only 1 is supported",
                (double)ir_attr_float(node, "scale"));
    if (!columns_of(node))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute mrope_section must be three lengths");
    GQAC_TRY(op_check_int(node, "mrope_layout", 0, 1, diag));
    if (width && width != 2 * columns_of(node))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute rotary_embedding_dim = %lld: must be twice the sum of mrope_section",
                (long long)width);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type x = op_in_type(node, X);
    int64_t columns;
    GQAC_TRY(verify(node, diag));
    GQAC_TRY(ms_rotary_check_types(node, diag));
    GQAC_TRY(attention_want_rank(node, POSITION_IDS, 3, diag));
    for (int i = COS; i <= SIN; i++) {
        if (ir_dim_is_const(op_in_dim(node, i, 1), &columns) && columns != columns_of(node))
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "tables have %lld columns, but the sections have %lld", (long long)columns,
                    (long long)columns_of(node));
    }
    return op_set_type_like(node, 0, x, diag);
}

static int part_of(const ir_node *node, int64_t column) {
    const int64_t *section = ir_attr_get(node, "mrope_section")->ints;
    if (!ir_attr_int(node, "mrope_layout"))
        return column < section[TIME]                     ? TIME
               : column < section[TIME] + section[HEIGHT] ? HEIGHT
                                                          : WIDTH;
    const int64_t part = column % PARTS;
    return part && column / PARTS < section[part] ? (int)part : TIME;
}

/* bool [columns]: does a column belong to the part? */
static ir_value *build_mask(ir_builder *b, const ir_node *node, int part) {
    const int64_t n = columns_of(node);
    int64_t *parts = gqac_arena_alloc(node->graph->module->arena, (size_t)n * sizeof *parts);
    if (!parts) {
        if (b->status == GQAC_OK)
            b->status = gqac_diag_oom(b->diag, "a rotary table");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        parts[i] = part_of(node, i);
    return OP_BUILD(b, "Equal", .in = {ir_build_i64s(b, n, parts), ir_build_i64(b, part)});
}

/* [B,S,columns] from a table, each column from the row for its part. */
static ir_value *build_table(ir_builder *b, ir_node *node, int table, ir_value *const *masks) {
    ir_value *result = NULL, *ids = ir_node_input(node, POSITION_IDS);
    for (int part = TIME; part < PARTS; part++) {
        ir_value *rows = OP_BUILD(b, "Gather", .in = {ids, ir_build_i64(b, part)});
        ir_value *read = OP_BUILD(b, "Gather", .in = {ir_node_input(node, table), rows});
        result = part == TIME ? read : OP_BUILD(b, "Where", .in = {masks[part], read, result});
    }
    return result;
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    (void)options;
    int64_t heads = ir_attr_int(node, "num_heads"), hidden;
    const int64_t size = 2 * columns_of(node);
    ir_value *masks[PARTS] = {NULL, build_mask(b, node, HEIGHT), build_mask(b, node, WIDTH)};
    ir_value *cos = build_table(b, node, COS, masks), *sin = build_table(b, node, SIN, masks);
    if (!heads && op_in_type(node, X).rank == 3 &&
        ir_dim_is_const(op_in_dim(node, X, 2), &hidden) && hidden % size == 0)
        heads = hidden / size;
    results[0] =
        OP_BUILD(b, "RotaryEmbedding", .in = {ir_node_input(node, X), cos, sin}, .of = node,
                 .same = {"interleaved", "rotary_embedding_dim"}, .ints = {{"num_heads", heads}});
}

const gqac_op gqac_op_m_rotary_embedding = {
    .schema = {.name = "MRotaryEmbedding",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "input position_ids cos_cache sin_cache",
               .outputs = "output",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_LOCAL,
               .doc = "rotary embedding at positions of three parts: time, height, width"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
};
