#!/usr/bin/env python3
"""Exported files: ONNX Runtime computes the same from them as from the originals.

Every model is compiled to the graph after tidy and written as ONNX again. The file must be accepted
by ONNX's own checker if all of its ops are ONNX's, have the same inputs and outputs, and return the
same results in ONNX Runtime; a graph that contains gqac's own ops must be refused by name.

    python test/python/test_export.py        (needs onnx, onnxruntime, numpy)
"""

import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import harness
import ortref
from harness import Case, TOLERANCE, gqac, model


def session(path):
    """ONNX Runtime without its own rewriting."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def ports(s):
    """Names and types of inputs and names of outputs."""
    return [(i.name, i.type) for i in s.get_inputs()], [o.name for o in s.get_outputs()]


def graph_model(nodes, inputs, outputs, constants=None, opset=17):
    """A checked ModelProto."""
    values = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    results = [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs]
    tensors = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", values, results, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 10
    onnx.checker.check_model(made, full_check=True)
    return made


F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Exported(Case):
    """gqac compile --emit onnx --stop-after tidy"""

    def export(self, path):
        """The file exported from a model; it passes the checker if its ops are standard."""
        out = self.dir / "out.onnx"
        self.good("compile", path, "-o", out, "--emit", "onnx", "--stop-after", "tidy")
        made = onnx.load(out)
        onnx.checker.check_model(str(out), full_check=True)
        domains = [o.domain for o in made.opset_import]
        self.assertEqual(len(domains), len(set(domains)))
        self.assertLessEqual({n.domain for n in made.graph.node}, set(domains))
        return out

    def same(self, path, feed):
        """Both files return the same in ONNX Runtime; returns the first result of ours."""
        out = self.export(path)
        before, after = session(path), session(out)
        self.assertEqual(ports(before), ports(after))
        got = after.run(None, feed)
        for name, a, b in zip(ports(after)[1], got, before.run(None, feed), strict=True):
            self.close(a, b, 1e-6, name)
        return got[0]

    def small(self, made, feed):
        """The same for a model built here."""
        path = self.dir / "made.onnx"
        onnx.save(made, path)
        return self.same(path, feed)

    def test_standard(self):
        """Ops, constants and symbolic shapes, of ONNX only."""
        rng = np.random.default_rng(3)
        w = rng.standard_normal((4, 6)).astype(np.float32)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]),
                 helper.make_node("Softmax", ["a"], ["b"], axis=-1),
                 helper.make_node("Shape", ["x"], ["s"]),
                 helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
                 helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
                 helper.make_node("Reshape", ["b", "shape"], ["y"])]
        made = graph_model(nodes, [("x", F32, ["B", 4])], [("y", F32, ["B", 3, 2])],
                           {"w": w, "zero": np.array([0]), "rest": np.array([3, 2])})
        self.small(made, {"x": rng.standard_normal((5, 4)).astype(np.float32)})

    def test_types(self):
        """Constants of every element type are preserved, packed ones too."""
        types = ["FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "UINT8", "INT16", "UINT16", "INT32",
                 "UINT32", "INT64", "UINT64", "BOOL", "INT4", "UINT4"]
        for name, n in [(name, n) for name in types for n in (1, 5)]:
            with self.subTest(name, n=n):
                kind = getattr(TensorProto, name)
                value = [1, 0, 1, 1, 0] * n  # small ones become Constant nodes
                tensor = helper.make_tensor("c", kind, [5 * n], value)
                node = helper.make_node("Identity", ["c"], ["y"])
                graph = helper.make_graph([node], "g", [], [
                    helper.make_tensor_value_info("y", kind, [5 * n])], [tensor])
                made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
                made.ir_version = 10
                onnx.save(made, self.dir / "made.onnx")
                loaded = onnx.load(self.export(self.dir / "made.onnx"))
                kept, = (loaded.graph.initializer if n > 1 else
                         [x.attribute[0].t for x in loaded.graph.node if x.op_type == "Constant"])
                self.assertEqual(kept.data_type, kind)
                array = numpy_helper.to_array(kept).astype(np.float64)
                self.assertEqual(array.tolist(), value)

    def test_if(self):
        """Nested graphs that read values of outer graphs."""
        def branch(op, name):
            node = helper.make_node(op, ["a"], [name])
            info = helper.make_tensor_value_info(name, F32, ["B", 4])
            return helper.make_graph([node], name, [], [info])
        nodes = [helper.make_node("Abs", ["x"], ["a"]),
                 helper.make_node("If", ["c"], ["y"], then_branch=branch("Neg", "t"),
                                  else_branch=branch("Exp", "e"))]
        made = graph_model(nodes, [("x", F32, ["B", 4]), ("c", BOOL, [])],
                           [("y", F32, ["B", 4])])
        x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
        for c in (True, False):
            self.small(made, {"x": x, "c": np.array(c)})

    def test_own_ops(self):
        """Ops that are not ONNX are refused, and the message names where they are."""
        out = self.dir / "out.onnx"
        result = gqac("compile", model("llama"), "-o", out, "--emit", "onnx", "--stop-after",
                      "lower")
        self.check(result, 3, "not of ONNX", "tidy")
        self.assertFalse(out.exists())


def add_model(name):
    """A test for one exported language model: prefill, then a token.

    In fp16 ONNX Runtime rounds inside its own norm where the exported one works in fp32.
    """
    limit = TOLERANCE[name] if "fp16" in name else 1e-6

    def test(self):
        path = model(name)
        ids = np.array(harness.read_ids(harness.MODELS / name / "ref" / "ids.txt")[:9])
        theirs, ours = ortref.Runner(path, False), ortref.Runner(self.export(path), False)
        self.assertEqual(ports(theirs.session), ports(ours.session))
        ours.head_size = theirs.head_size
        for chunks in ([9], [8, 1]):
            self.close(ours.score(ids, chunks), theirs.score(ids, chunks), limit)
    setattr(Exported, "test_" + name.replace("-", "_"), test)


for known in TOLERANCE:
    add_model(known)

if __name__ == "__main__":
    sys.exit(harness.main())
