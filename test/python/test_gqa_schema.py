#!/usr/bin/env python3
"""Walks the schema of GroupQueryAttention: no part of it may be ignored silently.

    python test/python/test_gqa_schema.py

For every attribute, input, output and element type of the schema there are cases, and each either
fails with exit 3 and its name, or runs and has its effect: for a value that means "default" or
"off" the results are as without it, for any other value they differ. The schema is the list below;
ONNX Runtime, if it is installed, must have the same one.
"""

import sys
import unittest

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

import harness
from harness import Case, gqac

try:
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
except ImportError:
    get_all_operator_schema = None

ATTRIBUTES = {"causal", "do_rotary", "k_quant_type", "kv_cache_bit_width", "kv_num_heads",
              "local_window_size", "num_heads", "qk_norm_epsilon", "qk_output",
              "rotary_interleaved", "scale", "sliding_window_cache", "smooth_softmax", "softcap",
              "v_quant_type"}
INPUTS = {"query": "T", "key": "T", "value": "T", "past_key": "T_CACHE", "past_value": "T_CACHE",
          "seqlens_k": "M", "total_sequence_length": "M", "cos_cache": "T", "sin_cache": "T",
          "position_ids": "tensor(int64)", "attention_bias": "T", "head_sink": "T",
          "k_scale": "T_KV_SCALE", "v_scale": "T_KV_SCALE", "q_norm_weight": "T",
          "k_norm_weight": "T"}
OUTPUTS = ["output", "present_key", "present_value", "output_qk"]
TYPES = {"T": {"float16", "bfloat16", "float"},
         "T_CACHE": {"float", "float16", "bfloat16", "uint8", "int8", "float8e4m3fn"},
         "T_KV_SCALE": {"float"}, "M": {"int32"}}
ONNX = {"float": T.FLOAT, "float16": T.FLOAT16, "bfloat16": T.BFLOAT16, "int8": T.INT8,
        "uint8": T.UINT8, "int32": T.INT32, "int64": T.INT64, "double": T.DOUBLE,
        "float8e4m3fn": T.FLOAT8E4M3FN}
SAME, OTHER = "same", "other"
B, S, P, HEADS, KV, D = 1, 2, 3, 4, 2, 16


def base():
    """Inputs of a chunk of two tokens after three cached ones, and attributes."""
    rng = np.random.default_rng(5)

    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    feeds = {"query": floats(B, S, HEADS * D), "key": floats(B, S, KV * D),
             "value": floats(B, S, KV * D), "past_key": floats(B, KV, P, D),
             "past_value": floats(B, KV, P, D), "seqlens_k": np.array([P + S - 1], np.int32),
             "total_sequence_length": np.array(P + S, np.int32)}
    return feeds, {"num_heads": HEADS, "kv_num_heads": KV}


EXTRA_RNG = np.random.default_rng(6)
ANGLES = np.arange(12)[:, None] * 10000.0 ** (-np.arange(D // 2) / (D // 2))
TABLES = {"cos_cache": np.cos(ANGLES).astype(np.float32),
          "sin_cache": np.sin(ANGLES).astype(np.float32)}
ROTARY = (TABLES, {"do_rotary": 1})
NORMS = ({n: (1 + EXTRA_RNG.random(D)).astype(np.float32)
          for n in ("q_norm_weight", "k_norm_weight")}, {})
BIAS = {"attention_bias": EXTRA_RNG.standard_normal((1, HEADS, S, P + S)).astype(np.float32)}
IDS = {"position_ids": np.array([[1, 7]], np.int64)}


def codes(bits, k="PER_TENSOR", v="PER_TENSOR"):
    """A quantised cache."""
    kind, width = (np.int8, D) if bits == 8 else (np.uint8, D // 2)
    feeds = {n: EXTRA_RNG.integers(0, 99, (B, KV, P, width)).astype(kind)
             for n in ("past_key", "past_value")}
    for name, scale in (("k_scale", k), ("v_scale", v)):
        feeds[name] = np.full(KV * D if scale == "PER_CHANNEL" else 1, 0.05, np.float32)
    return feeds, {"k_quant_type": k, "v_quant_type": v, "kv_cache_bit_width": bits}


def without(part, *names):
    """A part with some inputs removed."""
    return ({**part[0], **dict.fromkeys(names)}, part[1])


NONE = ({}, {})
BIG = 1 << 40
INF, NAN = float("inf"), float("nan")
CODES8, CODES4 = codes(8), codes(4)
WINDOW = ({}, {"local_window_size": 2})
QK = {"outputs": OUTPUTS}

# attribute: [(value, the part to which it is added, expected result, more)]
ATTRIBUTE_CASES = {
    "num_heads": [(4, NONE, SAME), (0, NONE, "num_heads"), (-4, NONE, "num_heads"),
                  (3, NONE, "num_heads"), (BIG, NONE, "num_heads"), (None, NONE, "num_heads")],
    "kv_num_heads": [(2, NONE, SAME), (0, NONE, "kv_num_heads"), (-2, NONE, "kv_num_heads"),
                     (3, NONE, "kv_num_heads"), (None, NONE, "kv_num_heads")],
    "scale": [(0.0, NONE, SAME), (0.25, NONE, SAME), (0.3, NONE, OTHER), (-0.3, NONE, OTHER),
              (INF, NONE, "scale"), (NAN, NONE, "scale")],
    "softcap": [(0.0, NONE, SAME), (1.5, NONE, OTHER), (-1.0, NONE, "softcap"),
                (INF, NONE, "softcap"), (NAN, NONE, "softcap")],
    "local_window_size": [(-1, NONE, SAME), (100, NONE, SAME), (2, NONE, OTHER), (1, NONE, OTHER),
                          (0, NONE, "local_window_size"), (-2, NONE, "local_window_size"),
                          (BIG, NONE, "local_window_size")],
    "do_rotary": [(0, NONE, SAME), (0, (TABLES, {}), SAME), (1, (TABLES, {}), OTHER),
                  (1, NONE, "do_rotary"), (2, (TABLES, {}), "do_rotary"),
                  (-1, (TABLES, {}), "do_rotary")],
    "rotary_interleaved": [(0, ROTARY, SAME), (1, ROTARY, OTHER), (1, NONE, SAME),
                           (2, ROTARY, "rotary_interleaved"), (-1, NONE, "rotary_interleaved")],
    "causal": [(1, NONE, SAME), (0, NONE, OTHER), (2, NONE, "causal"), (-1, NONE, "causal"),
               (0, WINDOW, "causal")],
    "sliding_window_cache": [(0, WINDOW, SAME), (1, WINDOW, OTHER),
                             (1, NONE, "sliding_window_cache"), (2, WINDOW, "sliding_window_cache"),
                             (-1, WINDOW, "sliding_window_cache"),
                             (1, without(WINDOW, "past_key", "past_value"),
                              "sliding_window_cache"),
                             (1, ({}, {"local_window_size": 2, "qk_output": 1}),
                              "sliding_window_cache", QK)],
    "smooth_softmax": [(-1, NONE, SAME), (0, NONE, SAME), (1, NONE, OTHER),
                       (2, NONE, "smooth_softmax"), (-2, NONE, "smooth_softmax")],
    "qk_output": [(0, NONE, SAME), (1, NONE, OTHER, QK), (2, NONE, OTHER, QK),
                  (0, NONE, "qk_output", QK), (1, NONE, "qk_output"), (3, NONE, "qk_output", QK),
                  (-1, NONE, "qk_output", QK)],
    "k_quant_type": [("NONE", NONE, SAME), ("PER_TENSOR", CODES8, OTHER),
                     ("PER_CHANNEL", codes(8, "PER_CHANNEL"), OTHER), ("", NONE, "k_quant_type"),
                     ("PER_CHANNEL", NONE, "k_quant_type"), ("NONE", CODES8, "k_quant_type"),
                     ("BOGUS", CODES8, "k_quant_type"), ("per_tensor", CODES8, "k_quant_type")],
    "v_quant_type": [("NONE", NONE, SAME), ("PER_TENSOR", CODES4, OTHER),
                     ("PER_CHANNEL", codes(4, v="PER_CHANNEL"), OTHER),
                     ("PER_TENSOR", NONE, "v_quant_type"), ("NONE", CODES4, "v_quant_type"),
                     ("BOGUS", CODES4, "v_quant_type")],
    "kv_cache_bit_width": [(0, NONE, SAME), (8, CODES8, OTHER), (4, CODES4, OTHER),
                           (8, NONE, "kv_cache_bit_width"), (4, NONE, "kv_cache_bit_width"),
                           (0, CODES8, "kv_cache_bit_width"), (2, CODES8, "kv_cache_bit_width"),
                           (-8, CODES8, "kv_cache_bit_width"), (4, CODES8, "kv_cache_bit_width"),
                           (8, CODES4, "kv_cache_bit_width")],
    "qk_norm_epsilon": [(1e-6, NORMS, SAME), (0.5, NORMS, OTHER), (0.5, NONE, SAME),
                        (-1.0, NORMS, "qk_norm_epsilon"), (NAN, NORMS, "qk_norm_epsilon"),
                        (INF, NONE, "qk_norm_epsilon")],
}


def ones(*shape, dtype=np.float32):
    """A tensor of ones."""
    return np.ones(shape, dtype)


# input: [(its value or None, the part to which it is added, expected result)]
INPUT_CASES = {
    "query": [(None, NONE, "query"), (ones(B, S), NONE, "query"), (ones(B, S, 66), NONE, "query"),
              (ones(B, S, HEADS * D), NONE, OTHER)],
    "key": [(None, NONE, "key"), (ones(B, S, 40), NONE, "key"), (ones(B, 1, KV * D), NONE, "key"),
            (ones(B, S, KV, D), NONE, "key"), (ones(B, S, KV * D), NONE, OTHER)],
    "value": [(None, NONE, "value"), (ones(B, S, 40), NONE, "value"),
              (ones(S, KV * D), NONE, "value"), (ones(B, S, KV * D), NONE, OTHER)],
    "past_key": [(None, NONE, "past_key"), (ones(B, KV, P, D + 1), NONE, "past_key"),
                 (ones(B, 3, P, D), NONE, "past_key"), (ones(KV, P, D), NONE, "past_key"),
                 (ones(B, KV, P + 1, D), NONE, "past_value"), (ones(B, KV, P, D), NONE, OTHER),
                 (ones(2, KV, P, D), NONE, "past_key"),
                 (None, without(CODES8, "past_value"), "past_key")],
    "past_value": [(None, NONE, "past_value"), (ones(B, KV, P, D - 1), NONE, "past_value"),
                   (ones(B, 1, P, D), NONE, "past_value"), (ones(B, P, D), NONE, "past_value"),
                   (ones(B, KV, P, D), NONE, OTHER)],
    "seqlens_k": [(None, NONE, "seqlens_k"), (np.int32(4), NONE, "seqlens_k"),
                  (np.array([[4]], np.int32), NONE, SAME)],
    "total_sequence_length": [(None, NONE, "total_sequence_length"),
                              (np.array([5], np.int32), NONE, SAME)],
    "cos_cache": [(None, ROTARY, "cos_cache"), (ones(12), ROTARY, "cos_cache"),
                  (ones(12, 9), ROTARY, "cos_cache"), (ones(12, 8), ROTARY, OTHER)],
    "sin_cache": [(None, ROTARY, "sin_cache"), (ones(11, 8), ROTARY, "sin_cache"),
                  (ones(12, 4), ROTARY, "sin_cache"), (ones(12, 8), ROTARY, OTHER)],
    "position_ids": [(IDS["position_ids"], ROTARY, OTHER), (IDS["position_ids"], NONE, SAME),
                     (np.array([[3, 4]]), ROTARY, SAME), (np.array([3, 4]), ROTARY, "position_ids"),
                     (np.array([[3, 4]], np.int32), ROTARY, "position_ids")],
    "attention_bias": [(BIAS["attention_bias"], NONE, OTHER), (ones(1, 1, S, P + S), NONE, OTHER),
                       (ones(S, P + S), NONE, "attention_bias"),
                       (ones(1, 3, S, P + S), NONE, "attention_bias"),
                       (ones(3, 1, S, P + S), NONE, "attention_bias"),
                       (ones(1, 1, 1, P + S), NONE, "attention_bias")],
    "head_sink": [(ones(HEADS), NONE, OTHER), (ones(3), NONE, "head_sink"),
                  (ones(1, HEADS), NONE, "head_sink")],
    "k_scale": [(ones(1), NONE, "k_scale"), (None, CODES8, "k_scale"), (ones(2), CODES8, "k_scale"),
                (ones(1, 1), CODES8, OTHER), (ones(1), codes(8, "PER_CHANNEL"), "k_scale"),
                (ones(1, dtype=np.float16), CODES8, "k_scale")],
    "v_scale": [(ones(1), NONE, "v_scale"), (None, CODES4, "v_scale"), (ones(5), CODES4, "v_scale"),
                (ones(1), CODES4, OTHER), (ones(1), codes(4, v="PER_CHANNEL"), "v_scale")],
    "q_norm_weight": [(None, NORMS, "q_norm_weight"), (ones(D + 1), NORMS, "q_norm_weight"),
                      (ones(1, D), NORMS, "q_norm_weight"), (ones(D), NORMS, OTHER)],
    "k_norm_weight": [(None, NORMS, "k_norm_weight"), (ones(1), NORMS, "k_norm_weight"),
                      (ones(D), NORMS, OTHER)],
}


class Schema(Case):
    """All rows of the schema."""

    def setUp(self):
        super().setUp()
        self.ran = 0

    def model(self, feeds, attrs, outputs, types=None):
        """A model of one node; `types` replaces the types of inputs."""
        types = types or {}
        kinds = {n: types.get(n, helper.np_dtype_to_tensor_dtype(np.asarray(v).dtype))
                 for n, v in feeds.items()}
        node = helper.make_node(
            "GroupQueryAttention", [n if n in feeds else "" for n in INPUTS],
            [o if o in outputs else "" for o in OUTPUTS], domain="com.microsoft", name="it",
            **attrs)
        own = kinds.get("query", T.FLOAT)
        cache = kinds.get("past_key", own)
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info(n, kinds[n], np.shape(v))
                          for n, v in feeds.items()],
            [helper.make_tensor_value_info(o, cache if o.startswith("present") else own, None)
             for o in outputs])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def run_node(self, feeds, attrs, outputs=None, types=None):
        """(exit result, bytes and shapes of the outputs)."""
        self.ran += 1
        outputs = outputs or OUTPUTS[:3]
        folder = self.dir / str(self.ran)
        (folder / "in").mkdir(parents=True)
        feeds = {n: v for n, v in feeds.items() if v is not None}
        attrs = {n: v for n, v in attrs.items() if v is not None}
        onnx.save(self.model(feeds, attrs, outputs, types), folder / "node.onnx")
        for name, value in feeds.items():
            np.save(folder / "in" / f"{name}.npy", value)
        result = gqac("run", folder / "node.onnx", "--inputs", folder / "in", "--output",
                      folder / "out", "-q")
        if result.code:
            return result, None
        arrays = [np.load(folder / "out" / f"{o}.npy") for o in outputs]
        return result, [(a.shape, a.tobytes()) for a in arrays]

    def named(self, result, *words):
        """Exit 3, and the first line of the message contains the words (or one of "a|b") as whole
        words."""
        self.check(result, 3)
        first = result.err.splitlines()[0]
        for word in words:
            self.assertRegex(first, rf"\b({word})\b", str(result))

    def check_case(self, what, part, expected, change, more=()):
        """One case: `change` added to `part` is compared with `part`, or expects a named error."""
        feeds, attrs = base()
        feeds.update(part[0])
        attrs.update(part[1])
        plain = (dict(feeds), dict(attrs))
        change(feeds, attrs)
        result, got = self.run_node(feeds, attrs, **dict(more))
        if expected not in (SAME, OTHER):
            self.named(result, expected)
            return
        self.assertEqual(result.code, 0, f"{what}\n{result}")
        if expected == OTHER and any(n.startswith(("k_quant", "v_quant", "kv_cache"))
                                     for n in plain[1]):
            plain = base()
            plain[0].update({"past_key": None, "past_value": None, "seqlens_k":
                             np.array([S - 1], np.int32),
                             "total_sequence_length": np.array(S, np.int32)})
        result, reference = self.run_node(*plain)
        self.assertEqual(result.code, 0, f"{what}\n{result}")
        self.assertEqual(got == reference, expected == SAME, what)

    def test_schema(self):
        """Every row of the schema has cases, and ONNX Runtime has the same rows."""
        self.assertEqual(set(ATTRIBUTE_CASES), ATTRIBUTES)
        self.assertEqual(set(INPUT_CASES), set(INPUTS))
        if get_all_operator_schema is None:
            self.skipTest("onnxruntime is not installed")
        schema = next(s for s in get_all_operator_schema() if s.name == "GroupQueryAttention")
        self.assertEqual(set(schema.attributes), ATTRIBUTES)
        self.assertEqual({i.name: i.typeStr for i in schema.inputs}, INPUTS)
        self.assertEqual([o.name for o in schema.outputs], OUTPUTS)
        types = {t.type_param_str: {n[7:-1] for n in t.allowed_type_strs}
                 for t in schema.type_constraints}
        self.assertEqual(types, TYPES)

    def test_attributes(self):
        """Values of every attribute."""
        for name, cases in ATTRIBUTE_CASES.items():
            for value, part, expected, *more in cases:
                with self.subTest(f"{name} = {value}, {expected}"):
                    self.check_case(f"{name} = {value}", part, expected,
                                    lambda feeds, attrs, n=name, v=value: attrs.update({n: v}),
                                    more[0] if more else ())
        print(f"{self.ran} runs")

    def test_unknown_attribute(self):
        """An attribute that is in no schema."""
        feeds, attrs = base()
        self.named(self.run_node(feeds, {**attrs, "window_shape": 3})[0], "window_shape")

    def test_inputs(self):
        """Presence, shapes and counts of every input."""
        for name, cases in INPUT_CASES.items():
            for value, part, expected in cases:
                with self.subTest(f"{name} {np.shape(value)}, {expected}"):
                    self.check_case(f"{name} {np.shape(value)}", part, expected,
                                    lambda feeds, attrs, n=name, v=value: feeds.update({n: v}))
        print(f"{self.ran} runs")

    def test_outputs(self):
        """Both presents are requested, or none."""
        feeds, attrs = base()
        everything = self.run_node(feeds, attrs)[1]
        self.assertEqual(self.run_node(feeds, attrs, outputs=["output"])[1], everything[:1])
        for one in ("present_key", "present_value"):
            result, _ = self.run_node(feeds, attrs, outputs=["output", one])
            self.named(result, "present_key", "present_value")
        result, _ = self.run_node(feeds, attrs, outputs=["output", "output_qk"])
        self.named(result, "output_qk")

    def test_packed(self):
        """With a packed query, there are no separate key and value."""
        feeds, attrs = base()
        apart = self.run_node(feeds, attrs)[1]
        feeds["query"] = np.concatenate([feeds[n] for n in ("query", "key", "value")], -1)
        feeds.update(key=None, value=None)
        self.assertEqual(self.run_node(feeds, attrs)[1], apart)

    def one_type(self, name, kind, part):
        """The node with another type for one input."""
        feeds, attrs = base()
        feeds.update(part[0])
        attrs.update(part[1])
        if feeds.get(name) is None:
            feeds[name] = ones(1)
        return self.run_node(feeds, attrs, types={name: ONNX[kind]})[0]

    def test_types(self):
        """A type that the schema forbids, or that does not fit the others, is named."""
        parts = {"k_scale": CODES8, "v_scale": CODES8, "cos_cache": ROTARY, "sin_cache": ROTARY,
                 "q_norm_weight": NORMS, "k_norm_weight": NORMS, "attention_bias": (BIAS, {}),
                 "head_sink": ({"head_sink": ones(HEADS)}, {}),
                 "position_ids": ({**TABLES, **IDS}, {"do_rotary": 1})}
        for name in INPUTS:
            part = parts.get(name, NONE)
            feeds = base()[0] | part[0]
            own = {v: k for k, v in ONNX.items()}[
                helper.np_dtype_to_tensor_dtype(feeds[name].dtype)]
            for kind in ONNX:
                if kind != own:
                    with self.subTest(f"{name} {kind}"):
                        self.named(self.one_type(name, kind, part), name)

    def test_whole_types(self):
        """T as a whole: f32, f16 and bf16 run; T_CACHE must match T or the codes."""
        feeds, attrs = base()
        floats = [n for n, v in feeds.items() if v.dtype == np.float32]
        single = np.frombuffer(self.run_node(feeds, attrs)[1][0][1], np.float32)
        half = {n: v.astype(np.float16) if n in floats else v for n, v in feeds.items()}
        got = np.frombuffer(self.run_node(half, attrs)[1][0][1], np.float16)
        self.assertLess(harness.relative(got, single), 3e-3)
        wide = {n: (v.view(np.uint32) >> 16).astype(np.uint16) if n in floats else v
                for n, v in feeds.items()}
        result, got = self.run_node(wide, attrs, types=dict.fromkeys(floats, T.BFLOAT16))
        self.check(result, 0)
        got = (np.frombuffer(got[0][1], np.uint16).astype(np.uint32) << 16).view(np.float32)
        self.assertLess(harness.relative(got, single), 5e-2)
        for kind, part in (("int8", CODES4), ("uint8", CODES8), ("float8e4m3fn", CODES8),
                           ("float", CODES8), ("float16", CODES4)):
            self.named(self.one_type("past_key", kind, part), "past_key")


if __name__ == "__main__":
    sys.exit(harness.main())
