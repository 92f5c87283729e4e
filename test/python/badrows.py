"""What the tests of bad files share: the limits of a refusal, two tests for each row, and --show.

A row has a kind, a name, functions that make the bad file (`bad`) and its valid twin, and the exit
code and a word of the refusal.
"""

import sys
from collections import Counter

import harness
from harness import Case, GIB

SECONDS = 10


def check_limits(case, result):
    """A refusal must be fast and need little memory."""
    case.assertLess(result.seconds, SECONDS * (10 if harness.SANITIZED else 1), str(result))
    if not harness.SANITIZED:
        case.assertLess(result.peak, GIB, str(result))


def check_bad(case, row, result):
    """Checks the exit code, the word and the limits."""
    case.check(result, row.code, *([row.word] if result.code else []))
    check_limits(case, result)


def check_names(case, rows, least):
    """Checks the number of rows and that each has a unique name; returns how many rows each kind
    has."""
    counts = Counter(row.kind for row in rows)
    print(f"{len(rows)} rows: {dict(counts)}")
    case.assertGreaterEqual(len(rows), least)
    names = Counter((row.kind, row.name) for row in rows)
    case.assertEqual([n for n, k in names.items() if k > 1], [])
    return counts


def add_rows(cls, rows, twin_key=lambda row: (row.kind, row.name)):
    """Adds two methods for each row, which call `bad` and `twin`; one twin for all rows of a
    key."""
    seen = set()
    for i, row in enumerate(rows):
        def bad(self, row=row):
            self.bad(row)

        def twin(self, row=row):
            self.twin(row)
        setattr(cls, f"test {i:03} {row.kind}: {row.name}", bad)
        key = twin_key(row)
        if key not in seen:
            setattr(cls, f"test {i:03} {row.kind}: twin of {row.name}", twin)
        seen.add(key)


def sample(rows):
    """All rows in the long tier, otherwise every tenth and those that must always run."""
    return [row for i, row in enumerate(rows) if harness.FULL or row.always or i % 10 == 0]


def scratch():
    """A case outside the tests, for its scratch folder."""
    class Show(Case):
        """Only a scratch folder."""
    case = Show()
    case.setUp()
    return case


def show(rows, run_bad, run_twin):
    """Prints the outcome of every row."""
    case = scratch()
    for i, row in enumerate(rows):
        bad, twin = run_bad(row, case.dir / f"{i}b"), run_twin(row, case.dir / f"{i}t")
        good = bad.code in (row.code if isinstance(row.code, tuple) else (row.code,)) \
            and (not bad.code or row.word.lower() in bad.err.lower() + bad.out.lower())
        first = " | ".join(bad.err.strip().splitlines()[:2]) or bad.out.strip().replace("\n", " ")
        print(f"{'ok ' if good else 'BAD'} {'ok ' if twin.code == 0 else 'BAD'} {row.kind}: "
              f"{row.name} -> {bad.code} {bad.seconds:.2f}s {bad.peak >> 20}M {first[:220]}")
        if twin.code:
            print(f"        twin {twin.code}: {(twin.err or twin.out).strip()[:300]}")
    case.doCleanups()


def main(show_all):
    """Runs the tests, or --show."""
    if "--show" in sys.argv:
        show_all()
    else:
        sys.exit(harness.main())
