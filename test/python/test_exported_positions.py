#!/usr/bin/env python3
"""Positions that a model computes itself, from lengths or from its attention mask. A sequence
replaces them by position_ids: the logits equal ONNX Runtime's, and no split changes a bit."""

import sys

import numpy as np

import harness
from decoders import HEADS, KV_HEADS, SIZE, WIDTH
from test_exported_forms import Exported, Sequenced

END = 2 ** 31 - 1


class Counted(Exported):
    """Decoders whose positions are one of WAYS."""

    way = ""

    def positions(self):
        return self.once("_counted", getattr(self, self.way))

    def number(self, value):
        """A scalar i64."""
        return self.once(f"_number{value}", lambda: self.constant(f"number{value}",
                                                                  np.int64(value)))

    def length(self, name, axis):
        """A dim of an input, [1]."""
        return self.node("Shape", name, start=axis, end=axis + 1)

    def counted(self):
        """The number of ones of the mask before each token [B,T]."""
        return self.node("Sub", self.node("CumSum", "attention_mask", self.number(1)),
                         self.number(1))

    def cut(self, x, start, end=None):
        """Columns of x."""
        return self.node("Slice", x, start, end or self.ints(END), self.ints(1))

    def places(self, first, end):
        """first, first + 1, ... as [1,S]; both operands are [1]."""
        ends = [self.node("Squeeze", x) for x in (first, end)]
        return self.node("Unsqueeze", self.node("Range", *ends, self.number(1)), self.ints(0))

    # ---- ways ------------------------------------------------------------------------------------

    def last(self):
        """The last columns; padding has the position 1."""
        padding = self.node("Equal", "attention_mask", self.number(0))
        return self.cut(self.node("Where", padding, self.number(1), self.counted()),
                        self.node("Neg", self.chunk()))

    def after_past(self):
        """The columns after those of the past."""
        return self.cut(self.counted(), self.length("past_key_values.0.key", 2))

    def between(self):
        """From the first new column to the last."""
        total = self.length("attention_mask", 1)
        return self.cut(self.counted(), self.node("Sub", total, self.chunk()), total)

    def of_total(self):
        """Counted from the number of columns."""
        total = self.length("attention_mask", 1)
        shape = self.node("Concat", self.length("input_ids", 0), self.chunk(), axis=0)
        return self.node("Expand", self.places(self.node("Sub", total, self.chunk()), total), shape)

    def of_sum(self):
        """Counted from the sum of the mask."""
        valid = self.node("ReduceSum", "attention_mask", self.ints(1), keepdims=1)
        return self.node("Add", self.node("Sub", valid, self.chunk()),
                         self.places(self.ints(0), self.chunk()))

    def shifted(self):
        """OPT: rows of a table from 2 on."""
        return self.node("Add", self.last(), self.number(2))

    def from_one(self):
        """Counted from 1."""
        counted = self.node("CumSum", "attention_mask", self.number(1))
        return self.cut(self.node("Mul", counted, "attention_mask"),
                        self.node("Neg", self.chunk()))

    def of_last(self):
        """All tokens have the position of the last one."""
        return self.cut(self.counted(), self.ints(-1))

    # ---- kinds -----------------------------------------------------------------------------------

    def learned(self, layer, x):
        """A row of a table that is added to each token."""
        rows = self.once("_rows", lambda: self.node("Gather", self.weight("places", 64, WIDTH),
                                                    self.positions()))
        return self.attention(layer, self.node("Add", x, rows))

    def rotary(self, layer, x):
        """The op RotaryEmbedding before Attention."""
        q, k, v = self.qkv(layer, x, KV_HEADS)
        tables = self.once("_tables", lambda: [self.constant(f"table{f.__name__}", f(
            np.arange(64)[:, None] * 1e2 ** (-np.arange(SIZE // 2) / (SIZE // 2))).astype(
                np.float32)) for f in (np.cos, np.sin)])
        q, k = (self.node("RotaryEmbedding", x, *tables, self.positions(), num_heads=n)
                for x, n in ((q, HEADS), (k, KV_HEADS)))
        past, present = self.pair(layer, KV_HEADS)
        return self.node("Attention", q, k, v, "", *past, out=[f"y{layer}", *present],
                         q_num_heads=HEADS, kv_num_heads=KV_HEADS, is_causal=1)


def counted(way):
    """Decoders with these positions."""
    return type("Counted", (Counted,), {"way": way})


WAYS = ["last", "after_past", "between", "of_total", "of_sum", "shifted", "from_one"]


class Positions(Sequenced):
    """Each way of counting, with rows of a table and with angles."""

    def test_ways(self):
        """The positions are those that the run time supplies."""
        for way in WAYS:
            self.make = counted(way)
            for kind in ("learned", "eager") + ("rotary",) * (way == "last"):
                with self.subTest(way=way, kind=kind):
                    self.sequence(kind)
                    inputs = self.good("compile", self.path, "--dump", "stateful").out.split(")")[0]
                    self.assertIn("%position_ids: i64[B,S]", inputs)

    def test_padded(self):
        """A call keeps its own positions: those of padding differ."""
        self.make = counted("last")
        self.padded("rotary")

    def test_refused(self):
        """Positions that depend on the call."""
        self.make = counted("of_last")
        self.make("rotary").save(self.path)
        self.check(harness.gqac("equiv", self.path, "--tokens", 4), 3, "'attention_mask' is read")


if __name__ == "__main__":
    sys.exit(harness.main())
