"""Prints for how many milliseconds a processor works on the import of gqac, beside that of NumPy: the
least of several new processes with both, less the least of those with NumPy alone."""

import resource
import subprocess
import sys


def processor(code):
    """Seconds for which a Python process works that runs this code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure():
    """The milliseconds."""
    times = [(processor("import numpy, gqac"), processor("import numpy")) for _ in range(5)]
    return 1e3 * (min(both for both, _ in times) - min(alone for _, alone in times))


if __name__ == "__main__":
    print(f"{measure():.0f}")
