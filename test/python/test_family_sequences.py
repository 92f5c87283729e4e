#!/usr/bin/env python3
"""Decoders with ONNX Attention, MultiHeadAttention and related ops, as sequences.

Each kind of decoders.py is scored through a sequence and compared with one stateless run of the
exported graph, and `equiv` must find no differing bit. If causality or padding has a form that a
sequence cannot split, the model must be refused by name, with the node.
"""

import sys

import numpy as np

import decoders
import harness
from decoders import Decoder
from harness import FULL, Case, write_ids

TOKENS = 40
ROUNDED = 290  # bf16 rounds positions above 256
LIMIT = 2e-6  # of max|logit|: the stateless run has other tensor shapes, but the same arithmetic

REFUSED = {
    "mask_from_shapes": ("mask or bias of attention", "is_causal", "attend"),
    "bias_from_shapes": ("mask or bias of attention", "unidirectional", "MultiHeadAttention_"),
    "one_bias": ("mask or bias of attention", "attend"),
    "last_query": ("not a past/present pair", "MultiHeadAttention_"),
    "queries_padded": ("mask or bias of attention", "MultiHeadAttention_"),
    "slopes_of_rounded": ("mask or bias of attention", "attend"),
    "rounded_on_the_way": ("mask or bias of attention", "attend"),
    "no_past": ("not a past/present pair", "key_range"),
    "shared_past": ("not a past/present pair", "key_range"),
    "half_present": ("past_key_values.0.key", "returns as a graph output"),
    "no_present": ("past_key_values.1.key", "returns as a graph output"),
    "read_elsewhere": ("past_key_values.0.key", "not a KV cache that an attention op reads"),
    "circular": ("past_key_values.0.key", "not read by an attention op"),
    "conv_scaled": ("past.0.conv", "returns as a graph output"),
    "conv_changed": ("past.0.conv", "returns as a graph output"),
    "lengths_of_ids": ("lengths of the KV cache", "input_ids", "ReduceMax_"),
}


def token_ids(n):
    """Ids that do not repeat with a short period."""
    return [(i * 37 + i // 7 * 5 + 11) % decoders.VOCABULARY for i in range(n)]


class Sequences(Case):
    """One decoder of each kind."""

    def setUp(self):
        super().setUp()
        self.ids = token_ids(TOKENS)
        self.path = self.dir / "model.onnx"

    def stateless(self, decoder):
        """Logits of one call without a past."""
        folder = self.dir / "in"
        folder.mkdir()
        feeds = decoder.empty(self.ids)
        for name, value in feeds.items():
            np.save(folder / f"{name}.npy", value)
        for name, first in (("past_sequence_length", 0),):
            if name in feeds:
                np.save(folder / f"{name}.npy", np.array([first], np.int32))
        self.good("run", self.path, "--inputs", folder, "--output", self.dir / "out", "-q")
        return np.load(self.dir / "out" / "logits.npy")[0]

    def whole(self, kind):
        """score equals the stateless run; splits, batches and threads change no bit."""
        decoder = Decoder(kind)
        decoder.save(self.path)
        if kind == "falcon":
            self.ids = token_ids(ROUNDED)
        out = self.dir / "logits.npy"
        ids = write_ids(self.dir / "ids.txt", self.ids)
        self.good("score", self.path, "--ids", ids, "--logits", out, "-q")
        self.close(np.load(out), self.stateless(decoder), LIMIT, kind)
        plans = "all" if FULL else "random:4"
        for batch in (1, 3, 8):
            proof = self.good("equiv", self.path, "--ids", ids, "--splits", plans, "--batch", batch,
                              "--threads", "1,2", "--format", "json", "-q").json()
            self.assertEqual(proof["differing"], 0, batch)
            self.assertGreater(proof["compared"], 2 * len(self.ids) * decoders.VOCABULARY)
        self.assertEqual(self.mixing(), [])

    def mixing(self):
        """The node that --invariance names."""
        return self.good("inspect", self.path, "--invariance", "--format", "json").json()["mixing"]

    def refused(self, kind, words):
        """Exit 3 with these words; the stateless run still works."""
        decoder = Decoder(kind)
        decoder.save(self.path)
        ids = write_ids(self.dir / "ids.txt", self.ids)
        self.check(harness.gqac("score", self.path, "--ids", ids), 3, *words)
        if kind not in ("lengths_of_ids",):
            self.assertTrue(np.isfinite(self.stateless(decoder)).all())

    def test_pairs_are_listed(self):
        """inspect --kv names the caches of every kind."""
        for kind in ("attention", "attention_static", "multi_head", "masked_decoder_buffer"):
            Decoder(kind).save(self.path)
            pairs = self.good("inspect", self.path, "--kv", "--format", "json").json()["kv_pairs"]
            self.assertEqual([p["past"] for p in pairs][:2],
                             ["past_key_values.0.key", "past_key_values.0.value"], kind)
            self.assertEqual(len(pairs), 2 * decoders.LAYERS, kind)

    def test_packed_pairs_are_listed(self):
        """One past of keys and values is two pairs."""
        Decoder("packed").save(self.path)
        pairs = self.good("inspect", self.path, "--kv", "--format", "json").json()["kv_pairs"]
        self.assertEqual([(p["past"], p["present"], p["heads"], p["head_size"]) for p in pairs],
                         [(f"past_{i}.{n}", f"present_{i}.{n}", decoders.HEADS, decoders.SIZE)
                          for i in range(decoders.LAYERS) for n in ("key", "value")])

    def test_conv_moves(self):
        """The state of a convolution after a prefix that was copied, and after single tokens."""
        Decoder("conv").save(self.path)
        for via in ("import", "prefix", "snapshot", "decode"):
            proof = self.good("equiv", self.path, "--tokens", TOKENS, "--via", via, "--format",
                              "json", "-q").json()
            self.assertEqual(proof["differing"], 0, via)
            self.assertGreater(proof["compared"], TOKENS * decoders.VOCABULARY, via)

    def test_forms_of_falcon(self):
        """Simple ops with a scale after the biases compute the logits of Attention."""
        ids, logits = write_ids(self.dir / "ids.txt", self.ids), []
        for kind in ("falcon", "falcon_simple"):
            Decoder(kind).save(self.path)
            self.good("score", self.path, "--ids", ids, "--logits", self.dir / "logits.npy", "-q")
            logits.append(np.load(self.dir / "logits.npy"))
        self.close(*logits, LIMIT, "falcon_simple")

    def test_artefact(self):
        """A compiled file computes the same logits."""
        ids = write_ids(self.dir / "ids.txt", self.ids)
        for kind in ("attention_bool", "packed_padded", "conv"):
            Decoder(kind).save(self.path)
            self.good("compile", self.path, "-o", self.dir / "m.gqac")
            for name in ("model.onnx", "m.gqac"):
                self.good("score", self.dir / name, "--ids", ids, "--splits", "7,20", "--logits",
                          self.dir / f"{name}.npy", "-q")
            self.assertEqual((self.dir / "model.onnx.npy").read_bytes(),
                             (self.dir / "m.gqac.npy").read_bytes(), kind)


def add_tests():
    """Adds a method for each kind."""
    for kind in decoders.KINDS:
        def good(self, kind=kind):
            self.whole(kind)
        setattr(Sequences, f"test_{kind}", good)
    for kind, words in REFUSED.items():
        def bad(self, kind=kind, words=words):
            self.refused(kind, words)
        setattr(Sequences, f"test_refused_{kind}", bad)


add_tests()

if __name__ == "__main__":
    sys.exit(harness.main())
