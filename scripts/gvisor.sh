#!/usr/bin/env bash
# Install gVisor's runsc from Debian: the backports suite's build (systrap) if it is in reach, the
# release's own older one otherwise. The suite's address is taken from the machine's own apt
# sources; nothing of apt's set-up is changed. Called by `make gvisor`.
set -euo pipefail

# The first line alone, without `head`: a program whose pipe is closed early fails, at random.
installed() { local told; told=$(runsc --version); printf '%s\n' "${told%%$'\n'*}"; }
say() { printf 'gvisor: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

command -v apt-get >/dev/null || die "no apt here: install runsc by your system's means, see docs/guides/sandbox.md"
sudo=""; [ "$(id -u)" = 0 ] || sudo="sudo -n"
$sudo true 2>/dev/null || die "installing needs root: run it as root, or with sudo"
. /etc/os-release
codename=${VERSION_CODENAME:?this system does not say its release\'s name}

# The first address apt has this release's main suite from, with its key.
found=$(awk -v suite="$codename" '
  function found(line) { if (!said) print line; said = 1; exit }
  function emit() { if (uri && suites ~ ("(^| )" suite "( |$)")) found(uri " " key) }
  FILENAME ~ /\.sources$/ {
    if ($1 == "URIs:") uri = $2
    else if ($1 == "Suites:") { $1 = ""; suites = $0 }
    else if ($1 == "Signed-By:") key = $2
    else if ($0 == "") { emit(); uri = suites = key = "" }
    next
  }
  $1 == "deb" { for (i = 2; i < NF; i++) if ($i !~ /^\[/ && $i !~ /\]$/ && $(i + 1) == suite) found($i) }
  END { emit() }
' /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list 2>/dev/null) || true

folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/lists/partial"; chmod -R 755 "$folder"
if [ -n "$found" ]; then
  read -r uri key <<<"$found"
  printf 'deb %s%s %s-backports main\n' "${key:+[signed-by=$key] }" "$uri" "$codename" >"$folder/backports.list"
  options=(-o "Dir::Etc::sourcelist=$folder/backports.list" -o "Dir::Etc::sourceparts=-" -o "Dir::State::lists=$folder/lists")
  if $sudo apt-get "${options[@]}" -qq update >&2 && (cd "$folder" && $sudo apt-get "${options[@]}" -qq download runsc >&2); then
    say "installing the build of $codename-backports"
    $sudo dpkg -i "$folder"/runsc_*.deb >/dev/null
    installed
    exit 0
  fi
  say "$codename-backports has no runsc in reach; trying $codename itself"
fi
$sudo apt-get update -qq >&2 && $sudo apt-get install -y -qq runsc >/dev/null
installed
