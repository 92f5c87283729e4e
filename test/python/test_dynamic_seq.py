#!/usr/bin/env python3
"""`gqac rewrite --pass dynamic-seq`: graphs exported for one token a call (rows N9, N14).

Each model is built with a variable number of tokens, which is then fixed to 1 as in an export with
S = 1: in the types of its inputs and in the shapes of its Reshapes. For any number of tokens, the
rewritten file must return what the variable one returns in ONNX Runtime.
"""

import sys

import numpy as np
import onnx
from onnx import numpy_helper

import decoders
import harness
from decoders import HEADS, SIZE, WIDTH, Decoder
from harness import Case
from test_insert_kv import Looped, names, session, strip

TOKENS, LIMIT = 7, 2e-5


class Traced(Decoder):
    """Decoders with the shapes that tracers fix; 0 means batch or tokens."""

    def shape(self, *dims):
        """A constant shape, one for all its uses."""
        name = "shape_" + "_".join(map(str, dims))
        return self.once(name, lambda: self.constant(name, np.array(dims)))

    def gemm(self, name, x, columns, shape):
        """A projection by Gemm, whose operand has two axes."""
        flat = self.node("Reshape", x, shape)
        weight, bias = self.weight(name, WIDTH, columns), self.weight(f"{name}b", columns)
        return self.node("Gemm", flat, weight, bias)

    def heads(self, x, n):
        """[B,S,n*D] as [B,n,S,D]."""
        return self.node("Transpose", self.node("Reshape", x, self.shape(0, 0, n, SIZE)),
                         perm=[0, 2, 1, 3])

    def multi_query(self, layer, x):
        """One head of keys: a shape [1,1,1,D]."""
        past, present = self.pair(layer, 1)
        heads = [self.heads(v, n) for v, n in zip(self.qkv(layer, x, 1), (HEADS, 1, 1))]
        y = self.node("Attention", *heads, "", *past, out=[f"y{layer}", *present], is_causal=1)
        return self.node("Reshape", self.node("Transpose", y, perm=[0, 2, 1, 3]),
                         self.shape(0, 0, WIDTH))

    def gemms(self, layer, x):
        """Three Gemms: two between shapes of one token, and one that is already dynamic."""
        past, present = self.pair(layer, HEADS)
        parts = [self.gemm(f"{n}{layer}", x, WIDTH, self.shape(-2, WIDTH)) for n in "qk"]
        parts = [self.node("Reshape", p, self.shape(1, -2, WIDTH)) for p in parts]
        v = self.node("Reshape", self.gemm(f"v{layer}", x, WIDTH, self.shape(-1, WIDTH)),
                      self.node("Shape", x))
        return self.node("MultiHeadAttention", *parts, v, "", "", "", *past,
                         out=[f"y{layer}", *present], domain="com.microsoft", num_heads=HEADS,
                         unidirectional=1)


def free(model):
    """-2 means a dimension that is 1 in an export with one token, and -1 if it is variable."""
    return shapes(model, {-2: -1})


def shapes(model, by):
    """Replaces entries of the shapes of Reshape."""
    used = {n.input[1] for n in model.graph.node if n.op_type == "Reshape"}
    for weight in model.graph.initializer:
        if weight.name in used:
            value = numpy_helper.to_array(weight)
            weight.CopyFrom(numpy_helper.from_array(
                np.array([by.get(int(d), d) for d in value]), weight.name))
    return model


def fix(model, tokens=1):
    """The model as exported for one sequence and one token."""
    shapes(model, {0: 1, -2: 1})
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in ("B", "batch_size"):
                dim.dim_value = 1
            elif dim.dim_param in ("S", "sequence_length"):
                dim.dim_value = tokens
    del model.graph.value_info[:]
    return model


class DynamicSeq(Case):
    """Models that are fixed, then made variable again."""

    def setUp(self):
        super().setUp()
        self.path, self.fixed, self.out = (self.dir / f"{n}.onnx" for n in ("m", "fixed", "out"))
        self.ids = [(i * 37 + 11) % decoders.VOCABULARY for i in range(TOKENS)]

    def rewrite(self, name="dynamic-seq"):
        """The rewrite of the fixed model."""
        return self.good("rewrite", self.fixed, "--pass", name, "-o", self.out)

    def whole(self, decoder):
        """N9: in one call, and with a cache in pieces; gqac returns the same logits."""
        onnx.save(free(decoder.model()), self.path)
        onnx.save(fix(decoder.model()), self.fixed)
        self.rewrite()
        feeds = decoder.empty(self.ids)
        expected = session(self.path).run(["logits"], feeds)[0]
        s = session(self.out)
        self.close(s.run(["logits"], feeds)[0], expected, LIMIT, decoder.kind)
        first = decoder.empty(self.ids[:1])
        got = s.run(None, first)
        self.close(got[0][0], expected[0, :1], LIMIT, decoder.kind)
        folder = self.dir / "in"
        folder.mkdir()
        for name, value in feeds.items():
            np.save(folder / f"{name}.npy", value)
        self.good("run", self.out, "--inputs", folder, "--output", self.dir / "o", "-q")
        self.close(np.load(self.dir / "o" / "logits.npy"), expected, LIMIT, decoder.kind)
        dims = {v.name: [d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim]
                for v in (*onnx.load(self.out).graph.input, *onnx.load(self.out).graph.output)}
        self.assertEqual(dims["input_ids"], [1, "sequence_length"])
        self.assertEqual(dims["logits"], [1, "sequence_length", decoders.VOCABULARY])

    def test_n9_attention(self):
        """Heads by Reshape and Transpose."""
        self.whole(Traced("attention_4d"))

    def test_n9_multi_query(self):
        """Which 1 is the token, and which the head."""
        self.whole(Traced("multi_query"))

    def test_n9_multi_head(self):
        """Only the shapes of the inputs are fixed."""
        self.whole(Traced("multi_head_padded"))

    def test_n14_gemms(self):
        """Two of three Gemms have a two-dimensional operand with one row."""
        decoder = Traced("gemms")
        self.whole(decoder)
        run = self.rewrite()
        self.assertIn(f"{1 + 4 * decoders.LAYERS} shapes", run.out)
        graph = onnx.load(self.out).graph
        made = {w.name: numpy_helper.to_array(w).tolist() for w in graph.initializer}
        fixed = [n.name for n in graph.node if n.op_type == "Reshape" and made.get(n.input[1])
                 and -1 not in made[n.input[1]] and 0 not in made[n.input[1]]]
        self.assertEqual(fixed, [])

    def test_then_insert_kv(self):
        """A decoder without a cache for one token is rewritten to one with a cache for any
        number."""
        decoder = Traced("attention_4d")
        onnx.save(strip(free(decoder.model())), self.path)
        onnx.save(fix(strip(decoder.model())), self.fixed)
        refused = harness.gqac("rewrite", self.fixed, "--pass", "insert-kv", "-o", self.out)
        self.check(refused, 3, "calls of 1 tokens", "dynamic-seq")
        self.rewrite()
        self.good("rewrite", self.out, "--pass", "insert-kv", "-o", self.out)
        s = session(self.path)
        feeds = {"input_ids": np.array([self.ids])}
        expected = s.run(["logits"], {k: v for k, v in feeds.items()
                                      if k in names(s.get_inputs())} | {
            "attention_mask": np.ones((1, TOKENS), np.int64)} if "attention_mask" in
            names(s.get_inputs()) else feeds)[0][0]
        self.close(Looped(self.out).score(self.ids, [3, 1, TOKENS - 4]), expected, LIMIT)

    def test_as_a_sequence(self):
        """Several tokens in one step of an export for one token: the message names the rewrite."""
        onnx.save(fix(Traced("attention_4d").model()), self.fixed)
        self.good("equiv", self.fixed, "--tokens", "1")
        self.check(harness.gqac("equiv", self.fixed, "--tokens", "5"), 4, "one token per call", "dynamic-seq")

    def test_builder_export(self):
        """An export of the builder with fixed inputs."""
        whole = onnx.load(harness.model("llama"))
        onnx.save(fix(onnx.load(harness.model("llama"))), self.fixed)
        self.rewrite()
        feeds = {"input_ids": np.array([self.ids]), "attention_mask": np.ones((1, TOKENS), "i8")}
        for value in whole.graph.input[2:]:
            feeds[value.name] = np.zeros((1, 2, 0, 32), np.float32)
        expected = session(harness.model("llama")).run(["logits"], feeds)[0]
        self.close(session(self.out).run(["logits"], feeds)[0], expected, LIMIT)

    def test_nothing_to_do(self):
        """A graph for any number of tokens is unchanged."""
        Traced("multi_head").save(self.fixed)
        run = self.good("rewrite", self.fixed, "--pass", "dynamic-seq", "-o", self.fixed)
        self.assertIn("nothing to do", run.out)

    def test_refused(self):
        """Other fixed numbers of tokens, and results that depend on the position of a token in its
        call."""
        onnx.save(fix(Traced("multi_head").model(), 5), self.fixed)
        run = harness.gqac("rewrite", self.fixed, "--pass", "dynamic-seq", "-o", self.out)
        self.check(run, 3, "calls of 5 tokens")
        onnx.save(fix(Traced("mask_from_shapes").model()), self.fixed)
        run = harness.gqac("rewrite", self.fixed, "--pass", "dynamic-seq", "-o", self.out)
        self.check(run, 3, "Range_", "number of tokens in a call", "rule:", "try:", "--pass raise")
        self.assertFalse(self.out.exists())
        for kind, name in (("attention_4d", "is_causal"), ("multi_head", "unidirectional")):
            model = fix(Traced(kind).model())
            for node in model.graph.node:
                kept = [a for a in node.attribute if a.name != name]
                del node.attribute[:]
                node.attribute.extend(kept)
            onnx.save(model, self.fixed)
            run = harness.gqac("rewrite", self.fixed, "--pass", "dynamic-seq", "-o", self.out)
            self.check(run, 3, "Attention)", "keys after its own position")
            self.assertFalse(self.out.exists())


if __name__ == "__main__":
    sys.exit(harness.main())
