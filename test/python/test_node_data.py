#!/usr/bin/env python3
"""`gqac test` over the node-test folders of the installed onnx package.

    python test/python/test_node_data.py     (--show prints the verdicts that are not PASS,
                                              --list the necessary contents of node_skips.txt)

Nothing may FAIL, and only the tests that node_skips.txt names, with the class of the reason, may be
skipped; none of these may pass: the list only shrinks. node_passed_floor.txt contains the number
that passed when it was last written; fewer is a failure, so there is no room for more skips.
"""

import collections
import os
import re
import sys
import unittest
from functools import cache
from pathlib import Path

import harness
from harness import Case, gqac

HERE = Path(__file__).resolve().parent
ONNX_VERSION = "1.22.0"
PASSED = ("PASS",)
ATTENTION_FLOOR = 144  # folders of attention and rotary embedding that must pass

try:
    import onnx
    NODES = Path(os.path.dirname(onnx.__file__)) / "backend" / "test" / "data" / "node"
except ImportError:
    onnx, NODES = None, None


# Why a folder is skipped: the class, and a text in its reason. The first match is used.
CLASSES = (("op", r"unknown op"),
           ("value", r"it is not a tensor|only tensors are supported|is not a constant"),
           ("dtype", r"this element type is not supported|STRING|of type \w+ is not supported|"
                     r"graph input: (FLOAT|U?INT)\d"),
           ("opset", r"is older than"), ("training", r"training_mode is true"))
MEANINGS = {"op": "not in our table of ops", "value": "a sequence or optional, no tensor",
            "dtype": "an element type that we do not take", "opset": "older than we read",
            "training": "it draws random numbers"}


def class_of(reason):
    """The class of a skip; None if no class matches."""
    return next((name for name, pattern in CLASSES if re.search(pattern, reason)), None)


def listed_skips():
    """{folder: class} of the committed list."""
    lines = (HERE / "node_skips.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line.strip() and line[0] != "#"]
    return {row[0]: row[1] for row in rows}


def floor():
    """The number of folders that must pass."""
    return int((HERE / "node_passed_floor.txt").read_text())


@cache
def verdicts():
    """({folder: (verdict, reason)}, the finished run)"""
    result = gqac("test", NODES, "--format", "json", "-q", seconds=600)
    rows = result.json()["tests"] if result.out else []
    return {r["name"]: (r["verdict"], r["reason"]) for r in rows}, result


@unittest.skipUnless(onnx, "the onnx package is not installed")
class NodeData(Case):
    """The verdicts of one run over everything."""

    def test_every_folder_is_told(self):
        """Each folder has a verdict; the summary agrees with the rows."""
        rows, result = verdicts()
        self.check(result, (0, 1))
        self.assertEqual(set(rows), {p.parent.name for p in NODES.glob("*/model.onnx")})
        counts = collections.Counter(v for v, _ in rows.values())
        found = result.json()
        self.assertEqual((counts["PASS"], counts["FAIL"], counts["SKIP"]),
                         (found["passed"], found["failed"], found["skipped"]))
        print(f"onnx {onnx.__version__}: {dict(counts)}")

    def test_no_failure(self):
        """Unsupported tests are skipped, not failed."""
        self.assertEqual({n: r for n, (v, r) in verdicts()[0].items() if v == "FAIL"}, {})

    def test_skips_are_listed(self):
        """A SKIP is in the list, with the class of its reason."""
        if onnx.__version__ != ONNX_VERSION:
            self.skipTest(f"the list was written for onnx {ONNX_VERSION}")
        listed = listed_skips()
        found = {n: class_of(r) for n, (v, r) in verdicts()[0].items() if v == "SKIP"}
        self.assertEqual({n: r for n, r in found.items() if listed.get(n) != r}, {})
        self.assertLessEqual(set(listed.values()), set(MEANINGS))

    def test_skips_only_shrink(self):
        """Listed tests are still skipped, and the floor allows no more skips."""
        if onnx.__version__ != ONNX_VERSION:
            self.skipTest(f"the list was written for onnx {ONNX_VERSION}")
        rows, listed = verdicts()[0], listed_skips()
        self.assertEqual([n for n in listed if rows.get(n, ("",))[0] != "SKIP"], [])
        self.assertLessEqual(len(listed), len(rows) - floor())

    def test_floor(self):
        """At least as many tests pass as before."""
        if onnx.__version__ != ONNX_VERSION:
            self.skipTest(f"the floor was counted on onnx {ONNX_VERSION}")
        passed = sum(v in PASSED for v, _ in verdicts()[0].values())
        self.assertGreaterEqual(passed, floor())

    def test_attention_is_covered(self):
        """No op that this project targets is skipped without being listed."""
        rows = {n: v for n, (v, _) in verdicts()[0].items()
                if n.startswith(("test_attention", "test_rotary"))}
        self.assertEqual([n for n, v in rows.items() if v not in PASSED], [])
        if onnx.__version__ == ONNX_VERSION:
            self.assertGreaterEqual(len(rows), ATTENTION_FLOOR)

    def test_table_output(self):
        """One folder as text: a row and a summary."""
        name = "test_add"
        result = self.good("test", NODES / name)
        self.assertEqual(result.out, f"PASS {name}\n1 passed, 0 failed, 0 skipped\n")


def show():
    """Prints everything that did not pass, with the number of each reason."""
    reasons = collections.Counter()
    for name, (verdict, reason) in sorted(verdicts()[0].items()):
        if verdict == "FAIL":
            print(verdict, name, reason)
        elif verdict == "SKIP":
            reasons[reason] += 1
    for reason, n in reasons.most_common():
        print(f"{n:5} SKIP {reason}")


def print_list():
    """The present rows of node_skips.txt."""
    for name, (verdict, reason) in sorted(verdicts()[0].items()):
        if verdict == "SKIP":
            what = re.sub(r" \((\d+ nodes, first )?'[^']*'\)", "", reason)
            print(name, class_of(reason), what)


if __name__ == "__main__":
    if "--list" in sys.argv:
        print_list()
    elif "--show" in sys.argv:
        show()
    else:
        sys.exit(harness.main())
