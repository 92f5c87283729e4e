#!/usr/bin/env python3
"""--per-row-quant: models with DynamicQuantizeLinear become split-safe.

    python test/python/test_per_row_quant.py

The model is test/models/llama, quantised by ONNX Runtime's own tool (MatMulInteger).
"""

import logging
import shutil
import sys
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import MODELS, Case, gqac

try:
    from onnxruntime.quantization import QuantType, quantize_dynamic
except ImportError:
    quantize_dynamic = None

LLAMA = MODELS / "llama"
FLAG = "--per-row-quant"


def by_row(x):
    """Codes, scales and zero points of each row of x, by the definition of the op."""
    low = np.minimum(x.min(-1, keepdims=True), 0)
    high = np.maximum(x.max(-1, keepdims=True), 0)
    scale = ((high - low) / np.float32(255)).astype(np.float32)
    scale[high == low] = 1
    zero = np.round(np.clip(0 - low / scale, 0, 255))
    return np.clip(np.round(x / scale) + zero, 0, 255).astype(np.uint8), scale, zero.astype(np.uint8)


class PerRowQuant(Case):
    """The flag on the command line."""

    def quantised(self):
        """The folder of the quantised model."""
        folder = self.dir / "q8"
        shutil.copytree(LLAMA, folder, ignore=shutil.ignore_patterns("*.onnx*", "ref"))
        logging.disable(logging.WARNING)
        quantize_dynamic(LLAMA / "model.onnx", folder / "model.onnx", weight_type=QuantType.QInt8)
        return folder

    def test_rows(self):
        """Each row separately, compared with the definition in NumPy."""
        graph = helper.make_graph(
            [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", "S", 7])],
            [helper.make_tensor_value_info("y", TensorProto.UINT8, None),
             helper.make_tensor_value_info("s", TensorProto.FLOAT, None),
             helper.make_tensor_value_info("z", TensorProto.UINT8, None)])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(made, self.dir / "m.onnx")
        x = np.random.default_rng(5).standard_normal((2, 5, 7)).astype(np.float32)
        x[0, 0], x[0, 1], x[1, 1] = 0, np.abs(x[0, 1]), -np.abs(x[1, 1])
        np.save(self.dir / "x.npy", x)
        for target in ("cpu", "ref"):
            self.good("run", self.dir / "m.onnx", "--input", f"x={self.dir / 'x.npy'}", "-o",
                      self.dir / "out", FLAG, "--target", target)
            for name, wanted in zip("ysz", by_row(x)):
                got = np.load(self.dir / "out" / f"{name}.npy")
                np.testing.assert_array_equal(got, wanted, name)

    def save(self, body, result="float[A,N] r", head="float[B,S,8] x"):
        """A model from text: DynamicQuantizeLinear of x to y, s, z, then the body; w is [8,4]."""
        weights = ", ".join(str(v % 19 - 9) for v in range(0, 7 * 32, 7))
        made = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]>\n'
            f"agraph ({head}) => ({result}) <int8[8,4] w = {{{weights}}}, float[1] t = {{0.5}},"
            " int64[2] flat = {-1, 8}> {\n    y, s, z = DynamicQuantizeLinear (x)\n" + body + "}")
        for node in made.graph.node:
            node.name = "of_" + node.output[0]
        onnx.save(made, self.dir / "m.onnx")
        return self.dir / "m.onnx"

    def test_readers(self):
        """Ops that accept a scale for each row: their rows equal the definition."""
        x = (np.random.default_rng(6).standard_normal((2, 3, 8)) * [[[1], [9], [50]]]).astype(
            np.float32)
        np.save(self.dir / "x.npy", x)
        y, s, z = by_row(x)
        real = (y.astype(np.float32) - z) * s
        w = (np.arange(0, 7 * 32, 7) % 19 - 9).reshape(8, 4)
        sums = ((y.astype(np.int32) - z) @ w).astype(np.float32)
        product = "m = MatMulInteger (y, w, z)\nf = Cast <to = 1> (m)\n"
        for body, wanted in (("r = DequantizeLinear (y, s, z)\n", real),
                             (product + "r = Mul (f, s)\n", sums * s),
                             (product + "q = Mul (s, t)\nr = Mul (f, q)\n",
                              sums * (s * np.float32(0.5)))):
            model = self.save(body, "float[B,S,N] r")
            self.assertIn("split-safe: yes", self.good("inspect", model, FLAG).out)
            for target in ("cpu", "ref"):
                self.good("run", model, "--input", f"x={self.dir / 'x.npy'}", "-o",
                          self.dir / "out", FLAG, "--target", target)
                np.testing.assert_allclose(np.load(self.dir / "out" / "r.npy"), wanted, 1e-6, 0,
                                           err_msg=f"{body} {target}")

    def test_other_readers(self):
        """Readers that would use the scale of one row for another, or fail at run time, are
        named."""
        product = "m = MatMulInteger (c, w, z)\nf = Cast <to = 1> (m)\n"
        whole = product.replace("c,", "y,")
        for body, words in (
                ("c = Reshape (y, flat)\n" + product + "r = Mul (f, s)\n",
                 ("y is read", "'of_c' (Reshape)")),
                (whole + "a = Reshape (f, flat)\nr = Mul (a, s)\n", ("y_scale", "'of_r' (Mul)")),
                (whole + "q = Mul (s, t)\na = Mul (f, q)\nb = Neg (q)\nr = Mul (a, b)\n",
                 ("y_scale", "'of_q' (Mul)")),
                ("c = Transpose (s)\nr = DequantizeLinear (y, c, z)\n",
                 ("y_scale", "'of_c' (Transpose)")),
                ("m = MatMulInteger (w, y, , z)\nr = Cast <to = 1> (m)\n",
                 ("y is read", "'of_m' (MatMulInteger)"))):
            model = self.save(body)
            self.check(gqac("inspect", model), 0)
            self.check(gqac("inspect", model, FLAG), 3, FLAG, "DynamicQuantizeLinear",
                       "'of_y'", "MatMulInteger (as A", "run it without", *words)

    # Reason of the skip: ONNX Runtime's quantiser makes the model; ./dev deps installs it, other
    # machines may lack it.
    @unittest.skipUnless(quantize_dynamic, "onnxruntime is not installed")
    def test_split_safe(self):
        """Without the flag it is named as mixing, and results differ; with it they are equal, and
        close to the floats."""
        model = self.quantised()
        plans = ("--tokens", "20", "--splits", "random:4", "--format", "json")
        result = self.check(gqac("equiv", model, *plans), 1)
        self.assertIn("DynamicQuantizeLinear", result.err)
        result = self.good("equiv", model, FLAG, *plans)
        self.assertEqual(result.json()["differing"], 0)
        self.assertNotIn("mixes", result.err)
        ids = ("--ids", LLAMA / "ref" / "ids.txt", "--format", "json")
        floats = self.good("score", LLAMA, *ids).json()["nll"]
        rows = self.good("score", model, FLAG, *ids).json()["nll"]
        self.assertLess(abs(rows / floats - 1), 0.01)

    # Reason of the skip: ONNX Runtime's quantiser makes the model; ./dev deps installs it, other
    # machines may lack it.
    @unittest.skipUnless(quantize_dynamic, "onnxruntime is not installed")
    def test_artefact(self):
        """It is stored in an artefact, which can be opened only with that flag."""
        made, ids = self.dir / "m.gqac", LLAMA / "ref" / "ids.txt"
        model = self.quantised()
        self.good("compile", model, "-o", made, FLAG)
        self.check(gqac("score", made, "--ids", ids), 2, "per-row-quant")
        self.assertEqual(self.good("score", made, FLAG, "--ids", ids).out,
                         self.good("score", model, FLAG, "--ids", ids).out)


if __name__ == "__main__":
    sys.exit(harness.main())
