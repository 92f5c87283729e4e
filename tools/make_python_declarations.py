#!/usr/bin/env python3
"""Writes python/gqac/_declarations.py, the public headers as declarations of ctypes.

The headers are preprocessed by cc and parsed by pycparser. python/tests/test_declarations.py
generates them again and compares, and checks sizes and offsets with a C program.

    build/venv/bin/python tools/make_python_declarations.py     writes the file
"""

import re
import subprocess
from pathlib import Path

from pycparser import c_ast, c_parser

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "python" / "gqac" / "_declarations.py"
SCALARS = {"int": "c_int", "unsigned": "c_uint", "unsigned int": "c_uint", "size_t": "c_size_t",
           "int64_t": "c_int64", "uint64_t": "c_uint64", "double": "c_double", "float": "c_float",
           "_Bool": "c_bool", "char": "c_char", "unsigned char": "c_ubyte"}
KNOWN = "typedef unsigned long size_t; typedef long int64_t; typedef unsigned long uint64_t;\n"


def preprocessed():
    """The text of gqac's own headers, without attributes and without the headers that they
    include."""
    done = subprocess.run(["cc", "-E", "-I", str(ROOT / "include"), "-D__attribute__(x)=", "-x", "c",
                           "-"], input="#include <gqac/text.h>\n#include <gqac/remote.h>\n", capture_output=True, text=True,
                          check=True)
    ours, lines = False, []
    for line in done.stdout.splitlines():
        if match := re.match(r'# \d+ "([^"]*)"', line):
            ours = "/include/gqac/" in match[1]
        elif ours:
            lines.append(line)
    return KNOWN + "\n".join(lines)


class Writer:
    """Collects the lines of the module."""

    def __init__(self, tree):
        self.enums = {}      # C constant: value
        self.structs = {}    # name: fields, or None if the headers only name it
        self.callbacks = {}  # name: function type
        self.functions = {}  # name: function type
        self.names = set()   # of enum types
        for node in tree.ext:
            if isinstance(node, c_ast.Typedef):
                self.take_typedef(node)
            elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
                if "static" not in node.storage:
                    self.functions[node.name] = node.type
            elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
                self.take_enum(node.type)

    def take_typedef(self, node):
        inner = node.type.type
        if isinstance(node.type, c_ast.FuncDecl):
            self.callbacks[node.name] = node.type
        elif isinstance(inner, c_ast.Enum):
            self.names.add(node.name)
            self.take_enum(inner)
        elif isinstance(inner, c_ast.Struct):
            if inner.decls or node.name not in self.structs:
                self.structs[node.name] = inner.decls

    def take_enum(self, enum):
        value = -1
        for item in enum.values.enumerators:
            value = int(self.constant(item.value)) if item.value else value + 1
            self.enums[item.name] = value

    def constant(self, node):
        return f"-{node.expr.value}" if isinstance(node, c_ast.UnaryOp) else node.value

    # ---- types ---------------------------------------------------------------

    def type_of(self, node, counted=False):
        """The ctypes name of a type. counted: characters have a length, and no NUL."""
        if isinstance(node, c_ast.TypeDecl):
            name = " ".join(node.type.names)
            return "c_int" if name in self.names else SCALARS.get(name, name)
        if isinstance(node, c_ast.ArrayDecl):
            return f"{self.type_of(node.type)} * {node.dim.value}"
        if isinstance(node, c_ast.FuncDecl):
            return self.function_type(node)
        return self.pointer_to(node.type, counted)

    def pointer_to(self, target, counted):
        if isinstance(target, c_ast.FuncDecl):
            return self.function_type(target)
        if isinstance(target, c_ast.TypeDecl):
            name = " ".join(target.type.names)
            if name in self.callbacks:
                return name
            if name == "char":
                return "c_char_p" if "const" in target.quals and not counted else "c_void_p"
            if name == "void" or self.structs.get(name, ()) is None:
                return "c_void_p"
        if isinstance(target, c_ast.PtrDecl):
            # A string that a call returns is freed or has a length; a list of strings is const.
            return f"POINTER({self.type_of(target, 'const' not in target.quals)})"
        return f"POINTER({self.type_of(target)})"

    def function_type(self, node, name="CFUNCTYPE"):
        return f"{name}({', '.join([self.result_of(node), *self.arguments_of(node)])})"

    def result_of(self, node):
        counted = any(p.name == "length" for p in self.parameters(node))
        if isinstance(node.type, c_ast.TypeDecl) and node.type.type.names == ["void"]:
            return "None"
        return self.type_of(node.type, counted)

    def parameters(self, node):
        return [p for p in (node.args.params if node.args else []) if p.name]

    def arguments_of(self, node):
        return [self.argument(p.type) for p in self.parameters(node)]

    def argument(self, node):
        if isinstance(node, c_ast.ArrayDecl):  # char hex[65]
            return "c_void_p"
        if isinstance(node, c_ast.TypeDecl) and " ".join(node.type.names) in self.callbacks:
            return " ".join(node.type.names)
        return self.type_of(node)

    # ---- text ----------------------------------------------------------------

    def struct_lines(self, name):
        fields = self.structs[name]
        counted = any(f.name == "length" for f in fields)
        rows = "".join(f'    ("{f.name}", {self.type_of(f.type, counted)}),\n' for f in fields)
        return f"{name}._fields_ = [\n{rows}]\n"

    def text(self):
        whole = {n for n, fields in self.structs.items() if fields is not None}
        lines = ['"""The public headers, made by tools/make_python_declarations.py."""\n',
                 "from __future__ import annotations\n",
                 "from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, "
                 "c_double, c_float,\n                    c_int, c_int64, c_size_t, c_ubyte, c_uint, "
                 "c_uint64, c_void_p)\nfrom typing import Any\n"]
        lines += [f"{name} = {value}" for name, value in self.enums.items()]
        lines += [f"\n\nclass {name}(Structure):\n    pass" for name in sorted(whole)]
        lines.append("\n")
        lines += [f"{name} = {self.function_type(node)}" for name, node in self.callbacks.items()]
        lines.append("")
        lines += [self.struct_lines(name) for name in self.ordered(whole)]
        lines.append("FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {")
        for name, node in self.functions.items():
            arguments = ", ".join(self.arguments_of(node))
            lines.append(f'    "{name}": ({self.result_of(node)}, [{arguments}]),')
        return "\n".join([*lines, "}", ""])

    def ordered(self, names):
        """Structs, each after those that it contains."""
        done = []

        def add(name):
            if name in done:
                return
            for field in self.structs[name]:
                kind = field.type.type if isinstance(field.type, c_ast.ArrayDecl) else field.type
                if isinstance(kind, c_ast.TypeDecl) and " ".join(kind.type.names) in names:
                    add(" ".join(kind.type.names))
            done.append(name)

        for name in sorted(names):
            add(name)
        return done


def declarations():
    """The text of the module."""
    return Writer(c_parser.CParser().parse(preprocessed())).text()


if __name__ == "__main__":
    OUTPUT.write_text(declarations())
