// Charts as SVG: a task's progress, its similarity map, a kernel's lineage. Each has its content in words beside it.
"use strict";
(function () {
  const { s } = WS;
  const WIDTH = 720, HEIGHT = 260, LEFT = 48, BOTTOM = 30, TOP = 14, RIGHT = 12;

  function ticks(top) {
    const step = [0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5].find((one) => top / one <= 6) || top / 5;
    const all = [];
    for (let value = 0; value <= top * 1.001; value += step) all.push(value);
    return all;
  }
  const frame = (title, width, height, children) =>
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title }, s("title", null, title), children);

  // entries: [row, parents, spot] in the order of time.
  WS.progress = function (entries) {
    const shown = entries.filter(([row]) => row[3] !== null);
    if (!shown.length) return null;
    const top = Math.max(1.2, ...shown.map(([row]) => row[3]));
    const x = (n) => LEFT + (entries.length < 2 ? 0 : (n / (entries.length - 1)) * (WIDTH - LEFT - RIGHT));
    const y = (v) => HEIGHT - BOTTOM - (v / top) * (HEIGHT - BOTTOM - TOP);
    const dots = [];
    let best = 0, path = "";
    entries.forEach(([row], n) => {
      if (row[3] === null) return;
      const win = WS.status(row) === "win";
      if (dots.length < 3000) dots.push(s("circle", { class: win ? "dot dot-win" : "dot", cx: x(n).toFixed(1), cy: y(row[3]).toFixed(1), r: win ? 3.5 : 2.5 }));
      if (win && row[4] > best) {
        path += (path ? `H${x(n).toFixed(1)}V` : `M${x(n).toFixed(1)} `) + y(row[4]).toFixed(1);
        best = row[4];
      }
    });
    if (path) path += `H${x(entries.length - 1).toFixed(1)}`;
    const axes = ticks(top).map((v) => [s("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(v), y2: y(v) }), s("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, +v.toFixed(2) + "×")]);
    const title = `Speedups of ${shown.length} correct kernels in the order they were judged; the line is the best lower end of a win so far` + (best ? `, in the end ${best.toFixed(2)}×` : "");
    return frame(title, WIDTH, HEIGHT, [axes, dots, path ? s("path", { class: "line", d: path }) : null,
      s("text", { x: LEFT, y: HEIGHT - 8 }, "first"), s("text", { x: WIDTH - RIGHT, y: HEIGHT - 8, "text-anchor": "end" }, `last of ${entries.length} candidates`)]);
  };

  WS.map = function (entries, here) {
    const shown = entries.filter(([, , spot]) => spot).slice(-2000);
    if (shown.length < 3) return null;
    const side = 340, at = (v) => 20 + ((v + 1) / 2) * (side - 40);
    const dots = shown.map(([row, , spot]) => s("circle", { class: WS.status(row) === "win" ? "dot dot-win" : "dot", cx: at(spot[0]), cy: at(spot[1]), r: WS.status(row) === "win" ? 4 : 3 }, s("title", null, row[0].slice(0, 12) + " " + WS.status(row))));
    const mine = shown.find(([row]) => row[0] === here);
    if (mine) dots.push(s("circle", { class: "dot-here", cx: at(mine[2][0]), cy: at(mine[2][1]), r: 8 }));
    return frame(`Map of ${shown.length} kernels by the likeness of their code`, side, side, [s("rect", { class: "axis", x: 1, y: 1, width: side - 2, height: side - 2, fill: "none" }), dots]);
  };

  // Ancestors to the left, descendants to the right, at most four generations and eight kernels each.
  WS.lineage = function (id, find, childrenOf) {
    const columns = new Map([[0, [id]]]), edges = [], seen = new Set([id]);
    const walk = (direction, next, edge) => {
      for (let depth = 1; depth <= 4; depth++) {
        const column = [];
        for (const one of columns.get(direction * (depth - 1)) || [])
          for (const other of next(one)) {
            if (!seen.has(other) && column.length < 8) { seen.add(other); column.push(other); }
            if (seen.has(other)) edges.push(edge(one, other));
          }
        if (!column.length) break;
        columns.set(direction * depth, column);
      }
    };
    walk(-1, (one) => (find(one) ? find(one)[1] : []), (one, other) => [other, one]);
    walk(1, (one) => childrenOf(one), (one, other) => [one, other]);
    if (seen.size < 2) return null;
    const depths = [...columns.keys()].sort((a, b) => a - b), tallest = Math.max(...[...columns.values()].map((c) => c.length));
    const w = 150, gap = 46, rowHeight = 54, height = tallest * rowHeight + 10, width = depths.length * (w + gap) - gap + 8, spot = new Map();
    const nodes = depths.flatMap((depth, place) => columns.get(depth).map((one, n) => {
      const x = 4 + place * (w + gap), y = 6 + (n + (tallest - columns.get(depth).length) / 2) * rowHeight, entry = find(one);
      spot.set(one, [x, y + 21]);
      const row = entry && entry[0];
      const label = row ? `${WS.status(row).replace("_", " ")} ${row[3] === null ? "" : WS.times(row[3])}` : "another task or archive";
      const box = s("g", { class: one === id ? "node here" : "node", transform: `translate(${x} ${y})` }, s("rect", { width: w, height: 42, rx: 6 }),
        s("text", { x: 8, y: 17 }, WS.visible(one.slice(0, 12))), s("text", { x: 8, y: 34 }, label));
      return one === id ? box : s("a", { href: WS.link("kernel", { id: one }), "aria-label": `kernel ${one.slice(0, 12)}, ${label}` }, box);
    }));
    const lines = edges.filter(([from, to]) => spot.has(from) && spot.has(to) && spot.get(from)[0] < spot.get(to)[0]).map(([from, to]) => {
      const [x1, y1] = spot.get(from), [x2, y2] = spot.get(to);
      return s("path", { class: "edge", d: `M${x1 + w} ${y1}C${x1 + w + gap / 2} ${y1} ${x2 - gap / 2} ${y2} ${x2} ${y2}` });
    });
    return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Lineage: parents to the left, children to the right" }, lines, nodes);
  };
})();
