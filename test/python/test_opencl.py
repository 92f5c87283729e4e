#!/usr/bin/env python3
"""The OpenCL driver of target gpu, with checks of its memory.

    python test/python/test_opencl.py

The library of test/opencl is between gqac and the real loader. It puts bands around the memory of
the device, fills new memory with NaN, counts unreleased objects, and makes one call fail.
"""

import ctypes
import hashlib
import os
import random
import re
import struct
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

import harness
from harness import FULL, MODELS, Case, sample

WATCHED = os.environ.get("GQAC_WATCHED_OPENCL", str(harness.GQAC.parent / "test" / "watched_opencl"))
IDS = " ".join(str(7 * i % 31) for i in range(70))
CALLS = ("clGetPlatformIDs", "clGetDeviceIDs", "clGetDeviceInfo", "clCreateContext",
         "clCreateCommandQueue", "clCreateProgramWithBinary", "clBuildProgram", "clCreateKernel",
         "clSetKernelArg", "clCreateBuffer", "clEnqueueWriteBuffer", "clEnqueueReadBuffer",
         "clEnqueueNDRangeKernel", "clFinish")
OPS = ("Gather", "MatMul", "take_rows", "MatMulNBits", "MoE", "QMoE", "rotary", "attention", "TopK")
GRAPH, WEIGHTS = 1, 3  # sections of an artefact
MUST_FAIL = ("clEnqueueNDRangeKernel", "clEnqueueReadBuffer", "clEnqueueWriteBuffer",
             "clSetKernelArg", "clFinish")


def real_library():
    """The path of the OpenCL loader; None if there is none, or no device."""
    if harness.gqac("devices").code or not Path(WATCHED, "libOpenCL.so.1").exists():
        return None
    try:
        ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return None
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libOpenCL.so" in line:
            return line.split()[-1]
    return None


REAL = real_library()


@unittest.skipUnless(REAL, "no device of OpenCL")
class Watched(Case):
    """Runs of gqac with the watching library."""

    def setUp(self):
        super().setUp()
        (self.dir / "ids.txt").write_text(IDS)

    def score(self, model, target="gpu", splits="3,63,1,1", **env):
        """A finished run with a prompt of a block and six tokens, and decode; and the report of the
        library."""
        log, out = self.dir / "log", self.dir / "out.npy"
        log.unlink(missing_ok=True)
        out.unlink(missing_ok=True)
        done = harness.gqac("score", model, "--target", target, "--ids", self.dir / "ids.txt",
                            "--splits", splits, "--logits", out, env={
                                "LD_LIBRARY_PATH": WATCHED, "WATCH_OPENCL": REAL,
                                "WATCH_LOG": str(log), "GQAC_CACHE": str(self.dir / "cache"), **env})
        self.assertGreaterEqual(done.code, 0, done)
        seen = dict(line.partition(" ")[::2] for line in log.read_text().splitlines()) \
            if target == "gpu" and log.exists() else {}
        return done, seen, np.load(out).tobytes() if done.code == 0 else b""

    def test_bands(self):
        """No kernel writes outside its memory or reads memory that was never written."""
        for name in sorted(p.name for p in MODELS.iterdir() if (p / "model.onnx").exists()):
            with self.subTest(name):
                done, seen, got = self.score(MODELS / name)
                self.assertEqual(done.code, 0, done)
                self.assertEqual((seen["left"], seen["broken"]), ("0", "0"), seen)
                self.assertGreater(int(seen["calls"]), 100)
                self.assertEqual(got, self.score(MODELS / name, "cpu")[2])

    def test_memory(self):
        """The device memory that `inspect --memory` reports is what a run takes, except scratch."""
        for name in ("llama", "llama-int4-acc4", "gpt-oss", "qwen3", "qwen3.5", "lfm2"):
            with self.subTest(name):
                said = self.good("inspect", MODELS / name, "--target", "gpu", "--memory", 68,
                                 "--format", "json").json()["memory"]
                took = int(self.score(MODELS / name)[1]["most"])
                self.assertLess(said["device_decode"], said["device_prefill"])
                if name == "llama":  # layers share the tables of positions
                    self.assertLess(said["device_weights"], 1.01 * said["weights"])
                together = sum(said[f"device_{k}"] for k in ("weights", "kv", "prefill"))
                self.assertGreater(together, 0.9 * took)
                self.assertLess(together, 1.2 * took)
        of_kind = {kind: self.good("inspect", MODELS / "llama", "--target", "gpu", "--memory", 68,
                                   "--kv", kind, "--format", "json").json()["memory"]
                   for kind in ("contiguous", "quantised", "quantised4")}
        rows = of_kind["contiguous"]
        for kind, said in of_kind.items():  # the device stores the codes of the host
            self.assertEqual(said["device_kv"] * rows["kv"], rows["device_kv"] * said["kv"], kind)
        self.assertLess(of_kind["quantised"]["device_kv"], 0.3 * rows["device_kv"])

    def test_copies(self):
        """A step reads twice, logits and new rows, and writes lists that all layers share. Between
        projections and attention, and between the products of an MLP, there is one launch."""
        lists = {"llama": 5, "qwen3": 5, "gemma2": 6}  # ids, positions, new rows, keys, last row
        launches = {"qwen3": 1 + 2 * 10 + 3}  # embedding, layers, norm, last row, logits
        for name, writes in lists.items():
            for call, wanted in (("clEnqueueReadBuffer", 2), ("clEnqueueWriteBuffer", writes),
                                 ("clEnqueueNDRangeKernel", launches.get(name))):
                if wanted is None:
                    continue
                calls = [int(self.score(MODELS / name, splits=s, WATCH_CALL=call)[1]["calls"])
                         for s in ("3,63,2", "3,63,1,1")]
                with self.subTest(name, call=call):
                    self.assertEqual(calls[1] - calls[0], wanted)

    def test_bands_break(self):
        """Negative control: bands that begin within the memory are reported as broken."""
        self.assertGreater(int(self.score(MODELS / "llama", WATCH_SHORT="4")[1]["broken"]), 10)

    def rows(self, op, **env):
        """A finished run of the hostile graphs of an op, in which a broken band is a failure."""
        program = harness.GQAC.parent / "test" / "test_hostile_op_rows"
        return subprocess.run([program, "rows of gpu"],
                              env={**os.environ, "LD_LIBRARY_PATH": WATCHED, "WATCH_OPENCL": REAL,
                                   "WATCH_ABORT": "1", "ROWS_ONLY": op,
                                   "GQAC_CACHE": str(self.dir / "cache"), **env},
                              capture_output=True, text=True, check=False)

    def test_hostile_rows(self):
        """Weights, indices and shapes that are nearly valid: no kernel accesses memory outside its
        own."""
        for op in OPS if FULL else OPS[:3]:
            with self.subTest(op):
                done = self.rows(op)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertNotIn(" 0 graphs computed", done.stdout)
        self.assertIn("Aborted", self.rows("Gather", WATCH_SHORT="4").stdout)

    def damaged(self, whole, rng):
        """An artefact with other numbers, types or names in its graph, or other bytes in small
        constants and weights; its checksums are correct."""
        data = bytearray(whole)
        start, length = (struct.unpack_from("<Q", data, 64 + 192 * GRAPH + at)[0] for at in (128, 136))
        text = bytes(data[start:start + length])
        words = [m for m in re.finditer(rb"(?<![\w.])\d{1,6}(?![\w.])|\b(?:f32|f16|i32|i64|u8)\b"
                                        rb"|axis|scale|bits|block_size", text)]
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at, end = rng.choice(words).span()
            old = text[at:end].decode()
            new = rng.choice(("f32", "f16", "i32", "i64", "u8 ")) if old[:1] in "fiu" else \
                "".join(rng.choice("0123456789") for _ in old) if old.isdigit() else old[::-1]
            if len(new) == end - at:
                data[start + at:start + end] = new.encode()
        weights, size = (struct.unpack_from("<Q", data, 64 + 192 * WEIGHTS + at)[0] for at in (128, 136))
        for _ in range(rng.choice((0, 0, 40))):
            data[weights + rng.randrange(size)] = rng.randrange(256)
        for section, (begin, n) in {GRAPH: (start, length), WEIGHTS: (weights, size)}.items():
            row = 64 + 192 * section
            data[row + 160:row + 192] = hashlib.sha256(data[begin:begin + n]).digest()
        sections, = struct.unpack_from("<I", data, 24)
        data[32:64] = bytes(32)
        data[32:64] = hashlib.sha256(data[:64 + 192 * sections]).digest()
        return bytes(data)

    def test_hostile_artefacts(self):
        """Artefacts with correct checksums and an invalid graph are refused, or run without
        accessing memory outside their own."""
        rng, ran, refused = random.Random(31), 0, 0
        path, bad = self.dir / "m.gqac", self.dir / "bad.gqac"
        models = ["qwen3", "llama-int4-acc4", "gpt-oss", "llama-fp16"] if FULL else ["qwen3"]
        for name in models:
            self.good("compile", MODELS / name, "--target", "gpu", "-o", path)
            whole = path.read_bytes()
            self.assertEqual(self.damaged(whole, random.Random(0)) == whole, False)
            for _ in range(250 if FULL else 8):
                bad.write_bytes(self.damaged(whole, rng))
                done, seen, _ = self.score(bad, WATCH_ABORT="1")
                self.assertIn(done.code, (0, 3, 4), done)
                if seen:
                    self.assertEqual((seen["left"], seen["broken"]), ("0", "0"), seen)
                ran += done.code == 0
                refused += done.code != 0
                if done.code:
                    self.assertIn("gqac: ", done.err)
        self.assertGreater(ran, 0)
        self.assertGreater(refused, ran)

    def test_failures(self):
        """One call fails: a message and its exit code, or the correct result nevertheless; nothing
        is leaked."""
        _, seen, right = self.score(MODELS / "llama")
        calls = int(seen["calls"])
        for n in sample(range(1, calls + 1 if FULL else 60), 3):
            self.one_failure(right, WATCH_FAIL=str(n))
        for name in CALLS:
            for n in sample((1, 2, 7, 40), 2):
                self.one_failure(right, WATCH_FAIL=str(n), WATCH_CALL=name)

    def one_failure(self, right, **env):
        """A run in which one call fails, if there are that many."""
        done, seen, got = self.score(MODELS / "llama", **env)
        with self.subTest(env, failed=seen["failed"]):
            self.assertIn(done.code, (0, 4, 77), done)
            self.assertEqual((seen["left"], seen["broken"]), ("0", "0"), seen)
            if done.code == 0:
                self.assertEqual(got, right)
            else:
                self.assertIn("gqac: ", done.err)
            if seen["failed"] in MUST_FAIL:
                self.assertNotEqual(done.code, 0, "a call that failed is not noticed")
            if env["WATCH_FAIL"] == "1" and "WATCH_CALL" in env:
                self.assertEqual(seen["failed"], env["WATCH_CALL"])


if __name__ == "__main__":
    sys.exit(harness.main())
