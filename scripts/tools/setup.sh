#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Install what building and testing need on Debian or Ubuntu.  Quiet, and does nothing twice.
# usage: scripts/tools/setup.sh            to build, and for a training loop to try it on
#        scripts/tools/setup.sh --check    to build and for `scons check`: what a pull request runs
#        scripts/tools/setup.sh --tests    for all tests, too
#        scripts/tools/setup.sh --cross    for building and running aarch64's packages, too
# As root, or with sudo.  Where it may not or cannot install, it says what is missing and goes on:
# the build then names the first thing that it really needs.
set -eu

# Without these nothing is built.
want="gcc libc6-dev make cmake binutils dpkg-dev scons python3 ca-certificates xz-utils bzip2"
# Packages of the training loop; venv: for a torch of PyPI's where the distribution has none.
loop="python3-torch python3-numpy python3-venv libopenblas0-pthread"
# Without the first two nothing is tested, without the others some tests are skipped and say so.
check="python3-pytest python3-pytest-xdist g++ clang clang-format-14"
tests="$check clang-tidy-14
       python3-pandas python3-prometheus-client libsqlite3-dev libcurl4 openssl abigail-tools
       patchelf python3-debugpy python3-greenlet chromium-headless-shell openssh-client iproute2
       e2fsprogs btrfs-progs zstd fish musl-tools rpm cpio strace openmpi-bin mpich mkdocs"
# These packages start services, where there is something that starts them: a machine that people
# work on must not get an ssh server for a test.
services="openssh-server stunnel4 slurm-wlm munge"
# For `scons arch=aarch64 wheel deb tarball`, and to run what it makes.
cross="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user qemu-system-arm"

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

case ${1:-} in
    "") want="$want $loop" ;;
    --check) want="$want $check" ;;
    --tests)
        want="$want $loop $tests"
        [ -d /run/systemd/system ] || want="$want $services"
        ;;
    --cross) want="$want $loop $cross" ;;
    *)
        say "'$1' is no option; there are --check, --tests and --cross"
        exit 2
        ;;
esac
if ! command -v dpkg-query >/dev/null; then
    say "skipped: this is not Debian or Ubuntu. Needed, by whatever name:" $want
    exit 0
fi
# shellcheck disable=SC2086  # lists of words
want=$(missing $want | tr '\n' ' ')
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
