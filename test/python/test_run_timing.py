#!/usr/bin/env python3
"""gqac run --repeat, --warmup, --rotate; and the level of the cpu target.

    python test/python/test_run_timing.py        GQAC names the binary

None of the flags changes a bit of the outputs.
"""

import re
import sys

import numpy as np
from onnx import TensorProto, helper

import harness
from harness import Case, MODELS, gqac, model

HYBRID = MODELS / "llama" / "ref" / "hybrid" / "inputs"
RUN = ("run", model("llama"), "--inputs", HYBRID)
LEVELS = ("scalar", "avx2", "avx512", "avx512vnni", "avx512bf16")
NO_PAST = """graph @plain(%x: f32[B,4]) {
  const %two: f32[] = 2.0
  %y = Mul %x, %two : f32[B,4]
  return %y
}
"""
LAYER = """graph @layer(%x: f32[B,S,320], %past_key: f32[B,2,P,32], %past_value: f32[B,2,P,32],
    %len: i32[B], %tot: i32[]) {
  %y, %k, %v = com.microsoft.GroupQueryAttention %x, _, _, %past_key, %past_value, %len, %tot
    {num_heads=6, kv_num_heads=2} : f32[B,S,192], f32[B,2,T,32], f32[B,2,T,32]
  return %y, %k as "present_key", %v as "present_value"
}
"""


def machine_levels():
    """The levels that this machine can run."""
    words = set()
    with open("/proc/cpuinfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("flags"):
                words = set(line.split(":")[1].split())
                break
    found = ["scalar"]
    for level, needs in (("avx2", {"avx2", "fma", "f16c"}),
                         ("avx512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
                         ("avx512vnni", {"avx512_vnni"}), ("avx512bf16", {"avx512_bf16"})):
        if not needs <= words:
            break
        found.append(level)
    return found


class Timing(Case):
    """Times, and outputs that do not depend on the number of runs and on the copies that are
    used."""

    def outputs(self, name, *flags):
        """The bytes of all outputs of a run."""
        folder = self.dir / name
        self.good(*RUN, *flags, "-o", folder)
        return {p.name: p.read_bytes() for p in folder.iterdir()}

    def test_times(self):
        """One time for each run, without the warm-up."""
        for repeat, warmup in ((1, 0), (4, 2), (3, 7)):
            found = self.good(*RUN, "--repeat", repeat, "--warmup", warmup, "--format",
                              "json").json()
            self.assertEqual(len(found["times_ms"]), repeat)
            self.assertTrue(all(0 < t < 60e3 for t in found["times_ms"]), found)
        self.assertNotIn("times_ms", self.good(*RUN, "--format", "json").json())

    def test_table(self):
        """Minimum, median and maximum, in this order."""
        out = self.good(*RUN, "--repeat", 5).out
        line = re.search(r"^5 runs: min ([\d.]+) ms, median ([\d.]+) ms, max ([\d.]+) ms$", out,
                         re.MULTILINE)
        times = [float(x) for x in line.groups()]
        self.assertEqual(times, sorted(times))
        self.assertNotIn("median", self.good(*RUN).out)

    def test_rotate(self):
        """Every copy has the outputs of the original."""
        plain = self.outputs("plain")
        for runs in range(1, 5):  # the last run uses copy runs - 1 of 4
            self.assertEqual(self.outputs(f"r{runs}", "--repeat", runs, "--rotate", 4), plain)
        self.assertEqual(self.outputs("w", "--repeat", 1, "--warmup", 2, "--rotate", 3), plain)
        # a copy that no run uses is not made: all copies would be gigabytes
        few, many = (self.good(*RUN, "--repeat", 2, "--rotate", n).peak for n in (2, 100000))
        self.assertLess(many, few + (256 << 20))
        for flag in (("--rotate", 3), ("--in-place",)):
            self.check(gqac("run", RUN[1], "--fill", "input_ids=1,1", *flag), 2, flag[0],
                       "no past tensor is given")

    def layer(self, rows, past, new):
        """One attention op and a call: a cache with that many rows, NaN after the cached ones."""
        rng = np.random.default_rng(3)
        (self.dir / "layer.gq").write_text(LAYER)
        folder = self.dir / f"{rows}.{past}.{new}"
        folder.mkdir()
        feeds = {"x": rng.standard_normal((2, new, 320)).astype(np.float32),
                 "len": np.full(2, past + new - 1, np.int32),
                 "tot": np.array(past + new, np.int32)}
        for name in ("past_key", "past_value"):
            feeds[name] = rng.standard_normal((2, 2, rows, 32)).astype(np.float32)
            feeds[name][:, :, past:] = np.nan
        for name, value in feeds.items():
            np.save(folder / f"{name}.npy", value)
        return ("run", self.dir / "layer.gq", "--inputs", folder)

    def test_in_place(self):
        """A cache with spare rows: outputs are the same whether or not presents share its
        memory."""
        for target in ("cpu", "ref"):
            for past, new in ((70, 1), (60, 9), (0, 5), (71, 1)):
                run = (*self.layer(72, past, new), "--target", target)
                results = []
                for k, flags in enumerate(((), ("--in-place",),
                                           ("--in-place", "--repeat", 5, "--rotate", 3),
                                           ("--in-place", "--warmup", 2, "--threads", 3))):
                    out = self.dir / f"{target}.{past}.{k}"
                    self.good(*run, *flags, "-o", out)
                    results.append({p.name: p.read_bytes() for p in out.iterdir()})
                    self.assertEqual(len(results[k]), 3)
                    self.assertEqual(results[k], results[0], (target, past, flags))
                (self.dir / f"72.{past}.{new}").rename(self.dir / f"{target}.{past}")

    def test_states_stay(self):
        """A state is not a cache with spare rows: every run begins with the given state."""
        rng, sizes = np.random.default_rng(5), {"q": 16, "k": 16, "v": 16, "decay": 2, "beta": 2}
        shapes = {n: [1, 3, width] for n, width in sizes.items()} | {"past.0.recurrent": [1, 2, 8, 8]}
        feeds = {n: -np.abs(rng.standard_normal(shape).astype(np.float32))
                 for n, shape in shapes.items()}
        node = helper.make_node("LinearAttention", ["q", "k", "v", "past.0.recurrent", "decay",
                                                    "beta"], ["y", "present.0.recurrent"],
                                domain="com.microsoft", q_num_heads=2, kv_num_heads=2, scale=1.0,
                                update_rule="gated_delta")
        floats = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in
                  (shapes | {"y": [1, 3, 16], "present.0.recurrent": [1, 2, 8, 8]}).items()]
        made = helper.make_model(helper.make_graph([node], "g", floats[:6], floats[6:]),
                                 ir_version=10, opset_imports=[
                                     helper.make_opsetid("", 21),
                                     helper.make_opsetid("com.microsoft", 1)])
        path = self.dir / "state.onnx"
        path.write_bytes(made.SerializeToString())
        for name, value in feeds.items():
            np.save(self.dir / f"{name}.npy", value)
        results = []
        for k, flags in enumerate(((), ("--in-place",), ("--in-place", "--repeat", 3),
                                   ("--in-place", "--warmup", 2, "--rotate", 2))):
            out = self.dir / f"state{k}"
            self.good("run", path, "--inputs", self.dir, *flags, "-o", out)
            results.append({p.name: p.read_bytes() for p in out.iterdir()})
            self.assertEqual(len(results[k]), 2)
            self.assertEqual(results[k], results[0], flags)

    def test_in_place_refused(self):
        """Too few rows for the new ones; nothing that could share memory."""
        self.check(gqac(*self.layer(8, 8, 1), "--in-place"), 4, "in-place", "past_key",
                   "[2,2,8,32]", "a row for every token")
        path = self.dir / "plain.gq"
        path.write_text(NO_PAST)
        np.save(self.dir / "x.npy", np.ones((3, 4), np.float32))
        self.check(gqac("run", path, "--in-place", "--inputs", self.dir), 2, "no past")

    def test_rotate_refused(self):
        """Nothing to rotate, too little memory, not a number."""
        path = self.dir / "plain.gq"
        path.write_text(NO_PAST)
        self.check(gqac("run", path, "--rotate", 2, "--inputs", self.dir), (2, 5))
        np.save(self.dir / "x.npy", np.ones((3, 4), np.float32))
        self.check(gqac("run", path, "--rotate", 2, "--inputs", self.dir), 2, "no past")
        self.good("run", path, "--rotate", 1, "--inputs", self.dir)
        big = self.dir / "big"
        big.mkdir()
        for f in HYBRID.iterdir():
            if not f.name.startswith("past"):
                (big / f.name).write_bytes(f.read_bytes())
                continue
            old = np.load(f)
            new = np.zeros((old.shape[0], old.shape[1], 1 << 14, old.shape[3]), old.dtype)
            new[:, :, :old.shape[2]] = old
            np.save(big / f.name, new)
        self.check(gqac("run", model("llama"), "--inputs", big, "--rotate", 100000,
                        "--repeat", 1000000), 4, "rotate",
                   "mib", "try:")
        for value in ("0", "x", "-1", "100001"):
            self.check(gqac(*RUN, "--rotate", value), 2, "rotate")


class Level(Case):
    """GQAC_CPU, and the reports of the level."""

    def test_version(self):
        """Target and level; ref has only one form."""
        found = self.good("version", "--format", "json", "--target", "cpu").json()
        self.assertEqual((found["target"], found["level"]), ("cpu", machine_levels()[-1]))
        found = self.good("version", "--format", "json", "--target", "ref").json()
        self.assertEqual((found["target"], found["level"]), ("ref", None))

    def test_forced(self):
        """Each level of the machine can be forced; others are absent, unknown ones usage errors."""
        bench = ("bench", model("llama"), "--target", "cpu", "-p", 3, "-n", 1, "--repeat", 1,
                 "--format", "json")
        here = machine_levels()
        for level in LEVELS:
            env = {"GQAC_CPU": level}
            for words in (bench, ("version", "--format", "json", "--target", "cpu")):
                if level in here:
                    found = self.good(*words, env=env).json()
                    self.assertEqual((found["target"], found["level"]), ("cpu", level))
                else:
                    self.check(gqac(*words, env=env), 77, level, *here)
        for words in (bench, ("version", "--format", "json", "--target", "cpu")):
            self.check(gqac(*words, env={"GQAC_CPU": "sse9"}), 2, "sse9", "avx512vnni", "try:")
        self.good("version", env={"GQAC_CPU": "sse9"})
        self.good(*RUN, "--target", "ref", env={"GQAC_CPU": "sse9"})


if __name__ == "__main__":
    sys.exit(harness.main())
