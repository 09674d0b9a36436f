#!/usr/bin/env bash
# Makes .venv with everything pinned. Idempotent: does nothing when the locks have not changed.
#   ./setup.sh          what `make run` needs
#   ./setup.sh dev      also what `make test` needs
set -euo pipefail
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

fail() { printf 'warpsmith setup: %s\n' "$1" >&2; exit 1; }

command -v "$PYTHON" >/dev/null || fail "no $PYTHON on PATH: install Python 3.11 or newer, or set PYTHON=/path/to/python3.11"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || fail "$("$PYTHON" -V) is too old: install Python 3.11 or newer, or set PYTHON=/path/to/python3.11"
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null \
    || fail "$PYTHON has no venv module: install it (Debian: apt-get install python3-venv)"
command -v "${CXX:-g++}" >/dev/null || fail "no ${CXX:-g++} on PATH: install a C++ compiler (Debian: apt-get install g++), or set CXX"

stamp=$( (cat requirements/cpu.lock pyproject.toml; "$PYTHON" -V) | sha256sum | cut -c1-16)
dev_stamp=$(sha256sum requirements/dev.lock | cut -c1-16)
log=$VENV/setup.log

install() {  # install WHAT ARGS...: quiet unless it fails
    local what=$1; shift
    printf 'warpsmith setup: %s ...\n' "$what"
    "$VENV/bin/python" -m pip install --disable-pip-version-check -q "$@" >>"$log" 2>&1 \
        || { tail -n 15 "$log" >&2; fail "$what failed; the whole log is $log"; }
}

if [ "$(cat "$VENV/.stamp" 2>/dev/null)" != "$stamp" ]; then
    free_kb=$(df -Pk . | awk 'NR==2 {print $4}')
    [ "$free_kb" -ge 6000000 ] || fail "$((free_kb / 1024)) MiB free on this disk, 6 GB needed: free some space, or set VENV=/other/disk/venv"
    [ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV" || fail "could not make $VENV with $PYTHON -m venv"
    : >"$log"
    # torch first, with its own dependencies: a machine whose index serves the CUDA build needs those too.
    install "torch (1 of 3)" "$(grep -i '^torch==' requirements/cpu.lock)" setuptools==78.1.1 wheel
    # The rest exactly as locked. DeepSpeed is a source distribution: none of its native ops are built here.
    DS_BUILD_OPS=0 install "vLLM, Ray, DeepSpeed, W&B and the rest (2 of 3, about two minutes)" \
        --no-deps --no-build-isolation -r requirements/cpu.lock
    install "warpsmith itself (3 of 3)" --no-deps --no-build-isolation -e .
    echo "$stamp" >"$VENV/.stamp"
fi
if [ "${1:-}" = dev ] && [ "$(cat "$VENV/.stamp-dev" 2>/dev/null)" != "$dev_stamp" ]; then
    install "test tools" --no-deps -r requirements/dev.lock
    echo "$dev_stamp" >"$VENV/.stamp-dev"
fi
