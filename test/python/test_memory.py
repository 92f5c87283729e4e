#!/usr/bin/env python3
"""A model with 1.5 GB of inline weights is never in memory twice: peak memory < file size + 200 MB.

    GQAC_TEST_FULL=1 python test/python/test_memory.py      (writes and deletes 1.5 GB under TMPDIR)

The file is written by hand, field by field, so that this test needs no memory either.
"""

import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, FULL, ROOT, SANITIZED, gqac

sys.path.insert(0, str(ROOT / "test" / "corpus"))
import tiny  # noqa: E402  (needs the path)
from wire import message, node, number, value_info, varint  # noqa: E402  (needs the path)

LAYERS = 6
WIDTH = 8192  # of a [WIDTH, WIDTH] fp32 weight: 256 MiB
SLACK = 200 * 1000 * 1000
SMALL = 512


def weight_head(i, width):
    """Everything of an initialiser except its data, with the total length."""
    head = number(1, width) + number(1, width) + number(2, 1) + message(8, f"w{i}")
    data = 4 * width * width
    head += varint(9 << 3 | 2) + varint(data)
    return varint(5 << 3 | 2) + varint(len(head) + data) + head, data


def write_model(path, layers, width):
    """Streams the model to the file; returns its size."""
    heads = [weight_head(i, width) for i in range(layers)]
    first = message(2, "large")
    for i in range(layers):
        first += node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"])
    last = value_info(11, "x0", width) + value_info(12, f"x{layers}", width)
    graph = len(first) + sum(len(h) + n for h, n in heads) + len(last)
    block = os.urandom(1 << 20)
    with open(path, "wb") as f:
        f.write(number(1, 10) + message(8, message(1, ""), number(2, 17)))
        f.write(varint(7 << 3 | 2) + varint(graph) + first)
        for head, data in heads:
            f.write(head)
            for _ in range(data >> 20):
                f.write(block)
        f.write(last)
        return f.tell()


class Memory(Case):
    """Peak memory of verbs that only read."""

    def peaks(self, layers, width):
        """Runs verbs that only read; every peak stays below size + SLACK."""
        path = self.dir / "large.onnx"
        size = write_model(path, layers, width)
        runs = (("inspect", path, "--format", "json"),
                ("compile", path, "--stop-after", "import", "--dump", "import"))
        for args in runs:
            result = self.check(gqac(*args, seconds=300), 0)
            print(f"{args[0]}: file {size / 1e6:.0f} MB, peak {result.peak / 1e6:.0f} MB, "
                  f"{result.seconds:.1f} s")
            if not SANITIZED:
                self.assertLess(result.peak, size + SLACK, str(result))
            self.assertIn("MatMul", result.out)
        path.unlink()

    def test_small(self):
        """The same with small weights: the model from the writer above is valid."""
        self.peaks(LAYERS, SMALL)

    @unittest.skipIf(SANITIZED, "a sanitizer keeps pages of its own")
    def test_table_is_not_held(self):
        """A table that is stored in an artefact as in the file is never in memory as a whole."""
        peaks = []
        for rows in (16, 1 << 14):  # of 4 KiB
            path = self.dir / f"table{rows}.onnx"
            onnx.save(tiny.model([helper.make_node("Gather", ["table", "ids"], ["y"])],
                                 [tiny.info("ids", TensorProto.INT64, ["N"])],
                                 [tiny.info("y", shape=["N", 1024])],
                                 [tiny.tensor("table", np.ones((rows, 1024), np.float32))]),
                      path, save_as_external_data=True, location=f"{rows}.data")
            result = self.check(gqac("compile", path, "--stateless", "-o", self.dir / f"{rows}.gqac"), 0)
            self.assertGreater((self.dir / f"{rows}.gqac").stat().st_size, rows << 12)
            peaks.append(result.peak)
        print(f"compile: peaks {peaks[0] >> 20} and {peaks[1] >> 20} MiB")
        self.assertLess(peaks[1], peaks[0] + (16 << 20))

    @unittest.skipUnless(FULL and not SANITIZED, "long tier")
    def test_large(self):
        """1.5 GB of weights."""
        room = shutil.disk_usage(tempfile.gettempdir()).free
        if room < 4 << 30:
            self.skipTest(f"{room >> 20} MiB free under {Path(tempfile.gettempdir())}")
        self.peaks(LAYERS, WIDTH)


if __name__ == "__main__":
    sys.exit(harness.main())
