"""Records of measurements: one JSON object a line, with everything needed to judge the numbers.

check() lists missing and inconsistent fields; check_records.py and the drivers use it, so that an
incomplete record is neither written nor committed.
"""

import json
import math
import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

COMMON = {"bench": str, "date": str, "commit": str, "owner": str, "kind": str, "host": str,
          "compiler": str, "threads": int, "dtype": str, "shapes": dict, "method": str}
OF_KIND = {
    "kv_cache": {"version": str, "results": dict, "slope_ratio": float, "first_ratio": float},
    "artefact": {"version": str, "results": dict},
    "load": {"part": str, "level": str, "versions": dict, "results": dict, "samples": list,
             "missed": list},
    "constraint": {"version": str, "results": dict},
    "providers": {"row": str, "versions": dict, "results": dict, "samples": dict},
    "speculate": {"version": str, "results": dict},
    "gpu": {"row": str, "profile": str, "device": dict, "copy_gbps": float, "versions": dict,
            "results": dict, "samples": dict, "difference": float},
    "overhead": {"version": str, "level": str, "results": dict, "samples": dict},
    "pairs": {"row": str, "level": str, "math": str, "versions": dict, "calibration": dict,
              "pairs": list, "results": dict, "repeated": bool, "moved": bool},
}
LEVELS = ("scalar", "avx2", "avx512", "avx512vnni", "avx512bf16")
LEAST_PAIRS = 5


def first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip().split("\n")[0]


def made_here(threads):
    """The fields of every record that say where and when its numbers were measured."""
    commit = first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    dirty = first_line("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    facts = {}
    for line in open("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    cpu = facts.get("model name", platform.processor())
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit + ("+changes" if dirty else ""), "kind": "measured",
        "host": f"{cpu}, {os.cpu_count()} cores", "compiler": first_line("cc", "--version"),
        "cpu": f"family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}",
        "threads": threads,
    }


def positive(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) and x > 0


def check(record):
    """The faults of a record, as a list of sentences; empty if it is complete."""
    if not isinstance(record, dict):
        return ["it is not an object"]
    wrong = missing(record, COMMON)
    bench = record.get("bench")
    if bench not in OF_KIND:
        return wrong + [f"bench '{bench}' is not one of {', '.join(OF_KIND)}"]
    wrong += missing(record, OF_KIND[bench])
    if wrong:
        return wrong
    if record["kind"] not in ("measured", "estimated"):
        wrong.append("kind is neither 'measured' nor 'estimated'")
    if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", record["date"]):
        wrong.append("date is not of the form 2026-01-31T12:00:00+00:00")
    if not re.match(r"[0-9a-f]{7,40}(\+changes)?$", record["commit"]):
        wrong.append("commit is not a commit")
    if record["threads"] < 1:
        wrong.append("threads is not positive")
    return wrong + (check_pairs(record) if bench == "pairs" else [])


def missing(record, fields):
    wrong = []
    for name, kind in fields.items():
        value = record.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            wrong.append(f"'{name}' is missing or not of type {kind.__name__}")
        elif kind in (str, dict, list) and not value and name != "missed":
            wrong.append(f"'{name}' is empty")
    return wrong


def check_pairs(record):
    wrong = []
    if record["level"] not in LEVELS:
        wrong.append(f"level is not one of {', '.join(LEVELS)}")
    for when in ("before", "after"):
        rates = record["calibration"].get(when)
        if not isinstance(rates, dict) or not any(positive(x) for x in rates.values()):
            wrong.append(f"calibration has no rates {when} the row")
    for peer in {p.get("peer") for p in record["pairs"] if isinstance(p, dict)}:
        if not isinstance(peer, str) or not record["versions"].get(peer):
            wrong.append(f"the version of '{peer}' is missing")
        elif peer not in record["results"]:
            wrong.append(f"'{peer}' has times but no result")
        elif not positive(record["results"][peer].get("ratio")):
            wrong.append(f"the result of '{peer}' has no ratio")
        count = sum(p.get("peer") == peer for p in record["pairs"] if isinstance(p, dict))
        if count < LEAST_PAIRS:
            wrong.append(f"'{peer}' has {count} pairs, not {LEAST_PAIRS}")
    for p in record["pairs"]:
        times = [p.get("gqac_ms"), p.get("peer_ms")] if isinstance(p, dict) else [None]
        if not all(isinstance(t, list) and t and all(map(positive, t)) for t in times):
            wrong.append("a pair lacks times of both engines")
            break
    if "gqac" not in record["results"] or not record["versions"].get("gqac"):
        wrong.append("gqac's own result or version is missing")
    for engine, result in record["results"].items():
        for name in ("ms", "min_ms", "rate"):
            if not positive(result.get(name)):
                wrong.append(f"the result of '{engine}' has no {name}")
    return wrong


def check_lines(text, name):
    """All complaints about a JSON-lines text, each with its line number."""
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = check(json.loads(line))
        except ValueError as error:
            found = [f"it is not JSON: {error}"]
        wrong += [f"{name}:{number}: {what}" for what in found]
    return wrong


def append(path, record):
    wrong = check(record)
    if wrong:
        raise ValueError("the record is incomplete: " + "; ".join(wrong))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as f:
        f.write(json.dumps(record) + "\n")
