#!/usr/bin/env python3
"""gqac bench: which rows there are, what they say, and that the numbers fit each other.

    python test/python/test_bench.py        GQAC names the binary
"""

import csv
import io
import sys
import unittest

import harness
from harness import Case, MODELS, gqac

LLAMA = MODELS / "llama"
CALLS = ("-p", "16,40", "-n", "3", "--prefix", "40:7,8:1", "--repeat", "3")
ROWS = ["pp16", "pp40", "tg3@16", "tg3@40", "hp7@40", "hp1@8"]
ROW_BYTES = 2 * 2 * 2 * 32 * 4  # keys and values of a token: layers, 2, heads, D, f32


class Bench(Case):
    """Rows and formats."""

    def test_json(self):
        """Median of the repeats, tokens a second, bytes of weights and cache."""
        result = self.good("bench", LLAMA, *CALLS, "--format", "json").json()
        self.assertEqual([r["name"] for r in result["rows"]], ROWS)
        self.assertEqual(result["repeat"], 3)
        for r in result["rows"]:
            times = r["times_ms"]
            self.assertEqual((len(times), sorted(times)[1]), (3, r["ms"]), r)
            self.assertGreater(times[0], 0)
            self.assertAlmostEqual(r["tokens_per_second"] * r["ms"] / 1e3, r["tokens"], places=4)
            self.assertGreater(r["peak_rss_bytes"], 1 << 20)
        by_name = {r["name"]: r for r in result["rows"]}
        read = {n: r["gigabytes_per_second"] * r["ms"] * 1e6 for n, r in by_name.items()}
        weights = read["pp16"] - 16 * ROW_BYTES
        self.assertGreater(weights, 4 * 100_000)  # fp32 weights
        for name, calls, rows in (("pp40", 1, 40), ("tg3@16", 3, 17 + 18 + 19),
                                  ("hp7@40", 1, 47), ("hp1@8", 1, 9)):
            self.assertAlmostEqual(read[name] / (calls * weights + rows * ROW_BYTES), 1, places=6)

    def test_formats(self):
        """table, md and csv hold the same rows."""
        table = self.good("bench", LLAMA, *CALLS).out.splitlines()
        self.assertEqual([line.split()[0] for line in table], ["row", *ROWS])
        md = self.good("bench", LLAMA, *CALLS, "--format", "md").out.splitlines()
        self.assertEqual([line.split()[1] for line in md[2:]], ROWS)
        rows = list(csv.reader(io.StringIO(
            self.good("bench", LLAMA, *CALLS, "--format", "csv").out)))
        self.assertEqual([r[0] for r in rows], ["row", *ROWS])
        self.assertEqual({len(r) for r in rows}, {5})

    def test_chosen(self):
        """A prefix alone is all there is; an artefact does as well as its folder."""
        packed = self.dir / "m.gqac"
        self.good("compile", LLAMA, "-o", packed)
        out = self.good("bench", packed, "--prefix", "4:2", "--repeat", "1").out.splitlines()
        self.assertEqual([line.split()[0] for line in out], ["row", "hp2@4"])

    def test_refused(self):
        """Wrong lists are usage; what the model has no room for is out of range."""
        for words in (("-p", "0"), ("-p", "a"), ("-n", ""), ("--prefix", "4"), ("--prefix", "4:"),
                      ("--prefix", "0:4"), ("--prefix", "4:4:4"), ("--prefix", "4:4x"),
                      ("--repeat", "0"), ("--format", "xml")):
            self.check(gqac("bench", LLAMA, *words), 2)
        self.check(gqac("score", LLAMA, "--ids", "x", "--format", "md"), 2, "format")
        self.check(gqac("bench", LLAMA, "-p", "641", "-n", "1"), 4, "640")


if __name__ == "__main__":
    sys.exit(harness.main())
