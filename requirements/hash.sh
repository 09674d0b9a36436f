#!/usr/bin/env bash
# Writes cpu.hashes and dev.hashes: the pins of the locks with the SHA-256 of every file that the package index has of
# them. Run it after a change of a lock (`make lock`). Needs network and uv (pip install uv), or UV=/path/to/uv.
# torch is left out: an index decides which build (CPU, one of several CUDA) its version number stands for, and each
# build has hashes of its own.
set -euo pipefail
cd "$(dirname "$0")"
UV=${UV:-uv}
command -v "$UV" >/dev/null || { echo "requirements/hash.sh: no uv: pip install uv, or set UV=/path/to/uv" >&2; exit 1; }
for name in cpu dev; do
    (grep -v '^torch==' $name.lock; [ $name = dev ] || echo 'wheel==0.48.0') >$name.in.tmp
    "$UV" pip compile --quiet --no-config --no-deps --generate-hashes --no-header --no-annotate --no-emit-index-url \
        --python-version 3.11 $name.in.tmp -o $name.hashes.tmp
    (echo "# Of $name.lock with SHA-256 $(sha256sum $name.lock | cut -c1-64), made by requirements/hash.sh."; cat $name.hashes.tmp) >$name.hashes
    rm $name.in.tmp $name.hashes.tmp
    echo "$name.hashes: $(grep -c '==' $name.hashes) packages, $(grep -c 'hash=' $name.hashes) files"
done
