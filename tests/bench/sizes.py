#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How large the products are, stripped as `scons install` has them.

usage: sizes.py [FOLDER]          build/release by default
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import figure, skip

ROOT = Path(__file__).resolve().parents[2]


def stripped(path, folder):
    copy = os.path.join(folder, path.name)
    subprocess.run(["strip", "-o", copy, str(path)], check=True)
    return os.path.getsize(copy)


def main():
    build = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "release"
    core = build / "libprobing.so"
    if not core.exists():
        skip("not built: scons all")
    with tempfile.TemporaryDirectory() as folder:
        size = stripped(core, folder)
        figure(core.name, "bytes", size=size)
        for path in [build / "probing"] + sorted((build / "plugins").glob("*.so")):
            one = stripped(path, folder)
            figure(str(path.relative_to(build)), "bytes", size=one, against=core.name,
                   ratio=one / size)


if __name__ == "__main__":
    main()
