#!/usr/bin/env python3
"""The execution provider for ONNX Runtime: libgqac_ort.so in the stock onnxruntime.

Sessions must compute the bits of `gqac run` on the same inputs.
"""

import concurrent.futures
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, FULL, MODELS, ROOT, gqac, model
from ort_sessions import (ALL, LIBRARY, NAME, SHORT, Sessions, calls, mixing, read, session, since,
                          start, warnings)


class Bits(Sessions):
    """Sessions compared with `gqac run`."""

    def test_models(self):
        """Stored calls, optimised or not; a session runs calls of several shapes one after
        another."""
        compared = 0
        for name in ALL if FULL else SHORT:
            stored = calls(name)
            expected = [self.expected(name, call) for call in stored]
            for optimise in (False, True):
                opened = session(str(model(name)), optimise)
                for call, outputs in zip(stored, expected, strict=True):
                    self.same(opened, read(call / "inputs"), outputs, f"{name} {call}")
                    compared += len(outputs)
        self.assertGreater(compared, 40)

    def crowd(self, name, opened):
        """Each session of the list runs stored calls of the model in a thread of its own."""
        wrong = []
        stored = [call for call in calls(name) if call.name in ("prefill", "hybrid", "decode")]
        expected = [self.expected(name, call) for call in stored]
        feeds = [read(call / "inputs") for call in stored]

        def work(at):
            try:
                for i in range(12 if FULL else 4):
                    k = (i + at) % len(stored)
                    self.same(opened[at], feeds[k], expected[k], stored[k])
            except Exception as error:  # noqa: BLE001, reported by the thread of the test
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(opened))]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(wrong, [])

    def test_threads(self):
        """Four threads that run one session at the same time, with one and with shared threads."""
        for threads in (1, 2):
            self.crowd("llama", 4 * [session(str(model("llama")), threads=threads)])

    def test_threads_of_the_runtime(self):
        """The same bits on ONNX Runtime's threads, to which gqac adds none; two runs at the same
        time."""
        def slept(tasks):
            """How often each of these threads has gone to sleep."""
            texts = [Path(f"/proc/self/task/{task}/status").read_text() for task in tasks]
            return [int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)[1])
                    for text in texts]

        session(str(model("llama")), intra=1)  # starts other threads
        before = set(os.listdir("/proc/self/task"))
        opened = session(str(model("llama")), threads="runtime", intra=4,
                         settings={"session.intra_op.allow_spinning": "0"})
        more = set(os.listdir("/proc/self/task")) - before
        self.assertEqual(len(more), 3)
        while not all(slept(more)):
            time.sleep(0.1)
        idle = slept(more)
        time.sleep(0.5)
        self.assertEqual(slept(more), idle)
        for _ in range(20):
            self.crowd("llama", 2 * [opened])
            if slept(more) != idle:
                break
        self.assertNotEqual(slept(more), idle)
        self.crowd("llama", [session(str(model("llama")), threads="runtime", intra=1)])

    def test_two_sessions(self):
        """Two sessions of one model, each created and run in its own thread."""
        for source in (str(model("llama")), onnx.load(model("llama")).SerializeToString()):
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                opened = list(pool.map(lambda n, s=source: session(s, threads=n), (1, 2)))
            self.crowd("llama", opened)

    def test_in_place(self):
        """A present bound to the memory of its past: the new row is written into it."""
        ort, opened = start(), session(str(model("llama")))
        feeds = read(MODELS / "llama" / "ref" / "static" / "inputs")
        expected = self.expected("llama", MODELS / "llama" / "ref" / "static")
        binding = opened.io_binding()
        kept = {}
        for name, value in feeds.items():
            kept[name] = ort.OrtValue.ortvalue_from_numpy(value.copy())
            binding.bind_ortvalue_input(name, kept[name])
            if name.startswith("past_key_values"):
                binding.bind_ortvalue_output(name.replace("past_key_values", "present"),
                                             kept[name])
        binding.bind_output("logits")
        opened.run_with_iobinding(binding)
        self.assertEqual(binding.get_outputs()[-1].numpy().tobytes(), expected["logits"].tobytes())
        for name, value in kept.items():
            if name.startswith("past_key_values"):
                present = expected[name.replace("past_key_values", "present")]
                self.assertEqual(value.numpy().tobytes(), present.tobytes(), name)

    def test_terminate(self):
        """A run that is terminated by its options ends early; the session can be used again."""
        ort, opened = start(), session(str(model("llama")))
        feeds = read(MODELS / "llama" / "ref" / "decode" / "inputs")
        good, options = opened.run(["logits"], feeds)[0], ort.RunOptions()
        options.terminate = True
        with self.assertRaisesRegex(Exception, "terminate"):
            opened.run(["logits"], feeds, options)
        self.assertEqual(opened.run(["logits"], feeds)[0].tobytes(), good.tobytes())

    def test_share(self):
        """In ONNX Runtime's profile, gqac runs all nodes of a decoder of the model builder;
        docs/onnxruntime.md has a row for each of these models."""
        tool, page = ROOT / "tools" / "compare_sessions.py", ROOT / "docs" / "onnxruntime.md"
        rows = re.findall(r"^\| ([^ |]+) \| 100 % \|", page.read_text(), re.MULTILINE)
        self.assertLessEqual({path.parent.name for path in MODELS.glob("*/model.onnx")}, set(rows))
        for name in ALL if FULL else SHORT:
            folder = self.dir / name
            folder.mkdir()
            done = subprocess.run(
                [sys.executable, tool, "--library", LIBRARY, "--one", "share", "--folder", folder,
                 model(name)], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(json.loads(done.stdout)["share"], 100, name)

    def test_unknown_shape(self):
        """An output whose shape is known only after a run, and one that is empty."""
        graph = helper.make_graph(
            [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Neg", ["x"], ["y"])],
            "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
            [helper.make_tensor_value_info("at", TensorProto.INT64, [1, "K"]),
             helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])])
        path = self.dir / "shape.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                    ir_version=9), path)
        opened = session(str(path))
        long = [0, 5] * 100  # more bytes than gqac reads to find a shape before the run
        for x in ([0, 3, 0, 2], long, [0, 0], long[1:], []):
            at, y = opened.run(None, {"x": np.array(x, np.float32)})
            self.assertEqual(at.tolist(), [np.flatnonzero(x).tolist()])
            self.assertEqual(y.tolist(), [-v for v in x])
        self.assertEqual(opened.run(["y"], {"x": np.ones(2, np.float32)})[0].tolist(), [-1, -1])


class Tables:
    """The parts of the runtime's tables that the library reads when it is loaded: each slot in
    ort.h has a function. A status is 1, whatever its contents, and its text is `text`, or else the
    text with which it was created."""

    def __init__(self, text=None):
        self.said, self.text = [], text
        header = (ROOT / "integrations" / "ort" / "ort.h").read_text()
        lists = re.findall(r"#define ORT_(\w*)API_SLOTS\(SLOT\)(.*?[^\\])\n", header, re.DOTALL)
        names = {"": "api", "EP_": "ep", "EDITOR_": "editor"}
        self.slots = [("api", 0), ("ep", 0)] + [
            (names[name], int(slot)) for name, body in lists
            for slot in re.findall(r"SLOT\((\d+),", body)]
        self.api, self.ep, self.editor = ((ctypes.c_void_p * 400)() for _ in range(3))
        self.kept = [ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: None)]
        for which, slot in self.slots:
            getattr(self, which)[slot] = ctypes.cast(self.kept[0], ctypes.c_void_p).value
        for slot, types, function in (
                (0, (ctypes.c_int, ctypes.c_char_p), self.create),
                (2, (ctypes.c_void_p,), lambda status: ctypes.addressof(self.shown)),
                (291, (), lambda: ctypes.addressof(self.editor)),
                (317, (), lambda: ctypes.addressof(self.ep))):
            self.kept.append(ctypes.CFUNCTYPE(ctypes.c_void_p, *types)(function))
            self.api[slot] = ctypes.cast(self.kept[-1], ctypes.c_void_p).value
        self.address = ctypes.addressof(self.api)

    def create(self, _, message):
        """CreateStatus."""
        self.said.append(message.decode())
        self.shown = ctypes.create_string_buffer(message if self.text is None else self.text)
        return 1


class Refused(Case):
    """What the provider refuses, and its errors."""

    def fails(self, words, *more, **options):
        """The session cannot be created; the message contains the words."""
        with self.assertRaises(Exception) as caught:
            session(*more or (str(model("llama")),), **options)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_options(self):
        self.fails(["threads", "'two'", "1024, or runtime"], threads="two")
        self.fails(["threads", "'-1'"], threads=-1)
        self.fails(["tpu"], target="tpu")
        self.fails(["roughly"], math="roughly")
        self.fails(["option 'thread'", "target, threads or math"], thread=1)

    def test_targets(self):
        """The option has an effect: ref has other bits than cpu, within the tolerance."""
        feeds = read(MODELS / "llama" / "ref" / "hybrid" / "inputs")
        cpu, ref = (session(str(model("llama")), target=target).run(["logits"], feeds)[0]
                    for target in ("cpu", "ref"))
        self.assertNotEqual(cpu.tobytes(), ref.tobytes())
        self.close(cpu, ref, 1e-4)

    def test_not_claimed(self):
        """Models that gqac cannot run at all run on the CPU provider, and only there."""
        small = helper.make_model(
            helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])]),
            opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        path = self.dir / "det.onnx"
        onnx.save(small, path)
        self.check(gqac("run", path), 3, "Det")
        for source in (str(path), small.SerializeToString()):
            y, = session(source, alone=False).run(None, {"x": np.eye(2, dtype=np.float32)})
            self.assertEqual(y, 1)
            self.fails(["fallback"], source)

    def test_bad_input(self):
        """An error of gqac is passed on with its parts, and the session can be used again."""
        opened = session(str(model("llama")))
        feeds = read(MODELS / "llama" / "ref" / "hybrid" / "inputs")
        good = opened.run(["logits"], feeds)[0]
        bad = feeds | {"input_ids": feeds["input_ids"] + 100000}
        with self.assertRaisesRegex(Exception, r"gqac: .*100\d{3}.*\n  where: node .*\(Gather\)"):
            opened.run(None, bad)
        self.assertEqual(opened.run(["logits"], feeds)[0].tobytes(), good.tobytes())

    def test_mixing(self):
        """A warning names the node that makes results depend on the split into calls."""
        path = self.dir / "mixing.onnx"
        onnx.save(mixing(), path)
        for source, words in ((path, 1), (model("llama"), 0)):
            with warnings() as said:
                session(str(source))
            self.assertEqual(said[0].count("'/quantise' (DynamicQuantizeLinear) mixes rows"), words)
            self.assertEqual(said[0].count("depend on how"), words)

    def refused(self, version, get_api, capacity=4):
        """The library gets the tables of get_api as those of a version of ONNX Runtime; it creates
        an error, which is status 1, and no factory."""
        held = ctypes.create_string_buffer(version)
        make = ctypes.CDLL(str(LIBRARY)).CreateEpFactories
        get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(held))
        get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)
        base = (ctypes.c_void_p * 2)(ctypes.cast(get_api, ctypes.c_void_p).value,
                                     ctypes.cast(get_version, ctypes.c_void_p).value)
        make.restype = ctypes.c_void_p
        factories, n = (ctypes.c_void_p * 4)(), ctypes.c_size_t(7)
        self.assertEqual(make(b"gqac", base, None, factories, ctypes.c_size_t(capacity),
                              ctypes.byref(n)), 1)
        self.assertEqual((n.value, factories[0]), (0, None))

    def test_old_runtime(self):
        """A runtime without the interface causes an error that names both versions."""
        table, seen = Tables(), []
        for version, asked in ((b"1.22.1", [1]), (b"0.9", [1]), (b"next", [1]), (b"1.23.0", [1]),
                               (b"1.23.1", [1, 23])):
            seen.clear()
            self.refused(version, lambda number: seen.append(number) or
                         (table.address if number == 1 else None))
            self.assertEqual(sorted(seen), asked)
            self.assertIn(f"ONNX Runtime {version.decode()} does not have version 23",
                          table.said[-1])
            self.assertIn("ONNX Runtime 1.23.1 or newer", table.said[-1])

    def test_other_tables(self):
        """Tables in which a function that the library uses is missing, or is another one."""
        whole, words = Tables(), "functions of ONNX Runtime 1.24.1 are not where version 23"
        self.refused(b"1.24.1", lambda number: whole.address, capacity=0)
        self.assertIn("capacity of 0", whole.said[-1])  # these are valid
        for which, slot in whole.slots:
            changed = Tables()
            getattr(changed, which)[slot] = None
            self.refused(b"1.24.1", lambda number, t=changed: (whole, t)[number == 23].address)
            self.assertIn(words, whole.said.pop(), (which, slot))
        for text in (b"", b"other words"):
            changed = Tables(text)
            self.refused(b"1.24.1", lambda number, t=changed: (whole, t)[number == 23].address)
            self.assertIn(words, whole.said.pop())
        before, = [slot for slot in whole.slots if slot[1] == 390]
        whole.api[before[1]] = None
        self.refused(b"1.23.2", lambda number: whole.address, capacity=0)
        self.assertIn("capacity of 0", whole.said[-1])  # that version ends before the slot


class Lives(Case):
    """Sessions and the library, created and released in any order."""

    def python(self, text):
        """A program in a separate process, which must succeed."""
        head = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n" \
               "import test_ort_plugin as t\n"
        env = os.environ | {"GQAC_ORT": str(LIBRARY)}
        done = subprocess.run([sys.executable, "-c", head + text], env=env, capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "end"), done)

    def test_again(self):
        """Many sessions one after another, with and without a run."""
        feeds = read(MODELS / "llama" / "ref" / "decode" / "inputs")
        found = set()
        for i in range(200 if FULL else 10):
            opened = session(str(model("llama")), threads=i % 3)
            found.add(opened.run(["logits"], feeds)[0].tobytes() if i % 2 else None)
            del opened
        self.assertEqual(len(found), 2)

    def test_exit(self):
        """A session that exists when the interpreter ends, and one that outlives the registration
        of the library."""
        use = "s = t.session(str(t.model('llama')))\n" \
              "f = t.read(t.MODELS / 'llama' / 'ref' / 'decode' / 'inputs')\n" \
              "s.run(None, f)\n"
        self.python(use + "print('end')")
        self.python(use + "kept = s.get_inputs()\n"
                    "t.start().unregister_execution_provider_library('gqac')\n"
                    "s.run(None, f)\nprint('end')")
        self.python(use + "del s\nt.start().unregister_execution_provider_library('gqac')\n"
                    "s = t.session(str(t.model('llama')))\ns.run(None, f)\nprint('end')")

    def test_exports(self):
        """The two functions, and no others; the library is never unloaded."""
        if not shutil.which("nm"):
            self.skipTest("there is no nm")
        said = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True,
                              text=True, check=True).stdout
        self.assertEqual({line.split()[-1] for line in said.splitlines()},
                         {"CreateEpFactories", "ReleaseEpFactory"})
        said = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True,
                              check=True).stdout
        self.assertIn("NODELETE", said)
        self.assertNotIn("onnxruntime", said)


class Documented(Case):
    """docs/onnxruntime.md, and the Python package that contains the library."""

    def packages(self):
        """An environment with both packages: those of wheels (GQAC_ORT_SITE), or built from the
        sources."""
        more = os.environ.get("PYTHONPATH", "")  # another onnxruntime
        if installed := os.environ.get("GQAC_ORT_SITE"):
            return {"PYTHONPATH": f"{installed}:{more}"}
        package = self.dir / "site" / "onnxruntime_ep_gqac"
        shutil.copytree(ROOT / "integrations" / "ort" / "python" / package.name, package,
                        ignore=shutil.ignore_patterns("__pycache__"))
        (package / "libgqac_ort.so").symlink_to(LIBRARY)
        return {"PYTHONPATH": f"{package.parent}:{ROOT / 'python'}:{more}",
                "GQAC_LIBRARY": str(LIBRARY.parent / "libgqac.so")}

    @since(25, "does not know plugins by their names")
    def test_page(self):
        """The Python lines of the page print the output shown there, in a separate process."""
        page = (ROOT / "docs" / "onnxruntime.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 6)
        (self.dir / "page.txt").write_text("\n".join(blocks))
        (self.dir / "models").symlink_to(ROOT / "models")
        done = subprocess.run([sys.executable, "-m", "doctest", "-o", "IGNORE_EXCEPTION_DETAIL",
                               "page.txt"], cwd=self.dir, capture_output=True, text=True,
                              env=os.environ | self.packages(), check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done)


if __name__ == "__main__":
    sys.exit(harness.main(loads_library=True))
