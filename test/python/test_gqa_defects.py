#!/usr/bin/env python3
"""Seeded defects of GroupQueryAttention: the C suites must detect each.

    python test/python/test_gqa_defects.py        (GQAC_TEST_FULL=1 for all of them)

A defect is a replacement in one source. That source is compiled as the build compiles it for the
hostile library, and its object precedes the library when the test program is linked again. The
default tier runs some of the defects, different ones on different days. An undetectable defect is
not listed: if the sink is omitted from the maximum, nothing changes before fp32 would overflow, and
then the rest is below the smallest normal number anyway.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import harness
from harness import FULL

BUILD = harness.GQAC.parent
SOURCE = harness.ROOT
SAMPLE = 7  # number of defects in the default tier
CASES = {"window cache: bias from the first column": "900",
         "window cache: positions of its own": "900"}  # others: 160
ORACLE, BITS = "test_ops_gqa", "test_ops_gqa_bits"

# name: (source, text in it, its replacement, program, part of the title of its case)
DEFECTS = {
    "mask: not oneself":
        ("attention_shared", "causal ? past + s + 1 :", "causal ? past + s :", ORACLE, "one-hot"),
    "mask: the next token":
        ("attention_shared", "return end;", "return end < past + fresh ? end + 1 : end;", ORACLE,
         "one-hot"),
    "mask: causal = 0 sees the past only":
        ("attention_shared", ": past + fresh;", ": past + s + 1;", ORACLE, "random"),
    "window one wider":
        ("attention_shared", "past + s + 1 - window", "past + s - window", ORACLE, "one-hot"),
    "window one narrower":
        ("attention_shared", "past + s + 1 - window", "past + s + 2 - window", ORACLE, "random"),
    "window without the past":
        ("attention_shared", "past + s + 1 - window", "s + 1 - window", ORACLE, "random"),
    "scores: heads dealt out in turn":
        ("attention_scores", "int64_t h = g * group + i / c->rows,",
         "int64_t h = g + i / c->rows * c->kv_heads,", ORACLE, "random"),
    "weigh: heads dealt out in turn":
        ("weigh", "int64_t h = u->g * group + i / u->n_rows,",
         "int64_t h = u->g + i / u->n_rows * w->kv_heads,", ORACLE, "random"),
    "scores: scaled twice":
        ("attention_scores", "out[from + i] = scale * acc[i];",
         "out[from + i] = scale * scale * acc[i];", ORACLE, "random"),
    "scores: columns before the window are kept":
        ("attention_scores", "clip(c->lo[b * c->rows + s] - first, 0, n)", "0", ORACLE, "random"),
    "weigh: keys that are not seen, times zero":
        ("weigh", "if (lo <= first + i && first + i < hi)", "if (first + i < u_all(lo, hi))", BITS,
         "NaN"),
    "weigh: the last key is left out":
        ("weigh", "if (lo <= first + i && first + i < hi)",
         "if (lo <= first + i && first + i + 1 < hi)", ORACLE, "random"),
    "softcap after the bias":
        ("attention", "    if (ir_attr_float(node, \"softcap\") > 0)\n",
         "    if (in[BIAS])\n        s = OP_BUILD(b, \"add_bias\", .in = {s, in[BIAS], lo, hi});\n"
         "    in[BIAS] = NULL;\n    if (ir_attr_float(node, \"softcap\") > 0)\n", ORACLE, "random"),
    "bias of the first head for all":
        ("add_bias", "h * a->stride[1]", "0 * h", ORACLE, "random"),
    "bias scaled":
        ("add_bias", "y[j] = s[j] + y[j];", "y[j] = s[j] + 0.99f * y[j];", ORACLE, "random"),
    "sink left out of the denominator":
        ("softmax_sink", "        sum += gqn_expf(*sink - m);", "        sum += 0;", ORACLE,
         "random"),
    "sink not moved by the maximum":
        ("softmax_sink", "gqn_expf(*sink - m)", "gqn_expf(*sink)", ORACLE, "random"),
    "sink of the first head for all":
        ("softmax_sink", "op_get_f32(c->sink, h)", "op_get_f32(c->sink, 0 * h)", ORACLE, "random"),
    "rotary one position late":
        ("rotary", "return r->past[b] + s;", "return r->past[b] + s + (r->positions > 1);", ORACLE,
         "random"),
    "rotary from zero in every call":
        ("rotary", "return r->past[b] + s;", "return s;", BITS, "split"),
    "rotary: pairs the other way":
        ("rotary", "int64_t first = near ? 2 * i : i, second = near ? 2 * i + 1 : i + half;",
         "int64_t first = near ? i : 2 * i, second = near ? i + half : 2 * i + 1;", ORACLE,
         "random"),
    "cache: the last new row is stale":
        ("concat_past_present", "(size_t)c->rows.new_len[b] * row);",
         "(size_t)(c->rows.new_len[b] - 1) * row);", ORACLE, "random"),
    "cache: new rows one too far":
        ("concat_past_present", "memcpy(present_row(&c->rows, b, head, 0),",
         "memcpy(present_row(&c->rows, b, head, c->rows.past_len[b] + c->rows.new_len[b] < "
         "c->rows.capacity ? 1 : 0),", ORACLE, "random"),
    "cache: pad rows are written":
        ("concat_past_present", "(size_t)c->rows.new_len[b] * row);",
         "(size_t)(c->rows.new_rows <= c->rows.capacity - c->rows.past_len[b]"
         " ? c->rows.new_rows : c->rows.new_len[b]) * row);", ORACLE, "random"),
    "lengths: short rows of a first prompt":
        ("seqlens_to_past", "        *fresh = t;\n", "        *fresh = l->chunk;\n", ORACLE,
         "random"),
    "lengths: ids of a first prompt one by one":
        ("seqlens_to_past", "bool first = l->chunk == l->total;", "bool first = false;", ORACLE,
         "random"),
    "lengths: the capacity is not a first prompt":
        ("seqlens_to_past", "(value == 0 || value == l->capacity)", "value == 0", ORACLE,
         "conventions"),
    "codes truncated":
        ("kv_quantise", "gqn_quantise(y, lo, hi)", "gqn_f32_to_int(y, lo, hi)", ORACLE, "random"),
    "codes by division":
        ("kv_quantise", "x * gqn_div(1.0f, scale == 0.0f ? 1.0f : scale)",
         "gqn_div(x, scale == 0.0f ? 1.0f : scale)", ORACLE, "codes"),
    "codes: NaN is zero":
        ("kv_quantise", "y != y ? hi :", "y != y ? 0 :", ORACLE, "codes"),
    "codes: symmetric clamp":
        ("kv_quantise", "-128, 127)", "-127, 127)", ORACLE, "random"),
    "codes: scale 0 is 0":
        ("kv_quantise", "scale == 0.0f ? 1.0f : scale", "scale", ORACLE, "codes"),
    "codes: nibbles swapped both ways":
        ("kv_quantise", "(low + 8) | (high + 8) << 4", "(high + 8) | (low + 8) << 4", ORACLE,
         "random"),
    "codes: the first head's scales":
        ("kv_dequantise", "head * step * q->size", "0 * head * step * q->size", ORACLE, "random"),
    "codes: values by the keys' scales":
        ("group_query_attention", "g->in[past - GQA_PAST_KEY + GQA_K_SCALE]", "g->in[GQA_K_SCALE]", ORACLE,
         "random"),
    "codes: the current tokens are read uncoded":
        ("group_query_attention",
         ("*old = g->in[past], *rows;", "return g->bits ? decode("),
         ("*old = g->in[past], *rows, *raw = fresh;",
          "if (g->bits && !g->windowed)\n        return OP_BUILD(g->b, "
          "\"concat_past_present\", .in = {decode(g, old, past), "
          "op_build_cast(g->b, raw, GQAC_F32), g->past_len, g->new_len, g->in[GQA_TOTAL]});\n"
          "    return g->bits ? decode("), BITS, "split"),
    "window cache: one row too many goes":
        ("attention_shared", "int64_t gap = capacity - window + 1;",
         "int64_t gap = capacity - window + 2;", ORACLE, "random"),
    "window cache: bias from the first column":
        ("window_bias", "(from * (size_t)s->columns + (size_t)start) * s->width",
         "(from * (size_t)s->columns + 0 * (size_t)start) * s->width", ORACLE, "random"),
    "window cache: positions of its own":
        ("group_query_attention", "x, g->in[GQA_COS], g->in[GQA_SIN], g->past_len,",
         "x, g->in[GQA_COS], g->in[GQA_SIN], g->key_past,", ORACLE, "random"),
    "window cache: the oldest rows stay":
        ("window_present", "int64_t first = t - held -", "int64_t first = 0 * t -", BITS, "split"),
}
# Additional parts of a replacement.
PRELUDE = {"weigh: keys that are not seen, times zero":
           "#include <stdint.h>\nstatic int64_t u_all(int64_t lo, int64_t hi) "
           "{ return lo < hi ? INT64_MAX : 0; }\n"}


def compile_words(stem):
    """The compiler command of the build for a source of src/ops in the hostile library."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if (entry["file"].endswith(f"/src/ops/{stem}.c")
                and "gqac_hostile" in entry.get("output", entry["command"])):
            words = shlex.split(entry["command"])
            return words, entry["directory"], entry["file"]
    raise AssertionError(f"the build does not compile {stem}.c for the hostile library")


def link_words(program):
    """The linker command of the build for a test program."""
    done = subprocess.run(["ninja", "-t", "commands", program], cwd=BUILD, check=True,
                          stdout=subprocess.PIPE, text=True)
    line = [x for x in done.stdout.splitlines() if f"-o test/{program}" in x][-1]
    return [w for w in shlex.split(line) if w not in (":", "&&")]


def with_header(text, part):
    """A source that contains `part`; if only its header does, with the header inserted for its
    #include."""
    for line in re.findall(r'#include "ops/.*"\n', text):
        if part in text:
            break
        header = with_header((SOURCE / "src" / line.split('"')[1]).read_text(), part)
        text = text.replace(line, header) if part in header else text
    return text


def run(words, **more):
    """A finished child and its output."""
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, errors="replace", timeout=600, check=False,
                          **more)


class Defects(unittest.TestCase):
    """One case for each defect of this run, and one for the sources as they are."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gqac-defect-")
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def compiled(self, stem, text):
        """The object of a changed source."""
        words, cwd, file = compile_words(stem)
        changed, result = self.dir / f"{stem}.c", self.dir / f"{stem}.o"
        changed.write_text(text)
        kept, is_value = [], False  # of a removed flag
        for word in words:
            goes = is_value or word in ("-MD", "-c", file) or word.startswith("-Werror")
            is_value = word in ("-MT", "-MF", "-o")
            if not goes and not is_value:
                kept.append(word)
        done = run([*kept, "-w", "-O1", "-c", str(changed), "-o", str(result)], cwd=cwd)
        self.assertEqual(done.returncode, 0, done.stdout)
        return result

    def suite(self, program, title, cases="160", extra=()):
        """Links a test program with these objects first and runs one of its cases."""
        words = link_words(program)
        at = words.index("-o")
        words[at + 1] = str(self.dir / program)
        words[at:at] = [str(o) for o in extra]
        done = run(words, cwd=BUILD)
        self.assertEqual(done.returncode, 0, done.stdout)
        env = {**harness.environment(), "GQAC_TEST_CASES": cases}
        return run([str(self.dir / program), title], env=env)

    def source_with(self, name):
        """The source of an op with this defect."""
        stem, old, new = DEFECTS[name][:3]
        text = (SOURCE / "src" / "ops" / f"{stem}.c").read_text()
        for before, after in zip(*((old,), (new,)) if isinstance(old, str) else (old, new)):
            text = with_header(text, before)
            self.assertTrue(before in text, f"{stem}.c no longer contains: {before}")
            text = text.replace(before, after)
        return PRELUDE.get(name, "") + text

    def check_defect(self, name):
        """The suite fails, and its last line reports the failure."""
        stem, _, _, program, title = DEFECTS[name]
        result = self.compiled(stem, self.source_with(name))
        done = self.suite(program, title, CASES.get(name, "160"), [result])
        self.assertEqual(done.returncode, 1, done.stdout[-2000:])
        self.assertRegex(done.stdout.strip().splitlines()[-1], r"^\d+ passed, [1-9]\d* failed$")

    def test_all_defects_fit(self):
        """Every defect, also those of other days, is a change of the present source."""
        for name in DEFECTS:
            with self.subTest(defect=name):
                self.source_with(name)

    def test_sources_as_they_are(self):
        """The same cases pass without a defect."""
        for program, title in sorted({d[3:] for d in DEFECTS.values()}):
            done = self.suite(program, title)
            self.assertEqual(done.returncode, 0, f"{program} {title}\n{done.stdout[-2000:]}")
            self.assertRegex(done.stdout.strip().splitlines()[-1], r"^1 passed, 0 failed$")


def chosen():
    """All defects, or those of today."""
    names = list(DEFECTS)
    day = int(time.time()) // 86400
    start = int(os.environ.get("GQAC_TEST_SEED", day)) * SAMPLE % len(names)
    return names if FULL else (names + names)[start:start + SAMPLE]


for defect in chosen():
    setattr(Defects, f"test_{defect.replace(' ', '_')}",
            lambda self, name=defect: self.check_defect(name))


def main():
    """Skips if there is no build to compile with."""
    if not (BUILD / "build.ninja").exists() or not shutil.which("ninja") or harness.SANITIZED:
        print(f"no Ninja build without sanitizers in {BUILD}")
        return 77
    return harness.main()


if __name__ == "__main__":
    sys.exit(main())
