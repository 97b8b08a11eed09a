#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Turn texts into C, so that one .so carries them.

usage: pack.py OUT.c OUT.h FOLDER FILE...

FILE's bytes become `pack_<name>` and its length `pack_<name>_size`, where <name> is the path below
FOLDER with everything but letters and digits as `_`: page/index.html is pack_page_index_html.
A zero byte follows each text (not counted), so that it can be used as a string.
"""
import os
import re
import sys

HEAD = "/* SPDX-License-Identifier: Apache-2.0\n *\n * Made by scripts/tools/pack.py. */\n"


def symbol(path, folder):
    return "pack_" + re.sub(r"[^A-Za-z0-9]", "_", os.path.relpath(path, folder))


def c_bytes(data):
    """The initialiser's lines, 20 numbers each; the closing 0 makes it a string."""
    numbers = [str(b) for b in data] + ["0"]
    return ",\n".join(",".join(numbers[i:i + 20]) for i in range(0, len(numbers), 20))


def main(out_c, out_h, folder, *files):
    source = [HEAD, '#include "%s"\n' % os.path.basename(out_h)]
    header = [HEAD, "#pragma once\n#include <stddef.h>\n"]
    for path in files:
        name = symbol(path, folder)
        with open(path, "rb") as text:
            data = text.read()
        source.append("const unsigned char %s[] = {\n%s};\nconst size_t %s_size = %d;\n"
                      % (name, c_bytes(data), name, len(data)))
        header.append("extern const unsigned char %s[];\nextern const size_t %s_size;\n"
                      % (name, name))
    for path, lines in ((out_c, source), (out_h, header)):
        with open(path, "w") as out:
            out.write("".join(lines))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
