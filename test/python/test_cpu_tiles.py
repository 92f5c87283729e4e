#!/usr/bin/env python3
"""The cpu target with a key tile of 4 and a key split of 8, so that a few tokens cross a boundary.

The tool SMALL_TILES (test/controls.cmake) is gqac with these constants. `equiv` must find no
difference over 200 tokens in random pieces; the profile and the bits, which differ from those of
the normal tool, show that the constants are used.
"""

import json
import subprocess
import sys

import numpy as np

import harness
from harness import Case, FULL, KV_KINDS, ROOT, model, read_ids, write_ids

TOOL = harness.CONTROLS / "SMALL_TILES"
# Splits at and near multiples of tile and split.
CUTS = "3,1,4,1,7,8,9,2,5,16,23,31,33"


class Tiles(Case):
    """Plans on small tiles."""

    def small(self, *words):
        """A run of the small-tile tool that must succeed; returns its output."""
        done = subprocess.run([TOOL, *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=600, stdin=subprocess.DEVNULL,
                              env=harness.environment(), check=False, text=True)
        self.assertEqual(done.returncode, 0, (words, done.stdout[-600:], done.stderr[-600:]))
        return done.stdout

    def equal(self, path, *flags):
        """equiv of 200 tokens finds nothing; returns its JSON."""
        found = json.loads(self.small("equiv", path, "--target", "cpu", "--tokens", 200,
                                      "--format", "json", "-q", *flags))
        self.assertEqual(found["differing"], 0, found)
        self.assertEqual(found["plans"], found["planned"], found)
        self.assertGreater(found["compared"], 0)
        self.assertIn(".t4.s8.", found["profile"])
        return found

    def check_model(self, path):
        """Random pieces alone and in a ragged batch, splits at the boundaries, one token at a
        time."""
        self.equal(path, "--splits", "random:6", "--threads", "1,3")
        self.equal(path, "--splits", "random:2", "--batch", 3, "--threads", "2")
        self.equal(path, "--splits", CUTS, "--threads", "5")
        self.equal(path, "--splits", "17", "--via", "decode", "--threads", "2")

    def test_llama(self):
        """Six query heads for two key-value heads."""
        self.check_model(model("llama"))

    def test_gemma2(self):
        """A window of 16 keys, and softcap."""
        self.check_model(model("gemma2"))

    def test_tiny_gqa(self):
        """The bundled model."""
        self.check_model(ROOT / "models" / "tiny-gqa")

    def test_hits(self):
        """Cached prefixes; in the long tier of every length, in every kind of cache. Each token is
        reused or computed."""
        names = ("llama", "qwen3.5")
        if FULL:
            names += ("lfm2", "gemma2", "gpt-oss", ROOT / "models" / "tiny-gqa")
        for name in names:
            for via in ("prefix", "snapshot"):
                with self.subTest((name, via)):
                    found = self.equal(model(name), "--via", via,
                                       *(("--kv", KV_KINDS) if FULL else ("--splits", "67,30")))
                    self.assertEqual(found["planned"], 2 * 201 * len(KV_KINDS.split(",")) if FULL else 2)
                    self.assertGreater(found["reused_tokens"], 0)
                    self.assertEqual(found["reused_tokens"] + found["computed_tokens"],
                                     found["tokens"] * found["plans"])

    def test_constants_are_in_force(self):
        """Other tiles, other bits, but close values."""
        ids = write_ids(self.dir / "ids.txt",
                        read_ids(model("llama").parent / "ref" / "ids600.txt")[:200])
        flags = ("score", model("llama"), "--ids", ids, "--target", "cpu", "--logits")
        self.small(*flags, self.dir / "small.npy")
        self.good(*flags, self.dir / "plain.npy")
        small, plain = (np.load(self.dir / f"{n}.npy") for n in ("small", "plain"))
        np.testing.assert_array_equal(small[:4], plain[:4])
        self.assertFalse(np.array_equal(small, plain))
        self.close(small, plain, 1e-5)


if __name__ == "__main__":
    sys.exit(harness.main())
