#!/usr/bin/env python3
"""--math bf16 on tensor cores, with or without a GPU.

    python test/python/test_tensor.py

The libraries of test/cuda replace NVIDIA's, and the kernels run in the emulator
(test/cuda/emulator.h): whole models with the driver, programs and arguments of CUDA. In fp32 they
compute the bytes of cpu, which shows that the emulator is correct. If device 0 is a CUDA device,
larger products also run on it.
"""

import json
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
from onnx import TensorProto

import harness
import test_gpu
from harness import MODELS, ROOT, Case, write_ids
from test_cuda import Cuda

CC = os.environ.get("CC", "cc")
BF16 = ("--target", "gpu", "--math", "bf16")
BOUND = 5e-2  # as in test_bf16.py


def has_tensor_cores():
    """True if device 0 is a CUDA device."""
    found = harness.gqac("devices", "--format", "json")
    return found.code == 0 and found.json()[0]["driver"] == "cuda" and found.json()[0]["usable"]


class Checks:
    """Properties that hold on every device; run_device runs gqac on one."""

    K, N, ROWS = 1100, 43, 20
    PARTS = ((0, 1), (4, 3), (9, 1))  # first row and number of rows
    TOKENS = 20
    # type of rows, size of heads, kind of cache, options of the layer, tokens
    LAYERS = (("f16", 64, "contiguous", {"attrs": ", local_window_size=9", "sink": True}, 80),
              ("f32", 48, "contiguous", {"attrs": ", softcap=2.0"}, 30),
              ("bf16", 128, "quantised", {}, 20),
              ("f32", 96, "quantised4", {"sink": True}, 20))

    def equal(self, model, *flags, tokens=None, late=False, **env):
        """The report of `equiv`, which finds no difference."""
        tokens = tokens or self.TOKENS
        done = self.run_device("equiv", MODELS / model, *flags, "--tokens", tokens, "--splits",
                               tokens - 3, "--format", "json", late=late, **env)
        self.check(done, 0)
        self.assertGreater(done.json()["compared"], 0)
        return done.json()

    def logits(self, *flags, model="llama", kv="contiguous", run=None, **env):
        """The logits of 20 tokens, computed 17 and 3 at a time."""
        ids, out = write_ids(self.dir / "ids", range(3, 23)), self.dir / "logits.npy"
        words = ("score", MODELS / model, "--ids", ids, "--logits", out, "--splits", "17", "--kv",
                 kv, *flags)
        self.check((run or self.run_device)(*words, **env), 0)
        return np.load(out)

    def test_equiv(self):
        """A row has the same bits in decode, among few rows, and in tiles of many."""
        for model, late in (("llama-int4-acc1", False), ("llama-fp16", True)):
            found = self.equal(model, *BF16, "--batch", 2, late=late)
            self.assertRegex(found["profile"], r"/gpu/bf16\.sm_\d+/")

    def test_near_cpu(self):
        """The numbers are close to those of cpu in this mode, and differ from those of fp32."""
        found = self.logits(*BF16)
        self.close(found, self.logits("--math", "bf16", run=harness.gqac), BOUND)
        self.assertFalse((found == self.logits(run=harness.gqac)).all())

    def test_attention(self):
        """Attention alone: each kind of rows, features and sizes of heads; close to cpu."""
        for i, (dtype, size, kind, options, tokens) in enumerate(self.LAYERS):
            with self.subTest(dtype=dtype, size=size, kind=kind):
                path = self.dir / f"{i}.gq"
                path.write_text(test_gpu.layer(dtype, size, 6, 2, **options))
                found = self.equal(path, *BF16, "--batch", 2, "--kv", kind, tokens=tokens,
                                   late=i % 2 == 1)
                self.assertRegex(found["profile"], r"/gpu/bf16\.sm_\d+/")
                self.close(self.logits(*BF16, model=path, kv=kind),
                           self.logits("--math", "bf16", model=path, kv=kind, run=harness.gqac),
                           BOUND)

    def test_products(self):
        """Pieces of K, numbers of columns that are not a multiple of a block, each type; NaN
        affects only its row."""
        rng = np.random.default_rng(11)
        for kind in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16):
            w = rng.standard_normal((self.K, self.N)).astype(np.float32)
            x = rng.standard_normal((self.ROWS, self.K)).astype(np.float32)
            x[5, 7], x[9, self.K - 1] = np.nan, np.inf
            y = self.y(kind, w, x)
            self.assertTrue(np.isnan(y[5]).all())
            expected = np.delete(x, (5, 9), 0).astype(np.float64) @ w
            self.close(np.delete(y, (5, 9), 0), expected, BOUND)
            for first, n in self.PARTS:
                self.assertEqual(self.y(kind, w, x[first:first + n]).tobytes(),
                                 y[first:first + n].tobytes(), (kind, first, n))

    def y(self, kind, w, x):
        """x times w on the device."""
        path = test_gpu.Products.linear(self, kind, w, len(x))
        np.save(self.dir / "a.npy", x)
        self.check(self.run_device("run", path, "--input", f"a={self.dir / 'a.npy'}", "-q",
                                   "--output", self.dir / "y", *BF16), 0)
        return np.load(self.dir / "y" / "y.npy")


@unittest.skipUnless(has_tensor_cores(), "device 0 is not one of CUDA")
class Device(Checks, Case):
    """A real device."""

    K, N, ROWS = 4864, 904, 300
    PARTS = ((0, 1), (4, 3), (7, 16), (9, 1), (3, 17), (100, 128), (299, 1))
    TOKENS = 300

    @staticmethod
    def run_device(*words, late=False):
        """A finished run; only the emulator uses its second way."""
        del late
        return harness.gqac(*words)


@unittest.skipUnless(shutil.which(CC), f"there is no C compiler {CC}")
@unittest.skipIf(harness.SANITIZED, "a sanitizer does not know the emulator's contexts")
class Emulated(Checks, Cuda):
    """A device emulated by the CPU. Its kernels are compiled once for all tests."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kernels = Path(tempfile.mkdtemp(prefix="gqac-emulated-"))
        cls.addClassCleanup(shutil.rmtree, cls.kernels)

    def run_device(self, *words, late=False, **env):
        """A finished run."""
        emulator = ROOT / "test" / "cuda" / "emulator.h"
        return self.cuda(*words, **{
            "FAKE_CUDA_CC": f"{CC} -DGQAC_EMULATOR='\"{emulator}\"' -I'{ROOT / 'src'}'",
            "FAKE_NVRTC": str(self.kernels), "GQAC_CACHE": str(self.kernels),
            "GQAC_CUDA_GRAPHS": "off", **({"FAKE_CUDA_LATE": "1"} if late else {}), **env})[0]

    def test_bits_of_cpu(self):
        """In fp32 the emulator computes the same as a device."""
        for late in False, True:
            self.equal("llama", "--target", "gpu", "--against", "cpu", late=late)

    def test_control(self):
        """`equiv` detects it if a single row has other factors, or a row uses the maximum of other
        rows."""
        words = ("equiv", MODELS / "llama", *BF16, "--tokens", 20, "--splits", "17")
        for control in "BF16_BY_ROWS", "GPU_WARP_MAXIMUM":
            tool, harness.GQAC = harness.GQAC, harness.CONTROLS / control
            try:
                done = self.run_device(*words)
            finally:
                harness.GQAC = tool
            self.check(done, 1)

    def test_profile(self):
        """The bits of a device without tensor cores are those of fp32, and are never mixed with
        these."""
        path = self.dir / "c.json"
        proof = ("equiv", MODELS / "llama", *BF16, "--tokens", 6, "--splits", "3",
                 "--certificate", path)
        self.check(self.run_device(*proof), 0)
        self.assertIn("/gpu/bf16.sm_90/", json.loads(path.read_text())["profile"])
        self.check(self.run_device(*proof), 0)
        self.check(self.run_device(*proof, FAKE_CUDA_MAJOR="7"), 1, "another numerics profile")
        plain = self.logits("--target", "gpu")
        old = self.logits(*BF16, FAKE_CUDA_MAJOR="7")
        self.assertEqual(old.tobytes(), plain.tobytes())


if __name__ == "__main__":
    sys.exit(harness.main())
