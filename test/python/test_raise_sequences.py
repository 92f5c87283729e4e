#!/usr/bin/env python3
"""Attention in simple ops that can be recognised only in a sequence, which has no padding.

Small decoders are written node by node, as exporters write them. As a sequence each computes the
logits of ONNX Runtime, and no bit depends on the splits; `gqac run` computes what ONNX Runtime
computes for two batch rows after a past, one of them padded on the left. Decoders that differ in
one condition are refused as a sequence, by name, and `gqac run` computes them.
"""

import sys
import unittest

import numpy as np
from onnx import numpy_helper

import decoders
import harness
import test_exported_forms as forms
from decoders import F
from harness import write_ids
from test_exported_forms import LOWEST, WINDOW, Exported, token_ids

LAST = 2 ** 63 - 1


class Counted(Exported):
    """The positions of a mask are sums of attention_mask, as in mobius."""

    compare, reverse = "GreaterOrEqual", 0

    def counted(self, window=0):
        """The mask of visible keys, 0 or the lowest number [B,1,S,T]."""
        def make():
            keys = self.node("CumSum", "attention_mask", self.once(
                "_axis", lambda: self.constant("axis", np.int64(1))), reverse=self.reverse)
            total = self.node("Shape", "attention_mask", start=1, end=2)
            rows = self.node("Slice", keys, self.node("Sub", total, self.chunk()), total, "one")
            rows = self.node("Unsqueeze", rows, self.ints(2))
            keys = self.node("Unsqueeze", keys, self.ints(1))
            seen = self.node(self.compare, rows, keys)
            if window:
                near = self.node("Less", self.node("Sub", rows, keys), self.constant(
                    "width", np.int64(window)))
                seen = self.node("And", seen, near)
            here = self.node("Cast", self.node("Unsqueeze", "attention_mask", self.ints(1)),
                             to=decoders.TensorProto.BOOL)
            seen = self.node("Unsqueeze", self.node("And", seen, here), self.ints(1))
            return self.node("Where", seen, self.once("_f0", lambda: self.constant(
                "f0", np.float32(0))), self.once("_low", lambda: self.constant(
                    "lowest", np.float32(LOWEST))))
        return self.once(f"_counted{window}", make)

    def sinks(self, layer, x):
        """gpt-oss; every other layer has a window."""
        return self.sunk(layer, x, self.counted(0 if layer else WINDOW))


class Backwards(Counted):
    """Each position is the number of keys from there to the end."""

    reverse = 1


class Strict(Counted):
    """A query does not attend to itself."""

    compare = "Greater"


class Computed(Counted):
    """The sinks depend on the scores."""

    def with_sinks(self, layer, s):
        least = self.node("ReduceMean", s, self.ints(-1), keepdims=1)
        return self.node("Concat", s, least, axis=-1)


class Twice(Counted):
    """Two sinks for each head."""

    def with_sinks(self, layer, s):
        return self.node("Concat", s, self.column(layer, s, 2), axis=-1)

    def without_sinks(self, p):
        return self.node("Slice", p, self.ints(0), self.ints(-2), self.ints(3), self.ints(1))


class First(Counted):
    """The first key is removed, not the sinks."""

    def without_sinks(self, p):
        return self.node("Slice", p, self.ints(1), self.ints(LAST), self.ints(3), self.ints(1))


class Before(Counted):
    """The sinks come before the other keys, and the last key is removed."""

    def with_sinks(self, layer, s):
        return self.node("Concat", self.column(layer, s), s, axis=-1)


class Uneven(Counted):
    """Another number is subtracted from the score of each key."""

    def lowered(self, layer, s):
        keys = self.node("Cast", self.node("Squeeze", self.node("Shape", s, start=3, end=4)), to=F)
        ends = [self.constant(f"{name}{layer}", np.float32(x)) for name, x in (("at", 0), ("by", 1))]
        return self.node("Sub", s, self.node("Range", ends[0], keys, ends[1]))


class Weighed(Exported):
    """Hidden keys keep some weight."""

    def sinks(self, layer, x):
        return self.sunk(layer, x, self.node("Max", self.seen(), self.constant(
            f"least{layer}", np.float32(-3))))


class Future(Exported):
    """The mask is only padding."""

    def sinks(self, layer, x):
        one = self.constant(f"f1{layer}", np.float32(1))
        mask = self.node("Sub", self.node("Cast", "attention_mask", to=F), one)
        mask = self.node("Mul", mask, self.constant(f"high{layer}", np.float32(-LOWEST)))
        return self.sunk(layer, x, self.node("Unsqueeze", mask, "axes"))


class Blocks(Exported):
    """Causality of the new keys joined with zeros for those of the past, as in transformers up to
    4.35, and still in MPT."""

    past, compare, parts = 0, "LessOrEqual", 1

    def square(self, window=0):
        """The keys of its own call visible to a query [S,S]."""
        places = self.node("Range", self.constant("s0", np.int64(0)), self.node(
            "Squeeze", self.chunk()), "scalar")
        rows = self.node("Unsqueeze", places, self.ints(1))
        seen = self.node(self.compare, places, rows)
        return self.node("Where", seen, self.constant("f0", np.float32(0)), self.constant(
            "lowest", np.float32(LOWEST)))

    def blocks(self):
        """The mask [B,1,S,P+S]."""
        def make():
            rows = self.node("Sub", self.node("Shape", "attention_mask", start=1), self.chunk())
            past = self.node("ConstantOfShape", self.node("Concat", self.chunk(), rows, axis=0),
                             value=numpy_helper.from_array(np.array([self.past], np.float32)))
            mask = self.node("Concat", *[past, self.square()][::self.parts], axis=-1)
            here = self.node("Cast", self.node("Unsqueeze", "attention_mask", "axes"),
                             to=decoders.TensorProto.BOOL)
            return self.node("Where", here, self.node("Unsqueeze", mask, self.ints(0, 1)), "lowest")
        return self.once("_blocks", make)

    def eager(self, layer, x):
        return self.simple(layer, x, self.blocks())


class Forgotten(Blocks):
    """Keys of the past are hidden."""

    past = LOWEST


class Turned(Blocks):
    """The zeros come last."""

    parts = -1


class Later(Blocks):
    """A query does not attend to itself."""

    compare = "Less"


class Near(Blocks):
    """Within its own call a query attends only to a window."""

    def square(self, window=0):
        mask = super().square()
        places = self.node("Range", "s0", self.node("Squeeze", self.chunk()), "scalar")
        first = self.node("Sub", self.node("Unsqueeze", places, self.ints(1)), self.constant(
            "width", np.int64(WINDOW)))
        return self.node("Where", self.node("Greater", places, first), mask, "lowest")


class Cut(Exported):
    """The rows of a mask are sliced from a table, and the result has as many rows as the slice
    (GPT-Neo from torch.export)."""

    def past(self):
        """P, i64 [1]."""
        return self.once("_past", lambda: self.node("Shape", "past_key_values.0.key", start=2, end=3))

    def rows(self):
        """max(0, min(C, P + S) - min(C, P)), i64 [1]."""
        def make():
            room = self.ints(decoders.ROOM)
            ends = [self.node("Min", room, n) for n in (
                self.node("Add", self.past(), self.chunk()), self.past())]
            return self.node("Max", "zero", self.node("Sub", *ends))
        return self.once("_rows", make)

    def batch(self):
        """B, i64 [1]."""
        return self.node("Shape", "input_ids", end=1)

    def table(self):
        """The mask [B,1,S,P+S]."""
        def make():
            total = self.node("Add", self.past(), self.chunk())
            room = np.tri(decoders.ROOM, dtype=bool)[None, None]
            mask = self.node("Slice", self.constant("table", room), self.past(), total, self.ints(2))
            mask = self.node("Slice", mask, "zero", total, self.ints(3))
            here = self.node("Cast", self.node("Unsqueeze", "attention_mask", "axes"),
                             to=decoders.TensorProto.BOOL)
            return self.node("Where", self.node("And", mask, here), self.constant(
                "f0", np.float32(0)), self.constant("lowest", np.float32(LOWEST)))
        return self.once("_table", make)

    def flat(self, y, width=decoders.WIDTH):
        shape = self.node("Concat", self.batch(), self.rows(), self.ints(width), axis=0)
        return self.node("Reshape", self.node("Transpose", y, perm=[0, 2, 1, 3]), shape)

    def eager(self, layer, x):
        return self.simple(layer, x, self.table())


class Bounded(Cut):
    """The batch, too, is not known to be that of the result."""

    def batch(self):
        return self.node("Min", self.ints(decoders.ROOM), super().batch())


NEAR = (Backwards, Strict, Computed, Twice, First, Before, Uneven, Weighed, Future)


# Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines may
# lack it.
@unittest.skipUnless(forms.Runner, "onnxruntime is not installed")
class Raised(forms.Sequenced):
    """Each form, and variants that differ in one condition."""

    make = Counted

    def test_sinks(self):
        """GroupQueryAttention with head_sink, but only in sequences."""
        self.sequence("sinks")
        for stage, n in (("raise", 0), ("unpad", decoders.LAYERS)):
            dump = self.good("compile", self.path, "--dump", stage).out
            self.assertEqual(dump.count("= com.microsoft.GroupQueryAttention"), n, stage)
        self.padded("sinks")

    def test_near_sinks(self):
        """Refused forms: another position of the sinks, other sinks, another mask."""
        ids = write_ids(self.dir / "ids.txt", self.ids)
        for make in NEAR:
            with self.subTest(make.__name__):
                self.make = make
                self.padded("sinks", ["model.onnx"])
                self.check(harness.gqac("score", self.path, "--ids", ids), 3, "past_key_values.0.key",
                           "not read by an attention op")

    def test_blocks(self):
        """A mask that is joined from those of the past and of the call."""
        self.make = Blocks
        self.sequence("eager")
        self.padded("eager")
        told = self.good("inspect", self.path, "--ops", "--format", "json").json()
        self.assertEqual((told["raised"]["Attention"], told["not_raised"]), (decoders.LAYERS, []))

    def test_near_blocks(self):
        """A mask that is not causal is a tensor for `gqac run`, and refused as a sequence."""
        ids = write_ids(self.dir / "ids.txt", self.ids)
        for make in (Forgotten, Turned, Later, Near):
            with self.subTest(make.__name__):
                self.make = make
                self.padded("eager", ["model.onnx"])
                self.check(harness.gqac("score", self.path, "--ids", ids), 3,
                           "mask or bias of attention")

    def test_cut(self):
        """A number of rows that is determined only by the other lengths of a Reshape."""
        self.make = Cut
        self.sequence("eager")
        self.padded("eager")
        self.make = Bounded
        self.padded("eager", ["model.onnx"])
        self.check(harness.gqac("score", self.path, "--ids", self.dir / "ids.txt"), 3,
                   "past_key_values.1.key", "not a KV cache that an attention op reads")


if __name__ == "__main__":
    sys.exit(harness.main())
