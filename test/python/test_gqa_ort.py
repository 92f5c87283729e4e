#!/usr/bin/env python3
"""GroupQueryAttention compared with ONNX Runtime: random nodes, one model each, run by both.

    python test/python/test_gqa_ort.py        (GQAC_TEST_SEED chooses the new cases)

Half of the cases come from a fixed seed, half from a new one, which is printed. gqac runs a group
of nodes as one model. Only elements that both define are compared: rows of existing tokens, cached
rows below the valid length, columns of output_qk below it; codes of a quantised cache exactly.
Nodes that ONNX Runtime refuses are counted and skipped.
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
COUNT = 3000 if FULL else 720
GROUP = 24  # number of nodes in one model for gqac
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16,
         np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.int8): TensorProto.INT8, np.dtype(np.uint8): TensorProto.UINT8}
NAMES = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
         "cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale",
         "v_scale"]


SIZES = [8, 16, 16, 24, 32, 32, 40, 64, 64, 80, 96, 128, 192, 256]
OFF_BY_ONE = 0.05  # share of cases in which the last bit of rotary changes the rounding of a code


def resident(length, rows, window):
    """The number of rows that a window-sized cache keeps for a sequence of that length."""
    gap = rows - window + 1
    return length if length <= rows else length - gap * -(-(length - rows) // gap)


class Node:
    """One random node: its shapes, inputs by name, attributes, requested outputs."""

    def __init__(self, pick, rng):
        self.pick, self.rng = pick, rng
        self.dtype = np.float16 if pick.random() < 0.25 else np.float32
        self.kv_heads = pick.choice([1, 1, 2, 3])
        self.heads = self.kv_heads * pick.randint(1, 8)
        self.size = pick.choice(SIZES)
        self.batch = pick.randint(1, 4)
        self.codes = pick.choice([0, 0, 0, 4, 8])  # bits of a code of the cache
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
        """A first prompt, a chunk of one row, or decode; on a growing, static or window cache."""
        pick = self.pick
        self.mode = mode = pick.choice(["first", "first", "chunk", "decode", "shared", "window"])
        rows = 1 if mode == "decode" else pick.choice([1, 2, 3, 7, 17, 65])
        self.shared, self.window_cache = mode == "shared", mode == "window"
        self.past_rows = pick.choice([1, 2, 5, 31, 64, 65, 200, 1030 if self.size < 80 else 66])
        if mode == "chunk" and rows > 1:
            self.batch = 1
        self.rows = rows
        self.has_past = True
        if mode == "first":
            self.has_past = self.codes > 0 or pick.random() < 0.5
            self.past_rows = rows + pick.randint(0, 9) if self.has_past else 0
            self.past_rows = 0 if pick.random() < 0.3 else self.past_rows
            self.total = rows
        elif self.window_cache:
            return self.window_lengths(rows)
        elif self.shared:
            self.batch = 1 if rows > 1 else self.batch
            self.past_rows += rows
            self.total = pick.randint(rows, self.past_rows)
        elif pick.random() < 0.5:
            self.total = self.past_rows + rows
        else:
            self.past_rows += rows + 1
            self.total = pick.randint(rows + 1, self.past_rows)
        self.first = rows == self.total
        least = 1 if self.first else rows
        self.valid = np.array([pick.randint(least, self.total) for _ in range(self.batch)])
        self.valid[0] = self.total
        return self.feed_lengths()

    def window_lengths(self, rows):
        """A cache of the window and a few more rows; lengths count all tokens."""
        pick = self.pick
        if self.codes:
            self.size = pick.choice([32, 64, 96, 128])
        window = pick.choice([1, 2, 5, 16, 33])
        self.past_rows = window + pick.choice([0, 0, 1, 3, 20])
        self.attrs["local_window_size"] = window
        self.attrs["sliding_window_cache"] = 1
        past = pick.choice([0, 1, self.past_rows, 3 * self.past_rows + 1, 700])
        self.batch = 1 if rows > 1 and past else self.batch
        self.total = past + rows
        self.first = False
        self.valid = np.array([pick.randint(rows, self.total) for _ in range(self.batch)])
        self.valid[0] = self.total
        if past == 0:
            self.valid[:] = self.total
        return self.feed_lengths()

    def feed_lengths(self):
        """The two inputs with the lengths."""
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
                self.feeds[name] = self.cached(self.batch, kv, self.past_rows, size)
            if not self.codes and self.pick.random() < 0.5:
                self.poison()
        if self.codes and self.has_past:
            kind = self.pick.choice(["PER_TENSOR", "PER_CHANNEL"])
            self.attrs.update(k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=self.codes)
            for name in ("k_scale", "v_scale"):
                scale = self.rng.uniform(0.2, 1, 1 if kind == "PER_TENSOR" else kv * size)
                scale *= 3 / 2 ** (self.codes - 1)
                scale[self.rng.random(scale.shape) < 0.02] = 0
                self.feeds[name] = scale.astype(np.float32)

    def poison(self):
        """NaN in the rows of the past after the valid ones."""
        for b in range(self.batch):
            rows = int(self.valid[b]) - (0 if self.shared else self.rows)
            rows = 0 if self.first and not self.shared else rows
            if self.window_cache:
                rows = resident(rows, self.past_rows, self.attrs["local_window_size"])
            for name in ("past_key", "past_value"):
                self.feeds[name][b, :, rows:] = np.nan

    def cached(self, *shape):
        """Rows of a cache: values, or random codes."""
        if not self.codes:
            return self.floats(*shape)
        low, high, kind = (-128, 128, np.int8) if self.codes == 8 else (0, 256, np.uint8)
        shape = (*shape[:-1], (shape[-1] + 1) // 2 if self.codes == 4 else shape[-1])
        return self.rng.integers(low, high, shape).astype(kind)

    def rotary(self):
        """Rotary tables and position ids."""
        pick = self.pick
        if self.size % 16 or pick.random() < 0.4:
            return
        half = pick.choice([h for h in (8, 16, 24, 32, 64, 128) if h <= self.size // 2])
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
        """Options for the scores."""
        pick, total = self.pick, self.total
        if pick.random() < 0.3:
            self.attrs["scale"] = 0.3
        if pick.random() < 0.3:
            self.attrs["softcap"] = 2.5
        if self.window_cache:
            pass
        elif pick.random() < 0.2:
            self.attrs["causal"] = 0
        elif pick.random() < 0.4:
            self.attrs["local_window_size"] = pick.choice(
                [1, 2, 7, max(1, total - self.rows), max(1, total - 1), total + 1])
        if pick.random() < 0.3:
            self.attrs["smooth_softmax"] = pick.choice([-1, 0, 1])
        if pick.random() < 0.3:
            self.feeds["head_sink"] = self.floats(self.heads)
        if pick.random() < 0.35:
            self.feeds["attention_bias"] = self.floats(
                pick.choice([1, self.batch]), pick.choice([1, self.heads]), self.rows, total)
        if not self.window_cache and pick.random() < 0.3:
            self.attrs["qk_output"] = pick.choice([1, 2])

    def parts(self, prefix=""):
        """The node, its inputs and its outputs, with a prefix before their names."""
        outputs = [prefix + n for n in self.outputs]
        node = helper.make_node(
            "GroupQueryAttention", [prefix + n if n in self.feeds else "" for n in NAMES], outputs,
            domain="com.microsoft", name=prefix + "it", **self.attrs)
        kinds = [TYPES[self.feeds["query"].dtype]] * 4
        if "past_key" in self.feeds:
            kinds[1] = kinds[2] = TYPES[self.feeds["past_key"].dtype]
        inputs = [helper.make_tensor_value_info(prefix + n, TYPES[v.dtype], v.shape)
                  for n, v in self.feeds.items()]
        return node, inputs, [helper.make_tensor_value_info(n, kind, None)
                              for n, kind in zip(outputs, kinds)]

    def peer(self):
        """The outputs of ONNX Runtime; None if it refuses."""
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = ort.InferenceSession(model_of([self.parts()]).SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
            return session.run(self.outputs, self.feeds)
        except Exception as error:  # pylint: disable=broad-exception-caught
            if os.environ.get("GQAC_TEST_SHOW"):
                print(self, str(error)[:300])
            return None

    def defined(self, name, b):
        """The index of the elements that both define for batch row b."""
        fresh = self.valid[b] if self.first else self.rows
        if name == "output":
            return np.s_[b, :fresh]
        if name == "output_qk":
            return np.s_[b, :, :fresh, :self.valid[b]]
        if self.window_cache:
            rows = resident(int(self.valid[b]), self.past_rows, self.attrs["local_window_size"])
            return np.s_[b, :, :rows]
        return np.s_[b, :, :self.valid[b]]

    def __str__(self):
        shapes = {n: list(v.shape) for n, v in self.feeds.items()}
        return (f"{np.dtype(self.dtype).name} {shapes} seqlens {list(self.feeds['seqlens_k'])} "
                f"total {self.total} {self.attrs}")


def model_of(parts):
    """A model with these nodes in parallel."""
    graph = helper.make_graph([p[0] for p in parts], "g", [i for p in parts for i in p[1]],
                              [o for p in parts for o in p[2]])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def nibbles(codes):
    """Two codes in a byte, as integers."""
    return np.stack([codes & 15, codes >> 4], -1).astype(np.int64)


class Nodes(Case):
    """Runs nodes with gqac and with ONNX Runtime."""

    def ours(self, nodes, target="cpu"):
        """The outputs of gqac for each node, from one run of all."""
        folder = self.dir / "case"
        (folder / "in").mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*/*.npy"):
            old.unlink()
        onnx.save(model_of([n.parts(f"n{i}_") for i, n in enumerate(nodes)]), folder / "node.onnx")
        for i, node in enumerate(nodes):
            for name, value in node.feeds.items():
                np.save(folder / "in" / f"n{i}_{name}.npy", value)
        result = gqac("run", folder / "node.onnx", "--inputs", folder / "in", "--output",
                      folder / "out", "-q", "--target", target)
        shown = "\n".join(map(str, nodes))
        self.assertEqual(result.code, 0, f"{shown}\n{result}")
        return [[np.load(folder / "out" / f"n{i}_{n}.npy") for n in node.outputs]
                for i, node in enumerate(nodes)]

    def rows_of(self, node, name, got, expected):
        """Pairs of the elements that both define."""
        self.assertEqual(got.dtype, expected.dtype, str(node))
        self.assertEqual(got.shape, expected.shape, f"{name}: {node}")
        where = (node.defined(name, b) for b in range(node.batch))
        return [(got[i], expected[i]) for i in where]

    def same_codes(self, node, got, expected):
        """Codes are equal; those of rotated keys may be one off. Returns True if all are equal."""
        equal = True
        for name, x, y in list(zip(node.outputs, got, expected))[1:3]:
            for a, b in self.rows_of(node, name, x, y):
                if node.codes == 4:
                    a, b = nibbles(a), nibbles(b)
                off = np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0)
                rotated = name == "present_key" and "do_rotary" in node.attrs
                self.assertLessEqual(off, 1 if rotated else 0, f"codes of {name}: {node}")
                equal = equal and off == 0
        return equal

    def close_to(self, node, name, got, expected):
        """Row by row, within the tolerance of the type."""
        limit = 3e-3 if node.dtype == np.float16 else 2e-5
        rows = self.rows_of(node, name, got, expected)
        most = max((np.abs(y.astype(np.float64)).max() for _, y in rows if y.size), default=0)
        worst = 0.0
        for x, y in rows:
            x, y = x.astype(np.float64), y.astype(np.float64)
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            error = np.where(same, 0, np.abs(x - y)).max(initial=0) / max(most, 1e-30)
            self.assertLessEqual(error, limit, f"{name}: {node}")
            worst = max(worst, float(error))
        return worst

    def compare_group(self, nodes, expected, worst):
        """Compares the results of both for some nodes; returns the number of nodes that cannot be
        compared because of codes."""
        off = 0
        for node, got, wanted in zip(nodes, self.ours(nodes), expected):
            kind = np.dtype(node.dtype).name
            quantised = "k_scale" in node.feeds
            if quantised and not self.same_codes(node, got, wanted):
                off += 1
                continue
            for name, x, y in zip(node.outputs, got, wanted):
                if not quantised or not name.startswith("present"):
                    worst[kind] = max(worst.get(kind, 0), self.close_to(node, name, x, y))
        return off

    def compare(self, seed):
        """Random nodes; both must have accepted nearly all."""
        pick, rng = random.Random(seed), np.random.default_rng(seed)
        taken, off, worst, kinds = 0, 0, {}, {"codes": 0, "windows": 0}
        nodes, expected = [], []
        for number in range(COUNT // 2):
            node = Node(pick, rng)
            peer = node.peer()
            if peer is not None:
                taken += 1
                kinds["codes"] += "k_scale" in node.feeds
                kinds["windows"] += node.window_cache
                nodes.append(node)
                expected.append(peer)
            if len(nodes) == GROUP or number == COUNT // 2 - 1:
                off += self.compare_group(nodes, expected, worst)
                nodes, expected = [], []
        shown = ", ".join(f"{k} {v:.1e}" for k, v in worst.items())
        print(f"seed {seed}: {taken} of {COUNT // 2} compared, {kinds['codes']} with codes, "
              f"{kinds['windows']} with window caches, {off} one code off; largest error {shown}")
        self.assertGreaterEqual(taken, 350 / 360 * (COUNT // 2))
        self.assertLessEqual(off, OFF_BY_ONE * (COUNT // 2))
        for kind in kinds.values():
            self.assertGreater(kind, COUNT // 2 // 10)

    def test_x10_targets(self):
        """X10: the definition and the kernels agree, in every mode and with every option."""
        pick, rng, worst = random.Random(41), np.random.default_rng(41), {}
        nodes = [Node(pick, rng) for _ in range(3 * GROUP)]
        off = sum(self.compare_group(nodes[i:i + GROUP], self.ours(nodes[i:i + GROUP], "ref"),
                                     worst) for i in range(0, len(nodes), GROUP))
        self.assertLessEqual(off, OFF_BY_ONE * len(nodes))
        self.assertEqual({n.mode for n in nodes}, {"first", "chunk", "decode", "shared", "window"})
        options = {a for n in nodes for a in n.attrs} | {f for n in nodes for f in n.feeds}
        self.assertLessEqual({"softcap", "do_rotary", "rotary_interleaved", "scale", "qk_output",
                              "local_window_size", "sliding_window_cache", "head_sink",
                              "attention_bias", "k_scale"}, options)

    @unittest.skipIf(ort is None, "onnxruntime is not installed")
    def test_fixed(self):
        """The same cases every time."""
        self.compare(20)

    @unittest.skipIf(ort is None, "onnxruntime is not installed")
    def test_fresh(self):
        """New cases."""
        print(f"GQAC_TEST_SEED={FRESH}")
        self.compare(FRESH)


if __name__ == "__main__":
    sys.exit(harness.main())
