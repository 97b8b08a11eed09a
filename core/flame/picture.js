// SPDX-License-Identifier: Apache-2.0
// Zoom (click) and search in a flame graph's SVG; works in a browser, offline.
"use strict";
(() => {
  const graph = document.getElementById("boxes"), said = document.getElementById("said");
  const WIDTH = graph.ownerSVGElement.viewBox.baseVal.width, tails = graph.hasAttribute("data-tails");
  const boxes = [...graph.children].map(g => {
    const r = g.querySelector("rect");
    return {g, r, t: g.querySelector("text"), name: g.querySelector("title").textContent,
            x: +r.getAttribute("x"), w: +r.getAttribute("width"), y: +r.getAttribute("y")};
  });
  const label = b => b.name.replace(/ - [\d.]+ (ms|MB), [\d.]+ %(, \d+ samples?)?(, before [\d.]+ %)?$/, "");
  const zoom = to => {
    for (const b of boxes) {
      const inside = b.x + b.w > to.x + 1e-3 && b.x < to.x + to.w - 1e-3;
      b.g.style.display = inside ? "" : "none";
      if (!inside) continue;
      const x = Math.max(0, (b.x - to.x) / to.w * WIDTH);
      const end = Math.min(WIDTH, (b.x + b.w - to.x) / to.w * WIDTH);
      b.r.setAttribute("x", x);
      b.r.setAttribute("width", Math.max(0.3, end - x));
      b.t.setAttribute("x", x + 3);
      const letters = Math.floor((end - x) / 7), text = label(b);
      b.t.textContent = letters <= 2 ? "" : tails && text.length > letters ?
        ".." + text.slice(2 - letters) : text.slice(0, letters);
      b.r.style.opacity = b.y < to.y ? 0.5 : 1;
    }
  };
  for (const b of boxes) {
    b.r.addEventListener("click", () => zoom(b));
    b.r.addEventListener("mouseover", () => { said.textContent = b.name; });
  }
  document.getElementById("search").addEventListener("click", () => {
    const text = prompt("regular expression:", "");
    if (text === null) return;
    let wanted;
    try { wanted = text ? new RegExp(text, "i") : null; } catch (e) { said.textContent = e; return; }
    let share = 0, until = -1;
    for (const b of boxes) { // outer boxes come first, left ones before right ones
      const found = wanted !== null && wanted.test(label(b));
      b.g.setAttribute("class", found ? "found" : "");
      if (found && b.x >= until - 1e-3) { share += b.w; until = b.x + b.w; }
    }
    said.textContent = wanted ? "found: " + (100 * share / WIDTH).toFixed(2) + " %" : "";
  });
})();
