#!/usr/bin/env python3
"""Sessions of ONNX Runtime whose graph is not in a file: models from bytes, and graphs that the
runtime or the program has changed. The provider reads them, with their weights, through the
runtime's API.

The bits are those of `gqac run` on a file with the same graph.
"""

import sys
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import harness
from harness import FULL, MODELS, model
from ort_sessions import (ALL, RUNTIME, SHORT, Sessions, calls, choose, mixing, read, session, since,
                          start, warnings)

LOST = "reads the graph of the session instead of the file"


def whole(name):
    """The bytes of a test model, with its external data."""
    return onnx.load(model(name)).SerializeToString()


def made(nodes, inputs, outputs, weights=(), opset=17):
    """The bytes of a small model; inputs and outputs are (name, type, shape)."""
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info(*o) for o in outputs], list(weights))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


class FromBytes(Sessions):
    """Models from bytes."""

    def run_tool(self, source, feeds):
        """The outputs of `gqac run` for the model."""
        path, into, out = self.dir / "m.onnx", self.dir / "in", self.dir / "out"
        path.write_bytes(source)
        into.mkdir(exist_ok=True)
        for name, value in feeds.items():
            np.save(into / f"{name}.npy", value)
        self.good("run", path, "--inputs", into, "--output", out)
        return read(out)

    def check_small(self, source, *feeds):
        """A session from bytes computes the same as `gqac run`, optimised or not."""
        for each in feeds:
            each = {name: np.asarray(value) for name, value in each.items()}
            expected = self.run_tool(source, each)
            for optimise in (False, True):
                self.same(session(source, optimise), each, expected, optimise)

    def test_models(self):
        compared = 0
        for name in ALL if FULL else SHORT:
            expected = [(call, self.expected(name, call)) for call in calls(name)]
            for optimise in (False, True):
                opened = session(whole(name), optimise)
                for call, outputs in expected:
                    self.same(opened, read(call / "inputs"), outputs, f"{name} {call}")
                    compared += len(outputs)
        self.assertGreater(compared, 40)

    def test_external(self):
        """Weights in files in a folder that the program names."""
        opened = session(model("llama").read_bytes(), settings={
            "session.model_external_initializers_file_folder_path": str(MODELS / "llama")})
        call = MODELS / "llama" / "ref" / "hybrid"
        self.same(opened, read(call / "inputs"), self.expected("llama", call), call)

    def test_attributes(self):
        """Attributes of every type, and attributes that are tensors, small and large."""
        table = numpy_helper.from_array(np.arange(300, dtype=np.float32), "t")
        self.check_small(made(
            [helper.make_node("Einsum", ["x", "x"], ["e"], equation="ij,kj->ik"),
             helper.make_node("Transpose", ["e"], ["p"], perm=[1, 0]),
             helper.make_node("LeakyRelu", ["p"], ["l"], alpha=0.3),
             helper.make_node("ConstantOfShape", ["s"], ["c"],
                              value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5])),
             helper.make_node("Constant", [], ["t"], value=table),
             helper.make_node("Constant", [], ["f"], value_floats=[1.0, 2.0, -3.0]),
             helper.make_node("ReduceSum", ["t"], ["r"], keepdims=0),
             helper.make_node("Mul", ["l", "c"], ["m"]), helper.make_node("Add", ["m", "f"], ["n"]),
             helper.make_node("Sub", ["n", "r"], ["y"])],
            [("x", TensorProto.FLOAT, [3, "K"]), ("s", TensorProto.INT64, [1])],
            [("y", TensorProto.FLOAT, [3, 3])]),
            {"x": np.linspace(-1, 2, 15, dtype=np.float32).reshape(3, 5),
             "s": np.array([3], np.int64)})

    @since(27, "does not pass inputs that only nested graphs read")
    def test_nested(self):
        """If in Loop: both read values, weights and inputs of outer graphs."""
        branch = [helper.make_graph([helper.make_node(op, ["v", w], ["b"])], op, [],
                                    [helper.make_tensor_value_info("b", TensorProto.FLOAT, ["N"])],
                                    [numpy_helper.from_array(np.full(100, k, np.float32), "own")])
                  for op, w, k in (("Add", "own", 2), ("Mul", "big", 3))]
        info = helper.make_tensor_value_info
        body = helper.make_graph(
            [helper.make_node("If", ["flag"], ["b"], then_branch=branch[0], else_branch=branch[1]),
             helper.make_node("Add", ["b", "x"], ["w"]),
             helper.make_node("Identity", ["go"], ["on"])], "body",
            [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []),
             info("v", TensorProto.FLOAT, ["N"])],
            [info("on", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, ["N"])])
        source = made([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
                      [("x", TensorProto.FLOAT, ["N"]), ("n", TensorProto.INT64, []),
                       ("flag", TensorProto.BOOL, [])],
                      [("y", TensorProto.FLOAT, ["N"])],
                      [numpy_helper.from_array(np.full(100, 1.5, np.float32), "big")])
        x = np.linspace(0, 1, 100, dtype=np.float32)
        self.check_small(source, *({"x": x, "n": np.int64(n), "flag": flag}
                                   for n in (0, 3) for flag in (False, True)))

    @unittest.skipIf((1, 24) <= RUNTIME < (1, 26),
                     "ONNX Runtime 1.24 and 1.25 end the process, also with the CPU provider alone")
    def test_types(self):
        """Scalars, an input of unknown rank, 4-bit weights, empty weights, bool weights."""
        quarter = helper.make_tensor("q", TensorProto.INT4, [5, 64],
                                     np.arange(320) % 16 - 8)
        self.check_small(made(
            [helper.make_node("DequantizeLinear", ["q", "scale"], ["d"]),
             helper.make_node("Where", ["which", "d", "x"], ["w"]),
             helper.make_node("Concat", ["w", "none"], ["c"], axis=0),
             helper.make_node("Add", ["c", "one"], ["y"])],
            [("x", TensorProto.FLOAT, None), ("one", TensorProto.FLOAT, [])],
            [("y", TensorProto.FLOAT, None)],
            [quarter, numpy_helper.from_array(np.float32(0.25), "scale"),
             numpy_helper.from_array(np.arange(64) % 3 == 0, "which"),
             numpy_helper.from_array(np.zeros((0, 64), np.float32), "none")], opset=21),
            {"x": np.linspace(0, 9, 320, dtype=np.float32).reshape(5, 64), "one": np.float32(1)},
            {"x": np.float32(7), "one": np.float32(-1)})

    def test_hidden_input(self):
        """An input that only the branches of an If read; runtimes that do not pass it to the
        provider run the model without it, from a file and from bytes."""
        info = helper.make_tensor_value_info
        then, other = (helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [],
                                         [info("b", TensorProto.FLOAT, ["N"])])
                       for op in ("Neg", "Abs"))
        source = made([helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
                      [("x", TensorProto.FLOAT, ["N"]), ("c", TensorProto.BOOL, [])],
                      [("y", TensorProto.FLOAT, ["N"])])
        path = self.dir / "hidden.onnx"
        path.write_bytes(source)
        for each in (source, str(path)):
            with warnings() as said:
                opened = session(each, alone=False)
            self.assertEqual("because only nested graphs read it" in said[0], RUNTIME < (1, 27))
            for c, want in ((True, [1, -2]), (False, [1, 2])):
                feeds = {"x": np.array([-1, 2], np.float32), "c": np.array(c)}
                self.assertEqual(opened.run(None, feeds)[0].tolist(), want)

    def test_refused(self):
        """Nodes that gqac does not support go to the CPU provider, and the log says why."""
        sequence = helper.make_graph(
            [helper.make_node("SplitToSequence", ["x"], ["y"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
            [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)])
        for source, words in (
                (made([helper.make_node("Det", ["x"], ["y"])], [("x", TensorProto.FLOAT, [2, 2])],
                      [("y", TensorProto.FLOAT, [])]), "Det"),
                (helper.make_model(sequence, opset_imports=[helper.make_opsetid("", 17)],
                                   ir_version=9).SerializeToString(), "'y' is not a tensor")):
            with warnings() as said:
                session(source, alone=False)
            self.assertIn(words, said[0])
            self.assertIn("runs nothing of this model", said[0])
            with self.assertRaisesRegex(Exception, "fallback"):
                session(source)


class Changed(Sessions):
    """Sessions whose graph is not that of their file."""

    def test_optional_input(self):
        """An input with a default, which a call may omit."""
        path = self.dir / "default.onnx"
        path.write_bytes(made([helper.make_node("Add", ["x", "b"], ["y"])],
                              [(n, TensorProto.FLOAT, [2]) for n in "xb"],
                              [("y", TensorProto.FLOAT, [2])],
                              [helper.make_tensor("b", TensorProto.FLOAT, [2], [1, 2])]))
        with warnings() as said:
            opened = session(str(path))
        self.assertIn(LOST, said[0])
        x, b = np.zeros(2, np.float32), np.array([5, 6], np.float32)
        self.assertEqual(opened.run(None, {"x": x})[0].tolist(), [1, 2])
        self.assertEqual(opened.run(None, {"x": x, "b": b})[0].tolist(), [5, 6])
        self.assertEqual(opened.run(None, {"x": x})[0].tolist(), [1, 2])

    def test_unread_input(self):
        """An input that no node reads is not an input for the provider."""
        path = self.dir / "unread.onnx"
        path.write_bytes(made([helper.make_node("Neg", ["x"], ["y"])],
                              [(n, TensorProto.FLOAT, [2]) for n in "xu"],
                              [("y", TensorProto.FLOAT, [2])]))
        with warnings() as said:
            opened = session(str(path))
        self.assertIn("no node of the session reads the input 'u'", said[0])
        self.assertIn(LOST, said[0])
        x = np.ones(2, np.float32)
        self.assertEqual(opened.run(None, {"x": x, "u": x})[0].tolist(), [-1, -1])

    def replaced(self, first, second):
        """A session of the file `first`, which is replaced by `second` before the provider reads
        it."""
        from onnxruntime.capi import _pybind_state
        ort, path = start(), self.dir / "replaced.onnx"
        path.write_bytes(first)
        settings = ort.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        chosen = choose(settings)
        with warnings() as said:
            opened = _pybind_state.InferenceSession(settings, str(path), True, False)
            path.write_bytes(second)
            opened.initialize_session(*chosen, set())
        return opened, said[0]

    def test_other_file(self):
        """The session keeps the model that it has read if names or nodes of com.microsoft show that
        the file has changed."""
        def gelus(x, y, count, more=()):
            values = [x, *(f"v{i}" for i in range(1, count)), y]
            return made([helper.make_node("QuickGelu", [a], [b], domain="com.microsoft")
                         for a, b in zip(values, values[1:])],
                        [(n, TensorProto.FLOAT, [2]) for n in (x, *more)],
                        [(y, TensorProto.FLOAT, [2])])

        x = np.array([0.5, -2], np.float32)
        want, = session(gelus("x", "y", 2)).run(None, {"x": x})
        for other in (("x", "y", 2), ("u", "y", 2), ("x", "v", 2), ("x", "y", 3), ("x", "y", 1),
                      ("x", "y", 2, ["w"])):
            opened, said = self.replaced(gelus("x", "y", 2), gelus(*other))
            self.assertEqual(LOST in said, other != ("x", "y", 2), other)
            found, = opened.run(["y"], {"x": x}, None)
            self.assertEqual(found.tobytes(), want.tobytes(), other)

    def test_other_types_and_ops(self):
        """The same for other types, and for other ops of com.microsoft."""
        def cast(make, dtype):
            return made([make, helper.make_node("Cast", ["z"], ["y"], to=dtype)],
                        [("x", TensorProto.FLOAT, [2])], [("y", dtype, [2])])

        gelu = helper.make_node("QuickGelu", ["x"], ["z"], domain="com.microsoft")
        x = np.array([0.5, -2], np.float32)
        want, = session(cast(gelu, TensorProto.FLOAT16)).run(None, {"x": x})
        for make, dtype, words in (
                (gelu, TensorProto.DOUBLE, "'y' is f64 in the file, and f16 in the session"),
                (helper.make_node("Neg", ["x"], ["z"]), TensorProto.FLOAT16,
                 "the session has a node com.microsoft.QuickGelu, which the file does not have")):
            opened, said = self.replaced(cast(gelu, TensorProto.FLOAT16), cast(make, dtype))
            self.assertIn(f"{LOST}: ", said)
            self.assertIn(words, said)
            found, = opened.run(["y"], {"x": x}, None)
            self.assertEqual((found.dtype, found.tobytes()), (want.dtype, want.tobytes()))

    def test_mixing(self):
        """The warning of models that are not split-safe."""
        for source, n in ((mixing().SerializeToString(), 1), (whole("llama"), 0)):
            with warnings() as said:
                session(source)
            self.assertEqual(said[0].count("'/quantise' (DynamicQuantizeLinear) mixes rows"), n)


if __name__ == "__main__":
    sys.exit(harness.main(loads_library=True))
