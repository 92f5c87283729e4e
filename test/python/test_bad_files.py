#!/usr/bin/env python3
"""Bad model files: refused by name, fast, in little memory; their valid twins are accepted.

    python test/python/test_bad_files.py [WORD …]      only rows whose name or class has the word
    python test/python/test_bad_files.py --show        every message, for reading

test/corpus/make_bad.py explains the rows.
"""

import sys
import unittest

import badrows
from badrows import SECONDS
from harness import Case, GIB, ROOT, gqac

sys.path.insert(0, str(ROOT / "test" / "corpus"))
try:
    import make_bad
except ImportError as missing:
    make_bad = None
    print(missing)

LEAST_ROWS = 560


def run(row, folder, build):
    """gqac on the files of the builder."""
    folder.mkdir()
    build(folder)
    return gqac(*make_bad.arguments(row, folder), seconds=SECONDS, memory=GIB)


@unittest.skipUnless(make_bad, "the onnx package is not installed")
class BadFiles(Case):
    """Two tests for each row, added below."""

    def bad(self, row):
        """The bad file: the exit code, the word, the limits."""
        badrows.check_bad(self, row, run(row, self.dir / "bad", row.bad))

    def twin(self, row):
        """The valid twin."""
        result = run(row, self.dir / "twin", row.twin)
        self.check(result, row.twin_code)

    def test_enough(self):
        """The corpus has its minimum size, every class occurs, and no two rows have the same
        name."""
        counts = badrows.check_names(self, make_bad.ROWS, LEAST_ROWS)
        self.assertEqual(set(counts), {"wire", "tensors", "external", "graph", "attention"})

    def test_messages_have_place(self):
        """A refusal names the file."""
        row = next(r for r in make_bad.ROWS if r.name == "undefined input")
        result = run(row, self.dir / "bad", row.bad)
        self.check(result, row.code, "model.onnx", row.word)


if make_bad:
    badrows.add_rows(BadFiles, make_bad.ROWS)

if __name__ == "__main__":
    badrows.main(lambda: badrows.show(make_bad.ROWS, lambda row, folder: run(row, folder, row.bad),
                                      lambda row, folder: run(row, folder, row.twin)))
