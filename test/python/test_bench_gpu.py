#!/usr/bin/env python3
"""./dev bench gpu: the command line of each engine, the numbers computed from its times, and a run.

    python test/python/test_bench_gpu.py        GQAC names the binary
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

import harness
from harness import FULL, Case, ROOT
from test_cuda import FAKE

sys.path.insert(0, str(ROOT / "bench"))
import device_memory  # noqa: E402
import engines  # noqa: E402
import gpu  # noqa: E402
import models  # noqa: E402
import records  # noqa: E402

ROWS = {row.name: row for row in gpu.rows_of("1.5b")}


class Driver(Case):
    """Parts that need no device."""

    def setUp(self):
        super().setUp()
        home = mock.patch.object(models, "HOME", self.dir / "made")
        home.start()
        self.addCleanup(home.stop)

    def words(self, name, engine, rows=None):
        """The arguments of an engine for a row of the small model, without paths."""
        row = {r.name: r for r in gpu.rows_of("tiny")}[name]
        return {w for w in gpu.OnDevice(row, 2).words(engine) if "/" not in w}

    def test_words(self):
        """gqac gets its target and device, and computes one row of logits; peers get a device
        too."""
        own = self.words("attention-decode-x2@192-f16", "gpu")
        self.assertLessEqual({"target=gpu", "device=2", "logits=1", "batch=2", "past=191"}, own)
        self.assertEqual(own - {"target=gpu", "device=2"},
                         self.words("attention-decode-x2@192-f16", "gqac"))
        self.assertIn("provider=CUDAExecutionProvider",
                      self.words("tiny-f16-hybrid-8@32", "onnxruntime"))
        for name, row in ROWS.items():
            self.assertEqual(row.peers, ("torch-device",) if "attention" in name else
                             ("onnxruntime", "torch-device") if "f16" in name else ("llama.cpp",),
                             name)
        self.assertIn("math=bf16", self.words("tiny-f16-decode@64-bf16", "torch-device"))

    def test_bytes(self):
        """A decode step reads the caches of all sequences, in their type, and the weights once."""
        def read(name):
            return gpu.OnDevice(ROWS[name], 0).bytes_read()
        self.assertEqual(read("attention-decode-x16@16384-f16"), 16 * 2 * 8 * 16384 * 128 * 2)
        self.assertEqual(read("attention-decode-x16@16384"), 2 * 16 * 2 * 8 * 16384 * 128 * 2)
        cache = 8 * 2 * 28 * 2 * 128 * 513
        self.assertEqual(read("1.5b-f16-decode-x8@512"), 2 * (models.weights("1.5b") + cache))
        self.assertEqual(read("1.5b-int4-decode-x8@512"), 0.625 * models.weights("1.5b") + 4 * cache)
        self.assertIsNone(read("1.5b-f16-prefill-2048"))

    def test_summary(self):
        """The median of the samples, its share of the rate of copies, and the ratio to a peer."""
        on = gpu.OnDevice(ROWS["attention-decode-x16@16384-f16"], 0)
        samples = {"gpu": [[1.0, 3.0, 2.0], [9.0, 2.0]], "onnxruntime": [[8.0], [7.0]]}
        found = gpu.summary(on, samples, 500.0)
        gbps = on.bytes_read() / 3.75e-3 / 1e9
        self.assertEqual(found["gpu"], {"ms": 3.75, "min_ms": 1.0, "gbps": gbps,
                                        "tokens_per_second": 16e3 / 3.75,
                                        "share_of_copy": gbps / 500})
        self.assertEqual(found["onnxruntime"]["ratio"], 2.0)

    def test_copy_of_cuda(self):
        """The calls of the CUDA driver are correct, and nothing is leaked."""
        log = self.dir / "log"
        subprocess.run([sys.executable, "-c", "import device_memory; "
                        "print(device_memory.copy_gbps([{'driver': 'cuda'}], 0, 1 << 20))"],
                       check=True, cwd=ROOT / "bench", stdout=subprocess.DEVNULL,
                       env={**os.environ, "LD_LIBRARY_PATH": FAKE, "FAKE_CUDA_LOG": str(log)})
        seen = dict(line.partition(" ")[::2] for line in log.read_text().splitlines())
        self.assertEqual([seen[k] for k in ("left", "current", "bad", "syncs")], ["0", "0", "0", "2"])
        self.assertGreater(int(seen["calls"]), device_memory.COPIES)


@unittest.skipUnless(harness.has_device(), "there is no OpenCL device")
class Run(Case):
    """The driver on a device."""

    def run_driver(self, *words):
        """(exit code, output) of the driver."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = gpu.main([*words, "--size", "tiny"])
        return code, out.getvalue()

    def test_no_time(self):
        """Copies are measured; no row begins after the time is over, and each omitted row is
        named."""
        code, out = self.run_driver("--seconds", "0")
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"device 0: .*opencl.*; a copy moves \d+ GB/s")
        self.assertEqual(out.count("not measured: 0 s are over"), len(gpu.rows_of("tiny")))
        self.assertEqual(self.run_driver("--device", "99")[0], 77)

    @unittest.skipUnless(FULL, "the long tier: it compiles the worker")
    def test_rows(self):
        """Rows of a small model are measured and recorded; bits that differ from those of cpu are
        detected."""
        worker, library = self.dir / "worker", harness.GQAC.parent / "libgqac.a"
        libraries = subprocess.run(["pkg-config", "--libs", "libprotobuf-c", "libmd", "jansson",
                                    "libutf8proc"], check=True, capture_output=True, text=True)
        subprocess.run(["cc", "-std=gnu11", ROOT / "bench" / "worker_gqac.c", f"-I{ROOT}/include",
                        "-o", worker, library, *libraries.stdout.split(), "-lpthread", "-lm"],
                       check=True)
        file = self.dir / "r.jsonl"
        names = ["attention-decode-x2@192-f16", "tiny-f16-hybrid-8@32", "tiny-int4-decode@64"]
        with mock.patch.dict(engines.COMMANDS, {"gpu": [worker], "gqac": [worker]}), \
                mock.patch.object(models, "HOME", self.dir / "made"):
            code, out = self.run_driver("--only", ",".join(names), "--out", str(file), "--pairs", "1")
            self.assertEqual(code, 0, out)
            with mock.patch.object(engines, "difference", lambda gqac, cpu: 1e-7):
                code, out = self.run_driver("--only", names[0], "--pairs", "1")
            self.assertEqual(code, 1)
            self.assertIn("WRONG: it differs from target cpu", out)
        self.assertEqual(records.check_lines(file.read_text(), "r"), [])
        found = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertEqual([(r["row"], r["difference"]) for r in found], [(n, 0) for n in names])
        self.assertIn("/gpu/", found[0]["profile"])


if __name__ == "__main__":
    sys.exit(harness.main())
