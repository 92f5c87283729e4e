/* com.microsoft.LinearAttention: attention as a recurrence over tokens, its state carried from call
 * to call. Source: ONNX Runtime contrib operators. */
#include "ops/linear_attention.h"

const gqac_op gqac_op_ms_linear_attention =
    LINEAR_ATTENTION_ROW(.domain = "com.microsoft", .since = 1);
