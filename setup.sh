#!/usr/bin/env bash
# Makes .venv with everything pinned and writes nowhere else. Idempotent: does nothing when it has nothing to do, and
# goes on where an interrupted one stopped.
#   ./setup.sh          the environment
#   ./setup.sh run      also asks whether this machine has the memory for `make run`
#   ./setup.sh dev      also what `make test` and `make lint` need
# PYTHON=/path/to/python3.11, VENV=/other/disk/venv and pip's own PIP_* variables are honoured.
set -euo pipefail
cd "$(dirname "$0")"
VENV=${VENV:-.venv}
MIN_MEMORY_GB=${MIN_MEMORY_GB:-8}
mode=${1:-}
log=$VENV/setup.log

fail() { printf 'warpsmith setup: %s\n' "$1" >&2; exit 1; }

usable_python() { # vLLM has no release for 3.15 yet
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null
}

find_python() { # the first that runs: a pyenv shim may stand for a version that is not there
    local name
    for name in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
        if usable_python "$name"; then "$name" -c 'import sys; print(sys.executable)'; return; fi
    done
    name=${PYTHON:-python3}
    fail "$name is $("$name" -V 2>/dev/null || echo 'not usable'), Python 3.11 to 3.14 needed: install one, or set PYTHON=/path/to/python3.11"
}

available_mb() { # what the machine can give, or the container's limit where that is lower
    local machine limit used cache group=/sys/fs/cgroup
    machine=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
    limit=$(cat $group/memory.max 2>/dev/null || echo max)
    if [ "$limit" != max ]; then
        used=$(cat $group/memory.current)
        cache=$(awk '$1 == "inactive_file" {print $2}' $group/memory.stat)
        limit=$(((limit - used + cache) / 1048576))
        [ "$limit" -ge "$machine" ] || machine=$limit
    fi
    echo "$machine"
}

fits_here() { # a virtual environment that runs, has pip, and was made at this place (its scripts hold the path)
    local shebang
    usable_python "$VENV/bin/python" && "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || return 1
    IFS= read -r shebang <"$VENV/bin/pip" || return 1
    case $shebang in "#!$(cd "$VENV" && pwd)/bin/"*) ;; *) return 1 ;; esac
}

wanted() { # what the stamp must say: the pins, the project, the interpreter and the place
    (cat "$@"; "$VENV/bin/python" -V; cd "$VENV" && pwd) 2>/dev/null | sha256sum | cut -c1-16
}

install() { # install WHAT ARGS...: quiet unless it fails
    local what=$1; shift
    printf 'warpsmith setup: %s ...\n' "$what"
    "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input -q "$@" >>"$log" 2>&1 \
        || { tail -n 15 "$log" >&2; fail "$what failed (the lines above; all of it is in $log): mend that and run it again"; }
}

hashed() { # whether requirements/NAME.hashes was made of the lock that is here
    if ! grep -q "^# Of $1.lock with SHA-256 $(sha256sum "requirements/$1.lock" | cut -c1-64)" "requirements/$1.hashes" 2>/dev/null; then
        printf 'warpsmith setup: warning: requirements/%s.hashes is not of this %s.lock (make lock renews it): installing without hashes\n' "$1" "$1" >&2
        return 1
    fi
}

only() { # only [-v] NAME...: the hashed pins of these packages, or of all others
    local others=0
    [ "$1" != -v ] || { others=1; shift; }
    awk -v names=" $* " -v others=$others '/^[^ #]/ {split($1, part, "=="); on = (index(names, " " part[1] " ") > 0) != others} on' \
        requirements/cpu.hashes
}

case $mode in '' | run | dev) ;; *) fail "unknown argument $mode: use ./setup.sh, ./setup.sh run or ./setup.sh dev" ;; esac
[ "$(uname -s)" = Linux ] || fail "$(uname -s) is not supported: use Linux, or a Linux container or virtual machine"
command -v g++ >/dev/null || fail "no g++ on PATH: install a C++ compiler (Debian, Ubuntu: apt-get install g++)"
echo 'int main() {}' | g++ -std=c++17 -fopenmp -x c++ -o /dev/null - 2>/dev/null \
    || fail "g++ cannot build an OpenMP program in C++17: install g++ 9 or newer with its libraries (Debian, Ubuntu: apt-get install g++)"
if [ "$mode" = run ]; then
    memory=$(available_mb)
    [ "$memory" -ge $((MIN_MEMORY_GB * 1000)) ] \
        || fail "$memory MB of memory free, $MIN_MEMORY_GB GB needed by make run: close something, or set MIN_MEMORY_GB=0 to try all the same"
fi
# Two at once (make run beside make test) take turns. The lock is on this file, so that nothing else is written.
if command -v flock >/dev/null; then
    exec 9<setup.sh
    flock -w 1800 9 || fail "another setup has held the lock for half an hour: end it and run this again"
fi

if [ "$(cat "$VENV/.stamp" 2>/dev/null)" != "$(wanted requirements/cpu.lock pyproject.toml)" ]; then
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null \
        || fail "$python has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)"
    mkdir -p "$VENV" 2>/dev/null && [ -w "$VENV" ] || fail "$VENV cannot be written: mend its rights, or set VENV=/other/disk/venv"
    if ! fits_here; then
        # --clear empties the folder: never one that holds something else.
        [ "$VENV" = .venv ] || [ -e "$VENV/pyvenv.cfg" ] || [ -z "$(ls -A "$VENV")" ] \
            || fail "$VENV is neither empty nor a virtual environment: set VENV to another folder"
        free_mb=$(df -Pm "$VENV" | awk 'NR==2 {print $4}')
        [ "$free_mb" -ge 6000 ] || fail "$free_mb MB free on the disk of $VENV, 6 GB needed: free some space, or set VENV=/other/disk/venv"
        "$python" -m venv --clear "$VENV" || fail "$python -m venv $VENV failed: the lines above say why"
    fi
    rm -f "$VENV/.stamp"
    : >"$log"
    # pip writes RECORD last: a package without it is half of one, and pip would take it for installed.
    for info in "$VENV"/lib/python*/site-packages/*.dist-info; do
        [ ! -d "$info" ] || [ -e "$info/RECORD" ] || rm -rf "$info"
    done
    # Every file is compared with its hash, but for torch's (requirements/hash.sh says why) and those of the CUDA
    # libraries that it may need. torch goes before DeepSpeed, a source distribution whose setup imports it; none of its
    # native ops are built here.
    if hashed cpu; then
        only setuptools wheel >"$VENV/first.txt"
        only deepspeed >"$VENV/last.txt"
        only -v deepspeed >"$VENV/most.txt"
        install "build tools (1 of 5)" --no-deps --require-hashes -r "$VENV/first.txt"
        install "vLLM, Ray, W&B and the rest (2 of 5, about two minutes)" \
            --no-deps --no-build-isolation --require-hashes -r "$VENV/most.txt"
        install "torch (3 of 5)" -c requirements/cpu.lock "$(grep -i '^torch==' requirements/cpu.lock)"
        DS_BUILD_OPS=0 install "DeepSpeed (4 of 5)" --no-deps --no-build-isolation --require-hashes -r "$VENV/last.txt"
        install "warpsmith itself (5 of 5)" --no-deps --no-build-isolation -e .
    else
        install "torch (1 of 3)" -c requirements/cpu.lock "$(grep -i '^torch==' requirements/cpu.lock)" setuptools wheel==0.48.0
        DS_BUILD_OPS=0 install "vLLM, Ray, DeepSpeed, W&B and the rest (2 of 3, about two minutes)" \
            --no-deps --no-build-isolation -r requirements/cpu.lock
        install "warpsmith itself (3 of 3)" --no-deps --no-build-isolation -e .
    fi
    wanted requirements/cpu.lock pyproject.toml >"$VENV/.stamp"
fi
if [ "$mode" = dev ] && [ "$(cat "$VENV/.stamp-dev" 2>/dev/null)" != "$(wanted requirements/dev.lock)" ]; then
    if hashed dev; then
        install "test tools" --no-deps --require-hashes -r requirements/dev.hashes
    else
        install "test tools" --no-deps -r requirements/dev.lock
    fi
    wanted requirements/dev.lock >"$VENV/.stamp-dev"
fi
if [ -z "$mode" ] && ! command -v make >/dev/null; then
    printf 'warpsmith setup: ready, but there is no make: install it (Debian, Ubuntu: apt-get install make), or run %s/bin/warpsmith train configs/cpu.toml\n' "$VENV"
fi
