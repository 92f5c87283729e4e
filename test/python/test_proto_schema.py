#!/usr/bin/env python3
"""proto/onnx.proto agrees with ONNX.

Every message, enum and field of ours is compared with the descriptor in the `onnx` package: name,
number, type, label, packing, oneof. Parts of ONNX that ours lacks must be in LEFT_OUT.

    python test/python/test_proto_schema.py        (needs onnx)
"""

import re
import sys
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor
from onnx import onnx_ml_pb2

PROTO = Path(__file__).resolve().parents[2] / "proto" / "onnx.proto"

DEVICES = "placement on several devices; gqac plans its own"
LEFT_OUT = {
    "ModelProto.configuration": DEVICES,
    "NodeProto.device_configurations": DEVICES,
    "DeviceConfigurationProto": DEVICES,
    "NodeDeviceConfigurationProto": DEVICES,
    "ShardingSpecProto": DEVICES,
    "ShardedDimProto": DEVICES,
    "SimpleShardedDimProto": DEVICES,
    "IntIntListEntryProto": DEVICES,
    "Version": "no field has this type; the importer knows the newest IR version",
    "OperatorStatus": "used by operator schemas only, not by models",
}

SCALARS = {
    value: name[len("TYPE_") :].lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_") and isinstance(value, int)
}


# ---- ours: a reader of the little proto2 that the file uses --------------------------------------


def tokens(text):
    text = re.sub(r"//[^\n]*", "", text)
    return re.findall(r'[A-Za-z_][\w.]*|\d+|"[^"]*"|[{}=;\[\]]', text)


def read_field(t, label, oneof):
    """Reads [type, name, '=', number, ('[packed = true]')?, ';'] from the front of t."""
    kind, name, equals, number = (t.pop(0) for _ in range(4))
    assert equals == "=", (name, equals)
    packed = False
    if t[0] == "[":
        assert t[:5] == ["[", "packed", "=", "true", "]"], t[:5]
        del t[:5]
        packed = True
    assert t.pop(0) == ";", name
    return name, (int(number), kind, label, packed, oneof)


def read_enum(t):
    values = {}
    while t[0] != "}":
        name, equals, number, end = (t.pop(0) for _ in range(4))
        assert equals == "=" and end == ";", name
        values[name] = int(number)
    t.pop(0)
    return values


def read_message(t, path, messages, enums):
    fields = messages.setdefault(path, {})
    while t[0] != "}":
        word = t.pop(0)
        if word in ("message", "enum"):
            name = t.pop(0)
            assert t.pop(0) == "{"
            if word == "message":
                read_message(t, f"{path}.{name}", messages, enums)
            else:
                enums[f"{path}.{name}"] = read_enum(t)
        elif word == "oneof":
            oneof = t.pop(0)
            assert t.pop(0) == "{"
            while t[0] != "}":
                name, field = read_field(t, "optional", oneof)
                fields[name] = field
            t.pop(0)
        else:
            assert word in ("optional", "repeated"), word
            name, field = read_field(t, word, None)
            assert name not in fields, name
            fields[name] = field
    t.pop(0)


def read_ours():
    t = tokens(PROTO.read_text())
    assert t[:4] == ["syntax", "=", '"proto2"', ";"] and t[4:7] == ["package", "onnx", ";"]
    del t[:7]
    messages, enums = {}, {}
    while t:
        assert t.pop(0) == "message"
        name = t.pop(0)
        assert t.pop(0) == "{"
        read_message(t, name, messages, enums)
    return messages, enums


# ---- theirs --------------------------------------------------------------------------------------


def type_of(field, path):
    """The type as our file spells it: the shortest name that resolves from the message."""
    named = field.message_type or field.enum_type
    if not named:
        return SCALARS[field.type]
    full = named.full_name.split(".", 1)[1]
    return full[len(path) + 1 :] if full.startswith(path + ".") else full


def read_message_type(message, path, messages, enums):
    messages[path] = {}
    for f in message.fields:
        label = "repeated" if f.is_repeated else "optional"
        assert not f.is_required, f.name
        packed = f.is_repeated and f.GetOptions().packed
        oneof = f.containing_oneof.name if f.containing_oneof else None
        messages[path][f.name] = (f.number, type_of(f, path), label, packed, oneof)
    for e in message.enum_types:
        enums[f"{path}.{e.name}"] = {v.name: v.number for v in e.values}
    for nested in message.nested_types:
        read_message_type(nested, f"{path}.{nested.name}", messages, enums)


def read_theirs():
    messages, enums = {}, {}
    file = onnx_ml_pb2.DESCRIPTOR
    for message in file.message_types_by_name.values():
        read_message_type(message, message.name, messages, enums)
    for enum in file.enum_types_by_name.values():
        enums[enum.name] = {v.name: v.number for v in enum.values}
    return messages, enums


# ---- comparison ----------------------------------------------------------------------------------


def resolve(kind, path, ours):
    """Ours may name a sibling (Tensor in TypeProto.Map) without its outer message."""
    outer = path
    while outer:
        if f"{outer}.{kind}" in ours:
            return f"{outer}.{kind}"
        outer = outer.rpartition(".")[0]
    return kind


def check():
    ours, our_enums = read_ours()
    theirs, their_enums = read_theirs()
    known = set(ours) | set(our_enums)
    all_theirs = set(theirs) | set(their_enums)
    results = []  # (what, ok, detail)
    for path, fields in ours.items():
        for name, (number, kind, *rest) in fields.items():
            want = theirs.get(path, {}).get(name)
            if want:
                want = (want[0], resolve(want[1], path, all_theirs), *want[2:])
            have = (number, resolve(kind, path, known), *rest)
            results.append((f"{path}.{name}", have == want, f"{have} is not {want}"))
    for path, values in our_enums.items():
        results.append((path, values == their_enums.get(path), "values differ"))
    for path, fields in theirs.items():
        if path not in ours:
            results.append((path, path.split(".")[0] in LEFT_OUT, "is missing"))
            continue
        for name in fields:
            if name not in ours[path]:
                results.append((f"{path}.{name}", f"{path}.{name}" in LEFT_OUT, "is missing"))
    for path in their_enums:
        if path not in our_enums:
            results.append((path, path in LEFT_OUT, "is missing"))
    for path in LEFT_OUT:
        message, _, field = path.partition(".")
        official = field in theirs.get(message, {}) if field else path in all_theirs
        absent = field not in ours.get(message, {}) if field else path not in known
        results.append((f"left out {path}", official and absent, "is listed in vain"))
    return results


def main():
    results = check()
    failed = [(what, detail) for what, ok, detail in results if not ok]
    for what, detail in failed:
        print(f"FAIL {what}: {detail}")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
