"""What the command-line tests share: running gqac under limits, models, .npy files, the summary.

Environment: GQAC names the binary (default build/release/gqac of this tree), GQAC_CONTROLS the
folder of the builds that break a rule (default: next to the binary); GQAC_TEST_FULL=1 runs the long
tier; GQAC_SANITIZED=1 means that the binary is a sanitizer build, which is slower and whose address
space cannot be limited.
"""

import functools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "test" / "models"
GQAC = Path(os.environ.get("GQAC", ROOT / "build" / "release" / "gqac")).resolve()
CONTROLS = Path(os.environ.get("GQAC_CONTROLS", GQAC.parent / "test" / "controls")).resolve()
FULL = os.environ.get("GQAC_TEST_FULL") == "1"
KV_KINDS = "contiguous,paged,windowed,quantised,quantised4"  # of caches, for --kv
SANITIZED = os.environ.get("GQAC_SANITIZED") == "1"
GIB = 1 << 30
# max|Δlogits| / max|logits| against ONNX Runtime; see test/models/README.md
TOLERANCE = {"llama": 2e-5, "llama-fp16": 5e-3, "llama-int4-acc1": 2e-5, "llama-int4-acc4": 2e-2,
             "mistral": 2e-5, "qwen2": 2e-5, "qwen3": 2e-5, "phi3": 2e-5, "gemma2": 2e-5,
             "smollm3-qdq": 2e-5, "gpt-oss": 2e-5, "lfm2": 2e-5, "qwen3.5": 2e-5}
# What a sanitizer prints when it has found something; it must never occur in a test.
SANITIZER = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:")


def sample(rows, step):
    """All rows in the long tier; otherwise every step-th, from the first."""
    return list(rows)[::1 if FULL else step]


@dataclass
class Result:
    """One finished run of gqac."""

    code: int  # exit code; negative: killed by that signal
    out: str
    err: str
    seconds: float  # of CPU time, so that a stalled machine exceeds no limit
    peak: int  # bytes, ru_maxrss; at least that of this process when it started the child
    command: str

    def json(self):
        """Standard output as JSON."""
        return json.loads(self.out)

    def __str__(self):
        return (f"{self.command}\n  exit {self.code}, {self.seconds:.2f} s, "
                f"{self.peak >> 20} MiB\n  out: {self.out[-600:]}\n  err: {self.err[-1200:]}")


def environment(extra=None):
    """The environment of the tests without the user's GQAC_ settings; one thread unless a test sets
    it, and no cache of kernels except a folder that GQAC_TEST_KERNELS names (NVRTC takes 12 s for
    all kernels)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GQAC")}
    env["GQAC_THREADS"] = "1"
    env["GQAC_CACHE"] = os.environ.get("GQAC_TEST_KERNELS", "off")
    env.update(extra or {})
    return env


def without_leaks(env, words):
    """The environment without leak detection if the run uses a device: threads of PoCL may end
    while LeakSanitizer stops them, and then it crashes itself."""
    if SANITIZED and "gpu" in words:
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    return env


def worked(child):
    """CPU time of all threads of the child, in hundredths of a second."""
    with open(f"/proc/{child.pid}/stat") as stat:
        return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))


def await_work(child, hundredths):
    """Wait until the child has used that many more hundredths of a second of CPU time."""
    until = worked(child) + hundredths
    while worked(child) < until and child.poll() is None:
        time.sleep(0.001)


def limits(memory, words):
    """What the child does before exec: no core files, and an address-space limit, but not with a
    device: the CUDA driver reserves addresses for all memory of the machine."""
    def apply():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory and not SANITIZED and not {"gpu", "devices"} & set(words):
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    return apply


def wait(child, seconds):
    """Wait for the child, and kill it after that many seconds: (exit code or -signal, seconds of
    CPU time, peak bytes)."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        if time.monotonic() > deadline:
            child.send_signal(signal.SIGKILL)
            deadline = float("inf")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def gqac(*args, seconds=120.0, memory=8 * GIB, env=None, cwd=None, stdin=None):
    """Run gqac with these arguments. A run that takes longer than `seconds` of wall time is killed:
    code -9."""
    words = [str(GQAC), *map(str, args)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(words, stdout=out, stderr=err,
                                 stdin=stdin or subprocess.DEVNULL, cwd=cwd,
                                 env=without_leaks(environment(env), words),
                                 preexec_fn=limits(memory, words))
        code, worked_for, peak = wait(child, seconds * (10 if SANITIZED else 1))
        texts = []
        for f in (out, err):
            f.seek(0)
            texts.append(f.read().decode("utf-8", "backslashreplace"))
    return Result(code, *texts, worked_for, peak, "gqac " + " ".join(map(str, args)))


@functools.cache
def has_device():
    """True if there is a device for target gpu."""
    return gqac("devices").code == 0


class Case(unittest.TestCase):
    """A test case with a scratch folder and checks of finished runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gqac-test-")
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def need_unnamed_files(self):
        """Skips a test of kills if files cannot be created without a name (O_TMPFILE)."""
        try:
            os.close(os.open(self.dir, os.O_WRONLY | os.O_TMPFILE))
        except OSError:
            # Reason of the skip: otherwise the file has a name until it is complete, and after
            # SIGKILL no code can remove it.
            self.skipTest("this file system has no files without a name")

    def check(self, result, code, *words):
        """The exit code is `code` (or in `code`) and standard error contains the words."""
        codes = code if isinstance(code, (tuple, set, list, range)) else (code,)
        self.assertIn(result.code, codes, str(result))
        for mark in SANITIZER:
            self.assertNotIn(mark, result.err, str(result))
        if result.code and not result.out:
            self.assertTrue(result.err.startswith("gqac: "), str(result))
        for word in words:
            self.assertIn(word.lower(), (result.err + result.out).lower(), str(result))
        return result

    def good(self, *args, **more):
        """A run that must succeed."""
        return self.check(gqac(*args, **more), 0)

    def close(self, got, expected, limit, what=""):
        """max|Δ| ≤ limit · max|expected|, with equal shapes and without NaN."""
        self.assertEqual(got.shape, expected.shape, what)
        self.assertLessEqual(relative(got, expected), limit, what)


def relative(got, expected):
    """max|Δ| / max|expected|; infinite if anything is not a number."""
    got, expected = (np.asarray(x).astype(np.float64) for x in (got, expected))
    if not expected.size:
        return 0.0
    error = np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30)
    return float(error) if np.isfinite(error) else float("inf")


def model(name):
    """The .onnx file of a test model."""
    return MODELS / name / "model.onnx"


def read_ids(path):
    """Whitespace-separated token ids."""
    return [int(word) for word in Path(path).read_text().split()]


def write_ids(path, ids):
    """Write token ids; returns the path."""
    Path(path).write_text(" ".join(str(int(i)) for i in ids) + "\n")
    return path


def rows_of(folder):
    """(past, new) of each batch row of a stored call."""
    lines = (folder / "rows.txt").read_text().splitlines()
    return [tuple(map(int, line.split())) for line in lines]


def defined(name, b, past, new):
    """The index of the elements of output `name` that are defined for row b of a call."""
    return np.s_[b, :new] if name == "logits" else np.s_[b, :, :past + new]


def main(name="__main__", loads_library=False):
    """Run the tests of a module; the last line is read by the test driver. `loads_library`: they
    load a library of gqac into this Python, which is impossible with a sanitizer in it."""
    if not GQAC.exists():
        print(f"no gqac at {GQAC}; build it or set GQAC")
        print("0 passed, 1 failed")
        return 1
    if loads_library and SANITIZED:
        # Reason of the skip: such a library needs a run time that must be loaded before Python.
        print("skipped: Python lacks the run time of a sanitizer")
        return 77
    chosen = [a for a in sys.argv[1:] if not a.startswith("-")]
    loader = unittest.defaultTestLoader
    loader.testNamePatterns = [f"*{c}*" for c in chosen] or None
    suite = loader.loadTestsFromModule(sys.modules[name])
    result = unittest.TextTestRunner(
        stream=sys.stdout, verbosity=2 if "-v" in sys.argv else 1).run(suite)
    bad = {getattr(t, "test_case", t).id() for t, _ in result.failures + result.errors}
    skipped = f", {len(result.skipped)} skipped" if result.skipped else ""
    if skipped:
        print(skipped[2:])
    if result.skipped and len(result.skipped) == result.testsRun:
        print(result.skipped[0][1])
        return 77  # nothing was run, for this reason
    print(f"{result.testsRun - len(result.skipped) - len(bad)} passed, {len(bad)} failed")
    return 1 if bad else 0
