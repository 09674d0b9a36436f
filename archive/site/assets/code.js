// Code as lines of elements, and the difference of two texts. Colours help reading and decide nothing.
"use strict";
(function () {
  const { h } = WS;
  const MAX_LINES = 4000, MAX_LINE = 600;
  const PYTHON = /(?<c>#[^\n]*)|(?<s>[rRbBfFuU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(?<m>\b\d[\w.]*)|(?<w>[A-Za-z_]\w*)/g;
  const CPP = /(?<c>\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|(?<p>^[ \t]*#[ \t]*\w+)|(?<s>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|(?<m>\b\d[\w.]*)|(?<w>[A-Za-z_]\w*)/gm;
  const KEYWORDS = {
    python: new Set("False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield".split(" ")),
    cpp: new Set("alignas asm auto break case catch class const constexpr continue default delete do else enum explicit extern for friend goto if inline namespace new noexcept operator private protected public register restrict __restrict__ return sizeof static static_cast reinterpret_cast struct switch template this throw try typedef typename union using virtual volatile while __global__ __device__ __shared__ __host__ __launch_bounds__ __syncthreads".split(" ")),
  };
  const TYPES = new Set("bool char double float int int8_t int16_t int32_t int64_t long short signed size_t uint8_t uint16_t uint32_t uint64_t unsigned void half float2 float4 __half __half2 dim3 self".split(" "));

  // [class or "", text] pieces in order.
  function pieces(text, language) {
    const found = [];
    let at = 0;
    for (const match of text.matchAll(language === "python" ? PYTHON : CPP)) {
      const group = match.groups;
      if (match.index > at) found.push(["", text.slice(at, match.index)]);
      at = match.index + match[0].length;
      const inner = group.s && language === "python" && /^\w*("""|''')([\s\S]*)\1$/.exec(group.s);
      if (inner && /extern\s+"C"|__global__|#include|#pragma/.test(inner[2])) {
        const open = group.s.length - inner[2].length - 3;
        found.push(["s", group.s.slice(0, open)], ...pieces(inner[2], "cpp"), ["s", inner[1]]);
      } else if (group.w) {
        found.push([KEYWORDS[language].has(group.w) ? "k" : TYPES.has(group.w) ? "t" : "", group.w]);
      } else {
        found.push([group.c ? "c" : group.s ? "s" : group.m ? "m" : "k", match[0]]);
      }
    }
    if (at < text.length) found.push(["", text.slice(at)]);
    return found;
  }

  // Lines, each an array of nodes.
  function lines(code) {
    const text = bounded(WS.visible(code)).join("\n");
    const language = /^\s*(#include|extern "C"|__global__|template\s*<)/m.test(text) && !/^(import|from|class|def) /m.test(text) ? "cpp" : "python";
    const rows = [[]];
    for (const [kind, piece] of pieces(text, language)) {
      piece.split("\n").forEach((part, number) => {
        if (number) rows.push([]);
        if (part) rows[rows.length - 1].push(kind ? h("span", { class: kind }, part) : part);
      });
    }
    return rows;
  }

  function bounded(text) {
    const all = text.split("\n");
    const cut = all.slice(0, MAX_LINES).map((line) => (line.length > MAX_LINE ? line.slice(0, MAX_LINE) + " … " + (line.length - MAX_LINE) + " more characters" : line));
    return all.length > MAX_LINES ? [...cut, "… " + (all.length - MAX_LINES) + " more lines"] : cut;
  }

  WS.code = (code, label) =>
    h("div", { class: "code scroll", tabindex: "0", role: "region", "aria-label": label },
      h("ol", null, lines(code).map((nodes, n) => h("li", { "data-n": n + 1 }, h("span", null, nodes)))));

  // Longest common subsequence over lines that are not a common beginning or end; [kind, old line, new line].
  function compare(a, b) {
    let start = 0, end = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start++;
    while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
    const x = a.slice(start, a.length - end), y = b.slice(start, b.length - end), steps = [];
    for (let i = 0; i < start; i++) steps.push(["same", i, i]);
    if (x.length * y.length > 4e6) {
      x.forEach((_, i) => steps.push(["removed", start + i, null]));
      y.forEach((_, j) => steps.push(["added", null, start + j]));
    } else {
      const width = y.length + 1, best = new Uint16Array((x.length + 1) * width);
      for (let i = x.length - 1; i >= 0; i--)
        for (let j = y.length - 1; j >= 0; j--)
          best[i * width + j] = x[i] === y[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
      let i = 0, j = 0;
      while (i < x.length || j < y.length) {
        if (i < x.length && j < y.length && x[i] === y[j]) steps.push(["same", start + i++, start + j++]);
        else if (j >= y.length || (i < x.length && best[(i + 1) * width + j] >= best[i * width + j + 1])) steps.push(["removed", start + i++, null]);
        else steps.push(["added", null, start + j++]);
      }
    }
    for (let i = 0; i < end; i++) steps.push(["same", a.length - end + i, b.length - end + i]);
    return steps;
  }

  WS.diff = function (before, after, label) {
    const a = bounded(WS.visible(before)), b = bounded(WS.visible(after));
    const steps = compare(a, b);
    const changed = steps.map((step) => step[0] !== "same");
    if (!changed.includes(true)) return h("p", { class: "note" }, "The two texts are the same.");
    const near = (n) => { for (let k = Math.max(0, n - 3); k <= n + 3; k++) if (changed[k]) return true; return false; };
    const rows = [], oldLines = lines(before), newLines = lines(after);
    let hidden = 0;
    const gap = () => { if (hidden) rows.push(h("li", { class: "gap" }, h("span"), h("span"), h("span"), hidden + (hidden === 1 ? " equal line" : " equal lines"))); hidden = 0; };
    steps.forEach(([kind, i, j], n) => {
      if (!near(n)) { hidden++; return; }
      gap();
      const sign = kind === "added" ? "+" : kind === "removed" ? "−" : " ";
      rows.push(h("li", { class: kind },
        h("span", { class: "n" }, i === null ? "" : i + 1), h("span", { class: "n" }, j === null ? "" : j + 1),
        h("span", { class: "sign", "aria-label": kind === "same" ? null : kind }, sign),
        h("span", null, kind === "removed" ? oldLines[i] : newLines[j])));
    });
    gap();
    return h("div", { class: "code diff scroll", tabindex: "0", role: "region", "aria-label": label }, h("ol", null, rows));
  };
})();
