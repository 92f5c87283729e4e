#!/usr/bin/env python3
"""The newest opset and IR version, which onnx 1.23 writes by default.

Opset 28 brings SwiGLU, and Mod of floats with the sign of the divisor; ONNX Runtime has neither, so
the formulas of the specification are the oracle.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, gqac

OPSET, IR = 28, 14
KINDS = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}


def swiglu(a, b, alpha=1.0):
    """Swish(a) b."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a / (1 + np.exp(-alpha * a)) * b


class Newest(Case):
    """Single nodes."""

    def results(self, op, feeds, opset=OPSET, ir=IR, **attributes):
        """The finished runs on both targets."""
        kind = KINDS[next(iter(feeds.values())).dtype.type]
        graph = helper.make_graph(
            [helper.make_node(op, list(feeds), ["y"], name="it", **attributes)], "g",
            [helper.make_tensor_value_info(n, kind, v.shape) for n, v in feeds.items()], [helper.make_tensor_value_info("y", kind, None)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
        onnx.save(model, self.dir / "m.onnx")
        for name, value in feeds.items():
            np.save(self.dir / f"{name}.npy", value)
        return [gqac("run", self.dir / "m.onnx", "--inputs", self.dir, "-o", self.dir / target, "-q",
                     "--target", target) for target in ("cpu", "ref")]

    def values(self, op, feeds, **attributes):
        """The results of both targets."""
        for result in self.results(op, feeds, **attributes):
            self.check(result, 0)
        return [np.load(self.dir / target / "y.npy") for target in ("cpu", "ref")]

    def test_swiglu(self):
        """f32 and f16, with a factor and without."""
        rng = np.random.default_rng(5)
        for dtype, limit in ((np.float32, 1e-6), (np.float16, 2e-3)):
            feeds = {n: (3 * rng.standard_normal((2, 3, 37))).astype(dtype) for n in "ab"}
            for attributes in ({}, {"alpha": 1.702}):
                for y in self.values("SwiGLU", feeds, **attributes):
                    self.assertEqual(y.dtype, dtype)
                    self.close(y, swiglu(feeds["a"], feeds["b"], **attributes), limit)

    def test_swiglu_shapes(self):
        """Shapes are not broadcast."""
        for shape in ((1, 4), (4,), (3, 1)):
            feeds = {"a": np.ones((3, 4), np.float32), "b": np.ones(shape, np.float32)}
            for result in self.results("SwiGLU", feeds):
                self.check(result, 3, "node 'it' (SwiGLU)", "rank" if len(shape) == 1 else "dimension")

    def test_mod(self):
        """The sign of the divisor."""
        a = np.array([5.5, -5.5, 5.5, -5.5, 6, -6], np.float32)
        b = np.array([3, 3, -3, -3, 4, 4], np.float32)
        for y in self.values("Mod", {"a": a, "b": b}):
            self.assertTrue(np.array_equal(y, np.mod(a, b)))

    def test_versions(self):
        """Newer ones are refused by name."""
        feeds = {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}
        for more, word in (({"opset": OPSET + 1}, "opset"), ({"ir": IR + 1}, "IR version")):
            for result in self.results("SwiGLU", feeds, **more):
                self.check(result, 3, f"{word} is newer than {list(more.values())[0] - 1}")


if __name__ == "__main__":
    sys.exit(harness.main())
