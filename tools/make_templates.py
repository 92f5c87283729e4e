#!/usr/bin/env python3
"""Makes test/templates, with the output of transformers for conversations and snippets.

The chat templates have the output of transformers' renderer for conversations; snippets of the
template language have the output of its Jinja environment. The templates (tools/templates/*.jinja)
follow publicly known formats of chats. Every conversation is rendered with every template;
exceptions are stored as errors. Run by hand, in an environment with transformers 5.23
(tools/README.md):

    make/bin/python tools/make_templates.py
    make/bin/python tools/make_templates.py --fuzz 100000 --renderer build/test/test_text_jinja
                              random snippets in both renderers; prints those that differ
"""

import argparse
import copy
import json
import random
import subprocess
from pathlib import Path

import jinja2
import transformers
from transformers.utils.chat_template_utils import _alias_reasoning_fields, _compile_jinja_template, render_jinja_template

from template_conversations import CONVERSATIONS
from template_snippets import SNIPPETS, VARIABLES, random_snippet

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent


def render(template, variables):
    """{"out": text}, or {"error": "syntax" | "run"}."""
    try:
        compiled = _compile_jinja_template(template)
    except jinja2.TemplateSyntaxError:
        return {"error": "syntax"}
    except (OverflowError, RecursionError, MemoryError, SyntaxError, ValueError):
        return {"error": "syntax"}
    try:
        out = compiled.render(**copy.deepcopy(variables))  # the filter indent can change a list
        out.encode()
    except Exception:  # noqa: BLE001 - whatever a template can raise
        return {"error": "run"}
    return {"out": out}


def write(path, rows, head):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    text = "{" + "".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)},\n" for k, v in head.items())
    path.write_text(text + f'"rows": [\n{lines}\n]}}\n', encoding="utf-8")


def make_chats():
    total = size = 0
    # the variables of templates: transformers passes reasoning under all of its names
    seen = [{**chat, "messages": _alias_reasoning_fields(chat["messages"])} for chat in CONVERSATIONS]
    write(ROOT / "test/templates/conversations.json", seen, {})
    for file in sorted((HERE / "templates").glob("*.jinja")):
        template = file.read_text()
        folder = ROOT / "test/templates" / file.stem
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "template.jinja").write_text(template)
        rows = []
        for i, chat in enumerate(CONVERSATIONS):
            given = {k: v for k, v in chat.items() if k != "messages"}
            given.setdefault("tools", None)
            given.setdefault("documents", None)
            try:
                [out], _ = render_jinja_template(
                    [chat["messages"]], chat_template=template, bos_token="<s>", eos_token="</s>", **given
                )
                rows.append({"chat": i, "out": out})
            except Exception:  # noqa: BLE001
                rows.append({"chat": i, "error": "run"})
        write(folder / "cases.json", rows, {})
        total += len(rows)
        raised = sum("error" in r for r in rows)
        size += (folder / "cases.json").stat().st_size + len(template)
        print(f"{file.stem}: {len(rows)} conversations, {raised} raise")
    print(f"{total} pairs, {size} bytes")


def make_snippets():
    rows = []
    for item in SNIPPETS:
        template, extra = item if isinstance(item, tuple) else (item, {})
        row = {"template": template}
        if extra:
            row["variables"] = extra
        row.update(render(template, {**VARIABLES, **extra}))
        if " at 0x" not in row.get("out", ""):  # addresses differ in each run
            rows.append(row)
    write(ROOT / "test/templates/snippets.json", rows, {"variables": VARIABLES})
    errors = sum("error" in r for r in rows)
    print(f"{len(rows)} snippets, {errors} raise")


def fuzz(count, renderer, seed):
    """Random snippets; the renderer reads a JSON file of rows and prints those that differ."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        template = random_snippet(draw)
        row = {"template": template, **render(template, VARIABLES)}
        if " at 0x" not in row.get("out", ""):
            rows.append(row)
    path = Path("/tmp/gqac-fuzz-snippets.json")
    write(path, rows, {"variables": VARIABLES})
    print(f"{count} snippets, {sum('error' in r for r in rows)} raise")
    subprocess.run([renderer, "--snippets", str(path)], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--renderer", default=ROOT / "build/test/test_text_jinja")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not transformers.__version__.startswith("5.23"):
        raise SystemExit(f"transformers {transformers.__version__}, but the files are of 5.23")
    if args.fuzz:
        fuzz(args.fuzz, args.renderer, args.seed)
        return
    make_chats()
    make_snippets()


if __name__ == "__main__":
    main()
