#!/usr/bin/env python3
"""Seeded defects: each is put into a copy of the tree, and a named test must fail.

A test that cannot fail proves nothing. The rows of test/mutants/AREA.toml are typical programming
errors, each a replaced piece of source. A row has

    file      the source, from the root of the tree
    find      what is replaced; it occurs there exactly once
    put       what replaces it
    test      the test that must fail, as ctest names it
    case      optional: words of a title; only the cases with them are run
    why       what goes wrong for a user
    ends      optional: "crash" or "timeout", if the test ends so instead of counting a failure

The copy is in build/mutants, with a build of its own. First every selected test must pass on the
unchanged tree; then each defect is inserted, built and tested, one after another. A defect that
does not build, or whose test ends differently from the row, is not caught.

    python3 tools/mutants.py [PATTERN...]   PATTERN: an area, a name (also with *), or numbers N-M
    python3 tools/mutants.py --list         prints the rows with their numbers
"""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "test" / "mutants"
COPY = ROOT / "build" / "mutants"
BUILD = COPY / "build" / "release"
KEYS = {"file", "find", "put", "test", "case", "why", "ends"}
NEEDED = KEYS - {"case", "ends"}
ENDS = {"failure", "crash", "timeout"}
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed", re.MULTILINE)
FAILED = re.compile(r"^(FAIL[: ].*)$", re.MULTILINE)


@dataclass
class Mutant:
    """One row."""

    area: str
    name: str
    file: str
    find: str
    put: str
    test: str
    why: str
    case: str = ""
    ends: str = "failure"


class Wrong(Exception):
    """A row, or the unchanged tree, is invalid."""


def test_source(test, root=ROOT):
    """The source of the test with that name in ctest, or None."""
    names = [f"lint/test_{test[7:]}.py", f"python/test_{test[7:]}.py"] if test.startswith(
        "python_") else [test.replace("_", "/test_", 1) + ".c"]
    return next((root / "test" / n for n in names if (root / "test" / n).is_file()), None)


def check(mutant, root=ROOT):
    """Checks that the row applies to the tree."""
    path = root / mutant.file
    if not path.is_file():
        raise Wrong(f"{mutant.file} does not exist")
    found = path.read_text().count(mutant.find)
    if found != 1:
        raise Wrong(f"`find` occurs {found} times in {mutant.file}, not once")
    if mutant.find == mutant.put:
        raise Wrong("`put` is the same as `find`")
    if mutant.ends not in ENDS:
        raise Wrong(f"`ends` is none of {', '.join(sorted(ENDS))}")
    if not mutant.why.strip():
        raise Wrong("`why` is empty")
    source = test_source(mutant.test, root)
    if not source:
        raise Wrong(f"there is no test {mutant.test}")
    if mutant.case and mutant.case not in re.sub(r'"\s*\n\s*"', "", source.read_text()):
        raise Wrong(f"{source.name} has no case '{mutant.case}'")


def read_list(path):
    """The rows of one area."""
    for name, row in tomllib.loads(path.read_text()).items():
        if wrong := set(row) - KEYS or NEEDED - set(row):
            raise Wrong(f"{path.name}: {name}: wrong or missing: {', '.join(sorted(wrong))}")
        yield Mutant(path.stem, name, **row)


def read_all(folder=LISTS):
    """All rows, by area and in the order of the files. Names are unique."""
    rows = [m for path in sorted(folder.glob("*.toml")) for m in read_list(path)]
    names = [m.name for m in rows]
    if twice := {n for n in names if names.count(n) > 1}:
        raise Wrong(f"names that occur twice: {', '.join(sorted(twice))}")
    return rows


def select(rows, patterns):
    """The rows selected by any pattern; without patterns all."""
    chosen = set()
    for pattern in patterns or ["*"]:
        span = re.fullmatch(r"(\d+)(?:-(\d+))?", pattern)
        numbers = range(int(span[1]), int(span[2] or span[1]) + 1) if span else ()
        found = {i for i, m in enumerate(rows) if i + 1 in numbers or m.area == pattern or
                 fnmatch.fnmatchcase(m.name, pattern)}
        if not found:
            raise Wrong(f"no row is meant by '{pattern}'")
        chosen |= found
    return [rows[i] for i in sorted(chosen)]


def copy_tree():
    """Makes the copy equal to the working tree. Equal files keep their times."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT,
                            stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    files = {name for name in listed if name and (ROOT / name).is_file()}
    for name in files:
        source, to = ROOT / name, COPY / name
        if to.is_file() and to.read_bytes() == source.read_bytes():
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to)
        shutil.copymode(source, to)
    for folder, inner, names in os.walk(COPY):
        if Path(folder) == COPY:
            inner.remove("build") if "build" in inner else None
        for name in names:
            path = Path(folder, name)
            if str(path.relative_to(COPY)) not in files:
                path.unlink()


def configure():
    """Configures the build of the copy, unless that is already done."""
    BUILD.parent.mkdir(parents=True, exist_ok=True)
    venv = BUILD.parent / "venv"
    if not venv.is_symlink() and (ROOT / "build" / "venv").exists():
        venv.symlink_to(ROOT / "build" / "venv")
    words = ["cmake", "--preset", "release"]
    if shutil.which("ccache"):
        words.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
    subprocess.run(words, cwd=COPY, check=True, stdout=subprocess.DEVNULL)


def build(targets, jobs):
    """Builds targets of the copy; returns the output if it failed, otherwise None."""
    done = subprocess.run(["cmake", "--build", str(BUILD), "-j", str(jobs), "--target", *targets],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)
    return done.stdout if done.returncode else None


def targets_of(test):
    """The targets that must be built for a test."""
    if not test.startswith("python_"):
        return [f"test_{test}"]
    return ["gqac_tool", "tool_text", *["gqac_ort", "tool_sessions"] * test.startswith("python_ort_")]


def commands():
    """{test: (command, environment)} as in ctest."""
    done = subprocess.run(["ctest", "--test-dir", str(BUILD), "--show-only=json-v1"],
                          stdout=subprocess.PIPE, check=True)
    tests = {}
    for test in json.loads(done.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", ())}
        env = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", ()))
        tests[test["name"]] = test.get("command", []), {**os.environ, **env}
    return tests


@dataclass
class Outcome:
    """How a test ended: passed, failure, crash, timeout or `nothing ran`."""

    end: str
    seconds: float
    text: str


def run(mutant, tests, seconds):
    """Runs the test of a row."""
    command, env = tests[mutant.test]
    words = command + ([mutant.case] if mutant.case else [])
    start = time.monotonic()
    try:
        done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Outcome("timeout", time.monotonic() - start, "")
    text = done.stdout.decode("utf-8", "replace")
    counts = [(int(a), int(b)) for a, b in COUNTS.findall(text)]
    passed, failed = (sum(c) for c in zip(*counts)) if counts else (0, 0)
    if done.returncode < 0:
        end = "crash"
    elif done.returncode and failed:
        end = "failure"
    else:
        end = "passed" if done.returncode == 0 and passed and not failed else "nothing ran"
    return Outcome(end, time.monotonic() - start, text)


def run_unchanged(rows, tests):
    """Runs each test on the unchanged tree: {(test, case): seconds}. All must pass."""
    taken = {}
    for m in rows:
        if (m.test, m.case) in taken:
            continue
        outcome = run(m, tests, 600)
        if outcome.end != "passed":
            raise Wrong(f"{m.test} '{m.case}' does not pass on the tree as it is ({outcome.end}):\n"
                        + outcome.text[-2000:])
        taken[m.test, m.case] = outcome.seconds
    return taken


def try_one(mutant, tests, seconds, jobs):
    """Inserts the defect, builds and tests: (caught, how it ended)."""
    path = COPY / mutant.file
    text = path.read_text()
    try:
        path.write_text(text.replace(mutant.find, mutant.put))
        if log := build(targets_of(mutant.test), jobs):
            return False, "does not build:\n" + "\n".join(log.splitlines()[-30:])
        outcome = run(mutant, tests, seconds)
    finally:
        path.write_text(text)
    first = FAILED.search(outcome.text)
    how = outcome.end + (f": {first[1][:150]}" if first and outcome.end == "failure" else "")
    return outcome.end == mutant.ends, how


def try_all(rows, jobs):
    """Tries the rows; returns the number of survivors."""
    copy_tree()
    configure()
    if log := build(sorted({t for m in rows for t in targets_of(m.test)}), jobs):
        raise Wrong("the tree as it is does not build:\n" + log[-3000:])
    tests = commands()
    taken = run_unchanged(rows, tests)
    survivors = []
    for m in rows:
        start = time.monotonic()
        limit = 20 + 10 * taken[m.test, m.case]
        caught, how = try_one(m, tests, limit, jobs)
        print(f"{'caught' if caught else 'SURVIVED'} {m.area}/{m.name} by {m.test}"
              f" ({time.monotonic() - start:.0f} s): {how}", flush=True)
        if not caught:
            survivors.append(m)
    for m in survivors:
        print(f"survived: {m.area}/{m.name}: {m.why}")
    print(f"{len(rows) - len(survivors)} caught, {len(survivors)} survived")
    return len(survivors)


def main():
    """The command line."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("pattern", nargs="*", help="an area, a name (also with *), or numbers N-M")
    words.add_argument("--list", action="store_true", help="print the rows with their numbers")
    words.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of the build")
    args = words.parse_args()
    try:
        rows = read_all()
        chosen = select(rows, args.pattern)
        for m in chosen:
            try:
                check(m)
            except Wrong as wrong:
                raise Wrong(f"test/mutants/{m.area}.toml: {m.name}: {wrong}") from wrong
        if args.list:
            for m in chosen:
                print(f"{rows.index(m) + 1:3} {m.area}/{m.name}: {m.test}: {m.why}")
            return 0
        return 1 if try_all(chosen, args.jobs) else 0
    except Wrong as wrong:
        print(f"mutants: {wrong}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
