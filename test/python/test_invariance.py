#!/usr/bin/env python3
"""`inspect --invariance` names the nodes that make results depend on the split, and no others.

Standard ops are inserted before the last MatMul of an exported model. If an op moves or mixes rows
by their position in the call, the node must be named and `equiv` must find differences; if it is
harmless, nothing may be named and `equiv` must find none. So each test checks the other.
"""

import json
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

import harness
from harness import MODELS, Case, gqac, model

BIG = 2**31
CONSTANTS = {"axis": [1], "zero": [0], "one": [1], "last": [-1], "big": [BIG], "low": [-BIG],
             "heads": [0, 0, 6, 16], "rows": [0, 0, 96], "conv_shape": [96, 3],
             "memory_shape": [6, 16, 16]}
FLOATS = {"one_f": np.full((1, 1, 1), 9), "taps": np.linspace(-1, 1, 384).reshape(96, 1, 4),
          "bias": np.zeros(96), "state": np.zeros((1, 96, 3)), "memory": np.zeros((1, 6, 16, 16)),
          "column": np.linspace(-1, 1, 96).reshape(96, 1), "square": np.eye(96) * 0.5}
SCALARS = {"s0": 0, "s1": 1, "cube": [[[0]]]}


def node(op, inputs, outputs, **attributes):
    """A node; inputs and outputs as words."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def first_row():
    """x plus the first row of the call."""
    return [node("Slice", "x zero one axis", "a"), node("Add", "x a", "y")]


def convolve(past="state", results="b"):
    """A convolution over the rows that begins with `past`."""
    return [node("Transpose", "x", "a", perm=[0, 2, 1]),
            node("CausalConvWithState", f"a taps bias {past}", results, domain="com.microsoft"),
            node("Transpose", "b", "y", perm=[0, 2, 1])]


def recur(past="memory"):
    """A recurrence over the rows that begins with `past`."""
    return [node("LinearAttention", f"x x x {past}", "y", domain="com.microsoft",
                 update_rule="linear", q_num_heads=6, kv_num_heads=6)]


def zeros(rest):
    """past: zeros [batch, *rest], with the batch of x."""
    return [node("Shape", "x", "n", start=0, end=1), node("Concat", f"n {rest}", "m", axis=0),
            node("ConstantOfShape", "m", "past")]


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
    "convolution": ("CausalConvWithState", convolve()),
    "convolution from computed zeros": ("CausalConvWithState",
                                        zeros("conv_shape") + convolve("past")),
    "recurrence": ("LinearAttention", recur()),
    "recurrence from computed zeros": ("LinearAttention", zeros("memory_shape") + recur("past")),
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
    "moved batch": [node("FusedMatMul", "x column", "a", domain="com.microsoft", transBatchA=1),
                    node("Transpose", "a", "b", perm=[1, 0, 2]), node("Add", "x b", "y")],
    "diagonal": [node("Einsum", "x square", "a", equation="bsi,ii->bsi"), node("Add", "x a", "y")],
    "reshaped": [node("Reshape", "x heads", "a"), node("Softmax", "a", "b", axis=-1),
                 node("Reshape", "b rows", "y")],
}


def insert(nodes, path, inputs=(), outputs=()):
    """Writes the model with the nodes before lm_head; x and y are the names of their input and
    output. The graph gets the additional inputs and outputs, states of a convolution."""
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
    for name, value in FLOATS.items():
        graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), "probe." + name))
    for held, names in ((graph.input, inputs), (graph.output, outputs)):
        for name in names:
            held.append(helper.make_tensor_value_info("probe." + name, onnx.TensorProto.FLOAT,
                                                      ["batch_size", 96, 3]))
    onnx.save(made, path)


class Invariance(Case):
    """The named nodes, compared with the differences that equiv finds."""

    def judge(self, nodes):
        """({named ops}, number of differing values in equiv) for the changed model."""
        path = self.dir / "model.onnx"
        insert(nodes, path)
        named = self.good("inspect", path, "--invariance", "--format", "json").json()["mixing"]
        proof = gqac("equiv", path, "--tokens", 24, "--splits", "9,5", "--format", "json")
        self.check(proof, (0, 1))
        return {row["op"] for row in named}, proof.json()["differing"]

    def test_padded(self):
        """If batch rows are gathered by their indices, padding is kept: the node is named, also in
        the log, and sequences of unequal lengths still have their bits."""
        path = self.dir / "model.onnx"
        insert([node("Shape", "x", "n", start=0, end=1), node("Squeeze", "n", "b"),
                node("Range", "s0 b s1", "c"), node("Gather", "x c", "y", axis=0)], path)
        found = self.good("inspect", path, "--invariance", "--format", "json").json()
        self.assertEqual(found["padded_by"]["op"], "Range")
        text = self.good("inspect", path, "--invariance")
        self.assertIn("padded to the longest, because of node", text.out)
        proof = gqac("equiv", path, "--tokens", "24", "--splits", "9,5", "--batch", "8", "-v",
                     "--format", "json")
        self.assertEqual(proof.json()["differing"], 0)
        self.assertIn("rows of all sequences to the longest, because of Range", proof.err)
        self.assertIn("(Range) mixes rows", proof.err)
        ids = self.dir / "ids.txt"
        ids.write_text("1 2 3")
        for verb in (("score", path, "--ids", ids), ("compile", path, "-o", self.dir / "m.gqac")):
            self.assertIn("(Range) mixes rows", self.good(*verb).err)
            self.assertNotIn("mixes rows", self.good(*verb, "-q").err)
        self.assertNotIn("padded", gqac("equiv", model("llama"), "--tokens", "4", "-v").err)

    def test_long_rope(self):
        """The length at which a sequence changes its rope table is named, and is where a step
        refuses to cross."""
        phi = MODELS / "phi3"
        self.assertIn("more than 64 tokens use another rotary table",
                      self.good("inspect", phi, "--invariance").out)
        threshold = self.good("inspect", phi, "--invariance", "--format", "json").json()["rope_threshold"]
        self.assertEqual(threshold, 64)
        config = json.loads((phi / "genai_config.json").read_text())
        self.assertLess(threshold, config["model"]["context_length"])
        for name in ("llama", "gemma2"):
            found = self.good("inspect", MODELS / name, "--invariance", "--format", "json").json()
            self.assertIsNone(found["rope_threshold"])
            self.assertNotIn("LongRoPE", self.good("inspect", MODELS / name, "--invariance").out)

    def test_carried_by_the_caller(self):
        """A state that is an input and an output is passed on by the caller; one that is only an
        input is not."""
        path = self.dir / "model.onnx"
        nodes = convolve("fed", "b given")
        for outputs, mixing in ((["given"], []), ([], ["CausalConvWithState"])):
            insert(nodes, path, ["fed"], outputs)
            named = self.good("inspect", path, "--invariance", "--format", "json").json()["mixing"]
            self.assertEqual([row["op"] for row in named], mixing)


def add_cases():
    """Adds a test for each row of the tables."""
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
