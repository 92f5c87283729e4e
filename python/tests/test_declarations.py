"""The declarations are those of the headers."""

import ctypes
import subprocess
import sys
from pathlib import Path

from conftest import ROOT
from gqac import _declarations as c
from gqac import _errors, _library

sys.path.insert(0, str(ROOT / "tools"))
import make_python_declarations  # noqa: E402


def structs():
    """All structs by name."""
    return {name: kind for name, kind in vars(c).items()
            if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and name.startswith("gqac_")}


def test_file_is_made_from_the_headers():
    """After a change of the headers: tools/make_python_declarations.py."""
    made = make_python_declarations.declarations()
    assert made == make_python_declarations.OUTPUT.read_text(), "run tools/make_python_declarations.py"


def test_sizes_and_offsets(tmp_path):
    """A C program prints those of the compiler, and the defaults of the _init functions."""
    rows, expected = [], []
    for name, kind in structs().items():
        rows.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(ctypes.sizeof(kind))
        for field, *_ in kind._fields_:
            rows.append(f'printf("%zu\\n", offsetof({name}, {field}));')
            expected.append(getattr(kind, field).offset)
    for name in ("GQAC_STATUS_COUNT", "GQAC_DTYPE_COUNT", "GQAC_FINISH_FAILED", "GQAC_EMIT_TEXT"):
        rows.append(f'printf("%zu\\n", (size_t){name});')
        expected.append(getattr(c, name))
    program = tmp_path / "sizes.c"
    program.write_text("#include <gqac/text.h>\n#include <gqac/remote.h>\n#include <stdio.h>\nint main(void) {\n"
                       + "\n".join(rows) + "\nreturn 0; }\n")
    subprocess.run(["cc", "-I", ROOT / "include", program, "-o", tmp_path / "sizes"], check=True)
    printed = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True).stdout
    assert list(map(int, printed.split())) == expected


def test_library_has_every_function():
    """Each declared function is exported, and nothing else is."""
    path = Path(_library._path())
    for library, own in ((path, False), (path.with_name("libgqac_remote.so.0"), True)):
        if own and not library.exists():  # built without hiredis
            continue
        printed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True,
                                 text=True, check=True).stdout
        exported = {line.split()[2].split("@")[0] for line in printed.splitlines()
                    if "gqac_" in line}
        assert exported == {f for f in c.FUNCTIONS if f.startswith("gqac_remote_") == own}


def test_every_status_has_a_class():
    """None is reported as a defect of gqac by mistake."""
    assert set(_errors.CLASSES) == set(range(1, c.GQAC_STATUS_COUNT))
