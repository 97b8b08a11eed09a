#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A second, newer torch for the tests, in build/torch: the CPU build, where it can be had.
# usage: scripts/tools/newer_torch.sh    prints the path of its Python, or nothing (and says why)
# Only the wheel that is marked +cpu is taken: the unmarked one brings gigabytes of CUDA along.
# PyPI itself has no such wheel; a mirror may, and PyTorch's own index does.
set -u
cd "$(dirname "$0")/../.." || exit 2
version=2.13.0
place=$PWD/build/torch

take() {
    timeout 300 "$place/bin/pip" -q install --prefer-binary "torch==$version+cpu" numpy "$@"
}

if [ ! -x "$place/bin/python" ] || ! "$place/bin/python" -c 'import torch' 2>/dev/null; then
    for python in /usr/bin/python3.11 python3.11 python3; do
        command -v $python >/dev/null && $python -c 'import ensurepip, venv' 2>/dev/null && break
        python=""
    done
    if [ -z "$python" ]; then
        echo "newer torch: skipped, no Python with venv and pip" >&2
        exit 0
    fi
    rm -rf "$place"
    if ! { $python -m venv "$place" &&
           { take || take --retries 1 --timeout 10 \
                          --extra-index-url https://download.pytorch.org/whl/cpu; }; } \
           >build/torch.log 2>&1; then
        why=$(grep '^ERROR' build/torch.log | tail -n 1)
        echo "newer torch: skipped, pip has no torch $version+cpu (${why:-see build/torch.log})" >&2
        rm -rf "$place"
        exit 0
    fi
fi
echo "$place/bin/python"
