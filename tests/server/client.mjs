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
const ODD = `select 9223372036854775807 as most, -9007199254740993 as odd, 9007199254740991 as safe,
  'x9223372036854775807 "\\' as s, 0.1234567890123456789 as d, 1e300 as e, 'NaN' as t,
  'nan'::double as nan, '-inf'::double as inf, null::double as none`;
const SAME = { most: 9223372036854775807n, odd: -9007199254740993n, safe: 9007199254740991,
  s: 'x9223372036854775807 "\\', d: 0.1234567890123456789, e: 1e300, t: "NaN", nan: NaN,
  inf: -Infinity, none: null };
assert.deepEqual((await probing.query(ODD)).rows, [SAME]);
const stream = await probing.arrow("select 'ä' as s");
assert.ok(stream instanceof Uint8Array);
assert.deepEqual([...stream.slice(0, 4), ...stream.slice(-8)],
  [255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0]);
await assert.rejects(probing.arrow("selct 1"), /line 1/);
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
  for await (const row of probing.subscribe(ODD, { interval_ms: 20 })) {
    assert.deepEqual(row, SAME);
    break;
  }
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
