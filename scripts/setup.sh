#!/usr/bin/env bash
# Make the virtual environment with the locked dependencies. Called by make.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} VENV=${VENV:-.venv}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

command -v "$PYTHON" >/dev/null || die "no $PYTHON here: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || die "$("$PYTHON" --version) is too old: Holdfast needs Python 3.11 or newer (make PYTHON=python3.12 …)"

if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
  sudo=""; [ "$(id -u)" = 0 ] || sudo="sudo -n"
  say "Python's venv module is missing; trying apt"
  { $sudo apt-get update -qq && $sudo apt-get install -y -qq python3-venv; } >/dev/null 2>&1 \
    || die "Python's venv module is missing: install it (Debian: apt-get install python3-venv)"
fi

[ -x "$VENV/bin/python" ] || { say "making $VENV"; "$PYTHON" -m venv "$VENV"; }
say "installing the locked dependencies into $VENV"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock 2> >(grep -v '^WARNING: Location' >&2) \
  || die "pip could not install requirements-dev.lock: is the package registry in reach?"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . 2> >(grep -v '^WARNING: Location' >&2)

# The browser tests want a real Chromium. Without one they say so and are skipped.
if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null && command -v apt-get >/dev/null; then
  sudo=""; [ "$(id -u)" = 0 ] || sudo="sudo -n"
  if [ -z "$sudo" ] || sudo -n true 2>/dev/null; then
    say "installing Chromium for the browser tests"
    { $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 \
      || say "Chromium can't be installed here; the browser tests will be skipped"
  fi
fi
