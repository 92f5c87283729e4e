"""The packages need no newer Python than the 3.9 that they ask for, whichever runs the tests."""

import ast
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

FILES = [path for folder in ("python/gqac", "python/examples", "integrations/ort/python")
         for path in sorted((ROOT / folder).rglob("*.py"))]


class Unevaluated(ast.NodeTransformer):
    """Takes annotations out, and keeps them in a list."""

    def __init__(self):
        self.found = []

    def take(self, node):
        self.found.append(node)

    def visit_arg(self, node):
        node.annotation = self.take(node.annotation)
        return node

    def visit_FunctionDef(self, node):
        node.returns = self.take(node.returns)
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node):
        self.take(node.annotation)
        return node.value and self.generic_visit(node.value)


def is_type(node):
    """Can the operand of `|` be a type?"""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.slice, ast.Slice)
    return isinstance(node, (ast.Name, ast.Attribute)) or getattr(node, "value", 0) is None


def unions(tree):
    """Lines with X | Y of types, which 3.9 has in annotations alone, as long as nothing evaluates them."""
    return [node.lineno for node in ast.walk(tree)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
            and (is_type(node.left) or is_type(node.right))]


def evaluated(text):
    """The lines with such unions that Python evaluates."""
    tree, annotations = ast.parse(text, feature_version=(3, 9)), Unevaluated()
    late = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    found = unions(annotations.visit(tree))
    return found if late else found + [line for node in annotations.found if node for line in unions(node)]


def test_unions_of_types():
    late = "from __future__ import annotations\n"
    for text, lines in (("x: int | None = 1", [1]), (late + "x: int | None = 1", []),
                        ("def f(x: int, *y: list[int] | str) -> None: ...", [1]),
                        ("async def f() -> int | str: return a[1:2] | a[3:4]", [1]),
                        (late + "def f(x: int | str = 1) -> int | None:\n  isinstance(x, int | str)", [3]),
                        (late + "X = list[int] | list[str]", [2])):
        assert evaluated(text) == lines, text
    assert len(FILES) > 20
    assert not {str(path): lines for path in FILES if (lines := evaluated(path.read_text()))}


def test_nothing_of_newer_versions():
    """Neither syntax nor modules, functions and arguments."""
    done = subprocess.run([Path(sys.executable).with_name("vermin"), "--target=3.9-", "--violations",
                           "--no-tips", *FILES], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Minimum required versions: 3.9" in done.stdout, done
