#!/usr/bin/env python3
"""Invalid snapshot files and prefix stores with correct checksums: they are not used.

    python test/python/test_bad_snapshots.py [WORD …]     only rows whose name or kind has the word
    python test/python/test_bad_snapshots.py --show       every message, for reading

test/corpus/bad_snapshots.py explains the rows. Without GQAC_TEST_FULL only some rows run with a
model; `gqac cache` reads all of them in one call.
"""

import json
import os
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import badrows
import harness
from badrows import SECONDS
from harness import Case, GIB, MODELS, ROOT, gqac, write_ids

sys.path.insert(0, str(ROOT / "test" / "corpus"))
import bad_snapshots  # noqa: E402  (needs the path)
import sealed  # noqa: E402

LEAST_ROWS = 140
KINDS = {"gemma2": "windowed"}
NEW = 2


def generate(model, folder, *flags):
    """An answer to a prompt of 70 tokens."""
    ids = write_ids(folder / "ids.txt", [(i * 37 + i // 7) % 250 for i in range(70)])
    return gqac("generate", MODELS / model, "--ids", ids, "-n", NEW, "--format", "json", "--kv",
                KINDS.get(model, "contiguous"), *flags, seconds=SECONDS, memory=2 * GIB)


@cache
def sound(model):
    """(bytes of a snapshot after an answer, the ids of the answer)."""
    with TemporaryDirectory(prefix="gqac-test-") as name:
        folder = Path(name)
        result = generate(model, folder, "--prompt-cache", folder / "s.gqs", "-q")
        if result.code:
            raise AssertionError(str(result))
        return (folder / "s.gqs").read_bytes(), result.json()["ids"]


def write(row, path):
    """The file of a row."""
    made = row.make(sound(row.model)[0])
    data, size = made if isinstance(made, tuple) else (made, None)
    path.write_bytes(data)
    if size:
        os.truncate(path, size)


def run(row, folder, make):
    """An answer with the file as its prompt cache."""
    folder.mkdir()
    if make is row.make:
        write(row, folder / "s.gqs")
    else:
        (folder / "s.gqs").write_bytes(make(sound(row.model)[0]))
    return generate(row.model, folder, "--prompt-cache", folder / "s.gqs")


class BadSnapshots(Case):
    """A test for each row, and one for the twin of each model."""

    def answer(self, row, result, reused):
        """The answer of a run without a cache."""
        self.check(result, 0, *() if reused else ("the prompt cache is not used: ", row.word))
        badrows.check_limits(self, result)
        found = result.json()
        self.assertEqual(found["ids"], sound(row.model)[1])
        (self.assertGreater if reused else self.assertEqual)(found["metrics"]["reused_tokens"], 0)

    def bad(self, row):
        """The file is reported and not used; a file of another model is not replaced either. If its
        first bytes are not those of a snapshot, it belongs to somebody else."""
        result = run(row, self.dir / "bad", row.make)
        path = self.dir / "bad" / "s.gqs"
        if row.code in (0, 4) and result.code == 0:
            self.answer(row, result, row.code == 0)
        else:
            self.check(result, (2, 4), "s.gqs")
            if row.code == 2:
                self.check(result, 2, row.word)
            made = row.make(sound(row.model)[0])
            self.assertEqual(path.read_bytes(), made)
            badrows.check_limits(self, result)

    def twin(self, row):
        """The valid file is used."""
        self.answer(row, run(row, self.dir / "twin", sealed.sealed), True)

    def test_enough(self):
        """The corpus has its minimum size, and no two rows have the same name."""
        badrows.check_names(self, bad_snapshots.ROWS, LEAST_ROWS)

    def stores(self):
        """A folder of all files, named as in a store."""
        store = self.dir / "store"
        store.mkdir()
        names = {}
        for i, row in enumerate(bad_snapshots.ROWS):
            names[f"{i:064x}.gqs"] = row
            write(row, store / f"{i:064x}.gqs")
        return store, names

    def test_without_model(self):
        """`gqac cache` distinguishes files that are damaged in themselves from others."""
        store, names = self.stores()
        result = self.check(gqac("cache", "verify", store, "--format", "json", memory=GIB), 1)
        self.assertLess(result.peak, harness.GIB)
        for file in result.json()["files"]:
            row = names[file["name"]]
            if row.kind != "holes":
                self.assertEqual(file["damaged"], row.alone, row.name)
            if file["damaged"]:
                self.assertGreater(len(file["why"]), 8)
                self.assertIn(row.word if row.alone else "", file["why"], row.name)
        self.good("cache", "info", store)
        bad = [store / name for name, row in names.items() if row.alone]
        for path in bad if harness.FULL else bad[::20]:
            self.check(gqac("cache", "import", self.dir / "other", path), 4, path.name)
        self.assertEqual(list((self.dir / "other").iterdir()), [])

    def test_store(self):
        """A store of such files answers like no store, and cleaning removes the damaged files."""
        store, names = self.stores()
        for model in ("llama", *(() if not harness.FULL else ("qwen3.5", "gemma2"))):
            result = self.good(*generate(model, self.dir, "--prefix-store", store).command.split()[1:])
            self.assertEqual(result.json()["ids"], sound(model)[1], model)
        self.good("cache", "gc", store)
        kept = {path.name for path in store.iterdir()} & set(names)
        self.assertEqual([names[n].name for n in kept if names[n].alone], [])
        self.assertEqual([row.name for n, row in names.items()
                          if not row.alone and row.kind != "holes" and n not in kept], [])

    @harness.unittest.skipUnless(harness.FULL, "long tier: a GiB is hashed")
    def test_hole(self):
        """A file whose rows are a GiB of zeros is not read into memory."""
        data, more = sound("llama")[0], 1 << 30
        offset, length = sealed.part(data, "rows")
        data = sealed.with_part(data[:offset], "rows", length=more - length)
        data = sealed.with_part(data, "states", offset=more - length)
        data = sealed.with_fields(data, bytes=offset + more)
        store = self.dir / "store"
        store.mkdir()
        path = store / f"{0:064x}.gqs"
        path.write_bytes(data)
        os.truncate(path, offset + more)
        result = self.check(gqac("cache", "verify", store, memory=GIB, seconds=300), 1,
                            "checksum of the rows")
        if not harness.SANITIZED:
            self.assertLess(result.peak, GIB // 4)


badrows.add_rows(BadSnapshots, badrows.sample(bad_snapshots.ROWS), lambda row: row.model)

if __name__ == "__main__":
    badrows.main(lambda: badrows.show(bad_snapshots.ROWS,
                                      lambda row, folder: run(row, folder, row.make),
                                      lambda row, folder: run(row, folder, sealed.sealed)))
