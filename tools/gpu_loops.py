#!/usr/bin/env python3
"""Loads and multiply-adds in the loops of products and of experts, counted in CUDA machine code.

    tools/gpu_loops.py [--arch sm_90] [--gqac FILE] [--nvdisasm FILE]

Needs NVRTC, nvdisasm (NVIDIA's package cuda-nvdisasm, or the wheel nvidia-cuda-nvdisasm) and a
release build with tests, whose replacements for NVIDIA's libraries keep the text of the kernels. No
GPU is needed, and nothing is timed. Columns:
    registers, shared   of an item, and bytes of a group, as the driver's compiler reports them
    loads of 16 bytes   that an item issues in an iteration of the loop over k; other loads (scales,
                        and rows of x that are not aligned, which replace one of 16 bytes) are
                        listed next to them
    multiply-adds       of an item in that iteration: fp32, or int8
    per byte            multiply-adds of a group for each byte that its loads of 16 bytes can load
    inner loop          the share of multiply-adds among its instructions (int8 ones do four each)
"""
import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NVRTC = ["libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"]
HOT = re.compile(r"(product|int8|moe)_(few1|few4|tile)_(\w+)$")
# elements of an item of a tile, and k of an iteration: kernels/products.cl and nbits.cl
TILES = {"int8": (32, 64), "f32": (64, 8), "": (64, 16)}


def kernel_text(gqac):
    """The text of the kernels and the options of their compiler, from a run without a device."""
    with tempfile.TemporaryDirectory() as folder:
        ids = Path(folder, "ids.txt")
        ids.write_text("1 2 3")
        env = {**os.environ, "LD_LIBRARY_PATH": str(gqac.parent / "test" / "fake_cuda"),
               "OCL_ICD_VENDORS": folder, "GQAC_CACHE": "off", "FAKE_NVRTC": folder}
        subprocess.run([gqac, "score", ROOT / "test/models/llama", "--target", "gpu", "--ids", ids],
                       env=env, check=True, stdout=subprocess.DEVNULL)
        return Path(folder, "gqac.cu").read_text(), Path(folder, "options").read_text().split()


def open_compiler():
    """NVRTC; if there is none, the program ends."""
    for name in NVRTC:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    sys.exit("gpu_loops: there is no libnvrtc")


def compile_text(text, options):
    """The machine code, and the compiler's report."""
    rtc, program, size = open_compiler(), ctypes.c_void_p(), ctypes.c_size_t()
    words = [o.encode() for o in options]
    rtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"gqac.cu", 0, None, None)
    code = rtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    rtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    rtc.nvrtcGetProgramLog(program, log)
    if code:
        sys.exit(log.value.decode())
    rtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    rtc.nvrtcGetCUBIN(program, cubin)
    return cubin.raw, log.value.decode()


def functions_of(cubin, nvdisasm):
    """{kernel: its lines}: instructions as text, labels as (label,)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([nvdisasm, file.name], capture_output=True, text=True,
                              check=True).stdout
    found, current = {}, None
    for line in text.splitlines():
        if m := re.match(r"\.text\.(\w+):", line):
            current = found.setdefault(m[1], [])
        elif m := re.match(r"(\.L_x_\d+):", line):
            current.append((m[1],))
        elif (m := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;", line)) and current is not None:
            current.append(m[1])
    return found


def loops_of(lines):
    """The bodies of all loops, each from a label to a jump back to it; short ones first."""
    at, found = {}, []
    for i, line in enumerate(lines):
        if isinstance(line, tuple):
            at[line[0]] = i
        elif (m := re.search(r"BRA.*\((\.L_x_\d+)\)", line)) and m[1] in at:
            found.append([x for x in lines[at[m[1]]:i + 1] if isinstance(x, str)])
    return sorted(found, key=len)


def count(body, pattern):
    """The number of matching instructions in a loop."""
    return sum(bool(re.search(pattern, line)) for line in body)


def row_of(name, lines, report):
    """The cells of the row of a kernel."""
    family, form, kind = HOT.match(name).groups()
    int8 = family == "int8"
    multiply = r"\bIDP\." if int8 else r"\bFFMA\b"
    loops = [body for body in loops_of(lines) if count(body, multiply)]
    inner = max((body for body in loops if not count(body, r"\bBAR\.")),
                key=lambda body: count(body, multiply))
    each = count(inner, multiply)
    if form == "tile":
        turn = next(body for body in loops if count(body, r"\bBAR\.") and count(body, r"LDG"))
        elements, depth = TILES.get("int8" if int8 else kind, TILES[""])
        adds = elements * depth // (4 if int8 else 1)
    else:
        turn, adds = inner, each
    if adds % each:
        sys.exit(f"gpu_loops: {name}: {adds} multiply-adds are no multiple of {each}")
    wide, all_loads = count(turn, r"LDG\.E\.128"), count(turn, r"LDG")
    registers = re.search(r"Used (\d+) registers", report)[1]
    shared = re.search(r"(\d+) bytes smem", report)[1]
    return [f"`{name}`", registers, shared, f"{wide} + {all_loads - wide}",
            f"{adds} × 4" if int8 else str(adds), f"{adds * (4 if int8 else 1) / (16 * wide):.1f}",
            f"{each} of {len(inner)}"]


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--gqac", type=Path, default=ROOT / "build/release/gqac")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    args = parser.parse_args()
    text, options = kernel_text(args.gqac.resolve())
    cubin, log = compile_text(text, [f"-arch={args.arch}", *options[1:], "--ptxas-options=-v"])
    reports = dict(re.findall(r"entry function '(\w+)' for '\w+'(.*?)(?=entry function|\Z)", log,
                              re.S))
    functions = functions_of(cubin, args.nvdisasm)
    head = ["kernel", "registers", "shared", "loads of 16 bytes", "multiply-adds", "per byte",
            "inner loop", "measured"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name in sorted(filter(HOT.match, functions)):
        print(f"| {' | '.join(row_of(name, functions[name], reports[name]))} | |")


if __name__ == "__main__":
    main()
