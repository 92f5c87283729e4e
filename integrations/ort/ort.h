/* ONNX Runtime's plugin interface, as far as this provider uses it: our own declarations.
 *
 * OrtApi, OrtEpApi and OrtModelEditorApi are tables of function pointers that only ever grow at the
 * end, so the number of a slot never changes. ORT_API_SLOTS and ORT_EP_API_SLOTS name each slot
 * that is used, once: SLOT(number, name, result, parameters). Slot 0 stands at the start of the
 * union and needs no row of its own. Structs that the provider fills begin with the version of the
 * interface that it was written for, 23, so the runtime reads no member that came later. */
#ifndef GQAC_ORT_H
#define GQAC_ORT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ORT_VERSION = 23,     /* the tables of ONNX Runtime 1.23 and later */
    ORT_SLOTS_OF_24 = 390 /* OrtApi's from here on are of 1.24 and later */
};

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9, ORT_EP_FAIL = 11 };
enum { ORT_LOG_INFO = 1, ORT_LOG_WARNING = 2 };
enum { ORT_DEVICE_CPU = 0 };
enum { ORT_ATTR_INT = 1, ORT_ATTR_STRING = 5, ORT_ATTR_GRAPH = 7, ORT_ATTR_TENSOR = 8 };

typedef struct ort_status ort_status;
typedef struct ort_value ort_value;
typedef struct ort_type_info ort_type_info;
typedef struct ort_tensor_info ort_tensor_info;
typedef struct ort_session_options ort_session_options;
typedef struct ort_pairs ort_pairs;
typedef struct ort_logger ort_logger;
typedef struct ort_kernel_context ort_kernel_context;
typedef struct ort_compute_context ort_compute_context;
typedef struct ort_graph ort_graph;
typedef struct ort_node ort_node;
typedef struct ort_value_info ort_value_info;
typedef struct ort_attr ort_attr;
typedef struct ort_external ort_external;
typedef struct ort_support ort_support;
typedef struct ort_hardware ort_hardware;
typedef struct ort_device ort_device;
typedef struct ort_factory ort_factory;
typedef struct ort_ep ort_ep;
typedef union ort_ep_api ort_ep_api;
typedef union ort_editor_api ort_editor_api;

/* Texts, nodes and value infos belong to the runtime; statuses to whoever receives them. */
#define ORT_API_SLOTS(SLOT)                                                                        \
    SLOT(2, GetErrorMessage, const char *, (const ort_status *))                                   \
    SLOT(51, GetTensorMutableData, ort_status *, (ort_value *, void **))                           \
    SLOT(55, CastTypeInfoToTensorInfo, ort_status *,                                               \
         (const ort_type_info *, const ort_tensor_info **))                                        \
    SLOT(60, GetTensorElementType, ort_status *, (const ort_tensor_info *, int *))                 \
    SLOT(61, GetDimensionsCount, ort_status *, (const ort_tensor_info *, size_t *))                \
    SLOT(62, GetDimensions, ort_status *, (const ort_tensor_info *, int64_t *, size_t))            \
    SLOT(63, GetSymbolicDimensions, ort_status *,                                                  \
         (const ort_tensor_info *, const char **, size_t))                                         \
    SLOT(65, GetTensorTypeAndShape, ort_status *, (const ort_value *, ort_tensor_info **))         \
    SLOT(88, KernelContext_GetInputCount, ort_status *, (const ort_kernel_context *, size_t *))    \
    SLOT(89, KernelContext_GetOutputCount, ort_status *, (const ort_kernel_context *, size_t *))   \
    SLOT(90, KernelContext_GetInput, ort_status *,                                                 \
         (const ort_kernel_context *, size_t, const ort_value **))                                 \
    SLOT(91, KernelContext_GetOutput, ort_status *,                                                \
         (ort_kernel_context *, size_t, const int64_t *, size_t, ort_value **))                    \
    SLOT(93, ReleaseStatus, void, (ort_status *))                                                  \
    SLOT(96, ReleaseValue, void, (ort_value *))                                                    \
    SLOT(99, ReleaseTensorTypeAndShapeInfo, void, (ort_tensor_info *))                             \
    SLOT(211, CreateOpAttr, ort_status *, (const char *, const void *, int, int, ort_attr **))     \
    SLOT(212, ReleaseOpAttr, void, (ort_attr *))                                                   \
    SLOT(247, Logger_LogMessage, ort_status *,                                                     \
         (const ort_logger *, int, const char *, const char *, int, const char *))                 \
    SLOT(272, ReadOpAttr, ort_status *, (const ort_attr *, int, void *, size_t, size_t *))         \
    SLOT(274, KernelContext_ParallelFor, ort_status *,                                             \
         (const ort_kernel_context *, void (*)(void *arg, size_t i), size_t total,                 \
          size_t n_batches, void *arg))                                                            \
    SLOT(289, GetValueInfoName, ort_status *, (const ort_value_info *, const char **))             \
    SLOT(290, GetValueInfoTypeInfo, ort_status *,                                                  \
         (const ort_value_info *, const ort_type_info **))                                         \
    SLOT(291, GetModelEditorApi, const ort_editor_api *, (void))                                   \
    SLOT(298, GetKeyValuePairs, void,                                                              \
         (const ort_pairs *, const char *const **, const char *const **, size_t *))                \
    SLOT(300, ReleaseKeyValuePairs, void, (ort_pairs *))                                           \
    SLOT(307, HardwareDevice_Type, int, (const ort_hardware *))                                    \
    SLOT(317, GetEpApi, const ort_ep_api *, (void))                                                \
    SLOT(318, GetTensorSizeInBytes, ort_status *, (const ort_value *, size_t *))                   \
    SLOT(326, ValueInfo_GetInitializerValue, ort_status *,                                         \
         (const ort_value_info *, const ort_value **))                                             \
    SLOT(327, ValueInfo_GetExternalInitializerInfo, ort_status *,                                  \
         (const ort_value_info *, ort_external **))                                                \
    SLOT(330, ValueInfo_IsGraphOutput, ort_status *, (const ort_value_info *, bool *))             \
    SLOT(331, ValueInfo_IsConstantInitializer, ort_status *, (const ort_value_info *, bool *))     \
    SLOT(334, Graph_GetModelPath, ort_status *, (const ort_graph *, const char **))                \
    SLOT(335, Graph_GetOnnxIRVersion, ort_status *, (const ort_graph *, int64_t *))                \
    SLOT(336, Graph_GetNumOperatorSets, ort_status *, (const ort_graph *, size_t *))               \
    SLOT(337, Graph_GetOperatorSets, ort_status *,                                                 \
         (const ort_graph *, const char **, int64_t *, size_t))                                    \
    SLOT(338, Graph_GetNumInputs, ort_status *, (const ort_graph *, size_t *))                     \
    SLOT(339, Graph_GetInputs, ort_status *, (const ort_graph *, const ort_value_info **, size_t)) \
    SLOT(340, Graph_GetNumOutputs, ort_status *, (const ort_graph *, size_t *))                    \
    SLOT(341, Graph_GetOutputs, ort_status *,                                                      \
         (const ort_graph *, const ort_value_info **, size_t))                                     \
    SLOT(342, Graph_GetNumInitializers, ort_status *, (const ort_graph *, size_t *))               \
    SLOT(343, Graph_GetInitializers, ort_status *,                                                 \
         (const ort_graph *, const ort_value_info **, size_t))                                     \
    SLOT(344, Graph_GetNumNodes, ort_status *, (const ort_graph *, size_t *))                      \
    SLOT(345, Graph_GetNodes, ort_status *, (const ort_graph *, const ort_node **, size_t))        \
    SLOT(346, Graph_GetParentNode, ort_status *, (const ort_graph *, const ort_node **))           \
    SLOT(349, Node_GetName, ort_status *, (const ort_node *, const char **))                       \
    SLOT(350, Node_GetOperatorType, ort_status *, (const ort_node *, const char **))               \
    SLOT(351, Node_GetDomain, ort_status *, (const ort_node *, const char **))                     \
    SLOT(353, Node_GetNumInputs, ort_status *, (const ort_node *, size_t *))                       \
    SLOT(354, Node_GetInputs, ort_status *, (const ort_node *, const ort_value_info **, size_t))   \
    SLOT(355, Node_GetNumOutputs, ort_status *, (const ort_node *, size_t *))                      \
    SLOT(356, Node_GetOutputs, ort_status *, (const ort_node *, const ort_value_info **, size_t))  \
    SLOT(357, Node_GetNumImplicitInputs, ort_status *, (const ort_node *, size_t *))               \
    SLOT(358, Node_GetImplicitInputs, ort_status *,                                                \
         (const ort_node *, const ort_value_info **, size_t))                                      \
    SLOT(359, Node_GetNumAttributes, ort_status *, (const ort_node *, size_t *))                   \
    SLOT(360, Node_GetAttributes, ort_status *, (const ort_node *, const ort_attr **, size_t))     \
    SLOT(362, OpAttr_GetTensorAttributeAsOrtValue, ort_status *, (const ort_attr *, ort_value **)) \
    SLOT(363, OpAttr_GetType, ort_status *, (const ort_attr *, int *))                             \
    SLOT(364, OpAttr_GetName, ort_status *, (const ort_attr *, const char **))                     \
    SLOT(365, Node_GetNumSubgraphs, ort_status *, (const ort_node *, size_t *))                    \
    SLOT(366, Node_GetSubgraphs, ort_status *,                                                     \
         (const ort_node *, const ort_graph **, size_t, const char **))                            \
    SLOT(368, Node_GetEpName, ort_status *, (const ort_node *, const char **))                     \
    SLOT(369, ReleaseExternalInitializerInfo, void, (ort_external *))                              \
    SLOT(370, ExternalInitializerInfo_GetFilePath, const char *, (const ort_external *))           \
    SLOT(371, ExternalInitializerInfo_GetFileOffset, int64_t, (const ort_external *))              \
    SLOT(372, ExternalInitializerInfo_GetByteSize, size_t, (const ort_external *))                 \
    SLOT(379, GetSessionOptionsConfigEntries, ort_status *,                                        \
         (const ort_session_options *, ort_pairs **))                                              \
    SLOT(390, TensorTypeAndShape_HasShape, bool, (const ort_tensor_info *))

typedef struct ort_fusion {
    uint32_t version;
    bool drop_constant_initializers;
} ort_fusion;

#define ORT_EP_API_SLOTS(SLOT)                                                                     \
    SLOT(2, EpGraphSupportInfo_AddNodesToFuse, ort_status *,                                       \
         (ort_support *, const ort_node *const *, size_t, const ort_fusion *))

#define ORT_EDITOR_API_SLOTS(SLOT)                                                                 \
    SLOT(6, CreateNode, ort_status *,                                                              \
         (const char *op, const char *domain, const char *name, const char *const *inputs, size_t, \
          const char *const *outputs, size_t, ort_attr **attributes, size_t, ort_node **))

/* NOLINTBEGIN(bugprone-macro-parentheses): a type cannot have parentheses */
#define ORT_FIELD(number, name, result, parameters)                                                \
    struct {                                                                                       \
        void (*before_##name[number])(void);                                                       \
        result(*name) parameters;                                                                  \
    };
/* NOLINTEND(bugprone-macro-parentheses) */
typedef union ort_api {
    ort_status *(*CreateStatus)(int code, const char *message);
    ORT_API_SLOTS(ORT_FIELD)
} ort_api;
union ort_ep_api {
    ort_status *(*CreateEpDevice)(ort_factory *, const ort_hardware *, const ort_pairs *,
                                  const ort_pairs *, ort_device **);
    ORT_EP_API_SLOTS(ORT_FIELD)
};
union ort_editor_api {
    void (*first)(void);
    ORT_EDITOR_API_SLOTS(ORT_FIELD)
};
#undef ORT_FIELD

#define ORT_CHECK(number, name, result, parameters)                                                \
    static_assert(offsetof(ort_api, name) == (number) * sizeof(void *), #name);
ORT_API_SLOTS(ORT_CHECK)
#undef ORT_CHECK
#define ORT_CHECK(number, name, result, parameters)                                                \
    static_assert(offsetof(ort_ep_api, name) == (number) * sizeof(void *), #name);
ORT_EP_API_SLOTS(ORT_CHECK)
#undef ORT_CHECK
#define ORT_CHECK(number, name, result, parameters)                                                \
    static_assert(offsetof(ort_editor_api, name) == (number) * sizeof(void *), #name);
ORT_EDITOR_API_SLOTS(ORT_CHECK)
#undef ORT_CHECK

typedef struct ort_api_base {
    const ort_api *(*GetApi)(uint32_t version); /* NULL: the runtime does not have it */
    const char *(*GetVersionString)(void);      /* "1.31.1" */
} ort_api_base;

/* ---- what the provider fills ---------------------------------------------- */

typedef struct ort_compute ort_compute;
struct ort_compute { /* how one fused node is computed */
    uint32_t version;
    ort_status *(*CreateState)(ort_compute *, ort_compute_context *, void **state);
    ort_status *(*Compute)(ort_compute *, void *state, ort_kernel_context *);
    void (*ReleaseState)(ort_compute *, void *state);
};
static_assert(offsetof(ort_compute, ReleaseState) == 3 * sizeof(void *), "OrtNodeComputeInfo");

struct ort_ep { /* the provider in one session; members that are NULL have the runtime's default */
    uint32_t version;
    const char *(*GetName)(const ort_ep *);
    ort_status *(*GetCapability)(ort_ep *, const ort_graph *, ort_support *);
    ort_status *(*Compile)(ort_ep *, const ort_graph **, const ort_node **fused, size_t n,
                           ort_compute **, ort_node **context_nodes);
    void (*ReleaseNodeComputeInfos)(ort_ep *, ort_compute **, size_t n);
    void (*GetPreferredDataLayout)(void);
    void (*ShouldConvertDataLayoutForOp)(void);
    void (*SetDynamicOptions)(void);
    void (*OnRunStart)(void);
    void (*OnRunEnd)(void);
    void (*CreateAllocator)(void);
    void (*CreateSyncStreamForDevice)(void);
    const char *(*GetCompiledModelCompatibilityInfo)(ort_ep *, const ort_graph *);
};
static_assert(offsetof(ort_ep, GetCompiledModelCompatibilityInfo) == 12 * sizeof(void *), "OrtEp");

struct ort_factory { /* makes providers */
    uint32_t version;
    const char *(*GetName)(const ort_factory *);
    const char *(*GetVendor)(const ort_factory *);
    ort_status *(*GetSupportedDevices)(ort_factory *, const ort_hardware *const *, size_t n,
                                       ort_device **devices, size_t capacity, size_t *n_devices);
    ort_status *(*CreateEp)(ort_factory *, const ort_hardware *const *, const ort_pairs *const *,
                            size_t n, const ort_session_options *, const ort_logger *, ort_ep **);
    void (*ReleaseEp)(ort_factory *, ort_ep *);
    uint32_t (*GetVendorId)(const ort_factory *);
    const char *(*GetVersion)(const ort_factory *);
    ort_status *(*ValidateCompiledModelCompatibilityInfo)(ort_factory *,
                                                          const ort_hardware *const *, size_t n,
                                                          const char *, int *answer);
    ort_status *(*CreateAllocator)(ort_factory *, const void *, const ort_pairs *, void **);
    void (*ReleaseAllocator)(ort_factory *, void *);
    ort_status *(*CreateDataTransfer)(ort_factory *, void **);
    bool (*IsStreamAware)(const ort_factory *);
    ort_status *(*CreateSyncStreamForDevice)(ort_factory *, const void *, const ort_pairs *,
                                             void **);
};
static_assert(offsetof(ort_factory, CreateSyncStreamForDevice) == 13 * sizeof(void *),
              "OrtEpFactory");

#endif
