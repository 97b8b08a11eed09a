# SPDX-License-Identifier: Apache-2.0
"""Answers each line, a number, with its square; with "torch" by tensors and a backward pass.

A thread for each client, for programs.py."""
import json
import socketserver
import sys

if sys.argv[1:] == ["torch"]:
    import torch
    torch.set_num_threads(2)

    def square(n):
        x = torch.full((300, 40), float(n % 1000), dtype=torch.float64, requires_grad=True)
        (x * x).sum().backward()
        assert bool((x.grad == 2.0 * (n % 1000)).all())
        return int(torch.tensor(n, dtype=torch.int64).pow(2))
else:
    kept = {}

    def square(n):
        kept[n % 1000] = bytearray(n % 100000)
        rows = json.loads(json.dumps([{"n": n, "i": i, "text": "x" * (i * 7)} for i in range(40)]))
        return rows[n % 40]["n"] ** 2


class Lines(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"%d\n" % square(int(line)))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 100


with Server(("127.0.0.1", 0), Lines) as server:
    print("port %d" % server.server_address[1], flush=True)
    server.serve_forever()
