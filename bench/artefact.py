#!/usr/bin/env python3
"""The time to open a compiled model, and the memory that two processes with it share.

Compiles a model (or takes a .gqac file), reads it once so that it is in the page cache, and reports

  open    the wall time of `gqac inspect FILE --io`, which only opens it, and of `gqac version` for
          comparison, which opens nothing: the median of the runs, in milliseconds
  pages   of two processes that run the model at the same time: how much of the file each has in
          memory, how much of that both share, and how much is private, in MiB (/proc/PID/smaps)

Prints a table; --out FILE appends a JSON record, e.g. to bench/results/artefact.jsonl.

    ./dev bench artefact [--model FILE] [--runs N] [--out FILE]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import records
from records import ROOT

GQAC = Path(os.environ.get("GQAC", ROOT / "build" / "release" / "gqac"))
MIB = 1 << 20
WAIT_S = 120


def wall_ms(*command):
    start = time.perf_counter()
    subprocess.run([str(GQAC), *map(str, command)], check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - start)


def mapped(pid, path):
    """KiB of a process's mappings of a file: resident, shared, private."""
    sums, within = {"Rss": 0, "Shared_Clean": 0, "Private_Clean": 0, "Private_Dirty": 0}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if not line[0].isupper():
            within = line.endswith(str(path))
        elif within and name in sums:
            sums[name] += int(rest.split()[0])
    return sums


def pages(path):
    """The same for two processes that run it, after both have read half of the file; None: they
    ended before that."""
    half = path.stat().st_size / 2 / 1024
    command = [str(GQAC), "bench", str(path), "-p", "64", "-n", "64", "--threads", "1"]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    end = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < end and all(p.poll() is None for p in both):
            seen = [mapped(p.pid, path) for p in both]
            if all(s["Rss"] > half for s in seen):
                return seen
            time.sleep(0.05)
    finally:
        for p in both:
            p.kill()
            p.wait()
    return None


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path,
                        default=ROOT / "build/bench-models/qwen2.5-1.5b-int4/model.onnx")
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)
    if not args.model.exists():
        print(f"{args.model} is not there; `./dev bench --accept` makes it, or give --model",
              file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        path = args.model.resolve()
        if path.suffix != ".gqac":
            path = Path(folder) / f"{args.model.resolve().parent.name}.gqac"
            wall_ms("compile", args.model, "-o", path, "--quiet")
        subprocess.run(["cat", path], check=True, stdout=subprocess.DEVNULL)
        opened = [wall_ms("inspect", path, "--io") for _ in range(args.runs)]
        nothing = [wall_ms("version") for _ in range(args.runs)]
        seen = pages(path)
        size = path.stat().st_size
    if not seen:
        print("the two processes ended before both had read half of the file", file=sys.stderr)
        return 1
    results = {"open_ms": statistics.median(opened), "open_most_ms": max(opened),
               "start_ms": statistics.median(nothing), "mib": size / MIB,
               "pages_mib": [{name: kib / 1024 for name, kib in s.items()} for s in seen]}
    print(f"{size / MIB:.0f} MiB: open {results['open_ms']:.1f} ms (most "
          f"{results['open_most_ms']:.1f}), a process that opens nothing "
          f"{results['start_ms']:.1f} ms")
    for s in results["pages_mib"]:
        print("  of the file in memory " + ", ".join(f"{k} {v:.1f} MiB" for k, v in s.items()))
    record = {"bench": "artefact", **records.made_here(1), "owner": "gqac",
              "version": records.first_line(str(GQAC), "version"), "dtype": "the model's",
              "shapes": {"model": path.stem, "mib": round(size / MIB)},
              "method": f"median wall time of {args.runs} processes, file in the page cache; smaps "
                        "of two processes at one time", "results": results}
    if args.out:
        records.append(args.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
