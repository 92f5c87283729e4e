#!/usr/bin/env python3
"""Context models of ONNX Runtime: the compiled model is an artefact next to the ONNX file that the
runtime writes, and is loaded instead of being compiled again."""

import hashlib
import os
import shutil
import stat
import sys

import onnx
from onnx import TensorProto, helper

import harness
from harness import FULL, MODELS, model
from ort_sessions import ALL, NAME, Sessions, calls, read, session, start
from test_artefact import HEADER, ROW, head, table
from test_ort_graph import made, whole


def profile_of(artefact):
    """The profile in section meta."""
    offset, length = table(artefact)[0]
    lines = artefact[offset:offset + length].decode().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("profile "))


def as_profile(artefact, old, new):
    """The artefact with another profile in section meta, and correct digests."""
    out = bytearray(artefact)
    offset, length = table(artefact)[0]
    meta = artefact[offset:offset + length]
    assert meta.count(old) == 1 and len(old) == len(new)
    out[offset:offset + length] = meta.replace(old, new)
    out[HEADER + 160:HEADER + ROW] = hashlib.sha256(out[offset:offset + length]).digest()
    out[32:64] = bytes(32)
    out[32:64] = hashlib.sha256(out[:head(out)]).digest()
    return bytes(out)


class Context(Sessions):
    """A context model of llama, written for each test: c.onnx and c.gqac."""

    def setUp(self):
        super().setUp()
        self.path = self.dir / "c.onnx"
        self.side = self.dir / "c.gqac"

    def write(self, source=None, path=None, **options):
        """A session that writes a context model."""
        return session(source or str(model("llama")), settings={
            "ep.context_enable": "1", "ep.context_file_path": str(path or self.path)}, **options)

    def fails(self, words, source=None, **more):
        """The session of the context model cannot be created; the message contains the words."""
        with self.assertRaises(Exception) as caught:
            session(source or str(self.path), **more)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def change(self, **values):
        """Writes the context model with other attributes."""
        changed = onnx.load(self.path)
        node, = changed.graph.node
        for name, value in values.items():
            old, = [a for a in node.attribute if a.name == name]
            node.attribute.remove(old)
            if value is not None:
                node.attribute.append(helper.make_attribute(name, value))
        onnx.save(changed, self.path)


class Written(Context):
    """The written files, and their results."""

    def test_models(self):
        """A context model computes the bits of `gqac run`, whether it was made from a file or from
        bytes."""
        for name in ALL if FULL else ["llama"]:
            expected = [(call, self.expected(name, call)) for call in calls(name)]
            for i, source in enumerate((str(model(name)), whole(name))):
                path = self.dir / f"{name}{i}.onnx"
                for opened in (self.write(source, path), session(str(path))):
                    for call, outputs in expected:
                        self.same(opened, read(call / "inputs"), outputs, f"{name} {call}")

    def test_files(self):
        """The context model has one node and no weights; the artefact is an ordinary one."""
        self.write()
        self.assertEqual(sorted(os.listdir(self.dir)), ["c.gqac", "c.onnx"])
        wrote = onnx.load(self.path)
        node, = wrote.graph.node
        values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.good("inspect", self.side, "--verify")
        profile = profile_of(self.side.read_bytes())
        self.assertEqual((node.op_type, values["source"], values["ep_cache_context"],
                          values["embed_mode"]), ("EPContext", NAME.encode(), b"c.gqac", 0))
        notes = {p.key: p.value for p in wrote.metadata_props}
        self.assertEqual(notes[f"ep_compatibility_info.{NAME}"], profile)
        self.assertEqual(len(wrote.graph.initializer), 0)
        self.assertLess(self.path.stat().st_size, 10000)

    def test_nothing_is_compiled_again(self):
        """Loading needs only the two files, does not write to their folder, and works after they
        are moved."""
        folder = self.dir / "model"
        shutil.copytree(MODELS / "llama", folder)
        self.write(str(folder / "model.onnx"))
        shutil.rmtree(folder)
        moved = self.dir / "moved"
        moved.mkdir()
        for file in (self.path, self.side):
            file.rename(moved / file.name)
        moved.chmod(stat.S_IRUSR | stat.S_IXUSR)
        call = MODELS / "llama" / "ref" / "hybrid"
        expected, feeds = self.expected("llama", call), read(call / "inputs")
        self.same(session(str(moved / "c.onnx")), feeds, expected, call)
        source = (moved / "c.onnx").read_bytes()
        self.same(session(source, settings={"ep.context_file_path": str(moved / "c.onnx")}), feeds,
                  expected, call)
        self.fails(["from memory", "'c.gqac'", "ep.context_file_path"], source)
        moved.chmod(stat.S_IRWXU)

    def test_default_path(self):
        """Without a path, the names follow from that of the model."""
        path = self.dir / "small.name.onnx"
        path.write_bytes(made([helper.make_node("Neg", ["x"], ["y"])],
                              [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])]))
        session(str(path), settings={"ep.context_enable": "1"})
        self.assertEqual(sorted(os.listdir(self.dir)), ["small.name.onnx", "small.name_ctx.gqac",
                                                        "small.name_ctx.onnx"])
        session(str(self.dir / "small.name_ctx.onnx"))

    def test_compiler(self):
        """onnxruntime's ModelCompiler, and the provider's answer about a profile."""
        ort = start()
        settings = ort.SessionOptions()
        devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
        settings.add_provider_for_devices(devices, {"threads": "1"})
        ort.ModelCompiler(settings, str(model("llama"))).compile_to_file(str(self.path))
        session(str(self.path))
        if not hasattr(ort, "get_model_compatibility_for_ep_devices"):
            return
        profile = profile_of(self.side.read_bytes())
        for info, answer in ((profile, "EP_SUPPORTED_OPTIMAL"),
                             (profile.replace("/model/", "/exact/"), "EP_SUPPORTED_OPTIMAL"),
                             (profile.replace("gqac-n", "gqac-n9"), "EP_UNSUPPORTED"),
                             (profile.replace("/cpu/", "/tpu/"), "EP_UNSUPPORTED"),
                             (profile.replace("/model/", "/rough/"), "EP_UNSUPPORTED"),
                             (profile + "x", "EP_UNSUPPORTED"),
                             ("another provider's", "EP_NOT_APPLICABLE")):
            found = ort.get_model_compatibility_for_ep_devices(devices, info)
            self.assertEqual(str(found).rsplit(".", maxsplit=1)[-1], answer, info)


class Truncated(Context):
    """The artefact is truncated while a session has it open."""

    def test_run(self):
        """A call fails, and the process goes on; when the bytes are back, so are the results."""
        self.write()
        opened = session(str(self.path))
        call = calls("llama")[0]
        outputs, kept = self.expected("llama", call), self.side.read_bytes()
        self.same(opened, read(call / "inputs"), outputs, call)
        os.truncate(self.side, 4096)
        with self.assertRaisesRegex(Exception, "a mapped file was truncated"):
            self.same(opened, read(call / "inputs"), outputs, call)
        self.side.write_bytes(kept)
        self.same(opened, read(call / "inputs"), outputs, call)


class Refused(Context):
    """Damaged and foreign files, and contradictory settings: errors of gqac."""

    def test_artefact(self):
        self.write()
        whole_file = self.side.read_bytes()
        for cut in (len(whole_file) - 1, len(whole_file) // 2, 300, 64, 63, 1, 0):
            self.side.write_bytes(whole_file[:cut])
            self.fails(["gqac: ", "the artefact is damaged or foreign", str(self.side)])
        for at in (0, 9, 40, 70, 700):
            self.side.write_bytes(whole_file[:at] + bytes([whole_file[at] ^ 1]) +
                                  whole_file[at + 1:])
            self.fails(["gqac: ", str(self.side)])
        self.side.write_bytes(as_profile(whole_file, b"gqac-n1/cpu", b"gqac-n0/cpu"))
        self.fails(["gqac: ", "compiled with the numerics profile gqac-n0/cpu/model",
                    "compile the model again"])
        self.side.unlink()
        self.fails(["gqac: ", "cannot open", "c.gqac"])
        self.side.mkdir()
        self.fails(["gqac: ", "c.gqac"])
        self.side.rmdir()
        self.write(str(model("mistral")), self.dir / "other.onnx")
        shutil.copy(self.dir / "other.gqac", self.side)
        self.fails(["gqac: ", "compiled from another model", "write both files again"])
        self.side.write_bytes(whole_file)
        session(str(self.path))

    def test_options(self):
        """The options of the session must be those of the artefact."""
        self.write(math="exact")
        self.fails(["compiled for --math exact, not model"])
        session(str(self.path), math="exact")
        self.fails(["compiled for --target cpu, not ref"], target="ref", math="exact")

    def test_node(self):
        """An EPContext node with anything that the provider does not write."""
        self.write()
        kept = self.path.read_bytes()
        for name in ("../c.gqac", "/etc/passwd", "x/c.gqac", "..", ".", ""):
            self.change(ep_cache_context=name)
            self.fails([f"gqac: the context model names the artefact '{name}'", "without '/'"])
            self.path.write_bytes(kept)
        self.change(ep_cache_context=b"c.gqac\0x")
        self.fails(["attribute 'ep_cache_context'", "zero byte"])
        self.path.write_bytes(kept)
        for values in ({"embed_mode": 1}, {"ep_cache_context": None}, {"notes": None}):
            self.change(**values)
            self.fails([f"gqac: the EPContext node was not written by {NAME}"])
            self.path.write_bytes(kept)
        self.change(notes="0" * 64)
        self.fails(["compiled from another model"])
        self.path.write_bytes(kept)
        self.change(source="AnotherExecutionProvider")
        with self.assertRaises(Exception) as caught:
            session(str(self.path))
        self.assertNotIn("gqac: ", str(caught.exception))

    def test_types(self):
        """A context model whose outputs have other types than those of the artefact."""
        self.write()
        changed = onnx.load(self.path)
        changed.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
        onnx.save(changed, self.path)
        self.fails(["gqac: the output 'logits' is f32", "f16 in the session"])

    def test_settings(self):
        self.write()
        enable = {"ep.context_enable": "1", "ep.context_file_path": str(self.dir / "d.onnx")}
        self.fails(["ep.context_enable is 1, but the model is a context model"], settings=enable)
        source = str(model("llama"))
        self.fails(["ep.context_embed_mode", "a file beside the context model"], source,
                   settings=enable | {"ep.context_embed_mode": "1"})
        self.fails(["ep.context_embed_mode", "'2'", "0 or 1"], source,
                   settings=enable | {"ep.context_embed_mode": "2"})
        (self.dir / "d.gqac").write_text("mine")
        self.fails(["gqac: the file", "d.gqac exists", "remove it"], source, settings=enable)
        self.assertEqual((self.dir / "d.gqac").read_text(), "mine")
        self.fails(["gqac: ", "cannot write", "none/d.gqac"], source, settings=enable | {
            "ep.context_file_path": str(self.dir / "none" / "d.onnx")})
        self.assertEqual(sorted(os.listdir(self.dir)), ["c.gqac", "c.onnx", "d.gqac"])


if __name__ == "__main__":
    sys.exit(harness.main(loads_library=True))
