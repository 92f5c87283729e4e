#!/usr/bin/env python3
"""Static analysis of the sources of src and integrations; the headers are those that they include.

    python tools/analyse.py [--quick]      ./dev analyse and ./dev check prepare build/asan first

Three tools: gcc -fanalyzer, clang-tidy (.clang-tidy lists its checks) and cppcheck. --quick:
cppcheck on all sources, and the analyser of gcc on those that read untrusted input (UNTRUSTED).
Sources are compiled as in build/asan, with assertions, but without sanitizers. False findings are
listed in test/lint/gcc.txt, in test/lint/cppcheck.txt, and in the code (NOLINT), each with its
reason. An entry of the two files that suppresses nothing is a fault too.

Before the findings of a tool count, it must find the defects of test/lint/defects.c. Prints the
first findings, and a line for each tool; build/analyse has the whole output. Exits with 1 if
anything was found.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD, OUT, LINT = ROOT / "build" / "asan", ROOT / "build" / "analyse", ROOT / "test" / "lint"
UNTRUSTED = ("src/base/", "src/ir/", "src/onnx/", "src/runtime/", "src/store/")
DEFECTS = LINT / "defects.c"
DEFINES = "src/base/diag.c"  # the source that test/lint/model.h models
SHOWN = 40  # findings of a tool that are printed
THREADS = len(os.sched_getaffinity(0))
FINDING = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?:\d+:)? (?:fatal error|warning|error|style|performance|"
                     r"portability|information): (?P<text>.*)\[(?P<name>[\w.,-]+?)(?:,-warnings-as-errors)?\]$",
                     re.MULTILINE)


def read_commands():
    """{source: (folder, words)} for the sources that are analysed and for DEFECTS."""
    commands = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        source = os.path.relpath(entry["file"], ROOT)
        if source.startswith(("src/", "integrations/")) and source not in commands:
            words = [w for w in shlex.split(entry["command"]) if not w.startswith("-fsanitize") and w != "-Werror"]
            words[words.index("-o") + 1] = os.devnull
            commands[source] = (entry["directory"], words)
    directory, words = commands["src/base/str.c"]
    name = str(DEFECTS.relative_to(ROOT))
    commands[name] = (directory, words[:-1] + [str(DEFECTS)])
    return commands


def findings(output):
    """[(source, line, name, text)] of the output of a tool, without repetitions."""
    found = {}
    for match in FINDING.finditer(output):
        source = os.path.relpath(os.path.join(ROOT, match["file"]), ROOT)
        key = (source, int(match["line"]), match["name"].removeprefix("-W"))
        found.setdefault(key, match["text"].strip())
    return [(*key, text) for key, text in found.items()]


def run(words, folder):
    return subprocess.run(words, cwd=folder, text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


def each(sources, command, finds):
    """The output of a command for each source. finds: the command fails if it finds something."""
    with ThreadPoolExecutor(THREADS) as pool:
        done = list(pool.map(lambda source: run(*command(source)), sources))
    for source, result in zip(sources, done):
        found = finds and FINDING.search(result.stdout)
        if result.returncode and not found:
            sys.exit(f"analyse: {source}: {result.stdout[-3000:]}")
    return "".join(result.stdout for result in done)


def run_gcc(commands, sources):
    def command(source):
        folder, words = commands[source]
        model = ["-include", str(LINT / "model.h")] if source.startswith("src/") and source != DEFINES else []
        return words + ["-O0", "-fanalyzer", "-fdiagnostics-plain-output"] + model, folder
    return each(sources, command, finds=False)


def run_tidy(commands, sources):
    def command(source):
        folder, words = commands[source]
        known = [w for w in words[1:] if w not in ("-Wno-format-truncation", "-o", os.devnull)]
        return ["clang-tidy-19", "--quiet", str(ROOT / source), "--"] + known, folder
    return each(sources, command, finds=True)


def cppcheck_state(config=LINT / "cppcheck.cfg", folder=OUT / "cppcheck"):
    """The folder in which cppcheck stores its results for unchanged sources. cppcheck does not
    check whether its configuration has changed, so each configuration has a folder; those of others
    are removed."""
    state = folder / hashlib.sha256(config.read_bytes()).hexdigest()[:16]
    for other in set(folder.glob("*")) - {state}:
        shutil.rmtree(other) if other.is_dir() else other.unlink()
    state.mkdir(parents=True, exist_ok=True)
    return state


def run_cppcheck(commands, sources):
    database = [{"directory": commands[s][0], "file": str(ROOT / s), "command": shlex.join(commands[s][1])}
                for s in sources]
    project, state = OUT / "compile_commands.json", cppcheck_state()
    project.write_text(json.dumps(database))
    result = run(["cppcheck", f"--project={project}", f"--cppcheck-build-dir={state}", f"-j{THREADS}", "-q",
                  "--enable=warning,style,performance,portability", "--library=posix", "--library=gnu",
                  f"--library={LINT / 'cppcheck.cfg'}", "--template={file}:{line}: {severity}: {message} [{id}]"],
                 ROOT)
    if result.returncode:
        sys.exit(f"analyse: cppcheck: {result.stdout[-3000:]}")
    return result.stdout


TOOLS = {"gcc": run_gcc, "clang-tidy": run_tidy, "cppcheck": run_cppcheck}


def read_suppressed(tool):
    """[(name, pattern of files)] of test/lint/TOOL.txt."""
    path = LINT / f"{tool}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    entries = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return [(name, file or "*") for name, _, file in (entry.partition(":") for entry in entries)]


def wanted_defects(tool):
    """{(line, name)} marked in DEFECTS for a tool."""
    return {(number, match[1]) for number, line in enumerate(DEFECTS.read_text().splitlines(), 1)
            for match in re.finditer(rf"{tool}:([\w.-]+)", line)}


def analyse(tool, commands, sources):
    """Prints the findings of a tool; returns whether there are none."""
    began = time.monotonic()
    output = TOOLS[tool](commands, sources + [str(DEFECTS.relative_to(ROOT))])
    (OUT / f"{tool}.log").write_text(output)
    name = str(DEFECTS.relative_to(ROOT))
    all_found = findings(output)
    missed = wanted_defects(tool) - {(line, one) for source, line, check, _ in all_found if source == name
                                     for one in check.split(",")}
    faults = [f"{name}:{line}: not found by {tool}: {check}" for line, check in sorted(missed)]
    used, suppressed = set(), read_suppressed(tool)
    for source, line, check, text in all_found:
        entries = {(one, file) for one, file in suppressed if one == check and fnmatch(source, file)}
        used |= entries
        if not entries and source != name:
            faults.append(f"{source}:{line}: {text} [{check}]")
    if len(sources) > len([s for s in sources if s.startswith(UNTRUSTED)]):  # the whole tree
        faults += [f"test/lint/{tool}.txt: suppresses nothing: {check}:{file}"
                   for check, file in suppressed if (check, file) not in used]
    print("\n".join(faults[:SHOWN]), end="\n" if faults else "")
    print(f"{tool}: {len(sources)} sources, {len(faults)} findings ({time.monotonic() - began:.0f} s)", flush=True)
    return not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    commands = read_commands()
    every = sorted(source for source in commands if source != str(DEFECTS.relative_to(ROOT)))
    untrusted = [source for source in every if source.startswith(UNTRUSTED)]
    jobs = [("cppcheck", every), ("gcc", untrusted if args.quick else every)]
    if not args.quick:
        jobs.append(("clang-tidy", every))
    return 0 if all([analyse(tool, commands, sources) for tool, sources in jobs]) else 1


if __name__ == "__main__":
    sys.exit(main())
