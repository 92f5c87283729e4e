/* Private to the fake of ONNX Runtime: what the provider only has pointers to. */
#ifndef GQAC_TEST_ORT_FAKE_IMPL_H
#define GQAC_TEST_ORT_FAKE_IMPL_H

#include "../../integrations/ort/ort.h"
#include "ort/fake.h"

enum { FAKE_STRING = 8, FAKE_BUCKETS = 64, FAKE_RANK = 64 };

struct ort_tensor_info {
    int element;
    bool has_shape;
    size_t rank;
    int64_t *dims;      /* -1: not known */
    const char **names; /* of dimensions that are not known */
};
struct ort_type_info {
    bool is_tensor;
    ort_tensor_info tensor;
};
struct ort_value {
    ort_tensor_info info;
    void *data; /* of exactly `bytes` bytes, from malloc */
    size_t bytes;
    ort_value *next; /* of the session's own values */
};
struct ort_external {
    char path[4096];
    int64_t offset;
    size_t bytes;
};
struct ort_value_info {
    const char *name;
    const Onnx__TypeProto *declared; /* NULL: it has no type */
    ort_type_info *type;
    const Onnx__TensorProto *proto; /* of an initializer; NULL: it is not one */
    ort_value *value;
    bool constant, output;
    ort_value_info *next; /* in its bucket */
};
struct ort_node {
    const Onnx__NodeProto *proto;
    const ort_value_info **in, **out; /* NULL: left out */
    const ort_value_info **implicit;
    size_t n_implicit;
    ort_graph **nested;
    const char **nested_names;
    size_t n_nested;
};
typedef struct fake_list {
    const ort_value_info **values;
    size_t n;
} fake_list;
struct ort_graph {
    struct fake_state *state;
    ort_graph *outer; /* the graph around it; NULL: none */
    ort_node *parent; /* the node that it belongs to */
    ort_node *nodes;
    size_t n_nodes;
    ort_value_info *buckets[FAKE_BUCKETS];
    fake_list inputs, outputs, initializers;
};
typedef struct fake_group {
    const ort_node **nodes;
    size_t n;
} fake_group;
struct ort_support {
    struct fake_state *state;
    fake_group *groups;
    size_t n;
};

/* A session. What the provider must release is counted in `live`. */
typedef struct fake_state {
    const Onnx__ModelProto *model;
    const fake_options *options;
    gqac_arena *arena; /* what lives as long as the session */
    ort_value *values; /* the session's own */
    int calls, live;
    fake_result *result;
} fake_state;
extern fake_state *fake_now; /* the session that calls the provider */
extern const ort_api_base fake_base;

/* One run of a fused node. */
struct ort_kernel_context {
    const ort_node *node;
    const ort_value **in;
    ort_value **out; /* NULL: not asked for yet */
};

/* fake_graph.c. Memory that is exhausted ends the process. */
void *fake_alloc(size_t count, size_t size);
const char *fake_text(const char *text); /* "" of NULL */
/* False: no such type, a dimension that is not known, or too large. */
bool fake_bytes(const ort_tensor_info *info, size_t *bytes);
/* The value belongs to the caller. NULL: the runtime refuses the tensor. */
ort_value *fake_tensor(const Onnx__TensorProto *proto);
ort_value *fake_value(int element, const int64_t *dims, size_t rank);
void fake_value_free(ort_value *value);
const char *fake_external(const Onnx__TensorProto *proto, const char *key); /* NULL: none */
/* NULL: the runtime refuses the graph. */
ort_graph *fake_graph(const Onnx__GraphProto *proto, ort_graph *outer, ort_node *parent);

#endif
