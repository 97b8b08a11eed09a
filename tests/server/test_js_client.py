# SPDX-License-Identifier: Apache-2.0
"""core/server/page/client.js, as node runs it; a browser is not needed for what it does."""
import shutil
import subprocess

import pytest

from wire import open_door
from world import LIMIT, ROOT

CLIENT = ROOT / "core" / "server" / "page" / "client.js"


def node_flags():
    """Words that give node WebSocket: none from 22 on, a flag from 20.10; None: it cannot."""
    for flags in ([], ["--experimental-websocket"]):
        done = subprocess.run(["node", *flags, "-e", "process.exit(globalThis.WebSocket ? 0 : 1)"],
                              capture_output=True)
        if done.returncode == 0:
            return flags
    return None


@pytest.mark.skipif(not shutil.which("node"), reason="no node (Debian: nodejs)")
def test_javascript_client(world):
    door = open_door(world)
    flags = node_flags()
    client = world.tmp / "client.mjs"  # node takes .js for a module only with a package.json
    shutil.copy(CLIENT, client)
    done = subprocess.run(["node", *(flags or []), str(ROOT / "tests" / "server" / "client.mjs"),
                           str(client), "http://127.0.0.1:%d" % door.port, door.token],
                          capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and "all as it should be" in done.stdout, done.stderr
    assert flags is None or "streams tried" in done.stdout
