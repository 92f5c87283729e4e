#!/usr/bin/env python3
"""The CUDA driver of target gpu, without a device.

    python test/python/test_cuda.py

The libraries of test/cuda replace NVIDIA's: a driver whose launches compute nothing, and a compiler
that keeps its input text. Each call of the driver fails in turn. The kept text is compiled by the
real NVRTC, if it is installed, with the options from gqac; registers, spills and shared memory of
each kernel are checked in the compiler's report. The kernels of all models are compiled for three
architectures; those for particular sizes of heads and for --math bf16 only for one, or, in the long
tier, for all.
"""

import ctypes
import ctypes.util
import functools
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import harness
from harness import FULL, MODELS, Case
from test_gpu import layer

FAKE = os.environ.get("GQAC_FAKE_CUDA", str(harness.GQAC.parent / "test" / "fake_cuda"))
NVRTC = ["libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so",
         *map(str, Path("/usr/local").glob("cuda-*/lib64/libnvrtc.so.1[23]")),
         *(str(p) for folder in sys.path if folder
           for p in Path(folder).glob("nvidia/*/lib/libnvrtc.so.1[23]"))]
ARCHITECTURES = ("sm_80", "sm_90", "sm_100") if FULL else ("sm_90",)
HOT = re.compile("attend|product|nbits|int8|moe|heads|tensor")  # these must not spill
ALONE = re.compile("tensor_(few|tile)_|attend_(tensor|prompt)")  # a group may use all registers
HEADER = 72  # bytes before the code of an entry: magic, key, size at 48, and hash at 56


class Hash(ctypes.Structure):
    """XXH128_hash_t."""

    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def hash_of(code):
    """XXH3 of 128 bits, in canonical order."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_128bits.restype = Hash
    found = library.XXH3_128bits(code, ctypes.c_size_t(len(code)))
    return found.high.to_bytes(8, "big") + found.low.to_bytes(8, "big")


def real_nvrtc():
    """The library, or None."""
    for name in NVRTC:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


@functools.cache
def compile_once(text, options):
    """The output of NVRTC for a text, compiled once for all tests: its code, report, PTX, and the
    bytes of the machine code."""
    rtc, program = real_nvrtc(), ctypes.c_void_p()
    assert rtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"gqac.cu", 0, None, None) == 0
    words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    code, texts, size = rtc.nvrtcCompileProgram(program, len(options), words), [], ctypes.c_size_t()
    for part in ("ProgramLog", "PTX"):
        getattr(rtc, f"nvrtcGet{part}Size")(program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value + 1)
        getattr(rtc, f"nvrtcGet{part}")(program, data)
        texts.append(data.value.decode())
    rtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    rtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code, *texts, size.value


class Cuda(Case):
    """Runs gqac with only the libraries of test/cuda."""

    def setUp(self):
        super().setUp()
        (self.dir / "fake").mkdir()
        (self.dir / "ids.txt").write_text("1 2 3 4 5")

    def cuda(self, *words, **env):
        """A finished run, and the counts of the driver in it."""
        log = self.dir / "log"
        log.unlink(missing_ok=True)
        done = harness.gqac(*words, env={
            "LD_LIBRARY_PATH": FAKE, "OCL_ICD_VENDORS": str(self.dir), "OCL_ICD_FILENAMES": "",
            "FAKE_NVRTC": str(self.dir / "fake"), "FAKE_CUDA_LOG": str(log), **env})
        self.assertGreaterEqual(done.code, 0, done)
        pairs = [line.partition(" ") for line in log.read_text().splitlines()]
        counted = {key: value for key, _, value in pairs}
        counted["kernels"] = [value for key, _, value in pairs if key == "kernel"]
        self.assertEqual([counted[k] for k in ("left", "current", "bad")], ["0"] * 3,
                         f"{done}\n{counted}")
        return done, counted

    def score(self, *flags, **env):
        """Steps of two and three tokens."""
        return self.cuda("score", MODELS / "llama", "--target", "gpu", "--ids",
                         self.dir / "ids.txt", "--splits", "2", *flags, **env)

    def builds(self):
        """The number of compilations so far."""
        file = self.dir / "fake" / "compiled"
        return len(file.read_text().split()) if file.exists() else 0


class Driver(Cuda):
    """Successful calls, and failing ones."""

    def test_devices(self):
        """The list contains the device; without a compiler it names the missing package."""
        row, = self.cuda("devices", "--format", "json")[0].json()
        self.assertEqual((row["driver"], row["name"], row["version"], row["usable"]),
                         ("cuda", "Fake 0", "CUDA 13.0", True))
        self.assertEqual(row["memory"], 1 << 30)

    @unittest.skipIf(real_nvrtc(), "a real libnvrtc takes the place of the missing one")
    def test_no_compiler(self):
        """A device that cannot be used, and the package to install."""
        (self.dir / "libcuda.so.1").symlink_to(Path(FAKE) / "libcuda.so.1")
        row, = self.cuda("devices", "--format", "json", LD_LIBRARY_PATH=str(self.dir))[0].json()
        self.assertFalse(row["usable"])
        self.assertIn("cuda-nvrtc", row["lacks"])

    def test_run(self):
        """Launches in every step, and one compilation."""
        done, counted = self.score()
        self.check(done, 0)
        self.assertGreater(int(counted["launches"]), 10)
        self.assertEqual(self.builds(), 1)

    def test_waits(self):
        """A decode step waits for the device once, when it reads the next id and the new rows."""
        syncs = []
        for n in "3", "8":
            done, counted = self.cuda("generate", MODELS / "llama", "--target", "gpu", "--ids",
                                      self.dir / "ids.txt", "-n", n, "-q")
            self.check(done, 0)
            syncs.append(int(counted["syncs"]))
        self.assertEqual(syncs[1] - syncs[0], 5)

    def test_graphs(self):
        """Decode steps are graphs from the second one on, with the same launches as without
        graphs."""
        counts = {}
        for use in "on", "off":
            done, counts[use] = self.cuda("generate", MODELS / "llama", "--target", "gpu", "--ids",
                                          self.dir / "ids.txt", "-n", "12", "-q",
                                          GQAC_CUDA_GRAPHS=use)
            self.check(done, 0)
        self.assertEqual(counts["on"]["launches"], counts["off"]["launches"])
        self.assertGreaterEqual(int(counts["on"]["graphs"]), 9)
        self.assertGreater(int(counts["on"]["updates"]), 9)  # the number of keys
        self.assertEqual(counts["off"]["graphs"], "0")

    def test_compile_failure(self):
        """The log of the compiler is in the message."""
        done, _ = self.score(FAKE_NVRTC_FAIL="1")
        self.check(done, 4, "nvrtc", "gqac.cu(1): error: fake")

    def each_failure(self, error, step):
        """Runs in which one call fails with the error: (call, code, message)."""
        plain, counted = self.score()
        calls, failures = int(counted["calls"]), 0
        self.assertGreater(calls, 50)
        for n in range(1, calls + 1, step):
            done, counted = self.score(FAKE_CUDA_FAIL=str(n), FAKE_CUDA_ERROR=str(error))
            if not counted["failed"]:  # fewer calls: addresses decide which graphs are reused
                self.assertGreater(n, calls - 20)
                continue
            with self.subTest(n=n, call=counted["failed"]):
                if done.code == 0 and error == 2:  # other memory was found
                    self.assertEqual(done.out, plain.out)
                    continue
                failures += 1
                self.assertEqual(done.out, "")
                yield counted["failed"], done
        self.assertGreater(failures, 50 // step)

    def test_no_memory(self):
        """Every call fails in turn: the device is absent, or exit 4 with the name of the driver."""
        for call, done in self.each_failure(2, 1):
            absent = call in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount")
            self.check(done, 77 if absent else 4, "CUDA_ERROR_OUT_OF_MEMORY")

    def test_lost_device(self):
        """After an illegal address all calls fail; the message names the first."""
        for call, done in self.each_failure(700, 1 if FULL else 3):
            absent = call in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount")
            self.check(done, 77 if absent else 4, "CUDA_ERROR_ILLEGAL_ADDRESS")

    def test_no_device(self):
        """The driver has no device, or has lost it: absent."""
        done, _ = self.score(FAKE_CUDA_FAIL="1", FAKE_CUDA_ERROR="100")
        self.check(done, 77, "CUDA_ERROR_NO_DEVICE")


class Kept(Cuda):
    """Compiled kernels on disk, with either driver."""

    def setUp(self):
        super().setUp()
        self.folder = self.dir / "deep" / "cache"

    def kept(self, expected, **env):
        """A run that must compile, or must not."""
        before = self.builds()
        done, _ = self.score(**{"GQAC_CACHE": str(self.folder), **env})
        self.check(done, 0)
        self.assertEqual(self.builds() - before, expected)

    def entry(self):
        """The only file of the folder."""
        file, = self.folder.iterdir()
        return file

    def test_second_start(self):
        """The entry is used, and is also found below the usual folders; "off" creates none."""
        self.kept(1)
        self.kept(0)
        self.kept(1, GQAC_CACHE="off", HOME=str(self.dir))
        self.assertFalse((self.dir / ".cache").exists())
        home = {"HOME": str(self.dir), "XDG_CACHE_HOME": ""}
        for count in (1, 0):
            done, _ = self.usual(home)
            self.check(done, 0)
            self.assertEqual(self.builds(), 3)
        self.assertEqual(len(list((self.dir / ".cache" / "gqac").iterdir())), 1)
        self.check(self.usual({"XDG_CACHE_HOME": str(self.dir / "xdg")})[0], 0)
        self.assertEqual(len(list((self.dir / "xdg" / "gqac").iterdir())), 1)

    def test_notice(self):
        """The first start reports on stderr, once, that it compiles; -q and later starts do not."""
        cache = {"GQAC_CACHE": str(self.folder)}
        path = self.dir / "large.gq"  # such heads have their own kernels: two compilations
        path.write_text(layer("f32", 96, 4, 2))
        words = ("score", path, "--target", "gpu", "--ids", self.dir / "ids.txt")
        self.assertEqual(self.cuda(*words, "-q", **cache)[0].err, "")
        self.assertEqual(self.builds(), 2)
        self.assertEqual(self.cuda(*words, **cache)[0].err, "")
        for entry in self.folder.iterdir():
            entry.unlink()
        self.assertEqual(self.cuda(*words, **cache)[0].err, "gqac: compiling kernels for Fake 0, "
                         "once; this can take a minute\n")
        self.assertEqual(self.cuda(*words, GQAC_CACHE="off")[0].err, "gqac: compiling kernels for "
                         "Fake 0, at each start, because they are not kept (GQAC_CACHE)\n")

    def usual(self, env):
        """A run without GQAC_CACHE."""
        own = harness.environment
        try:
            harness.environment = lambda extra: {
                k: v for k, v in own(extra).items() if k != "GQAC_CACHE"}
            return self.score(**env)
        finally:
            harness.environment = own

    def test_damaged(self):
        """Each field, the code and the length: rebuilt, and used again."""
        self.kept(1)
        whole = self.entry().read_bytes()
        changed = [whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:]
                   for at in (0, 15, 16, 47, 48, 52, 55, 56, 71, 72, len(whole) - 1)]
        cut = [whole[:n] for n in (0, 1, 40, 71, 72, len(whole) - 1)]
        sized = [whole[:48] + n.to_bytes(8, "little") + whole[56:]
                 for n in (0, 1, 1 << 20, 1 << 40, (1 << 64) - 1, (1 << 64) - 72)]
        for data in (*changed, *cut, *sized, whole + b"x", b"\0" * 4096):
            self.entry().write_bytes(data)
            self.kept(1)
            self.assertEqual(self.entry().read_bytes(), whole)
        self.kept(0)

    def test_not_a_file(self):
        """A folder, link or pipe with the name of the entry: harmless."""
        self.kept(1)
        file = self.entry()
        whole = file.read_bytes()
        (self.dir / "target").write_bytes(whole)
        for make in (file.mkdir, lambda: file.symlink_to(self.dir / "target"),
                     lambda: os.mkfifo(file)):
            file.unlink()
            make()
            self.kept(1)
            if file.is_dir():
                file.rmdir()
                file.write_bytes(b"")
        self.assertEqual((self.dir / "target").read_bytes(), whole)

    def test_code_that_the_driver_refuses(self):
        """A complete entry whose code cannot be loaded is compiled again."""
        self.kept(1)
        whole = self.entry().read_bytes()
        self.assertEqual(whole[56:HEADER], hash_of(whole[HEADER:]))
        code = b"X" + whole[HEADER + 1:]
        self.entry().write_bytes(whole[:56] + hash_of(code) + code)
        self.kept(1)
        self.assertEqual(self.entry().read_bytes(), whole)

    def test_key(self):
        """A second device or text has a separate entry."""
        self.kept(1)
        self.kept(1, FAKE_CUDA_NAME="Other")
        self.assertEqual(len(list(self.folder.iterdir())), 2)
        self.kept(0)

    def test_not_writable(self):
        """A folder that cannot be created or written is not an error."""
        (self.dir / "file").write_text("")
        self.kept(1, GQAC_CACHE=str(self.dir / "file"))
        self.kept(1, GQAC_CACHE=str(self.dir / "file" / "below"))
        self.kept(1, GQAC_CACHE="/proc/gqac")
        self.kept(1, GQAC_CACHE="/" + "x" * 5000)
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o500)
        self.kept(1)
        self.folder.chmod(0o700)

    def test_processes(self):
        """Eight processes at once: each succeeds, and one complete entry is left."""
        words = [str(harness.GQAC), "score", str(MODELS / "llama"), "--target", "gpu", "--ids",
                 str(self.dir / "ids.txt")]
        env = harness.environment({"LD_LIBRARY_PATH": FAKE, "GQAC_CACHE": str(self.folder)})
        children = [subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL) for _ in range(8)]
        self.assertEqual([child.wait(60) for child in children], [0] * 8)
        self.entry()
        # the key does not depend on what the tests set
        self.kept(0)

    @unittest.skipUnless(harness.has_device(), "there is no OpenCL device")
    def test_opencl(self):
        """The same bits with a kept program; a damaged entry is rebuilt."""
        def run():
            out = self.dir / "y.npy"
            self.good("score", MODELS / "llama", "--target", "gpu", "--ids", self.dir / "ids.txt",
                      "--logits", out, env={"GQAC_CACHE": str(self.folder)})
            return out.read_bytes()
        first, file = run(), self.entry()
        whole, number = file.read_bytes(), file.stat().st_ino
        self.assertEqual(run(), first)
        self.assertEqual(file.stat().st_ino, number)
        for at in (3, 20, 50, 60, HEADER, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:at])
            self.assertEqual(run(), first)
            self.assertGreaterEqual(self.entry().stat().st_size, len(whole) // 2)
        code = bytes(len(whole) - HEADER)
        file.write_bytes(whole[:56] + hash_of(code) + code)
        self.assertEqual(run(), first)
        self.assertNotEqual(file.read_bytes()[HEADER:], code)


@unittest.skipUnless(real_nvrtc(), "there is no libnvrtc; the wheel nvidia-cuda-nvrtc has one")
class Compiled(Cuda):
    """The text of the kernels in NVIDIA's compiler."""

    def compiled(self, text, given, arch):
        """The compiler's report on a text, and its PTX; fails if the compiler produces no code."""
        code, log, ptx, size = compile_once(text, (f"-arch={arch}", *given[1:], "--ptxas-options=-v"))
        self.assertEqual(code, 0, log)
        self.assertGreater(size, 1000)
        return log, ptx

    def test_resources(self):
        """Each kernel that gqac requests exists, fits, and does not spill if that matters."""
        names = self.score()[1]["kernels"]
        text = (self.dir / "fake" / "gqac.cu").read_text()
        given = (self.dir / "fake" / "options").read_text().split()
        self.assertEqual(given[0], "-arch=sm_90")
        self.assertIn("--fmad=false", given)
        self.assertNotIn("fast", " ".join(given))
        self.assertIn("attend_many", names)
        for arch in ARCHITECTURES:
            self.check_kernels(text, given, arch, names)

    def check_kernels(self, text, given, arch, names):
        """The kernels of a text exist, fit, and do not spill if that matters."""
        log = self.compiled(text, given, arch)[0]
        self.assertNotIn("warning", log)
        entries = dict(re.findall(r"entry function '(\w+)' for '\w+'(.*?)(?=entry function|\Z)",
                                  log, re.S))
        for name in names:
            with self.subTest(arch=arch, kernel=name):
                self.assertIn(name, entries)
                spills = [int(n) for n in re.findall(r"(\d+) bytes spill", entries[name])]
                registers = int(re.search(r"Used (\d+) registers", entries[name])[1])
                shared = re.search(r"(\d+) bytes smem", entries[name])
                self.assertEqual(len(spills), 2)
                if HOT.search(name):
                    self.assertEqual(spills, [0, 0])
                self.assertLessEqual(registers, 255 if ALONE.match(name) else 128)  # 512 items fit
                self.assertLessEqual(int(shared[1]) if shared else 0, 48 << 10)

    def test_sizes_of_heads(self):
        """Heads of frequent sizes, and very large ones, have their own kernels: the text that is
        compiled last."""
        names = ["attend_few", "attend_many"]
        types = {"f32": 0, "f16": 1, "bf16": 2, "quantised": 3, "quantised4": 4}
        rows = "contiguous"
        more = (("f16", 64, rows), ("f32", 256, rows), ("f16", 64, "quantised4"),
                ("f16", 192, "quantised4"), ("bf16", 128, "quantised"), ("bf16", 128, "quantised4"),
                ("f32", 256, "quantised"), ("f32", 256, "quantised4")) * FULL
        for dtype, size, kind in (("bf16", 128, rows), ("f32", 72, rows), *more):
            path = self.dir / "layer.gq"
            path.write_text(layer(dtype, size, 4, 2))
            counted = self.cuda("score", path, "--target", "gpu", "--ids", self.dir / "ids.txt",
                                "--splits", "2", "--kv", kind)[1]
            self.assertEqual(counted["kernels"][-2:], names)
            text = (self.dir / "fake" / "gqac.cu").read_text()
            self.assertIn(f"#define ATTEND_SIZE {256 if size == 72 else size}\n", text)
            type_of = types.get(kind, types[dtype])
            self.assertEqual(f"#define ATTEND_TYPE {type_of}\n" in text, size != 72)
            given = (self.dir / "fake" / "options").read_text().split()
            for arch in ARCHITECTURES:
                self.check_kernels(text, given, arch, names)

    def text_of(self, kernel):
        """The text of the last run that has this kernel."""
        texts = [path.read_text() for path in (self.dir / "fake").glob("gqac-*.cu")]
        text, = (text for text in texts if f"void {kernel}(" in text)
        return text

    def test_tensor_cores(self):
        """Kernels for --math bf16, which use tensor cores: a text of their own."""
        names = [name for name in self.score("--math", "bf16")[1]["kernels"]
                 if name.startswith("tensor_")]
        self.assertEqual(len(names), 14)
        given = (self.dir / "fake" / "options").read_text().split()
        for arch in ARCHITECTURES:
            self.check_kernels(self.text_of("tensor_pack"), given, arch, names)

    def tensor_attention(self, dtype, size, kind):
        """The text of attention for --math bf16, heads of this size and rows of this type."""
        path = self.dir / "layer.gq"
        path.write_text(layer(dtype, size, 4, 2))
        counted = self.cuda("score", path, "--target", "gpu", "--math", "bf16", "--ids",
                            self.dir / "ids.txt", "--splits", "2", "--kv", kind)[1]
        self.assertEqual(counted["kernels"][-1], "attend_tensor")
        return (self.dir / "fake" / "gqac.cu").read_text()

    def test_tensor_attention(self):
        """Attention for --math bf16: a text for each size of heads and type of rows."""
        more = (("f16", 64, "contiguous"), ("f32", 128, "contiguous"), ("f16", 128, "quantised"),
                ("bf16", 192, "contiguous"), ("f16", 256, "contiguous"), ("f32", 256, "contiguous"),
                ("f16", 256, "quantised4")) * FULL
        for dtype, size, kind in (("f16", 128, "contiguous"), *more):
            text = self.tensor_attention(dtype, size, kind)
            self.assertIn(f"#define ATTEND_SIZE {size}\n", text)
            given = (self.dir / "fake" / "options").read_text().split()
            names = ["attend_tensor"] + ["attend_prepare", "attend_prompt"] * (size <= 128)
            for arch in ARCHITECTURES:
                self.check_kernels(text, given, arch, names)

    def test_contract(self):
        """The code contains nothing that is fused, flushed or approximated."""
        self.score()
        self.check_contract(self.text_of("product_add"), "fma.rn.f32")
        self.score("--math", "bf16")
        for text in self.text_of("tensor_pack"), self.tensor_attention("f16", 128, "contiguous"):
            self.check_contract(text, "mma.sync.aligned.m16n8k16")

    def check_contract(self, text, product):
        """The same for a text whose code contains that instruction."""
        given = (self.dir / "fake" / "options").read_text().split()
        ptx = self.compiled(text, given, "sm_90")[1]
        found = re.findall(r"\b(?:(?:add|sub|mul|mad)\.f32|\w+\.ftz|\S*\.approx|div\.full)\S*", ptx)
        self.assertEqual(found, [])
        self.assertIn(product, ptx)


if __name__ == "__main__":
    sys.exit(harness.main())
