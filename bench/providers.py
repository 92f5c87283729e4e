#!/usr/bin/env python3
"""ONNX Runtime's CPU provider and gqac's in one process: the time of the same call of two sessions.

For each row, which is one of `./dev bench --list`, a process opens the model twice and runs both
sessions in ABBA pairs: prompts, tokens and caches are those of the other benchmarks
(worker_ort.py), pinned to the same cores. Before a sample, the process waits until the threads of
the other session have stopped spinning, and, if a sample has several calls, makes one that is not
counted. It reports

  CPU, gqac   milliseconds of one call: medians of the medians of the samples
  ratio       median of the pairs: above 1, gqac is faster

Prints a table; --out FILE appends records to a JSON-lines file, e.g. bench/results/providers.jsonl.
Exit 1: the logits of the two differ by more than rounding explains.

    ./dev bench providers [--only ROW,...] [--pairs N] [--threads N] [--out FILE]
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import engines
import records
import rows
import worker

ROWS = "0.5b-int4-session-1@512,0.5b-int4-session-512@0"
WARM = 2  # calls by which the time of one is estimated
REST = 0.1  # seconds; ONNX Runtime's threads spin for less
TOLERANCE = {"f32": 1e-3, "int4": 0.2}  # random weights; int4 rounds activations to 8 bits


def opened(row, args, more=()):
    """A session with all inputs and outputs bound. It pins this thread to the first core."""
    import worker_ort
    os.sched_setaffinity(0, args.cores)
    engine = worker_ort.Engine(worker.parse([*row.words(rows.ORT), f"threads={args.threads}", *more]))
    engine.open_sequences({})
    return engine


def sample(engine, calls):
    """Milliseconds of each call."""
    time.sleep(REST)
    if calls > 1:
        engine.run_sequence()
    return [1e3 * engine.run_sequence() for _ in range(calls)]


def difference(ours, cpu):
    """The greatest difference of the last logits, relative to the greatest logit."""
    a, b = (np.asarray(engine.output(), np.float32) for engine in (ours, cpu))
    return float(np.abs(a - b).max() / np.abs(b).max())


def measure(row, args):
    """The record of a row."""
    both = {"CPU": opened(row, args), "gqac": opened(row, args, [f"library={args.library}"])}
    times = {name: [] for name in both}
    calls = {}
    for name, engine in both.items():
        ms = sample(engine, WARM)[-1] * row.extra.get("calls", 1)
        calls[name] = max(1, round(engines.SAMPLE_MS / ms))
    for pair in range(args.pairs):
        for name in both if pair % 2 else reversed(both):
            times[name].append(sample(both[name], calls[name]))
    medians = {name: [statistics.median(s) for s in samples] for name, samples in times.items()}
    return {
        "bench": "providers", "row": row.name, **records.made_here(args.threads), "owner": "gqac",
        "dtype": row.dtype, "shapes": {**row.shapes, **row.extra},
        "versions": {"gqac": records.first_line(str(engines.ROOT / "build/release/gqac"), "version"),
                     rows.ORT: both["CPU"].version()},
        "results": {**{f"{name}_ms": statistics.median(ms) for name, ms in medians.items()},
                    "ratio": statistics.median(c / g for c, g in zip(medians["CPU"], medians["gqac"])),
                    "difference": difference(both["gqac"], both["CPU"])},
        "samples": times,
        "method": f"{args.pairs} ABBA pairs of two sessions of one process, each sample the median of its "
                  f"calls, {REST} s of rest and, of several calls, a warm-up call before it, pinned",
    }


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=ROWS)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--library", type=Path, default=engines.ROOT / "build/release/libgqac_ort.so")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)
    args.cores = sorted(os.sched_getaffinity(0))[:args.threads]

    wrong = False
    print("| row | CPU provider, ms | gqac, ms | ratio |\n|---|---|---|---|")
    for name in args.only.split(","):
        row = rows.BY_NAME[name]
        record = measure(row, args)
        r = record["results"]
        print(f"| {name} | {r['CPU_ms']:.3g} | {r['gqac_ms']:.3g} | {r['ratio']:.2f}× |", flush=True)
        if r["difference"] > TOLERANCE[row.dtype]:
            print(f"WRONG: {name} differs by {r['difference']:.2g}", file=sys.stderr)
            wrong = True
        elif args.out:
            records.append(args.out, record)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
