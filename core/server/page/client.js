// SPDX-License-Identifier: Apache-2.0
//
// client.js - ask a process that has probing in it, from a page or from node (18 or later).
//
//     import { connect } from "./client.js";
//     const probing = connect("http://127.0.0.1:9922", { token });
//     const { rows } = await probing.query("select name, rows from probing.tables");
//     for await (const row of probing.subscribe("python.torch_trace")) console.log(row);
//
// No dependency.  Streams need a WebSocket: browsers and node 22 have one; else give one as option.
// In a page served by the process itself neither address nor token is needed.

/** What the process answered instead of an answer: code ("EINVAL"), hint, status. */
export class ProbingError extends Error {
  constructor(message, { code = "ERROR", hint = "", status = 0 } = {}) {
    super(hint ? `${message}; ${hint}` : message);
    Object.assign(this, { name: "ProbingError", code, hint, status });
  }
}

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;

/** JSON.parse() rounds integers beyond 2^53; here these become BigInts. */
function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const marked = text.replace(TOKENS, (token) =>
    /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `{" int":"${token}"}` : token);
  return JSON.parse(marked, (_, value) =>
    /^-?\d{16,}$/.test(value?.[" int"]) ? BigInt(value[" int"]) : value);
}

/** Of a double: JSON has NaN and infinities as texts. */
const double = (value) => (typeof value === "string" ? Number(value) : value);

export function connect(address = globalThis.location?.origin, options = {}) {
  return new Client(address, options);
}

class Client {
  #base;
  #token;
  #fetch;
  #WebSocket;
  #streams = new Set();

  constructor(address, { token, fetch = globalThis.fetch, WebSocket = globalThis.WebSocket }) {
    const text = String(address);
    this.#base = new URL(text.includes("://") ? text : `http://${text}`);
    this.#token = token ?? this.#base.searchParams.get("token");
    this.#fetch = fetch.bind(globalThis);
    this.#WebSocket = WebSocket;
  }

  /** {columns, rows, row_count, elapsed_ms, lost, truncated}; rows are objects by column name, integers
   * beyond 2^53 BigInts.  empty: why there are no rows, where that is known. */
  async query(sql) {
    const answer = parse(await this.#post("/query", sql));
    const { columns } = answer;
    const read = (v, i) => [columns[i].name, columns[i].type === "double" ? double(v) : v];
    answer.rows = answer.rows.map((row) => Object.fromEntries(row.map(read)));
    return answer;
  }

  /** The same as an Arrow stream: a Uint8Array, for tableFromIPC() of apache-arrow and others. */
  async arrow(sql) {
    const answer = await this.#ask("/query?format=arrow", sql);
    return new Uint8Array(await answer.arrayBuffer());
  }

  /** Run Python there; what it prints, and the value of its last line. */
  eval(code) {
    return this.#post("/eval", code);
  }

  /** The stacks of all threads, as text. */
  backtrace(...words) {
    return this.run("backtrace", ...words);
  }

  /** Any command, by its words; its answer as text. */
  run(...words) {
    return this.#post("/run", JSON.stringify({ run: words.map(String) }));
  }

  /** New rows of a table, or of a select, as they arrive: an async iterator; .lost, .close(). */
  subscribe(what, { interval_ms = 1000, last = 0 } = {}) {
    const read = (text) => text.split("\n").filter(Boolean).map(parse);
    return this.#stream({ subscribe: what, interval_ms, last }, read, this.#doubles(what));
  }

  /** What scripts publish: {topic, data}; topic: "script.NAME" or "script.*". */
  follow(topic) {
    return this.#stream({ follow: topic }, null, []);
  }

  close() {
    for (const stream of this.#streams) stream.close();
  }

  async #post(path, body) {
    return (await this.#ask(path, body)).text();
  }

  /** The response, when it is no refusal. */
  async #ask(path, body) {
    const headers = this.#token ? { Authorization: `Bearer ${this.#token}` } : {};
    const answer = await this.#fetch(new URL(path, this.#base), { method: "POST", headers, body });
    if (answer.ok) return answer;
    const text = await answer.text();
    let error;
    try {
      ({ error } = JSON.parse(text));
    } catch {
      throw new ProbingError(text.trim() || answer.statusText, { status: answer.status });
    }
    throw new ProbingError(error.message, { ...error, status: answer.status });
  }

  /** Names of the columns that are doubles: lines of JSON do not say. */
  async #doubles(what) {
    const from = /^\s*[\w.]+\s*$/.test(what) ? what : `(${what}) as q`;
    try {
      const { columns } = await this.query(`select * from ${from} limit 0`);
      return columns.filter(({ type }) => type === "double").map(({ name }) => name);
    } catch {
      return []; // what is wrong with it the stream says
    }
  }

  #stream(request, read, doubles) {
    if (!this.#WebSocket)
      throw new ProbingError("no WebSocket here", { hint: "connect(address, { WebSocket })" });
    const url = new URL("/ws", this.#base);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    if (this.#token) url.searchParams.set("token", this.#token); // a WebSocket carries no headers
    const stream = new Stream(new this.#WebSocket(url, "probing.1"), request, read, doubles);
    this.#streams.add(stream);
    stream.onend = () => this.#streams.delete(stream);
    return stream;
  }
}

/** What comes waits here until it is taken; when nobody takes, the process drops the oldest. */
class Stream {
  lost = 0; // messages that the process dropped because we were slow
  lateRows = 0; // rows of a watch by buckets that came when their bucket had been told
  onend = null;
  #socket;
  #read;
  #doubles;
  #waiting = [];
  #wake = null;
  #error = null;
  #over = false;

  constructor(socket, request, read, doubles) {
    this.#socket = socket;
    this.#read = read;
    this.#doubles = doubles;
    socket.onopen = () => socket.send(JSON.stringify({ id: 1, ...request }));
    socket.onmessage = (event) => this.#take(parse(event.data));
    socket.onerror = () =>
      this.#end(new ProbingError("no connection", { hint: "is the token right?" }));
    socket.onclose = (event) => this.#end(event.reason ? new ProbingError(event.reason) : null);
  }

  close() {
    this.#end(null);
  }

  async *[Symbol.asyncIterator]() {
    try {
      const doubles = await this.#doubles;
      for (;;) {
        while (this.#waiting.length) {
          const row = this.#waiting.shift();
          for (const name of doubles) row[name] = double(row[name]);
          yield row;
        }
        if (this.#error) throw this.#error;
        if (this.#over) return;
        await new Promise((wake) => (this.#wake = wake));
      }
    } finally {
      this.close();
    }
  }

  #take(message) {
    if (message.dropped) this.lost += message.dropped;
    this.lateRows += message.late_rows ?? 0;
    if (message.event) this.#waiting.push({ topic: message.event, data: message.data });
    else if (message.data !== undefined) this.#waiting.push(...this.#read(message.data));
    const { error, hint = "" } = message;
    const said = hint ? error?.slice(0, -`; ${hint}`.length) : error;
    if (error) this.#end(new ProbingError(said, { hint }));
    else if (message.done !== undefined) this.#end(null);
    this.#wake?.();
  }

  #end(error) {
    if (this.#over) return;
    this.#over = true;
    this.#error = error;
    this.#socket.close();
    this.onend?.();
    this.#wake?.();
  }
}
