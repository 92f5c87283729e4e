/* Constant float weights as bf16 factors in pairs of k: how --math bf16 packs the weights of MatMul
 * and Gemm (ops/panels.h describes the form). */
#include <string.h>

#include "numerics/convert.h"
#include "ops/linear.h"
#include "targets/cpu/pack.h"

/* Writes a line of pairs from `count` columns of two rows of w, padded with zeros. */
static void put_line(uint16_t *to, const float *even, const float *odd, int64_t count) {
    for (int64_t c = 0; c < LINEAR_PANEL; c++) {
        to[2 * c] = c < count ? gqn_bf16_factor(even[c]) : 0;
        to[2 * c + 1] = c < count ? gqn_bf16_factor(odd[c]) : 0;
    }
}

/* From a plain weight [k,n], two rows at a time. */
static gqac_status from_rows(const gqac_tensor *w, int64_t k, int64_t n, uint16_t *to,
                             gqac_poll *poll, gqac_diag *diag) {
    const float none[LINEAR_PANEL] = {0};
    float even[LINEAR_PANEL], odd[LINEAR_PANEL];
    for (int64_t column = 0; column < n; column += LINEAR_PANEL) {
        const int64_t count = n - column < LINEAR_PANEL ? n - column : LINEAR_PANEL;
        GQAC_TRY(gqac_poll_check(poll, diag));
        for (int64_t i = 0; i < k; i += 2, to += LINEAR_PAIRS) {
            op_get_f32s(w, i * n + column, count, even);
            if (i + 1 < k)
                op_get_f32s(w, (i + 1) * n + column, count, odd);
            put_line(to, even, i + 1 < k ? odd : none, count);
        }
    }
    return GQAC_OK;
}

/* From a transposed weight [n,k], in runs along k of each row. */
static gqac_status from_columns(const gqac_tensor *w, int64_t k, int64_t n, uint16_t *to,
                                gqac_poll *poll, gqac_diag *diag) {
    enum { RUN = 64 };
    float run[RUN];
    const int64_t panel = linear_pairs(k) * LINEAR_PAIRS;
    for (int64_t column = 0; column < n; column++) {
        uint16_t *at = to + column / LINEAR_PANEL * panel + column % LINEAR_PANEL * 2;
        if (column % LINEAR_PANEL == 0)
            GQAC_TRY(gqac_poll_check(poll, diag));
        for (int64_t i = 0; i < k; i += RUN) {
            const int64_t count = k - i < RUN ? k - i : RUN;
            op_get_f32s(w, column * k + i, count, run);
            for (int64_t j = 0; j < count; j++)
                at[(i + j) / 2 * LINEAR_PAIRS + j % 2] = gqn_bf16_factor(run[j]);
        }
    }
    return GQAC_OK;
}

gqac_status cpu_pack_pairs(const ir_value *weight, bool transposed, int64_t n, int64_t k,
                           gqac_poll *poll, ir_value **packed, gqac_diag *diag) {
    gqac_tensor t = {
        .dtype = GQAC_BF16, .rank = 3, .dims = {linear_panels(n), linear_pairs(k), LINEAR_PAIRS}};
    size_t bytes;
    GQAC_TRY(gqac_shape_bytes(t.dtype, t.rank, t.dims, &bytes, diag));
    t.data = cpu_pack_alloc(weight->graph->module, bytes);
    if (t.data && transposed)
        memset(t.data, 0, bytes); /* the padding after n and k */
    if (t.data)
        GQAC_TRY(
            (transposed ? from_columns : from_rows)(weight->constant, k, n, t.data, poll, diag));
    *packed = t.data ? ir_graph_add_constant(weight->graph, weight->name, &t) : NULL;
    return *packed ? GQAC_OK : gqac_diag_oom(diag, "a packed weight");
}
