#!/usr/bin/env python3
"""Written files: they never overwrite a file that is read, they are complete or absent, and the
result is reported at the end.

    python test/python/test_outputs.py        prints `N passed, N failed`
"""

import ctypes
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, GQAC, MODELS, gqac

IDS = MODELS / "llama" / "ref" / "ids.txt"
MIB = 1 << 20


def snapshot(folder):
    """The bytes of every file in a folder and below."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def big_model(folder, layers, size):
    """A chain of square fp32 products, with weights in a separate file."""
    nodes, weights = [], []
    for i in range(layers):
        data = np.full((size, size), 1 + i, np.float32)
        weights.append(helper.make_tensor(f"w{i}", TensorProto.FLOAT, data.shape, data.tobytes(), raw=True))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name in ("x0", f"x{layers}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    onnx.save(proto, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    return folder / "model.onnx"


def confine(code):
    """In the child: installs a seccomp filter."""
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in code))
    head = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, head, 0, 0) == 0


def refuse_nameless():
    """In the child: unnamed files are not supported, as on some network file systems: openat with
    O_TMPFILE returns EOPNOTSUPP."""
    tmpfile, openat, refused, allowed = 0o20000000, 257, 0x50000 | 95, 0x7FFF0000
    confine([(0x20, 0, 0, 0), (0x15, 0, 3, openat), (0x20, 0, 0, 32), (0x45, 0, 1, tmpfile),
             (0x06, 0, 0, refused), (0x06, 0, 0, allowed)])


def killed_at(call):
    """For the child: the first such system call kills it with SIGSYS, before anything is done."""
    kill, allowed = 0x80000000, 0x7FFF0000
    return lambda: confine([(0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, kill), (0x06, 0, 0, allowed)])


class Guard(Case):
    """No verb overwrites files that it reads or that belong to the model."""

    def setUp(self):
        super().setUp()
        self.model = self.dir / "model"
        shutil.copytree(MODELS / "llama", self.model, ignore=shutil.ignore_patterns("ref"))
        (self.model / "chat_template.jinja").write_text("{{ messages }}")
        self.ids = self.dir / "ids.txt"
        shutil.copy(IDS, self.ids)

    def refused(self, *args):
        """Exit 2, and all files are unchanged."""
        before = snapshot(self.dir)
        self.check(gqac(*args), 2, "would overwrite", "another name")
        self.assertEqual(snapshot(self.dir), before)

    def spellings(self, path):
        """Names of a file: its own, a detour, links of both kinds."""
        soft, hard = self.dir / "soft", self.dir / "hard"
        for link in (soft, hard):
            link.unlink(missing_ok=True)
        soft.symlink_to(path)
        os.link(path, hard)
        yield from (path, path.parent / ".." / path.parent.name / path.name, soft, hard)
        hard.unlink()

    def test_compile(self):
        """No file of the folder, whatever is emitted, and however the model is given."""
        names = ("model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json", "tokenizer_config.json",
                 "chat_template.jinja")
        for name in names:
            for out in self.spellings(self.model / name):
                self.refused("compile", self.model / "model.onnx", "-o", out, "--model-root", self.dir)
            self.refused("compile", self.model, "-o", self.model / name)
            if name != "model.onnx":  # its ending belongs to another form
                self.refused("compile", self.model, "--stop-after", "tidy", "--emit", "text", "-o", self.model / name)
            self.refused("compile", self.model, "--emit", "onnx", "-o", self.model / name)

    def test_form(self):
        """The ending decides the form, and --emit must not contradict it; a missing folder is
        reported at once."""
        for name, begin in (("a.onnx", b"\x08"), ("a.gq", b"graph @"), ("a.gqac", b"GQAC")):
            self.good("compile", self.model, "-o", self.dir / name, "-q")
            self.assertTrue((self.dir / name).read_bytes().startswith(begin), name)
        self.check(gqac("compile", self.model, "--emit", "text", "-o", self.dir / "b.gqac"), 2, "contradicts")
        for name in ("c.gqac", "c.gq"):
            self.check(gqac("rewrite", self.model, "--pass", "two-graph", "-o", self.dir / name), 2,
                       f"{name}' does not have the suffix of an ONNX file")
            self.assertEqual(list(self.dir.glob("c.*")), [])
        self.check(gqac("compile", self.model, "-o", "-"), 2, "not a file")
        stdout = self.dir / "stdout"  # as /dev/stdout, which must stay a link
        stdout.symlink_to("/proc/self/fd/1")
        with open(self.dir / "d.gqac", "wb") as out:
            for args in (("compile", self.model, "-o", stdout),
                         ("score", self.model, "--ids", self.ids, "--logits", stdout)):
                done = subprocess.run([GQAC, *args], stdout=out, stderr=subprocess.PIPE, env=harness.environment(),
                                      timeout=60)
                self.assertEqual(done.returncode, 5)
                self.assertIn(b"it is not a regular file", done.stderr)
        self.assertTrue(stdout.is_symlink())
        run = gqac("compile", self.model, "-v", "-o", self.dir / "none" / "b.gqac")
        self.check(run, 5, "cannot write")
        self.assertNotIn("pack", run.err)
        self.assertFalse((self.dir / "b.gqac").exists())

    def test_compile_data(self):
        """The data file that belongs to an ONNX file; weights with another name; an artefact; a
        graph."""
        (self.model / "model.onnx.data").rename(self.model / "out.onnx.data")
        proto = onnx.load(self.model / "model.onnx", load_external_data=False)
        for tensor in proto.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "out.onnx.data"
        onnx.save(proto, self.model / "model.onnx")
        self.refused("compile", self.model, "--emit", "onnx", "-o", self.model / "out.onnx")
        self.refused("score", self.model, "--ids", self.ids, "--logits", self.model / "out.onnx.data")
        made = self.dir / "a.gqac"
        self.good("compile", self.model, "-o", made)
        self.refused("compile", made, "-o", made)
        text = self.dir / "a.gq"
        self.good("compile", self.model, "--stop-after", "tidy", "--emit", "text", "-o", text)
        self.refused("compile", text, "--emit", "text", "-o", text)
        link = self.dir / "b.onnx"
        link.symlink_to(text)
        self.refused("rewrite", text, "--pass", "raise", "-o", link)

    def test_free(self):
        """A file that gqac itself wrote next to the model can be overwritten."""
        for _ in range(2):
            self.good("compile", self.model, "-o", self.model / "model.gqac")
            self.good("compile", self.model, "--stop-after", "tidy", "--emit", "text", "-o", self.model / "tidy.gq")
            self.good("compile", self.model, "--emit", "onnx", "-o", self.model / "tidy.onnx")
            self.good("score", self.model, "--ids", self.ids, "--logits", self.model / "logits.npy")

    def test_dump(self):
        """A dump that would be appended to the model."""
        path = self.model / "tokenizer.json"
        before = snapshot(self.dir)
        with open(path, "ab") as out:
            done = subprocess.run([GQAC, "compile", self.model, "--dump", "tidy"], stdout=out, stderr=subprocess.PIPE,
                                  env=harness.environment(), timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"would overwrite", done.stderr)
        self.assertEqual(snapshot(self.dir), before)

    def test_score(self):
        """The ids and the model."""
        for path in (self.ids, self.model / "model.onnx", self.model / "model.onnx.data",
                     self.model / "tokenizer.json"):
            for out in self.spellings(path):
                self.refused("score", self.model / "model.onnx", "--ids", self.ids, "--logits", out,
                             "--model-root", self.dir)

    def test_run(self):
        """Outputs over inputs, over expected outputs, and over a file through a link."""
        inputs = self.dir / "inputs"
        shutil.copytree(MODELS / "llama" / "ref" / "hybrid" / "inputs", inputs)
        run = ("run", self.model, "--inputs", inputs)
        self.good(*run, "--output", self.dir / "out")
        for _ in range(2):  # results next to the inputs are not read
            self.good(*run, "--output", inputs)
        self.refused(*run, "--expect", self.dir / "out", "--output", self.dir / "out")
        (self.dir / "other").mkdir()
        (self.dir / "other" / "logits.npy").symlink_to(inputs / "input_ids.npy")
        self.refused(*run, "--output", self.dir / "other")
        self.refused("run", self.model, "--input", f"input_ids={inputs}/input_ids.npy", "--output",
                     self.dir / "other")

    def test_rewrite(self):
        """Only a model that contains its own weights is rewritten in place."""
        for name in ("model.onnx.data", "tokenizer.json", "genai_config.json", "chat_template.jinja"):
            self.refused("rewrite", self.model / "model.onnx", "--pass", "raise", "-o", self.model / name)

    def test_full_disk(self):
        """The error names the file that could not be written, and nothing is left."""
        model = harness.ROOT / "models" / "tiny-gqa" / "model.onnx"
        traced = harness.ROOT / "test" / "traced" / "llama-no-cache" / "model.onnx"
        before = sorted(self.dir.iterdir())
        for words in (("compile", model), ("rewrite", traced, "--pass", "insert-kv")):
            out = self.dir / "out"
            done = subprocess.run(
                [str(GQAC), *map(str, words), "-o", str(out)], capture_output=True, text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
            self.assertEqual((done.returncode, sorted(self.dir.iterdir())), (5, before), done.stderr)
            self.assertIn(f"cannot write '{out}", done.stderr)
            self.assertRegex(done.stderr, rf"(?m)^  where: {re.escape(str(out))}")


class Whole(Case):
    """Files are complete or absent, and nothing else is left."""

    def wait_until_written(self, child, folder, least):
        """Waits until an open file of the child in a folder has more bytes, or the child has ended."""
        def written():
            try:
                files = list(os.scandir(f"/proc/{child.pid}/fd"))
            except OSError:  # it has ended
                return False
            for file in files:
                try:
                    if os.readlink(file.path).startswith(str(folder) + "/"):
                        return os.stat(file.path).st_size > least
                except OSError:  # it is closed
                    pass
            return False
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and child.poll() is None and not written():
            time.sleep(0.0005)

    def interrupted(self, number, prepare=None, emit="gqac"):
        """The contents of a folder after a signal ended a compilation that was writing."""
        model = big_model(self.dir, 3, 2048)
        folder = self.dir / "out"
        folder.mkdir(exist_ok=True)
        child = subprocess.Popen([GQAC, "compile", model, "--stateless", "--emit", emit, "-o", folder / "model.out"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=harness.environment(),
                                 preexec_fn=prepare)
        self.addCleanup(lambda: (child.kill(), child.communicate()))

        self.wait_until_written(child, folder, 8 * MIB)
        self.assertIsNone(child.poll())
        child.send_signal(number)
        child.wait(timeout=60)
        return child.returncode, os.listdir(folder)

    def test_signals(self):
        """Ctrl-C and SIGTERM end it cleanly, also with named temporary files."""
        for number in (signal.SIGINT, signal.SIGTERM):
            for prepare in (None, refuse_nameless):
                self.assertEqual(self.interrupted(number, prepare), (130, []))

    def test_kill(self):
        """A kill leaves nothing if unnamed files are supported and no file is replaced."""
        self.need_unnamed_files()
        self.assertEqual(self.interrupted(signal.SIGKILL), (-signal.SIGKILL, []))

    def two_files(self):
        """The name of a file in an empty folder, two models, and the bytes of their artefacts."""
        out, models, whole = self.dir / "out" / "a.gqac", [], []
        out.parent.mkdir()
        for layers in (2, 3):
            folder = self.dir / str(layers)
            folder.mkdir()
            models.append(big_model(folder, layers, 1024))
            self.good("compile", models[-1], "--stateless", "-o", folder / "a.gqac")
            whole.append((folder / "a.gqac").read_bytes())
        return out, models, whole

    def found(self, out, whole):
        """Which of the whole files `out` is, and which ones the temporary files beside it are."""
        def which(path):
            data = path.read_bytes()
            return whole.index(data) if data in whole else f"{len(data)} other bytes"
        beside = [path for path in out.parent.iterdir() if path != out]
        for path in beside:
            self.assertRegex(path.name, rf"^\.{re.escape(out.name)}\.[0-9a-f]{{8}}\.tmp$")
        return which(out), [which(path) for path in beside]

    def test_kills(self):
        """Kills at random instants, half of them soon after the first bytes are written, over an
        existing file: this is the whole old or new one. With unnamed files, only a complete file
        may be left. The next compilation ignores what is left."""
        self.need_unnamed_files()
        out, models, whole = self.two_files()
        began = time.monotonic()
        self.good("compile", models[0], "--stateless", "-q", "-o", out)
        seconds, old, kills = time.monotonic() - began, 0, 0
        seed = int(os.environ.get("GQAC_TEST_SEED", time.time_ns()))
        print(f"test_kills: seed {seed}")
        draw = random.Random(seed)
        for i in range(300 if harness.FULL else 20):
            child = subprocess.Popen([GQAC, "compile", models[1 - old], "--stateless", "-q", "-o", out],
                                     env=harness.environment(), preexec_fn=refuse_nameless if i % 2 else None)
            if i % 4 < 2:
                self.wait_until_written(child, out.parent, 0)
            time.sleep(draw.uniform(0, 0.01 if i % 4 < 2 else seconds))
            child.kill()
            code, new = child.wait(timeout=60), 1 - old
            self.assertIn(code, (0, -signal.SIGKILL))
            kills += code != 0
            old, left = self.found(out, whole)
            self.assertIn(old, (0, 1) if code else (new,), (seed, i))
            self.assertIn(left, ([], left[:1]) if i % 2 else ([], [new]), (seed, i))
            if left:
                self.good("compile", models[new], "--stateless", "-q", "-o", out)
                self.assertEqual(self.found(out, whole), (new, left), (seed, i))
                old = new
            for path in out.parent.glob(".*.tmp"):
                path.unlink()
        self.assertGreater(kills, i // 3)

    def test_killed_at_calls(self):
        """Kills just before the file is synced, linked and renamed: the old one stays, and only
        before the rename there is a new one, which is complete and has a temporary name."""
        self.need_unnamed_files()
        out, models, whole = self.two_files()
        self.good("compile", models[0], "--stateless", "-q", "-o", out)
        for call, left in ((74, []), (265, []), (264, [1])):  # fsync, linkat, renameat
            done = subprocess.run([GQAC, "compile", models[1], "--stateless", "-q", "-o", out],
                                  env=harness.environment(), preexec_fn=killed_at(call), timeout=60)
            self.assertEqual(done.returncode, -signal.SIGSYS, call)
            self.assertEqual(self.found(out, whole), (0, left), call)
        self.good("compile", models[1], "--stateless", "-q", "-o", out)
        self.assertEqual(self.found(out, whole), (1, [1]))

    def test_fallback(self):
        """With named temporary files the result is the same, with and without an older file."""
        model, out = big_model(self.dir, 2, 64), self.dir / "out"
        for prepare in (None, refuse_nameless):
            made = []
            for _ in range(2):
                done = subprocess.run([GQAC, "compile", model, "--stateless", "-o", out], capture_output=True,
                                      env=harness.environment(), preexec_fn=prepare, timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)
                made.append(out.read_bytes())
            out.unlink()
            self.assertEqual(made[0], made[1])
            self.assertEqual(len([path for path in self.dir.iterdir() if path.name.startswith(".")]), 0)

    def test_two_writers(self):
        """Two processes that write one file at the same time: it is the whole file of one of them,
        with and without named temporary files."""
        out, models, whole = self.two_files()
        for i in range(200 if harness.FULL else 12):
            children = [subprocess.Popen([GQAC, "compile", model, "--stateless", "-q", "-o", out],
                                         env=harness.environment(),
                                         preexec_fn=refuse_nameless if i % 2 else None)
                        for model in (models if i % 4 < 2 else models[::-1])]
            self.assertEqual([child.wait(timeout=60) for child in children], [0, 0])
            self.assertIn(out.read_bytes(), whole)
            self.assertEqual(os.listdir(out.parent), [out.name])
            if i % 3 == 0:  # the next two find no file
                out.unlink()


class Saved(Case):
    """The report of compile at its end, and the memory that it needs."""

    def test_line(self):
        """Size, time to open, weights and cache on stderr; nothing with -q, nothing on stdout."""
        out = self.dir / "a.gqac"
        made = self.good("compile", MODELS / "llama", "-o", out)
        self.assertEqual(made.out, "")
        self.assertRegex(made.err, rf"(?m)^gqac: saved {out}: [\d.]+ [KM]iB, opens in \d+\.\d\d s; weights [\d.]+ [KM]iB, "
                                   r"mapped; cache [\d.]+ (B|KiB) per token$")
        self.assertEqual(self.good("compile", MODELS / "llama", "-q", "-o", out).err, "")
        text = self.good("compile", MODELS / "llama", "--stop-after", "tidy", "--emit", "text", "-o", self.dir / "t.gq")
        self.assertRegex(text.err, r"^gqac: saved .*t\.gq: [\d.]+ [KM]iB\n$")

    def test_memory(self):
        """Compiling needs little more memory than the size of the file: read pages are released as
        weights are packed."""
        model = big_model(self.dir, 6, 2048)  # 96 MiB
        made = self.good("compile", model, "--stateless", "-o", self.dir / "a.gqac", memory=None)
        if not harness.SANITIZED:
            self.assertLess(made.peak, 160 * MIB, str(made))


if __name__ == "__main__":
    sys.exit(harness.main())
