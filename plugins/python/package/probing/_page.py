# SPDX-License-Identifier: Apache-2.0
"""One line on stderr for whoever asked for a port: where the page is and its token, or why not."""
import os
import re
import sys
import time

WAIT_S = 2.0  # the port opens a moment after the core answers


def _address(own):
    """(host, port) that the core listens on; None: it does not yet."""
    found = re.search(r"^listening: (\S+):(\d+)$", own.run("info"), flags=re.M)
    if not found:
        return None
    host = found.group(1).strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(found.group(2))


def line(own):
    """own: a connection to the core of this process."""
    from . import _door
    deadline = time.monotonic() + WAIT_S
    while True:
        address = _address(own)
        if address or time.monotonic() > deadline:
            break
        time.sleep(0.005)
    if not address:
        why = own.query("select text from probing.log where text like 'server.listen=%' "
                        "order by ts desc limit 1").column("text")
        return "no page: %s" % (why[0] if why else "the port has not been opened yet")
    host = "[%s]" % address[0] if ":" in address[0] else address[0]
    return "page: http://%s:%d/?token=%s" % (host, address[1], _door.token_in(os.getpid()))


def tell(connect):
    """connect(): a connection to the core of this process.  Never raises."""
    try:
        with connect() as own:
            text = line(own)
    except Exception as error:
        text = "no page: %s" % error
    try:
        sys.stderr.write("probing: %s\n" % text)
    except Exception:  # whoever reads it has gone
        pass
