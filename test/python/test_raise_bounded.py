#!/usr/bin/env python3
"""A number in place of hidden scores, such as -1e4, which hides them only if all scores are higher.

The traced gpt2 is altered to mask like GPT-2 in older versions of transformers: Where(causal,
scores, number), then (1 - attention_mask) * -10000 added. It works as a sequence if the weights
prove that the scores are far above that number. The bound is also computed here, by numpy, and
numbers on either side of it are tested.
"""

import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

import harness
from harness import Case, read_ids
from test_raise import LIMIT, TRACED, model

try:
    import ortref
except ImportError:
    ortref = None

WIDTH, HEADS, LAYERS = 48, 4, 2
SIZE = WIDTH // HEADS
IDS = TRACED / "gpt2" / "ref" / "ids.txt"
REASON = "does not hide them"


class Bounded(Case):
    """The traced gpt2 with another mask, and weights that bound the scores."""

    def setUp(self):
        super().setUp()
        self.path = self.dir / "m.onnx"
        self.model = onnx.load(model("gpt2"))
        self.weights = {i.name: i for i in self.model.graph.initializer}
        random = np.random.default_rng(3)
        for layer in range(LAYERS):
            for name, by in (("ln_1.weight", 2), ("ln_1.bias", .3), ("attn.c_attn.bias", 1)):
                old = self.weight(layer, name)
                self.set(layer, name, old + by * random.standard_normal(old.shape).astype(np.float32))

    def name(self, layer, name):
        return f"model.transformer.h.{layer}.{name}"

    def weight(self, layer, name):
        return numpy_helper.to_array(self.weights[self.name(layer, name)])

    def set(self, layer, name, value):
        full = self.name(layer, name)
        self.weights[full].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), full))

    def constant(self, value):
        name = f"bounded.{len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
        return name

    def padding(self):
        """(1 - attention_mask) * -10000 as [B,1,1,T], with its nodes."""
        axes, one, low = self.constant([1, 2]), self.constant(np.float32(1)), self.constant(np.float32(-10000))
        return "padding", [helper.make_node("Unsqueeze", ["attention_mask", axes], ["mask4"]),
                           helper.make_node("Cast", ["mask4"], ["maskf"], to=1),
                           helper.make_node("Sub", [one, "maskf"], ["unmasked"]),
                           helper.make_node("Mul", ["unmasked", low], ["padding"])]

    def masked(self, number, added=None):
        """Masks scores with that number, and adds the result of `added`; saves the model."""
        graph = self.model.graph
        whole = next(n.output[0] for n in graph.node if n.name == "/model/transformer/Where_1")
        causal = next(n.output[0] for n in graph.node if n.name == "/model/transformer/And")
        value, nodes = added() if added else (None, [])
        fill = self.constant(np.float32(number))
        for n in graph.node:
            if n.op_type != "Add" or whole not in n.input:
                nodes.append(n)
                continue
            scores, out = next(i for i in n.input if i != whole), n.output[0]
            hidden = f"{out}.hidden" if added else out
            nodes.append(helper.make_node("Where", [causal, scores, fill], [hidden], name=f"{n.name}.where"))
            if added:
                nodes.append(helper.make_node("Add", [hidden, value], [out], name=n.name))
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del graph.node[:]
        graph.node.extend(nodes)
        onnx.save(self.model, self.path)

    def join(self):
        """Saves the model with one past [2,B,H,P,D] for each layer, as written by ONNX Runtime's
        convert_to_onnx."""
        graph = self.model.graph
        kept = [n.SerializeToString() for n in graph.node]
        inputs = {i.name: i for i in graph.input}
        first, last, axis = [], [], self.constant([0])
        for layer in range(LAYERS):
            for i, part in enumerate(("key", "value")):
                old = inputs[f"past_key_values.{layer}.{part}"]
                graph.input.remove(old)
                graph.output.remove(next(o for o in graph.output if o.name == f"present.{layer}.{part}"))
                first.append(helper.make_node("Gather", [f"past_{layer}", self.constant(i)], [old.name], axis=0))
                last.append(helper.make_node("Unsqueeze", [f"present.{layer}.{part}", axis], [f"stack.{layer}.{i}"]))
            parts = [f"stack.{layer}.{i}" for i in (0, 1)]
            last.append(helper.make_node("Concat", parts, [f"present_{layer}"], axis=0))
            shape = [2, "batch_size", HEADS, "past_sequence_length", SIZE]
            graph.input.append(helper.make_tensor_value_info(f"past_{layer}", 1, shape))
            graph.output.append(helper.make_tensor_value_info(f"present_{layer}", 1, [*shape[:3], "T", SIZE]))
        del graph.node[:]
        graph.node.extend(first)
        graph.node.extend(onnx.NodeProto.FromString(n) for n in kept)
        graph.node.extend(last)
        del graph.value_info[:]
        onnx.checker.check_model(self.model)
        onnx.save(self.model, self.path)

    def bound(self):
        """An upper bound of the scores of all layers: the lengths of queries and keys for the worst
        row."""
        most = 0
        for layer in range(LAYERS):
            scale, shift, w, b = [self.weight(layer, n).astype(np.float64) for n in
                                  ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias")]
            lengths = []
            for part in range(2):
                of = [slice(at, at + SIZE) for at in range(part * WIDTH, (part + 1) * WIDTH, SIZE)]
                lengths.append(max(WIDTH ** .5 * np.linalg.norm(scale[:, None] * w[:, s], 2)
                                   + np.linalg.norm(shift @ w[:, s]) for s in of)
                               + max(np.linalg.norm(b[s]) for s in of))
            most = max(most, lengths[0] * lengths[1] / SIZE ** .5)
        return most

    def oracle(self):
        """The logits of ONNX Runtime, in four calls."""
        if ortref is None:
            # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other
            # machines may lack it.
            self.skipTest("onnxruntime is not installed")
        ids, runner = np.array(read_ids(IDS)), ortref.Runner(self.path)
        past, rows, at = runner.empty_past(1), [], 0
        for n in (17, 1, 1, len(ids) - 19):
            logits, past = runner.step(ids[None, at:at + n], past)
            rows.append(logits[0])
            at += n
        return np.concatenate(rows)

    def sequence(self, expected):
        """These logits, and the same bits for every split, also for an artefact."""
        out = self.dir / "logits.npy"
        self.good("score", self.path, "--ids", IDS, "--logits", out, "-q")
        self.close(np.load(out), expected, LIMIT, "logits")
        whole = out.read_bytes()
        self.good("compile", self.path, "-o", self.dir / "m.gqac", "-q")
        self.good("score", self.dir / "m.gqac", "--ids", IDS, "--splits", "9,15", "--logits", out, "-q")
        self.assertEqual(out.read_bytes(), whole)
        proof = self.good("equiv", self.path, "--ids", IDS, "--splits", "random:3", "--batch", 3, "--threads", "1,2",
                          "--format", "json", "-q").json()
        self.assertEqual(proof["differing"], 0)
        self.assertGreater(proof["compared"], 0)

    def refused(self):
        self.check(harness.gqac("score", self.path, "--ids", IDS), 3, "past_key_values.", "attention op")

    def test_sequence(self):
        """-1e4, with and without added padding."""
        self.assertLess(self.bound(), 8000)
        self.masked(-1e4)
        self.sequence(self.oracle())
        self.setUp()
        self.masked(-1e4, self.padding)
        self.sequence(self.oracle())

    def test_joined(self):
        """The same with keys and values in one past."""
        self.masked(-1e4, self.padding)
        expected = self.oracle()
        self.join()
        self.sequence(expected)

    def test_run(self):
        """`gqac run` computes the file unchanged, and inspect says why."""
        self.masked(-1e4, self.padding)
        info = self.good("inspect", self.path, "--ops", "--format", "json").json()
        self.assertEqual([n["what"] for n in info["not_raised"]], ["Attention"] * LAYERS)
        for note in info["not_raised"]:
            self.assertIn(REASON, note["reason"])

    def test_bound(self):
        """The number must be below nine tenths of the bound from the weights, minus 150; singular
        values are known within a factor of 1.2."""
        lowest = -(self.bound() + 150) / .9
        self.masked(lowest * 1.5)
        self.good("score", self.path, "--ids", IDS, "-q")
        self.setUp()
        self.masked(lowest * .99)
        self.refused()

    def test_each_part(self):
        """Weights, biases and scales that are much larger: the same number no longer hides."""
        for layer, name in ((0, "ln_1.weight"), (1, "ln_1.bias"), (0, "attn.c_attn.bias"), (1, "attn.c_attn.weight")):
            with self.subTest(name):
                self.setUp()
                self.set(layer, name, self.weight(layer, name) * np.float32(400))
                self.assertGreater(self.bound(), 1e4)
                self.masked(-1e4)
                self.refused()

    def test_values_are_free(self):
        """Weights of values do not count; those of keys do."""
        for part, taken in ((2, True), (1, False)):
            self.setUp()
            weight = self.weight(0, "attn.c_attn.weight").copy()
            weight[:, part * WIDTH:(part + 1) * WIDTH] *= 4000
            self.set(0, "attn.c_attn.weight", weight)
            self.masked(-1e4)
            if taken:
                self.good("score", self.path, "--ids", IDS, "-q")
            else:
                self.refused()

    def test_not_finite(self):
        """A weight that is not a number bounds nothing."""
        for bad in (np.nan, np.inf):
            self.setUp()
            weight = self.weight(0, "attn.c_attn.weight").copy()
            weight[5, 7] = bad
            self.set(0, "attn.c_attn.weight", weight)
            self.masked(-1e4)
            self.refused()

    def test_read_elsewhere(self):
        """A bias of heads that is added afterwards and might raise hidden scores."""
        self.masked(-1e4, lambda: (self.constant(np.full((1, HEADS, 1, 1), 3, np.float32)), []))
        self.refused()


if __name__ == "__main__":
    sys.exit(harness.main())
