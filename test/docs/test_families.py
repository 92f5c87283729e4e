#!/usr/bin/env python3
"""docs/families.md has the rows of families.py, traced_families.py and export_translators.py in
tools: every pair is listed and passed, or is an exception with a reason."""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "test" / "python")]

import export_translators as translators  # noqa: E402
import families  # noqa: E402
import harness  # noqa: E402
import traced_families as traced  # noqa: E402

PAGE = ROOT / "docs" / "families.md"
LIMIT = 2e-5


def tables():
    """The tables of the page as rows of cells: the families of the builder, those of other
    exporters, and encoders with decoders."""
    found, before = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("| "):
            if not before.startswith("|"):
                found.append([])
            found[-1].append([c.strip() for c in line.strip("|").split("|")])
        before = line
    return found


def cells(rows):
    """{row-column: cell}"""
    return {f"{row[0]}-{p}": c for row in rows[1:] for p, c in zip(rows[0][1:], row[1:], strict=True)}


def table():
    """The cells of all pairs of the builder."""
    return cells(tables()[0])


class Families(unittest.TestCase):
    """The page compared with the lists of the tools."""

    def test_pairs(self):
        """The same pairs as in the list, and enough of them."""
        self.assertEqual(set(table()), set(families.pairs()))
        self.assertGreaterEqual(len(families.FAMILIES), 17)
        self.assertLessEqual(set(families.EXCEPT), set(families.pairs()))

    def test_passed(self):
        """Each number is within the tolerance of its precision; exceptions have a reason."""
        text = PAGE.read_text()
        for pair, cell in table().items():
            if pair in families.EXCEPT:
                self.assertEqual(cell, "except", pair)
                self.assertIn(f"- {pair}: {families.EXCEPT[pair]}", text)
                continue
            limit = families.PRECISIONS[families.pairs()[pair][1]].tolerance
            self.assertLessEqual(float(cell), limit, pair)

    def test_traced(self):
        """Each pair of an exporter; a reason for each that is refused, or raised only in
        sequences."""
        head, *rows = tables()[1]
        found = {f"{e}-{row[0]}": cell for row in rows
                 for e, cell in zip(head[1:], row[1:], strict=True) if cell}
        self.assertEqual(set(found), set(traced.pairs()))
        for pair, cell in found.items():
            self.assertEqual(cell == "none", pair in traced.REFUSED, pair)
            if cell != "none":
                self.assertLessEqual(float(cell.split()[0]), LIMIT, pair)
        for pair, why in (traced.REFUSED | traced.SEQUENCES).items():
            self.assertIn(f"- {pair}: {why}", PAGE.read_text())

    def test_translators(self):
        """Each pair of an encoder and a decoder."""
        rows = tables()[2][1:]
        self.assertEqual([row[0] for row in rows], [f.name for f in translators.FAMILIES])
        for name, *numbers, bits in rows:
            self.assertLessEqual(max(map(float, numbers)), LIMIT, name)
            self.assertTrue(bits == "equal" or f"\n- {name}: " in PAGE.read_text(), name)


if __name__ == "__main__":
    sys.exit(harness.main())
