#!/usr/bin/env python3
"""The software bill of materials, docs/sbom.cdx.json: libraries that the binaries link, and
packages that build and test them, with versions and licences. The format is CycloneDX 1.5.

    python tools/make_sbom.py            writes the file; ./dev sbom builds first
    python tools/make_sbom.py --check    fails if a component is missing in the file, or superfluous

Libraries are those that the linker finds for the binaries of build/release, named by their Debian
packages; the packages are those of `dev`; the Python packages are those of tools/requirements-*.txt
that are installed in an environment in build/. Licences are the names in the packages' copyright
files and metadata. Versions are those of the machine that wrote the file.
"""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "docs" / "sbom.cdx.json"
TOOL = Path(os.environ.get("GQAC", ROOT / "build" / "release" / "gqac"))
HEADERS = ("libxxhash-dev",)  # packages that consist of headers, so nothing links them
ENVIRONMENTS = ("venv", "wheel/venv", "peers/venv", "coverage-venv")


def run(*words):
    """Standard output; empty if the command fails."""
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def binaries():
    """The installed tool and libraries."""
    names = ("libgqac.so", "libgqac_remote.so", "libgqac_ort.so")
    return [TOOL, *(path for name in names for path in TOOL.parent.rglob(name))]


def linked_libraries():
    """Real paths of the libraries that the linker finds for the binaries."""
    found = set()
    for binary in binaries():
        for path in re.findall(r"=> (/\S+)", run("ldd", binary)):
            found.add(os.path.realpath(path))
    return {path for path in found if not path.startswith(str(ROOT))}


def owners(paths):
    """The Debian packages of files, which may have moved from /lib to /usr/lib."""
    both = [name for path in paths for name in (path, path.removeprefix("/usr"))]
    return {line.partition(":")[0] for line in run("dpkg", "-S", *both).splitlines()}


def versions(packages):
    """{package: version} of the installed ones."""
    lines = run("dpkg-query", "-W", "-f=${Package} ${Version}\n", *packages).splitlines()
    return {name: version for name, _, version in (line.partition(" ") for line in lines) if version}


def debian_licences(package):
    """Names of the licences in the copyright file, beginning with those of all files."""
    path = Path("/usr/share/doc") / package / "copyright"
    text = path.read_text(errors="replace") if path.exists() else ""
    names = re.findall(r"^License: *(\S.*?) *$", text, re.M)
    if whole := re.search(r"^Files: *\*\n(?:.*\n)*?License: *(\S.*?) *$", text, re.M):
        names.insert(0, whole[1])
    if not names:
        names = re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text)
    return list(dict.fromkeys(names)) or ["see its copyright file"]


def debian(package, version, scope):
    """A Debian component."""
    return component(package, version, f"pkg:deb/debian/{package}@{version}", scope,
                     debian_licences(package))


def python_licences(found):
    """Names of the licences in the metadata of a package."""
    about = found.metadata
    names = [about["License-Expression"]] if about["License-Expression"] else [
        line.rpartition(":: ")[2] for line in about.get_all("Classifier") or ()
        if line.startswith("License ::")]
    if not names and about["License"]:
        names = [about["License"].splitlines()[0]]
    return names or ["see its metadata"]


def python(name, version, scope):
    """A PyPI component, with the licence from an environment in build/."""
    paths = [str(p) for e in ENVIRONMENTS for p in (ROOT / "build" / e).glob("lib/*/site-packages")]
    found = next(iter(metadata.distributions(name=name, path=paths)), None)
    return component(name, version, f"pkg:pypi/{name.lower().replace('_', '-')}@{version}", scope,
                     python_licences(found) if found else ["not installed when this was written"])


def component(name, version, purl, scope, licences):
    """One component in the form of CycloneDX."""
    return {"type": "library", "name": name, "version": version, "purl": purl, "scope": scope,
            "licenses": [{"license": {"name": licence}} for licence in licences]}


def packages_of_dev():
    """The Debian packages that ./dev installs."""
    text = re.sub(r"#.*", "", (ROOT / "dev").read_text())
    lists = re.findall(r"^(?:PACKAGES|SERVERS|ANALYSERS)=\((.*?)\)", text, re.M | re.S)
    return [name for words in lists for name in words.split()]


def components():
    """All of them by purl; shipped and linked ones have the scope required."""
    used = owners(linked_libraries()) | set(HEADERS)
    found = [debian(*one, "required") for one in versions(used).items()]
    found += [debian(*one, "excluded") for one in versions(packages_of_dev()).items()]
    for path in sorted((ROOT / "tools").glob("requirements-*.txt")):
        for name, version in re.findall(r"^([\w.-]+)==([\w.+]+)", path.read_text(), re.M):
            found.append(python(name, version, "excluded"))
    found.append(component("numpy", "any", "pkg:pypi/numpy", "optional", ["BSD-3-Clause"]))
    unique = {}
    for one in found:
        unique.setdefault(one["purl"], one)
    return [unique[purl] for purl in sorted(unique)]


def names_of(found):
    """Names and scopes. Debian packages that only build and test may be missing on a machine."""
    return {(one["name"], one["scope"]) for one in found
            if one["scope"] != "excluded" or one["purl"].startswith("pkg:pypi")}


def check(found):
    """Compares with the file."""
    kept = json.loads(OUTPUT.read_text())["components"]
    missing, gone = names_of(found) - names_of(kept), names_of(kept) - names_of(found)
    wanted = set(packages_of_dev())
    lacking = wanted - {one["name"] for one in kept}
    gone |= {one["name"] for one in kept if one["purl"].startswith("pkg:deb")
             and one["scope"] == "excluded"} - wanted
    unlicensed = [one["name"] for one in kept if not one["licenses"]]
    for label, names in (("missing", missing), ("no longer used", gone), ("missing", lacking),
                         ("without a licence", unlicensed)):
        for name in sorted(map(str, names)):
            print(f"docs/sbom.cdx.json: {label}: {name}; ./dev sbom writes it anew")
    bad = len(missing) + len(gone) + len(lacking) + len(unlicensed)
    print(f"{len(kept)} components")
    print(f"{0 if bad else 1} passed, {1 if bad else 0} failed")
    return 1 if bad else 0


def main():
    """Writes or compares."""
    found = components()
    if "--check" in sys.argv:
        return check(found)
    version = re.search(r"^project\(gqac VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    about = {"type": "library", "name": "gqac", "version": version[1] if version else "0"}
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": about}, "components": found}
    OUTPUT.write_text(json.dumps(bill, indent=1, ensure_ascii=False) + "\n")
    print(f"written: {OUTPUT.relative_to(ROOT)}, {len(found)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
