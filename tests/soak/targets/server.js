/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/soak/targets/server.js - answers each line, a number, with its square; for programs.py.
 */
const server = require("net").createServer((socket) => {
    socket.on("error", () => {});
    const lines = require("readline").createInterface({ input: socket });
    lines.on("error", () => {}); // newer ones pass the socket's on: a client was killed
    lines.on("line", (line) => {
        const n = Number(line);
        socket.write(n * n + "\n");
    });
});
server.listen(0, "127.0.0.1", () => console.log("port " + server.address().port));
