#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Print core/sql/value/case_ranges.h: which letters of Unicode have another case, and which it is.

usage: scripts/tools/unicode_case.py > core/sql/value/case_ranges.h

From Python's own copy of the Unicode Character Database (its version stands in the output); only
mappings of one letter to one letter, as in PostgreSQL.
"""
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


print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/case_ranges.h - made from Unicode %s by
 * scripts/tools/unicode_case.py; not to be edited.
 */
#ifndef CORE_SQL_CASE_RANGES_H
#define CORE_SQL_CASE_RANGES_H

#include <stdint.h>

struct case_range { /* every `step`th letter from first to last; ascending */
    uint32_t first, last, step;
    int32_t delta; /* to its other case */
};
""" % unicodedata.unidata_version)
table("to_lower", ranges(str.lower))
print()
table("to_upper", ranges(str.upper))
print("\n#endif")
