#!/usr/bin/env python3
"""`--seqlens-k cached` end to end: `run` of a GroupQueryAttention on a static cache, on ref and cpu.

The lengths of one call, in both conventions, have the same bits; lengths that exceed the buffer are
refused in both (exit 4).
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, gqac

HEADS, KV, SIZE, ROWS, BATCH = 4, 2, 16, 12, 2
TARGETS = ("ref", "cpu")


def node_model(path):
    """One node with rotary and symbolic lengths."""
    def value(name, kind, *dims):
        return helper.make_tensor_value_info(name, kind, dims)

    rng = np.random.default_rng(5)
    tables = [onnx.numpy_helper.from_array(rng.normal(size=(40, SIZE // 2)).astype(np.float32), n)
              for n in ("cos", "sin")]
    cache = ["B", KV, "P", SIZE]
    f32, i32 = TensorProto.FLOAT, TensorProto.INT32
    inputs = [value("q", f32, "B", "S", HEADS * SIZE), value("k", f32, "B", "S", KV * SIZE),
              value("v", f32, "B", "S", KV * SIZE), value("past_k", f32, *cache),
              value("past_v", f32, *cache), value("seqlens", i32, "B"), value("total", i32)]
    outputs = [value("y", f32, "B", "S", HEADS * SIZE), value("new_k", f32, "B", KV, "T", SIZE),
               value("new_v", f32, "B", KV, "T", SIZE)]
    node = helper.make_node("GroupQueryAttention", [i.name for i in inputs] + ["cos", "sin"],
                            ["y", "new_k", "new_v"], domain="com.microsoft", num_heads=HEADS,
                            kv_num_heads=KV, do_rotary=1)
    graph = helper.make_graph([node], "g", inputs, outputs, tables)
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    onnx.save(model, path)


class CachedLengths(Case):
    """Calls of one node."""

    def setUp(self):
        super().setUp()
        self.path = self.dir / "node.onnx"
        node_model(self.path)

    def run_with(self, convention, target, new, seqlens, total):
        """The result of `run` and the path of its three tensors, for inputs that depend only on
        `new`."""
        rng = np.random.default_rng(new)
        feeds = {"q": rng.normal(size=(BATCH, new, HEADS * SIZE)),
                 "k": rng.normal(size=(BATCH, new, KV * SIZE)),
                 "v": rng.normal(size=(BATCH, new, KV * SIZE)),
                 "past_k": rng.normal(size=(BATCH, KV, ROWS, SIZE)),
                 "past_v": rng.normal(size=(BATCH, KV, ROWS, SIZE))}
        feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
        feeds.update(seqlens=np.array(seqlens, np.int32), total=np.array(total, np.int32))
        out = self.dir / f"{convention}-{target}"
        flags = []
        for name, array in feeds.items():
            np.save(self.dir / f"{name}.npy", array)
            flags += ["--input", f"{name}={self.dir / name}.npy"]
        result = gqac("run", self.path, "--target", target, "--seqlens-k", convention, *flags,
                      "--output", out)
        return result, out

    def test_same_bits(self):
        """(new tokens, cached lengths in the convention `cached` and in `total-1`, total)."""
        calls = [(5, (0, 0), (4, 4), 5), (5, (ROWS, 0), (4, 4), 5), (1, (4, 9), (4, 9), 10),
                 (3, (4, 7), (6, 9), ROWS), (1, (0, 2), (0, 2), ROWS)]
        for new, cached, minus, total in calls:
            for target in TARGETS:
                a, one = self.run_with("cached", target, new, cached, total)
                b, other = self.run_with("total-1", target, new, minus, total)
                self.check(a, 0)
                self.check(b, 0)
                for name in ("y", "new_k", "new_v"):
                    x, y = np.load(one / f"{name}.npy"), np.load(other / f"{name}.npy")
                    self.assertEqual(x.tobytes(), y.tobytes(), (new, cached, target, name))
            x, y = (np.load(self.dir / f"cached-{t}" / "y.npy") for t in TARGETS)
            self.close(x, y, 1e-5, str((new, cached)))

    def test_refused(self):
        """Lengths above the capacity, and a prompt longer than it."""
        for new, cached, total in ((3, (10, 0), ROWS), (1, (ROWS, 0), ROWS), (16, (0, 0), 16),
                                   (3, (-1, 0), ROWS)):
            for target in TARGETS:
                result, out = self.run_with("cached", target, new, cached, total)
                self.check(result, 4)
                self.assertFalse((out / "y.npy").exists())
        result, _ = self.run_with("cached", "cpu", 16, (0, 0), 16)
        self.check(result, 4, "total_sequence_length = 16 with 12 past rows", "static cache")


if __name__ == "__main__":
    sys.exit(harness.main())
