#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Keep the rooms small and in order: what a folder holds, and which of its strata may use which.

usage: check_rooms.py            say what is wrong; exit 1 when something is
       check_rooms.py --write    drop exceptions that nobody needs any more, and name new ones
       check_rooms.py --knot     the largest set of files that need each other, by their symbols,
                                 of each house

Rules: the path in a file's head is its path; no two sources of the product have one name unless
they are one feature, said below, and no two tests; no file is empty; in the strata below a file
includes, and uses symbols of, its own stratum and those before it only; fewer than 12 files of a
house need each other.  What breaks a rule today stands in room_exceptions.txt beside this file, and
that list may only shrink: a line that is not needed any more is an error, too.  A folder of more
than 25 sources and a file of more than 600 lines are only noted: two ideas are two rooms, a number
is no reason to split.
"""
import collections
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_includes import ROOT, c_files, house as link_of, resolve  # noqa: E402
from check_style import blanked, sources  # noqa: E402

SOURCES_MAX = 25
LINES_MAX = 600
KNOT_MAX = 11
EXCEPTIONS = os.path.join(ROOT, "scripts", "tools", "room_exceptions.txt")

# House -> its folders, the one that uses nothing first; "." is the house's own folder.  Folders in
# one place of the list may use each other.
STRATA = {
    "core/sql": ["value", "parse", "expr", "exec format", "bind catalog plan", ".",
                 "distribute"],
    "plugins/python": ["inspect objects", "exec", "stack", "commands trace package_api", "."],
    "plugins/torch": ["report", "python device", "steps", "variables", "module_registry",
                      "module_calls", "dist", "profiler", "memory", "."],
    "cli": ["terminal", "inject", "link", "answer", "target", "export", "job",
            "commands report shell", "many", "relay cluster hang diff ship", "."],
}
# Headers of a house that all of its strata may include: what they declare is judged by symbol.
SHARED = ("core/sql/sql.h", "core/sql/parse/ast.h", "plugins/python/internal.h",
          "plugins/torch/internal.h")
# The one struct that a house hangs on, declared in its internal.h.
OWNERS = ("torch_state",)
# Role names: the same in every room.  And features that stand in two rooms, each with its part.
ROLES = ("plugin.c", "tables.c", "offline.c")
ONE_FEATURE = ("backtrace_external.c", "coordinates.c", "datadir.c", "declarations.c",
               "empty_reason.c", "headroom.c", "proc_tasks.c", "redact.c", "resume.c", "scan.c",
               "unwind.c")
COMMANDS = "cli/commands"
# Made by a program, or by somebody who is bound to no house rule.
LONG_BY_NATURE = ("core/sql/value/case_ranges.h",)


def read(path):
    with open(os.path.join(ROOT, path), errors="replace") as source:
        return source.read()


def is_test(path):
    return path.startswith("tests/") or path.endswith(("_test.c", "_test.h"))


# ---- folders and files ----

def note_sizes(paths):
    """Folders and files that may hold two ideas."""
    folders = collections.Counter(os.path.dirname(p) for p in paths
                                  if p.endswith((".c", ".py")) and not is_test(p))
    for path in paths:
        lines = read(path).count("\n")
        if lines > LINES_MAX and path not in LONG_BY_NATURE:
            yield "note: %s has %d lines (more than %d)" % (path, lines, LINES_MAX)
    for folder, number in sorted(folders.items()):
        if number > SOURCES_MAX:
            yield "note: %s has %d sources (more than %d)" % (folder, number, SOURCES_MAX)


def check_folders(paths):
    """Rules about the tree: (key of the exception, number, what is wrong)."""
    names, tests = collections.defaultdict(list), collections.defaultdict(list)
    for path in paths:
        folder, name = os.path.split(path)
        if path.endswith(".c") and not is_test(path) and not folder.startswith(COMMANDS):
            names[name].append(folder)  # a command may be called as what it commands is
        if re.match(r"test_\w+\.py$|\w+_test\.c$", name):
            tests[name].append(folder)
        if "\n" not in read(path) and not path.endswith("__init__.py"):
            yield "empty " + path, 1, "%s is empty" % path
        head = re.match(r"/\*[^\n]*\n \*\n \* (\S+\.[ch]) - ", read(path))
        if head and head[1] not in (path, path.replace("include/", "", 1)):
            yield "head " + path, 1, "%s calls itself %s" % (path, head[1])
    for name, where in sorted(names.items()):
        if len(where) > 1 and name not in ROLES + ONE_FEATURE:
            yield "same " + name, len(where), "%s stands in %s: one feature, or two names" % (
                name, " and ".join(where))
    for name, where in sorted(tests.items()):
        if len(where) > 1:
            yield "same " + name, len(where), "%s is a test in %s" % (name, " and ".join(where))


# ---- strata ----

def stratum(path, house):
    """Number of the stratum that a file of a house stands in, None: of none."""
    below = os.path.relpath(os.path.dirname(path), house)
    first = below.split("/")[0]
    for number, folders in enumerate(STRATA[house]):
        if first in folders.split():
            return number
    return None


def house_of(path):
    return next((h for h in STRATA if path.startswith(h + "/")), None)


# A definition at the left margin that others can see: a function, or a variable.
FUNCTION = re.compile(r"^(?!static|typedef|extern|#|\})[A-Za-z_][^;{}#=()]*?\b(\w+)\([^;{}]*\)"
                      r"[^;{}()=]*\n\{", re.M)
VARIABLE = re.compile(r"^(?!static|typedef|extern|#|\}|return)[A-Za-z_][\w \t*]*?[ *](\w+)"
                      r"(?:\[[^\]\n]*\])*(?: =[^\n]*|;)", re.M)


class Symbols:
    """Definitions and uses of symbols in all C of the product."""

    def __init__(self, paths):
        self.code = {p: blanked(read(p)) for p in paths if p.endswith(".c") and not is_test(p)}
        self.owner = collections.defaultdict(set)
        for path, code in self.code.items():
            for pattern in (FUNCTION, VARIABLE):
                for name in pattern.findall(code):
                    self.owner[name].add(path)
        self.uses = {p: self.used_by(p, c) for p, c in self.code.items()}

    def used_by(self, path, code):
        """{(file, symbol)}: names of others in a file's code, but for its own and members."""
        words = set(re.findall(r"(?<![\w.>])([A-Za-z_]\w*)", code))
        static = set(re.findall(r"^static [^;{}=(]*?\b(\w+)(?:\(|\[|;| =)", code, flags=re.M))
        return {(owner, w) for w in words & set(self.owner) - static
                for owner in self.owner[w]
                if path not in self.owner[w] and same_link(path, owner)}


def same_link(path, other):
    """May one use a name of the other?  A plugin's names are its own, and so are its report's,
    which runs in the command's process."""
    plugins = "plugins/"
    if not path.startswith(plugins) and not other.startswith(plugins):
        return True
    return path.startswith(plugins) and other.startswith(plugins) \
        and link_of(path)[1] == link_of(other)[1]


def check_strata(paths, symbols):
    for path in paths:
        house = house_of(path)
        if not house or is_test(path) or not path.endswith((".c", ".h")):
            continue
        own = stratum(path, house)
        if own is None:
            yield "unknown " + path, 1, "%s is in no stratum of %s" % (path, house)
            continue
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', read(path), flags=re.M):
            target = resolve(name, path)
            if target and house_of(target) == house and target not in SHARED \
                    and (stratum(target, house) or 0) > own:
                yield "include %s %s" % (path, target), 1, "%s may not include %s" % (path, target)
        for owner, symbol in sorted(symbols.uses.get(path, ())):
            if symbol not in OWNERS and house_of(owner) == house \
                    and (stratum(owner, house) or 0) > own:
                yield "symbol %s %s" % (path, symbol), 1, "%s may not use %s() of %s" % (
                    path, symbol, owner)


# ---- knots ----

def components(graph):
    """The sets of files each of which needs, by others, all the others (Tarjan)."""
    number, low, stack, on_stack, found = {}, {}, [], set(), []
    sys.setrecursionlimit(10000)

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        on_stack.add(node)
        for other in graph.get(node, ()):
            if other not in number:
                visit(other)
            if other in on_stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            at = stack.index(node)
            found.append(sorted(stack[at:]))
            on_stack.difference_update(stack[at:])
            del stack[at:]

    for path in sorted(graph):
        if path not in number:
            visit(path)
    return found


def knots(symbols):
    """{house: its largest knot}; a house is core, the SDK, the command, or a plugin."""
    houses = collections.defaultdict(set)
    for path in symbols.uses:
        houses["/".join(path.split("/")[:1 + path.startswith("plugins/")])].add(path)
    return {h: max(components({p: sorted({o for o, _ in symbols.uses[p]} & files) for p in files}),
                   key=len)
            for h, files in sorted(houses.items())}


def check_knots(symbols):
    for where, files in knots(symbols).items():
        if len(files) > KNOT_MAX:
            yield "knot " + where, len(files), "%d files of %s need each other (at most %d)" % (
                len(files), where, KNOT_MAX)


# ---- the list of exceptions ----

def exceptions():
    """{key: the number that is allowed}."""
    if not os.path.exists(EXCEPTIONS):
        return {}
    with open(EXCEPTIONS) as source:
        rows = [t.split() for t in source if t.strip() and not t.startswith("#")]
    return {" ".join(r[:-1]): int(r[-1]) for r in rows}


def write(found):
    with open(EXCEPTIONS, "w") as out:
        out.write("# What breaks a rule of check_rooms.py today: may only shrink.\n")
        out.writelines("%s %d\n" % item for item in sorted(found.items()))


def complaints(found, known):
    for key, number, what in found:
        if key not in known:
            yield what
        elif number > known[key]:
            yield what + ", and had %d" % known[key]
        elif number < known[key]:
            yield "%s: %d is enough in room_exceptions.txt (--write)" % (key, number)
    for key in sorted(set(known) - {k for k, _, _ in found}):
        yield "%s: no exception any more; out of room_exceptions.txt with it (--write)" % key


def main(arguments):
    paths = sorted(set(c_files()) | set(sources()))
    symbols = Symbols(paths)
    if arguments == ["--knot"]:
        for where, files in knots(symbols).items():
            if len(files) > 1:
                print("\n".join(files + ["%d files of %s need each other" % (len(files), where)]))
        return 0
    found = list(check_folders(paths)) + list(check_strata(paths, symbols)) \
        + list(check_knots(symbols))
    if arguments == ["--write"]:
        write({key: number for key, number, _ in found})
        return 0
    if arguments:
        sys.exit(__doc__)
    wrong = list(complaints(found, exceptions()))
    print("".join(line + "\n" for line in wrong + list(note_sizes(paths))), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
