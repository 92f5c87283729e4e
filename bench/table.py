#!/usr/bin/env python3
"""The tables of docs/performance.md, from the newest record of each row.

    bench/table.py [FILE.jsonl]           prints the part between the marks of the page
    bench/table.py --write [FILE.jsonl] inserts it; --check: exit 1 if it differs
"""

import argparse
import json
import sys
import textwrap
from pathlib import Path

import records
import rows

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- begin of what bench/table.py wrote -->", "<!-- end of what bench/table.py wrote -->"
PEERS = (rows.ORT, rows.OV, rows.LLAMA, rows.TORCH)


def newest(path):
    """{(level, CPU): {(row, threads): record}}, the last record of each. The CPU is "" in records
    that do not say which it was."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        record = json.loads(line)
        if record.get("bench") == "pairs":
            machine = record["level"], record.get("cpu", "")
            found.setdefault(machine, {})[record["row"], record["threads"]] = record
    return found


def memory_share(row, record):
    """(share of the memory bandwidth that the row reaches, the bandwidth); None if memory is not
    its limit."""
    if not row.bytes_read() or row.in_cache:
        return None
    peak = max(record["calibration"][when][f"dram_gbps_{record['threads']}"]
               for when in ("before", "after"))
    return 1e-6 * row.bytes_read() / record["results"]["gqac"]["ms"] / peak, peak


def bound(row, record):
    """The limit of a row, and how much of it is used, from the calibration before and after it."""
    result, n = record["results"]["gqac"], record["threads"]
    if row.math == "bf16":
        return "products of bf16 factors"
    if result["unit"] == "GF/s" and row.dtype == "f32":
        peak = max(record["calibration"][when][f"fma_gflops_{n}"] for when in ("before", "after"))
        return f"fma, {100 * result['rate'] / peak:.0f} % of {peak:.0f} GF/s"
    share = memory_share(row, record)
    if share:
        return f"memory, {100 * share[0]:.0f} % of {share[1]:.1f} GB/s"
    if row.dtype == "int4" and row.kind == "matmul":
        return "int8 products"
    return "first-level and last-level cache" if row.in_cache else "both"


def verdict(row, record):
    results = record["results"]
    verdicts = []
    missed = False
    for peer, floor in row.floor:
        if peer == "best":
            peers = [p for p in PEERS if p in results]
            peer = min(peers, key=lambda p: results[p]["ratio"]) if peers else None
        if peer in results:
            reached = results[peer]["ratio"] >= floor
            missed |= not reached
            verdicts.append(f"{floor:.2f}× {peer}: {'yes' if reached else 'no'}")
    share = memory_share(row, record)
    if missed and share:
        enough = share[0] >= rows.MEMORY_SHARE
        verdicts.append(f"{100 * rows.MEMORY_SHARE:.0f} % of memory: {'yes' if enough else 'no'}")
    return ", ".join(verdicts) or "–"


def marked(name, record):
    """The name, with a mark if the machine changed while the row was measured."""
    return name + (" †" if record["moved"] else "")


def cell(record, peer):
    result = record["results"].get(peer)
    return f"{result['ms']:.3g} ({result['ratio']:.2f}×)" if result else "–"


def comparison(found, threads):
    """One table: gqac and the peers with this number of threads."""
    lines = ["| row | gqac ms | rate | ONNX Runtime | OpenVINO | llama.cpp | torch | floor reached | "
             "bound by |", "|---|---|---|---|---|---|---|---|---|"]
    for row in rows.ROWS:
        record = found.get((row.name, threads))
        if not record or row.batch() > 1 or set(row.peers) & {rows.OWN, rows.TENSORS, rows.FP32,
                                                                rows.MEMORY, rows.PROVIDER}:
            continue
        own = record["results"]["gqac"]
        lines.append(f"| {marked(row.name, record)} | {own['ms']:.3g} | {own['rate']:.3g} {own['unit']} | "
                     + " | ".join(cell(record, p) for p in PEERS)
                     + f" | {verdict(row, record)} | {bound(row, record)} |")
    return lines if len(lines) > 2 else []


def cost(found):
    """The cost of equal bits: our time minus that of the unconstrained variant."""
    lines = ["| row | threads | gqac ms | unconstrained ms | cost of equal bits | bound |",
             "|---|---|---|---|---|---|"]
    for (name, threads), record in sorted(found.items()):
        row = rows.BY_NAME.get(name)
        if row is None or rows.OWN not in record["results"]:
            continue
        own, other = record["results"]["gqac"], record["results"][rows.OWN]
        most = 100 * (1 / row.floor[0][1] - 1)
        lines.append(f"| {marked(name, record)} | {threads} | {own['ms']:.3g} | {other['ms']:.3g} | "
                     f"{100 * (1 / other['ratio'] - 1):.0f} % | ≤ {most:.0f} % |")
    return lines if len(lines) > 2 else []


def layouts(found):
    """Keys as columns of a sequence compared with keys as rows of a tensor."""
    lines = ["| row | threads | keys as columns, ms | keys as rows, ms | ratio | faster |",
             "|---|---|---|---|---|---|"]
    for (name, threads), record in sorted(found.items()):
        if rows.TENSORS not in record["results"]:
            continue
        columns, tensors = record["results"]["gqac"], record["results"][rows.TENSORS]
        faster = "columns" if tensors["ratio"] > 1 else "rows"
        lines.append(f"| {marked(name, record)} | {threads} | {columns['ms']:.3g} | {tensors['ms']:.3g} | "
                     f"{tensors['ratio']:.2f}× | {faster} |")
    return lines if len(lines) > 2 else []


def sessions(found):
    """gqac through its own API compared with gqac in a session of ONNX Runtime."""
    lines = ["| row | threads | own API, ms | session, ms | session / own API |", "|---|---|---|---|---|"]
    for (name, threads), record in sorted(found.items()):
        if rows.PROVIDER not in record["results"]:
            continue
        own, session = record["results"]["gqac"], record["results"][rows.PROVIDER]
        lines.append(f"| {marked(name, record)} | {threads} | {own['ms']:.3g} | {session['ms']:.3g} | "
                     f"{session['ratio']:.2f} |")
    return lines if len(lines) > 2 else []


def caches(found):
    """Codes in the cache compared with fp32."""
    lines = ["| row | threads | ms | rate | fp32 in the cache, ms | faster |", "|---|---|---|---|---|---|"]
    for (name, threads), record in sorted(found.items()):
        if rows.FP32 not in record["results"] or rows.MEMORY in record["results"]:
            continue
        own, fp32 = record["results"]["gqac"], record["results"][rows.FP32]
        lines.append(f"| {marked(name, record)} | {threads} | {own['ms']:.3g} | {own['rate']:.3g} {own['unit']} | "
                     f"{fp32['ms']:.3g} | {fp32['ratio']:.2f}× |")
    return lines if len(lines) > 2 else []


def near_memory(found):
    """Decode compared with only reading as many bytes as the cache has."""
    lines = ["| cache | tokens | threads | ms | rate | reading alone, ms | share of its rate | "
             "fp32 in the cache, ms | faster | bound |", "|---|---|---|---|---|---|---|---|---|---|"]
    for (name, threads), record in sorted(found.items()):
        row, results = rows.BY_NAME.get(name), record["results"]
        if rows.MEMORY not in results or row is None or row.kind != "sequence":
            continue
        own, memory, fp32 = results["gqac"], results[rows.MEMORY], results.get(rows.FP32)
        beside = f"{fp32['ms']:.3g} | {fp32['ratio']:.2f}×" if fp32 else "– | –"
        least = "–"
        for peer, floor in row.floor:
            reached = "yes" if results[peer]["ratio"] >= floor else "no"
            least = (f"≥ {floor:.2f}×: {reached}" if peer == rows.FP32
                     else f"≥ {100 * floor:.0f} %: {reached}")
        lines.append(f"| {marked(row.extra.get('kv', row.dtype), record)} | {row.shapes['P'] + 1} | {threads} | "
                     f"{own['ms']:.3g} | {own['rate']:.3g} {own['unit']} | {memory['ms']:.3g} | "
                     f"{100 * memory['ratio']:.0f} % | {beside} | {least} |")
    return lines if len(lines) > 2 else []


def roof(row, record, found):
    """The minimum time in ms of a step of several sequences: reading weights and caches at the rate
    of memory, or multiplying at the rate of fma, for int8 products that of matmul-int4-512. None if
    a rate was not measured."""
    threads = record["threads"]
    calibration = record["calibration"].values()
    if rows.MEMORY in record["results"]:  # by the pairs, because the memory bandwidth changes while
                                          # a row runs
        read = record["results"]["gqac"]["ms"] * record["results"][rows.MEMORY]["ratio"]
    else:
        read = 1e-6 * row.step_bytes() / max(c[f"dram_gbps_{threads}"] for c in calibration)
    products = found.get(("matmul-int4-512", threads))
    if row.dtype == "f32":
        rate = max(c[f"fma_gflops_{threads}"] for c in calibration)
    elif products:
        rate = products["results"]["gqac"]["rate"]
    else:
        return None
    return max(read, 1e-6 * row.step_flops() / rate)


def times_one(record, one):
    """The time of the step divided by that of one sequence, from the same run if it was measured
    there."""
    if rows.ONE in record["results"]:
        return f"{1 / record['results'][rows.ONE]['ratio']:.2f}"
    return f"{record['results']['gqac']['ms'] / one['results']['gqac']['ms']:.2f}" if one else "–"


def batches(found, threads):
    """Decode of several sequences compared with that of one, and with the peers."""
    lines = ["| model | sequences | gqac ms | × one sequence | × roof | tok/s | ONNX Runtime | llama.cpp "
             "| ahead of both |", "|---|---|---|---|---|---|---|---|---|"]
    for size, form in rows.MODELS:
        model = f"{size}-{form}-decode"
        names = {1: f"{model}@512", **{b: f"{model}-x{b}@512" for b in rows.BATCHES}}
        taken = {b: found[name, threads] for b, name in names.items()
                 if (name, threads) in found}
        one = taken.get(1)
        for batch, record in taken.items() if set(taken) - {1} else ():
            own = record["results"]["gqac"]
            ratios = [record["results"][p]["ratio"] for p in (rows.ORT, rows.LLAMA)
                      if p in record["results"]]
            by_one = times_one(record, one)
            least = roof(rows.BY_NAME[names[batch]], record, found)
            by_roof = f"{own['ms'] / least:.2f}" if least else "–"
            ahead = "yes" if len(ratios) == 2 and min(ratios) > 1 else "no"
            lines.append(f"| {marked(f'{size} {form}', record)} | {batch} | {own['ms']:.3g} | {by_one} | {by_roof} | "
                         f"{own['rate']:.3g} | {cell(record, rows.ORT)} | "
                         f"{cell(record, rows.LLAMA)} | {ahead} |")
    return lines if len(lines) > 2 else []


def mixtures(found):
    """A chunk together with sequences that decode, in one step compared with two."""
    lines = ["| row | threads | one step, ms | two steps, ms | one / two | llama.cpp | bound |",
             "|---|---|---|---|---|---|---|"]
    for (name, threads), record in sorted(found.items()):
        if rows.PARTS not in record["results"]:
            continue
        own, parts = record["results"]["gqac"], record["results"][rows.PARTS]
        most = 1 / rows.BY_NAME[name].floor[0][1]
        lines.append(f"| {marked(name, record)} | {threads} | {own['ms']:.3g} | {parts['ms']:.3g} | "
                     f"{1 / parts['ratio']:.2f} | {cell(record, rows.LLAMA)} | ≤ {most:.2f} |")
    return lines if len(lines) > 2 else []


def unmeasured(keys):
    measured = {name for name, _ in keys}
    return [r.name for r in rows.ROWS if r.name not in measured]


def peers_of(record):
    """Names and versions; a version may begin with the name."""
    return [f"{peer} {record['versions'][peer].removeprefix(peer + ' ')}"
            for peer in PEERS if peer in record["versions"]]


def of_machine(level, cpu, found):
    """All tables of the records of one instruction set on one kind of CPU."""
    lines = ["", f"### Instruction set {level}" + f", CPU {cpu}" * bool(cpu), ""]
    for what, get in (("Machine", lambda r: [r["host"]]),
                      ("Compiler", lambda r: [r["compiler"]]),
                      ("Commits", lambda r: [r["commit"]]), ("Peers", peers_of)):
        values = sorted({value for r in found.values() for value in get(r)})
        if values:
            lines += textwrap.wrap(f"- {what}: {'; '.join(values)}", 120, subsequent_indent="  ",
                                   break_long_words=False, break_on_hyphens=False)
    by_threads = [(n, f"{n} thread{'s' * (n > 1)}") for n in sorted({t for _, t in found}, reverse=True)]
    for title, table in (*((name[0].upper() + name[1:], comparison(found, n)) for n, name in by_threads),
                         *((f"Sequences that decode together, {name}", batches(found, n))
                           for n, name in by_threads),
                         ("A prefill chunk and decode rows in one step", mixtures(found)),
                         ("What equal bits cost", cost(found)),
                         ("Keys as columns or as rows", layouts(found)),
                         ("In a session of ONNX Runtime", sessions(found)),
                         ("Codes in the cache", caches(found)),
                         ("Decode compared with reading memory", near_memory(found))):
        if table:
            lines += ["", f"#### {title}", "", *table]
    return lines


def text(path):
    found = newest(path)
    lines = [BEGIN]
    for level, cpu in sorted(found, key=lambda m: (-records.LEVELS.index(m[0]), m[1])):
        lines += of_machine(level, cpu, found[level, cpu])
    left = unmeasured(key for machine in found.values() for key in machine)
    if left:
        lines += ["", "Not measured yet:", "", *[f"- {name}" for name in left]]
    return "\n".join([*lines, "", END])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("file", type=Path, nargs="?",
                        default=ROOT / "bench" / "results" / "cpu.jsonl")
    args = parser.parse_args()
    made = text(args.file)
    if not args.write and not args.check:
        print(made)
        return 0
    page = PAGE.read_text()
    start, end = page.index(BEGIN), page.index(END) + len(END)
    if args.check:
        return 0 if page[start:end] == made else 1
    PAGE.write_text(page[:start] + made + page[end:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
