#!/usr/bin/env python3
"""Sums the results that the test programs report in a verbose ctest log.

Each program prints `N passed, N failed` as its last line. A program that ends without this line,
fails in spite of it, or ran nothing (without reporting this by exit code 77) counts as one failure.
Prints the output of failed programs, then the line with the sum; exits with 1 if anything failed or
nothing ran.
"""

import re
import sys

SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed(, \d+ skipped)?$")
OUTPUT = re.compile(r"^(\d+): (.*)$")
RESULT = re.compile(r"^\s*\d+/\d+ Test\s+#(\d+): (\S+) \.+\s*(\S.*?)\s+[\d.]+ sec")


def parse(lines):
    """Returns ({test number: output lines}, {test number: (name, result)})."""
    output, results = {}, {}
    for line in lines:
        line = line.rstrip("\n")
        if match := OUTPUT.match(line):
            output.setdefault(int(match[1]), []).append(match[2])
        elif match := RESULT.match(line):
            results[int(match[1])] = (match[2], match[3])
    return output, results


def counts(lines, passed):
    """(passed, failed) for one program, from its last summary line."""
    for line in reversed(lines):
        if match := SUMMARY.match(line):
            ok, bad = int(match[1]), int(match[2])
            return ok, bad if bad or passed and ok else 1
    return 0, 1


def main(path):
    with open(path, errors="replace") as file:
        output, results = parse(file)
    total_passed = total_failed = 0
    for number, (name, result) in sorted(results.items()):
        if "Skipped" in result:
            print(f"skipped: {name}: {(output.get(number) or ['no reason given'])[-1]}")
            continue
        passed, failed = counts(output.get(number, []), "Passed" in result)
        total_passed += passed
        total_failed += failed
        if failed:
            print(f"---- {name}: {result}")
            print("\n".join(output.get(number, [])[-80:]))
    print(f"{total_passed} passed, {total_failed} failed")
    return 1 if total_failed or not total_passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
