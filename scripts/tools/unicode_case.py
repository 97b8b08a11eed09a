#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Print core/sql/value/case_ranges.h: which letters of Unicode have another case, and which it is;
or letter_ranges.h: what a letter is at all.

usage: scripts/tools/unicode_case.py > core/sql/value/case_ranges.h
       scripts/tools/unicode_case.py letters > core/sql/value/letter_ranges.h
       clang-format -i core/sql/value/letter_ranges.h

From Python's own copy of the Unicode Character Database (its version stands in the output); only
mappings of one letter to one letter, as in PostgreSQL.
"""
import sys
import unicodedata


def ranges(change):
    """(first, last, step, delta) of letters that differ from their other case by the same."""
    found = []
    for code in range(0x80, 0x110000):
        if 0xd800 <= code < 0xe000:
            continue
        other = change(chr(code))
        if len(other) != 1 or ord(other) == code:
            continue
        delta = ord(other) - code
        if found and found[-1][3] == delta:
            first, last, step, _ = found[-1]
            gap = code - last
            if gap <= 2 and (first == last or step == gap):
                found[-1] = (first, code, gap, delta)
                continue
        found.append((code, code, 1, delta))
    return found


def table(name, rows):
    print("static const struct case_range %s[] = {" % name)
    for row in rows:
        print("    {0x%04x, 0x%04x, %d, %d}," % row)
    print("};")


def is_letter(code):
    """As the C library says it: digits of other scripts are letters, and so are Indic vowels."""
    kind = unicodedata.category(chr(code))
    indic = 0x483 <= code < 0x1cd0 or 0xa800 <= code < 0xabff or 0x11000 <= code < 0x12000
    return (kind[0] == "L" or kind in ("Nl", "Nd", "Mc") or 0x24b6 <= code <= 0x24e9
            or (kind == "Mn" and indic))


def letters():
    """(first, last); what is not assigned goes with the range around it."""
    found, open_range = [], False
    for code in range(0x80, 0x110000):
        if 0xd800 <= code < 0xe000 or unicodedata.category(chr(code)) == "Cn":
            continue
        if is_letter(code) and open_range:
            found[-1][1] = code
        elif is_letter(code):
            found.append([code, code])
        open_range = is_letter(code)
    return found


HEAD = """/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/%s.h - made from Unicode %s by
 * scripts/tools/unicode_case.py; not to be edited.
 */
#ifndef CORE_SQL_VALUE_%s_H
#define CORE_SQL_VALUE_%s_H

#include <stdint.h>
"""


def head(name):
    print(HEAD % (name, unicodedata.unidata_version, name.upper(), name.upper()))


if sys.argv[1:] == ["letters"]:
    head("letter_ranges")
    print("/* first, last: ascending */")
    print("static const uint32_t letter_ranges[][2] = {")
    rows = ["{0x%04x, 0x%04x}" % tuple(r) for r in letters()]
    for at in range(0, len(rows), 4):
        print("    %s," % ", ".join(rows[at : at + 4]))
    print("};\n\n#endif")
    sys.exit()
head("case_ranges")
print("""struct case_range { /* every `step`th letter from first to last; ascending */
    uint32_t first, last, step;
    int32_t delta; /* to its other case */
};
""")
table("to_lower", ranges(str.lower))
print()
table("to_upper", ranges(str.upper))
print("\n#endif")
