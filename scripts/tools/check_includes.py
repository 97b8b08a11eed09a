#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Keep the direction of includes: who may see whom is a table, and it is this one.

usage: check_includes.py [FILE...]        all C files of the checkout by default

Prints `file:line: what is wrong` and exits 1 when something is.  A unit test (*_test.[ch]) may see
everything.  A header of a library that is linked in may be included only where it is at home.
"""
import fnmatch
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOP = ("include", "core", "sdk", "plugins", "cli", "tests")

# Folder -> what it may include beside itself and the C library; a folder or one file.
ALLOWED = {
    "include/probing": [],
    "core/base": [],
    "core/guest": ["core/base"],
    "core/catalog": ["core/base", "core/guest", "include"],
    "core/datadir": ["core/base", "core/guest", "core/catalog"],
    "core/ring": ["core/base", "core/guest", "core/catalog", "include"],
    "core/store": ["core/base", "core/guest", "core/catalog", "core/datadir", "core/ring"],
    "core/sql": ["core/base", "core/guest", "core/catalog", "core/store"],
    "core/stack": ["core/base", "core/guest", "sdk/frame_size.h"],
    "core/crash": ["core/base", "core/guest", "core/catalog", "core/datadir", "core/stack",
                   "include"],
    "core/flame": ["core/base"],
    "core/plugin_file": ["core/base", "core/guest", "include"],
    "core/plugin_host": ["core/base", "core/guest", "core/catalog", "core/ring", "core/stack",
                         "core/plugin_file", "include"],
    "core/script": ["core/base", "core/guest", "core/plugin_host", "core/sql", "include"],
    "core/server": ["core/base", "core/guest", "core/catalog", "core/plugin_host", "core/sql"],
    "core/builtin": ["core/base", "core/guest", "core/catalog", "core/core.h", "core/crash",
                     "core/flame", "core/plugin_host", "core/plugin_file", "core/server",
                     "core/sql", "core/store", "include"],
    "core/runtime": ["core", "include"],
    "core/compat": ["core/base/clock.h", "core/guest/heap.h", "core/guest/own_descriptors.h"],
    "core": ["core/datadir/own_dir.h"],
    "plugins": ["include", "sdk"],
    "sdk": ["include"],
    "sdk/lib": [],
    "sdk/client": ["include"],  # and sdk/lib: strangers link it
    "cli": ["include", "core/base", "core/guest", "core/crash", "core/datadir", "core/flame",
            "core/plugin_file", "core/sql", "core/stack", "core/store",
            "sdk"],  # it draws for the dead, too
    "tests": ["include", "core", "sdk", "plugins", "cli"],
}

# No state and no needs: everything that we build may include it, the ABI's headers may not.
SHARED = ["sdk/lib"]

# A room of core shows the others one header, ROOM/ROOM.h; but these two are libraries, and some
# rooms have more than one header to show.
LIBRARIES = ("core/base", "core/guest")
MORE_DOORS = ("core/catalog/dictionary.h", "core/core.h", "core/datadir/own_dir.h",
              "core/plugin_file/declared.h", "core/plugin_file/elf_check.h",
              "core/plugin_file/sealed_copy.h", "core/sql/distribute/distribute.h")

MADE = ("pack.h", "version_number.h")  # while building

# Headers of linked libraries, and the only folders that may know of them.
AT_HOME = {
    "lua.h": ["core/script"], "lualib.h": ["core/script"], "lauxlib.h": ["core/script"],
    "lmdb.h": ["core/store"],
    "libwebsockets.h": ["core/server", "core/compat/lws_adopt.c",
                        "core/compat/lws_hangup.c", "core/compat/lws_inspect.c"],
    "zlib.h": ["core/base/gzip.c"],
    "libunwind*.h": ["core/stack", "cli"],
    "Python.h": [], "sqlite3.h": [],
}


def house(path):
    """The row of ALLOWED that a file belongs to, and the folder that is its own."""
    folder = os.path.dirname(path)
    parts = folder.split("/")
    if parts[0] == "plugins":  # what runs in the command's process shares nothing with the rest
        return "plugins", "/".join(parts[:3 if parts[2:3] == ["report"] else 2])
    two = "/".join(parts[:2])
    if two in ALLOWED:
        return two, two
    return (parts[0], parts[0]) if parts[0] != "core" or folder == "core" else (None, two)


def resolve(name, path):
    """The checkout's file that an include means, or None for somebody else's."""
    folder = os.path.dirname(path)
    own = house(path)[1]
    for base in (folder, own, "", "include", "sdk"):
        candidate = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(os.path.join(ROOT, candidate)):
            return candidate
    return None


def within(path, places):
    return any(path == p or path.startswith(p + "/") for p in places)


def check_door(row, target):
    """Say what is wrong with an include that goes past the one header of another room, or None."""
    room = "/".join(target.split("/")[:2])
    door = "%s/%s.h" % (room, os.path.basename(room))
    if row == "tests" or not target.startswith("core/") or room in LIBRARIES \
            or target == door or target in MORE_DOORS:
        return None
    return "%s may include %s, not %s" % (row, door, target)


def check_library(name, path):
    for pattern, homes in AT_HOME.items():
        if fnmatch.fnmatch(name, pattern) and not within(path, homes):
            where = " or ".join(homes) or "nowhere"
            return "<%s> is at home in %s" % (name, where)
    return None


def check_one(name, quoted, path):
    """Say what is wrong with one include, or None."""
    row, own = house(path)
    if row is None:
        return "the folder %s is not in the table of includes" % own
    target = resolve(name, path)
    if target is None:
        if quoted and os.path.basename(name) not in MADE:
            return '"%s" is not there' % name
        return None if path.startswith("tests/") else check_library(name, path)
    if not target.startswith(tuple(t + "/" for t in TOP)):
        return "%s is in no folder of ours" % target
    if within(target, [own]):
        return None
    if within(target, ALLOWED[row] + SHARED * (row != "include/probing")):
        return check_door(row, target)
    return "%s may not include %s" % (row, target)


def check_file(path):
    with open(os.path.join(ROOT, path), errors="replace") as source:
        for number, line in enumerate(source, 1):
            found = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
            wrong = found and check_one(found[1] or found[2], bool(found[1]), path)
            if wrong:
                yield "%s:%d: %s" % (path, number, wrong)


def c_files():
    for top in TOP:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def main(arguments):
    paths = [os.path.relpath(os.path.abspath(a), ROOT) for a in arguments] or sorted(c_files())
    wrong = [w for p in paths if not p.endswith(("_test.c", "_test.h")) for w in check_file(p)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
