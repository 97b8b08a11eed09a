#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Install what building and testing need on Debian or Ubuntu.  Quiet, and does nothing twice.
# usage: scripts/tools/setup.sh [--optional]          (as root, or with sudo)
# Where it may not or cannot install, it says what is missing and goes on: the build then names
# the first thing that it really needs.
set -eu

# Without these nothing is built or tested.
needed="gcc g++ make cmake binutils dpkg-dev scons python3 python3-pytest python3-pytest-xdist
        libc6-dev ca-certificates xz-utils bzip2"
# Without these some tests are skipped, and say so.
useful="clang clang-format-14 clang-tidy-14 python3-venv python3-torch python3-numpy
        python3-pandas python3-prometheus-client libopenblas0-pthread libsqlite3-dev libcurl4
        openssl abigail-tools patchelf python3-debugpy python3-greenlet chromium-headless-shell
        openssh-client openssh-server iproute2 stunnel4
        e2fsprogs btrfs-progs zstd fish musl-tools rpm cpio strace openmpi-bin mpich"
# For `scons arch=aarch64 wheel deb tarball`, and to run what it makes: with --optional only.
optional="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user qemu-system-arm"

say() {
    echo "setup: $*"
}

has() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

missing() {
    for package in "$@"; do
        has "$package" || echo "$package"
    done
}

# Their package starts munged, where there is something that starts services.
if [ ! -d /run/systemd/system ]; then
    useful="$useful slurm-wlm munge"
fi
if [ "${1:-}" = --optional ]; then
    useful="$useful $optional"
fi
if ! command -v dpkg-query >/dev/null; then
    say "skipped: this is not Debian or Ubuntu. Needed, by whatever name:" $needed
    exit 0
fi
# shellcheck disable=SC2086  # lists of words
want=$(missing $needed $useful | tr '\n' ' ')
if [ -z "$want" ]; then
    exit 0
fi
as=""
if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        say "skipped (not root, and sudo asks for a password): $want"
        say "run: sudo apt-get install --no-install-recommends $want"
        exit 0
    fi
    as="sudo"
fi
say "installing $want"
$as apt-get update -qq || say "apt-get update failed; trying with the lists that are there"
# One by one if not all at once: a package that this release lacks must not keep out the others.
# And none may push out another: a cross compiler and gcc-multilib exclude each other.
install="$as env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends
         --no-remove"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
if ! $install $want >"$log" 2>&1; then
    for package in $want; do
        $install "$package" >"$log" 2>&1 || say "skipped: $package ($(tail -n 1 "$log"))"
    done
fi
