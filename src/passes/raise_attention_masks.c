/* The masks of an attention: what they mean becomes attributes of Attention; the rest stays
 * tensors, the first of which is reported with the node that could not be read. */
#include "ops/build.h"
#include "passes/raise_attention.h"

/* Turns a mask for scores [B*H,S,T] into one for scores [B,H,S,T]. */
static ir_value *as_four(raise *r, ir_value *x, int64_t heads) {
    if (x->type.rank != 3 || raise_dim(x, 0) == 1)
        return x;
    ir_value *split = OP_I64S(&r->b, -1, heads), *rest = op_build_lengths(&r->b, x, 1, 2);
    ir_value *to = op_build_concat(&r->b, 0, 2, (ir_value *[]){split, rest});
    ir_value *y = OP_BUILD(&r->b, "Reshape", .in = {x, to});
    for (ir_node *node = y ? rest->def : NULL; node && r->b.status == GQAC_OK;
         node = node == y->def ? NULL : node->next)
        r->b.status = pass_infer_node(node, r->b.diag);
    return y;
}

/* Reads the mask as in a sequence, which has no padding. */
static bool look_at(raise *r, const attention *a, const raise_part *part, const ir_dim *keys,
                    raise *look, raise_mask *seen) {
    *seen = (raise_mask){.left = -1};
    *look = *r;
    look->unpadded = true;
    look->stop = NULL;
    const bool known =
        raise_read_mask(look, part->of, part->hidden, &a->q->type, a->k.past, keys, seen);
    r->b.status = look->b.status;
    return known;
}

static bool is_bias(raise *r, const attention *a, const raise_part *part, const ir_dim *keys) {
    raise look;
    raise_mask seen;
    return look_at(r, a, part, keys, &look, &seen) && seen.slopes;
}

/* Returns why the mask cannot be an operand of Attention; NULL: it can. (The mask of an Attention
 * always can.) */
static const char *not_carried(raise *r, const attention *a, raise_part *part, const ir_dim *keys) {
    if (part->factor != 0 && !is_bias(r, a, part, keys))
        return "a scale comes after the mask";
    return !a->softmax ||
                   raise_mask_fits(r, &part->of->type, &a->q->type, a->k.past, keys, &part->narrow)
               ? NULL
               : "the mask may have other rows than the queries";
}

/* Reports the node because of which a mask could not be read: the one for a sequence, which has no
 * padding, or else the one for this graph. Slopes that a sequence can read are not reported. */
static void note_carried(raise *r, const attention *a, const raise_part *part, const ir_dim *keys) {
    raise look;
    raise_mask seen;
    const bool known = look_at(r, a, part, keys, &look, &seen);
    if (known && seen.slopes)
        return;
    r->carried = known ? r->stop : look.stop;
    r->carried_why = known ? r->why : look.why;
}

/* A mask that was read becomes attributes; one that could not be read stays a tensor and is
 * reported. */
static bool read_part(raise *r, attention *a, raise_part *part) {
    const ir_dim *keys = (a->k.past ? a->k.present : a->k.rows)->type.dims[2];
    const ir_node *stop = r->stop;
    const char *why = r->why;
    if (part->folded)
        part->of = as_four(r, part->of, raise_dim(a->q, 1));
    if (r->b.status != GQAC_OK)
        return false;
    part->seen = (raise_mask){.left = -1};
    r->mask_factor = part->factor;
    if (raise_read_mask(r, part->of, part->hidden, &a->q->type, a->k.past, keys, &part->seen)) {
        part->carried = part->seen.slopes || (r->portable && part->seen.left >= 0);
        const char *no = part->carried ? not_carried(r, a, part, keys) : NULL;
        return !no || raise_stopped(r, part->of->def ? part->of->def : a->root, no);
    }
    const char *no = not_carried(r, a, part, keys);
    if (no) {
        r->stop = stop;
        return raise_stopped(r, part->of->def ? part->of->def : a->root, no);
    }
    if (!r->carried)
        note_carried(r, a, part, keys);
    r->stop = stop;
    r->why = why;
    part->carried = true;
    part->seen = (raise_mask){.left = -1};
    return true;
}

bool raise_read_masks(raise *r, attention *a) {
    a->mask = (raise_mask){.left = -1};
    for (int i = 0; i < a->scores.n; i++) {
        raise_part *part = &a->scores.parts[i];
        if (!read_part(r, a, part))
            return false;
        const raise_mask *m = &part->seen;
        if (a->mask.padding && m->padding && a->mask.padding != m->padding)
            part->carried = true;
        a->mask.causal = a->mask.causal || m->causal;
        if (m->left >= 0 && (a->mask.left < 0 || m->left < a->mask.left))
            a->mask.left = m->left;
        if (m->padding && !part->carried)
            a->mask.padding = m->padding;
        a->has_tensors = a->has_tensors || part->carried;
    }
    return true;
}

bool raise_may_hide_rows(const attention *a) {
    for (int i = 0; i < a->scores.n; i++) {
        const raise_part *part = &a->scores.parts[i];
        const bool known = !part->carried || part->seen.slopes || part->seen.left >= 0;
        if (part->seen.padding || !known)
            return true;
    }
    return false;
}
