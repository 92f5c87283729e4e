#!/usr/bin/env bash
# The bill of materials names what the binaries link, and what builds and tests them.
set -euo pipefail
skip() { echo "skipped: $1"; exit 77; }
command -v dpkg-query >/dev/null || skip "the bill of materials has Debian packages, and this is no Debian"
[ "${GQAC_SANITIZED:-0}" = 0 ] || skip "the run time of a sanitizer is part of these binaries"
python3 "$(dirname "$0")/../../tools/make_sbom.py" --check
