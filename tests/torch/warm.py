# SPDX-License-Identifier: Apache-2.0
"""A Python that has torch imported, and forks itself into one target after another, as worker
processes of real jobs are made: importing it takes most of what a short target computes.

It reads a line of JSON for each, {"argv", "env", "log"}, and answers with the target's pid.  The
target's parent has ended when that is said: who asked for orphans is its parent now (cases.py)."""
import json
import os
import sys
import types

import torch

if hasattr(torch, "compiler"):  # torch 2: else an optimizer's first step imports it
    import torch._dynamo  # noqa: F401


def become(argv, env, log):
    """All that a new process of this program would have of its own."""
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    for fd, path, flags in ((0, os.devnull, os.O_RDONLY),
                            (1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, fd)
        os.close(opened)
    os.dup2(1, 2)
    os.chdir(os.path.dirname(log))
    sys.argv[:] = argv
    sys.path[0] = os.path.dirname(argv[0])
    sys.path[1:1] = [path for path in env.get("PYTHONPATH", "").split(":") if path]
    main = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = argv[0], __builtins__
    sys.modules["__main__"] = main
    return main


for line in sys.stdin:
    wanted = json.loads(line)
    ends, end = os.pipe()
    between = os.fork()
    if between == 0:
        target = os.fork()
        if target == 0:
            break
        os.write(end, b"%d" % target)
        os._exit(0)
    os.waitpid(between, 0)
    print(os.read(ends, 20).decode(), flush=True)
    os.close(ends)
    os.close(end)
else:
    sys.exit()
os.close(ends)
os.close(end)
main = become(**wanted)
with open(main.__file__) as text:
    program = compile(text.read(), main.__file__, "exec")
exec(program, main.__dict__)
