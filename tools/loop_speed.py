#!/usr/bin/env python3
"""The share of the peak of a CPU model that the inner loops of a kernel reach, by llvm-mca: an
estimate from object code, for machines that are not available. Run by hand; needs binutils and
llvm-mca.

    tools/loop_speed.py [--cpu MODEL] [--only TEXT] [--least N] [--inner N] [--text] OBJECT...

OBJECT: build/release/CMakeFiles/gqac_level_LEVEL.dir/src/targets/cpu/level/FILE.c.o
A loop is the code between a jump back and its target, without such a loop inside. Columns:
    products   instructions that multiply and add (fma, dot products), per iteration
    cycles     per iteration, all loads in L1, branches predicted
    share      products / cycles, relative to the maximum that the model starts in a cycle
    stack      instructions with an operand on the stack: spilt registers
"""
import argparse
import functools
import os
import re
import subprocess
import sys

PRODUCTS = re.compile(r"vf(n?)m(add|sub)\w*ps|vpdpbusds?|vdpbf16ps|vpmaddubsw|vpmaddwd")
ITERATIONS = 200


def functions_of(path):
    """[(name, [(address, text)])] of an object file."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    out = []
    for line in text.splitlines():
        if m := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            out.append((m[1], []))
        elif m := re.match(r"\s*([0-9a-f]+):\s+(\S.*)$", line):
            out[-1][1].append((int(m[1], 16), m[2].strip()))
    return out


def loops(code, inner):
    """The innermost loops with products: (address, instructions). If `inner` is not 0, including
    what the enclosing loop does once for that many iterations of the inner one."""
    ends = {}
    for address, text in code:
        m = re.match(r"j\w+\s+([0-9a-f]+)", text)
        if m and int(m[1], 16) <= address:
            start = int(m[1], 16)
            ends[start] = max(address, ends.get(start, 0))
    spans = sorted(ends.items(), key=lambda span: span[1] - span[0])
    found = []
    for start, end in spans:
        body = [text for address, text in code if start <= address <= end]
        if any(start <= s and e <= end for s, e, _ in found):
            continue
        if not any(PRODUCTS.match(text) for text in body):
            continue
        around = [span for span in spans if span[0] < start and end < span[1]]
        if inner and around:
            first, last = around[0]
            body = ([text for address, text in code if first <= address < start] + body * inner +
                    [text for address, text in code if end < address <= last])
        found.append((start, end, body))
    for start, _, body in sorted(found):
        yield start, body


def plain(text):
    """In the form for an assembler; jumps have no target."""
    text = re.sub(r"\s*(#|<).*$", "", text)
    text = re.sub(r"^(bnd |notrack )", "", text)
    text = re.sub(r"\s+", " ", text)
    if re.match(r"j\w+ ", text):
        return text.split()[0] + " .Lend"
    return text


def cycles(body, cpu):
    """Cycles of an iteration; None if the model does not know an instruction."""
    lines = [plain(t) for t in body if not t.startswith(("call", "data16", "cs nop", "nop"))]
    run = subprocess.run(
        [os.environ.get("LLVM_MCA", "llvm-mca-19"), f"-mcpu={cpu}", f"-iterations={ITERATIONS}",
         "-instruction-info=false", "-resource-pressure=false"],
        input=".Lend:\n" + "\n".join(lines) + "\n", capture_output=True, text=True)
    if m := re.search(r"Total Cycles:\s+(\d+)", run.stdout):
        return int(m[1]) / ITERATIONS
    print(run.stderr[:300], file=sys.stderr)
    return None


@functools.lru_cache(None)
def least(opcode, width, cpu):
    """The cycles of one such instruction in the model, among many independent ones."""
    return cycles([f"{opcode} %{width}{i}, %{width}{i}, %{width}{i}" for i in range(16)], cpu) / 16


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="+")
    parser.add_argument("--cpu", default="cascadelake")
    parser.add_argument("--only", default="", help="functions with this in their names")
    parser.add_argument("--least", type=int, default=4, help="products of a loop (default 4)")
    parser.add_argument("--inner", type=int, default=0, metavar="N",
                        help="each loop N times, then what the loop around it adds")
    parser.add_argument("--text", action="store_true", help="print the loops, too")
    options = parser.parse_args()
    print(f"{'function':34} {'at':>6} {'products':>8} {'cycles':>7} {'share':>6} {'stack':>5} {'all':>4}")
    for path in options.objects:
        for name, code in functions_of(path):
            if not re.search(options.only, name):
                continue
            for start, body in loops(code, options.inner):
                products = [t for t in body if PRODUCTS.match(t)]
                if len(products) < options.least:
                    continue
                c = cycles(body, options.cpu)
                best = sum(least(t.split()[0], re.search("[xyz]mm", t)[0], options.cpu) for t in products)
                stack = sum("(%rsp" in t or "(%rbp)" in t for t in body)
                share = f"{best / c:6.0%}" if c else "     -"
                print(f"{name:34} {start:6x} {len(products):8} {c or 0:7.1f} {share} {stack:5} {len(body):4}")
                if options.text:
                    print("\n".join("    " + plain(t) for t in body))


if __name__ == "__main__":
    main()
