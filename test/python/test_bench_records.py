#!/usr/bin/env python3
"""The records of bench/: the committed ones are complete, and incomplete ones are refused.

    python test/python/test_bench_records.py
"""

import copy
import json
import subprocess
import sys

import harness
from harness import Case, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import load  # noqa: E402
import overhead  # noqa: E402
import records  # noqa: E402
import rows  # noqa: E402

CHECK = ROOT / "bench" / "check_records.py"
RESULT = {"ms": 2.0, "min_ms": 1.5, "rate": 10.0, "unit": "GF/s"}
RATES = {"isa": "avx2", "cores": 2, "fma_gflops_1": 90.0, "dram_gbps_1": 20.0}
PAIR = {"peer": "onnxruntime", "gqac_ms": [2.0, 2.1], "peer_ms": [4.0]}
GOOD = {
    "bench": "pairs", "row": "prefill-512", "date": "2026-01-31T12:00:00+00:00",
    "commit": "7dab400", "owner": "gqac bench driver", "kind": "measured", "host": "a CPU, 2 cores",
    "compiler": "cc 12", "level": "avx2", "threads": 2, "dtype": "f32", "math": "model",
    "shapes": {"S": 512}, "method": "5 ABBA pairs",
    "versions": {"gqac": "0.1.0", "onnxruntime": "1.31.1"},
    "calibration": {"before": RATES, "after": RATES}, "pairs": [PAIR] * 5,
    "results": {"gqac": RESULT, "onnxruntime": dict(RESULT, ratio=2.0)}, "repeated": False,
    "moved": False,
}


def broken(change):
    """The good record after change(record)."""
    record = copy.deepcopy(GOOD)
    change(record)
    return record


def put(record, path, value):
    """record[a][b]... = value; a value of None removes."""
    *parents, last = path.split(".")
    for key in parents:
        record = record[key]
    if value is None:
        del record[last]
    else:
        record[last] = value


class Records(Case):
    """check_records.py on files."""

    def run_check(self, *files):
        return subprocess.run([sys.executable, CHECK, *files], capture_output=True, text=True)

    def refused(self, text, *words):
        """The complaints about a file with this text, which must contain each word."""
        wrong = "\n".join(records.check_lines(text, "r.jsonl"))
        self.assertTrue(wrong, text)
        for word in words:
            self.assertIn(word, wrong)
        return wrong

    def test_exit(self):
        """The exit code is that of a failure, stderr has the cause, and no incomplete record is
        written."""
        path = self.dir / "r.jsonl"
        path.write_text(json.dumps(broken(lambda r: put(r, "host", None))))
        run = self.run_check(path)
        self.assertEqual(run.returncode, 1)
        self.assertIn("r.jsonl:1: 'host'", run.stderr)
        with self.assertRaisesRegex(ValueError, "host"):
            records.append(self.dir / "new.jsonl", broken(lambda r: put(r, "host", "")))
        self.assertFalse((self.dir / "new.jsonl").exists())

    def test_committed(self):
        """Everything in bench/results is complete."""
        run = self.run_check()
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_page(self):
        """docs/performance.md contains the output of bench/table.py for the records."""
        run = subprocess.run([sys.executable, ROOT / "bench" / "table.py", "--check"])
        self.assertEqual(run.returncode, 0, "run bench/table.py --write")

    def test_table(self):
        """A record becomes a line with its times, ratio, floor and roof; the newest record is
        used."""
        path = self.dir / "r.jsonl"
        slow = broken(lambda r: put(r, "results.gqac.ms", 77.0))
        two = dict(RATES, fma_gflops_2=20.0, dram_gbps_2=20.0)
        new = broken(lambda r: put(r, "calibration", {"before": two, "after": two}))
        path.write_text(json.dumps(slow) + "\n" + json.dumps(new) + "\n")
        run = subprocess.run([sys.executable, ROOT / "bench" / "table.py", path],
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("| prefill-512 | 2 | 10 GF/s | 2 (2.00×) | – | – | – | 1.60× onnxruntime: yes | "
                      "fma, 50 % of 20 GF/s |", run.stdout)
        self.assertNotIn("77", run.stdout)
        self.assertNotIn("- prefill-512\n", run.stdout)
        self.assertIn("- prefill-4096\n", run.stdout)

    def test_levels(self):
        """Each instruction set has its own tables, the widest first."""
        took = {"gqac": {"ms": 5.0}}
        text = self.table(("prefill-512", took, {"level": "avx512"}),
                          ("prefill-512", {"gqac": {"ms": 9.0}}, {"level": "avx2"}))
        wide, narrow = text.split("### Instruction set ")[1:]
        self.assertTrue(wide.startswith("avx512\n") and narrow.startswith("avx2\n"))
        self.assertIn("| prefill-512 | 5 |", wide)
        self.assertIn("| prefill-512 | 9 |", narrow)

    def test_memory(self):
        """A token's weights read at 85 % of the memory bandwidth reach the floor; the peer's time
        does not."""
        path = self.dir / "r.jsonl"
        bytes_read = 4 * (24 * (896 * (2 * 896 + 2 * 128) + 3 * 896 * 4864) + 896 * 151936)
        for share, told in ((0.86, "yes"), (0.84, "no")):
            record = broken(lambda r: put(r, "row", "0.5b-f32-decode@512"))
            record["results"]["gqac"] = dict(RESULT, ms=bytes_read / 2e7 / share, unit="tok/s")
            record["results"]["onnxruntime"]["ratio"] = 1.1
            for when in ("before", "after"):
                put(record, f"calibration.{when}", dict(RATES, dram_gbps_2=20.0))
            path.write_text(json.dumps(record) + "\n")
            run = subprocess.run([sys.executable, ROOT / "bench" / "table.py", path],
                                 capture_output=True, text=True)
            self.assertIn(f"| 1.20× onnxruntime: no, 85 % of memory: {told} | memory, "
                          f"{100 * share:.0f} % of 20.0 GB/s |", run.stdout)

    def test_n8_layouts(self):
        """N8: the faster layout of the keys, for each shape, is the one with the smaller time."""
        path = self.dir / "r.jsonl"
        for ratio, faster in ((1.2, "columns"), (0.9, "rows")):
            record = broken(lambda r: put(r, "row", "layout-16@4096"))
            record["results"]["row-major"] = dict(record["results"].pop("onnxruntime"), ratio=ratio)
            path.write_text(json.dumps(record) + "\n")
            run = subprocess.run([sys.executable, ROOT / "bench" / "table.py", path],
                                 capture_output=True, text=True)
            self.assertRegex(run.stdout, rf"\| layout-16@4096 \|.* {ratio:.2f}× \| {faster} \|")

    def test_caches(self):
        """Codes in the cache: their bytes, and fp32 as the peer, in a table of their own."""
        path = self.dir / "r.jsonl"
        for dtype, parts in (("int8", 4), ("int4", 8)):
            row = rows.BY_NAME[f"decode-4096-{dtype}"]
            self.assertEqual(row.kv_bytes() * parts, rows.BY_NAME["decode-4096"].kv_bytes())
            record = broken(lambda r, row=row: put(r, "row", row.name))
            record["results"]["fp32-cache"] = dict(record["results"].pop("onnxruntime"), ms=5.0,
                                                   ratio=2.5)
            path.write_text(json.dumps(record) + "\n")
            run = subprocess.run([sys.executable, ROOT / "bench" / "table.py", path],
                                 capture_output=True, text=True)
            self.assertIn(f"### Codes in the cache\n\n| row | threads | ms | rate | fp32 in the cache, "
                          f"ms | faster |\n|---|---|---|---|---|---|\n| decode-4096-{dtype} | 2 | 2 | "
                          "10 GF/s | 5 | 2.50× |", run.stdout)

    def table(self, *changed):
        """The output of table.py for valid records, each with (row, results, further changes)."""
        path = self.dir / "r.jsonl"
        lines = []
        for row, results, more in changed:
            record = broken(lambda r, row=row: put(r, "row", row))
            record["results"] = {engine: dict(RESULT, **result)
                                 for engine, result in results.items()}
            rates = dict(RATES, fma_gflops_2=20.0, dram_gbps_2=20.0)
            record["calibration"] = {"before": rates, "after": rates}
            lines.append(json.dumps({**record, **more}))
        path.write_text("\n".join(lines))
        run = subprocess.run([sys.executable, ROOT / "bench" / "table.py", path],
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_batches(self):
        """Several sequences together, relative to the time of one and to both peers, in a table of
        their own."""
        def results(ms, ort, llama):
            return {"gqac": {"ms": ms}, "onnxruntime": {"ms": ms * ort, "ratio": ort},
                    "llama.cpp": {"ms": ms * llama, "ratio": llama}}
        text = self.table(("0.5b-int4-decode@512", results(20.0, 1.5, 2.0), {}),
                          ("0.5b-int4-decode-x2@512", results(23.0, 1.2, 0.9), {"moved": True}),
                          ("0.5b-int4-decode-x4@512", results(30.0, 1.1, 1.2), {}),
                          ("1.5b-int4-decode-x4@512", results(30.0, 1.1, 1.2), {"threads": 1}))
        together = text.split("### Sequences that decode together, 2 threads")[1].split("###")[0]
        lines = [line for line in together.splitlines() if line.startswith("| 0.5b")]
        self.assertEqual(lines, [
            "| 0.5b int4 | 1 | 20 | 1.00 | – | 10 | 30 (1.50×) | 40 (2.00×) | yes |",
            "| 0.5b int4 † | 2 | 23 | 1.15 | – | 10 | 27.6 (1.20×) | 20.7 (0.90×) | no |",
            "| 0.5b int4 | 4 | 30 | 1.50 | – | 10 | 33 (1.10×) | 36 (1.20×) | yes |"])
        self.assertIn("together, 1 thread\n\n| model", text)
        self.assertIn("| 1.5b int4 | 4 | 30 | – | – | 10 |", text)
        self.assertNotIn("| 0.5b-int4-decode-x2@512", text)  # nor among the rows of one sequence

    def test_roof(self):
        """The roof: the larger time of reading and multiplying, at the measured rates."""
        weights = 24 * 896 * (2 * 896 + 2 * 128 + 3 * 4864) + 896 * 151936
        cached = 2 * 24 * 2 * 64 * 513 * 4  # bytes of a sequence
        one = {"gqac": {"ms": 100.0}}
        text = self.table(("matmul-int4-512", {"gqac": {"ms": 1.0, "rate": 500.0}}, {}),
                          ("0.5b-int4-decode@512", one, {}), ("0.5b-int4-decode-x2@512", one, {}),
                          ("0.5b-int4-decode-x32@512", one, {}), ("0.5b-f32-decode@512", one, {}),
                          ("0.5b-f32-decode-x8@512", one, {}))
        for form, batch, ms in (
                ("int4", 2, 1e-6 * (weights * 0.625 + 2 * cached) / 20),  # memory, 20 GB/s
                ("int4", 32, 1e-6 * 2 * 32 * weights / 500),              # that row's 500 GF/s
                ("f32", 8, 1e-6 * 2 * 8 * weights / 20)):                 # fma, 20 GF/s
            self.assertIn(f"| 0.5b {form} | {batch} | 100 | 1.00 | {100 / ms:.2f} |", text)

    def test_mixtures(self):
        """One call with all sequences, relative to the two calls of its parts."""
        text = self.table(("0.5b-int4-mix-128+7x1@256",
                           {"gqac": {"ms": 42.0}, "parts": {"ms": 40.0, "ratio": 0.952381}}, {}))
        self.assertIn("| 0.5b-int4-mix-128+7x1@256 | 2 | 42 | 40 | 1.05 | – | ≤ 1.10 |", text)

    def test_work(self):
        """The tokens of a row are those of all its sequences; the engines get their number."""
        for name, tokens, words in (
                ("0.5b-f32-decode@512", 1, []), ("0.5b-f32-decode-x8@512", 8, ["batch=8"]),
                ("0.5b-f32-mix-128+7x1@256", 135, ["batch=8", "chunk=128"])):
            row = rows.BY_NAME[name]
            self.assertEqual(row.rate(100), (10 * tokens, "tok/s"))
            self.assertEqual([w for w in row.steps() if w.split("=")[0] in ("batch", "chunk")],
                             words)

    def test_overhead(self):
        """Medians and minimum times of all processes, and a complete record of them."""
        lines = [{"step_us": [9.0, 11.0], "empty_us": [2.0]},
                 {"step_us": [10.0], "empty_us": [4.0, 3.0]}]
        found = overhead.summary(lines)
        self.assertEqual(found, {"step_us": 10.0, "empty_us": 3.0, "least_step_us": 9.0,
                                 "least_empty_us": 2.0, "share": 0.3})
        record = {k: GOOD[k] for k in records.COMMON} | {
            "bench": "overhead", "version": "0.1.0", "level": "avx2", "results": found,
            "samples": {"step_us": [[9.0]]}}
        self.assertEqual(records.check(record), [])
        for field in ("version", "level", "results", "samples"):
            self.assertTrue(records.check({**record, field: None}), field)

    def test_load_pages(self):
        """The tables of `load` in the documentation are those of its last records."""
        lines = (ROOT / "bench" / "results" / "load.jsonl").read_text().splitlines()
        last = {r["part"]: r["results"] for r in map(json.loads, lines)}
        for page, table in (("prefix-caching.md", load.first_table(last["first"])),
                            ("performance.md", load.load_table({load.CLIENTS: last["mixed"]})),
                            ("performance.md", load.load_table(last["served"]))):
            self.assertIn("\n".join(table), (ROOT / "docs" / page).read_text())

    def test_load(self):
        """Tables of `load`, and the bars that are missed: both are computed from the passes."""
        self.assertEqual(load.flops(0, 2), 2 * load.flops(0, 1) - 2 * 896 * 151936 + 4 * 896 * 24)
        self.assertGreater(load.flops(0, 2064) / load.flops(2000, 64), 28)
        one = {"with_ms": 10.0, "without_ms": 100.0, "peer_ms": 20.0, "peer_http_ms": 21.0,
               "reused": 0, "computed": 64, "peer_reused": 0}
        passes = [{"suffix of 64": dict(one, with_ms=ms)} for ms in (10.0, 50.0, 12.0)]
        results = load.summarise_first(passes)
        self.assertEqual(load.first_missed(results), [])
        self.assertIn("| suffix of 64 | 0 | 64 | 100.0 | 12.0 | 8.33× | 1.00× |",
                      load.first_table(results)[2])
        slow = load.summarise_first([{"suffix of 64": dict(one, with_ms=25.0, reused=2000)}])
        self.assertEqual(len(load.first_missed(slow)), 2)
        requests = [{"first_ms": float(i), "reused": 1} for i in range(1, 102)]
        own = load.load_of(requests, 1000.0, "first_ms")
        self.assertEqual((own["first_p95_ms"], own["tokens_per_second"]), (96.0, 64 * 101))
        both = load.summarise_load([{"gqac": own, "llama-server": dict(own, first_p95_ms=99.0)}])
        self.assertEqual(load.load_missed({4: both}), ["4 clients: llama-server has more tokens/s"])
        self.assertTrue(load.load_table({4: both})[2].startswith("| 4 | gqac | 6464.0 | 51 | 96 |"))
        self.assertEqual([list(load.load_pass(int, int, i)) for i in range(2)],
                         [["gqac", "llama-server"], ["llama-server", "gqac"]])
        self.assertEqual([len(r) for r in load.mixed(0, 4, 3)], [3] * 4)
        plan = load.mixed(0)
        self.assertEqual((len(plan), {len(requests) for requests in plan}), (16, {2}))
        self.assertTrue(all(32 <= len(ids) <= 1000 for requests in plan for _, _, ids in requests))
        self.assertEqual(plan, load.mixed(0))
        self.assertNotEqual(plan, load.mixed(1))

    def test_good(self):
        """A complete record passes, and so do several, with empty lines between."""
        path = self.dir / "r.jsonl"
        path.write_text(json.dumps(GOOD) + "\n\n" + json.dumps(GOOD) + "\n")
        run = self.run_check(path)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_each_field(self):
        """Without any one field, or with it empty or null, the record is refused by its name."""
        for field in GOOD:
            self.refused(json.dumps(broken(lambda r, f=field: put(r, f, None))), field)
            self.refused(json.dumps({**GOOD, field: None}), field)
            if isinstance(GOOD[field], (str, list, dict)):
                self.refused(json.dumps({**GOOD, field: type(GOOD[field])()}), field)

    def test_values(self):
        """Values that a measurement cannot have."""
        for path, value, word in (
                ("kind", "guessed", "kind"), ("level", "sse", "level"), ("threads", 0, "threads"),
                ("threads", True, "threads"), ("date", "today", "date"), ("commit", "main", "commit"),
                ("bench", "other", "bench"), ("versions.onnxruntime", "", "version"),
                ("versions.gqac", None, "version"), ("results.gqac", None, "gqac"),
                ("results.gqac.ms", 0, "ms"), ("results.gqac.rate", float("nan"), "rate"),
                ("results.onnxruntime.ratio", None, "ratio"), ("results.onnxruntime", None, "result"),
                ("calibration.before", None, "before"), ("calibration.after", {}, "after"),
                ("calibration.after", {"isa": "avx2"}, "after"), ("pairs", [PAIR] * 4, "4 pairs"),
                ("pairs", [PAIR] * 5 + [dict(PAIR, gqac_ms=[])], "times"),
                ("pairs", [PAIR] * 5 + [dict(PAIR, peer_ms=[1.0, -1.0])], "times"),
                ("pairs", [PAIR] * 5 + [dict(PAIR, peer="openvino")], "openvino"),
                ("pairs", [PAIR] * 5 + [7], "times")):
            self.refused(json.dumps(broken(lambda r: put(r, path, value))), word)

    def test_not_records(self):
        """Broken JSON, other JSON, absent and empty: refused, with the line."""
        good = json.dumps(GOOD)
        self.assertIn("r.jsonl:2:", self.refused(good + "\n{\n", "JSON"))
        for text in ("[]", "3", "{}", '"x"', good + "\n" + good[:-1]):
            self.refused(text, "r.jsonl:")
        self.assertEqual(self.run_check(self.dir / "none.jsonl").returncode, 1)


if __name__ == "__main__":
    sys.exit(harness.main())
