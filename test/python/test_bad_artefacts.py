#!/usr/bin/env python3
"""Invalid artefacts with correct checksums: refused by name, fast, in little memory.

    python test/python/test_bad_artefacts.py [WORD …]     only rows whose name or kind has the word
    python test/python/test_bad_artefacts.py --show       every message, for reading

test/corpus/bad_artefacts.py explains the rows. Without GQAC_TEST_FULL only some rows run.
"""

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import badrows
from badrows import SECONDS
from harness import Case, GIB, MODELS, ROOT, gqac, write_ids

sys.path.insert(0, str(ROOT / "test" / "corpus"))
import bad_artefacts  # noqa: E402  (needs the path)
import sealed  # noqa: E402

LEAST_ROWS = 140


@cache
def sound():
    """The sections of an artefact made from a folder."""
    with TemporaryDirectory(prefix="gqac-test-") as folder:
        path = Path(folder) / "m.gqac"
        result = gqac("compile", MODELS / "llama", "-o", path)
        if result.code:
            raise AssertionError(str(result))
        return sealed.sections_of(path.read_bytes())


def run(row, folder, make):
    """Runs the verb that reads the invalid part."""
    folder.mkdir()
    path = folder / "m.gqac"
    path.write_bytes(make(sound()))
    ids = write_ids(folder / "ids.txt", [1, 5, 9])
    words = {"text": ("generate", path, "--prompt", "a", "-n", 1, "-q")}.get(
        row.kind, ("score", path, "--ids", ids, "-q"))
    return gqac(*words, seconds=SECONDS, memory=2 * GIB)


class BadArtefacts(Case):
    """A test for each row, and one for the twin that all rows of a kind share."""

    def bad(self, row):
        """Checks the exit code, the word and the limits; a refusal names the file."""
        result = run(row, self.dir / "bad", row.make)
        badrows.check_bad(self, row, result)
        if result.code == 3:
            self.check(result, 3, "m.gqac")

    def twin(self, row):
        """The valid artefact, reassembled."""
        self.check(run(row, self.dir / "twin", sealed.artefact), 0)

    def test_enough(self):
        """The corpus has its minimum size, and no two rows have the same name."""
        badrows.check_names(self, bad_artefacts.ROWS, LEAST_ROWS)


badrows.add_rows(BadArtefacts, badrows.sample(bad_artefacts.ROWS), lambda row: row.kind)

if __name__ == "__main__":
    badrows.main(lambda: badrows.show(bad_artefacts.ROWS,
                                      lambda row, folder: run(row, folder, row.make),
                                      lambda row, folder: run(row, folder, sealed.artefact)))
