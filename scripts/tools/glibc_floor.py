#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Keep what we ship loadable on old systems: glibc 2.17 is the floor.

usage: glibc_floor.py map CC COMPAT.c...  print renames for `objcopy --redefine-syms`
       glibc_floor.py check FILE...       print symbols that need more; exit 1 if there are any

A linker binds each symbol to the newest version that the builder's libc has.  The map asks for the
newest version not above the floor instead, and sends what did not exist then (stat, getrandom,
...) to `floor_<name>` of COMPAT.c, and what must not be a preloaded library's (clock_gettime, ...)
to `kernel_<name>`.  It is made from the libc of this machine, so a newer builder only makes a
longer map.
"""
import os
import re
import subprocess
import sys

FLOOR = (2, 17)
LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")
# Before glibc 2.34 these were in librt or libutil, which we do not want to need.
ELSEWHERE = re.compile(r"(shm_open|shm_unlink|mq_\w+|aio_\w+|lio_listio|openpty|forkpty|login_tty"
                       r"|timer_\w+)$")


def output(*command):
    env = dict(os.environ, LC_ALL="C")
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, env=env).stdout.decode()


def number(version):
    return tuple(int(n) for n in version.split("."))


def exported(path):
    """{name: [(version, is the default)]} of one library's functions and objects."""
    found = {}
    line = r"\s(\w+)(@@?)GLIBC_([\d.]+)(?:\s|$)"
    for text in output("readelf", "-W", "--dyn-syms", path).splitlines():
        match = re.search(line, text)
        if match and " UND " not in text:
            found.setdefault(match[1], []).append((number(match[3]), match[2] == "@@"))
    return found


def old_version(versions):
    """The newest version not above the floor, when the default one is above it."""
    default = [v for v, is_default in versions if is_default]
    usable = sorted(v for v, _ in versions if v <= FLOOR)
    if not default or default[0] <= FLOOR or not usable:
        return None
    return ".".join(str(n) for n in usable[-1])


def make_map(cc, compat):
    renames = {}
    for path in compat:
        with open(path) as source:
            own = re.findall(r"^(?:\w[\w *]*?)\b(floor|kernel)_(\w+)\(.*[,;]$", source.read(),
                             flags=re.M)
        for room, name in own:
            # the linker sends these elsewhere first (core/compat/descriptors.c, sdk/plugin_files.c)
            called = "__real_" + name if name in ("open", "open64", "openat") else name
            renames[called] = room + "_" + name
    for library in LIBRARIES:
        path = output(cc, "-print-file-name=" + library).strip()
        if not os.path.exists(path):
            continue
        for name, versions in exported(path).items():
            version = old_version(versions)
            if version:
                renames.setdefault(name, "%s@GLIBC_%s" % (name, version))
    for name in ("strtol", "strtoul", "strtoll", "strtoull", "sscanf", "fscanf", "vsscanf"):
        renames["__isoc23_" + name] = name  # what headers of glibc 2.38 and later call
    for name in sorted(renames):
        print(name, renames[name])


def check(files):
    bad = 0
    for path in files:
        for version, name in re.findall(r"GLIBC_([\d.]+)\)?\s+(\S+)$",
                                        output("objdump", "-T", path), flags=re.M):
            if number(version) > FLOOR:
                print("%s: %s needs GLIBC_%s" % (os.path.basename(path), name, version))
                bad += 1
            elif ELSEWHERE.match(name):
                print("%s: %s needs librt or libutil before glibc 2.34"
                      % (os.path.basename(path), name))
                bad += 1
    return 1 if bad else 0


def main(arguments):
    if len(arguments) > 2 and arguments[0] == "map":
        make_map(arguments[1], arguments[2:])
        return 0
    if len(arguments) > 1 and arguments[0] == "check":
        return check(arguments[1:])
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
