#!/usr/bin/env python3
"""Compares the tensors of two folders: max |difference| relative to the largest expected value.

usage: tools/compare.py ACTUAL EXPECTED LIMIT

Logits near zero have the absolute error of the large terms in their sums, so an error is measured
relative to the largest value of a tensor, not element by element. Exit 1 above the limit.
"""

import sys
from pathlib import Path

import numpy as np


def error(actual, expected):
    """max|difference| / max|expected|; infinite if shapes differ or a value is not a number."""
    if actual.shape != expected.shape:
        return float("inf")
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    value = np.abs(a - e).max(initial=0) / max(np.abs(e).max(initial=0), 1e-30)
    return float(value) if np.isfinite(value) else float("inf")


def main(actual, expected, limit):
    """Prints one line for each tensor."""
    worst = 0.0
    for path in sorted(Path(expected).glob("*.npy")):
        value = error(np.load(Path(actual) / path.name), np.load(path))
        worst = max(worst, value)
        print(f"{path.stem:24} max |difference| / max |value| = {value:.1e}")
    return int(worst > float(limit))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
