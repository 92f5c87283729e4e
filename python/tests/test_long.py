"""The long tier: memory over many sequences, and threads on a library with ThreadSanitizer."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, long


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@long
def test_sequences_do_not_leak(model, capsys):
    """10,000 sequences, generations and forks: the slope of resident memory, in bytes for each."""
    sizes = []
    for i in range(10_000):
        sequence = model.sequence()
        sequence.step([1, 2, 3], logits=-1)
        sequence.fork().step([4])
        if i % 10 == 0:
            model.generate(ids=[5, 6], max_new_tokens=2)
            list(model.generate(ids=[5, 6], max_new_tokens=2, stream=True))
        if i % 100 == 0:
            gc.collect()
            sizes.append(resident())
    half = len(sizes) // 2
    slope = float(np.polyfit(np.arange(half) * 100, sizes[-half:], 1)[0])
    with capsys.disabled():
        print(f"\nresident memory: {slope:.1f} bytes a sequence")
    assert slope < 64


@long
def test_threads_under_thread_sanitizer():
    """See threads.py. Exit code 66: a race."""
    library = ROOT / "build" / "tsan" / "libgqac.so"
    if not library.exists():
        pytest.skip("no build/tsan/libgqac.so; ./dev build tsan makes it")
    runtime = subprocess.run(["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True,
                             check=True).stdout.strip()
    env = {**os.environ, "LD_PRELOAD": runtime, "GQAC_LIBRARY": str(library),
           "TSAN_OPTIONS": "exitcode=66", "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, ROOT / "python" / "tests" / "threads.py"], env=env,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "passed" in done.stdout, done.stderr[-4000:]
