#!/usr/bin/env python3
"""GroupQueryAttention and MultiHeadAttention whose mask is added as a tensor. In a sequence, a mask
that only expresses causality, or causality and a window, is replaced by attributes; others are
refused."""

import sys

import numpy as np

import decoders
import harness
from decoders import F, HEADS, I32, KV_HEADS, WIDTH
from harness import write_ids
from test_exported_forms import LOWEST, WINDOW, Exported, Sequenced


class Masked(Exported):
    """Ops with a tensor that is added to their scores."""

    def gqa(self, layer, x, mask=None, **attributes):
        """Causality, which is also an attribute of the op, and padding."""
        lengths = self.once("_lengths", lambda: [
            self.node("Cast", self.node("Sub", self.valid(), "one"), to=I32),
            self.node("Cast", self.node("Shape", "attention_mask", start=1), to=I32)])
        past, present = self.pair(layer, KV_HEADS)
        return self.node("GroupQueryAttention", *self.qkv(layer, x, KV_HEADS), *past, *lengths, "",
                         "", "", mask or self.seen(), out=[f"y{layer}", *present], num_heads=HEADS,
                         kv_num_heads=KV_HEADS, domain="com.microsoft", **attributes)

    def gqa_window(self, layer, x):
        """A window that is only in the mask; in one layer the op has a wider one."""
        wider = {"local_window_size": WINDOW + 2} if layer else {}
        return self.gqa(layer, x, self.seen(WINDOW), **wider)

    def gqa_ahead(self, layer, x):
        """A mask that allows one key more than causality."""
        return self.gqa(layer, x, self.ahead())

    def ahead(self):
        """0 up to the key after the query, otherwise the lowest number [1,1,S,T]."""
        def make():
            total = self.node("Shape", "attention_mask", start=1, end=2)
            first = self.node("Sub", total, self.chunk())
            zero = self.constant("s0", np.int64(0))
            ends = [self.node("Squeeze", n) for n in (first, total)]
            rows = self.node("Unsqueeze", self.node("Range", *ends, "scalar"), "one")
            seen = self.node("LessOrEqual", self.node("Range", zero, ends[1], "scalar"),
                             self.node("Add", rows, "scalar"))
            return self.node("Unsqueeze", self.node("Where", seen, self.constant(
                "f0", np.float32(0)), self.constant("lowest", np.float32(LOWEST))), self.ints(0, 1))
        return self.once("_ahead", make)

    def mha(self, layer, x, mask=None):
        """With a bias of queries, keys and values, and a padding mask."""
        past, present = self.pair(layer, HEADS)
        return self.node("MultiHeadAttention", *self.qkv(layer, x, HEADS),
                         self.weight(f"b{layer}", 3 * WIDTH), self.mask32(), mask or self.seen(),
                         *past, out=[f"y{layer}", *present], domain="com.microsoft",
                         num_heads=HEADS)

    def mha_window(self, layer, x):
        """The op itself has no window."""
        return self.mha(layer, x, self.seen(WINDOW))


class Causal(Sequenced):
    """Each op and mask."""

    make = Masked

    def test_causal(self):
        """The mask is removed."""
        for kind in ("gqa", "gqa_window", "mha"):
            self.sequence(kind)
            lowered = self.good("compile", self.path, "--dump", "lower").out
            self.assertNotIn("Where", lowered, kind)

    def test_padded(self):
        """In a call the mask hides padding."""
        self.padded("mha")

    def test_refused(self):
        """A window without an attribute, and a mask that is not causal."""
        for kind, rule in (("gqa_ahead", "attention_bias of GroupQueryAttention"),
                           ("mha_window", "causality must be an attribute")):
            self.make(kind).save(self.path)
            self.check(harness.gqac("equiv", self.path, "--tokens", 4), 3, "mask or bias of attention",
                       rule)

    def test_legacy_window(self):
        """--legacy-window widens windows that are attributes in the file, not those of masks."""
        ids = write_ids(self.dir / "ids.txt", self.ids)
        for make, kind in ((Masked, "gqa"), (Exported, "sinks")):
            make(kind if kind == "sinks" else "gqa_window").save(self.path)
            logits = []
            for flags in ((), ("--legacy-window",)):
                out = self.dir / "logits.npy"
                self.good("score", self.path, "--ids", ids, "--logits", out, "-q", *flags)
                logits.append(out.read_bytes())
            self.assertEqual(*logits, kind)


if __name__ == "__main__":
    sys.exit(harness.main())
