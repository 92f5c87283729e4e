#!/usr/bin/env python3
"""Invalid .npy files, tensors of calls and token ids: refused by name, fast, in little memory.

    python test/python/test_bad_inputs.py [WORD …]     only rows whose name or kind has the word
    python test/python/test_bad_inputs.py --show       every message, for reading

test/corpus/bad_inputs.py explains the rows. Without GQAC_TEST_FULL only some rows run.
"""

import sys
from functools import cache

import numpy as np

import badrows
import harness
from badrows import SECONDS
from harness import Case, GIB, MODELS, ROOT, gqac, model

sys.path.insert(0, str(ROOT / "test" / "corpus"))
import bad_inputs  # noqa: E402  (needs the path)

LEAST_ROWS = 140
CALL = MODELS / "llama" / "ref" / "hybrid" / "inputs"


@cache
def sound():
    """{name: array} of a call."""
    return {path.stem: np.load(path) for path in sorted(CALL.iterdir())}


def run(row, folder, make):
    """The call, or a score of the ids."""
    folder.mkdir()
    if row.kind == "ids":
        (folder / "ids.txt").write_bytes(make().encode())
        return gqac("score", model("llama"), "--ids", folder / "ids.txt", "-q", seconds=SECONDS,
                    memory=GIB)
    for name, value in {**sound(), **make(sound())}.items():
        path = folder / f"{name}.npy"
        if isinstance(value, bytes):
            path.write_bytes(value)
        elif value is not None:
            np.save(path, value)
    return gqac("run", model("llama"), "--inputs", folder, "-q", seconds=SECONDS, memory=GIB)


def twin(row, folder):
    """The valid call, and ids that the model has."""
    return run(row, folder, (lambda: "1 2 3") if row.kind == "ids" else lambda inputs: {})


class BadInputs(Case):
    """A test for each row, and one for the twin that all rows of a kind share."""

    def bad(self, row):
        """The exit code, the word, the limits; nothing on stdout."""
        result = run(row, self.dir / "bad", row.make)
        badrows.check_bad(self, row, result)
        self.assertEqual(result.out == "", row.code != 0, str(result))

    def twin(self, row):
        """The valid call."""
        self.check(twin(row, self.dir / "twin"), 0)

    def test_enough(self):
        """The corpus has its minimum size, and no two rows have the same name."""
        badrows.check_names(self, bad_inputs.ROWS, LEAST_ROWS)

    @harness.unittest.skipUnless(harness.FULL, "long tier: reads a GiB")
    def test_endless(self):
        """A file without an end is not read for ever."""
        for flags in (("score", model("llama"), "--ids"), ("tokenize", MODELS / "llama", "--file"),
                      ("generate", MODELS / "llama", "-n", 1, "--prompt-file"),
                      ("generate", MODELS / "llama", "-n", 1, "--prompt", "a", "--json-schema")):
            self.check(gqac(*flags, "/dev/zero"), 4, "'/dev/zero' has more than 1073741824 bytes")


badrows.add_rows(BadInputs, badrows.sample(bad_inputs.ROWS), lambda row: row.kind)

if __name__ == "__main__":
    badrows.main(lambda: badrows.show(bad_inputs.ROWS, lambda row, folder: run(row, folder, row.make),
                                      twin))
