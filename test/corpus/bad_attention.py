"""Bad files, class attention: attributes, inputs and lengths of GroupQueryAttention.

The rows of `run` have a valid model and the inputs of one call, with wrong lengths."""

import numpy as np

from tiny import (F16, F32, HEAD, HEADS, I32, I64, KV_HEADS, ROPE, Row, file, gqa, gqa_call,
                  weights)

ROWS = []
NAN, INF = float("nan"), float("inf")
LEAST, MOST = -(1 << 31), (1 << 31) - 1


def row(name, word, bad, twin=None, **more):
    """Add a row; bad and twin are arguments of gqa()."""
    ROWS.append(Row(name, "attention", word, file(gqa, **bad), file(gqa, **(twin or {})), **more))


def attr(name, word, bad, twin=None, **more):
    """A row that only changes attributes."""
    row(name, word, {"attrs": bad}, {"attrs": twin or {}}, **more)


def call(name, word, bad, twin, **more):
    """A row of `gqac run`; bad and twin are arguments of gqa_inputs()."""
    ROWS.append(Row(name, "attention", word, gqa_call(**bad), gqa_call(**twin), verb="run",
                    **{"code": 4, **more}))


# ---- heads and sizes -----------------------------------------------------------------------------

attr("no num_heads", "num_heads", {"num_heads": None})
attr("no kv_num_heads", "kv_num_heads", {"kv_num_heads": None})
for value in (0, -1, 3, 1 << 31, 1 << 62, LEAST, 5):
    attr(f"num_heads {value}", "num_heads", {"num_heads": value})
for value in (0, -2, 3, 8, 1 << 62):
    attr(f"kv_num_heads {value}", "kv_num_heads", {"kv_num_heads": value})
attr("num_heads as float", "num_heads", {"num_heads": 4.0})
row("head size 0", "", {"head": 0}, {})
row("head size of past differs", "dimension 3 of past", {"past": HEAD + 2}, {})
row("query width not divisible", "query", {"query": (F32, ["B", "S", HEADS * HEAD + 1])}, {})
row("key width differs", "key", {"key": (F32, ["B", "S", KV_HEADS * HEAD + 4])}, {})
row("value width differs", "value", {"value": (F32, ["B", "S", HEAD])}, {})
row("query of rank 2", "query", {"query": (F32, ["B", HEADS * HEAD])}, {})
row("query of rank 4", "query", {"query": (F32, ["B", HEADS, "S", HEAD])}, {})
row("past of rank 3", "past_key", {"past_key": (F32, ["B", "P", KV_HEADS * HEAD])}, {})
row("past with other heads", "dimension 1 of past_key", {"past_key": (F32, ["B", HEADS, "P", HEAD])}, {})
row("past of another type", "f16", {"past_key": (F16, ["B", KV_HEADS, "P", HEAD]),
                                     "past_value": (F16, ["B", KV_HEADS, "P", HEAD])}, {})
row("key of another type", "", {"key": (F16, ["B", "S", KV_HEADS * HEAD])}, {})
row("lengths as int64", "seqlens_k", {"seqlens_k": (I64, ["B"])}, {"seqlens_k": (I32, ["B", 1])})
row("total as int64", "total_sequence_length", {"total_sequence_length": (I64, [])},
    {"total_sequence_length": (I32, [1])})

# ---- inputs that belong together -----------------------------------------------------------------

row("key without value", "value", {"drop": ("value",)})
row("value without key", "key", {"drop": ("key",)})
row("past_key without past_value", "past_value", {"drop": ("past_value",)})
row("past_value without past_key", "past_key", {"drop": ("past_key",)})
row("cos without sin", "sin_cache", {"drop": ("sin_cache",)})
row("sin without cos", "cos_cache", {"drop": ("cos_cache",)})
row("rotary without tables", "cos_cache", {"drop": ("cos_cache", "sin_cache")},
    {"drop": ("cos_cache", "sin_cache"), "attrs": {"do_rotary": 0}})
row("no lengths", "seqlens_k", {"drop": ("seqlens_k",)})
row("no total length", "total_sequence_length", {"drop": ("total_sequence_length",)})
row("no query", "query", {"drop": ("query",)})
row("present_key alone", "present", {"outputs": 2})
row("odd head size with rotary", "", {"head": 15, "past": 15}, {"head": 14, "past": 14},
    code=(0, 3))
row("tables wider than half a head", "cos_cache",
    {"given": {"cos_cache": weights((ROPE, HEAD)), "sin_cache": weights((ROPE, HEAD))}},
    {"given": {"cos_cache": weights((ROPE, HEAD // 4)), "sin_cache": weights((ROPE, HEAD // 4))}})
row("tables of different rows", "sin_cache", {"given": {"sin_cache": weights((ROPE - 1, 8))}})
row("tables of different widths", "sin_cache", {"given": {"sin_cache": weights((ROPE, 4))}})
row("table of rank 1", "cos_cache", {"given": {"cos_cache": weights(ROPE)}})
row("table of rank 3", "cos_cache", {"given": {"cos_cache": weights((1, ROPE, 8))}})

# ---- attribute values ----------------------------------------------------------------------------

for value in (0, -2, -(1 << 31), 1 << 31, 1 << 62):
    attr(f"local_window_size {value}", "local_window_size", {"local_window_size": value},
         {"local_window_size": 1 if value > 0 else -1}, code=(0, 3) if value > 0 else 3)
for value in (-1.0, NAN, INF, -INF):
    attr(f"softcap {value}", "softcap", {"softcap": value}, {"softcap": 30.0})
for value in (NAN, INF, -INF):
    attr(f"scale {value}", "scale", {"scale": value}, {"scale": 0.25})
for name, value, good in (("do_rotary", 2, 0), ("do_rotary", -1, 1), ("rotary_interleaved", 2, 1),
                          ("rotary_interleaved", -1, 0), ("smooth_softmax", 7, 0),
                          ("qk_output", 3, 0), ("qk_output", -1, 0), ("causal", 2, 1),
                          ("causal", -1, 1), ("sliding_window_cache", 2, 0),
                          ("kv_cache_bit_width", 3, 0), ("kv_cache_bit_width", 8, 0)):
    attr(f"{name} {value}", name, {name: value}, {name: good})
attr("k_quant_type BOGUS", "k_quant_type", {"k_quant_type": "BOGUS"}, {"k_quant_type": "NONE"})
attr("v_quant_type PER_TENSOR alone", "quant_type", {"v_quant_type": "PER_TENSOR"},
     {"v_quant_type": "NONE"})
attr("window without causality", "", {"causal": 0, "local_window_size": 4},
     {"causal": 1, "local_window_size": 4})
attr("attribute of a sibling op", "unidirectional", {"unidirectional": 1})
attr("qk_norm_epsilon nan", "qk_norm_epsilon", {"qk_norm_epsilon": NAN}, {"qk_norm_epsilon": 1e-6})
row("unused output wired", "qk_output", {"outputs": 4, "attrs": {"qk_output": 7}})
for rank in (0, 1, 2, 3, 5):
    row(f"bias of rank {rank}", "attention_bias",
        {"given": {"attention_bias": np.zeros([1] * rank, np.float32)}})
row("bias with three heads", "attention_bias",
    {"given": {"attention_bias": np.zeros((1, 3, 1, 1), np.float32)}})
row("sink of another length", "head_sink", {"given": {"head_sink": weights(HEADS + 1)}})
row("q_norm_weight alone", "k_norm_weight", {"given": {"q_norm_weight": weights(HEAD)}})
row("norm weights of another length", "norm_weight",
    {"given": {"q_norm_weight": weights(HEAD + 1), "k_norm_weight": weights(HEAD + 1)}},
    {"given": {"q_norm_weight": weights(HEAD), "k_norm_weight": weights(HEAD)}})

# ---- lengths (gqac run) --------------------------------------------------------------------------

FIRST = {"new": 3, "past": 0}
CHUNK = {"new": 3, "past": 4}
DECODE = {"new": 1, "past": 4}
for value in (LEAST, -2, -1):
    call(f"first prompt of length {value} + 1", "seqlens_k", {**FIRST, "seqlens": [value]}, FIRST)
for value in (3, 4, MOST - 1, MOST):
    call(f"first prompt of 3 with seqlens_k {value}", "seqlens_k", {**FIRST, "seqlens": [value]},
         {**FIRST, "seqlens": [2]})
for value in (LEAST, -1, 0, 1):
    call(f"chunk of 3 with seqlens_k {value}", "seqlens_k", {**CHUNK, "seqlens": [value]}, CHUNK)
for value in (7, 8, MOST):
    call(f"chunk of 3 after 4 with seqlens_k {value}", "seqlens_k", {**CHUNK, "seqlens": [value]},
         {**CHUNK, "seqlens": [6]})
for value in (LEAST, -1, 5, MOST):
    call(f"decode after 4 with seqlens_k {value}", "seqlens_k", {**DECODE, "seqlens": [value]},
         DECODE)
for lane in range(3):
    lengths = [2, 2, 2]
    lengths[lane] = 3
    call(f"row {lane} of 3 too long", f"[{lane}]", {**FIRST, "batch": 3, "seqlens": lengths},
         {**FIRST, "batch": 3, "seqlens": [2, 0, 1]})
call("lengths for two rows of three", "seqlens_k", {**FIRST, "batch": 3, "seqlens": [2, 2]},
     {**FIRST, "batch": 3})
for value in (LEAST, -1, 0, 1, 2):
    call(f"total length {value} of 3", "total_sequence_length", {**FIRST, "total": value}, FIRST)
for value in (8, MOST):
    call(f"total length {value} of 7", "total_sequence_length", {**CHUNK, "total": value},
         {**CHUNK, "total": 7})


def rope_call(rows):
    """9 tokens, with rope tables of that many rows."""
    return {"change": {"rope": rows}, "new": 4, "past": 5}


call("rope table one row short", "cos/sin", rope_call(8), rope_call(9))
call("rope table of one row", "cos/sin", rope_call(1), rope_call(20))
call("past_value of other rows", "past_value",
     {**CHUNK, "past_value": weights((1, KV_HEADS, 5, HEAD))}, CHUNK)
call("past of another batch", "", {**CHUNK, "past_key": weights((2, KV_HEADS, 4, HEAD))}, CHUNK)
call("key of other length", "key", {**CHUNK, "key": weights((1, 2, KV_HEADS * HEAD))}, CHUNK)
call("value of other length", "value", {**CHUNK, "value": weights((1, 2, KV_HEADS * HEAD))}, CHUNK)
call("query of another width", "query", {**CHUNK, "query": weights((1, 3, HEADS * HEAD + 16))},
     CHUNK)
call("query of another type", "query", {**CHUNK, "query": weights((1, 3, HEADS * HEAD)).astype(
    np.float16)}, CHUNK)
call("query of another rank", "query", {**CHUNK, "query": weights((3, HEADS * HEAD))}, CHUNK)
call("total of two elements", "total_sequence_length",
     {**CHUNK, "total_sequence_length": np.array([7, 7], np.int32)}, CHUNK)
call("model with a total of two elements", "total",
     {**CHUNK, "change": {"total_sequence_length": (I32, [2])},
      "total_sequence_length": np.array([7, 7], np.int32)}, CHUNK, code=3)
call("model with a total of three elements in a matrix", "total",
     {**CHUNK, "change": {"total_sequence_length": (I32, [1, 3])},
      "total_sequence_length": np.array([[7] * 3], np.int32)},
     {**CHUNK, "change": {"total_sequence_length": (I32, [1, 1])},
      "total_sequence_length": np.array([[7]], np.int32)}, code=3)
call("input file missing", "query", {**FIRST, "query": None}, FIRST, code=5)


def position_call(positions):
    """A chunk of 3 tokens after 4, with explicit positions."""
    change = {"position_ids": (I64, ["B", "S"])}
    return {**CHUNK, "change": change, "position_ids": np.array([positions], np.int64)}


for positions in ([12, 13, 14], [4, 5, 12], [-1, 5, 6], [1 << 62, 5, 6]):
    call(f"positions {positions}", "position_ids", position_call(positions),
         position_call([4, 5, 11]))
