#!/usr/bin/env python3
"""Which folders may include which headers, and the form of sources.

The rules are read from the table of docs/architecture.md, whose rows name a folder and what it may
include. In addition, a header whose name ends in impl.h is private to its folder, a library may be
used only in the folders that wrap it, a source begins with a comment, no source is longer than
LINES lines, no public header longer than PUBLIC, and no function longer than FUNCTION (except
kernels of targets). Sources that break each rule are also tested, and must be refused.

    python test/lint/test_includes.py        prints `N passed, N failed`
"""

import re
import sys
from pathlib import Path

from cases import Cases

ROOT = Path(__file__).resolve().parents[2]
LINES = 600
PUBLIC = 300
FUNCTION = 60
EVERYWHERE = {"gqac/status.h", "gqac/status.def", "gqac/tensor.h", "gqac/dtype.def",
              "gqac/limits.h", "gqac/monitor.h", "gqac/log.h", "gqac/stop.h", "gqac/threads.h",
              "gqac/candidate.h"}
LIBRARIES = {  # first part of the header: the folders that wrap the library
    "jansson.h": {"text", "llm", "serve", "cli"},
    "event2": {"serve"},
    "hiredis.h": {"remote"},
    "openssl": {"remote"},
    "utf8proc.h": {"text"},
    "protobuf-c": {"onnx"},
    "onnx.pb-c.h": {"onnx"},
    "sha2.h": {"base"},
    "CL": {"targets"},
}
# Sources of src/targets that use the graph: targets and their tables, and the code that matches,
# fuses, binds and packs.
GRAPH = re.compile(
    r"src/targets/(target\.[ch]|bind\.[ch]|fuse_\w+\.[ch]|ref/ref\.c|cpu/(cpu\.c|graph\.h|fuse_\w+\.[ch]|pack\w*\.[ch])"
    r"|gpu/(gpu\.c|graph\.h|bind_\w+\.c))$"
)
GRAPH_WORDS = re.compile(r"\bir_\w+|\bop_(?:call|is|of|value|give)\b|->(?:def|uses|attrs|claim)\b")
NAMED = re.compile(r"`([a-z_]+/[a-z_]+\.h)`")
ROW = re.compile(r"^\| `(include/gqac|src/\w+|integrations/\w+)/` \|[^|]*\| ([^|]*) \|$")
BODY = re.compile(r"^\w[^\n;{}]*(?:\n +[^\n;{}]*)*\) \{\n(?:[^}\n].*\n|\n)*\}$", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def read_table(text):
    """{folder: set of folders, headers and "public"} from the table in the documentation."""
    table = {}
    for line in text.splitlines():
        if not (match := ROW.match(line)):
            continue
        folder, cell = match[1].removeprefix("src/").replace("include/gqac", "gqac"), match[2]
        may = set(NAMED.findall(cell))
        if "all of the above" in cell:
            may |= {f for f in table if f != "gqac"} | {"public"}
        for word in NAMED.sub("", cell).split(","):
            word = word.strip()
            if word == "public headers":
                may.add("public")
            elif re.fullmatch(r"[a-z]+", word):
                may.add(word)
        if folder not in {"cli", "gqac"} and "/" not in folder:
            may.add("base")
        table[folder] = may
    return table


def folder_of(source):
    """The folder of the table that contains a source."""
    parts = source.split("/")
    return {"src": parts[1], "integrations": "/".join(parts[:2])}.get(parts[0], "gqac")


def include_fault(table, source, header, quoted):
    """The fault in `source` (src/ir/dim.c) including `header`, or None."""
    parts = source.split("/")
    folder = folder_of(source)
    if header in LIBRARIES or header.split("/")[0] in LIBRARIES:
        wrap = LIBRARIES.get(header) or LIBRARIES[header.split("/")[0]]
        return None if folder in wrap else f"only {', '.join(sorted(wrap))} may use {header}"
    if header in EVERYWHERE:
        return None
    may = table[folder]
    if header.startswith("gqac/"):
        fine = folder == "gqac" or "public" in may
        return None if fine else "the public interface is for those who implement or use it"
    if not quoted:
        return None
    if "/" not in header and parts[0] == "integrations":
        return None
    if "/" not in header:  # in the folder of the source
        header = "/".join(parts[1:-1] + [header])
    other = header.split("/")
    if header.endswith("impl.h") and other[:-1] != parts[1:-1]:
        return f"{header} is private to its folder"
    if other[0] == folder:
        if folder == "targets" and len(other) > 2 and other[1] != parts[2]:
            return "a target knows only its own folder"
        return None
    if other[0] in may or header in may:
        return None
    return f"{folder} may include {', '.join(sorted(may)) or 'nothing'}"


def runs(source):
    """True if it is a source of a target that runs, and so must not use the graph."""
    targets = source.startswith("src/targets/")
    return targets and not GRAPH.fullmatch(source)


def reaches_graph(header, texts, seen):
    """The chain of includes from a header of src to src/ir, as text, or None."""
    path = f"src/{header}"
    if header.startswith("ir/"):
        return header
    if path in seen or path not in texts:
        return None
    seen.add(path)
    for match in INCLUDE.finditer(texts[path]):
        if match[1] == '"' and (chain := reaches_graph(match[2], texts, seen)):
            return f"{header} > {chain}"
    return None


def graph_faults(source, text, texts):
    """Places where a source that runs uses the graph. `texts`: the headers of src by path."""
    faults = []
    if not runs(source):
        return faults
    for match in INCLUDE.finditer(text):
        chain = reaches_graph(match[2], texts, set()) if match[1] == '"' else None
        if chain:
            line = text.count("\n", 0, match.start(2)) + 1
            faults.append(f"{source}:{line}: {chain}: what runs sees no graph: bind it before")
    code = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    for match in GRAPH_WORDS.finditer(code):
        line = code.count("\n", 0, match.start()) + 1
        faults.append(f"{source}:{line}: {match[0]}: what runs sees no graph: bind it before")
    return faults


def row_faults(source, text):
    """Rows of kernels, in a table or in a macro for one, without a bind or a run."""
    if not re.fullmatch(r"src/targets/\w+/\w+\.c", source):
        return []
    rows = re.split(r'\.name = (?=["\w])', text.replace(".name = NULL", ""))[1:]
    rows = [row for row in rows if ".op = " in row]
    return [f"{source}: the kernel {row.split(',')[0]} has no {field.strip('.= ')}"
            for row in rows for field in (".bind = ", ".run = ") if field not in row]


def source_faults(table, source, text, texts=None):
    """All faults of one file, as texts."""
    faults = graph_faults(source, text, texts or {}) + row_faults(source, text)
    for match in INCLUDE.finditer(text):
        fault = include_fault(table, source, match[2], match[1] == '"')
        if fault:
            line = text.count("\n", 0, match.start(2)) + 1
            faults.append(f"{source}:{line}: {match[2]}: {fault}")
    if not text.startswith("/*"):
        faults.append(f"{source}:1: a file opens with a comment: what, why, invariants")
    most = PUBLIC if source.startswith("include/") else LINES
    if text.count("\n") > most:
        faults.append(f"{source}:{most + 1}: a file like this has at most {most} lines")
    for match in BODY.finditer(text):
        if match[0].count("\n") >= FUNCTION and "/targets/" not in source:
            line = text.count("\n", 0, match.start()) + 1
            faults.append(f"{source}:{line}: a function has at most {FUNCTION} lines")
    return faults


WRONG = [  # source, text: each must be refused
    ("src/base/str.c", '/* */\n#include "ir/ir.h"\n'),
    ("src/base/str.c", "/* */\n#include <gqac/gqac.h>\n"),
    ("src/base/str.c", "/* */\n#include <jansson.h>\n"),
    ("src/numerics/math.c", '/* */\n#include "kv/kv.h"\n'),
    ("src/ir/dim.c", '/* */\n#include "ops/op.h"\n'),
    ("src/ir/dim.c", '/* */\n  #  include "kv/kv.h"\n'),
    ("src/ops/add.c", '/* */\n#include "targets/target.h"\n'),
    ("src/ops/add.c", '/* */\n#include "ir/impl.h"\n'),
    ("src/onnx/import.c", '/* */\n#include "passes/pass.h"\n'),
    ("src/passes/fold.c", '/* */\n#include "onnx/onnx.h"\n'),
    ("src/passes/fold.c", '/* */\n#include "targets/ref/ref.h"\n'),
    ("src/passes/fold.c", "/* */\n#include <protobuf-c/protobuf-c.h>\n"),
    ("src/kv/block.c", '/* */\n#include "ir/ir.h"\n'),
    ("src/targets/cpu/matmul.c", '/* */\n#include "targets/ref/ref.h"\n'),
    ("src/targets/cpu/matmul.c", '/* */\n#include "runtime/program.h"\n'),
    ("src/runtime/step.c", '/* */\n#include "passes/pass.h"\n'),
    ("src/runtime/step.c", '/* */\n#include "targets/ref/ref.h"\n'),
    ("src/text/jinja/jinja.c", '/* */\n#include "llm/llm.h"\n'),
    ("src/text/jinja/jinja.c", "/* */\n#include <gqac/text.h>\n"),
    ("src/text/jinja/jinja.c", '/* */\n#include "text/tokenizer/tokenizer_impl.h"\n'),
    ("src/llm/chat.c", '/* */\n#include "text/jinja/jinja_impl.h"\n'),
    ("src/llm/chat.c", "/* */\n#include <utf8proc.h>\n"),
    ("src/llm/chat.c", '/* */\n#include "runtime/program.h"\n'),
    ("src/cli/main.c", '/* */\n#include "base/str.h"\n'),
    ("src/cli/main.c", '/* */\n#include "api/load.h"\n'),
    ("src/cli/main.c", '/* */\n#include "serve/serve_impl.h"\n'),
    ("src/serve/job.c", '/* */\n#include "llm/llm.h"\n'),
    ("src/llm/chat.c", "/* */\n#include <event2/event.h>\n"),
    ("src/store/remote.c", "/* */\n#include <hiredis.h>\n"),
    ("src/cli/caching.c", '/* */\n#include "remote/remote_impl.h"\n'),
    ("src/targets/ref/ref.c", '/* */\nrow a[] = {{.name = "x", .op = "x", .run = f}, {.name = NULL}};\n'),
    ("src/targets/cpu/cpu.c", '/* */\n#define X(of) {.name = of, .op = of, .bind = f}\n'),
    ("include/gqac/gqac.h", '/* */\n#include "ir/ir.h"\n'),
    ("integrations/ort/run.c", '/* */\n#include "base/str.h"\n'),
    ("integrations/ort/run.c", '/* */\n#include "runtime/program.h"\n'),
    ("src/ir/dim.c", '#include "ir/ir.h"\n'),
    ("src/ir/dim.c", "/* */\n" + "\n" * LINES),
    ("include/gqac/gqac.h", "/* */\n" + "\n" * PUBLIC),
    ("src/ir/dim.c", "/* */\nvoid f(void) {\n" + "    g();\n" * (FUNCTION - 1) + "}\n"),
    ("src/ir/dim.c", "/* */\nint f(int a,\n      int b) {\n" + "\n" * (FUNCTION - 2) + "}\n"),
]
GRAPH_SEEN = [  # the same for sources that run, with the headers of src
    ("src/targets/cpu/linear.c", '/* */\n#include "ir/ir.h"\n'),
    ("src/targets/cpu/linear.c", '/* */\n#include "ops/op.h"\n'),
    ("src/targets/cpu/linear.c", '/* */\n#include "targets/target.h"\n'),
    ("src/targets/cpu/linear.c", '/* */\n#include "targets/cpu/graph.h"\n'),
    ("src/targets/cpu/level/row.c", '/* */\n#include "ops/shared.h"\n'),
    ("src/targets/kv_rows.c", '/* */\n#include "ops/attention.h"\n'),
    ("src/targets/cpu/linear.c", "/* */\nbool f(void *n) {\n    return op_is(n, a, b);\n}\n"),
    ("src/targets/cpu/linear.c", '/* */\nlong f(void *n) {\n    return ir_attr_int(n, "n");\n}\n'),
    ("src/targets/cpu/linear.c", "/* */\nvoid *f(value *v) {\n    return v->def;\n}\n"),
    ("src/targets/call.h", "/* */\nvoid *f(value *v) {\n    return v->uses;\n}\n"),
]
RIGHT = [
    ("src/targets/cpu/fuse_chain.c", '/* */\n#include "ir/ir.h"\n'),
    ("src/base/str.c", '/* */\n#include <gqac/status.h>\n#include "base/alloc.h"\n'),
    ("src/ops/add.c", '/* */\n#include <math.h>\n#include "numerics/math.h"\n'),
    ("src/numerics/math.h", '/* */\n#include "dialect.h"\n'),
    ("src/passes/fold.c", '/* */\n#include "targets/target.h"\n#include "ops/op.h"\n'),
    ("src/targets/cpu/pack.c", '/* */\n#include "targets/cpu/pack.h"\n#include "kv/kv.h"\n'),
    ("src/targets/cpu/pack.c", '/* */\n#include "targets/target.h"\n#include "pack.h"\n'),
    ("src/targets/ref/ref.c", '/* */\nrow a[] = {{.name = "x", .op = "x", .bind = f, .run = g}};\n'),
    ("src/targets/cpu/matmul.c", '/* */\n#include "targets/call.h"\n#include "ops/matrices.h"\n'),
    ("src/api/load.c", '/* */\n#include <gqac/gqac.h>\n#include "runtime/program.h"\n'),
    ("src/cli/main.c", "/* */\n#include <gqac/text.h>\n#include <jansson.h>\n"),
    ("integrations/ort/run.c", '/* */\n#include <gqac/gqac.h>\n#include "api.h"\n'),
    ("src/cli/verb_serve.c", '/* */\n#include "serve/serve.h"\n'),
    ("src/serve/http.c", '/* */\n#include <event2/event.h>\n#include <gqac/text.h>\n'),
    ("src/llm/chat.c", '/* */\n#include <gqac/gqac.h>\n#include "text/jinja/jinja.h"\n'),
    ("src/text/jinja/jinja.c", '/* */\n#include "text/jinja/jinja_impl.h"\n#include "text/unicode.h"\n'),
    ("src/ir/dim.c", "/* */\n" + "\n" * (LINES - 1)),
    ("include/gqac/gqac.h", "/* */\n" + "\n" * (PUBLIC - 1)),
    ("src/ir/dim.c", "/* */\nvoid f(void) {\n" + "    g();\n" * (FUNCTION - 2) + "}\n"),
    ("src/ir/dim.c", "/* */\nconst row rows[] = {\n" + "    {1},\n" * FUNCTION + "};\n"),
]


def main():
    table = read_table((ROOT / "docs/architecture.md").read_text())
    cases = Cases()
    count = cases.count
    folders = {folder_of(p.relative_to(ROOT).as_posix()) for top in ("src", "integrations")
               for p in (ROOT / top).rglob("*.[ch]")}
    missing = folders - table.keys()
    count(not missing, f"docs/architecture.md has no row for {sorted(missing)}")
    for source, text in WRONG:
        count(source_faults(table, source, text), f"accepted in {source}: {text[:80]!r}")
    files = [p for folder in ("src", "include", "integrations")
             for p in sorted((ROOT / folder).rglob("*.[ch]"))]
    texts = {p.relative_to(ROOT).as_posix(): p.read_text() for p in files}
    for source, text in GRAPH_SEEN:
        count(graph_faults(source, text, texts), f"accepted in {source}: {text[:80]!r}")
    for source, text in RIGHT:
        faults = source_faults(table, source, text, texts)
        count(not faults, f"refused: {faults}")
    for source, text in texts.items():
        if folder_of(source) in missing:
            continue
        faults = source_faults(table, source, text, texts)
        count(not faults, "\n     ".join(faults))
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
