#!/usr/bin/env python3
"""Scores every line of a text file: its perplexity, the least likely lines first.

    python batch_scores.py MODEL FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

import gqac


def main(path: str, file: str) -> None:
    """Prints a line for each line that has at least two tokens."""
    with gqac.Model(path) as model:
        found = []
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            ids = model.tokenize(line)
            if len(ids) > 1:
                found.append((model.score(ids).perplexity, line))
    for perplexity, line in sorted(found, reverse=True):
        print(f"{perplexity:10.2f}  {line}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
