// SPDX-License-Identifier: Apache-2.0
//
// client.mjs - try core/server/page/client.js in node: node client.mjs CLIENT.JS ADDRESS TOKEN
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const [file, address, token] = process.argv.slice(2);
const { connect, ProbingError } = await import(pathToFileURL(file));
const probing = connect(address, { token });

const answer = await probing.query("select 1 as n, 'ä' as s");
assert.deepEqual(answer.rows, [{ n: 1, s: "ä" }]);
assert.equal(answer.lost, 0);
assert.equal(await probing.eval("6 * 7"), "42\n");
assert.match(await probing.backtrace(), /MainThread/);
assert.match(await probing.run("info"), /^pid: /);

await assert.rejects(probing.query("selct 1"), (error) =>
  error instanceof ProbingError && error.code === "EINVAL" && /line 1/.test(error.message));
await assert.rejects(probing.run("tabels"), (error) =>
  error.code === "ENOENT" && /tables/.test(error.hint) && error.status === 404);
await assert.rejects(connect(address, { token: "wrong" }).run("info"), (error) =>
  error.code === "EACCES" && error.status === 401);
await assert.rejects(probing.eval("1 / 0"), /ZeroDivisionError/);

if (globalThis.WebSocket) {
  await probing.run("script", "run", "rows", `local t = probing.table("rows", {n = "i64"})
    local n = 0
    probing.every("10ms", function() n = n + 1; t:add{n = n}; probing.publish({n = n}) end)`);
  const seen = [];
  for await (const row of probing.subscribe("script.rows", { interval_ms: 20 })) {
    seen.push(row.n);
    if (seen.length === 20) break;
  }
  assert.deepEqual(seen, seen.map((_, i) => seen[0] + i));
  for await (const { topic, data } of probing.follow("script.rows")) {
    assert.equal(topic, "script.rows");
    assert.ok(data.n > 0);
    break;
  }
  await assert.rejects(async () => {
    for await (const row of probing.subscribe("script.rowz")) assert.fail(row);
  }, /script.rows/);
  await assert.rejects(async () => {
    const other = connect(address, { token: "wrong" });
    for await (const row of other.subscribe("script.rows")) assert.fail(row);
  }, ProbingError);
  console.log("streams tried");
}
probing.close();
console.log("all as it should be");
