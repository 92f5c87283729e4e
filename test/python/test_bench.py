#!/usr/bin/env python3
"""gqac bench: its rows, their contents, and the consistency of the numbers.

    python test/python/test_bench.py        GQAC names the binary
"""

import csv
import io
import os
import subprocess
import sys
import unittest
from pathlib import Path

import harness
from decoders import Decoder
from harness import Case, MODELS, ROOT, gqac

LLAMA = MODELS / "llama"
CALLS = ("-p", "16,40", "-n", "3", "--prefix", "40:7,8:1", "--repeat", "3")
ROWS = ["pp16", "pp40", "tg3@16", "tg3@40", "hp7@40", "hp1@8"]
ROW_BYTES = 2 * 2 * 2 * 32 * 4  # keys and values of a token: layers, 2, heads, D, f32


class Bench(Case):
    """Rows and formats."""

    def rows(self, model, *words):
        """The rows of a run as JSON, by name and in order; checks that rates count all tokens."""
        result = self.good("bench", model, *words, "--format", "json").json()
        for r in result["rows"]:
            self.assertAlmostEqual(r["tokens_per_second"] * r["ms"] / 1e3, r["tokens"], places=4)
        found = {r["name"]: r for r in result["rows"]}
        self.assertEqual(len(found), len(result["rows"]))
        return found

    def check_bytes(self, rows, name, calls, cached):
        """A row reads all weights in each call, and `cached` rows of keys and values in total."""
        read = {n: rows[n]["gigabytes_per_second"] * rows[n]["ms"] * 1e6 for n in ("pp16", name)}
        weights = read["pp16"] - 16 * ROW_BYTES
        plan = self.good("inspect", LLAMA, "--plan", "--format", "json").json()["plan"]["total"]
        self.assertAlmostEqual(weights, plan["weight_bytes"], delta=1)
        self.assertGreater(weights, 4 * 100_000)  # fp32 weights
        self.assertAlmostEqual(read[name] / (calls * weights + cached * ROW_BYTES), 1, places=6)

    def test_json(self):
        """Median of the repeats, tokens a second, bytes of weights and cache."""
        result = self.good("bench", LLAMA, *CALLS, "--format", "json").json()
        self.assertEqual([r["name"] for r in result["rows"]], ROWS)
        self.assertEqual(result["repeat"], 3)
        self.assertGreater(result["weight_bytes"], 4 * 100_000)
        self.check_origin(result)
        for r in result["rows"]:
            times = r["times_ms"]
            self.assertEqual((len(times), sorted(times)[1]), (3, r["ms"]), r)
            self.assertGreater(times[0], 0)
            self.assertAlmostEqual(r["tokens_per_second"] * r["ms"] / 1e3, r["tokens"], places=4)
            self.assertGreater(r["peak_rss_bytes"], 1 << 20)
            self.assertEqual(r["sequences"], 1)
        by_name = {r["name"]: r for r in result["rows"]}
        for name, calls, cached in (("pp40", 1, 40), ("tg3@16", 3, 17 + 18 + 19),
                                    ("hp7@40", 1, 47), ("hp1@8", 1, 9)):
            self.check_bytes(by_name, name, calls, cached)

    def check_origin(self, result):
        """A result says which build was measured, and where."""
        host = result["host"]
        self.assertEqual((host["name"], host["processors"]), (os.uname().nodename, os.cpu_count()))
        self.assertIn(f": {host['processor']}\n", Path("/proc/cpuinfo").read_text())
        told = self.good("version", "--format", "json").json()["build"]
        self.assertEqual(result["build"], told)
        self.assertRegex(told["compiler"], r"\d+\.\d+")
        if told["commit"]:  # null: not built in a repository
            commit = told["commit"].removesuffix("-dirty")
            subprocess.run(["git", "-C", ROOT, "cat-file", "-e", commit], check=True)

    def test_kinds(self):
        """Codes take fewer bytes: 8 or 4 bits an element, and a scale for each row of 32."""
        rows = self.rows(LLAMA, "-p", 40, "-n", 3, "--repeat", 1)
        plain = rows["tg3@40"]["gigabytes_per_second"] * rows["tg3@40"]["ms"] * 1e6
        for kind, name, end, bits in (("quantised", "quantised", "/kv8", 8),
                                      ("int4", "quantised4", "/kv4", 4)):
            result = self.good("bench", LLAMA, "-p", 40, "-n", 3, "--repeat", 1, "--kv", kind,
                               "--format", "json").json()
            self.assertEqual(result["kv"], name)
            self.assertTrue(result["profile"].endswith(end))
            row = result["rows"][1]
            read = row["gigabytes_per_second"] * row["ms"] * 1e6
            saved = (41 + 42 + 43) * (ROW_BYTES - 2 * 2 * 2 * (32 * bits // 8 + 4))
            self.assertAlmostEqual(plain - read, saved, delta=1e-6 * plain)
        self.check(gqac("bench", LLAMA, "--kv", "heap"), 2, "quantised4", "paged")
        self.check(gqac("bench", LLAMA, "--kv", "off"), 2, "quantised4", "paged")

    def test_batch(self):
        """Decode of several sequences counts all tokens and all bytes read, with the weights once
        for each call; one sequence is the row without a batch."""
        rows = self.rows(LLAMA, "-p", "16,40", "-n", "3,2", "--batch", "1,4", "--repeat", "2")
        self.assertEqual(list(rows), ["pp16", "pp40", "tg3@16", "tg3x4@16", "tg2@16", "tg2x4@16",
                                      "tg3@40", "tg3x4@40", "tg2@40", "tg2x4@40"])
        for name, tokens, sequences, past, calls, cached in (
                ("tg3@16", 3, 1, 16, 3, 17 + 18 + 19), ("tg2x4@40", 8, 4, 40, 2, 4 * (41 + 42)),
                ("tg3x4@16", 12, 4, 16, 3, 4 * (17 + 18 + 19)), ("pp40", 40, 1, 0, 1, 40)):
            r = rows[name]
            self.assertEqual((r["tokens"], r["sequences"], r["past"]), (tokens, sequences, past))
            self.check_bytes(rows, name, calls, cached)
        alone = self.rows(LLAMA, "--batch", "3", "--repeat", "1")  # -p and -n are unaffected
        self.assertEqual(list(alone), ["pp512", "tg64x3@512"])

    def test_mix(self):
        """A chunk together with other sequences, and its parts."""
        rows = self.rows(LLAMA, "--mix", "16+3x1@64,5+2x4@7,3+1x1@9", "--repeat", "2", "-p", "16",
                         "-n", "1")
        self.assertEqual(list(rows), ["pp16", "tg1@16", "mix16+3x1@64", "pp16@64", "tg1x3@64",
                                      "mix5+2x4@7", "pp5@7", "pp4x2@7", "mix3+1x1@9", "pp3@9",
                                      "tg1@9"])
        for name, tokens, sequences, past, cached in (
                ("mix16+3x1@64", 19, 4, 64, 80 + 3 * 65), ("pp16@64", 16, 1, 64, 80),
                ("tg1x3@64", 3, 3, 64, 3 * 65), ("mix5+2x4@7", 13, 3, 7, 12 + 2 * 11),
                ("pp4x2@7", 8, 2, 7, 2 * 11), ("mix3+1x1@9", 4, 2, 9, 12 + 10),
                ("tg1@9", 1, 1, 9, 10)):
            r = rows[name]
            self.assertEqual((r["tokens"], r["sequences"], r["past"]), (tokens, sequences, past))
            self.check_bytes(rows, name, 1, cached)
        both = self.rows(LLAMA, "--mix", "2+2x1@3", "--prefix", "4:2", "--repeat", "1")
        self.assertEqual(list(both), ["hp2@4", "mix2+2x1@3", "pp2@3", "tg1x2@3"])

    def test_memory_of_each(self):
        """The sequences of a batch share no cached row."""
        rows = self.rows(LLAMA, "-p", "512", "-n", "1", "--batch", "1,200", "--repeat", "1")
        pasts = 200 * 512 * ROW_BYTES
        if not harness.SANITIZED:
            self.assertLess(rows["tg1@512"]["peak_rss_bytes"], pasts / 2)
        self.assertGreater(rows["tg1x200@512"]["peak_rss_bytes"], pasts)

    def test_x17_saved(self):
        """X17: with a cached prefix, the saving in rows is (P+S)/S, and less in pairs of attention;
        the measured ratio is printed next to it if the whole prompt is timed."""
        rows = self.rows(LLAMA, "--prefix", "100:100,500:100,200:10", "-p", "600", "-n", "1",
                         "--repeat", "1")
        for name, ratio in (("hp100@100", 2), ("hp100@500", 6), ("hp10@200", 21)):
            saved, n, past = rows[name]["saved"], rows[name]["tokens"], rows[name]["past"]
            whole = (past + n) * (past + n + 1) / 2
            self.assertAlmostEqual(saved["rows"], ratio)
            self.assertAlmostEqual(saved["pairs"], whole / (whole - past * (past + 1) / 2), 4)
            time = rows["pp600"]["ms"] / rows[name]["ms"] if past + n == 600 else None
            self.assertEqual(saved["time"] is None, time is None)
            if time:
                self.assertAlmostEqual(saved["time"] / time, 1, 3)
        self.assertNotIn("saved", rows["pp600"])
        said = self.good("bench", LLAMA, "--prefix", "10:5", "--repeat", "1").out
        self.assertIn("hp5@10: 3.00x fewer rows, (10+5)/5;", said)
        self.assertIn("-p 15 measures it", said)

    def test_memory_of_parent(self):
        """Peak memory is that of the program, however large the process that started it."""
        large = bytearray(b"x" * (400 << 20))
        rows = self.rows(LLAMA, "-p", "4", "-n", "1", "--repeat", "1")
        if not harness.SANITIZED:
            self.assertLess(rows["pp4"]["peak_rss_bytes"], len(large) / 2)

    def test_states(self):
        """Recurrent states are copied next to rows; if a model has only states, each sequence
        computes its past."""
        alone = Decoder("recurrent_alone").save(self.dir / "m.onnx")
        for model in (MODELS / "qwen3.5", alone):
            rows = self.rows(model, "-p", "6", "-n", "2", "--batch", "3", "--mix", "4+2x1@5",
                             "--repeat", "1")
            self.assertEqual([r["tokens"] for r in rows.values()], [6, 6, 6, 4, 2])

    def test_formats(self):
        """table, md and csv have the same rows."""
        table = self.good("bench", LLAMA, *CALLS).out.splitlines()
        self.assertEqual([line.split()[0] for line in table[:1 + len(ROWS)]], ["row", *ROWS])
        md = self.good("bench", LLAMA, *CALLS, "--format", "md").out.splitlines()
        self.assertEqual([line.split()[1] for line in md[2:]], ROWS)
        rows = list(csv.reader(io.StringIO(
            self.good("bench", LLAMA, *CALLS, "--format", "csv").out)))
        self.assertEqual([r[0] for r in rows], ["row", *ROWS])
        self.assertEqual({len(r) for r in rows}, {5})
        more = ("--batch", "1,8", "--mix", "16+7x1@32", "-p", "9", "-n", "2", "--repeat", "1")
        named = ["pp9", "tg2@9", "tg2x8@9", "mix16+7x1@32", "pp16@32", "tg1x7@32"]
        for form, cut, words in (("table", 1, 0), ("md", 2, 1)):
            lines = self.good("bench", LLAMA, *more, "--format", form).out.splitlines()[cut:]
            self.assertEqual([line.split()[words] for line in lines], named)
        lines = self.good("bench", LLAMA, *more, "--format", "csv").out.splitlines()[1:]
        self.assertEqual([line.split(",")[0] for line in lines], named)

    def test_chosen(self):
        """Only a prefix row can be requested; an artefact works like its folder."""
        packed = self.dir / "m.gqac"
        self.good("compile", LLAMA, "-o", packed)
        out = self.good("bench", packed, "--prefix", "4:2", "--repeat", "1").out.splitlines()
        self.assertEqual([line.split()[0] for line in out], ["row", "hp2@4", "hp2@4:"])

    def test_refused(self):
        """Invalid lists are usage errors; more tokens than the model has positions is out of
        range."""
        for words in (("-p", "0"), ("-p", "a"), ("-n", ""), ("--prefix", "4"), ("--prefix", "4:"),
                      ("--prefix", "0:4"), ("--prefix", "4:4:4"), ("--prefix", "4:4x"),
                      ("--prefix", ""), ("--prefix", "4:4,"), ("--repeat", "0"),
                      ("--format", "xml")):
            self.check(gqac("bench", LLAMA, *words), 2)
        for words in ("0", "1025", "a", "", "2,", "1,,2"):
            self.check(gqac("bench", LLAMA, "--batch", words), 2, "--batch", "from 1 to 1024")
        for words in ("", "4", "4+2", "4+2x1", "4+2x1@", "4+2x1@0", "0+2x1@4", "4+0x1@4", "4+2x0@4",
                      "4+1025x1@4", "4+-2x1@4", "+4+2x1@4", " 4+2x1@4", "4+2x1@4x", "4+2x1@4,",
                      ",4+2x1@4", "4:2x1@4", "99999999999999999999+2x1@4"):
            self.check(gqac("bench", LLAMA, "--mix", words), 2, "S+NxM@P", "N to 1024")
        self.check(gqac("bench", LLAMA, "--mix", "2+2x1@640"), 4, "640")
        self.check(gqac("score", LLAMA, "--ids", "x", "--format", "md"), 2, "format")
        self.check(gqac("bench", LLAMA, "-p", "641", "-n", "1"), 4, "640")


if __name__ == "__main__":
    sys.exit(harness.main())
