#!/usr/bin/env python3
"""GroupQueryAttention against ONNX Runtime: random nodes, one model each, run by both.

    python test/python/test_gqa_ort.py        (GQAC_TEST_SEED chooses the fresh cases)

Half of the cases come from a fixed seed, half from a fresh one, which is printed. Only what both
define is compared: rows of tokens that are there, cached rows below the valid length, columns of
output_qk below it. What ONNX Runtime refuses is counted and passed over.
"""

import os
import random
import sys
import time
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import FULL, Case, gqac

try:
    import onnxruntime as ort
except ImportError:
    ort = None

FRESH = int(os.environ.get("GQAC_TEST_SEED", "0")) or time.time_ns() % 10**9
COUNT = 800 if FULL else 340
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16,
         np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.int8): TensorProto.INT8, np.dtype(np.uint8): TensorProto.UINT8}
NAMES = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
         "cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale",
         "v_scale"]


class Node:
    """One random node: shape facts, inputs by name, attributes, wanted outputs."""

    def __init__(self, pick, rng):
        self.pick, self.rng = pick, rng
        self.dtype = np.float16 if pick.random() < 0.25 else np.float32
        self.kv_heads = pick.choice([1, 2, 3])
        self.heads = self.kv_heads * pick.choice([1, 2, 3, 5])
        self.size = pick.choice([8, 16, 24, 32, 40, 64])
        self.batch = pick.randint(1, 3)
        self.attrs = {"num_heads": self.heads, "kv_num_heads": self.kv_heads}
        self.feeds = {}
        self.lengths()
        self.data()
        self.rotary()
        self.scores()
        self.outputs = ["output", "present_key", "present_value"]
        if "qk_output" in self.attrs:
            self.outputs.append("output_qk")

    def lengths(self):
        """A first prompt, a chunk of one row, or decode; on a growing or a static cache."""
        pick = self.pick
        mode = pick.choice(["first", "first", "chunk", "decode", "shared"])
        rows = 1 if mode == "decode" else pick.choice([1, 2, 3, 7, 17])
        self.shared = mode == "shared"
        self.past_rows = pick.choice([1, 2, 5, 31, 64, 65])
        if mode == "chunk" and rows > 1:
            self.batch = 1
        self.rows = rows
        if mode == "first":
            self.has_past = pick.random() < 0.5
            self.past_rows = rows + pick.randint(0, 9) if self.has_past else 0
            self.total = rows
        elif self.shared:
            self.has_past = True
            self.batch = 1 if rows > 1 else self.batch
            self.past_rows += rows
            self.total = pick.randint(rows, self.past_rows)
        else:
            self.has_past = True
            if pick.random() < 0.5:
                self.total = self.past_rows + rows
            else:
                self.past_rows += rows + 1
                self.total = pick.randint(rows + 1, self.past_rows)
        self.first = rows == self.total
        least = 1 if self.first else rows
        self.valid = np.array([pick.randint(least, self.total) for _ in range(self.batch)])
        self.valid[0] = self.total
        self.feeds["seqlens_k"] = (self.valid - 1).astype(np.int32)
        self.feeds["total_sequence_length"] = np.array([self.total], np.int32)

    def floats(self, *shape):
        """Standard normal values of the node's type."""
        return self.rng.standard_normal(shape).astype(self.dtype)

    def data(self):
        """Queries, keys and values, packed or not; the past."""
        q, kv, size = self.heads, self.kv_heads, self.size
        if not self.shared and self.pick.random() < 0.5:
            self.feeds["query"] = self.floats(self.batch, self.rows, (q + 2 * kv) * size)
        else:
            keys = 0 if self.shared else self.rows
            self.feeds["query"] = self.floats(self.batch, self.rows, q * size)
            self.feeds["key"] = self.floats(self.batch, keys, kv * size)
            self.feeds["value"] = self.floats(self.batch, keys, kv * size)
        if self.has_past:
            for name in ("past_key", "past_value"):
                self.feeds[name] = self.floats(self.batch, kv, self.past_rows, size)

    def rotary(self):
        """Rotary tables and position ids."""
        pick = self.pick
        if self.size % 16 or pick.random() < 0.4:
            return
        half = pick.choice([h for h in (8, 16, 24, 32) if h <= self.size // 2])
        rows = max(self.total, self.past_rows) + 12
        angle = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(half) / half)
        self.feeds["cos_cache"] = np.cos(angle).astype(self.dtype)
        self.feeds["sin_cache"] = np.sin(angle).astype(self.dtype)
        self.attrs["do_rotary"] = 1
        self.attrs["rotary_interleaved"] = pick.randint(0, 1)
        if pick.random() < 0.5:
            ids = self.rng.integers(0, rows - self.rows, (self.batch, self.rows))
            self.feeds["position_ids"] = ids.astype(np.int64)

    def scores(self):
        """What happens to the scores."""
        pick, total = self.pick, self.total
        if pick.random() < 0.3:
            self.attrs["scale"] = 0.3
        if pick.random() < 0.3:
            self.attrs["softcap"] = 2.5
        if pick.random() < 0.2:
            self.attrs["causal"] = 0
        elif pick.random() < 0.4:
            self.attrs["local_window_size"] = pick.choice([1, 2, 7, max(1, total - 1), total + 1])
        if pick.random() < 0.3:
            self.attrs["smooth_softmax"] = pick.choice([-1, 0, 1])
        if pick.random() < 0.3:
            self.feeds["head_sink"] = self.floats(self.heads)
        if pick.random() < 0.35:
            self.feeds["attention_bias"] = self.floats(
                pick.choice([1, self.batch]), pick.choice([1, self.heads]), self.rows, total)
        if pick.random() < 0.3:
            self.attrs["qk_output"] = pick.choice([1, 2])

    def model(self):
        """The model of just this node."""
        node = helper.make_node(
            "GroupQueryAttention", [n if n in self.feeds else "" for n in NAMES], self.outputs,
            domain="com.microsoft", name="it", **self.attrs)
        kinds = [TYPES[self.feeds["query"].dtype]] * 4
        if "past_key" in self.feeds:
            kinds[1] = kinds[2] = TYPES[self.feeds["past_key"].dtype]
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info(n, TYPES[v.dtype], v.shape)
                          for n, v in self.feeds.items()],
            [helper.make_tensor_value_info(n, kind, None)
             for n, kind in zip(self.outputs, kinds)])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def peer(self):
        """Outputs of ONNX Runtime; None when it refuses."""
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = ort.InferenceSession(self.model().SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
            return session.run(self.outputs, self.feeds)
        except Exception as error:  # pylint: disable=broad-exception-caught
            if os.environ.get("GQAC_TEST_SHOW"):
                print(self, str(error)[:300])
            return None

    def defined(self, name, b):
        """Index of what both define of batch row b."""
        fresh = self.valid[b] if self.first else self.rows
        if name == "output":
            return np.s_[b, :fresh]
        if name == "output_qk":
            return np.s_[b, :, :fresh, :self.valid[b]]
        return np.s_[b, :, :self.valid[b]]

    def __str__(self):
        shapes = {n: list(v.shape) for n, v in self.feeds.items()}
        return (f"{np.dtype(self.dtype).name} {shapes} seqlens {list(self.feeds['seqlens_k'])} "
                f"total {self.total} {self.attrs}")


class Nodes(Case):
    """Runs nodes both ways."""

    def ours(self, node):
        """Outputs of gqac on stored inputs."""
        folder = self.dir / "case"
        (folder / "in").mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*/*.npy"):
            old.unlink()
        onnx.save(node.model(), folder / "node.onnx")
        for name, value in node.feeds.items():
            np.save(folder / "in" / f"{name}.npy", value)
        result = gqac("run", folder / "node.onnx", "--inputs", folder / "in", "--output",
                      folder / "out", "-q")
        self.assertEqual(result.code, 0, f"{node}\n{result}")
        return [np.load(folder / "out" / f"{n}.npy") for n in node.outputs]

    def close_to(self, node, number, name, pair):
        """Row by row, within the tolerance of the type; codes of a quantised cache exactly."""
        got, expected = pair
        self.assertEqual(got.dtype, expected.dtype)
        where = f"case {number} {name}: {node}"
        self.assertEqual(got.shape, expected.shape, where)
        limit = 3e-3 if node.dtype == np.float16 else 2e-5
        rows = [(got[i], expected[i]) for i in (node.defined(name, b) for b in range(node.batch))]
        most = max((np.abs(y.astype(np.float64)).max() for _, y in rows if y.size), default=0)
        worst = 0.0
        for x, y in rows:
            x, y = x.astype(np.float64), y.astype(np.float64)
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            error = np.where(same, 0, np.abs(x - y)).max(initial=0) / max(most, 1e-30)
            self.assertLessEqual(error, limit, where)
            worst = max(worst, float(error))
        return worst

    def compare(self, seed):
        """Random nodes; nearly all of them must have been taken by both."""
        pick, rng = random.Random(seed), np.random.default_rng(seed)
        taken, worst = 0, {}
        for number in range(COUNT // 2):
            node = Node(pick, rng)
            expected = node.peer()
            if expected is None:
                continue
            taken += 1
            for name, x, y in zip(node.outputs, self.ours(node), expected):
                error = self.close_to(node, number, name, (x, y))
                kind = np.dtype(node.dtype).name
                worst[kind] = max(worst.get(kind, 0), error)
        shown = ", ".join(f"{k} {v:.1e}" for k, v in worst.items())
        print(f"seed {seed}: {taken} of {COUNT // 2} compared; largest error {shown}")
        self.assertGreaterEqual(taken, 0.9 * (COUNT // 2))

    @unittest.skipIf(ort is None, "onnxruntime is not installed")
    def test_fixed(self):
        """The same cases every time."""
        self.compare(20)

    @unittest.skipIf(ort is None, "onnxruntime is not installed")
    def test_fresh(self):
        """Cases that nobody has seen."""
        print(f"GQAC_TEST_SEED={FRESH}")
        self.compare(FRESH)


if __name__ == "__main__":
    sys.exit(harness.main())
