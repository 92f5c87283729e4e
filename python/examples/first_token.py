#!/usr/bin/env python3
"""Time to the first token by the length of the cached prefix, as a plot (SVG, or what matplotlib
writes) or, without a file name, as a table.

    python first_token.py MODEL [PLOT]
"""

from __future__ import annotations

import statistics
import sys

import gqac

PROMPT = 512  # tokens
REPEAT = 5


def measure(model: gqac.Model) -> list[tuple[int, float]]:
    """(cached tokens, milliseconds) of a prompt of PROMPT tokens."""
    ids = [i * 7 % model.vocabulary for i in range(PROMPT)]
    rows = []
    for cached in range(0, PROMPT, PROMPT // 8):
        times = []
        for _ in range(REPEAT):
            store = gqac.PrefixStore(model)
            if cached:
                donor = store.open(ids[:cached])
                donor.step(ids[:cached])
                store.add(donor)
            said = model.generate(ids=ids, max_new_tokens=1, store=store)
            assert said.metrics.reused_tokens >= cached // 64 * 64
            times.append(said.metrics.time_to_first_token_ms)
        rows.append((cached, statistics.median(times)))
    return rows


def main(path: str, plot: str | None = None) -> None:
    """Measures, and prints or plots."""
    with gqac.Model(path) as model:
        rows = measure(model)
    if not plot:
        for cached, ms in rows:
            print(f"{cached:6d} cached tokens: {ms:8.3f} ms")
        return
    import matplotlib.pyplot as plt

    plt.plot(*zip(*rows), marker="o")
    plt.xlabel(f"cached tokens of a prompt of {PROMPT}")
    plt.ylabel("time to first token, ms")
    plt.ylim(bottom=0)
    plt.savefig(plot)


if __name__ == "__main__":
    main(*sys.argv[1:3])
