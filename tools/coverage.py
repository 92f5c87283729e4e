#!/usr/bin/env python3
"""Line coverage of the sources that read models: the scan, the import, the text IR and artefacts.

    python tools/coverage.py [GCOVR]      after ./dev build; ./dev coverage does both

Only these sources are compiled with --coverage. They are linked before the library of
build/release, so that the linker uses no symbols of the same name from there: into the tool, with
which the Python tests are run, and into the C tests of these sources.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD, OUT = ROOT / "build" / "release", ROOT / "build" / "coverage"
PARTS = {"scan and import": ("onnx/files.c", "onnx/import*.c", "onnx/once.c", "onnx/order.c", "onnx/report.c",
                             "onnx/scan.c", "onnx/scope.c", "onnx/sequence.c", "onnx/tensor.c",
                             "onnx/typed.c", "onnx/unpack.c"),
         "artefacts": ("runtime/artefact.c", "api/load.c"),
         "text IR": ("ir/lex.c", "ir/parse*.c", "ir/print.c", "ir/dim_text.c", "ir/tensor_text.c")}
SOURCES = sorted(path for part in PARTS.values() for name in part for path in (ROOT / "src").glob(name))
C_TESTS = ("onnx_external", "onnx_functions", "onnx_import", "onnx_scan", "onnx_tensors", "ir_dim",
           "ir_text", "ir_verify", "api_model_bytes", "runtime_import_guard", "runtime_artefact_files",
           "runtime_baked", "runtime_alloc_failure")
PYTHON_TESTS = ("bad_files", "bad_text", "bad_artefacts", "limits", "node_data", "run_if", "run_loop",
                "baked", "exported_forms", "sequences")
FLAGS = "-O1 -fno-inline --coverage -Wno-error".split()


def compile_all(folder, group):
    """Objects of the sources, with the flags of a group of the build."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    made, jobs = [], []
    for entry in commands:
        words = shlex.split(entry["command"])
        target = words[words.index("-o") + 1]
        if Path(entry["file"]) not in SOURCES or f"{group}.dir" not in target:
            continue
        out = OUT / folder / Path(entry["file"]).relative_to(ROOT / "src").with_suffix(".o")
        out.parent.mkdir(parents=True, exist_ok=True)
        words[words.index("-o") + 1] = str(out)
        made.append(str(out))
        jobs.append(words + FLAGS)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda words: subprocess.run(words, cwd=BUILD, check=True), jobs))
    return made


def link(target, objects, name):
    """The program of a target, with these objects before its libraries."""
    lines = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], check=True, text=True,
                           capture_output=True).stdout.splitlines()
    words = shlex.split(next(line for line in reversed(lines) if " -o " in line and " -c " not in line))
    words = words[words.index("&&") + 1:]
    words = words[:words.index("&&")] if "&&" in words else words
    at = next(i for i, word in enumerate(words) if word.endswith((".a", ".so")))
    words[words.index("-o") + 1] = str(OUT / name)
    subprocess.run([*words[:at], *objects, *words[at:], "--coverage"], cwd=BUILD, check=True)
    return OUT / name


def main():
    """Builds, runs, reports."""
    gcovr = sys.argv[1] if len(sys.argv) > 1 else "gcovr"
    shutil.rmtree(OUT, ignore_errors=True)
    tool = link("gqac_tool", compile_all("tool", "gqac_objects"), "gqac")
    objects = compile_all("tests", "gqac_hostile_objects")
    failed, began = [], time.monotonic()
    env = {**os.environ, "GQAC": str(tool)}
    for name in C_TESTS:
        program = link(f"test_{name}", objects, f"test_{name}")
        done = subprocess.run([program], cwd=BUILD / "test", capture_output=True, check=False)
        failed += [name] * (done.returncode not in (0, 77))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    for name in PYTHON_TESTS:
        env["GQAC_TEST_FULL"] = str(int(name == "bad_artefacts"))
        done = subprocess.run([sys.executable, ROOT / "test" / "python" / f"test_{name}.py"], env=env,
                              capture_output=True, check=False)
        failed += [name] * (done.returncode not in (0, 77))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    report = subprocess.run([gcovr, "--json-summary", "-", "--merge-mode-functions=merge-use-line-min",
                             "-r", ROOT, OUT], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    files = {one["filename"]: one for one in json.loads(report)["files"]}
    for part, names in PARTS.items():
        rows = [files[str(p.relative_to(ROOT))] for name in names for p in sorted((ROOT / "src").glob(name))]
        for row in rows:
            print(f"  {row['line_covered']:5} of {row['line_total']:5}  {row['filename']}")
        covered, total = (sum(row[key] for row in rows) for key in ("line_covered", "line_total"))
        print(f"{part}: {covered} of {total} lines, {100 * covered / total:.1f} %")
    print("failed:", *failed or ["none"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
