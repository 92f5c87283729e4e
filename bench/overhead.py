"""The cost of a decode step outside its kernels: the time of the run time itself.

A tool (overhead.c) times steps of one token on one thread, alternately with the same steps with
kernels that do nothing. The time of the empty ones is the cost of the run time; the difference to
the others is the kernels' own time.

    ./dev bench overhead [--model FILE] [--past P] [--runs N] [--tool FILE@COMMIT ...] [--out FILE]

Several tools, of builds of other commits, alternate, and each makes a record. Without --tool it is
the tool of this build. --out appends, e.g. to bench/results/overhead.jsonl.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import engines
import records

STEPS, SAMPLES = 64, 10


def arguments(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path,
                        default=records.ROOT / "models" / "tiny-gqa" / "model.onnx")
    parser.add_argument("--past", type=int, default=64)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--tool", action="append", help="FILE@COMMIT it was built of")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)
    args.tools = {engines.TOOLS / "overhead": None}
    if args.tool:
        if not all("@" in word for word in args.tool):
            parser.error("--tool is FILE@COMMIT")
        args.tools = {Path(f).resolve(): c for f, _, c in (w.rpartition("@") for w in args.tool)}
    return args


def run(tool, args):
    """One process: the tool's line. All processes run on the same core."""
    core = max(os.sched_getaffinity(0))
    words = [tool, args.model, args.past, STEPS, SAMPLES]
    return json.loads(subprocess.run(list(map(str, words)), check=True, capture_output=True,
                                     text=True,
                                     preexec_fn=lambda: os.sched_setaffinity(0, {core})).stdout)


def summary(lines):
    """Medians and minimum times of all samples, in microseconds."""
    times = {key: sum((line[key] for line in lines), []) for key in ("step_us", "empty_us")}
    results = {key: statistics.median(t) for key, t in times.items()}
    results |= {f"least_{key}": min(t) for key, t in times.items()}
    return {**results, "share": results["empty_us"] / results["step_us"]}


def main(words):
    args = arguments(words)
    lines = {tool: [] for tool in args.tools}
    for i in range(args.runs):
        for tool in args.tools if i % 2 == 0 else reversed(args.tools):
            lines[tool].append(run(tool, args))
    for tool, commit in args.tools.items():
        first, results = lines[tool][0], summary(lines[tool])
        record = {"bench": "overhead", **records.made_here(1), "owner": "gqac",
                  "version": first["version"], "level": first["level"], "dtype": "f32",
                  "shapes": {"model": args.model.parent.name, "S": 1, "P": args.past},
                  "method": f"steps of one token as they are and on empty kernels, in turns: "
                            f"{args.runs} processes, pinned, {SAMPLES} samples of {STEPS} steps each",
                  "results": results,
                  "samples": {key: [line[key] for line in lines[tool]]
                              for key in ("step_us", "empty_us")}}
        record["commit"] = commit or record["commit"]
        print(f"{record['commit']}: a step {results['step_us']:.1f} us (least "
              f"{results['least_step_us']:.1f}), on empty kernels {results['empty_us']:.1f} us (least "
              f"{results['least_empty_us']:.1f}), {100 * results['share']:.0f} %")
        if args.out:
            records.append(args.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
