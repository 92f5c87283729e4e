/* Finds out what a mask means. The element of the mask for batch row b, head h, query row q and key
 * row k is computed as a term in these coordinates: the term of a node comes from those of its
 * operands (raise_terms.h), down to constants, lengths and the attention mask. The term is then
 * compared with what Attention can express. So it does not matter from which ops an exporter builds
 * its masks.
 *
 * If the keys are a past followed by new rows, two facts are known that shapes do not show: all
 * pasts except an encoder's have the same number of rows, and the attention mask has one column, 0
 * or 1, for each past and new row. In a sequence (`unpad`) it is 1 everywhere. Other inputs with
 * such a name (encoder_attention_mask) are only known to be 0 or 1. */
#include "passes/raise_index.h"

#include <string.h>

#include "ops/shared.h"

/* ---- from terms to attributes -------------------------------------------- */

/* One condition: causality, a window, the attention mask, or one that always holds. */
static bool add_condition(const reader *e, const term_atom *atom, raise_mask *out) {
    int64_t width;
    if (atom->of) {
        if (atom->zero || atom->row != e->at[B] || atom->column != e->at[K] ||
            settled(e, atom->of->type.dims[1]) != e->length[K] ||
            (out->padding && out->padding != atom->of))
            return false;
        out->padding = atom->of;
        return true;
    }
    if (raise_holds_everywhere(e, atom->least))
        return true;
    const ir_dim *own = ir_dim_add(e->dims, e->cached, e->at[Q]); /* position of the query */
    const ir_dim *distance = ir_dim_sub(e->dims, own, e->at[K]);
    if (!distance)
        return false;
    if (atom->least == distance) {
        out->causal = true;
        return true;
    }
    if (e->new_columns)
        return false;
    /* k - (past + q) + left >= 0 */
    if (!ir_dim_is_const(ir_dim_add(e->dims, atom->least, distance), &width) || width < 0)
        return false;
    out->left = out->left < 0 || width < out->left ? width : out->left;
    return true;
}

/* A number that is added: 0 where a key is visible, and otherwise one that hides the score. */
static bool is_zero_or_hides(const reader *e, const term *found, gqac_dtype dtype,
                             term_truth *seen) {
    double yes = found->when.negated ? found->no : found->yes;
    double no = found->when.negated ? found->yes : found->no;
    *seen = found->when;
    seen->negated = false;
    if (found->kind != TERM_CHOICE && found->kind != TERM_BIAS)
        return false;
    if (yes != 0) {
        const double swap = yes;
        yes = no;
        no = swap;
        if (!seen->n || !term_negate(e->dims, seen))
            return false;
    }
    return yes == 0 && (!seen->n || term_hides_scaled(dtype, no, e->r->mask_factor));
}

/* The bias of each key relative to the first: a softmax ignores what is the same for all keys. With
 * roundings the bias of a distance is not that of its key, so the number must be the key's. */
static bool read_slopes(const reader *e, const term *found, raise_mask *out) {
    const bool rounded = found->rounded != GQAC_NONE;
    const ir_dim *next = ir_dim_add(e->dims, e->at[K], number(e, 1));
    int64_t heads, step;
    next = ir_dim_substitute(e->dims, found->number, 1, &e->at[K], &next);
    if (!next || !ir_dim_is_const(ir_dim_sub(e->dims, next, found->number), &step) ||
        !ir_dim_is_const(e->length[H], &heads) || (rounded && found->number != e->at[K]))
        return false;
    float *slopes = GQAC_ARENA_ARRAY(e->r->context->module->arena, float, (size_t)heads);
    const double by = rounded ? 1 : (double)step * found->factor;
    for (int64_t h = 0; slopes && h < heads; h++)
        slopes[h] = (float)((found->slopes ? (double)found->slopes[h] : 1) * by);
    if (!slopes)
        e->r->b.status = gqac_diag_oom(e->r->b.diag, "slopes");
    out->slopes = slopes;
    out->rounded = found->rounded;
    out->whole_rounded = found->number_rounded != GQAC_NONE;
    out->factor = rounded ? (float)found->factor : 1;
    return slopes != NULL;
}

/* The type in which the numbers of a mask were made. Files in f16 may widen a mask to add it to
 * scores in f32. */
static gqac_dtype number_type(const ir_value *mask) {
    const ir_node *cast = raise_maker(mask, "Cast");
    const gqac_dtype inner = cast ? ir_node_input(cast, 0)->type.dtype : GQAC_NONE;
    return inner == GQAC_F16 ? inner : mask->type.dtype;
}

static bool read_mask(raise *r, const ir_value *mask, bool hidden, const ir_type *q,
                      const ir_value *past, const ir_dim *keys, raise_mask *out) {
    const ir_node *place = mask->def ? mask->def : r->b.before;
    const ir_dim *to[GQAC_MAX_RANK];
    reader e;
    term found;
    term_truth seen;
    if (!raise_open(&e, r, q, past, keys) || mask->type.rank > 4 ||
        !raise_broadcast(&e, mask, e.at, COORDINATES, to))
        return raise_stopped(r, place, "the shape of the mask is not known");
    if (!raise_element(&e, (ir_value *)(uintptr_t)mask, to, &found))
        return raise_stopped(r, place, "the mask cannot be read");
    if (OP_IN(OP_FLOATS, mask->type.dtype))
        term_as_bias(&found);
    seen = found.when;
    if (mask->type.dtype == GQAC_BOOL) {
        if (hidden && !term_negate(e.dims, &seen))
            return raise_stopped(r, place, "the mask hides more than Attention can express");
    } else if (!is_zero_or_hides(&e, &found, number_type(mask), &seen)) {
        return raise_stopped(r, place,
                             "the mask is not 0 for visible keys and the lowest number for others");
    }
    if (seen.negated)
        return raise_stopped(r, place, "the mask hides more than Attention can express");
    for (int i = 0; i < seen.n; i++)
        if (!add_condition(&e, &seen.all[i], out))
            return raise_stopped(r, place, "the mask is neither causal nor that of padding");
    if (found.kind == TERM_BIAS && (e.new_columns || !read_slopes(&e, &found, out)))
        return raise_stopped(r, place, "the bias is not a slope for each head");
    return true;
}

bool raise_read_mask(raise *r, const ir_value *mask, bool hidden, const ir_type *q,
                     const ir_value *past, const ir_dim *keys, raise_mask *out) {
    const raise_unread now = {.mask = mask,
                              .hidden = hidden,
                              .past = past ? past->type.rank : -2,
                              .asked = {q->dims[0], q->dims[1], q->dims[2], keys,
                                        past && past->type.rank == 4 ? past->type.dims[2]
                                        : past                       ? NULL
                                                                     : raise_first_position(r)}};
    raise_unread *last = &r->unread[r->unpadded];
    const ir_node *stop = r->stop;
    const char *why = r->why;
    if (last->mask == mask && last->hidden == hidden && last->past == now.past &&
        !memcmp(last->asked, now.asked, sizeof now.asked))
        return raise_stopped(r, last->stop ? last->stop : r->b.before, last->why);
    r->stop = NULL;
    const bool good = read_mask(r, mask, hidden, q, past, keys, out);
    if (!good) {
        *last = now;
        last->stop = r->stop == r->b.before ? NULL : r->stop;
        last->why = r->why;
    }
    if (stop) { /* the first one is reported */
        r->stop = stop;
        r->why = why;
    }
    return good;
}

bool raise_is_positions(raise *r, ir_value *value, const ir_dim *batch, const ir_dim *rows,
                        bool cut) {
    const ir_dim *lengths[COORDINATES] = {batch, ir_dim_const(r->context->module->dims, 1), rows,
                                          NULL};
    const ir_type q = {.dtype = GQAC_F32, .rank = COORDINATES, .dims = lengths};
    const ir_dim *index[GQAC_MAX_RANK];
    const int rank = value->type.rank, first = rank > 1;
    reader e;
    term found;
    if (rank < 1 || !OP_IN(OP_INDICES, value->type.dtype) || !raise_open(&e, r, &q, NULL, rows))
        return false;
    for (int i = 0; i < rank; i++) {
        const ir_dim *dim = value->type.dims[i];
        index[i] = i < first ? e.at[B] : i == first ? e.at[Q] : number(&e, 0);
        if (i == first ? dim != rows && !cut
                       : !dim || (!is_one(dim) && (i > first || dim != batch)))
            return false;
        if (i != first && is_one(dim))
            index[i] = number(&e, 0);
    }
    return raise_element(&e, value, index, &found) && found.kind == TERM_INT &&
           found.number == e.at[Q];
}
