# SPDX-License-Identifier: Apache-2.0
"""The licences of what is linked in, taken from the libraries' own files while they are built.

deps.py leaves DIR/licenses/NAME.txt for each; packages.py makes one text and a list of parts
(CycloneDX) of them.
"""
import os
import re

# Library -> its licence as SPDX writes it, whose home it is, and the files that hold the words: of
# a C file, the comments with a copyright.
OF = {
    "lua": ("MIT", "https://www.lua.org/", ["src/lua.h"]),
    "lmdb": ("OLDAP-2.8", "https://www.symas.com/lmdb",
             ["libraries/liblmdb/COPYRIGHT", "libraries/liblmdb/LICENSE"]),
    "zlib": ("Zlib", "https://zlib.net/", ["zlib.h"]),
    "libwebsockets": ("MIT AND BSD-3-Clause", "https://libwebsockets.org/",
                      ["LICENSE", "lib/misc/sha-1.c", "lib/misc/base64-decode.c",
                       "lib/core/context.c"]),
    "libunwind": ("MIT", "https://www.nongnu.org/libunwind/", ["COPYING"]),
}

# The changes that deps.py makes in them.
CHANGED = {
    "lua": "mends of lua_mends.py; ends where it is asked to; texts are compared by their bytes",
    "libwebsockets": "its event pipe is closed with its context",
    "libunwind": "signed return addresses of aarch64 are no error",
}


def words_of(path):
    """The text of a licence file; of a C file, the first comment with a copyright and its terms."""
    with open(path, errors="replace") as source:
        text = source.read()
    if not path.endswith((".c", ".h")):
        return text.strip("\n")
    comments = [c for c in re.findall(r"/\*(.*?)\*/", text, flags=re.S)
                if "Copyright" in c and re.search("[Pp]ermission|Redistribution", c)]
    if not comments:
        return ""
    return re.sub(r"^[ \t]*\*+[ \t]?", "", comments[0].strip("*\n"), flags=re.M).strip("\n* ")


def collect(name, tree, into):
    """Write into/NAME.txt; gives False where the source tells no licence."""
    found = [os.path.join(tree, f) for f in OF[name][2]]
    texts = [words_of(f) for f in found if os.path.isfile(f)]
    texts = [t for t in texts if t]
    if texts:
        with open(os.path.join(into, name + ".txt"), "w") as out:
            out.write("\n\n".join(texts) + "\n")
    return bool(texts)
