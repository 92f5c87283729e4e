#!/usr/bin/env python3
"""Refuses incomplete records: exit 1 with a line for each complaint, 0 if all are complete.

    bench/check_records.py [FILE.jsonl ...]      all of bench/results by default
"""

import sys
from pathlib import Path

import records


def main(names):
    files = [Path(n) for n in names] or sorted(
        (Path(__file__).resolve().parent / "results").glob("*.jsonl"))
    wrong = []
    for file in files:
        try:
            wrong += records.check_lines(file.read_text(), file.name)
        except (OSError, UnicodeDecodeError) as error:
            wrong.append(f"{file}: {error}")
    if not files:
        wrong.append("there are no records to check")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
