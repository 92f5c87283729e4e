/* Attention over a quantised cache reads the codes: the bits of kv_dequantise followed by
 * attention, at every level, for tensors of codes. (test/python/test_gqa_caches.py tests whole
 * models, with caches in blocks.) */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "levels.h"
#include "targets/cpu/attention.h"
#include "targets/cpu/graph.h"
#include "unit.h"

static uint64_t seed;
static unsigned any(unsigned n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

enum { Q, K, V, PAST, NEW, K_SCALE, V_SCALE, VALUES };

typedef struct sample {
    gqac_arena *arena;
    ir_module *module;
    ir_value *values[VALUES];
    gqac_tensor tensors[VALUES];
    ir_node *decoders[2], *node;
} sample;

static gqac_tensor tensor(sample *c, gqac_dtype dtype, int rank, const int64_t *dims) {
    gqac_tensor t = {.dtype = dtype, .rank = rank};
    memcpy(t.dims, dims, sizeof *dims * (size_t)rank);
    t.data = gqac_arena_alloc(c->arena, gqac_tensor_bytes(&t) + 1);
    for (size_t i = 0; i < gqac_tensor_bytes(&t); i++)
        ((uint8_t *)t.data)[i] = (uint8_t)any(256);
    for (int64_t i = 0; dtype == GQAC_F32 && i < gqac_tensor_count(&t); i++)
        ((float *)t.data)[i] = ((float)any(2001) - 1000.0f) / 500.0f;
    return t;
}

static ir_node *decoder(ir_builder *b, sample *c, int input, int bits, bool per_channel, int size) {
    ir_node *node = op_build(b, "gqac", "kv_dequantise", 2,
                             (ir_value *[]){c->values[input], c->values[input - K + K_SCALE]}, 1);
    gqac_diag diag = {0};
    ir_attr_set_int(node, "bits", bits);
    ir_attr_set_int(node, "per_channel", per_channel);
    ir_attr_set_int(node, "size", size);
    CU_ASSERT_EQUAL_FATAL(op_infer(node, &diag), GQAC_OK);
    return node;
}

static void make_sample(sample *c) {
    static const int sizes[] = {8, 20, 33, 64, 128};
    const int size = sizes[any(5)], bits[2] = {any(2) ? 8 : 4, any(2) ? 8 : 4};
    const bool per_channel[2] = {any(2), any(2)};
    const int64_t queries = any(3) ? 1 + any(70) : 1, keys = queries + any(600), heads = 2;
    const int64_t batch = 2, group = 1 + any(4);
    gqac_diag diag = {0};
    *c = (sample){.arena = gqac_arena_create(0)};
    c->tensors[Q] = tensor(c, GQAC_F32, 4, (int64_t[]){batch, heads * group, queries, size});
    for (int i = 0; i < 2; i++) {
        const int64_t width = bits[i] == 4 ? (size + 1) / 2 : size, scales = heads * size;
        c->tensors[K + i] =
            tensor(c, bits[i] == 4 ? GQAC_U8 : GQAC_I8, 4, (int64_t[]){batch, heads, keys, width});
        c->tensors[K_SCALE + i] = tensor(c, GQAC_F32, 1, per_channel[i] ? &scales : &(int64_t){1});
        c->tensors[PAST + i] = tensor(c, GQAC_I32, 1, &batch);
    }
    for (int b = 0; b < batch; b++) {
        ((int32_t *)c->tensors[PAST].data)[b] = (int32_t)(keys - queries - (b && keys > queries));
        ((int32_t *)c->tensors[NEW].data)[b] = (int32_t)queries;
    }
    c->module = ir_module_create(c->arena, "test");
    c->module->graph = ir_graph_create(c->module, "test");
    for (int i = 0; i < VALUES; i++)
        c->values[i] =
            ir_graph_add_input(c->module->graph, "x", ir_type_of_tensor(c->module, &c->tensors[i]));
    ir_builder b = {.graph = c->module->graph, .diag = &diag};
    for (int i = 0; i < 2; i++)
        c->decoders[i] = decoder(&b, c, K + i, bits[i], per_channel[i], size);
    c->node = op_build(&b, "gqac", "attention", 5,
                       (ir_value *[]){c->values[Q], c->decoders[0]->outputs[0],
                                      c->decoders[1]->outputs[0], c->values[PAST], c->values[NEW]},
                       1);
    ir_attr_set_float(c->node, "scale", 0.02f);
    CU_ASSERT_EQUAL_FATAL(op_infer(c->node, &diag), GQAC_OK);
    CU_ASSERT_TRUE_FATAL(cpu_attention_match(c->node));
}

/* k and v: the results of kv_dequantise, if it is not fused into attention. */
static gqac_status run(sample *c, const gqac_tensor *k, const gqac_tensor *v, const void *level,
                       gqac_tensor *y) {
    gqac_tensor values[VALUES + 3] = {{.rank = 0}};
    gqac_diag diag = {0};
    for (int i = 0; i < VALUES; i++) {
        c->values[i]->id = i;
        values[i] = c->tensors[i];
    }
    for (int i = 0; i < 2; i++) {
        const gqac_tensor *rows = i ? v : k;
        c->decoders[i]->outputs[0]->id = VALUES + i;
        if (rows)
            values[VALUES + i] = *rows;
    }
    return kernel_try_values(c->arena, c->node, cpu_bind_attention, cpu_attention_run, values,
                             VALUES + 2, y, level, NULL, NULL, &diag);
}

static void test_codes(void) {
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    seed = 5;
    for (int i = 0; i < unit_count(25, 100); i++) {
        sample c;
        ir_node *fused[2];
        gqac_tensor rows[2], want, is;
        gqac_diag diag = {0};
        make_sample(&c);
        for (int j = 0; j < 2; j++) {
            const gqac_tensor *in[] = {&c.tensors[K + j], &c.tensors[K_SCALE + j]};
            CU_ASSERT_EQUAL_FATAL(op_eval(c.decoders[j], in, &rows[j], c.arena, &diag), GQAC_OK);
        }
        for (int l = 0; l < n_levels; l++) {
            if (l == 0) {
                CU_ASSERT_EQUAL_FATAL(run(&c, &rows[0], &rows[1], levels[l], &want), GQAC_OK);
                CU_ASSERT_EQUAL_FATAL(cpu_attention_fuse(c.node, fused), 2);
                fused[0]->fused_into = fused[1]->fused_into = c.node;
            }
            CU_ASSERT_EQUAL_FATAL(run(&c, NULL, NULL, levels[l], &is), GQAC_OK);
            CU_ASSERT(!memcmp(is.data, want.data, gqac_tensor_bytes(&want)));
        }
        gqac_arena_free(c.arena);
    }
}

/* Operands that kv_dequantise refuses are refused here, too. */
static void test_refusals(void) {
    const void *level = NULL;
    gqac_diag diag = {0};
    gqac_tensor y;
    ir_node *fused[2];
    sample c;
    seed = 9;
    make_sample(&c);
    CU_ASSERT_EQUAL_FATAL(cpu_level_pick(&level, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(cpu_attention_fuse(c.node, fused), 2);
    fused[0]->fused_into = fused[1]->fused_into = c.node;
    c.tensors[K].dims[3]--;
    CU_ASSERT_EQUAL(run(&c, NULL, NULL, level, &y), GQAC_INVALID_INPUT);
    c.tensors[K].dims[3]++;
    c.tensors[V_SCALE].dims[0]++;
    CU_ASSERT_EQUAL(run(&c, NULL, NULL, level, &y), GQAC_INVALID_INPUT);
    c.tensors[V_SCALE].dims[0]--;
    ((uint32_t *)c.tensors[K_SCALE].data)[0] = 0x7f800000u;
    CU_ASSERT_EQUAL(run(&c, NULL, NULL, level, &y), GQAC_INVALID_INPUT);
    gqac_arena_free(c.arena);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"the bits of dequantised rows", test_codes},
        {"codes and scales that do not fit", test_refusals},
    };
    return unit_run("attention over codes", cases, sizeof cases / sizeof *cases, argc, argv);
}
