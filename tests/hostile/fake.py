# SPDX-License-Identifier: Apache-2.0
"""A target that lies: it speaks our protocol, and every text in its answers is hostile."""
import base64
import hashlib
import json
import socket
import struct
import threading

# Letters that steer a terminal, hide or reorder others; NUL is left out, where C's texts end.
EVIL = ("\x1b]0;pwned\x07\x1b[2J\x1b[31m\x9b31m\x9d0;x\x9c\r\b\x7f\u202e\u2066\u200f\u061c\u200b"
        "\ufeff\U000e0041\x01\x0e")
RAW = b"\xff\x9b2J\xc0\x9b\xed\xa0\x80"  # no UTF-8
MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(text):
    n = len(text)
    size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else \
        b"\x7f" + struct.pack(">Q", n)
    return b"\x81" + size + text


class Fake:
    """status: what each command ends with; below 0 with a hostile reason, else with a note."""

    def __init__(self, status=0, evil=EVIL):
        self.status, self.evil = status, evil
        self.asked = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which would else keep its number
        self.thread.join()
        self.listener.close()

    def serve(self, client):
        try:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096) or exit_thread()
            key = head.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0].decode()
            accept = base64.b64encode(hashlib.sha1((key + MAGIC).encode()).digest()).decode()
            client.sendall(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                            "Connection: Upgrade\r\nSec-WebSocket-Protocol: probing.1\r\n"
                            "Sec-WebSocket-Accept: %s\r\n\r\n" % accept).encode())
            while True:
                text = self.receive(client)
                if text:
                    self.answer(client, json.loads(text))
        except (OSError, ConnectionError, IndexError):
            pass
        finally:
            client.close()

    @staticmethod
    def exactly(client, n):
        data = b""
        while len(data) < n:
            data += client.recv(n - len(data)) or exit_thread()
        return data

    def receive(self, client):
        first, second = self.exactly(client, 2)
        n = second & 0x7f
        if n == 126:
            n = struct.unpack(">H", self.exactly(client, 2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.exactly(client, 8))[0]
        mask = self.exactly(client, 4) if second & 0x80 else b"\0\0\0\0"
        data = bytes(c ^ mask[i % 4] for i, c in enumerate(self.exactly(client, n)))
        return data.decode() if first & 15 == 1 else ""

    def answer(self, client, asked):
        self.asked.append(asked)
        number = asked.get("id", 0)
        words = [str(w) for w in asked.get("run", [])]

        def send(**message):
            # C1 and the like both as letters and as JSON's escapes
            text = json.dumps(dict({"id": number}, **message), ensure_ascii=self.status != 0)
            client.sendall(frame(text.encode("utf-8", "surrogatepass")))

        if "cancel" in asked or (not words and "watch" not in asked and "follow" not in asked
                                 and "subscribe" not in asked):
            return
        if "follow" in asked:
            send(event=self.evil, data=[self.evil])
        elif "json" in words:
            cells = [self.evil] * 8
            send(data=json.dumps({"columns": [{"name": "c%d" % i + self.evil, "type": "text",
                                               "unit": self.evil} for i in range(8)],
                                  "rows": [cells, cells], "row_count": 2, "elapsed_ms": 1,
                                  "lost": 1, "cut": True}))
        else:
            send(data=self.evil + "\n", **({} if words else {"whole": True}))
            send(data="%s\n >>> %s" % (self.evil, self.evil))
        if self.status < 0:
            send(done=self.status, error="no: " + self.evil)
        else:
            send(done=self.status, note="note: " + self.evil)


def exit_thread():
    raise ConnectionError
