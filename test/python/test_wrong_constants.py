#!/usr/bin/env python3
"""Errors that follow from constants of a file are refused when the model is compiled, not when it
runs.

Each row is a node with its shapes, with invalid inputs and with valid ones, with which it compiles.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, gqac

F32, I64, U8 = np.float32, np.int64, np.uint8


def ints(*values):
    """An int64 constant."""
    return np.array(values, I64)


def ones(*dims, dtype=F32):
    """A constant of ones."""
    return np.ones(dims, dtype)


NBITS = {"domain": "com.microsoft", "K": 32, "N": 4, "bits": 4, "block_size": 16}
CONV = {"kernel_shape": [3], "group": 2}
# name: (op, attributes, invalid inputs, valid inputs, outputs, word of the message); an input is a
# constant, or the dimensions of a graph input of f32
ROWS = {
    "Reshape count": ("Reshape", {}, [[2, 6], ints(5, 2)], [[2, 6], ints(3, 4)], 1, "12 elements"),
    "Reshape rest": ("Reshape", {}, [[2, 6], ints(5, -1)], [[2, 6], ints(4, -1)], 1, "beside -1"),
    "Reshape two": ("Reshape", {}, [["N", 6], ints(-1, -1)], [["N", 6], ints(-1, 2)], 1, "at most one"),
    "Slice ends": ("Slice", {}, [["N", 6], ints(0), ints(1, 2)], [["N", 6], ints(0), ints(1)], 1,
                   "has 2 elements, not 1"),
    "Slice axes": ("Slice", {}, [["N", 6], ints(0), ints(1), ints(0, 1)],
                   [["N", 6], ints(0), ints(1), ints(1)], 1, "has 2 elements, not 1"),
    "Slice twice": ("Slice", {}, [["N", 6], ints(0, 0), ints(1, 1), ints(1, -1)],
                    [["N", 6], ints(0, 0), ints(1, 1), ints(1, 0)], 1, "given twice"),
    "Split sum": ("Split", {"axis": 1}, [["N", 6], ints(2, 3)], [["N", 6], ints(2, 4)], 2, "add up to 5"),
    "Split outputs": ("Split", {"axis": 1}, [["N", 6], ints(2, 2, 2)], [["N", 6], ints(2, 4)], 2,
                      "3 lengths for 2"),
    "Split negative": ("Split", {"axis": 1}, [["N", 6], ints(-1, 7)], [["N", 6], ints(0, 6)], 2,
                       "length -1"),
    "Pad count": ("Pad", {}, [["N", 6], ints(0, 1)], [["N", 6], ints(0, 1, 0, 1)], 1, "2 pads"),
    "Pad length": ("Pad", {}, [["N", 6], ints(0, -4, 0, -3)], [["N", 6], ints(0, -4, 0, -2)], 1,
                   "length -1"),
    "TopK k": ("TopK", {}, [["N", 6], ints(7)], [["N", 6], ints(6)], 2, "k = 7"),
    "TopK negative": ("TopK", {}, [["N", 6], ints(-1)], [["N", 6], ints(0)], 2, "k = -1"),
    "Conv channels": ("Conv", CONV, [["N", 6, "L"], ones(4, 2, 3)], [["N", 6, "L"], ones(4, 3, 3)], 1,
                      "6 channels in 2 groups"),
    "Conv maps": ("Conv", CONV, [["N", 6, "L"], ones(5, 3, 3)], [["N", 6, "L"], ones(4, 3, 3)], 1,
                  "5 feature maps"),
    "Conv biases": ("Conv", CONV, [["N", 6, "L"], ones(4, 3, 3), ones(5)],
                    [["N", 6, "L"], ones(4, 3, 3), ones(4)], 1, "5 biases"),
    "Conv kernel": ("Conv", CONV, [["N", 6, "L"], ones(4, 3, 2)], [["N", 6, "L"], ones(4, 3, 3)], 1,
                    "kernel_shape"),
    "Conv place": ("Conv", CONV, [["N", 6, 2], ones(4, 3, 3)], [["N", 6, 3], ones(4, 3, 3)], 1,
                   "a kernel of 3 elements does not fit the 2 elements"),
    "LayerNormalization": ("LayerNormalization", {}, [["N", 6], ones(5)], [["N", 6], ones(6)], 1,
                           "5 scales"),
    "RMSNormalization": ("RMSNormalization", {}, [["N", 6], ones(5)], [["N", 6], ones(6)], 1, "5 scales"),
    "LayerNormalization heads": ("LayerNormalization", {}, [["N", 4, 6], ones(3, 6)], [["N", 4, 6], ones(4, 6)],
                                 1, "3 scales"),
    "LayerNormalization rank": ("LayerNormalization", {}, [["N", 6], ones(2, 1, 6)], [["N", 6], ones(1, 1, 6)],
                                1, "2 scales"),
    "LayerNormalization bias": ("LayerNormalization", {}, [["N", 6], ones(6), ones(5)],
                                [["N", 6], ones(6), ones(6)], 1, "5 biases"),
    "RMSNormalization heads": ("RMSNormalization", {"axis": -1}, [["N", 4, 2, 6], ones(3, 1, 6)],
                               [["N", 4, 2, 6], ones(4, 1, 6)], 1, "3 scales"),
    "skip norm": ("SkipLayerNormalization", {"domain": "com.microsoft"},
                  [["N", 2, 6], ["N", 2, 6], ones(5)], [["N", 2, 6], ["N", 2, 6], ones(6)], 1, "5 scales"),
    "MatMulNBits zero": ("MatMulNBits", NBITS,
                         [["N", 32], ones(4, 2, 8, dtype=U8), ones(8), ones(8, dtype=U8)],
                         [["N", 32], ones(4, 2, 8, dtype=U8), ones(8), ones(4, dtype=U8)], 1,
                         "zero_points has 8"),
    "MatMulNBits bias": ("MatMulNBits", NBITS,
                         [["N", 32], ones(4, 2, 8, dtype=U8), ones(8), None, None, ones(5)],
                         [["N", 32], ones(4, 2, 8, dtype=U8), ones(8), None, None, ones(4)], 1,
                         "bias has 5"),
    "DequantizeLinear axis": ("DequantizeLinear", {"axis": 0}, [ones(4, 6, dtype=U8), ones(6)],
                              [ones(4, 6, dtype=U8), ones(4)], 1, "axis 0 has the length 4"),
    "DequantizeLinear blocks": ("DequantizeLinear", {"axis": 1, "block_size": 2},
                                [ones(4, 6, dtype=U8), ones(4, 2)], [ones(4, 6, dtype=U8), ones(4, 3)], 1,
                                "blocks of 2"),
    "DequantizeLinear zeros": ("DequantizeLinear", {"axis": 0},
                               [ones(4, 6, dtype=U8), ones(4), ones(3, dtype=U8)],
                               [ones(4, 6, dtype=U8), ones(4), ones(4, dtype=U8)], 1, "3 zero points"),
}
# op: the opset that introduced it, and its inputs
NEWER = {"Gelu": (20, 1), "HardSwish": (14, 1), "Mish": (18, 1), "BitwiseNot": (18, 1), "Trilu": (14, 1),
         "RMSNormalization": (23, 2), "Swish": (24, 1)}


def build(path, op, attributes, inputs, outputs, opset=23):
    """A model of one node."""
    graph_inputs, constants, names = [], [], []
    for i, given in enumerate(inputs):
        names.append(f"x{i}" if given is not None else "")
        if isinstance(given, list):
            graph_inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, given))
        elif given is not None:
            constants.append(onnx.numpy_helper.from_array(given, f"x{i}"))
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    kinds = [TensorProto.INT64 if op == "TopK" and i else TensorProto.FLOAT for i in range(outputs)]
    graph = helper.make_graph([node], "g", graph_inputs,
                              [helper.make_tensor_value_info(n, k, None) for n, k in zip(results, kinds)],
                              constants)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]), path)


class WrongConstants(Case):
    """compile, with invalid and with valid inputs."""

    def compiled(self, *model, **more):
        """`compile` of a model that is built for it."""
        build(self.dir / "m.onnx", *model, **more)
        return gqac("compile", self.dir / "m.onnx", "--stateless", "-o", self.dir / "m.gqac")

    def test_rows(self):
        """Every row: exit 3 with the word, and the twin compiles."""
        for name, (op, attributes, wrong, right, outputs, word) in ROWS.items():
            with self.subTest(name):
                self.check(self.compiled(op, attributes, wrong, outputs), 3, word)
                self.check(self.compiled(op, attributes, right, outputs), 0)

    def test_axes_as_data(self):
        """Axes that are inputs of the run are checked at run time: exit 4."""
        kinds = {"x": (TensorProto.FLOAT, [4, 6]), "at": (TensorProto.INT64, [1])}
        inputs = [helper.make_tensor_value_info(n, *k) for n, k in kinds.items()]
        for op, names in (("Slice", ["x", "one", "two", "at"]), ("ReduceSum", ["x", "at"]),
                          ("Unsqueeze", ["x", "at"])):
            graph = helper.make_graph(
                [helper.make_node(op, names, ["y"])], "g", inputs,
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [onnx.numpy_helper.from_array(ints(1), "one"), onnx.numpy_helper.from_array(ints(2), "two")])
            onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
                helper.make_opsetid("", 23)]), self.dir / "m.onnx")
            np.save(self.dir / "x.npy", ones(4, 6))
            for axis, code in ((1, 0), (7, 4), (-9, 4)):
                np.save(self.dir / "at.npy", ints(axis))
                for target in ("ref", "cpu"):
                    done = gqac("run", self.dir / "m.onnx", "--target", target,
                                "--input", f"x={self.dir / 'x.npy'}", "--input", f"at={self.dir / 'at.npy'}",
                                "--output", self.dir / "out")
                    self.check(done, code, *(["axis"] if code else []))

    def test_declared_outputs(self):
        """An output that is declared with a wrong element type: exit 3, as ONNX Runtime refuses it;
        wrong lengths are a warning there, and ignored here."""
        float_, int_ = TensorProto.FLOAT, TensorProto.INT64
        for nodes, declared, dims, code in (
                ([("Abs", "x", "y")], float_, [4], 0),
                ([("Abs", "x", "y")], float_, [5], 0),
                ([("Abs", "x", "y")], TensorProto.FLOAT16, [4], 3),
                ([("Shape", "x", "y")], float_, [1], 3),
                ([("Shape", "x", "y")], int_, [1], 0),
                ([("Identity", "w", "y")], int_, [2], 3)):
            with self.subTest(f"{nodes} {declared}"):
                graph = helper.make_graph(
                    [helper.make_node(op, [a], [b]) for op, a, b in nodes], "g",
                    [helper.make_tensor_value_info("x", float_, [4])],
                    [helper.make_tensor_value_info("y", declared, dims)],
                    [onnx.numpy_helper.from_array(ones(2), "w")])
                onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
                    helper.make_opsetid("", 23)]), self.dir / "m.onnx")
                done = gqac("compile", self.dir / "m.onnx", "--stateless", "-o",
                            self.dir / "m.gqac")
                self.check(done, code, *(["'y' is declared"] if code else []))

    def test_expand_at_run_time(self):
        """A shape that cannot be broadcast is refused at run time, also if the result can only have
        the shape of the input: exit 4."""
        graph = helper.make_graph(
            [helper.make_node("Expand", ["x", "shape"], ["y"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6]),
             helper.make_tensor_value_info("shape", TensorProto.INT64, [2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 23)]), self.dir / "m.onnx")
        np.save(self.dir / "x.npy", ones(4, 6))
        for shape, code in (((4, 6), 0), ((1, 6), 0), ((4, 1), 0), ((2, 6), 4), ((4, 5), 4)):
            np.save(self.dir / "shape.npy", ints(*shape))
            for target in ("ref", "cpu"):
                done = gqac("run", self.dir / "m.onnx", "--target", target,
                            "--input", f"x={self.dir / 'x.npy'}",
                            "--input", f"shape={self.dir / 'shape.npy'}",
                            "--output", self.dir / "out")
                self.check(done, code, *(["cannot be broadcast"] if code else []))

    def test_newer(self):
        """An op that the imported opset does not have yet."""
        for op, (opset, count) in NEWER.items():
            with self.subTest(op):
                inputs = [[4, 6], ones(6)][:count]
                if op == "BitwiseNot":
                    inputs = [ones(4, dtype=U8)]
                self.check(self.compiled(op, {}, inputs, 1, opset=opset - 1), 3,
                           f"opset {opset - 1} is older than the op, which was added in "
                            f"opset {opset}")
                if op != "BitwiseNot":
                    self.check(self.compiled(op, {}, inputs, 1, opset=opset), 0)
        self.check(self.compiled("LayerNormalization", {}, [[4, 6], ones(6)], 1, opset=13), 0)


if __name__ == "__main__":
    sys.exit(harness.main())
