#!/usr/bin/env python3
"""Forms that exporters write and that sequences must take: eager attention with sinks, layers that
read the cache of another one, decoders on inputs_embeds.

Small decoders are written node by node, as the exporter writes them, and compared with ONNX
Runtime: one call, and a call behind a past of two rows, one of them padded on the left. `score`
must give the same through a sequence, and `equiv` must find no differing bit.
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
    from ortref import Runner
except ImportError:
    Runner = None

TOKENS = 40
LIMIT = 5e-6  # of max|logit|
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
        """x [B,H,S,D] as gpt-oss rotates it: by halves, put together by Concat."""
        cos, sin = self.angles(size)
        out = [f"half.{len(self.nodes)}.{i}" for i in (0, 1)]
        self.node("Split", x, out=out, axis=-1, num_outputs=2)
        first = self.node("Sub", self.node("Mul", out[0], cos), self.node("Mul", out[1], sin))
        second = self.node("Add", self.node("Mul", out[1], cos), self.node("Mul", out[0], sin))
        return self.node("Concat", first, second, axis=-1)

    def seen(self, window=0):
        """Keys that a query may see, 0 or the lowest number [B,1,S,T]."""
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
        """Keys and values behind those of the past."""
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
        """gpt-oss, eager: a column of sinks that joins the softmax; every other layer has a window."""
        q, k, v = (self.heads(y, n) for y, n in zip(self.qkv(layer, x, KV_HEADS),
                                                    (HEADS, KV_HEADS, KV_HEADS)))
        k, v = self.grown(layer, self.rotated(k), v)
        s = self.scores(self.rotated(q), self.repeated(k), self.seen(0 if layer else WINDOW))
        sinks = self.constant(f"sinks{layer}", self.random.standard_normal(
            (1, HEADS, 1, 1)).astype(np.float32))
        column = self.node("Concat", self.node("Shape", s, start=0, end=3), self.ints(1), axis=0)
        s = self.node("Concat", s, self.node("Expand", sinks, column), axis=-1)
        s = self.node("Sub", s, self.node("ReduceMax", s, self.ints(-1), keepdims=1))
        p = self.node("Slice", self.node("Softmax", s, axis=-1), self.ints(0), self.ints(-1),
                      self.ints(3), self.ints(1))
        return self.flat(self.node("MatMul", p, self.repeated(v)))

    def shared_gqa(self, layer, x):
        """The same as GroupQueryAttention has it: no new rows, and the other layer's present."""
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


def on_embeds(decoder):
    """The file of a decoder that takes inputs_embeds in the place of ids, and its table."""
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


# Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, a bare build may lack it.
@unittest.skipUnless(Runner, "onnxruntime is not installed")
class Forms(Case):
    """Each form as a sequence."""

    def setUp(self):
        super().setUp()
        self.ids = token_ids(TOKENS)
        self.path = self.dir / "model.onnx"

    def sequence(self, kind):
        """Logits of ONNX Runtime in one call, and no differing bit in any split."""
        Exported(kind).save(self.path)
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
        self.assertEqual(report["mixing"], [])

    def padded(self, kind):
        """An artefact for sequences, run on two rows behind a past, one of them padded on the left."""
        Exported(kind).save(self.path)
        runner = Runner(self.path)
        ids = np.array([token_ids(12), token_ids(12, 5)], np.int64)
        mask = np.ones((2, 12), np.int64)
        mask[1, :3] = 0
        _, past = runner.step(ids[:, :7], runner.empty_past(2), mask[:, :7])
        feed = runner.feed(ids[:, 7:], past, mask)
        folder = self.dir / "in"
        folder.mkdir()
        for name, value in feed.items():
            np.save(folder / f"{name}.npy", value)
        self.good("compile", self.path, "-o", self.dir / "m.gqac", "-q")
        for name in ("model.onnx", "m.gqac"):
            self.good("run", self.dir / name, "--inputs", folder, "--output", self.dir / "out", "-q")
            for result, value in runner.run(feed).items():
                self.close(np.load(self.dir / "out" / f"{result}.npy"), value, LIMIT,
                           f"{kind} {name} {result}")

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

    def test_embeds(self):
        """Decoders on inputs_embeds: the bits of the model whose table gives the embeddings."""
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
            for more in (["--tokens", TOKENS], ["--embeds", rows]):
                proof = self.good("equiv", self.path, *more, "--splits", "random:3", "--batch", 5,
                                  "--format", "json", "-q").json()
                self.assertEqual((proof["tokens"], proof["differing"]), (TOKENS, 0), kind)

    def test_embeds_refused(self):
        """Rows that are missing, too many, too wide, or not taken."""
        ids = write_ids(self.dir / "ids.txt", self.ids)
        decoder = Decoder("attention")
        decoder.save(self.dir / "ids.onnx")
        model, table = on_embeds(decoder)
        onnx.save(model, self.path)
        rows = self.dir / "rows.npy"
        np.save(rows, table[self.ids])
        self.check(harness.gqac("score", self.path, "--ids", ids), 2, "--embeds")
        self.check(harness.gqac("score", self.dir / "ids.onnx", "--ids", ids, "--embeds", rows), 2,
                   "takes token ids")
        self.check(harness.gqac("generate", self.path, "--ids", ids, "-n", 2, "-q"), 2, "inputs_embeds")
        self.check(harness.gqac("equiv", self.path, "--embeds", rows, "--tokens", 3), 2, "--embeds")
        np.save(rows, table[self.ids][:, :5])
        self.check(harness.gqac("equiv", self.path, "--embeds", rows), 4, "5 numbers")
        np.save(rows, table[self.ids][:7])
        self.check(harness.gqac("score", self.path, "--ids", ids, "--embeds", rows), 4, "7 rows")
        np.save(rows, np.array(self.ids))
        self.check(harness.gqac("equiv", self.path, "--embeds", rows), 4, "no embeddings")

    def test_sinks(self):
        """Raised to GroupQueryAttention with head_sink."""
        self.sequence("sinks")
        dump = self.good("compile", self.path, "--dump", "raise").out
        self.assertEqual(dump.count("= com.microsoft.GroupQueryAttention"), decoders.LAYERS)
        self.padded("sinks")


if __name__ == "__main__":
    sys.exit(harness.main())
