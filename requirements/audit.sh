#!/usr/bin/env bash
# Compares the pins with the known advisories. Exit code 1: a pinned package has one. Without network it only warns.
set -uo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}
said=$("$VENV/bin/pip-audit" --progress-spinner off --disable-pip --no-deps -r requirements/cpu.hashes 2>&1)
code=$?
case $said in
    *"No known vulnerabilities"*) echo 'audit: no advisory on a pinned package' ;;
    *"Found "*"known vulnerabilit"*) printf '%s\n' "$said"; exit 1 ;;
    *) printf 'audit: warning: not done (%s)\n' "$(printf '%s' "$said" | tail -n 1 | cut -c1-200)" >&2 ;;
esac
exit $((code > 1 ? code : 0))
