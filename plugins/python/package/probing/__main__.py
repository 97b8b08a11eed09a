# SPDX-License-Identifier: Apache-2.0
"""`python -m probing ...` is the command `probing ...` of this installation."""
import os
import sys

from . import _where


def main():
    beware = _where.foreign(commands=True)
    try:
        path = _where.command()
        if beware:
            sys.stderr.write("probing: %s\n" % beware)
        _where.refuse_machine(path)
        os.execv(path, [path] + sys.argv[1:])
    except (_where.ProbingError, OSError) as error:
        sys.stderr.write("probing: %s\n" % (beware or error))
    return 1


sys.exit(main())
