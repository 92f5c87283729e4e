"""Bad files, class external: data outside the model file, and where it may be.

Every builder makes folder/model.onnx and, next to it, the data of its initialiser `w` [8,4]. Links
lead to folder/../<name>-outside, which exists: the files that must not be read can be read."""

import os
import shutil

from tiny import Row, mlp, save, weights

ROWS = []
DATA = weights((8, 4)).tobytes()  # 128 bytes
INSIDE = [("location", "w.bin")]


def write(folder, entries, files=("w.bin",), size=len(DATA)):
    """Write the files, and the model with w external and these entries."""
    def change(m):
        w = next(i for i in m.graph.initializer if i.name == "w")
        w.ClearField("raw_data")
        w.data_location = 1
        for key, value in entries:
            w.external_data.add(key=key, value=str(value))
    save(mlp(change), folder)
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((DATA * (size // len(DATA) + 1))[:size])


def entries(*rows, **more):
    """Builder with these external_data entries and a w.bin."""
    return lambda folder: write(folder, rows, **more)


def row(name, word, bad, twin=None, **more):
    """Add a row; the usual twin reads w.bin next to the model."""
    ROWS.append(Row(name, "external", word, bad, twin or entries(*INSIDE), **more))


def outside(folder):
    """A folder next to the model's, with the data in it."""
    other = folder.parent / (folder.name + "-outside")
    other.mkdir(exist_ok=True)
    (other / "w.bin").write_bytes(DATA)
    return other


# ---- spellings -----------------------------------------------------------------------------------


def spelled(location):
    """Builder with a location as text; {out} is the name of the folder outside."""
    def build(folder):
        text = location.replace("{out}", outside(folder).name)
        text = text.replace("{abs}", str(folder.resolve()))
        write(folder, [("location", text)], files=("w.bin", "sub/w.bin"))
    return build


BAD_SPELLINGS = (
    "../{out}/w.bin", "sub/../../{out}/w.bin", "./../{out}/w.bin", "nothere/../../{out}/w.bin",
    "sub/./../../{out}/w.bin", "sub/../w.bin", "..//{out}//w.bin",
    "sub/../nothere/../../{out}/w.bin",
    "{abs}/w.bin", "/etc/passwd", "//etc/passwd", "/proc/self/mem", "..", ".", "", "/", "./", "sub",
    "sub/", "w.bin/", "w.bin/.", "w.bin/..", "nothere.bin", "nothere/w.bin", "..\\w.bin",
    "C:\\w.bin", "sub\\w.bin", "%2e%2e/w.bin", "file:w.bin", "~/w.bin", "*/_ORT_MEM_ADDR_/*",
    " w.bin", "w.bin ", "x" * 300, "a/" * 600 + "w.bin", "/../{out}/w.bin",
    "../../../../../../etc/passwd")
for text in BAD_SPELLINGS:
    shown = text if len(text) < 60 else text[:6] + f"… ({len(text)})"
    row(f"location '{shown}'", "", spelled(text), spelled("sub/w.bin"))
row("location with a NUL", "NUL", entries(("location", "w.bin\0.txt")))
for good in ("./w.bin", "sub/w.bin", "sub//w.bin", "sub/./w.bin"):
    row(f"beside the legal location '{good}': escape", "", spelled("../{out}/w.bin"), spelled(good))

# ---- kinds of files ------------------------------------------------------------------------------


def there(make):
    """Builder: make(path, folder outside) creates something at w.bin."""
    def build(folder):
        write(folder, INSIDE, files=())
        make(folder / "w.bin", outside(folder))
    return build


def parent_link(folder):
    """sub is a link to the folder outside."""
    write(folder, [("location", "sub/w.bin")], files=())
    (folder / "sub").symlink_to(outside(folder), target_is_directory=True)


def hard_link(path, out):
    """A second name for the file outside."""
    os.link(out / "w.bin", path)


def device(path, out):
    """/dev/zero, as a new device file or a link."""
    try:
        os.mknod(path, 0o20666, os.makedev(1, 5))
    except OSError:
        path.symlink_to("/dev/zero")


def itself(folder):
    """The model's own file, which is long enough."""
    write(folder, [("location", "model.onnx"), ("length", 128)])


row("link to a file outside", "", there(lambda p, o: p.symlink_to(o / "w.bin")))
row("relative link to a file outside", "",
    there(lambda p, o: p.symlink_to(os.path.join("..", o.name, "w.bin"))))
row("link to nowhere", "", there(lambda p, o: p.symlink_to("nowhere")))
row("link to itself", "", there(lambda p, o: p.symlink_to("w.bin")))
row("link as parent folder", "", parent_link, spelled("sub/w.bin"))
row("hard link", "link", there(hard_link), there(lambda p, o: shutil.copy(o / "w.bin", p)))
row("FIFO", "", there(lambda p, o: os.mkfifo(p)))
row("directory", "", there(lambda p, o: p.mkdir()))
row("device", "", there(device))
row("missing file", "w.bin", there(lambda p, o: None))
row("empty file", "w.bin", there(lambda p, o: p.write_bytes(b"")))
row("the model itself", "model.onnx", itself, entries(*INSIDE, ("length", 128)))

# ---- keys ----------------------------------------------------------------------------------------

row("location missing", "location", entries(("offset", 0), ("length", 128)),
    entries(*INSIDE, ("offset", 0), ("length", 128)))
row("no entries", "location", entries())
row("location twice", "twice", entries(*INSIDE, *INSIDE))
row("offset twice", "twice", entries(*INSIDE, ("offset", 0), ("offset", 0)),
    entries(*INSIDE, ("offset", 0)))
row("unknown key", "basepath", entries(*INSIDE, ("basepath", "/etc")),
    entries(*INSIDE, ("checksum", "0" * 40)))
row("key in capitals", "Offset", entries(*INSIDE, ("Offset", 0)), entries(*INSIDE, ("offset", 0)))
row("empty key", "key", entries(*INSIDE, ("", "0")))
BAD_NUMBERS = ("-1", "", " 0", "0 ", "+0", "0x0", "1e2", "1.0", "zero", "18446744073709551616",
               "99999999999999999999999999")
for text in BAD_NUMBERS:
    row(f"offset '{text}'", "offset", entries(*INSIDE, ("offset", text)),
        entries(*INSIDE, ("offset", "0")))
for text in ("-1", "", "128x", "18446744073709551616"):
    row(f"length '{text}'", "length", entries(*INSIDE, ("length", text)),
        entries(*INSIDE, ("length", "128")))

# ---- ranges --------------------------------------------------------------------------------------

row("length one too long", "129", entries(*INSIDE, ("length", 129)),
    entries(*INSIDE, ("length", 128)))
row("length not the tensor's", "", entries(*INSIDE, ("length", 124), size=256),
    entries(*INSIDE, ("length", 128), size=256))
row("length 0", "", entries(*INSIDE, ("length", 0)), entries(*INSIDE, ("length", 128)))
row("file one byte short", "w.bin", entries(*INSIDE, size=127), entries(*INSIDE))
row("offset at the end", "w.bin", entries(*INSIDE, ("offset", 128)),
    entries(*INSIDE, ("offset", 128), size=256))
row("offset behind the end", "w.bin", entries(*INSIDE, ("offset", 4096)),
    entries(*INSIDE, ("offset", 4096), size=4096 + 128))
row("offset + length beyond the end", "w.bin",
    entries(*INSIDE, ("offset", 1), ("length", 128)),
    entries(*INSIDE, ("offset", 1), ("length", 128), size=129))
row("offset + length wraps 2^64", "", entries(*INSIDE, ("offset", (1 << 64) - 64), ("length", 128)))
row("offset + length wraps 2^63", "", entries(*INSIDE, ("offset", (1 << 63) - 64), ("length", 128)))
row("offset 2^63", "", entries(*INSIDE, ("offset", 1 << 63)))
row("offset 2^62", "", entries(*INSIDE, ("offset", 1 << 62)))
row("length 2^63 - 1", "", entries(*INSIDE, ("length", (1 << 63) - 1)))


def inline_too(folder):
    """Both external and raw data."""
    def change(m):
        w = next(i for i in m.graph.initializer if i.name == "w")
        w.data_location = 1
        w.external_data.add(key="location", value="w.bin")
    save(mlp(change), folder)
    (folder / "w.bin").write_bytes(DATA)


def many(count):
    """Builder with `count` initialisers, each in a file of its own."""
    def build(folder):
        def change(m):
            for i in range(count):
                t = m.graph.initializer.add(name=f"t{i}", data_type=1, dims=[1], data_location=1)
                t.external_data.add(key="location", value=f"many/{i}")
                m.graph.node.add(op_type="Identity", input=[t.name], output=[f"o{i}"])
        save(mlp(change), folder)
        (folder / "many").mkdir()
        for i in range(min(count, 10_010)):
            (folder / "many" / str(i)).write_bytes(b"abcd")
    return build


row("external and inline", "w", inline_too)
row("10 001 external files", "10", many(10_001), many(200))
row("100 000 external files", "", many(100_000), many(2))
