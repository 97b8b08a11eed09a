# SPDX-License-Identifier: Apache-2.0
"""How a benchmark says what it measured: one line a figure, which bench.py and people can read.

    figure TAB name TAB unit TAB key=value TAB key=value ...

Keys are statistics and hold numbers (least, median, p99, most ...), but for three: `against` is the
name of another figure of this run, `ratio` this one's first statistic divided by that of the other,
and `goal` what we set ourselves, as text.  Lines that begin with `# ` are remarks.  bench.h
prints the same from C.
"""
import sys

SKIPPED = 77  # exit code of a benchmark that cannot run here; its last remark says why


def figure(name, unit, against=None, ratio=None, goal=None, **statistics):
    """Print one figure; a statistic that is None was not measured and is left out."""
    words = ["figure", name, unit]
    words += ["%s=%.6g" % pair for pair in statistics.items() if pair[1] is not None]
    if ratio is not None:
        words.append("ratio=%.4g" % ratio)
    words += ["%s=%s" % pair for pair in (("against", against), ("goal", goal)) if pair[1]]
    print("\t".join(words), flush=True)


def remark(text):
    print("# " + text, flush=True)


def skip(why):
    """The benchmark cannot run here."""
    remark(why)
    sys.exit(SKIPPED)
