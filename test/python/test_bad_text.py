#!/usr/bin/env python3
"""Hostile text IR: refused by name, fast, in little memory; the valid twins are accepted.

    python test/python/test_bad_text.py [WORD …]      only rows whose name or class has the word
    python test/python/test_bad_text.py --show        every message, for reading

test/corpus/bad_text.py explains the rows.
"""

import sys
import unittest
from functools import cache
from tempfile import TemporaryDirectory
from pathlib import Path

import numpy as np

import badrows
from badrows import SECONDS
from harness import Case, GIB, ROOT, gqac

sys.path.insert(0, str(ROOT / "test" / "corpus"))
try:
    import bad_text
except ImportError as missing:
    bad_text = None
    print(missing)

LEAST_ROWS = 100


@cache
def base(name):
    """The dump of the tiny model after a pass, for ref, so that its weights are not packed."""
    with TemporaryDirectory(prefix="gqac-test-") as folder:
        source, out = Path(folder) / "m.onnx", Path(folder) / "m.gq"
        source.write_bytes(bad_text.tiny_model().SerializeToString())
        result = gqac("compile", source, "--target", "ref", "--emit", "text", "--stop-after", name,
                      "-o", out)
        if result.code:
            raise AssertionError(str(result))
        return out.read_text()


def text_of(row, what):
    """The text of row.bad or row.twin."""
    if isinstance(what, str):
        return what
    made = base(row.base)
    for old, new in what:
        if old not in made:
            raise AssertionError(f"{row.name}: no {old!r} in the dump after {row.base}")
        made = made.replace(old, new)
    return made


def run(row, folder, what):
    """gqac on the text."""
    folder.mkdir()
    path = folder / "m.gq"
    path.write_text(text_of(row, what))
    words = [row.verb, path]
    if row.verb == "score":
        ids = folder / "ids.txt"
        ids.write_text(bad_text.IDS)
        words += ["--ids", ids]
    elif row.verb == "run":
        for name, value in row.inputs.items():
            np.save(folder / f"{name}.npy", value)
            words += ["--input", f"{name}={folder / name}.npy"]
    return gqac(*words, seconds=SECONDS, memory=GIB)


def twin_of(row):
    """A stateful base cannot be run without sequences, so its twin is scored."""
    if row.base and row.verb == "run":
        return bad_text.TextRow(row.name, row.kind, "", base=row.base, twin=row.twin)
    return row


@unittest.skipUnless(bad_text, "the onnx package is not installed")
class BadText(Case):
    """Two tests for each row, added below."""

    def bad(self, row):
        """The hostile text: the exit code, the word, the limits."""
        badrows.check_bad(self, row, run(row, self.dir / "bad", row.bad))

    def twin(self, row):
        """The valid twin."""
        self.check(run(twin_of(row), self.dir / "twin", row.twin), 0)

    def test_enough(self):
        """The corpus has its minimum size, and no two rows have the same name."""
        badrows.check_names(self, bad_text.ROWS, LEAST_ROWS)

    def test_round_trip(self):
        """The bases are valid: their text is printed again as the same bytes."""
        for name in ("stateful", "plan"):
            path, out = self.dir / f"{name}.gq", self.dir / "out.gq"
            path.write_text(base(name))
            self.good("compile", path, "--stop-after", "import", "--emit", "text", "-o", out)
            self.assertEqual(out.read_text(), base(name))


if bad_text:
    badrows.add_rows(BadText, bad_text.ROWS,
                     lambda row: (row.base, str(row.twin), twin_of(row).verb))

if __name__ == "__main__":
    badrows.main(lambda: badrows.show(
        bad_text.ROWS, lambda row, folder: run(row, folder, row.bad),
        lambda row, folder: run(twin_of(row), folder, row.twin)))
