#!/usr/bin/env python3
"""Compiled kernels of target gpu on disk, among processes that are killed and that start at the same
time.

    python test/python/test_kernel_cache.py      (GQAC_TEST_FULL=1: 300 killed processes)
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

import harness
from harness import FULL, GQAC, MODELS, Case

NO_DEVICE = harness.gqac("devices").code != 0


# Reason of the skip: kernels are compiled for a device.
@unittest.skipIf(NO_DEVICE, "no device of OpenCL")
class Shared(Case):
    """Processes with one folder of kernels. What PoCL itself keeps is complete before any is
    killed."""

    def setUp(self):
        super().setUp()
        self.kernels = self.dir / "kernels"
        self.env = {"GQAC_CACHE": str(self.kernels)}
        self.expected = self.bits("first.npy")
        self.names = os.listdir(self.kernels)
        self.assertEqual(len(self.names), 1)

    def command(self, out, target="gpu"):
        return ["score", MODELS / "llama", "--ids", MODELS / "llama" / "ref" / "ids.txt", "--target",
                target, "--logits", self.dir / out, "-q"]

    def bits(self, out):
        """The logits of a process that ends."""
        self.good(*self.command(out), env=self.env)
        return (self.dir / out).read_bytes()

    def start(self, out):
        child = subprocess.Popen([str(GQAC), *map(str, self.command(out))],
                                 stdout=subprocess.DEVNULL, env=harness.environment(self.env))
        self.addCleanup(lambda: (child.kill(), child.wait()))
        return child

    def test_cpu(self):
        """The expected bits are those of cpu."""
        self.good(*self.command("cpu.npy", "cpu"))
        self.assertEqual((self.dir / "cpu.npy").read_bytes(), self.expected)

    def test_killed(self):
        """A process is killed at any time; the next one has the right bits, and only whole kernels
        are kept."""
        self.need_unnamed_files()
        draw = random.Random(5)
        shutil.rmtree(self.kernels)
        begun = time.monotonic()
        self.assertEqual(self.start("killed.npy").wait(), 0)
        most, kept = time.monotonic() - begun, []
        while len(kept) < (300 if FULL else 20) or (len(set(kept)) < 2 and len(kept) < 300):
            shutil.rmtree(self.kernels, ignore_errors=True)
            child = self.start("killed.npy")
            time.sleep(draw.uniform(0, most))
            child.send_signal(signal.SIGKILL)
            child.wait()
            found = os.listdir(self.kernels) if self.kernels.exists() else []
            self.assertIn(found, ([], self.names))
            kept.append(bool(found))
            most *= 0.9 if found else 1.1  # so that about half of them are kept
            self.assertEqual(self.bits("next.npy"), self.expected)
            self.assertEqual(os.listdir(self.kernels), self.names)
        self.assertEqual(set(kept), {False, True})

    def test_at_once(self):
        """Several processes find no kernels and keep theirs at the same time."""
        for _ in range(50 if FULL else 4):
            shutil.rmtree(self.kernels)
            children = [self.start(f"{i}.npy") for i in range(4)]
            self.assertEqual([child.wait() for child in children], [0] * 4)
            for i in range(4):
                self.assertEqual((self.dir / f"{i}.npy").read_bytes(), self.expected)
            self.assertEqual(os.listdir(self.kernels), self.names)
            self.assertEqual(self.bits("next.npy"), self.expected)


if __name__ == "__main__":
    sys.exit(harness.main())
