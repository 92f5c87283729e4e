#!/usr/bin/env python3
"""Forms that exporters write and that sequences must support: eager attention with sinks, layers
that read the cache of another one, decoders with inputs_embeds.

Small decoders are written node by node, as the exporter writes them, and compared with ONNX
Runtime: one call, and a call after a past of two batch rows, one of them padded on the left.
`score` must return the same through a sequence, and `equiv` must find no differing bit.
"""

import sys
import unittest

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import decoders
import harness
from decoders import F, HEADS, I32, I64, KV_HEADS, SIZE, VOCABULARY, WIDTH, Decoder
from harness import FULL, Case, write_ids

try:
    import onnxruntime
    from ortref import Runner
except ImportError:
    Runner = None

TOKENS = 40
LIMIT = 2e-5  # of max|logit|
LOWEST = float(np.finfo(np.float32).min)
WINDOW = 6


class Exported(Decoder):
    """Attention in simple ops."""

    def heads(self, x, n, size=SIZE):
        """[B,S,n*D] as [B,n,S,D]."""
        shape = self.once(f"_heads{n}x{size}", lambda: self.constant(
            f"heads{n}x{size}", np.array([0, 0, n, size], np.int64)))
        return self.node("Transpose", self.node("Reshape", x, shape), perm=[0, 2, 1, 3])

    def flat(self, y, width=WIDTH):
        """[B,H,S,D] as [B,S,H*D]."""
        shape = self.once(f"_flat{width}", lambda: self.constant(
            f"flat{width}", np.array([0, 0, width], np.int64)))
        return self.node("Reshape", self.node("Transpose", y, perm=[0, 2, 1, 3]), shape)

    def ints(self, *values):
        """A constant i64 [n]; one for each list of values."""
        name = "ints" + "_".join(str(v) for v in values)
        return self.once("_" + name, lambda: self.constant(name, np.array(values, np.int64)))

    def positions(self):
        """The input position_ids."""
        def make():
            self.inputs.append(self.info("position_ids", I64, ["B", "S"]))
            return "position_ids"
        return self.once("_positions", make)

    def angles(self, size):
        """Cosines and sines [B,1,S,D/2]."""
        def make():
            x = self.node("Cast", self.node("Unsqueeze", self.positions(), self.ints(2)), to=F)
            rate = (1e4 ** (-np.arange(size // 2) / (size // 2))).astype(np.float32)
            x = self.node("Mul", x, self.constant(f"rate{size}", rate))
            return [self.node("Unsqueeze", self.node(op, x), self.ints(1)) for op in ("Cos", "Sin")]
        return self.once(f"_angles{size}", make)

    def rotated(self, x, size=SIZE):
        """x [B,H,S,D] rotated as in gpt-oss: by halves, joined by Concat."""
        cos, sin = self.angles(size)
        out = [f"half.{len(self.nodes)}.{i}" for i in (0, 1)]
        self.node("Split", x, out=out, axis=-1, num_outputs=2)
        first = self.node("Sub", self.node("Mul", out[0], cos), self.node("Mul", out[1], sin))
        second = self.node("Add", self.node("Mul", out[1], cos), self.node("Mul", out[0], sin))
        return self.node("Concat", first, second, axis=-1)

    def seen(self, window=0):
        """The mask of keys that are visible to a query, 0 or the lowest number [B,1,S,T]."""
        def make():
            total = self.node("Shape", "attention_mask", start=1, end=2)
            ends = [self.node("Squeeze", n)
                    for n in (self.node("Sub", total, self.chunk()), total)]
            zero = self.once("_s0", lambda: self.constant("s0", np.int64(0)))
            rows = self.node("Unsqueeze", self.node("Range", *ends, "scalar"), "one")
            columns = self.node("Unsqueeze", self.node("Range", zero, ends[1], "scalar"), "zero")
            seen = self.node("LessOrEqual", columns, rows)
            if window:
                first = self.node("Sub", rows, self.constant(f"window{window}", np.int64(window)))
                seen = self.node("And", seen, self.node("Greater", columns, first))
            here = self.node("Unsqueeze", self.node("Cast", "attention_mask", to=TensorProto.BOOL),
                             "axes")
            seen = self.node("And", self.node("Unsqueeze", seen, self.ints(0, 1)), here)
            return self.node("Where", seen, self.once("_f0", lambda: self.constant(
                "f0", np.float32(0))), self.once("_low", lambda: self.constant(
                    "lowest", np.float32(LOWEST))))
        return self.once(f"_seen{window}", make)

    def repeated(self, x, size=SIZE):
        """Heads repeated for groups of queries."""
        n = HEADS // KV_HEADS
        five = self.node("Unsqueeze", x, self.ints(2))
        shape = self.node("Concat", self.node("Shape", x, start=0, end=2), self.ints(n),
                          self.node("Shape", x, start=2, end=4), axis=0)
        return self.node("Reshape", self.node("Expand", five, shape), self.ints(0, HEADS, -1, size))

    def grown(self, layer, k, v):
        """Keys and values after those of the past."""
        past, present = self.pair(layer, KV_HEADS)
        for old, new, out in zip(past, (k, v), present):
            self.node("Concat", old, new, out=[out], axis=2)
        return present

    def scores(self, q, k, mask, scale=SIZE ** -0.5):
        """Scaled products and the mask."""
        x = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        x = self.node("Mul", x, self.once("_scale", lambda: self.constant(
            "scale", np.float32(scale))))
        return self.node("Add", x, mask)

    # ---- kinds -----------------------------------------------------------------------------------

    def sinks(self, layer, x):
        """gpt-oss, eager: a column of sinks that takes part in the softmax; every other layer has a
        window."""
        return self.sunk(layer, x, self.seen(0 if layer else WINDOW))

    def sunk(self, layer, x, mask):
        """Attention with sinks and that mask."""
        q, k, v = (self.heads(y, n) for y, n in zip(self.qkv(layer, x, KV_HEADS),
                                                    (HEADS, KV_HEADS, KV_HEADS)))
        k, v = self.grown(layer, self.rotated(k), v)
        s = self.scores(self.rotated(q), self.repeated(k), mask)
        s = self.lowered(layer, self.with_sinks(layer, s))
        p = self.without_sinks(self.node("Softmax", s, axis=-1))
        return self.flat(self.node("MatMul", p, self.repeated(v)))

    def column(self, layer, s, n=1):
        """n sinks for each head, as a column next to the scores s."""
        sinks = self.constant(f"sinks{layer}", self.random.standard_normal(
            (1, HEADS, 1, n)).astype(np.float32))
        shape = self.node("Concat", self.node("Shape", s, start=0, end=3), self.ints(n), axis=0)
        return self.node("Expand", sinks, shape)

    def with_sinks(self, layer, s):
        """The scores and a column of sinks."""
        return self.node("Concat", s, self.column(layer, s), axis=-1)

    def lowered(self, _, s):
        """Scores and sinks minus the maximum of each query."""
        return self.node("Sub", s, self.node("ReduceMax", s, self.ints(-1), keepdims=1))

    def without_sinks(self, p):
        """All but the last column."""
        return self.node("Slice", p, self.ints(0), self.ints(-1), self.ints(3), self.ints(1))

    def shared_gqa(self, layer, x):
        """The same with GroupQueryAttention: no new rows, and the present of the other layer."""
        lengths = self.once("_gqa", lambda: [
            self.node("Cast", self.node("Sub", self.valid(), "one"), to=I32),
            self.node("Cast", self.node("Squeeze", self.node(
                "Shape", "attention_mask", start=1, end=2)), to=I32)])
        q = self.project(f"q{layer}", x, WIDTH, WIDTH)
        k, v = (self.project(n + str(layer), x, WIDTH, KV_HEADS * SIZE) for n in "kv")
        if layer:
            shape = self.node("Concat", self.node("Shape", "input_ids", start=0, end=1),
                              self.ints(0, KV_HEADS * SIZE), axis=0)
            none = self.constant("none", np.zeros((1, 0, KV_HEADS * SIZE), np.float32))
            k = v = self.node("Expand", none, shape)
            past, out = self._presents, [f"y{layer}"]
        else:
            past, self._presents = self.pair(layer, KV_HEADS)
            out = [f"y{layer}", *self._presents]
        return self.node("GroupQueryAttention", q, k, v, *past, *lengths, out=out,
                         domain="com.microsoft", num_heads=HEADS, kv_num_heads=KV_HEADS)

    def shared(self, layer, x):
        """Gemma 3n and 4, eager: the last layer attends to the keys and values of the one before."""
        q = self.rotated(self.heads(self.project(f"q{layer}", x, WIDTH, WIDTH), HEADS))
        if not layer:
            k, v = (self.heads(self.project(n, x, WIDTH, KV_HEADS * SIZE), KV_HEADS) for n in "kv")
            self._kept = self.grown(layer, self.rotated(k), v)
        k, v = (self.repeated(y) for y in self._kept)
        p = self.node("Softmax", self.scores(q, k, self.seen()), axis=-1)
        return self.flat(self.node("MatMul", p, v))

    # ---- MultiHeadAttention, as the model builder writes it for fp16 on CPUs -----------------------

    def square(self, window=0):
        """The keys of its own call visible to a query, [S,S] expanded to [B,H,S,T]: for calls
        without a past, or with one token."""
        def make():
            zero = self.once("_s0", lambda: self.constant("s0", np.int64(0)))
            low = self.once("_low", lambda: self.constant("lowest", np.float32(LOWEST)))
            none = self.once("_f0", lambda: self.constant("f0", np.float32(0)))
            places = self.node("Range", zero, self.node("Squeeze", self.chunk()), "scalar")
            after = self.node("Reshape", self.node("Add", places, "scalar"), self.ints(-1, 1))
            seen = self.node("Less", places, after)
            if window:
                first = self.node("Sub", after, self.constant("window", np.int64(window + 1)))
                seen = self.node("And", seen, self.node("Less", first, places))
            shape = self.node("Concat", self.node("Shape", "input_ids", start=0, end=1), "one",
                              self.chunk(), self.node("Shape", "attention_mask", start=1), axis=0)
            mask = self.node("Expand", self.node("Unsqueeze", self.node("Where", seen, none, low),
                                                 self.ints(0, 1)), shape)
            padding = self.node("Expand", self.node("Unsqueeze", "attention_mask", "axes"), shape)
            padding = self.node("Sub", self.constant("f1", np.float32(1)),
                                self.node("Cast", padding, to=F))
            padding = self.node("Where", self.node("Cast", padding, to=TensorProto.BOOL), low,
                                padding)
            return self.node("Tile", self.node("Add", padding, mask), self.ints(1, HEADS, 1, 1))
        return self.once("_square", make)

    def masked(self, layer, x, window=0):
        """The cache is an operand."""
        past, present = self.pair(layer, HEADS)
        return self.node("MultiHeadAttention", *self.qkv(layer, x, HEADS), "", "",
                         self.square(window), *past, out=[f"y{layer}", *present],
                         domain="com.microsoft", num_heads=HEADS, scale=0.4)

    def masked_window(self, layer, x):
        """A window, which has no effect in calls with a past and one token."""
        return self.masked(layer, x, WINDOW)

    def masked_repeated(self, layer, x):
        """The cache has fewer heads, which are repeated for all queries."""
        q, *new = self.qkv(layer, x, KV_HEADS)
        cached = self.grown(layer, *(self.heads(y, KV_HEADS) for y in new))
        k, v = (self.flat(self.repeated(y)) for y in cached)
        return self.node("MultiHeadAttention", q, k, v, "", "", self.square(), num_heads=HEADS,
                         domain="com.microsoft")

    def einsum(self, layer, x):
        """Both products are Einsum, of queries [B,S,H,D]."""
        q, k, v = self.qkv(layer, x, HEADS)
        past, present = self.pair(layer, HEADS)
        for old, new, out in zip(past, (k, v), present):
            self.node("Concat", old, self.heads(new, HEADS), out=[out], axis=2)
        q = self.node("Reshape", q, self.ints(0, 0, HEADS, SIZE))
        s = self.node("Einsum", q, present[0], equation="bshd,bhtd->bhst")
        p = self.node("Softmax", self.node("Add", s, self.seen()), axis=-1)
        y = self.node("Einsum", p, present[1], equation="bhst,bhtd->bshd")
        return self.node("Reshape", y, self.ints(0, 0, WIDTH))

    # ---- Qwen3-MoE, as Optimum traces it -----------------------------------------------------------

    def eager(self, layer, x):
        """Attention without special features."""
        return self.simple(layer, x, self.seen())

    def floored(self, layer, x, least=LOWEST):
        """OPT: the sum of scores and masks is clamped to the lowest number."""
        return self.simple(layer, x, self.seen(), least)

    def summed(self, layer, x):
        """The sum of two masks is clamped to the lowest number, and the scores are not."""
        def make():
            low = self.once("_low", lambda: self.constant("lowest", np.float32(LOWEST)))
            here = self.node("Cast", self.node("Unsqueeze", "attention_mask", "axes"), to=F)
            padding = self.node("Sub", self.constant("f1", np.float32(1)), here)
            mask = self.node("Add", self.seen(), self.node("Mul", padding, low))
            return self.node("Max", mask, low)
        return self.simple(layer, x, self.once("_summed", make))

    def floored_high(self, layer, x):
        """Clamped to a number that scores may have."""
        return self.floored(layer, x, -0.1)

    def simple(self, layer, x, mask, least=None):
        """Attention with that mask."""
        q, k, v = (self.heads(y, n) for y, n in zip(self.qkv(layer, x, KV_HEADS),
                                                    (HEADS, KV_HEADS, KV_HEADS)))
        k, v = self.grown(layer, self.rotated(k), v)
        s = self.scores(self.rotated(q), self.repeated(k), mask)
        if least is not None:
            s = self.node("Max", s, self.once("_least", lambda: self.constant(
                "least", np.float32(least))))
        p = self.node("Softmax", s, axis=-1)
        return self.flat(self.node("MatMul", p, self.repeated(v)))

    def expert(self, layer, number, x, chosen, share):
        """What one expert adds to the tokens [N,W] that chose it: their indices, and rows."""
        name, out = f"{layer}.{number}", [f"at.{layer}.{number}.{i}" for i in (0, 1)]
        picked = self.node("Gather", chosen, self.constant(f"number{name}", np.int64(number)))
        self.node("Split", self.node("NonZero", picked), out=out, axis=0, num_outputs=2)
        choice, token = (self.node("Squeeze", o, self.ints(0)) for o in out)
        y = self.node("Gather", x, token)
        gate = self.project(f"gate{name}", y, WIDTH, 12)
        y = self.node("Mul", self.node("Mul", gate, self.node("Sigmoid", gate)),
                      self.project(f"up{name}", y, WIDTH, 12))
        at = self.node("Unsqueeze", token, self.ints(-1))
        both = self.node("Concat", at, self.node("Unsqueeze", choice, self.ints(-1)), axis=-1)
        factor = self.node("Unsqueeze", self.node("GatherND", share, both), self.ints(-1))
        return at, self.node("Mul", self.project(f"down{name}", y, 12, WIDTH), factor)

    def experts(self, layer, x):
        """Tokens are selected for each of four experts, two for each token."""
        x = self.node("Add", x, self.eager(layer, x))
        flat = self.node("Reshape", x, self.ints(-1, WIDTH))
        p = self.node("Softmax", self.project(f"router{layer}", flat, WIDTH, 4), axis=1)
        share, chosen = f"share{layer}", f"chosen{layer}"
        self.node("TopK", p, self.ints(2), out=[share, chosen], axis=-1)
        share = self.node("Div", share, self.node("ReduceSum", share, self.ints(-1), keepdims=1))
        chosen = self.node("Transpose", self.node("OneHot", chosen, self.ints(4), self.ints(0, 1)),
                           perm=[2, 1, 0])
        y = self.node("ConstantOfShape", self.node("Shape", flat))
        for number in range(4):
            y = self.node("ScatterND", y, *self.expert(layer, number, flat, chosen, share),
                          reduction="add")
        return self.node("Reshape", y, self.node("Shape", x))

    # ---- Cohere, as Optimum traces it --------------------------------------------------------------

    def layer_norm(self, name, x, *shape):
        """(x - mean) / sqrt(var + eps) * weight, optionally with an axis of heads."""
        mean = self.node("ReduceMean", x, self.ints(-1), keepdims=1)
        x = self.node("Sub", x, mean)
        square = self.node("Pow", x, self.once("_2", lambda: self.constant("f2", np.float32(2))))
        var = self.node("Add", self.node("ReduceMean", square, self.ints(-1), keepdims=1),
                        self.once("_eps", lambda: self.constant("eps", np.float32(1e-5))))
        weight = (1 + 0.1 * self.random.standard_normal(shape)).astype(np.float32)
        return self.node("Mul", self.constant(name, weight),
                         self.node("Div", x, self.node("Sqrt", var)))

    def repeated_angles(self):
        """Tables [B,1,S,D] with each angle twice; angles are a product of matrices."""
        def make():
            rate = (1e4 ** (-np.arange(SIZE // 2) / (SIZE // 2))).astype(np.float32)
            batch = self.node("Shape", self.positions(), start=0, end=1)
            rate = self.node("Expand", self.constant("rates", rate[None, :, None]),
                             self.node("Concat", batch, self.ints(1, 1), axis=0))
            places = self.node("Cast", self.node("Unsqueeze", self.positions(), self.ints(1)), to=F)
            x = self.node("Transpose", self.node("MatMul", rate, places), perm=[0, 2, 1])
            x = self.node("Tile", self.node("Unsqueeze", x, self.ints(-1)), self.ints(1, 1, 1, 2))
            x = self.node("Reshape", x, self.ints(0, 0, SIZE))
            return [self.node("Unsqueeze", self.node(op, x), self.ints(1)) for op in ("Cos", "Sin")]
        return self.once("_repeated_angles", make)

    def interleaved(self, x):
        """x [B,H,S,D] rotated in pairs of neighbours."""
        cos, sin = self.repeated_angles()
        end = self.once("_end", lambda: self.constant("end", np.array([2 ** 63 - 1])))
        even, odd = (self.node("Slice", x, self.ints(i), end, self.ints(3), self.ints(2))
                     for i in (0, 1))
        y = self.node("Concat", self.node("Unsqueeze", self.node("Neg", odd), self.ints(-1)),
                      self.node("Unsqueeze", even, self.ints(-1)), axis=-1)
        y = self.node("Reshape", y, self.node("Shape", x))
        return self.node("Add", self.node("Mul", x, cos), self.node("Mul", y, sin))

    def cohere(self, layer, x):
        """Norms of queries and keys whose scale is [H,D], neighbours rotated."""
        x = self.layer_norm(f"ln{layer}", x, WIDTH)
        heads = []
        for name, y, n in zip("qkv", self.qkv(layer, x, KV_HEADS), (HEADS, KV_HEADS, KV_HEADS)):
            y = self.node("Reshape", y, self.ints(0, 0, n, SIZE))
            y = y if name == "v" else self.layer_norm(f"{name}n{layer}", y, n, SIZE)
            y = self.node("Transpose", y, perm=[0, 2, 1, 3])
            heads.append(y if name == "v" else self.interleaved(y))
        k, v = self.grown(layer, *heads[1:])
        p = self.node("Softmax", self.scores(heads[0], self.repeated(k), self.seen()), axis=-1)
        return self.flat(self.node("MatMul", p, self.repeated(v)))


def on_embeds(decoder):
    """The file of a decoder with inputs_embeds in place of ids, and its table."""
    model = decoder.model()
    graph = model.graph
    first = graph.node[0]
    table = next(w for w in graph.initializer if w.name == first.input[0])
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name in (first.output[0], "input_ids"):
                node.input[i] = "inputs_embeds"
    del graph.node[0]
    graph.initializer.remove(table)
    graph.input.remove(next(i for i in graph.input if i.name == "input_ids"))
    graph.input.insert(0, decoder.info("inputs_embeds", F, ["B", "S", WIDTH]))
    return model, numpy_helper.to_array(table)


def token_ids(n, seed=11):
    """Ids that do not repeat with a short period."""
    return [(i * 37 + i // 7 * 5 + seed) % VOCABULARY for i in range(n)]


# Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines may
# lack it.
@unittest.skipUnless(Runner, "onnxruntime is not installed")
class Sequenced(Case):
    """Decoders as a sequence, and in one call, compared with ONNX Runtime."""

    make = Exported

    def setUp(self):
        super().setUp()
        self.ids = token_ids(TOKENS)
        self.path = self.dir / "model.onnx"

    def sequence(self, kind, mixes=False):
        """The logits of ONNX Runtime in one call, and no differing bit in any split."""
        self.make(kind).save(self.path)
        ids = write_ids(self.dir / "ids.txt", self.ids)
        out = self.dir / "logits.npy"
        expected = Runner(self.path).score(np.array(self.ids, np.int64))
        for target in ("ref", "cpu"):
            self.good("score", self.path, "--ids", ids, "--logits", out, "-q", "--target", target)
            self.close(np.load(out), expected, LIMIT, f"{kind} {target}")
        for batch in (1, 5):
            proof = self.good("equiv", self.path, "--ids", ids, "--splits",
                              "all" if FULL else "random:4", "--batch", batch, "--threads", "1,2",
                              "--format", "json", "-q").json()
            self.assertEqual(proof["differing"], 0, f"{kind} {batch}")
            self.assertGreater(proof["compared"], TOKENS * VOCABULARY)
        report = self.good("inspect", self.path, "--invariance", "--format", "json").json()
        self.assertEqual(bool(report["mixing"]), mixes)

    def padded(self, kind, names=("model.onnx", "m.gqac")):
        """The model and its artefact, run on two batch rows after a past, one row padded on the
        left."""
        self.make(kind).save(self.path)
        runner = Runner(self.path)
        ids = np.array([token_ids(12), token_ids(12, 5)], np.int64)
        mask = np.ones((2, 12), np.int64)
        mask[1, :3] = 0
        _, past = runner.step(ids[:, :7], runner.empty_past(2), mask[:, :7])
        feed = runner.feed(ids[:, 7:], past, mask)
        folder = self.dir / "in"
        folder.mkdir(exist_ok=True)
        for name, value in feed.items():
            np.save(folder / f"{name}.npy", value)
        if "m.gqac" in names:
            self.good("compile", self.path, "-o", self.dir / "m.gqac", "-q")
        for name in names:
            self.good("run", self.dir / name, "--inputs", folder, "--output", self.dir / "out", "-q")
            for result, value in runner.run(feed).items():
                self.close(np.load(self.dir / "out" / f"{result}.npy"), value, LIMIT,
                           f"{kind} {name} {result}")


class Forms(Sequenced):
    """Each form as a sequence."""

    def test_shared(self):
        """One cache, read by two layers."""
        self.sequence("shared")
        pairs = self.good("inspect", self.path, "--kv", "--format", "json").json()["kv_pairs"]
        self.assertEqual(len(pairs), 2)
        self.padded("shared")

    def test_shared_gqa(self):
        """Without new rows nothing is appended a second time."""
        self.sequence("shared_gqa")
        pairs = self.good("inspect", self.path, "--kv", "--format", "json").json()["kv_pairs"]
        self.assertEqual(len(pairs), 2)

    def test_masked(self):
        """MultiHeadAttention whose mask is causality within one call becomes causal; other masks of
        one call would be ambiguous after a past."""
        for kind in ("masked", "masked_repeated"):
            self.sequence(kind)
            lowered = self.good("compile", self.path, "--dump", "lower").out
            self.assertEqual(lowered.count(" = attend "), decoders.LAYERS, kind)
            self.assertNotIn("Tile", lowered, kind)
        Exported("masked_window").save(self.path)
        self.check(harness.gqac("equiv", self.path, "--tokens", 4), 3, "mask or bias of attention")

    def test_floored(self):
        """Max with a number that only replaces hidden scores changes no visible one."""
        for kind in ("floored", "summed"):
            self.sequence(kind)
            self.padded(kind)
        Exported("floored_high").save(self.path)
        self.check(harness.gqac("equiv", self.path, "--tokens", 4), 3, "is not read by an attention")

    def test_einsum(self):
        """Products with any order of axes."""
        self.sequence("einsum")
        self.padded("einsum")
        report = self.good("inspect", self.path, "--ops", "--format", "json").json()
        self.assertEqual(report["raised"]["Attention"], decoders.LAYERS)

    def test_experts(self):
        """An expanded mixture of experts: every bit is equal, although it is not proven."""
        self.sequence("experts", mixes=True)

    def test_cohere(self):
        """Norms of heads, and angles whose rows are recognised as those of tokens."""
        self.sequence("cohere")
        self.padded("cohere")

    def test_optimised(self):
        """Traced models after ONNX Runtime's optimiser: Transpose and scale in the product of
        queries and keys, and moved transposes of angles."""
        for name in ("llama", "gpt2"):
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.optimized_model_filepath = str(self.path)
            source = harness.ROOT / "test" / "traced" / name / "model.onnx"
            onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
            ops = [n.op_type for n in onnx.load(self.path).graph.node]
            self.assertEqual(ops.count("FusedMatMul"), 2, name)
            ids = write_ids(self.dir / "ids.txt", self.ids)
            logits = []
            for path in (source, self.path):
                self.good("score", path, "--ids", ids, "--logits", self.dir / "l.npy", "-q")
                logits.append(np.load(self.dir / "l.npy"))
            self.close(logits[1], logits[0], LIMIT, name)
            proof = self.good("equiv", self.path, "--ids", ids, "--splits", "random:3", "--batch", 3,
                              "--format", "json", "-q").json()
            self.assertEqual((proof["differing"], proof["mixing"]), (0, []), name)

    def test_embeds(self):
        """Decoders with inputs_embeds: the bits of the model with the embedding table."""
        ids = write_ids(self.dir / "ids.txt", self.ids)
        for kind in ("attention", "multi_head_padded", "attention_static", "rotary_padded"):
            with_ids, rows, out = (self.dir / f"{kind}.{n}" for n in ("onnx", "npy", "out.npy"))
            decoder = Decoder(kind)
            decoder.save(with_ids)
            model, table = on_embeds(decoder)
            onnx.save(model, self.path)
            np.save(rows, table[self.ids])
            for splits in ("1,7,20", "40"):
                self.good("score", with_ids, "--ids", ids, "--logits", out, "-q")
                expected = out.read_bytes()
                self.good("score", self.path, "--ids", ids, "--embeds", rows, "--logits", out,
                          "--splits", splits, "-q")
                self.assertEqual(out.read_bytes(), expected, f"{kind} {splits}")
            padded = [self.good("inspect", p, "--invariance", "--format", "json").json()["padded_by"]
                      for p in (with_ids, self.path)]
            self.assertEqual(padded[0] is None, padded[1] is None, kind)
            self.assertIn("plan of one token", self.good("inspect", self.path, "--plan").out)
            for more in (["--tokens", TOKENS], ["--embeds", rows]):
                proof = self.good("equiv", self.path, *more, "--splits", "random:3", "--batch", 5,
                                  "--format", "json", "-q").json()
                self.assertEqual((proof["tokens"], proof["differing"]), (TOKENS, 0), kind)

    def test_embeds_refused(self):
        """Rows that are missing, too many, too wide, or not accepted."""
        ids = write_ids(self.dir / "ids.txt", self.ids)
        decoder = Decoder("attention")
        decoder.save(self.dir / "ids.onnx")
        model, table = on_embeds(decoder)
        onnx.save(model, self.path)
        rows = self.dir / "rows.npy"
        np.save(rows, table[self.ids])
        self.check(harness.gqac("score", self.path, "--ids", ids), 2, "--embeds")
        self.check(harness.gqac("score", self.path, "--ids", ids, "--embeds", rows, "--logits", rows), 2,
                   "would overwrite")
        self.check(harness.gqac("score", self.dir / "ids.onnx", "--ids", ids, "--embeds", rows), 2,
                   "the model has the input input_ids, not inputs_embeds")
        self.check(harness.gqac("generate", self.path, "--ids", ids, "-n", 2, "-q"), 2, "inputs_embeds")
        self.check(harness.gqac("equiv", self.path, "--embeds", rows, "--tokens", 3), 2, "--embeds")
        np.save(rows, table[self.ids][:, :5])
        self.check(harness.gqac("equiv", self.path, "--embeds", rows), 4, "5 numbers")
        np.save(rows, table[self.ids][:7])
        self.check(harness.gqac("score", self.path, "--ids", ids, "--embeds", rows), 4, "7 rows")
        np.save(rows, np.array(self.ids))
        self.check(harness.gqac("equiv", self.path, "--embeds", rows), 4, "not contain embeddings")

    def test_sinks(self):
        """Raised to GroupQueryAttention with head_sink."""
        self.sequence("sinks")
        dump = self.good("compile", self.path, "--dump", "raise").out
        self.assertEqual(dump.count("= com.microsoft.GroupQueryAttention"), decoders.LAYERS)
        self.padded("sinks")


if __name__ == "__main__":
    sys.exit(harness.main())
