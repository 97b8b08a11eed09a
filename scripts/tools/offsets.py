#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The public headers as tables: where each field is, how big each struct, what each enum says.

usage: offsets.py                    print them, as the compiler sees include/probing/*.h
       offsets.py --write            save each as the table of the header's own ABI version
       offsets.py --check TABLE      exit 1 if the header breaks what TABLE promised

offsets_1_0.txt is of plugin.h, offsets_report_1_0.txt of report.h.

A later header may add structs, enum constants, and fields behind the last one of a struct that
grows; every line of a saved table stays true.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDE = os.path.join(ROOT, "include", "probing")
HEADERS = {"offsets_report_": ("report.h", "PROBING_REPORT"),  # table's name: its header and prefix
           "offsets_": ("plugin.h", "PROBING_ABI")}
TABLES = os.path.join(ROOT, "tests", "abi")


def header_text(name):
    with open(os.path.join(INCLUDE, name)) as source:
        text = re.sub(r"/\*.*?\*/", "", source.read(), flags=re.S)
    return re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)


def field_names(body):
    """The names a struct's body declares; a function pointer's is inside its first brackets."""
    for declaration in body.split(";"):
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
        if pointer:
            yield pointer[1]
            continue
        for part in declaration.split(","):
            name = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", part.strip())
            if name:
                yield name[1]


def aggregates(text):
    return re.findall(r"\b(struct|union)\s+(probing_\w+)\s*\{(.*?)\n?\}\s*;", text, flags=re.S)


def enum_constants(text):
    for body in re.findall(r"\benum\b[^{;]*\{(.*?)\}", text, flags=re.S):
        for part in body.split(","):
            name = re.match(r"\s*(\w+)", part)
            if name:
                yield name[1]


def program(header, prefix):
    text = header_text(header)
    lines = ["#include <probing/%s>" % header, "#include <stddef.h>", "#include <stdio.h>",
             "int main(void) {",
             'printf("abi %%u.%%u\\n", (unsigned)%s_MAJOR, (unsigned)%s_MINOR);'
             % (prefix, prefix)]
    for kind, name, body in aggregates(text):
        whole = "%s %s" % (kind, name)
        lines.append('printf("size %s %%zu\\n", sizeof(%s));' % (name, whole))
        for field in field_names(body):
            lines.append('printf("field %s.%s %%zu %%zu\\n", offsetof(%s, %s), '
                         'sizeof(((%s *)0)->%s));' % (name, field, whole, field, whole, field))
    for name in enum_constants(text):
        lines.append('printf("enum %s %%lld\\n", (long long)%s);' % (name, name))
    return "\n".join(lines + ["return 0; }", ""])


def table(start):
    """Read the tables whose names start so from their header."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "t.c"), os.path.join(folder, "t")
        with open(source, "w") as out:
            out.write(program(*HEADERS[start]))
        subprocess.run([os.environ.get("CC", "gcc"), "-std=c99", "-o", binary, source,
                        "-I" + os.path.join(ROOT, "include")], check=True)
        return subprocess.run([binary], stdout=subprocess.PIPE, check=True).stdout.decode()


def sizes(lines):
    return {t.split()[1]: int(t.split()[2]) for t in lines if t.startswith("size ")}


def broken_promises(saved, now):
    """Lines that say how the header of now differs from what a saved table promised."""
    saved, now = saved.splitlines(), now.splitlines()
    old_sizes, new_sizes, present = sizes(saved), sizes(now), set(now)
    for line in saved:
        if line.startswith(("field ", "enum ")) and line not in present:
            yield "gone or changed: " + line
    for name, size in old_sizes.items():
        if new_sizes.get(name, 0) < size:
            yield "smaller: %s was %d" % (name, size)
    for line in sorted(present - set(saved)):
        kind, name = line.split()[:2]
        owner = name.split(".")[0]
        if kind == "field" and owner in old_sizes and int(line.split()[2]) < old_sizes[owner]:
            yield "not at the end: " + line


def write(start):
    now = table(start)
    os.makedirs(TABLES, exist_ok=True)
    version = now.split("\n")[0].split()[1].replace(".", "_")
    path = os.path.join(TABLES, "%s%s.txt" % (start, version))
    with open(path, "w") as out:
        out.write(now)
    print(os.path.relpath(path, ROOT))


def main(arguments):
    if arguments == ["--write"]:
        for start in HEADERS:
            write(start)
        return 0
    if len(arguments) == 2 and arguments[0] == "--check":
        name = os.path.basename(arguments[1])
        now = table(next(start for start in HEADERS if name.startswith(start)))
        with open(arguments[1]) as saved:
            broken = list(broken_promises(saved.read(), now))
        print("\n".join(broken), end="\n" if broken else "")
        return 1 if broken else 0
    if arguments:
        sys.exit(__doc__)
    print("".join(table(start) for start in HEADERS), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
