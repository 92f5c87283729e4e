#!/usr/bin/env python3
"""The rows of test/mutants still apply to the tree, and name existing tests.

tools/mutants.py, which is run by hand, tests the defects themselves, because each needs a build.
Here the piece of source in each row must occur exactly once, and invalid rows must be refused.

    python test/lint/test_mutants.py         prints `N passed, N failed`
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import mutants
from cases import Cases

AREAS = ("kernels", "kv", "runtime", "sampler", "scheduler", "store", "tokenizer")
LEAST, ALL = 8, 60  # minimum number of rows in an area, and in all
GOOD = {"file": "src/a.c", "find": "x < 1;", "put": "x <= 1;", "test": "kv_a", "case": "one two",
        "why": "x"}
WRONG = [  # the change of the valid row, and a word in the message
    ({"file": "src/b.c"}, "does not exist"),
    ({"find": "x < 2;"}, "occurs 0 times"),
    ({"find": "x"}, "occurs 2 times"),
    ({"put": "x < 1;"}, "the same"),
    ({"test": "kv_b"}, "no test kv_b"),
    ({"case": "two one"}, "no case 'two one'"),
    ({"ends": "survival"}, "`ends`"),
    ({"why": " "}, "`why`"),
]


def refused(call, *args):
    """The text with which a call is refused; "": it is accepted."""
    try:
        call(*args)
    except mutants.Wrong as wrong:
        return str(wrong)
    return ""


def check_refusals(folder, count):
    """Invalid rows and lists, in a tree of two files."""
    for name, text in (("src/a.c", "x < 1;\nx = 1;\n"), ("test/kv/test_a.c", '{"one "\n "two", f},\n')):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    good = mutants.Mutant("kv", "good", **GOOD)
    count(not refused(mutants.check, good, folder), "the good row is refused")
    for change, word in WRONG:
        text = refused(mutants.check, replace(good, **change), folder)
        count(word in text, f"{change} is answered by '{text}'")
    row = '[{}]\nfile = "a"\nfind = "b"\nput = "c"\ntest = "d"\n'
    for text, word in ((row.format("a"), "why"),
                       (row.format("a") + 'why = "e"\nwhen = "f"\n', "when")):
        (folder / "kv.toml").write_text(text)
        answer = refused(mutants.read_all, folder)
        count(word in answer, f"a list is answered by '{answer}'")
    for area in ("kv", "store"):
        (folder / f"{area}.toml").write_text(row.format("a") + 'why = "e"\n')
    answer = refused(mutants.read_all, folder)
    count("twice" in answer, f"a name in two lists is answered by '{answer}'")
    rows = [replace(good, name=str(i)) for i in "abcd"]
    count([m.name for m in mutants.select(rows, ["2-3", "d"])] == ["b", "c", "d"], "wrong selection")
    count(refused(mutants.select, rows, ["e"]), "a pattern that means nothing is accepted")


def main():
    cases = Cases()
    count = cases.count
    with tempfile.TemporaryDirectory(prefix="gqac-test-") as folder:
        check_refusals(Path(folder), count)
    rows = mutants.read_all()
    for m in rows:
        text = refused(mutants.check, m)
        count(not text, f"test/mutants/{m.area}.toml: {m.name}: {text}")
    for area in AREAS:
        n = sum(m.area == area for m in rows)
        count(n >= LEAST, f"{area} has {n} rows")
    count(len(rows) >= ALL, f"there are {len(rows)} rows")
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
