/* Caches that a file casts at both ends: past f32 -> Cast to f16 -> attention, present f16 -> Cast
 * to f32. Conversion to f16 leaves this where a model keeps the types of its inputs and outputs. A
 * cached row was rounded to f16 when it was computed, and f32 holds it exactly, so the Casts change
 * nothing. A sequence keeps the rows in f16: both Casts are removed. */
#include "ops/shared.h"
#include "passes/stateful.h"

static bool is_cast_to(const ir_node *node, gqac_dtype dtype) {
    return op_is(node, "", "Cast") && node->outputs[0]->type.dtype == dtype;
}

/* The type to which all readers cast a past; NONE: there is none. */
static gqac_dtype inner_type(const ir_value *past) {
    gqac_dtype inner = GQAC_NONE;
    for (const ir_use *use = past->uses; use; use = use->next) {
        if (op_is(use->node, "", "Shape"))
            continue;
        const gqac_dtype own =
            op_is(use->node, "", "Cast") ? use->node->outputs[0]->type.dtype : GQAC_NONE;
        if (!pass_widens(own, past->type.dtype) || (inner != GQAC_NONE && own != inner))
            return GQAC_NONE;
        inner = own;
    }
    return inner;
}

/* The Cast to `outer` through which the present of a past is returned; NULL: there is none. */
static ir_node *cast_back(const ir_use *past, gqac_dtype outer) {
    const ir_value *present = !op_is(past->node, "", "Concat") ? pass_present_of(past)
                              : past == past->node->inputs     ? past->node->outputs[0]
                                                               : NULL;
    for (const ir_use *use = present ? present->uses : NULL; use; use = use->next)
        if (is_cast_to(use->node, outer) && pass_is_returned_cast(use->node))
            return use->node;
    return NULL;
}

/* The first Cast of a past to `inner`; NULL: there is none. */
static ir_node *cast_of(const ir_value *past, gqac_dtype inner) {
    for (const ir_use *use = past->uses; use; use = use->next)
        if (is_cast_to(use->node, inner))
            return use->node;
    return NULL;
}

/* The Cast of the present that belongs to a past, which is cast to `inner`. */
static ir_node *present_cast(const ir_value *past, gqac_dtype inner) {
    for (const ir_use *outer = past->uses; outer; outer = outer->next) {
        if (!is_cast_to(outer->node, inner))
            continue;
        for (const ir_use *use = outer->node->outputs[0]->uses; use; use = use->next) {
            ir_node *back = cast_back(use, past->type.dtype);
            if (back)
                return back;
        }
    }
    return NULL;
}

void stateful_uncast(stateful *s) {
    for (int i = 0; i < s->graph->n_inputs; i++) {
        ir_value *past = s->graph->inputs[i];
        const gqac_dtype inner = inner_type(past);
        ir_node *back = inner == GQAC_NONE ? NULL : present_cast(past, inner), *cast;
        if (!back)
            continue;
        past->type.dtype = inner;
        ir_value_replace(back->outputs[0], ir_node_input(back, 0));
        while ((cast = cast_of(past, inner))) {
            ir_value_replace(cast->outputs[0], past);
            ir_node_remove(cast);
        }
        s->context->changed++;
    }
    pass_sweep(s->context->module);
}

gqac_status stateful_check_casts(const stateful *s, const ir_value *past) {
    gqac_diag *diag = s->context->diag;
    for (const ir_use *use = past->uses; use; use = use->next) {
        const gqac_dtype inner =
            op_is(use->node, "", "Cast") ? use->node->outputs[0]->type.dtype : GQAC_NONE;
        if (inner == GQAC_NONE || !present_cast(past, inner))
            continue;
        op_fail(use->node, diag, GQAC_UNSUPPORTED,
                "the KV cache '%s' is of type %s, but attention reads it as %s", past->name,
                gqac_dtype_name(past->type.dtype), gqac_dtype_name(inner));
        gqac_diag_rule(diag, "rows that a present rounds would be read unrounded in the call that "
                             "computes them, and rounded in later calls");
        gqac_diag_hint(diag, "export the model with caches of the type that attention reads; `gqac "
                             "run` runs the graph as exported");
        return GQAC_UNSUPPORTED;
    }
    return GQAC_OK;
}
