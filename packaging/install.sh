#!/bin/sh
# Installs a release of Muster below a folder, ~/.local unless --prefix says otherwise: the binary `worker`, its manual
# pages and completions. Nothing is installed unless the archive has the checksum of SHA256SUMS.
#
#   install.sh [--from FOLDER_OR_URL] [--version VERSION] [--prefix FOLDER]
#
# --from, or MUSTER_RELEASE, names where the files of the release lie; without it, beside this script.
set -eu

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

main() {
  from=${MUSTER_RELEASE:-} version='' prefix=${HOME:-}/.local
  while [ $# -gt 0 ]; do
    case $1 in
      --from | --version | --prefix) [ $# -ge 2 ] || fail "$1 needs a value" ;;
      -h | --help) usage && exit ;;
      *) fail "unknown argument: $1; see --help" ;;
    esac
    case $1 in
      --from) from=$2 ;;
      --version) version=$2 ;;
      --prefix) prefix=$2 ;;
    esac
    shift 2
  done
  [ "$prefix" != /.local ] || fail "HOME is not set: name a folder with --prefix"
  check_platform
  find_release

  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  trap 'exit 1' HUP INT TERM
  get SHA256SUMS
  choose
  get "$archive"
  check_sum
  unpack
  put
  say_so
}

usage() {
  cat <<'END'
Installs a release of Muster: the binary `worker`, manual pages and completions.

usage: install.sh [--from FOLDER_OR_URL] [--version VERSION] [--prefix FOLDER]

  --from     folder or URL with the files of the release (default: MUSTER_RELEASE, else this script's folder)
  --version  version to install (default: the one in SHA256SUMS)
  --prefix   where to install (default: ~/.local)
END
}

check_platform() {
  case $(uname -s)/$(uname -m) in
    Linux/x86_64) ;;
    Linux/*) fail "there are binaries for x86-64 only, and this machine is $(uname -m): build from source with cargo" ;;
    *) fail "there are binaries for Linux only, and this machine runs $(uname -s); on Windows use WSL 2" ;;
  esac
  # musl's `ldd --version` fails and names itself.
  case $(ldd --version 2>&1 || true) in
    *musl*) fail "the binary needs glibc, and this system has musl: build from source with cargo" ;;
  esac
}

find_release() {
  beside=$(cd "$(dirname "$0")" 2>/dev/null && pwd) || beside=
  [ -n "$from" ] || [ ! -f "$beside/SHA256SUMS" ] || from=$beside
  [ -n "$from" ] || fail "no release named: Muster has no public download yet; name a folder or URL with --from"
  case $from in
    https://* | http://127.0.0.1[:/]* | http://localhost[:/]*) ;;
    http://*) fail "refusing $from: without https the checksum and the archive could both be replaced" ;;
    *) [ -d "$from" ] || fail "$from is neither a folder nor an https:// URL" ;;
  esac
}

# get NAME: one file of the release into $scratch.
get() {
  case $from in
    http://* | https://*)
      if command -v curl >/dev/null; then
        curl -fsSL --retry 2 -o "$scratch/$1" "${from%/}/$1" || fail "downloading ${from%/}/$1 failed"
      elif command -v wget >/dev/null; then
        wget -q -O "$scratch/$1" "${from%/}/$1" || fail "downloading ${from%/}/$1 failed"
      else
        fail "neither curl nor wget is installed"
      fi
      ;;
    *) cp "$from/$1" "$scratch/$1" || fail "$from has no $1" ;;
  esac
}

# The archive of the wanted version, or the only one.
choose() {
  archive=$(sed -n "s/^[0-9a-f]\{64\} [ *]\(muster-${version:-[0-9][^-]*}-x86_64-linux\.tar\.gz\)\$/\1/p" "$scratch/SHA256SUMS")
  [ -n "$archive" ] || fail "$from/SHA256SUMS names no archive of ${version:-a version} for x86_64-linux"
  [ "$(echo "$archive" | wc -l)" = 1 ] || fail "$from has several versions: choose one with --version"
}

check_sum() {
  grep " [ *]$archive\$" "$scratch/SHA256SUMS" >"$scratch/sum"
  if command -v sha256sum >/dev/null; then
    (cd "$scratch" && sha256sum -c sum >/dev/null 2>&1) || fail "$archive: checksum mismatch, nothing was installed"
  elif command -v shasum >/dev/null; then
    (cd "$scratch" && shasum -a 256 -c sum >/dev/null 2>&1) || fail "$archive: checksum mismatch, nothing was installed"
  else
    fail "neither sha256sum nor shasum is installed: the archive cannot be checked"
  fi
}

# The new binary must run here before it replaces another.
unpack() {
  mkdir "$scratch/new"
  tar -xzf "$scratch/$archive" -C "$scratch/new" --strip-components=1 || fail "unpacking $archive failed"
  installed=$("$scratch/new/bin/worker" --version) || fail "the binary does not run on this machine, nothing was installed"
}

put() {
  mkdir -p "$prefix/bin" || fail "cannot create $prefix/bin"
  for folder in share/man share/bash-completion share/zsh share/fish share/doc; do
    [ -d "$scratch/new/$folder" ] || continue
    mkdir -p "$prefix/$folder"
    cp -R "$scratch/new/$folder/." "$prefix/$folder/" || fail "writing $prefix/$folder failed"
  done
  # Renamed, so that a running worker keeps its file.
  cp "$scratch/new/bin/worker" "$prefix/bin/.worker.new" || fail "writing $prefix/bin failed"
  mv "$prefix/bin/.worker.new" "$prefix/bin/worker"
}

say_so() {
  echo "installed $installed as $prefix/bin/worker"
  case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "add it to your PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
  esac
  echo "next: worker up"
}

main "$@"
