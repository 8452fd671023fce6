#!/usr/bin/env bash
# A fresh machine: a minimal Debian root with nothing but git, make and Python, a clean clone of this
# project's HEAD in it, and the README's commands run there.
#   fresh.sh                       make demo && make test
#   fresh.sh 'make demo'           another command, in the clone
#   fresh.sh --user [command]      as a normal user of that root, who may install nothing
# Needs root (or sudo without a password) and mmdebstrap. Packages, certificates and registries are
# this machine's own; nothing of it is kept. Everything is mounted in a mount namespace of its own
# and every process lives in a process namespace of its own, so that both end with this script,
# however it ends. Exit code 69: no fresh root can be made here.
set -euo pipefail

say() { printf 'fresh: %s\n' "$*" >&2; }
cannot() { say "$*"; exit 69; }

user=root
[ "${1:-}" != --user ] || { user=newcomer; shift; }
command=${1:-make demo && make test}
here=$(cd "$(dirname "$0")/.." && pwd)

if [ "$(id -u)" != 0 ]; then
  sudo -n true 2>/dev/null || cannot "a fresh root can be made by root only"
  [ "$user" = root ] || set -- --user "$command"
  exec sudo -n --preserve-env "$here/scripts/fresh.sh" "${@:-$command}"
fi
. /etc/os-release
[ -n "${VERSION_CODENAME:-}" ] || cannot "this system does not say its release's name"
if ! command -v mmdebstrap >/dev/null; then
  command -v apt-get >/dev/null || cannot "no apt here"
  say "installing mmdebstrap"
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends mmdebstrap; } >/dev/null 2>&1 \
    || cannot "mmdebstrap can't be installed"
fi
# May we mount at all? In a container root often may not.
unshare --mount --pid --fork true 2>/dev/null || cannot "this root may not make mount namespaces"

sources=()
for file in /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list; do
  [ ! -s "$file" ] || sources+=("$file")
done
[ ${#sources[@]} -gt 0 ] || cannot "apt has no sources here"

root=$(mktemp -d /var/tmp/holdfast-fresh.XXXXXX)
pid=
finish() {
  [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true   # --kill-child: all of the root's processes go too
  # Nothing is mounted here: all mounts are in the namespace of the processes that are gone.
  rm -rf --one-file-system "$root"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "making a minimal $VERSION_CODENAME in $root"
mmdebstrap -q --variant=minbase --include=ca-certificates,git,make,python3,python3-venv \
  "$VERSION_CODENAME" "$root" "${sources[@]}" || cannot "no minimal $VERSION_CODENAME can be had from apt's sources"

# What a machine in this place would have: its package sources, certificates, names, registries.
cp -r /etc/apt/. "$root/etc/apt/"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -rL /etc/ssl/certs/. "$root/etc/ssl/certs/" 2>/dev/null || true   # links to what is not there
home=/root
[ "$user" = root ] || { home=/home/$user; chroot "$root" useradd --create-home --shell /bin/bash "$user"; }
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
for file in .config/pip/pip.conf .pip/pip.conf .npmrc; do
  [ ! -f "$HOME/$file" ] || { mkdir -p "$root$home/$(dirname "$file")"; cp "$HOME/$file" "$root$home/$file"; }
done
git -c safe.directory='*' clone -q "$here" "$root$home/project"
git -C "$root$home/project" checkout -q "$(git -c safe.directory='*' -C "$here" rev-parse HEAD)"
[ "$user" = root ] || chroot "$root" chown -R "$user:" "$home"

# Folders of this machine that pip's settings name: registries on disk, read only.
folders=$("${PYTHON:-python3}" -m pip config list 2>/dev/null | grep -oE "(index-url|find-links)='[^']*'" \
  | cut -d"'" -f2 | tr ' ' '\n' | sed 's#^file://##' | grep '^/' | sort -u || true)
kept=$(env | grep -E '^(PIP_|UV_|SSL_CERT|CURL_CA|REQUESTS_CA|NODE_EXTRA_CA|npm_config_|https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|HOLDFAST_TEST)' || true)

say "as $user: $command"
export root command kept user home folders
unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount -t sysfs sysfs "$root/sys"
  [ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
  while read -r folder; do
    # The index of a registry links to files beside it.
    case $folder in */simple) folder=${folder%/simple} ;; esac
    [ -d "$folder" ] || continue
    mkdir -p "$root$folder"; mount --bind -o ro "$folder" "$root$folder"
  done <<<"$folders"
  cd "$root"; mkdir -p .old; pivot_root . .old; umount -l /.old; rmdir /.old
  [ -z "$kept" ] || mapfile -t keep <<<"$kept"
  # Not exec: this shell is the first process of its namespace, and gathers the orphans.
  code=0
  env -i HOME="$home" USER="$user" LANG=C.UTF-8 CI=true \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin ${keep[@]+"${keep[@]}"} \
    setpriv --reuid "$user" --regid "$user" --init-groups bash -c "cd \"\$HOME/project\" && $command" || code=$?
  exit $code
' &
pid=$!
code=0; wait "$pid" || code=$?
pid=
exit "$code"
