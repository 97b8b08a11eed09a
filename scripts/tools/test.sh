#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Install what is needed, build, and run every test there is.
# usage: scripts/tools/test.sh [TEXT]    only tests whose name holds TEXT
# The last line is `N passed, N failed`, with `, N skipped` where something could not be tried;
# the exit code is not 0 when anything failed.  PROBING_SETUP=0 installs nothing.
set -u
cd "$(dirname "$0")/../.." || exit 2

if [ "${PROBING_SETUP:-1}" != 0 ]; then
    sh scripts/tools/setup.sh --tests || exit 2
fi
mkdir -p build
# These fetch while the processors build.
sh scripts/tools/newer_python.sh &
[ -n "${PROBING_TEST_TORCH:-}" ] || sh scripts/tools/newer_torch.sh >build/torch.path &
jobs=$(nproc)
failed=""
# -k: what can be built is tested even if something else cannot.
rpm=$(command -v rpmbuild >/dev/null && echo rpm)
# shellcheck disable=SC2086  # nothing, or a word
if ! /usr/bin/scons -Q -k -j "$jobs" all unit wheel deb tarball $rpm >build/build.log 2>&1; then
    failed="--build-failed"
    head -n 400 build/build.log
fi
wait
PROBING_TEST_TORCH=${PROBING_TEST_TORCH:-$(cat build/torch.path)}
export PROBING_TEST_TORCH
exec /usr/bin/python3 scripts/tools/run_tests.py ${1:+--only "$1"} $failed
