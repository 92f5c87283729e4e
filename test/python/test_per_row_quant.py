#!/usr/bin/env python3
"""--per-row-quant: models with DynamicQuantizeLinear become split-safe.

    python test/python/test_per_row_quant.py

The model is that of test/models/llama, quantised by ONNX Runtime's own tool (MatMulInteger).
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
    """Codes, scales and zero points of each row of x, as the op's definition has them."""
    low = np.minimum(x.min(-1, keepdims=True), 0)
    high = np.maximum(x.max(-1, keepdims=True), 0)
    scale = ((high - low) / np.float32(255)).astype(np.float32)
    scale[high == low] = 1
    zero = np.round(np.clip(0 - low / scale, 0, 255))
    return np.clip(np.round(x / scale) + zero, 0, 255).astype(np.uint8), scale, zero.astype(np.uint8)


class PerRowQuant(Case):
    """The flag from the command line."""

    def quantised(self):
        """The folder of the quantised model."""
        folder = self.dir / "q8"
        shutil.copytree(LLAMA, folder, ignore=shutil.ignore_patterns("*.onnx*", "ref"))
        logging.disable(logging.WARNING)
        quantize_dynamic(LLAMA / "model.onnx", folder / "model.onnx", weight_type=QuantType.QInt8)
        return folder

    def test_rows(self):
        """Each row by itself, against the definition in NumPy."""
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

    @unittest.skipUnless(quantize_dynamic, "onnxruntime is not installed")
    def test_split_safe(self):
        """Named as mixing, and different, without the flag; equal and near the floats with it."""
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

    @unittest.skipUnless(quantize_dynamic, "onnxruntime is not installed")
    def test_artefact(self):
        """Kept in an artefact, which is for that flag only."""
        made, ids = self.dir / "m.gqac", LLAMA / "ref" / "ids.txt"
        model = self.quantised()
        self.good("compile", model, "-o", made, FLAG)
        self.check(gqac("score", made, "--ids", ids), 2, "per-row-quant")
        self.assertEqual(self.good("score", made, FLAG, "--ids", ids).out,
                         self.good("score", model, FLAG, "--ids", ids).out)


if __name__ == "__main__":
    sys.exit(harness.main())
