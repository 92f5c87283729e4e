#!/usr/bin/env python3
"""Records runs of gqac, to be repeated at other levels on another machine: in an emulator, where
the Python tests themselves would take days. It replaces gqac in those tests; each `run` and `score`
that writes results is recorded with its files and with the results of the scalar level.

    RECORDS=FOLDER GQAC=tools/record_runs.py python test/python/test_cpu_nbits.py
    tools/record_runs.py FOLDER [PART]       writes FOLDER/replay.sh, of every PART-th record alone

Then, with bin/gqac, bin/busybox, their libraries and a folder proc in FOLDER:

    tools/emulate_levels.sh FOLDER /bin/busybox sh /replay.sh [LEVEL...]

prints what differs from the scalar level and a sum; without LEVELs, all with AVX-512. Records of
more than 1.5 MB or a second are omitted. RECORD_GQAC names the real program.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GQAC = os.environ.get("RECORD_GQAC", Path(__file__).parent.parent / "build" / "release" / "gqac")
MOST_BYTES, MOST_SECONDS = 1_500_000, 1.0
RESULTS = ("-o", "--output", "--logits")
REPLAY = """b() { /bin/busybox "$@"; }
[ -e /proc/uptime ] || b mount -t proc proc /proc
runs=0 bad=0
check() { # RECORD WORDS...
  record=$1
  shift
  for level in $levels; do
    b rm -rf /tmp/is && b mkdir -p /tmp/is && cd "/records/$record" || exit 2
    runs=$((runs + 1)) same=1
    GQAC_CPU=$level /bin/gqac "$@" >/tmp/said 2>&1 || { same=0; b tail -n 3 /tmp/said; }
    for file in want/*; do
      b cmp "$file" "/tmp/is/${file#want/}" || same=0
    done
    [ $same = 1 ] || { bad=$((bad + 1)); echo "differs: $level $PWD"; }
  done
}
levels=${*:-avx512 avx512vnni avx512bf16}
"""


def bytes_of(path):
    """The bytes of a file, or of the files in a folder."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(f.stat().st_size for f in files if f.is_file())


def keep(path, to):
    """A copy of a file or of the files in a folder; a model is copied with its data."""
    to.mkdir()
    near = path.iterdir() if path.is_dir() else [path]
    if path.suffix == ".onnx":
        near = [path, *(f for f in path.parent.iterdir() if "data" in f.name)]
    for f in near:
        if f.is_file():
            shutil.copy(f, to)
    return to.name if path.is_dir() else f"{to.name}/{path.name}"


def recorded(words, folder):
    """The arguments with copies for files, /tmp/ for results, and without threads."""
    out, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        name, mark, value = word.partition("=")
        if word == "--threads":
            rest.pop(0)
        elif word in RESULTS:
            out += [word, "/tmp/is/logits.npy" if word == "--logits" else "/tmp/is"]
            rest.pop(0)
        elif mark and os.path.exists(value):
            out.append(f"{name}={keep(Path(value), folder / str(len(out)))}")
        else:
            out.append(keep(Path(word), folder / str(len(out))) if os.path.exists(word) else word)
    return out


def record(words, folder):
    """One run in a new folder, whose name follows from the inputs; an existing folder is kept."""
    files = [Path(word.partition("=")[2] or word) for word in words]
    if sum(bytes_of(f) for f in files if f.exists()) > MOST_BYTES:
        return
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix="."))
    said = recorded(words, temporary)
    key = hashlib.sha1(repr(said).encode())
    for f in sorted(temporary.rglob("*")):
        key.update(f.read_bytes() if f.is_file() else b"")
    (temporary / "want").mkdir()
    begin = time.monotonic()
    done = subprocess.run([GQAC, *(w.replace("/tmp/is", "want") for w in said)], cwd=temporary,
                          env={"GQAC_CPU": "scalar"}, capture_output=True, check=False)
    (temporary / "words").write_text(" ".join(f"'{word}'" for word in said))
    place = folder / key.hexdigest()[:12]
    fits = time.monotonic() - begin < MOST_SECONDS and not place.exists()
    if done.returncode == 0 and fits and any((temporary / "want").iterdir()):
        temporary.rename(place)
    else:
        shutil.rmtree(temporary)


def write_replay(folder, part):
    """The script that repeats the records."""
    records = sorted(f for f in (folder / "records").iterdir() if f.name[0] != ".")[::part]
    lines = [f"check {f.name} {(f / 'words').read_text()}\n" for f in records]
    (folder / "replay.sh").write_text(REPLAY + "".join(lines) + 'echo "$runs runs, $bad differ"\n'
                                      "[ $bad = 0 ]\n")


def main():
    words = sys.argv[1:]
    if "RECORDS" not in os.environ:
        if not words or not (Path(words[0]) / "records").is_dir():
            sys.exit(__doc__)
        write_replay(Path(words[0]), int(words[1]) if len(words) > 1 else 1)
        return
    writes = words[:1] in (["run"], ["score"]) and any(word in RESULTS for word in words)
    if writes and os.environ.get("GQAC_CPU", "scalar") == "scalar" and "ref" not in words:
        folder = Path(os.environ["RECORDS"]) / "records"
        folder.mkdir(parents=True, exist_ok=True)
        record(words, folder)
    os.execv(GQAC, [str(GQAC), *words])


if __name__ == "__main__":
    main()
