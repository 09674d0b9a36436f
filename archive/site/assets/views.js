// One function a page; each reads its state from the address and writes it back.
"use strict";
(function () {
  const { h } = WS;
  const view = () => document.getElementById("view");
  const PAGE_ROWS = 100;

  const option = (value, text, chosen) => h("option", { value, selected: value === chosen }, text);
  const select = (name, label, values, chosen, onchange) =>
    h("label", null, label, h("select", { name, onchange }, option("", "any", chosen), values.map(([value, text]) => option(value, WS.visible(text), chosen))));
  const facts = (pairs) => h("dl", null, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined && value.length !== 0).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
  const section = (title, ...content) => (content.some((one) => one) ? h("section", null, h("h2", null, title), content) : null);
  const scroll = (label, child) => child && h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, child);

  async function allRows(until) {
    const count = Math.ceil(WS.meta.kernels / WS.meta.indexChunk);
    const rows = [];
    for (let n = 0; n < count; n++) {
      rows.push(...(await WS.load("index-" + n)));
      if (until && until(rows)) break;
    }
    return rows;
  }

  let turn = 0;  // a slow answer to an earlier question is dropped
  async function leaderboard() {
    const mine = ++turn, state = WS.state(), read = (name) => state.get(name) || "";
    const wanted = { task: read("task"), status: read("status"), source: read("source"), operator: read("operator"), best: read("best") };
    const shown = Math.min(Number(read("rows")) || PAGE_ROWS, 100000);
    const tasks = new Map(WS.meta.tasks.map((task, n) => [task.id, n]));
    const matches = (row) =>
      (!wanted.task || row[1] === tasks.get(wanted.task)) && (!wanted.status || WS.status(row) === wanted.status) &&
      (!wanted.source || WS.meta.sources[row[6]] === wanted.source) && (!wanted.operator || WS.meta.operators[row[7]] === wanted.operator);
    const chosen = (rows) => {
      const fit = rows.filter(matches);
      if (!wanted.best) return fit;
      const seen = new Set();
      return fit.filter((row) => !seen.has(row[1]) && seen.add(row[1]));
    };
    const change = () => {
      const form = new FormData(document.querySelector("form.filters"));
      WS.remember({ task: form.get("task"), status: form.get("status"), source: form.get("source"), operator: form.get("operator"), best: form.get("best") || "" });
      leaderboard();
    };
    const names = (list) => list.map((name) => [name, name]).sort((a, b) => a[1].localeCompare(b[1]));
    if (!document.querySelector("form.filters")) view().append(h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }), h("div", { id: "rows" }));
    const form = document.querySelector("form.filters"), focused = document.activeElement && document.activeElement.name;
    form.replaceChildren(
      select("task", "Task", WS.meta.tasks.map((task) => [task.id, task.name]).sort((a, b) => a[1].localeCompare(b[1])), wanted.task, change),
      select("status", "Status", names(WS.meta.statuses), wanted.status, change), select("source", "By", names(WS.meta.sources), wanted.source, change),
      select("operator", "Asked for by", names(WS.meta.operators), wanted.operator, change),
      h("label", null, "Only the best of each task", h("input", { type: "checkbox", name: "best", value: "1", checked: wanted.best === "1", onchange: change })),
      h("button", { type: "button", onclick: () => { WS.remember({}); leaderboard(); } }, "Clear"));
    if (focused && form.elements[focused]) form.elements[focused].focus();
    const rows = await allRows((got) => chosen(got).length > shown);
    if (mine !== turn) return;
    const fit = chosen(rows), more = fit.length > shown;
    const caption = more ? `The first ${WS.count(shown)} kernels that fit, the best first` : `${WS.count(fit.length)} of ${WS.count(WS.meta.kernels)} kernels fit, the best first`;
    document.getElementById("rows").replaceChildren(fit.length ? WS.rowsTable(fit.slice(0, shown), caption) : h("p", null, "No kernel fits. Clear a filter."),
      more ? h("button", { type: "button", id: "more", onclick: () => { WS.remember({ ...wanted, rows: shown + PAGE_ROWS * 2 }); leaderboard(); } }, "Show more") : "");
  }

  function tasksPage() {
    const counts = (task) => Object.entries(task.counts).map(([status, count]) => `${count} ${WS.meta.statuses[status].replace("_", " ")}`).join(", ");
    const line = (task) => h("tr", null,
      h("th", { scope: "row" }, h("a", { href: WS.link("task", { id: task.id }) }, WS.visible(task.name))), h("td", null, task.level ? "level " + task.level : ""),
      h("td", { class: "num" }, task.best ? WS.times(task.best[3]) : "–"), h("td", { class: "num" }, task.best ? WS.interval(task.best) : ""), h("td", { class: "wide" }, counts(task)));
    const sorted = [...WS.meta.tasks].sort((a, b) => a.level - b.level || a.name.localeCompare(b.name));
    view().replaceChildren(h("div", { class: "scroll" }, h("table", { class: "rows" }, h("caption", null, `${WS.count(sorted.length)} tasks`),
      h("thead", null, h("tr", null, [["Task"], ["Level"], ["Best win", "num"], ["99% interval", "num"], ["Candidates"]].map(([name, kind]) => h("th", { scope: "col", class: kind || null }, name)))), h("tbody", null, sorted.map(line)))));
  }

  async function taskEntries(number) {
    const parts = await Promise.all(Array.from({ length: WS.meta.tasks[number].parts }, (_, n) => WS.load(`task-${number}-${n}`)));
    return parts.flat();
  }

  async function taskPage() {
    const id = WS.state().get("id"), number = WS.meta.tasks.findIndex((task) => task.id === id);
    if (number < 0) return missing("task", id, "tasks");
    const task = WS.meta.tasks[number], [entries, source] = await Promise.all([taskEntries(number), WS.load("source-" + number)]);
    document.title = WS.visible(task.name) + " · " + WS.meta.title;
    const ranked = entries.map(([row]) => row).sort((a, b) => rank(a) - rank(b) || (b[4] || b[3] || 0) - (a[4] || a[3] || 0));
    const shapes = Object.entries(task.shapes).map(([name, values]) => h("li", null, WS.visible(name) + ": " + WS.visible(Object.entries(values).map(([k, v]) => `${k} = ${JSON.stringify(v)}`).join(", ") || "as the file has it")));
    view().replaceChildren(h("h1", null, WS.visible(task.name)),
      facts([["Level", task.level || "unknown"], ["Candidates", WS.count(entries.length)], ["Best win", task.best ? [WS.times(task.best[3]), ", 99% interval ", WS.interval(task.best), ", ", WS.kernelLink(task.best)] : "none"], ["Task id", task.id]]),
      h("div", { class: "columns" }, section("Progress", WS.progress(entries) || h("p", null, "No correct kernel yet."), h("p", { class: "note" }, "Dots are correct kernels, large ones wins. The line is the best lower end of a win's interval so far.")),
        section("Similarity map", WS.map(entries), h("p", { class: "note" }, "Kernels that stand close have similar code; large dots are wins."))),
      section("Kernels", WS.rowsTable(ranked.slice(0, 100), `The best ${Math.min(100, ranked.length)} of ${WS.count(ranked.length)}`), ranked.length > 100 ? h("p", null, h("a", { href: WS.link("index", { task: id }) }, "All of them in the leaderboard")) : null),
      section("Shapes", shapes.length ? h("ul", null, shapes) : null) || "", section("Reference", source ? WS.code(source, "Reference code") : h("p", { class: "note" }, "The archive does not hold the task's file.")));
  }
  const rank = (row) => ({ win: 0, correct: 1 })[WS.status(row)] ?? 2;

  function missing(what, id, page) {
    view().replaceChildren(h("h1", null, `No such ${what}`), h("p", null, id ? `This site holds no ${what} ${WS.visible(id).slice(0, 80)}.` : `The address names no ${what}.`), h("p", null, h("a", { href: page + ".html" }, "Go to the list")));
  }

  const mapping = (values) => Object.entries(values || {}).map(([name, value]) => `${name}: ${typeof value === "number" ? +value.toPrecision(3) : value}`).map(WS.visible).join(", ");

  function verdictFacts(kernel) {
    const verdict = kernel.verdict, row = kernel.row;
    const baselines = Object.entries(verdict.baselines).filter(([, ms]) => ms !== null).map(([name, ms]) => `${name} ${+ms.toPrecision(4)} ms`).join(", ");
    return facts([
      ["Status", WS.statusMark(verdict.status)], ["Speedup", row[3] === null ? "" : `${WS.times(row[3])} against ${WS.visible(verdict.best_baseline || "the baseline")}`], ["99% interval", WS.interval(row)],
      ["Time of a call", verdict.candidate_ms === null ? "" : `${+Number(verdict.candidate_ms).toPrecision(4)} ms`], ["Baselines", baselines], ["Error", verdict.max_error === null ? "" : `${verdict.max_error}, allowed ${verdict.tolerance}`],
      ["What was said", WS.visible(verdict.message)], ["Marks", WS.flags(verdict.flags)], ["Isolation", verdict.sandbox.length ? WS.flags(verdict.sandbox) : "none recorded"],
      ["Timed as", verdict.timed_as || ""], ["Phases (s)", mapping(verdict.phase_seconds)], ["Hardware", mapping(verdict.hardware)], ["Software", mapping(kernel.software)]]);
  }

  async function kernelPage() {
    const id = WS.state().get("id"), kernel = id && (await WS.kernel(id));
    if (!kernel) return missing("kernel", id, "index");
    const row = kernel.row, [entries, parents] = await Promise.all([taskEntries(row[1]), Promise.all(kernel.parents.slice(0, 8).map(async (one) => [one, await WS.kernel(one)]))]);
    const byId = new Map(entries.map((entry) => [entry[0][0], entry])), children = new Map();
    for (const [one, shown] of entries) for (const parent of shown) children.set(parent, [...(children.get(parent) || []), one[0]]);
    document.title = `${WS.taskName(row)} ${id.slice(0, 12)} · ${WS.meta.title}`;
    const by = [WS.visible(WS.meta.sources[row[6]]), kernel.model ? ` (${WS.visible(kernel.model)})` : "", `, asked for by ${WS.visible(WS.meta.operators[row[7]])}`, row[8] === null ? "" : `, step ${row[8]}`, kernel.policyVersion === null ? "" : `, weights ${kernel.policyVersion}`];
    const diffs = parents.filter(([, parent]) => parent && parent.code).map(([one, parent]) =>
      h("details", { open: parents.length === 1 }, h("summary", null, `From ${WS.visible(one.slice(0, 12))}, ${parent.verdict.status.replace("_", " ")} ${WS.times(parent.row[3])} `),
        h("p", null, h("a", { href: WS.link("compare", { a: one, b: id }) }, "Side by side")), WS.diff(parent.code, kernel.code, `Difference from ${one.slice(0, 12)}`)));
    const tree = WS.lineage(id, (one) => byId.get(one), (one) => children.get(one) || (one === id ? kernel.children : []));
    view().replaceChildren(
      h("h1", null, WS.taskName(row), " ", h("span", { class: "note" }, WS.visible(id.slice(0, 12)))), h("p", null, h("a", { href: WS.link("task", { id: WS.meta.tasks[row[1]].id }) }, "The task"), " · ", h("a", { href: WS.link("compare", { b: id, a: kernel.parents[0] || "" }) }, "Compare with another")),
      [...kernel.why, ...kernel.marks].map(([name, text]) => h("div", { class: "card" }, h("strong", null, WS.visible(name)), h("p", null, WS.visible(text)))),
      section("Verdict", verdictFacts(kernel)),
      section("Code", kernel.code ? WS.code(kernel.code, "The kernel's code") : h("p", null, "The answer held no code.")),
      section("Difference from its parents", ...diffs) || "",
      section("Lineage", scroll("Lineage", tree)) || "",
      section("Where it came from", facts([["Written by", by], ["Run", WS.visible(kernel.run)], ["Judged", kernel.created.replace("T", " ")], ["Id", WS.visible(id)], ["Tokens", kernel.tokens[0] === null && kernel.tokens[1] === null ? "" : `${kernel.tokens[0] ?? "?"} asked, ${kernel.tokens[1] ?? "?"} answered`], ["Cost", kernel.cost === null ? "" : `$${kernel.cost}`],
        ["Parents", kernel.parents.map((one) => [h("a", { href: WS.link("kernel", { id: one }) }, WS.visible(one.slice(0, 12))), " "])]])),
      section("Analysis that came with it", kernel.analysis ? h("p", null, WS.visible(kernel.analysis)) : null) || "",
      section("Prompt", kernel.prompt ? h("details", null, h("summary", null, "Show"), WS.code(kernel.prompt, "Prompt")) : null) || "",
      Object.entries(kernel.profiles).map(([name, text]) => section(WS.visible(name), WS.code(text, name))),
      section("On the similarity map", WS.map(entries, id)) || "");
  }

  async function comparePage() {
    const state = WS.state(), ids = [state.get("a") || "", state.get("b") || ""];
    const field = (name, n) => h("label", null, name, h("input", { name: "ab"[n], value: ids[n], size: 34, required: true, spellcheck: "false" }));
    const form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); const data = new FormData(event.target); WS.remember({ a: data.get("a").trim(), b: data.get("b").trim() }); comparePage(); } },
      field("From kernel (id)", 0), field("To kernel (id)", 1), h("button", null, "Compare"), h("button", { type: "button", onclick: () => { WS.remember({ a: ids[1], b: ids[0] }); comparePage(); } }, "Swap"));
    view().replaceChildren(form);
    if (!ids[0] || !ids[1]) return view().append(h("p", { class: "note" }, "Give two ids; each kernel's page has its own, and a link to here."));
    const kernels = await Promise.all(ids.map((id) => WS.kernel(id)));
    const lost = ids.filter((_, n) => !kernels[n]);
    if (lost.length) return view().append(h("p", { role: "alert" }, `This site holds no kernel ${WS.visible(lost.join(" and no ")).slice(0, 100)}.`));
    view().append(h("div", { class: "columns" }, kernels.map((kernel, n) => h("section", { class: "card" }, h("h2", null, n ? "To " : "From ", WS.kernelLink(kernel.row), " ", WS.taskName(kernel.row)), verdictFacts(kernel)))),
      section("Difference", WS.diff(kernels[0].code, kernels[1].code, "Difference of the two")),
      h("div", { class: "columns" }, kernels.map((kernel, n) => section(n ? "To" : "From", WS.code(kernel.code, n ? "Second kernel" : "First kernel")))));
  }

  async function gallery(name) {
    const groups = await WS.load(name);
    if (!groups.length) return view().replaceChildren(h("p", null, "There are none."));
    const line = ([row, message]) => h("tr", null, h("th", { scope: "row" }, WS.kernelLink(row)), h("td", null, WS.statusMark(WS.status(row))), h("td", null, WS.taskName(row)), h("td", { class: "num" }, row[3] === null ? "–" : WS.times(row[3])), h("td", { class: "wide" }, WS.visible(message)));
    view().replaceChildren(...groups.map((group) => h("section", null, h("h2", null, WS.visible(group.name), ` (${WS.count(group.count)})`), h("p", null, WS.visible(group.text)),
      h("details", null, h("summary", null, group.count > group.kernels.length ? `Show ${group.kernels.length} of them` : "Show them"), h("div", { class: "scroll" }, h("table", { class: "rows" }, h("thead", null, h("tr", null, ["Kernel", "Status", "Task", "Speedup", "What was said"].map((one) => h("th", { scope: "col" }, one)))), h("tbody", null, group.kernels.map(line))))))));
  }

  async function searchPage() {
    const mine = ++turn, query = WS.state().get("q") || "";
    if (!document.querySelector("form.filters"))
      view().replaceChildren(h("form", { class: "filters", role: "search", onsubmit: (event) => { event.preventDefault(); WS.remember({ q: new FormData(event.target).get("q").trim() }); searchPage(); } },
        h("label", null, "Words", h("input", { type: "search", name: "q", size: 40, value: query, maxlength: 200 })), h("button", null, "Search")), h("div", { id: "found" }));
    const found = document.getElementById("found"), words = query.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 8);
    if (!words.length) return found.replaceChildren();
    const rows = await allRows(), common = new Set(WS.meta.commonWords), ignored = [];
    const meta = (row) => [row[0], WS.meta.tasks[row[1]].name, WS.meta.sources[row[6]], WS.meta.operators[row[7]], WS.status(row), ...row[9].map((flag) => WS.meta.flags[flag])].join(" ").toLowerCase();
    let fit = null;
    for (const word of words) {
      const shard = await WS.load("words-" + (WS.hash(word) % WS.meta.wordShards)), ranks = new Set();
      let at = 0;
      for (const step of Object.hasOwn(shard, word) ? shard[word] : []) ranks.add((at += step));
      rows.forEach((row, n) => { if (meta(row).includes(word)) ranks.add(n); });
      if (!ranks.size && common.has(word)) { ignored.push(word); continue; }
      fit = fit === null ? ranks : new Set([...fit].filter((n) => ranks.has(n)));
    }
    if (mine !== turn) return;
    const order = [...(fit || [])].sort((a, b) => a - b), shown = order.slice(0, 200).map((n) => rows[n]);
    const note = ignored.length ? h("p", { class: "note" }, `In too many kernels to tell them apart: ${WS.visible(ignored.join(", "))}.`) : "";
    found.replaceChildren(note, shown.length ? WS.rowsTable(shown, `${WS.count(order.length)} kernels${order.length > 200 ? ", the best 200 shown" : ""}`) : h("p", null, "Nothing found."));
  }

  const PAGES = { index: leaderboard, tasks: tasksPage, task: taskPage, kernel: kernelPage, compare: comparePage, suspicious: () => gallery("suspicious"), rejected: () => gallery("rejected"), search: searchPage };
  async function show() {
    try {
      WS.meta = WS.meta || (await WS.load("meta"));
      await PAGES[document.body.dataset.page]();
      document.body.dataset.ready = "yes";
    } catch (error) { WS.fail(error); }
  }
  window.addEventListener("hashchange", () => { if (["index", "search"].includes(document.body.dataset.page)) view().replaceChildren(); show(); window.scrollTo(0, 0); });
  show();
})();
