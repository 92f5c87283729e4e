"""The engines as processes: each is started with its task, then told how often to run it.

An engine that waits is stopped (SIGSTOP), so that none of its threads spins on the cores of another.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TOOLS = ROOT / "build" / "bench"  # the C programs of this folder
LLAMA = ROOT / "build" / "peers" / "llama.cpp"
COMMANDS = {
    "gqac": [TOOLS / "worker_gqac"],
    "row-major": [TOOLS / "worker_gqac"],  # keys and values as tensors, not in a sequence
    "fp32-cache": [TOOLS / "worker_gqac"],  # the same with an fp32 cache
    "parts": [TOOLS / "worker_gqac"],  # a mixture in two calls
    "one-sequence": [TOOLS / "worker_gqac"],  # only the first of several sequences
    "memory": [TOOLS / "worker_memory"],
    "unconstrained": [TOOLS / "unconstrained"],
    "gpu": [TOOLS / "worker_gqac"],  # target gpu
    "onnxruntime": [sys.executable, HERE / "worker_ort.py"],
    "provider": [sys.executable, HERE / "worker_ort.py",  # gqac in a session of ONNX Runtime
                 f"library={ROOT / 'build' / 'release' / 'libgqac_ort.so'}"],
    "openvino": [sys.executable, HERE / "worker_openvino.py"],
    "llama.cpp": [TOOLS / "worker_llama"],
    "torch": [sys.executable, HERE / "worker_torch.py"],
    "torch-device": [sys.executable, HERE / "worker_torch_device.py"],
}
sys.path.append(str(LLAMA / "gguf-py"))
SAMPLE_MS = 300  # a sample repeats calls for about this long
WARMUPS = 3


class Absent(Exception):
    """An engine that is not installed, or that cannot run this task."""


def pinned(threads):
    """For preexec_fn: puts a process on the first cores, one for each thread."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    return lambda: os.sched_setaffinity(0, cores)


class Process:
    """One running engine."""

    def __init__(self, engine, words, threads):
        command = [*map(str, COMMANDS[engine]), f"threads={threads}", *words]
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="true",
                   OPENBLAS_NUM_THREADS="1")
        try:
            self.child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
                stderr=subprocess.DEVNULL, preexec_fn=pinned(threads))
        except OSError as error:
            raise Absent(f"{engine}: {error.strerror}") from None
        self.engine = engine
        ready = self.child.stdout.readline().strip()
        if not ready.startswith("ready "):
            self.close()
            raise Absent(f"{engine}: {ready.removeprefix('failed ') or 'ended at once'}")
        self.facts = json.loads(ready.removeprefix("ready "))
        self.child.send_signal(signal.SIGSTOP)

    def ask(self, line):
        self.child.send_signal(signal.SIGCONT)
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline().strip()
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGSTOP)
        if not answer or answer.startswith("failed"):
            raise Absent(f"{self.engine}: {answer.removeprefix('failed ') or 'ended'}")
        return answer

    def run(self, n):
        """The times of n runs of one call, in milliseconds."""
        return [float(word) for word in self.ask(f"run {n}").split()[1:]]

    def output(self, path):
        self.ask(f"output {path}")
        return path

    def close(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


class Engine:
    """A warmed process that runs a row, and the number of calls in a sample."""

    def __init__(self, name, row, threads):
        words = row.words(name)
        if words is None:
            raise Absent(f"{name}: it has no form of this row")
        self.process = Process(name, words, threads)
        try:
            ms = self.process.run(WARMUPS)[-1] * row.extra.get("calls", 1)
        except BaseException:
            self.process.close()
            raise
        self.calls = max(1, min(200, round(SAMPLE_MS / ms)), row.rotate())

    def sample(self):
        return self.process.run(self.calls)


def difference(gqac, peer):
    """max|gqac - peer| / max|peer| of the last outputs: every call of a row has the same inputs."""
    with tempfile.TemporaryDirectory() as folder:
        got, expected = (np.fromfile(e.process.output(f"{folder}/{i}"), np.float32)
                         for i, e in enumerate((gqac, peer)))
    if got.size != expected.size:
        return float("inf")
    error = np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30)
    return float(error) if np.isfinite(error) else float("inf")
