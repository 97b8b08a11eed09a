#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Newer CPythons for the tests than this release has, in build/pythons: 3.14 and 3.15 as Debian
# unstable ships them, with the C library that they need; free-threaded 3.13 from Debian's sources
# if asked for.
# usage: scripts/tools/newer_python.sh [--free-threaded]      (the latter takes minutes)
# Quiet and does nothing twice; where something cannot be had it says so and ends well.
set -u
cd "$(dirname "$0")/../.." || exit 2
place=$PWD/build/pythons
work=$place/.work
key=/usr/share/keyrings/debian-archive-keyring.gpg

missing() {
    echo "newer python: skipped, $*" >&2
}

skip() {
    missing "$@"
    exit 0
}

apt_there() { # as in that release, without touching this one's lists
    tool=$1
    shift
    $tool -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@" >>"$work/log" 2>&1
}

begin() { # $1: deb or deb-src, $2: the release
    command -v apt-get >/dev/null && [ -f $key ] || skip "this is not Debian"
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' |
        head -n 1)
    [ -n "$mirror" ] || skip "apt knows no mirror of Debian"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    echo "$1 [signed-by=$key] $mirror $2 main" >"$work/sources.list"
    apt_there apt-get update || skip "no lists of Debian $2 ($(tail -n 1 "$work/log"))"
}

newest() { # $@: versions, each as Debian unstable has it
    [ "$(uname -m)" = x86_64 ] || skip "$* are taken for x86-64 only"
    command -v patchelf >/dev/null || skip "$* need patchelf"
    begin deb sid
    for version in "$@"; do
        unpack "$version" || missing "$reason"
        rm -rf "$work/debs" "$work/root"
    done
}

unpack() { # $1: a version; where it cannot be had, $reason
    place_of=$place/$1
    libraries=$place_of/lib/x86_64-linux-gnu
    mkdir -p "$work/debs" "$work/root"
    reason="no python$1 there"
    (cd "$work/debs" &&
        apt_there apt-get download "python$1" "python$1-minimal" "libpython$1-stdlib" \
            "libpython$1-minimal" "libpython$1" libc6 libexpat1 zlib1g libffi8 libzstd1 \
            libssl3t64) || return 1
    for deb in "$work"/debs/*.deb; do
        reason="$deb cannot be unpacked"
        dpkg-deb -x "$deb" "$work/root" || return 1
    done
    rm -rf "$place_of"
    mv "$work/root/usr" "$place_of"
    patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath \
        --set-rpath "$libraries" "$place_of/bin/python$1"
    ln -sf "python$1" "$place_of/bin/python3"
    reason="its $1 does not run here"
    "$place_of/bin/python3" -c 'import ctypes, json, asyncio' 2>>"$work/log" ||
        { rm -rf "$place_of"; return 1; }
    # Debian compiles its modules when a package is installed; else each start would, of the tests.
    "$place_of/bin/python3" -m compileall -q -j 0 "$place_of/lib/python$1" >>"$work/log" 2>&1
    return 0
}

free_threaded() {
    begin deb-src trixie
    (cd "$work" && apt_there apt-get source --download-only --tar-only python3.13 &&
        tar xf python3.13_*.orig.tar.xz) || skip "no sources of 3.13"
    mkdir -p "$work/build"
    (cd "$work/build" && CFLAGS=-g0 ../Python-3.13.*/configure --disable-gil --without-ensurepip \
        --disable-test-modules --prefix="$place/3.13t" && make -j "$(nproc)" && make install) \
        >>"$work/log" 2>&1 || skip "3.13 could not be built (see $work/log)"
}

mkdir -p "$work"
wanted=
for version in 3.14 3.15; do
    [ -x "$place/$version/bin/python3" ] || wanted="$wanted $version"
done
# shellcheck disable=SC2086 # words
[ -z "$wanted" ] || newest $wanted
[ "${1:-}" != --free-threaded ] || [ -x "$place/3.13t/bin/python3" ] || free_threaded
rm -rf "$work"
