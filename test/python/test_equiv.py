#!/usr/bin/env python3
"""`gqac equiv` on every test model: splits, batches and threads change no bit.

    python test/python/test_equiv.py        GQAC_TEST_FULL=1 for all of it

Everything runs on cpu, and a smaller sample on ref. The default tier is a fixed sample. The long
tier runs all 2-splits and 200 random plans of 100 tokens on one, two, three and five threads, alone
and in a ragged batch of three, 64 2-splits of 600 tokens on two models, and prefixes of 600 tokens in
every kind of cache.
"""

import os
import pty
import random
import subprocess
import sys
import unittest

import harness
from harness import Case, FULL, KV_KINDS, model, read_ids, write_ids

MODELS = sorted(harness.TOLERANCE)
SECONDS = 3000 if FULL else 120
# At and near the boundaries in 100 tokens: one token, tile 64, Phi-3's threshold, the end.
SAMPLE = (1, 63, 64, 65, 99)
# Models with long prefixes, and the lengths of the prompts; the last two have 320 positions.
LONG = {harness.ROOT / "models" / "tiny-gqa": 600, "llama": 600, "gemma2": 600, "phi3": 600, "lfm2": 300,
        "qwen3.5": 300}


class Equiv(Case):
    """No differing bit, and at least one comparison."""

    def equal(self, name, *flags, target="cpu"):
        """One run of equiv that must find nothing; returns its JSON."""
        result = self.good("equiv", model(name), "--target", target, "--format", "json", "-q",
                           *flags, seconds=SECONDS)
        found = result.json()
        self.assertEqual(found["differing"], 0, str(result))
        self.assertGreater(found["compared"], 0, str(result))
        self.assertEqual(found["plans"], found["planned"], str(result))
        self.assertNotIn("first", found, str(result))
        self.assertEqual(found["mixing"], [], str(result))
        return found

    def sample(self, name):
        """The fixed sample of the default tier."""
        self.equal(name, "--tokens", 100, "--splits", "random:8", "--batch", 3, "--threads", "2")
        self.equal(name, "--tokens", 100, "--splits", "random:4", "--batch", 8, "--threads", "2")
        self.equal(name, "--tokens", 100, "--splits", "random:8", "--threads", "1,5")
        for at in SAMPLE:
            self.equal(name, "--tokens", 100, "--splits", str(at), "--threads", "3")
        self.equal(name, "--tokens", 40, "--splits", "17", "--via", "import", "--batch", 3)
        self.equal(name, "--tokens", 40, "--splits", "17", "--via", "decode")

    def on_ref(self, name):
        """The sample on ref: a batch with threads, and rows that are moved."""
        self.equal(name, "--tokens", 100, "--splits", "random:4", "--batch", 3, "--threads", "2,5",
                   target="ref")
        self.equal(name, "--tokens", 40, "--splits", "17", "--via", "import", target="ref")

    def whole(self, name):
        """100 tokens, every 2-split and token by token, random plans, batches, threads."""
        for batch in (1, 3, 8):
            for splits in ("all", "random:200"):
                found = self.equal(name, "--tokens", 100, "--splits", splits, "--batch", batch,
                                   "--threads", "1,2,3,5")
                self.assertGreaterEqual(found["planned"], 4 * 99)
        for via in ("decode", "import", "prefix", "snapshot"):
            self.equal(name, "--tokens", 100, "--splits", "all", "--via", via, "--threads", "2")

    def hits(self, name, via, *flags, target="cpu"):
        """Prefixes in memory and from disk; each token is reused or computed."""
        found = self.equal(name, "--via", via, "--threads", "2", *flags, target=target)
        self.assertGreater(found["reused_tokens"], 0)
        if found["batch"] == 1:
            self.assertEqual(found["reused_tokens"] + found["computed_tokens"],
                             found["tokens"] * found["plans"])
        return found

    def test_hits(self):
        """Through the prefix store and snapshots: dense models, recurrent and hybrid ones."""
        names = MODELS if FULL else ("llama", "qwen3.5", "lfm2", "phi3", "gpt-oss")
        for via in ("prefix", "snapshot"):
            for name in names:
                with self.subTest((via, name)):
                    self.assertEqual(self.hits(name, via, "--tokens", 20)["planned"], 2 * 21)
                    self.hits(name, via, "--tokens", 140, "--splits", "65,30", "--batch", "3")
                    if FULL:
                        self.hits(name, via, "--tokens", "150")
                        self.hits(name, via, "--tokens", "140", target="ref")
            self.hits("qwen3.5", via, "--tokens", 70, "--splits", "64", target="ref")

    def test_lengths_of_hits(self):
        """For long prompts the lengths around block boundaries are tried."""
        found = self.hits("llama", "prefix", "--tokens", 201)
        self.assertEqual(found["planned"], 2 * len({0, 1, 63, 64, 65, 127, 128, 129, 200, 201}))

    # Reason of the skip: 85 seconds; test_lengths_of_hits and test_hits try shorter prompts.
    @unittest.skipUnless(FULL, "long tier")
    def test_long_hits(self):
        """Prefixes that end at and near the boundaries of blocks and of the key split, in every kind
        of cache; exactly the tokens after them are computed."""
        for name, tokens in LONG.items():
            lengths = {at + near for at in (64, 128, 256, 512) for near in (-1, 0, 1) if at < tokens}
            lengths |= {0, 1, tokens - 1, tokens}
            for via in ("prefix", "snapshot"):
                reused = 2 * sum(lengths)  # in memory and on disk
                if via == "prefix":  # a whole prompt: all but its last token, or up to a state
                    reused -= 2 * (tokens - ((tokens - 1) // 64 * 64 if name == "qwen3.5" else tokens - 1))
                for target, kinds in (("cpu", KV_KINDS), ("ref", "contiguous")):
                    with self.subTest((name, via, target)):
                        found = self.hits(name, via, "--tokens", tokens, "--kv", kinds, target=target)
                        n = len(kinds.split(","))
                        self.assertEqual(found["planned"], 2 * len(lengths) * n)
                        self.assertEqual(found["reused_tokens"], reused * n)

    def test_ids_file(self):
        """--ids uses the tokens of a file; without it the requested number is generated."""
        ids = model("llama").parent / "ref" / "ids.txt"
        found = self.equal("llama", "--ids", ids, "--splits", "9,15")
        self.assertEqual(found["tokens"], len(read_ids(ids)))
        self.assertEqual(self.equal("llama", "--tokens", 12)["tokens"], 12)

    def test_all_counts_plans(self):
        """`all` is every 2-split, the whole and token by token."""
        found = self.equal("llama", "--tokens", 9, "--splits", "all", "--threads", "1,2")
        self.assertIn(found["planned"], (2 * 9, 2 * 10))

    def test_terminal(self):
        """The line that shows the progress is removed before the table."""
        leader, follower = pty.openpty()
        tiny = harness.ROOT / "models" / "tiny-gqa"
        child = subprocess.Popen([harness.GQAC, "equiv", tiny, "--tokens", "250", "--threads", "1"],
                                 stdout=follower, stderr=follower, env=harness.environment())
        os.close(follower)
        shown = b""
        try:
            while read := os.read(leader, 1 << 16):
                shown += read
        except OSError:  # end of the terminal
            pass
        os.close(leader)
        self.assertEqual(child.wait(SECONDS), 0)
        self.assertRegex(shown, rb"^\r\d+ of 251 plans, 0 differing values(\r[^\r\n]*)*\r\x1b\[Kkv  ")

    def test_one_token(self):
        """A single token cannot be split, but is still compared."""
        self.equal("llama", "--tokens", 1, "--batch", 3)

    def test_phi3_both_tables(self):
        """Below and above the LongRoPE threshold of 64 tokens."""
        self.equal("phi3", "--tokens", 40, "--splits", "all" if FULL else "random:6", "--batch", 3)
        self.equal("phi3", "--tokens", 64, "--splits", "9,31")
        self.equal("phi3", "--tokens", 65, "--splits", "9,31")

    def test_phi3_score_crosses(self):
        """A sequence with a declared final length may cross the threshold in pieces."""
        ids = model("phi3").parent / "ref" / "ids_long.txt"
        for splits in (None, "40,40", "64", "65", "1,63,1,35"):
            out = self.dir / f"{splits}.npy"
            flags = ("--splits", splits) if splits else ()
            self.good("score", model("phi3"), "--ids", ids, "--logits", out, *flags)
            self.assertEqual(out.read_bytes(), (self.dir / "None.npy").read_bytes(), splits)

    @unittest.skipUnless(FULL, "long tier")
    def test_600_tokens(self):
        """600 tokens cross nine key tiles and a split; 64 2-splits each."""
        draw = random.Random(600)
        for name in ("llama", "gemma2"):
            ids = model(name).parent / "ref" / "ids600.txt"
            cuts = {1, 63, 64, 65, 128, 511, 512, 513, 575, 576, 577, 599}
            cuts.update(draw.sample(sorted(set(range(1, 600)) - cuts), 64 - len(cuts)))
            for at in sorted(cuts):
                with self.subTest(name=name, at=at):
                    self.equal(name, "--ids", ids, "--splits", str(at), "--threads", "2")
            self.equal(name, "--ids", ids, "--splits", "random:4", "--batch", 3,
                       "--threads", "1,2,3,5")

    def test_short_tail(self):
        """Ids of a file, split so that the last call has one token, alone and in a batch."""
        ids = read_ids(model("llama").parent / "ref" / "ids.txt")
        path = write_ids(self.dir / "ids.txt", ids[:33])
        for batch in (1, 3):
            self.equal("llama", "--ids", path, "--splits", "32", "--batch", batch)


def add_models():
    """Adds a method for each model."""
    for name in MODELS:
        def test(self, name=name):
            (self.whole if FULL else self.sample)(name)
        test.__doc__ = f"{name}: 100 tokens"
        setattr(Equiv, f"test model {name}", test)
        setattr(Equiv, f"test ref {name}", lambda self, name=name: self.on_ref(name))


add_models()

if __name__ == "__main__":
    sys.exit(harness.main())
