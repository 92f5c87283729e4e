#!/usr/bin/env python3
"""--limit: each limit refuses values above it, and accepts its exact value.

    python test/python/test_limits.py
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, GIB, GQAC, MODELS, gqac, model, write_ids

NAMES = ("model-bytes", "nodes", "tensor-elements", "context", "compile-bytes", "compile-ms",
         "template-steps", "memory-bytes")


def cgroup_limits():
    """The limits of the cgroups of this process and of those around them, of version 2 and 1."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, own = line.split(":", 2)
        if names not in ("", "memory"):
            continue
        for folder in (PurePosixPath(own), *PurePosixPath(own).parents):
            path = Path("/sys/fs/cgroup", names, str(folder).lstrip("/"))
            path /= "memory.limit_in_bytes" if names else "memory.max"
            value = path.read_text().strip() if path.exists() else "max"
            if value != "max":
                yield int(value)


class Limits(Case):
    """One case for each limit."""

    def refused(self, name, value, *args, code=3):
        """The command ends because of this limit, and names it with its value and the flag."""
        result = self.check(gqac(*args, "--limit", f"{name}={value}"), code,
                            f"rule:  the limit {name} is {value}", f"--limit {name}=N")
        self.assertEqual(result.out, "")
        return result

    def fits(self, name, value, *args):
        """The command succeeds at this limit."""
        return self.good(*args, "--limit", f"{name}={value}")

    def twins(self, name, most, *args, code=3):
        """With the limit `most` the command succeeds, with one less it is refused."""
        self.fits(name, most, *args)
        return self.refused(name, most - 1, *args, code=code)

    def filled(self, *dims):
        """A model whose result is a tensor with these dimensions, of which the file contains no
        element."""
        shape = helper.make_tensor("shape", TensorProto.INT64, [len(dims)], dims)
        graph = helper.make_graph(
            [helper.make_node("ConstantOfShape", ["shape"], ["big"], name="fill"),
             helper.make_node("Add", ["x", "big"], ["y"], name="add")], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [shape])
        path = self.dir / "filled.onnx"
        onnx.save(helper.make_model(graph, ir_version=10,
                                    opset_imports=[helper.make_opsetid("", 21)]), path)
        return path

    def sparse(self, weights, offset=0, columns=512):
        """MatMuls with that many weights of 512 rows, in a file of holes from this offset on."""
        size = 512 * columns * 4
        nodes, tensors = [], []
        for i in range(weights):
            t = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[512, columns],
                            data_location=1)
            for key, value in (("location", "w.bin"), ("offset", offset + i * size)):
                t.external_data.add(key=key, value=str(value))
            tensors.append(t)
            nodes.append(helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]))
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 512])],
            [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None)
             for i in range(weights)], tensors)
        path = self.dir / "sparse.onnx"
        onnx.save(helper.make_model(graph, ir_version=10,
                                    opset_imports=[helper.make_opsetid("", 21)]), path)
        with open(self.dir / "w.bin", "wb") as f:
            f.truncate(offset + weights * size)
        return path

    def test_listed(self):
        """inspect lists all of them: as a table, and as JSON, where null means no maximum."""
        llama = model("llama")
        out = self.good("inspect", llama, "--limits", "--limit", "nodes=4321").out
        shown = self.good("inspect", llama, "--limit", "nodes=4321", "--format", "json").json()
        self.assertEqual(tuple(shown["limits"]), NAMES)
        self.assertEqual((shown["limits"]["nodes"], shown["limits"]["context"]), (4321, None))
        for name, value in shown["limits"].items():
            number = "none" if value is None else value
            self.assertRegex(out, rf"(?m)^  {name} +{number}  \w")
        self.assertIn("\nlimits\n", self.good("inspect", llama).out)

    def test_usage(self):
        """Unknown names, and invalid values."""
        for text, words in (("depth=3", "unknown limit 'depth'"), ("nodes", "NAME=N"),
                            ("nodes=0", "--limit 'nodes=0': '0' is not a whole number from 1"),
                            ("nodes=-1", "whole number"), ("nodes=many", "whole number"),
                            ("nodes=1,2", "'1,2' is not a whole"), ("nodes=", "'' is not a whole"),
                            ("nodes=1000001", "from 1 to 1000000"), ("=3", "unknown limit")):
            self.check(gqac("inspect", model("llama"), "--limit", text), 2, words)
        self.check(gqac("inspect", model("llama"), "--limit", "depth=3"), 2, *NAMES)

    def test_model_bytes(self):
        """Files of every format; external data count with the model."""
        folder = MODELS / "llama"
        size = sum((folder / name).stat().st_size for name in ("model.onnx", "model.onnx.data"))
        self.twins("model-bytes", size, "inspect", folder / "model.onnx")
        for name in ("a.gqac", "a.gq"):
            path = self.dir / name
            self.good("compile", folder, "-o", path)
            self.twins("model-bytes", path.stat().st_size, "inspect", path)

    def test_nodes(self):
        """Nodes are counted before the file is unpacked."""
        path = model("llama")
        nodes = len(onnx.load(path, load_external_data=False).graph.node)
        self.assertIn(" byte ", self.twins("nodes", nodes, "inspect", path).err)
        text = self.dir / "a.gq"
        self.good("compile", path, "--stop-after", "import", "-o", text)
        ops = self.good("inspect", text, "--format", "json").json()["ops"]
        self.twins("nodes", sum(ops.values()), "inspect", text)

    def test_nodes_inlined(self):
        """Nodes of a function count for every call."""
        body = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Neg", ["b"], ["c"])]
        ops = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
        twice = helper.make_function("own", "Twice", ["a"], ["c"], body, ops[:1])
        calls = [helper.make_node("Twice", [f"x{i}"], [f"x{i + 1}"], domain="own")
                 for i in range(9)]
        graph = helper.make_graph(calls, "g",
                                  [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [4])],
                                  [helper.make_tensor_value_info("x9", TensorProto.FLOAT, [4])])
        path = self.dir / "calls.onnx"
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=ops, functions=[twice]),
                  path)
        self.assertIn("after functions are inlined", self.twins("nodes", 27, "inspect", path).err)

    def test_tensor_elements(self):
        """Inferred shapes count; no memory of that size is allocated."""
        path = self.filled(1 << 10, 1 << 10)
        result = self.twins("tensor-elements", 1 << 20, "inspect", path)
        self.assertIn("node 'fill' (ConstantOfShape)", result.err)
        self.good("inspect", self.filled(1 << 20, 1 << 16))
        for verb in (("inspect",), ("compile", "-o", self.dir / "x.gqac"), ("run",)):
            result = gqac(verb[0], self.filled(1 << 20, (1 << 16) + 1), *verb[1:], memory=GIB)
            self.check(result, 3, "tensor 'big' has more than 68719476736 elements")

    def test_context(self):
        """A sequence cannot have more tokens."""
        ids = self.dir / "ids.txt"
        write_ids(ids, [1, 2, 3, 4, 5])
        self.twins("context", 5, "score", model("llama"), "--ids", ids, code=4)
        memory = ("inspect", model("llama"), "--memory", 5)
        self.fits("context", 5, *memory)
        self.check(gqac(*memory, "--limit", "context=4"), 4, "--memory 5", "--limit context is 4")

    def test_compile_bytes(self):
        """Graph and packed weights must fit; otherwise nothing is written."""
        out = self.dir / "x.gqac"
        words = ("compile", model("llama"), "-o", out)
        fails, fits = 1, 1 << 24
        self.refused("compile-bytes", fails, *words)
        for _ in range(7):
            middle = (fails + fits) // 2
            result = gqac(*words, "--limit", f"compile-bytes={middle}")
            if result.code == 0:
                fits = middle
            else:
                self.check(result, 3, f"limit compile-bytes is {middle}", "more bytes")
                fails = middle
        self.assertGreater(fails, 242530 * 4 // 2)  # most weights are packed
        out.unlink()
        self.refused("compile-bytes", fails, *words)
        self.assertFalse(out.exists())
        self.fits("compile-bytes", fits, *words)

    def test_compile_ms(self):
        """Compiling and inspecting end in time."""
        out = self.dir / "x.gqac"
        nodes = [helper.make_node("Neg", [f"x{i}"], [f"x{i + 1}"]) for i in range(4000)]
        graph = helper.make_graph(nodes, "g",
                                  [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [4])],
                                  [helper.make_tensor_value_info("x4000", TensorProto.FLOAT, [4])])
        path = self.dir / "chain.onnx"
        onnx.save(helper.make_model(graph, ir_version=10,
                                    opset_imports=[helper.make_opsetid("", 21)]), path)
        for words in (("compile", path, "-o", out, "--stateless"), ("inspect", path)):
            self.refused("compile-ms", 1, *words)
            self.assertFalse(out.exists())
            self.fits("compile-ms", 600000, *words)
            out.unlink(missing_ok=True)

    def test_compile_ms_of_texts(self):
        """The time includes making tokens of a text to bake, and ends between two renderings."""
        folder, out = self.dir / "model", self.dir / "x.gqac"
        shutil.copytree(MODELS / "llama", folder, ignore=shutil.ignore_patterns("ref"))
        (folder / "chat_template.jinja").write_text(
            "{% for i in range(90000) %}{{ '' }}{% endfor %}{{ messages[0].content }}")
        text = self.dir / "system.txt"
        text.write_text("Be brief.")
        words = ("compile", folder, "-o", out, "--bake", text)
        result = self.refused("compile-ms", 1, *words)
        self.assertIn("making tokens of the text of --bake takes too long", result.err)
        self.assertFalse(out.exists())
        whole = self.fits("compile-ms", 600000, *words)
        self.assertLess(result.seconds, whole.seconds / 2)

    def test_compile_ms_of_steps(self):
        """The time includes the steps that compute a baked prefix, and ends within one."""
        ids, out = self.dir / "ids.txt", self.dir / "x.gqac"
        ids.write_text("1\n" * 1280)
        words = ("compile", harness.ROOT / "models/tiny-gqa", "-o", out, "--bake", ids, "--bake-as", "ids",
                 "--threads", "1", "--target", "ref")
        whole = self.fits("compile-ms", 600000, *words)
        out.unlink()
        result = self.refused("compile-ms", int(whole.seconds * 250), *words)  # a quarter
        self.assertLess(result.seconds, whole.seconds / 2)
        self.assertFalse(out.exists())

    def test_memory_bytes(self):
        """Weights are counted before they are packed, aligned or not, and tensors before a run."""
        for offset in (0, 2):
            path, out = self.sparse(4, offset), self.dir / "x.gqac"
            for words in (("run", path, "--fill", "x=1,512:9"),
                          ("compile", path, "--stateless", "-o", out)):
                result = self.twins("memory-bytes", 4 << 20, *words)
                self.assertIn(f"{4 << 20} bytes", result.err)
        path, out = self.sparse(4), self.dir / "x.gqac"
        self.good("compile", path, "--stateless", "-o", out)
        self.fits("memory-bytes", 1 << 20, "run", out, "--fill", "x=1,512:9")  # mapped, not copied
        self.fits("memory-bytes", 1, "inspect", self.sparse(4))  # which copies nothing
        self.refused("memory-bytes", 1, "inspect", self.sparse(4, 2))
        path = self.filled(1 << 10, 1 << 10)
        words = ("run", path, "--fill", "x=1")
        result = self.refused("memory-bytes", (4 << 20) - 1, *words)
        self.assertIn("node 'fill' (ConstantOfShape)", result.err)
        self.refused("memory-bytes", 4 << 20, *words, code=4)  # and their sum
        self.fits("memory-bytes", 16 << 20, *words)

    def test_memory_of_machine(self):
        """Without the flag, more than nine tenths of the memory of the process is refused at once."""
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        machine = min([pages, *cgroup_limits()])
        limits = self.good("inspect", model("llama"), "--format", "json").json()["limits"]
        self.assertEqual(limits["memory-bytes"], machine - machine // 10)
        self.assertEqual(limits["compile-bytes"], limits["memory-bytes"])
        weights = (limits["memory-bytes"] >> 30) + 1  # of 1 GiB each
        for offset in (0, 2):
            path = self.sparse(weights, offset, columns=1 << 19)
            for words in (("run", path), ("compile", path, "-o", self.dir / "x.gqac")):
                result = self.check(gqac(*words, memory=0), 3, f"{weights << 30} bytes",
                                    f"limit memory-bytes is {limits['memory-bytes']}",
                                    "--limit memory-bytes=N")
                self.assertLess(result.peak, GIB)
                self.assertLess(result.seconds, 60)

    def test_memory_of_cgroup(self):
        """In a cgroup, the default is nine tenths of its memory. It has 64 MiB here, as far as gqac
        sees: a folder that is mounted over its folder, for this process alone."""
        cgroups = self.dir / "cgroups"
        cgroups.mkdir()
        (cgroups / "memory.max").write_text(f"{64 << 20}\n")

        def within(*words):
            return subprocess.run(
                ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                 'mount --bind "$0" /sys/fs/cgroup && exec "$@"', str(cgroups), *map(str, words)],
                capture_output=True, text=True, env=harness.environment())
        if not shutil.which("unshare") or within("true").returncode:
            # Reason of the skip: a mount that only one process sees needs a user namespace.
            self.skipTest("user namespaces are not permitted")
        most = (64 << 20) - (64 << 20) // 10
        limits = within(GQAC, "inspect", model("llama"), "--limits")
        self.assertRegex(limits.stdout, rf"(?m)^  memory-bytes +{most} ")
        run = ("--fill", "x=1,512:9")
        self.assertEqual(within(GQAC, "run", self.sparse(50), *run).returncode, 0)
        done = within(GQAC, "run", self.sparse(60), *run)  # fewer than 64, and more than 57.6 MiB
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"limit memory-bytes is {most}", done.stderr)

    def test_memory_of_steps(self):
        """The memory that a program needs while it is used also counts, if it has no budget."""
        ids = self.dir / "ids.txt"
        write_ids(ids, [i % 250 for i in range(500)])
        words = ("score", model("llama"), "--ids", ids)
        weights = 242530 * 4  # a token has 1 KiB of cached rows
        self.fits("memory-bytes", 8 * weights, *words)
        self.refused("memory-bytes", weights + 20000, *words, code=4)

    def test_template_steps(self):
        """A chat template ends after this number of steps."""
        folder = self.dir / "model"
        shutil.copytree(MODELS / "llama", folder, ignore=shutil.ignore_patterns("ref"))
        (folder / "chat_template.jinja").write_text(
            "{% for i in range(1000) %}{% endfor %}{{ messages[0].content }}")
        text = self.dir / "system.txt"
        text.write_text("Be brief.")
        words = ("compile", folder, "-o", self.dir / "x.gqac", "--bake", text)
        least, most = 100, 100000
        self.refused("template-steps", least, *words)
        self.fits("template-steps", most, *words)
        self.good(*words)


if __name__ == "__main__":
    sys.exit(harness.main())
