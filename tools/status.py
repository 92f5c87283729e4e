#!/usr/bin/env python3
"""Writes the status table of README.md, from what gqac reports for the models in test/models.

usage: tools/status.py GQAC [--check]

A row is one model: its largest difference of logits from ONNX Runtime's stored ones (relative to the
largest logit), rounded up to one digit, and the differing values of a small `equiv`. With --check
nothing is written; exit 1 if README.md would change.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("<!-- status -->\n", "<!-- /status -->")


def run(tool, *words):
    """Standard output of the tool; any failure except a found difference is fatal."""
    done = subprocess.run([tool, *map(str, words)], stdout=subprocess.PIPE, check=False)
    if done.returncode > 1:
        sys.exit(f"{tool} {' '.join(map(str, words))}: exit {done.returncode}")
    return done.stdout.decode()


def error(tool, model):
    """max|difference| / max|logit| compared with the stored logits, as text."""
    expected = np.load(model / "ref" / "logits.npy")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.npy"
        run(tool, "score", model, "--ids", model / "ref" / "ids.txt", "--logits", out)
        got = np.load(out)
    value = float(np.abs(got - expected).max() / np.abs(expected).max())
    power = math.floor(math.log10(value)) if value else 0
    return f"< 1e{power + 1}" if value else "0"


def row(tool, model):
    """One line of the table."""
    info = json.loads(run(tool, "inspect", model, "--format", "json"))
    proof = json.loads(run(tool, "equiv", model, "--tokens", 40, "--splits", "random:8", "--batch",
                           3, "--threads", "1,2", "--format", "json"))
    bits = f"{proof['differing']} of {proof['compared']}"
    safe = "yes" if not info["mixing"] else "no"
    return f"| {model.name} | {info['kv_pairs'][0]['dtype']} | {error(tool, model)} | {safe} | {bits} |"


def table(tool):
    """The whole table."""
    models = sorted(p.parent for p in (ROOT / "test" / "models").glob("*/model.onnx"))
    head = ["| model | KV | logits against ONNX Runtime | split-safe | differing values in `equiv` |",
            "|---|---|---|---|---|"]
    return "\n".join(head + [row(tool, m) for m in models]) + "\n"


def main():
    """Writes or checks the README."""
    readme = ROOT / "README.md"
    old = readme.read_text()
    start, end = old.index(MARKS[0]) + len(MARKS[0]), old.index(MARKS[1])
    new = old[:start] + table(sys.argv[1]) + old[end:]
    if "--check" in sys.argv:
        print("1 passed, 0 failed" if new == old else "README.md: status table is stale\n"
              "0 passed, 1 failed")
        return int(new != old)
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
