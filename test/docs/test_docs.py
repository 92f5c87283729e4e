#!/usr/bin/env python3
"""The documentation is correct wherever a machine can check it.

README.md and docs/*.md: every `console` block is run, and every `sh` block that starts with gqac;
every link into the tree and every path in backticks exists; every `gq` block is a module that gqac
accepts; a block that names a file after its language quotes that file. No line is longer than
COLUMNS.

In a console block `$ ` starts a command and `> ` continues it; the lines below it must occur in its
output, in that order; times ("0.01 s") may differ. A command must succeed unless `$ echo $?` and
its exit code follow. Blocks of one page run one after another in one scratch folder with the files
of the source tree; gqac, the negative controls and python3 (this interpreter) are on the PATH.

    python test/docs/test_docs.py [WORDS]      GQAC names the binary, GQAC_CONTROLS the controls
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import harness  # noqa: E402
from harness import Case, ROOT, gqac  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONTROLS = Path(os.environ.get("GQAC_CONTROLS", harness.GQAC.parent / "test" / "controls"))
COLUMNS = 120
SECONDS = 120 * (10 if harness.SANITIZED else 1)
FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TIME = re.compile(r"\b\d+\.\d+ s\b")
CODE = re.compile(r"`([^`\n]+)`")
TOP = ("src", "test", "docs", "include", "tools", "cmake", "models", "proto", "bench", "integrations", ".ci")
FILE = re.compile(r"^(\./)?[\w.+-]+(/[\w.+-]+)*/?$")
# The text of these blocks is checked elsewhere, against their own schemas.
OWN_GQ = {"ir.md": "test/ir/test_doc.c"}


def blocks(page):
    """(language, text, quoted file or None) of the fenced blocks of a page."""
    return [(m[1], m[3], m[2]) for m in FENCE.finditer(page.read_text())]


def commands(text):
    """[(command, shown lines)] of a console block."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and line.startswith("> ") and not found[-1][1]:
            found[-1] = (found[-1][0] + "\n" + line[2:], [])
        elif found and line.strip():
            found[-1][1].append(line.rstrip())
    return found


def script_blocks(page):
    """The commands of each block of a page that is run."""
    for language, text, _ in blocks(page):
        if language == "console":
            yield commands(text)
        elif language == "sh" and text.startswith("gqac "):
            yield [(line, []) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def timeless(line):
    """The line with all times replaced."""
    return TIME.sub("0 s", line.rstrip())


def missing(shown, printed):
    """The first shown line that does not occur after the previous ones; None: all occur. "..."
    stands for at least one line."""
    at = 0
    for line in shown:
        if line == "...":
            if at >= len(printed):
                return line
            at += 1
            continue
        hits = [i for i, p in enumerate(printed[at:], at) if timeless(p) == timeless(line)]
        if not hits:
            return line
        at = hits[0] + 1
    return None


def tracked():
    """The entries of the root, without files that a user's own commands have created."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True,
                            check=False).stdout
    names = {line.split("/")[0] for line in listed.splitlines()} | {"build"}
    return [entry for entry in ROOT.iterdir() if not listed or entry.name in names]


class Shell:
    """A shell that runs commands one by one, with the tools of the documentation on its PATH."""

    def __init__(self, folder):
        tools = folder / "tools-on-path"
        tools.mkdir()
        python = tools / "python3"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        work = folder / "work"
        work.mkdir()
        for entry in tracked():
            (work / entry.name).symlink_to(entry)
        env = harness.environment()
        path = (tools, harness.GQAC.parent, CONTROLS, env.get("PATH", ""))
        env["PATH"] = ":".join(map(str, path))
        self.child = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, cwd=work, env=env,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      start_new_session=True)

    def kill(self):
        """Ends the shell and its processes."""
        os.killpg(self.child.pid, signal.SIGKILL)

    def run(self, command):
        """(exit code, printed lines); -1 if the command took longer than SECONDS."""
        mark = "==end-of-command=="
        self.child.stdin.write(f"{{ {command}\n}} </dev/null\nstatus=$?; echo; "
                               f"echo {mark} $status\n")
        self.child.stdin.flush()
        timer = threading.Timer(SECONDS, self.kill)
        timer.start()
        lines = []
        try:
            for line in self.child.stdout:
                if line.startswith(mark):
                    return int(line.split()[1]), lines
                lines.append(line.rstrip("\n"))
        finally:
            timer.cancel()
        return -1, lines

    def close(self):
        """Ends the shell, and any processes that a block has left in the background."""
        self.child.stdin.close()
        self.child.wait()
        with contextlib.suppress(ProcessLookupError):
            self.kill()
        self.child.stdout.close()


class Blocks(Case):
    """Commands succeed, and print the output that the page shows."""

    def run_page(self, page):
        """Runs all blocks of one page in order."""
        if "KERNEL_BY_ROWS equiv" in page.read_text() and not (CONTROLS / "KERNEL_BY_ROWS").exists():
            self.skipTest("no negative controls in this build")
        shell = Shell(self.dir)
        try:
            for block in script_blocks(page):
                self.run_block(shell, block)
        finally:
            shell.close()

    def run_block(self, shell, block):
        """Runs one block."""
        code, expected, last = 0, 0, ""
        for command, shown in block:
            if command == "echo $?":
                expected = int(shown[0])
                self.assertEqual(code, expected, last)
                code = 0
                continue
            self.assertEqual(code, 0, last)
            code, printed = shell.run(command)
            last = f"$ {command}\n" + "\n".join(printed)
            for mark in harness.SANITIZER:
                self.assertNotIn(mark, last)
            self.assertIsNone(missing(shown, printed), f"not printed by {last}")
        self.assertEqual(code, 0, last)


class Text(Case):
    """Links, paths, widths and graphs."""

    def test_links(self):
        """Every link into the tree has a target."""
        for page in PAGES:
            for target in LINK.findall(FENCE.sub("", page.read_text())):
                if re.match(r"\w+:", target):
                    continue
                with self.subTest(page=page.name, link=target):
                    self.assertTrue((page.parent / target).exists())

    def test_paths(self):
        """Every path in backticks exists; `<name>` and `*` are placeholders, and build/ is
        ignored."""
        for page in PAGES:
            for word in CODE.findall(FENCE.sub("", page.read_text())):
                path = re.sub(r"<[^>]*>", "*", word)
                first = path.removeprefix("./").split("/")[0]
                if "/" not in path or first not in TOP or not FILE.match(path.replace("*", "x")):
                    continue
                with self.subTest(page=page.name, path=word):
                    self.assertTrue(list(ROOT.glob(path.removeprefix("./").rstrip("/"))))

    def test_width(self):
        """Lines outside blocks and tables have at most COLUMNS columns."""
        for page in PAGES:
            for line in FENCE.sub("", page.read_text()).splitlines():
                if not line.startswith("|"):
                    self.assertLessEqual(len(line), COLUMNS, f"{page.name}: {line}")

    def test_figure(self):
        """The speed in README.md is in a row of performance.md."""
        text = (ROOT / "README.md").read_text()
        speed = re.search(r"decodes (\d+) tokens a second on\s", text)[1]
        row = re.search(r"\(`([^`]*decode@512)`", text)[1]
        rows = [line for line in (ROOT / "docs" / "performance.md").read_text().splitlines()
                if line.startswith(f"| {row} ")]
        self.assertEqual(rows[0].split(" | ")[2], f"{speed} tok/s")

    def test_graphs(self):
        """Every `gq` block can be read, typed, and printed again."""
        count = 0
        for page in PAGES:
            for language, text, _ in blocks(page):
                if language != "gq" or page.name in OWN_GQ:
                    continue
                with self.subTest(page=page.name, text=text[:60]):
                    path = self.dir / "block.gq"
                    path.write_text(text)
                    self.good("compile", path, "--stateless", "--dump", "import", "--stop-after",
                              "infer")
                count += 1
        print(f"{count} graphs read")

    def test_quotes(self):
        """Blocks that name a file after their language contain lines of it, in that order."""
        for page in PAGES:
            for _, text, name in blocks(page):
                if not name:
                    continue
                with self.subTest(page=page.name, quoted=name):
                    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
                    self.assertIsNone(missing(lines, (ROOT / name).read_text().splitlines()))

    def test_public_headers(self):
        """The list at the top of gqac.h names every public header except those of text.h."""
        folder = ROOT / "include" / "gqac"
        head = (folder / "gqac.h").read_text().split("*/", 1)[0]
        text = set(re.findall(r"<gqac/(\w+\.h)>", (folder / "text.h").read_text()))
        for header in sorted({path.name for path in folder.glob("*.h")} - text - {"gqac.h"}):
            with self.subTest(header=header):
                self.assertIn(header, head)

    def test_target_fields(self):
        """adding-a-target.md describes every field of a kernel's row and of a target."""
        header = (ROOT / "src" / "targets" / "target.h").read_text()
        page = (ROOT / "docs" / "adding-a-target.md").read_text()
        for struct in ("target_kernel", "gqac_target"):
            body = re.search(rf"typedef struct {struct} \{{\n(.*?)^\}} {struct};", header,
                             re.MULTILINE | re.DOTALL)[1]
            body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
            fields = re.findall(r"\(\*(\w+)\)\(|(\w+);", body)
            self.assertGreater(len(fields), 4, struct)
            for name in (a or b for a, b in fields):
                with self.subTest(struct=struct, field=name):
                    self.assertTrue(f"`{name}`" in page or f".{name} = " in page)

    def test_controls(self):
        """Faults that these checks must detect."""
        self.assertEqual(missing(["a", "c"], ["a", "b"]), "c")
        self.assertEqual(missing(["b", "a"], ["a", "b"]), "a")
        self.assertEqual(commands("$ x\n> y\nz\n$ w\n"), [("x\ny", ["z"]), ("w", [])])
        shell = Shell(self.dir)
        try:
            for block in ([("false", [])], [("echo a", ["b"])], [("true", []), ("echo $?", ["1"])]):
                self.assertRaises(AssertionError, Blocks.run_block, self, shell, block)
        finally:
            shell.close()
        path = self.dir / "bad.gq"
        path.write_text("graph @g() {\n  return %nothing\n}\n")
        self.check(gqac("compile", path, "--stateless", "--stop-after", "infer"), 3)


def add_pages():
    """Adds a method for each page that has something to run."""
    for page in PAGES:
        count = sum(1 for _ in script_blocks(page))
        if not count:
            continue

        def test(self, page=page):
            self.run_page(page)
        test.__doc__ = f"{page.name}: {count} blocks"
        setattr(Blocks, f"test_{page.stem}", test)


add_pages()

if __name__ == "__main__":
    sys.exit(harness.main())
