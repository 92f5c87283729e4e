/* Random nodes: no input crashes an op or makes infer and eval disagree. Most are invalid, and then
 * both must report an error of their own; the valid ones are compared in every way (support.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/shared.h"
#include "support.h"

/* Rows of the table that are omitted, with the reason. */
static const struct {
    const char *name, *reason;
} excluded[] = {
    {"If", "its attributes are graphs: test/python runs them"},
    {"Loop", "its attributes are graphs: test/python runs them"},
    {"Scan", "its attributes are graphs: test/python runs them"},
    {"kv_state", "needs the state of a sequence: test/runtime"},
    {"kv_append", "needs the state of a sequence: test/runtime"},
};

/* ONNX ops for which random shapes almost never fit each other. Other tests run them. */
static const char *const rare[] = {"CausalConvWithState", "Conv", "LinearAttention"};

static bool is_rare(const ir_schema *schema) {
    for (size_t i = 0; i < COUNT(rare); i++)
        if (!strcmp(schema->name, rare[i]))
            return true;
    return *schema->domain != '\0';
}

static const char *why_excluded(const gqac_op *op) {
    for (size_t i = 0; i < COUNT(excluded); i++)
        if (!strcmp(op->schema.name, excluded[i].name))
            return excluded[i].reason;
    return op->eval ? NULL : "a composite has no eval: what it expands to has";
}

static const gqac_dtype types[] = {GQAC_F32, GQAC_F32,  GQAC_F32, GQAC_I64,  GQAC_I64, GQAC_I32,
                                   GQAC_F16, GQAC_BF16, GQAC_F64, GQAC_BOOL, GQAC_U8,  GQAC_I8,
                                   GQAC_U64, GQAC_I4,   GQAC_U4,  GQAC_I16,  GQAC_U16, GQAC_U32};

static void fill(gqac_tensor *tensor, uint64_t *seed) {
    static const float special[] = {0.0f, -0.0f, 1.0f / 0.0f, -1.0f / 0.0f, 0.0f / 0.0f, 3e38f};
    static const int64_t edges[] = {INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN};
    for (int64_t i = 0; i < gqac_tensor_count(tensor); i++) {
        int64_t small = (int64_t)random_below(seed, 9) - 3;
        bool odd = random_below(seed, 24) == 0;
        if (tensor->dtype == GQAC_F64)
            ((double *)tensor->data)[i] =
                odd ? (double)special[random_below(seed, 6)] : (double)small / 2.0;
        else if (gqac_dtype_is_float(tensor->dtype))
            op_put_f32(tensor, i, odd ? special[random_below(seed, 6)] : (float)small / 2.0f);
        else
            op_put_i64(tensor, i, odd ? edges[random_below(seed, 4)] : small);
    }
}

static gqac_tensor *random_tensor(gqac_arena *arena, uint64_t *seed, const gqac_tensor *like,
                                  int index) {
    gqac_tensor *tensor = GQAC_ARENA_NEW(arena, gqac_tensor);
    uint32_t kind = random_below(seed, 4);
    tensor->dtype = types[random_below(seed, COUNT(types))];
    if (like && random_below(seed, 3) > 0)
        tensor->dtype = like->dtype;
    if (index > 0 && random_below(seed, 2) == 0)
        tensor->dtype = random_below(seed, 3) ? GQAC_I64 : GQAC_I32;
    tensor->rank = (int)random_below(seed, 5);
    for (int i = 0; i < tensor->rank; i++)
        tensor->dims[i] = random_below(seed, 12) == 0 ? 0 : 1 + random_below(seed, 4);
    if (random_below(seed, 60) == 0 && tensor->rank > 0) /* rarely, more elements than one span */
        tensor->dims[tensor->rank - 1] = 600 + random_below(seed, 50);
    if (like && kind == 0) { /* the same shape, sometimes with ones */
        *tensor = (gqac_tensor){.dtype = tensor->dtype, .rank = like->rank};
        for (int i = 0; i < like->rank; i++)
            tensor->dims[i] = random_below(seed, 3) ? like->dims[i] : 1;
    } else if (like && kind == 1) { /* as many entries as the first input has axes */
        tensor->rank = 1;
        tensor->dims[0] =
            like->rank > 0 ? 1 + (int64_t)random_below(seed, (uint32_t)like->rank) : 0;
    } else if (like && kind == 2) {
        tensor->rank = (int)random_below(seed, 2);
        tensor->dims[0] = 1;
    }
    tensor->data = gqac_arena_calloc(arena, gqac_tensor_bytes(tensor) + 1, 1);
    fill(tensor, seed);
    return tensor;
}

/* Values that string attributes of ops may have, and some that none may have. */
static const char *const words[] = {"LEFT", "RIGHT", "none",   "add",  "mul",      "max",
                                    "min",  "tanh",  "linear", "edge", "circular", "nonsense"};

static void random_attrs(const ir_schema *schema, int rank, uint64_t *seed, char *text,
                         size_t size) {
    size_t at = 0;
    text[0] = '\0';
    for (const ir_attr_spec *a = schema->attrs; a && a->name; a++) {
        if (!a->required && random_below(seed, 3) == 0)
            continue;
        if (a->kind == IR_ATTR_INT && strcmp(a->name, "num_outputs") != 0)
            at += (size_t)snprintf(text + at, size - at, "%s=%d ", a->name,
                                   (int)random_below(seed, 7) - 2);
        else if (a->kind == IR_ATTR_DTYPE)
            at += (size_t)snprintf(text + at, size - at, "%s=%s ", a->name,
                                   gqac_dtype_name(types[random_below(seed, COUNT(types))]));
        else if (a->kind == IR_ATTR_STRING)
            at += (size_t)snprintf(text + at, size - at, "%s='%s' ", a->name,
                                   words[random_below(seed, COUNT(words))]);
        else if (a->kind == IR_ATTR_INTS && rank > 1) {
            int turn = (int)random_below(seed, (uint32_t)rank);
            at += (size_t)snprintf(text + at, size - at, "%s=", a->name);
            for (int i = 0; i < rank; i++)
                at +=
                    (size_t)snprintf(text + at, size - at, "%s%d", i ? "," : "", (i + turn) % rank);
            at += (size_t)snprintf(text + at, size - at, " ");
        }
        CU_ASSERT_TRUE_FATAL(at < size);
    }
}

static bool run_random(const ir_schema *schema, uint64_t *seed) {
    char attrs[1024];
    int least, most;
    op_probe p = {.op = schema->name,
                  .domain = schema->domain,
                  .attrs = attrs,
                  .arena = gqac_arena_create(64 << 20)};
    ir_schema_arity(schema->inputs, &least, &most);
    most = most > 4 ? least + 2 : most;
    most = most > SUPPORT_MAX ? SUPPORT_MAX : most;
    p.n_in = least + (int)random_below(seed, (uint32_t)(most - least + 1));
    for (int i = 0; i < p.n_in; i++)
        if (i < least || random_below(seed, 6))
            p.in[i] = random_tensor(p.arena, seed, i ? p.in[0] : NULL, i);
    ir_schema_arity(schema->outputs, &least, &most);
    p.n_out = most > 4 ? 1 + (int)random_below(seed, 3) : least;
    random_attrs(schema, p.in[0] ? p.in[0]->rank : 0, seed, attrs, sizeof attrs);
    gqac_status status = run_probe(&p);
    CU_ASSERT_TRUE(status != GQAC_INTERNAL);
    if (status != GQAC_OK && !p.diag.what[0])
        CU_FAIL("a failure without a message");
    gqac_arena_free(p.arena);
    return status == GQAC_OK && !p.failed;
}

/* Derived from the name, so that an op has the same nodes whatever else is in the table. */
static uint64_t seed_of(const char *name) {
    uint64_t seed = 1234;
    while (*name)
        seed = seed * 31 + (unsigned char)*name++;
    return seed;
}

static void all_ops(void) {
    int rounds = unit_full() ? 20000 : 400;
    int tried = 0;
    for (int i = 0; i < gqac_op_count; i++) {
        const ir_schema *schema = &gqac_op_table[i]->schema;
        uint64_t seed = seed_of(schema->name);
        int good = 0;
        if (why_excluded(gqac_op_table[i]))
            continue;
        for (int k = 0; k < rounds || (good == 0 && k < 20 * rounds && !is_rare(schema)); k++)
            good += run_random(schema, &seed);
        if (good == 0)
            printf("%s.%s never succeeded\n", schema->domain, schema->name);
        CU_ASSERT_TRUE(good > 0 || is_rare(schema));
        tried++;
    }
    printf("  %d of %d ops of the table\n", tried, gqac_op_count);
    CU_ASSERT_TRUE(tried > 60);
    for (size_t i = 0; i < COUNT(excluded); i++) /* the list contains only existing ops */
        CU_ASSERT_TRUE(op_find("", excluded[i].name) || op_find("gqac", excluded[i].name));
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"all ops", all_ops}};
    return unit_run("ops: fuzz", cases, COUNT(cases), argc, argv);
}
