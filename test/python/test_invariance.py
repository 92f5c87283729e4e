#!/usr/bin/env python3
"""`inspect --invariance` names what makes results depend on the split, and nothing else.

Standard ops are put before the last MatMul of an exported model. For each that moves or mixes rows
by their place in the call, the node must be named and `equiv` must find differences; for each
harmless one, nothing may be named and `equiv` must find none. So neither side can pass alone.
"""

import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

import harness
from harness import Case, gqac, model

BIG = 2**31
CONSTANTS = {"axis": [1], "zero": [0], "one": [1], "last": [-1], "big": [BIG], "low": [-BIG],
             "heads": [0, 0, 6, 16], "rows": [0, 0, 96]}
SCALARS = {"s0": 0, "s1": 1, "cube": [[[0]]]}


def node(op, inputs, outputs, **attributes):
    """A node; inputs and outputs as words."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def first_row():
    """x plus the first row of the call."""
    return [node("Slice", "x zero one axis", "a"), node("Add", "x a", "y")]


MIXING = {
    "slice": ("Slice", first_row()),
    "reverse": ("Slice", [node("Slice", "x last low axis last", "y")]),
    "gather": ("Gather", [node("Gather", "x zero", "a", axis=1), node("Add", "x a", "y")]),
    "split": ("Split", [node("Split", "x", "a b", axis=1, num_outputs=2),
                        node("Concat", "b a", "y", axis=1)]),
    "trilu": ("Trilu", [node("Trilu", "x", "y", upper=0)]),
    "length": ("Cast", [node("Shape", "x", "a", start=1, end=2), node("Cast", "a", "b", to=1),
                        node("Add", "x b", "y")]),
    "range": ("Range", [node("Shape", "x", "a", start=1, end=2), node("Squeeze", "a", "b"),
                        node("Range", "s0 b s1", "c"), node("Cast", "c", "d", to=1),
                        node("Unsqueeze", "d axis", "e"), node("Add", "x e", "y")]),
    "mean": ("ReduceMean", [node("ReduceMean", "x axis", "a"), node("Add", "x a", "y")]),
    "norm": ("ReduceL2", [node("ReduceL2", "x axis", "a"), node("Add", "x a", "y")]),
    "log_softmax": ("LogSoftmax", [node("LogSoftmax", "x", "a", axis=1), node("Add", "x a", "y")]),
    "top": ("TopK", [node("TopK", "x one", "a b", axis=1), node("Add", "x a", "y")]),
    "running": ("CumSum", [node("CumSum", "x s1", "y")]),
    "least": ("ArgMin", [node("ArgMin", "x", "a", axis=1), node("Cast", "a", "b", to=1),
                         node("Add", "x b", "y")]),
    "scatter": ("ScatterElements", [
        node("Slice", "x zero one axis", "a"), node("Shape", "a", "b"),
        node("ConstantOfShape", "b", "c"), node("Cast", "c", "d", to=7),
        node("ScatterElements", "x d a", "e", axis=1, reduction="add"), node("Add", "x e", "y")]),
    "scatter in the first row": ("ScatterElements", [
        node("ScatterElements", "x cube one_f", "y", axis=2)]),
    "gather from the first row": ("GatherElements", [
        node("GatherElements", "x cube", "a", axis=2), node("Add", "x a", "y")]),
}
HARMLESS = {
    "relu": [node("Relu", "x", "y")],
    "activations": [node("Elu", "x", "a"), node("LeakyRelu", "a", "b"), node("Softplus", "b", "c"),
                    node("HardSigmoid", "c", "d"), node("Sum", "a b d", "e"),
                    node("Mean", "x e", "y")],
    "norm": [node("ReduceL2", "x last", "a"), node("Div", "x a", "y")],
    "log_softmax": [node("LogSoftmax", "x", "y", axis=-1)],
    "top": [node("TopK", "x one", "a b", axis=-1), node("Sub", "x a", "y")],
    "gather": [node("ArgMin", "x", "a", axis=-1), node("GatherElements", "x a", "b", axis=2),
               node("Sub", "x b", "y")],
    "scatter": [node("ArgMin", "x", "a", axis=-1), node("Slice", "x zero one last", "b"),
                node("ScatterElements", "x a b", "y", axis=2)],
    "transposed": [node("Transpose", "x", "a", perm=[0, 2, 1]), node("Softmax", "a", "b", axis=1),
                   node("Transpose", "b", "y", perm=[0, 2, 1])],
    "reshaped": [node("Reshape", "x heads", "a"), node("Softmax", "a", "b", axis=-1),
                 node("Reshape", "b rows", "y")],
}


def insert(nodes, path):
    """Writes the model with the nodes before lm_head; x and y stand for what goes in and out."""
    made = onnx.load(model("llama"))
    graph = made.graph
    at = next(i for i, n in enumerate(graph.node) if n.name == "/lm_head/MatMul")
    names = {"x": graph.node[at].input[0]}
    graph.node[at].input[0] = "probe.y"
    for offset, plain in enumerate(nodes):
        new = onnx.NodeProto.FromString(plain.SerializeToString())
        new.input[:] = [names.get(n, "probe." + n) for n in plain.input]
        new.output[:] = ["probe." + n for n in plain.output]
        graph.node.insert(at + offset, new)
    for name, value in {**CONSTANTS, **SCALARS}.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64),
                                                         "probe." + name))
    graph.initializer.append(numpy_helper.from_array(np.full((1, 1, 1), 9, np.float32),
                                                     "probe.one_f"))
    onnx.save(made, path)


class Invariance(Case):
    """What is named, beside what equiv finds."""

    def judge(self, nodes):
        """({op named}, differing values of equiv) of the changed model."""
        path = self.dir / "model.onnx"
        insert(nodes, path)
        named = self.good("inspect", path, "--invariance", "--format", "json").json()["mixing"]
        proof = gqac("equiv", path, "--tokens", 24, "--splits", "9,5", "--format", "json")
        self.check(proof, (0, 1))
        return {row["op"] for row in named}, proof.json()["differing"]


def add_cases():
    """One test for each row of the tables."""
    for name, (op, nodes) in MIXING.items():
        def mixing(self, op=op, nodes=nodes):
            named, differing = self.judge(nodes)
            self.assertIn(op, named)
            self.assertGreater(differing, 0)
        setattr(Invariance, "test_mixing_" + name, mixing)
    for name, nodes in HARMLESS.items():
        def harmless(self, nodes=nodes):
            self.assertEqual(self.judge(nodes), (set(), 0))
        setattr(Invariance, "test_harmless_" + name, harmless)


add_cases()

if __name__ == "__main__":
    sys.exit(harness.main())
