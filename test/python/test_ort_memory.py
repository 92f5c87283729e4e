#!/usr/bin/env python3
"""Memory of the provider for ONNX Runtime, without Python in the process: sessions in a loop,
sessions that exist when the library is unregistered and at exit, and allocations that fail.

The program is test/ort/tool_sessions.c, with the shared library of the stock onnxruntime. The
provider is built with an allocator that counts (test/ort/counted_alloc.c), so every block that a
session does not free is known. In a build with a sanitizer all of this runs with it, which also
finds objects of the runtime that the provider does not release.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import harness
from harness import Case, FULL
from test_ort_graph import made
from test_ort_parts import unknown

TOOL = Path(os.environ.get("GQAC_ORT_SESSIONS", harness.GQAC.parent / "test/tool_sessions"))
COUNTED = Path(os.environ.get("GQAC_ORT_COUNTED", harness.GQAC.parent / "test/libort_counted.so"))


def runtime():
    """The library of the installed onnxruntime; None if the package has none."""
    spec = importlib.util.find_spec("onnxruntime")
    found = sorted(Path(spec.origin).parent.glob("capi/libonnxruntime.so.*")) if spec else []
    return found[-1] if found else None


def product(*changes):
    """The bytes of a model of products, with `changes` applied to the value between them."""
    names = ["x", *(f"v{i}" for i in range(len(changes) + 1)), "y"]
    nodes = [helper.make_node("MatMul", names[:1] + ["w"], names[1:2])]
    for make, a, b in zip(changes, names[1:], names[2:]):
        nodes += make(a, b)
    nodes.append(helper.make_node("MatMul", [names[-2], "w"], ["y"]))
    weights = np.random.default_rng(1).standard_normal((512, 512), np.float32) / 23
    return made(nodes, [("x", TensorProto.FLOAT, ["N", 512])],
                [("y", TensorProto.FLOAT, ["N", 512])], [numpy_helper.from_array(weights, "w")])


class Memory(Case):
    """Each call is a separate process."""

    def setUp(self):
        super().setUp()
        self.library = runtime()
        if not self.library:
            self.skipTest("the installed onnxruntime has no library of its own")
        self.whole, self.parts = self.dir / "whole.onnx", self.dir / "parts.onnx"
        self.whole.write_bytes(product())
        self.parts.write_bytes(product(unknown))

    def tool(self, *words):
        """The output of the program, which must succeed."""
        env = os.environ | {"ASAN_OPTIONS": "detect_leaks=1"}  # also for the runtime's statuses
        done = subprocess.run([TOOL, self.library, COUNTED, *map(str, words)], env=env,
                              capture_output=True, text=True, timeout=3000, check=False)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def context(self):
        """Writes the context models of both models."""
        for model in (self.whole, self.parts):
            made_of = self.dir / ("context_" + model.name)
            self.tool("loop", 1, model, "ep.context_enable=1", f"ep.context_file_path={made_of}")
            yield made_of

    def test_peak_while_written(self):
        """A session that writes a context model has one copy of the weights at a time, 1 MiB; one
        that loads it has none."""
        written = self.dir / "c.onnx"
        peaks = [int(self.tool("peak", 1, model, *more).split()[1]) for model, more in (
            (self.whole, ()),
            (self.whole, ("ep.context_enable=1", f"ep.context_file_path={written}")),
            (written, ()))]
        print(*peaks)
        self.assertGreater(peaks[0], 1 << 20)
        self.assertLess(peaks[1], peaks[0] + (1 << 19))
        self.assertLess(peaks[2], 1 << 19)

    def test_peak_of_bytes(self):
        """A session from bytes has one copy of the weights, the packed one, whether they are in the
        bytes or in a separate file."""
        beside = self.dir / "beside.onnx"
        onnx.save(onnx.load(self.whole), beside, save_as_external_data=True, location="weights")
        self.assertLess(beside.stat().st_size, 10000)
        folder = f"session.model_external_initializers_file_folder_path={self.dir}"
        file, inside, external = (int(self.tool("peak", 1, *words).split()[1]) for words in (
            (self.whole,), (f"@{self.whole}",), (f"@{beside}", folder)))
        print(file, inside, external)
        for each in (inside, external):
            self.assertLess(abs(each - file), 1 << 19)

    def test_loop(self):
        for model in (self.whole, self.parts, *self.context()):
            self.assertIn("end", self.tool("loop", 100 if FULL else 3, model))

    def test_alive(self):
        for model in (self.whole, self.parts):
            self.assertIn("end", self.tool("alive", 3, model))

    def test_failing(self):
        """Every allocation fails, or a few of them: the session fails, or continues without the
        provider, or returns the same results."""
        for model in (self.whole, self.parts, *self.context()):
            said = self.tool("fail", 1 if FULL else 97, model)
            failed = int(said.split("failed ")[1].split(",")[0])
            self.assertGreater(failed, 3 if FULL else 0, said)
            print(said.splitlines()[-2])

    def test_failing_while_written(self):
        """The same while a context model is written: a failed session leaves no artefact."""
        folder, seen = self.dir / "written", set()
        for n in range(1, 10000, 3 if FULL else 150):
            folder.mkdir()
            said = self.tool("once", n, self.parts, "ep.context_enable=1",
                             f"ep.context_file_path={folder / 'c.onnx'}")
            made_files = sorted(file.name for file in folder.iterdir())
            seen.add(said == "end\n")
            if said == "end\n":
                self.assertIn(made_files, ([], ["c.gqac", "c.onnx", "c_2.gqac"]), n)
            else:
                self.assertEqual(made_files, [], f"{n}: {said}")
            shutil.rmtree(folder)
            if len(made_files) == 3 and n > 1000:
                break
        self.assertEqual(seen, {False, True})


if __name__ == "__main__":
    sys.exit(harness.main())
