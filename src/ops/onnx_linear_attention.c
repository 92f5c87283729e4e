/* LinearAttention: attention as a recurrence over tokens, its state carried from call to
 * call. Source: ONNX operator spec, 27. */
#include "ops/linear_attention.h"

const gqac_op gqac_op_onnx_linear_attention =
    LINEAR_ATTENTION_ROW(.domain = "", .since = 27, .introduced = 27);
