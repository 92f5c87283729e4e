/* What the tests of src/ir share: a few small schemas with every kind of input, output and
 * attribute, and a lookup for the parser. The real op table is not involved. */
#ifndef GQAC_TEST_IR_FIXTURE_H
#define GQAC_TEST_IR_FIXTURE_H

#include "../unit.h"
#include "ir/ir.h"
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const ir_schema op_add = {.name = "Add", .domain = "", .inputs = "a b", .outputs = "c"};
static const ir_schema op_neg = {.name = "Neg", .domain = "", .inputs = "x", .outputs = "y"};
static const ir_attr_spec concat_attrs[] = {{.name = "axis", .kind = IR_ATTR_INT, .required = true},
                                            {0}};
static const ir_schema op_concat = {
    .name = "Concat", .domain = "", .inputs = "x+", .outputs = "y", .attrs = concat_attrs};
static const ir_attr_spec cast_attrs[] = {{.name = "to", .kind = IR_ATTR_DTYPE, .required = true},
                                          {0}};
static const ir_schema op_cast = {
    .name = "Cast", .domain = "", .inputs = "x", .outputs = "y", .attrs = cast_attrs};
static const ir_attr_spec if_attrs[] = {
    {.name = "then_branch", .kind = IR_ATTR_GRAPH, .required = true},
    {.name = "else_branch", .kind = IR_ATTR_GRAPH, .required = true},
    {0}};
static const ir_schema op_if = {
    .name = "If", .domain = "", .inputs = "cond", .outputs = "y*", .attrs = if_attrs};
static const ir_attr_spec gqa_attrs[] = {
    {.name = "num_heads", .kind = IR_ATTR_INT, .required = true},
    {.name = "kv_num_heads", .kind = IR_ATTR_INT, .required = true},
    {.name = "scale", .kind = IR_ATTR_FLOAT},
    {.name = "do_rotary", .kind = IR_ATTR_INT, .fallback = {.set = true, .i = 0}},
    {.name = "local_window_size", .kind = IR_ATTR_INT, .fallback = {.set = true, .i = -1}},
    {0}};
static const ir_schema op_gqa = {.name = "GroupQueryAttention",
                                 .domain = "com.microsoft",
                                 .inputs = "query key? value? past_key? past_value? len tot",
                                 .outputs = "y k v qk?",
                                 .attrs = gqa_attrs};
static const ir_attr_spec kitchen_attrs[] = {
    {.name = "i", .kind = IR_ATTR_INT, .fallback = {.set = true, .i = 7}},
    {.name = "f", .kind = IR_ATTR_FLOAT, .fallback = {.set = true, .f = 0.5f}},
    {.name = "s", .kind = IR_ATTR_STRING, .fallback = {.set = true, .s = "floor"}},
    {.name = "ints", .kind = IR_ATTR_INTS},
    {.name = "floats", .kind = IR_ATTR_FLOATS},
    {.name = "strings", .kind = IR_ATTR_STRINGS},
    {.name = "t", .kind = IR_ATTR_TENSOR},
    {.name = "g", .kind = IR_ATTR_GRAPH},
    {.name = "d", .kind = IR_ATTR_DTYPE, .fallback = {.set = true, .dtype = GQAC_F32}},
    {0}};
static const ir_schema op_kitchen = {.name = "kitchen",
                                     .domain = "gqac",
                                     .inputs = "x?",
                                     .outputs = "y? z*",
                                     .attrs = kitchen_attrs};
static const ir_schema op_append = {.name = "append",
                                    .domain = "gqac",
                                    .inputs = "state x",
                                    .outputs = "state",
                                    .flags = IR_OP_EFFECT};

static inline const ir_schema *fixture_lookup(const char *domain, const char *name) {
    static const ir_schema *const all[] = {&op_add, &op_neg, &op_concat,  &op_cast,
                                           &op_if,  &op_gqa, &op_kitchen, &op_append};
    for (size_t i = 0; i < COUNT(all); i++)
        if (strcmp(all[i]->domain, domain) == 0 && strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

/* A small generator; the tests do not depend on the quality of its numbers. */
static inline uint32_t random_u32(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

#endif
