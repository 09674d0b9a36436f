// What every page needs: chunks of data, elements, the state in the address, numbers and words.
// Text from the archive becomes text nodes and attributes, never markup: nothing here parses HTML.
"use strict";
const WS = { chunks: new Map(), meta: null };

// Each data file calls this. It settles the promise of the load that asked for it.
function W(name, value) {
  const waiting = WS.chunks.get(name);
  if (waiting) waiting.resolve(value);
}

WS.load = function (name) {
  const known = WS.chunks.get(name);
  if (known) return known.promise;
  const entry = {};
  entry.promise = new Promise((resolve, reject) => { entry.resolve = resolve; entry.reject = reject; });
  WS.chunks.set(name, entry);
  const script = document.createElement("script");
  script.src = "data/" + name + ".js";
  script.onload = () => script.remove();
  script.onerror = () => entry.reject(new Error("data/" + name + ".js cannot be read: is the site complete?"));
  document.head.append(script);
  return entry.promise;
};

// h("a", {href: "x", class: "y", onclick: f}, "text", child, [children])
WS.h = function (tag, attributes, ...children) {
  return WS.fill(document.createElement(tag), attributes, children);
};
WS.s = function (tag, attributes, ...children) {
  return WS.fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
};
WS.fill = function (element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

// The address keeps the state behind the #, which works from disk as well as from any host.
WS.state = () => new URLSearchParams(location.hash.slice(1));
WS.link = (page, values) => page + ".html#" + new URLSearchParams(values).toString();
WS.remember = function (values) {
  const kept = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "" && value !== null));
  history.replaceState(null, "", "#" + new URLSearchParams(kept).toString());
};

// 32-bit FNV-1a of the UTF-8 bytes, as archive/site/chunks.py has it.
WS.hash = function (text) {
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value;
};

// Control and direction characters are spelled out: what is read is what a compiler reads.
WS.visible = (text) =>
  String(text).replace(/\r\n/g, "\n").replace(/(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/gu, (char) => {
    const code = char.codePointAt(0).toString(16);
    return code.length > 4 ? "\\U" + code.padStart(8, "0") : "\\u" + code.padStart(4, "0");
  });

WS.number = (value, digits = 2) => (value === null || value === undefined ? "" : Number(value).toFixed(digits));
WS.times = (value) => (value === null || value === undefined ? "" : WS.number(value) + "×");
WS.count = (value) => Number(value).toLocaleString("en");
WS.date = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
WS.interval = (row) => (row[4] === null || row[5] === null ? "" : WS.number(row[4]) + " to " + WS.number(row[5]));

// Rows of kernels: [id, task, status, speedup, low, high, source, operator, step, flags, seconds].
WS.status = (row) => WS.meta.statuses[row[2]];
WS.statusMark = (status) => WS.h("span", { class: "status s-" + status }, status.replace("_", " "));
WS.taskName = (row) => WS.visible(WS.meta.tasks[row[1]].name);
WS.kernelLink = (row, text) => WS.h("a", { href: WS.link("kernel", { id: row[0] }) }, WS.visible(text || row[0].slice(0, 12)));
WS.flags = (names) => names.map((name) => WS.h("span", { class: "flag" }, WS.visible(name)));

WS.kernel = async function (id) {
  const chunk = await WS.load("kernels-" + (WS.hash(id) % WS.meta.kernelChunks));
  return Object.hasOwn(chunk, id) ? chunk[id] : null;
};

WS.rowsTable = function (rows, caption) {
  const { h } = WS;
  const line = (row, place) =>
    h("tr", null,
      h("th", { scope: "row" }, h("a", { href: WS.link("task", { id: WS.meta.tasks[row[1]].id }) }, WS.taskName(row))),
      h("td", { class: "num" }, row[3] === null ? "–" : WS.times(row[3])),
      h("td", { class: "num" }, WS.interval(row)),
      h("td", null, WS.statusMark(WS.status(row))),
      h("td", null, WS.visible(WS.meta.sources[row[6]]), row[8] === null ? "" : ", step " + row[8]),
      h("td", { class: "wide" }, WS.flags(row[9].map((flag) => WS.meta.flags[flag]))),
      h("td", { class: "wide" }, WS.kernelLink(row)));
  const heads = [["Task"], ["Speedup", "num"], ["99% interval", "num"], ["Status"], ["By"], ["Marks"], ["Kernel"]];
  return h("div", { class: "scroll" }, h("table", { class: "rows" }, h("caption", null, caption),
    h("thead", null, h("tr", null, heads.map(([name, kind]) => h("th", { scope: "col", class: kind || null }, name)))),
    h("tbody", null, rows.map(line))));
};

WS.fail = function (error) {
  document.getElementById("view").replaceChildren(WS.h("p", { role: "alert" }, "This page failed: " + error.message));
};
