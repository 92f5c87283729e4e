#!/usr/bin/env python3
"""Bad model files: refused by name, fast, in little memory; their legal twins are taken.

    python test/python/test_bad_files.py [WORD …]      only rows whose name or class has the word
    python test/python/test_bad_files.py --show        every message, for reading

See test/corpus/make_bad.py for what a row is.
"""

import sys
import unittest
from collections import Counter

import harness
from harness import Case, GIB, ROOT, gqac

sys.path.insert(0, str(ROOT / "test" / "corpus"))
try:
    import make_bad
except ImportError as missing:
    make_bad = None
    print(missing)

SECONDS = 10
LEAST_ROWS = 470


def run(row, folder, build):
    """gqac on what the builder writes."""
    folder.mkdir()
    build(folder)
    return gqac(*make_bad.arguments(row, folder), seconds=SECONDS, memory=GIB)


@unittest.skipUnless(make_bad, "the onnx package is not installed")
class BadFiles(Case):
    """Two tests for each row, made below."""

    def bad(self, row):
        """The bad file: the exit code, the word, the limits."""
        result = run(row, self.dir / "bad", row.bad)
        self.check(result, row.code, *([row.word] if result.code else []))
        self.assertLess(result.seconds, SECONDS * (10 if harness.SANITIZED else 1), str(result))
        if not harness.SANITIZED:
            self.assertLess(result.peak, GIB, str(result))

    def twin(self, row):
        """The legal twin."""
        result = run(row, self.dir / "twin", row.twin)
        self.check(result, row.twin_code)

    def test_enough(self):
        """The corpus has its size, every class is there, and no two rows share a name."""
        rows = make_bad.ROWS
        counts = Counter(row.kind for row in rows)
        print(f"{len(rows)} bad files: {dict(counts)}")
        self.assertGreaterEqual(len(rows), LEAST_ROWS)
        self.assertEqual(set(counts), {"wire", "tensors", "external", "graph", "attention"})
        names = Counter((row.kind, row.name) for row in rows)
        self.assertEqual([n for n, k in names.items() if k > 1], [])

    def test_messages_have_place(self):
        """A refusal names the file."""
        row = next(r for r in make_bad.ROWS if r.name == "undefined input")
        result = run(row, self.dir / "bad", row.bad)
        self.check(result, row.code, "model.onnx", row.word)


def add_rows():
    """Two methods for each row."""
    for i, row in enumerate(make_bad.ROWS):
        def bad(self, row=row):
            self.bad(row)

        def twin(self, row=row):
            self.twin(row)
        setattr(BadFiles, f"test {i:03} {row.kind}: {row.name}", bad)
        setattr(BadFiles, f"test {i:03} {row.kind}: twin of {row.name}", twin)


def show():
    """Print every row's outcome."""
    class Show(Case):
        """Only its scratch folder."""
    case = Show()
    case.setUp()
    for i, row in enumerate(make_bad.ROWS):
        bad = run(row, case.dir / f"{i}b", row.bad)
        twin = run(row, case.dir / f"{i}t", row.twin)
        good = bad.code in (row.code if isinstance(row.code, tuple) else (row.code,)) \
            and (not bad.code or row.word.lower() in bad.err.lower() + bad.out.lower())
        first = " | ".join(bad.err.strip().splitlines()[:2]) or bad.out.strip().replace("\n", " ")
        print(f"{'ok ' if good else 'BAD'} {'ok ' if twin.code == 0 else 'BAD'} {row.kind}: "
              f"{row.name} -> {bad.code} {bad.seconds:.2f}s {bad.peak >> 20}M {first[:200]}")
        if twin.code:
            print(f"        twin {twin.code}: {(twin.err or twin.out).strip()[:300]}")
    case.doCleanups()


if make_bad:
    add_rows()

if __name__ == "__main__":
    if "--show" in sys.argv:
        show()
    else:
        sys.exit(harness.main())
