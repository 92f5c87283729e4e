"""Artefacts and snapshot files with correct checksums, whatever else is invalid.

The layouts are those of src/runtime/artefact.c and src/runtime/saved.h.
"""

import hashlib
import struct

HEADER, SECTION, PAGE, LINE = 64, 192, 4096, 64
LISTS = ("geometry", "positions", "ids", "rows", "states")  # the sections of a snapshot
HEAD, PARTS, PART, DIGEST = 512, 232, 48, 480  # of a snapshot
FIELDS = {"version": (8, "I"), "order": (12, "I"), "bytes": (16, "Q"), "tokens": (56, "q"),
          "missing": (64, "q"), "given": (72, "q"), "pinned": (80, "q"), "final": (88, "q"),
          "guards": (96, "Q"), "states": (104, "q"), "slots": (112, "q"), "kept": (472, "q")}


def digest(data):
    """SHA-256."""
    return hashlib.sha256(data).digest()


# ---- artefacts -----------------------------------------------------------------------------------


def sections_of(data):
    """[(name, content)] of the sections of an artefact."""
    found = []
    for s in range(struct.unpack_from("<I", data, 24)[0]):
        at = HEADER + SECTION * s
        offset, length = struct.unpack_from("<QQ", data, at + 128)
        found.append((data[at:at + 128].split(b"\0")[0], data[offset:offset + length]))
    return found


def artefact(sections, version=5, count=None, order=0x01020304, magic=b"GQACART\0", shift=0,
             longer=0, zero=0):
    """An artefact with these sections. count: the number in the header; shift: added to the offset
    of the last section; longer: added to the length in the header; zero: a field that must be 0."""
    rows, body = [], bytearray()
    at = HEADER + SECTION * len(sections)
    for i, (name, content) in enumerate(sections):
        unit = PAGE if name in (b"weights", b"baked") else LINE
        offset = -(-at // unit) * unit
        body += bytes(offset - at) + content
        at = offset + len(content)
        last = shift if i + 1 == len(sections) else 0
        rows.append(name.ljust(128, b"\0") + struct.pack("<QQQQ", offset + last, len(content), zero, 0)
                    + digest(content))
    table = b"".join(rows)
    head = magic + struct.pack("<IIQII", version, order, at + longer,
                               len(sections) if count is None else count, 0)
    return head + digest(head + bytes(32) + table) + table + bytes(body)


# ---- snapshots -----------------------------------------------------------------------------------


def part(data, name):
    """(offset, bytes) of a section."""
    return struct.unpack_from("<QQ", data, PARTS + PART * LISTS.index(name))


def sealed(data, lists=True):
    """The snapshot with correct checksums; lists False: only that of the header is recomputed."""
    data = bytearray(data)
    for i, name in enumerate(LISTS):
        offset, length = part(data, name)
        if lists and offset + length <= len(data):
            data[PARTS + PART * i + 16:PARTS + PART * (i + 1)] = digest(
                data[offset:offset + length])
    data[DIGEST:HEAD] = bytes(32)
    data[DIGEST:HEAD] = digest(data[:HEAD])
    return bytes(data)


def with_fields(data, **values):
    """The snapshot with other numbers in its header."""
    data = bytearray(data)
    for name, value in values.items():
        at, form = FIELDS[name]
        struct.pack_into("<" + form, data, at, value)
    return sealed(data)


def with_part(data, name, offset=0, length=0):
    """The snapshot with numbers added to the offset and the length of a section."""
    data = bytearray(data)
    was = part(data, name)
    struct.pack_into("<QQ", data, PARTS + PART * LISTS.index(name),
                     (was[0] + offset) % (1 << 64), (was[1] + length) % (1 << 64))
    return sealed(data)


def with_item(data, name, index, value):
    """The snapshot with another number in one of its lists."""
    data = bytearray(data)
    struct.pack_into("<q", data, part(data, name)[0] + 8 * index, value)
    return sealed(data)
