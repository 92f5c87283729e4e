/* See support_tier.h. */
#include "store/support_tier.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static tier_value *value_of(const tier *t, const gqac_store_key *key) {
    for (size_t i = 0; i < t->n; i++)
        if (!memcmp(&t->values[i].key, key, sizeof *key))
            return &t->values[i];
    return NULL;
}

static bool find(void *arg, int64_t ms, const gqac_store_key *keys, size_t n, size_t *sizes) {
    tier *t = arg;
    t->calls++;
    CU_ASSERT(ms > 0 && n > 0);
    for (size_t i = 0; i < n; i++) {
        const tier_value *v = t->all ? t->all : value_of(t, &keys[i]);
        sizes[i] = v ? v->bytes : 0;
        if (t->fault == TIER_HUGE || (t->fault == TIER_CUTS && v))
            sizes[i] = t->at;
    }
    if (t->fault == TIER_FIND_LATE) {
        const struct timespec late = {.tv_nsec = (ms + 5) * 1000000};
        nanosleep(&late, NULL);
    }
    return t->fault != TIER_DOWN;
}

/* Another value, of the same size if there is one. */
static const tier_value *other_than(const tier *t, const tier_value *v) {
    const tier_value *other = v;
    for (size_t i = 0; i < t->n; i++)
        if (&t->values[i] != v && (other == v || t->values[i].bytes == v->bytes))
            other = &t->values[i];
    return other;
}

static bool get(void *arg, int64_t ms, const gqac_store_key *key, void *data, size_t capacity,
                size_t *bytes) {
    tier *t = arg;
    const tier_value *v = t->all ? t->all : value_of(t, key);
    t->calls++;
    CU_ASSERT(ms > 0);
    *bytes = 0;
    if (t->fault == TIER_DOWN || t->fault == TIER_GET_FAILS)
        return false;
    if (!v || t->fault == TIER_FORGETS)
        return true;
    if (t->fault == TIER_SWAPS)
        v = other_than(t, v);
    *bytes = t->fault == TIER_CUTS || t->fault == TIER_CUTS_LATER ? t->at : v->bytes;
    if (*bytes <= capacity) {
        memset(data, 0, *bytes);
        memcpy(data, v->data, *bytes < v->bytes ? *bytes : v->bytes);
        if (t->fault == TIER_FLIPS)
            ((unsigned char *)data)[t->at] ^= 1;
    }
    return true;
}

static bool put(void *arg, int64_t ms, const gqac_store_key *key, const void *data, size_t bytes) {
    tier *t = arg;
    tier_value *v = value_of(t, key);
    t->calls++;
    CU_ASSERT(ms > 0);
    if (t->fault == TIER_DOWN)
        return false;
    if (!v && t->n == t->capacity) {
        t->capacity = 2 * t->capacity + 16;
        t->values = realloc(t->values, t->capacity * sizeof *t->values);
    }
    if (!v)
        v = &t->values[t->n++];
    else
        free(v->data);
    *v = (tier_value){.key = *key, .data = malloc(bytes), .bytes = bytes};
    memcpy(v->data, data, bytes);
    return true;
}

void tier_free(tier *t) {
    for (size_t i = 0; i < t->n; i++)
        free(t->values[i].data);
    free(t->values);
    *t = (tier){.n = 0};
}

gqac_store_remote tier_functions(tier *t) {
    return (gqac_store_remote){
        .size = sizeof(gqac_store_remote), .find = find, .get = get, .put = put, .arg = t};
}
