// SPDX-License-Identifier: Apache-2.0
//
// page.js - what the short page at "/" shows: what this process is, and the answer to a query.
import { connect } from "./client.js";

const probing = connect();
const byId = (id) => document.getElementById(id);

function cell(kind, value) {
  const made = document.createElement(kind);
  made.textContent = value === null ? "" : String(value);
  return made;
}

function row(kind, values) {
  const made = document.createElement("tr");
  made.append(...values.map((value) => cell(kind, value)));
  return made;
}

async function ask(event) {
  event?.preventDefault();
  const table = byId("answer");
  try {
    const { columns, rows, elapsed_ms: ms, empty } = await probing.query(byId("sql").value);
    const names = columns.map((column) => column.name);
    table.replaceChildren(row("th", names), ...rows.map((r) => row("td", names.map((n) => r[n]))));
    byId("note").textContent =
      `${rows.length} rows, ${ms.toFixed(1)} ms` + (empty ? `: ${empty}` : "");
  } catch (error) {
    table.replaceChildren();
    byId("note").textContent = error.message;
  }
}

byId("form").addEventListener("submit", ask);
byId("info").textContent = await probing.run("info").catch((error) => error.message);
await ask();
