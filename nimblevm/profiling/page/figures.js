
// The figures that are drawn; behind page.js in one script.

// --- flame graph ----------------------------------------------------------------------------------------

function flameGraph() {
  const { flame, names } = data.events, size = flame.parent.length, ROW = 22;
  const total = Float64Array.from(flame.self), depth = new Int32Array(size), children = Array.from({ length: size }, () => []);
  for (let i = 1; i < size; i++) { depth[i] = depth[flame.parent[i]] + 1; children[flame.parent[i]].push(i); }
  for (let i = size - 1; i > 0; i--) total[flame.parent[i]] += total[i];
  for (const list of children) list.sort((a, b) => total[b] - total[a]);
  if (size < 2 || !total[0]) { byId("flame-section").hidden = true; return; }
  const canvas = byId("flame"), nameOf = (i) => (i === 0 ? "all runs" : labelOf(flame.kind[i], names[flame.name[i]]));
  let focus = 0, chosen = 0, places = [];

  function draw() {
    // The boxes first, to know the height. Above the one in focus stand those around it, at full width.
    const width = canvas.parentElement.clientWidth, above = [];
    for (let i = flame.parent[focus]; i >= 0; i = flame.parent[i]) above.unshift(i);
    places = above.map((i, row) => [i, 0, width, row]);
    const stack = [[focus, 0, width, above.length]];
    while (stack.length) {
      const [i, x, w, row] = stack.pop();
      places.push([i, x, w, row]);
      let at = x;
      for (const child of children[i]) {
        const part = (w * total[child]) / total[i];
        if (part >= 0.4) stack.push([child, at, part, row + 1]);
        at += part;
      }
    }
    const rows = places.reduce((most, p) => Math.max(most, p[3]), 0) + 1;
    const [context] = sized(canvas, rows * ROW + 1);
    context.font = `12.5px ${FONT}`;
    for (const [i, x, w, row] of places) {
      box(context, x, row * ROW, w - (w > 3 ? 1 : 0), ROW - 1, flame.kind[i], names[flame.name[i]], nameOf(i));
      if (i === chosen && document.activeElement === canvas) {
        context.strokeStyle = colour("--ink");
        context.lineWidth = 2;
        context.strokeRect(x + 1, row * ROW + 1, Math.max(1, w - 3), ROW - 3);
      }
    }
    byId("flame-reset").disabled = focus === 0;
    byId("flame-readout").textContent = told(chosen).join(" · ");
  }
  function told(i) {
    const own = total[i] - flame.self[i] > 0 && i > 0 ? `${time(flame.self[i])} itself` : "";
    return [nameOf(i), `${time(total[i])}, ${percent(total[i] / total[0])}`, own, i ? plural(flame.calls[i], "call") : "", flame.recursive[i] ? "recursive: its own calls are added up in it" : ""].filter(Boolean);
  }
  function hit(event) {
    const frame = canvas.getBoundingClientRect(), x = event.clientX - frame.left, row = Math.floor((event.clientY - frame.top) / ROW);
    const found = places.find((p) => p[3] === row && x >= p[1] && x < p[1] + Math.max(p[2], 1));
    return found ? found[0] : -1;
  }
  function look(i) { focus = chosen = i; draw(); }
  canvas.addEventListener("mousemove", (e) => {
    const i = hit(e);
    canvas.style.cursor = i >= 0 ? "pointer" : "";
    if (i < 0) hideTip(); else showTip(e.clientX, e.clientY, nameOf(i), told(i).slice(1));
  });
  canvas.addEventListener("mouseleave", hideTip);
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("blur", draw);
  canvas.addEventListener("click", (e) => { const i = hit(e); if (i >= 0) { hideTip(); look(i); } });
  canvas.addEventListener("keydown", (e) => {
    const siblings = chosen > 0 ? children[flame.parent[chosen]] : [0], at = siblings.indexOf(chosen);
    const next = { ArrowDown: children[chosen][0], ArrowUp: flame.parent[chosen], ArrowRight: siblings[at + 1], ArrowLeft: siblings[at - 1] }[e.key];
    if (e.key === "Enter") look(chosen);
    else if (e.key === "Escape") look(0);
    else if (next !== undefined && next >= 0) { chosen = next; draw(); } else return;
    e.preventDefault();
  });
  byId("flame-reset").addEventListener("click", () => look(0));
  redraws.push(draw);
}

// --- timeline and memory, on one axis of time --------------------------------------------------------------

function timeline() {
  const { spans, names, tracks, memory, shapes } = data.events, end = Math.max(1, data.events.ns);
  const ROW = 20, AXIS = 24, DEEPEST = 60, LEVELS = DEEPEST + 1, GAP = 8, HEAD = 18;
  // Rows of spans that do not overlap: one for each depth of each track.
  const rows = new Map();
  let deeper = 0;
  for (let i = 0; i < spans.start.length; i++) {
    // Kernels of deep calls share the last row, others are left out.
    if (spans.depth[i] >= DEEPEST && spans.kind[i] !== KERNEL) { deeper++; continue; }
    const key = spans.track[i] * LEVELS + Math.min(spans.depth[i], DEEPEST);
    if (!rows.has(key)) rows.set(key, []);
    rows.get(key).push(i);
  }
  for (const [key, list] of rows) if (key % LEVELS === DEEPEST) list.sort((a, b) => spans.start[a] - spans.start[b]);
  const layout = [];  // {name, y, rows: [[y, list]]}
  let y = AXIS;
  tracks.forEach((name, track) => {
    const own = [...rows.keys()].filter((key) => Math.floor(key / LEVELS) === track).sort((a, b) => a - b);
    const part = { name, y, rows: own.map((key, k) => [y + HEAD + k * ROW, rows.get(key)]) };
    y += HEAD + own.length * ROW + GAP;
    layout.push(part);
  });
  const height = y, canvas = byId("timeline"), plot = byId("memory"), PLOT = 150;
  let from = 0, to = end, cursor = -1;
  const hasMemory = memory.at.length > 1;

  function axis(context, width, bottom) {
    context.font = `12px ${FONT}`;
    for (const at of steps(from, to, width / 110)) {
      const x = ((at - from) / (to - from)) * width;
      context.fillStyle = colour("--grid");
      context.fillRect(Math.round(x), AXIS - 4, 1, bottom);
      const text = time(at), wide = context.measureText(text).width;
      context.fillStyle = colour("--faint");
      if (x + wide + 8 < width) context.fillText(text, x + 4, 11);
    }
  }
  function draw() {
    const [context, width] = sized(canvas, height);
    const scale = width / (to - from);
    axis(context, width, height);
    for (const part of layout) {
      context.font = `12px ${FONT}`;
      context.fillStyle = colour("--soft");
      context.fillText(part.name, 6, part.y + HEAD / 2);
      for (const [top, list] of part.rows) {
        let i = lowest(list, from);
        if (i > 0) i--;  // it may reach into the view
        let drawn = -1;
        while (i < list.length) {
          const s = list[i], x = (spans.start[s] - from) * scale, w = spans.ns[s] * scale;
          if (x > width) break;
          if (x + w > 0 && (w >= 0.7 || Math.floor(x) > drawn)) {
            const kind = spans.kind[s], name = names[spans.name[s]];
            box(context, x, top, w > 2 ? w - 0.5 : w, ROW - 2, kind, name, labelOf(kind, name));
            drawn = Math.floor(x + w);
          }
          // Thousands may lie within a pixel: go on with the first one of the next.
          i = w >= 0.7 ? i + 1 : Math.max(i + 1, lowest(list, from + (Math.floor(x) + 1) / scale));
        }
      }
    }
    drawCursor(context, width, height);
    drawMemory();
    byId("zoom-all").disabled = from === 0 && to === end;
  }
  function lowest(list, at) {  // first of the list that starts at `at` or later
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (spans.start[list[middle]] < at) low = middle + 1; else high = middle;
    }
    return low;
  }
  function drawCursor(context, width, bottom) {
    if (cursor < from || cursor > to) return;
    context.fillStyle = colour("--faint");
    context.fillRect(((cursor - from) / (to - from)) * width, 0, 1, bottom);
  }

  const most = Math.max(1, memory.live.reduce((a, b) => Math.max(a, b), 0), memory.pooled.reduce((a, b) => Math.max(a, b), 0));
  function drawMemory() {
    if (!hasMemory) return;
    const [context, width] = sized(plot, PLOT + AXIS), bottom = PLOT + AXIS - 6, top = AXIS + 10;
    const yOf = (value) => bottom - ((bottom - top) * value) / most;
    axis(context, width, PLOT);
    context.font = `12px ${FONT}`;
    for (const value of steps(0, most, 3).slice(1)) {
      context.fillStyle = colour("--grid");
      context.fillRect(0, Math.round(yOf(value)), width, 1);
    }
    for (const [values, variable, filled] of [[memory.pooled, "--rest", false], [memory.live, "--c0", true]]) {
      const path = trail(values, width, yOf);
      context.beginPath();
      path.forEach(([x, v], i) => (i ? context.lineTo(x, v) : context.moveTo(x, v)));
      context.strokeStyle = colour(variable);
      context.lineWidth = 1.5;
      context.setLineDash(filled ? [] : [4, 3]);
      context.stroke();
      context.setLineDash([]);
      if (!filled || !path.length) continue;
      context.lineTo(path[path.length - 1][0], bottom);
      context.lineTo(path[0][0], bottom);
      context.globalAlpha = 0.14;
      context.fillStyle = colour(variable);
      context.fill();
      context.globalAlpha = 1;
    }
    for (const value of steps(0, most, 3).slice(1)) {
      context.fillStyle = colour("--faint");
      context.fillText(bytes(value), 6, yOf(value) - 8);
    }
    drawCursor(context, width, PLOT + AXIS);
  }
  function trail(values, width, yOf) {  // steps, at most a few points a pixel
    const path = [], scale = width / (to - from);
    let last = values[0], pixel = -2, low = 0, high = 0;
    const flush = () => { if (pixel > -2) path.push([pixel, yOf(low)], [pixel, yOf(high)], [pixel, yOf(last)]); };
    for (let i = 0; i < values.length; i++) {
      const x = (memory.at[i] - from) * scale;
      if (x < 0) { last = values[i]; continue; }
      if (pixel === -2 && x > 0) path.push([0, yOf(last)]);
      const here = Math.min(Math.floor(x), Math.ceil(width));
      if (here !== pixel) {
        flush();
        path.push([here, yOf(last)]);
        pixel = here;
        low = high = values[i];
      }
      low = Math.min(low, values[i]); high = Math.max(high, values[i]);
      if (x <= width) last = values[i];
      if (x > width) break;
    }
    flush();
    path.push([width, yOf(last)]);
    return path;
  }

  function zoom(factor, about) {
    const wide = Math.min(end, Math.max(20, (to - from) * factor)), part = (about - from) / (to - from);
    from = Math.max(0, Math.min(end - wide, about - wide * part));
    to = from + wide;
    draw();
  }
  function move(by) {
    const wide = to - from;
    from = Math.max(0, Math.min(end - wide, from + by));
    to = from + wide;
    draw();
  }
  const timeAt = (event, on) => { const frame = on.getBoundingClientRect(); return from + ((event.clientX - frame.left) / frame.width) * (to - from); };
  function spanAt(event) {
    const frame = canvas.getBoundingClientRect(), at = timeAt(event, canvas), vertical = event.clientY - frame.top, slack = (to - from) / frame.width;
    for (const part of layout) for (const [top, list] of part.rows) {
      if (vertical < top || vertical >= top + ROW) continue;
      const i = lowest(list, at + slack) - 1;
      for (const k of [i, i - 1]) if (k >= 0 && spans.start[list[k]] + spans.ns[list[k]] + slack >= at) return list[k];
    }
    return -1;
  }
  const told = (s) => [`${time(spans.ns[s])} from ${time(spans.start[s])} on`, spans.kind[s] === PIECE ? "a piece of a parallel loop" : "", spans.shape[s] >= 0 ? shapes[spans.shape[s]] : ""];
  let drag = null;
  for (const on of [canvas, plot]) {
    on.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      zoom(e.deltaY > 0 ? 1.25 : 0.8, timeAt(e, on));
    }, { passive: false });
    on.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, from, moved: false }; on.setPointerCapture(e.pointerId); });
    on.addEventListener("pointerup", () => { drag = null; });
    on.addEventListener("pointercancel", () => { drag = null; });
    on.addEventListener("pointerleave", () => { hideTip(); cursor = -1; if (!drag) draw(); });
    on.addEventListener("pointermove", (e) => {
      const width = on.getBoundingClientRect().width;
      if (drag) {
        hideTip();
        move(drag.from - ((e.clientX - drag.x) / width) * (to - from) - from);
        return;
      }
      cursor = timeAt(e, on);
      draw();
      if (on === plot) {
        showTip(e.clientX, e.clientY, time(Math.max(0, cursor)), memoryAt(cursor));
        return;
      }
      const s = spanAt(e);
      if (s < 0) { hideTip(); return; }
      const title = labelOf(spans.kind[s], names[spans.name[s]]);
      showTip(e.clientX, e.clientY, title, told(s));
      byId("timeline-readout").textContent = [title, ...told(s)].filter(Boolean).join(" · ");
    });
    on.addEventListener("dblclick", (e) => {
      const s = on === canvas ? spanAt(e) : -1;
      if (s < 0) { zoom(0.5, timeAt(e, on)); return; }
      const wide = Math.min(end, Math.max(20, spans.ns[s] * 1.1));
      from = Math.max(0, Math.min(end - wide, spans.start[s] + spans.ns[s] / 2 - wide / 2));
      to = from + wide;
      draw();
    });
  }
  function memoryAt(at) {
    let low = 0, high = memory.at.length;
    while (low < high) { const middle = (low + high) >> 1; if (memory.at[middle] <= at) low = middle + 1; else high = middle; }
    const k = Math.max(0, low - 1);
    return [`${bytes(memory.live[k])} alive`, `${bytes(memory.pooled[k])} kept in pools`];
  }
  canvas.addEventListener("keydown", (e) => {
    const middle = (from + to) / 2, wide = to - from;
    if (e.key === "+" || e.key === "=") zoom(0.7, middle);
    else if (e.key === "-") zoom(1.4, middle);
    else if (e.key === "ArrowLeft") move(-wide / 5);
    else if (e.key === "ArrowRight") move(wide / 5);
    else if (e.key === "0" || e.key === "Escape") { from = 0; to = end; draw(); } else return;
    e.preventDefault();
  });
  byId("zoom-in").addEventListener("click", () => zoom(0.5, (from + to) / 2));
  byId("zoom-out").addEventListener("click", () => zoom(2, (from + to) / 2));
  byId("zoom-all").addEventListener("click", () => { from = 0; to = end; draw(); });

  if (!spans.start.length) { byId("timeline-section").hidden = true; return; }
  const notes = [];
  if (deeper) notes.push(`${plural(deeper, "call")} more than ${DEEPEST} deep are not drawn, their kernels are in the last row`);
  if (spans.left) notes.push(`${count(spans.left)} of the shortest spans are left out`);
  byId("timeline-readout").textContent = notes.join("; ");
  if (!hasMemory) plot.parentElement.hidden = plot.parentElement.previousElementSibling.hidden = true;
  else if (memory.peak) {
    byId("memory-readout").textContent = `At most ${bytes(memory.peak.live)} alive, at ${time(memory.peak.at)}${memory.peak.where ? `, after ${memory.peak.where}` : ""}; dashed: kept in pools for later.`;
  }
  redraws.push(draw);
}

// --- roofline ---------------------------------------------------------------------------------------------------

function roofline() {
  const dots = data.kernels.filter((k) => k.operations && k.read + k.written && k.ns).map((k) => ({
    k, x: k.operations / (k.read + k.written), y: k.operations / k.ns,
  }));
  const section = byId("roofline-section");
  if (!dots.length) { section.hidden = true; return; }
  const machine = data.machine, svg = byId("roofline");
  const roofs = machine ? [["L2", machine.read.l2 / 1e9], ["L3", machine.read.l3 / 1e9], ["memory", machine.read.dram / 1e9]] : [];
  const peak = machine ? machine.peak / 1e9 : 0;
  const without = data.kernels.length - dots.length;
  byId("roofline-readout").textContent = [
    without ? `${plural(without, "kernel")} without floating-point operations ${without === 1 ? "is" : "are"} not shown.` : "",
    machine ? "" : "The machine's limits were not measured (--limits).",
  ].join(" ");
  function draw() {
    const width = svg.parentElement.clientWidth, height = Math.max(280, Math.min(420, width * 0.5));
    const left = 58, right = 16, top = 28, bottom = 40;
    const xs = dots.map((d) => d.x), ys = dots.map((d) => d.y);
    if (machine) { xs.push(peak / roofs[0][1], peak / roofs[2][1]); ys.push(peak); }
    const [x0, x1, y0, y1] = [Math.min(...xs) / 2, Math.max(...xs) * 2, Math.min(...ys) / 2, Math.max(...ys) * 2];
    const X = (v) => left + ((width - left - right) * Math.log10(v / x0)) / Math.log10(x1 / x0);
    const Y = (v) => height - bottom - ((height - top - bottom) * Math.log10(v / y0)) / Math.log10(y1 / y0);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.height = `${height}px`;
    const parts = [];
    const decades = (a, b) => {
      const made = [], wide = b / a < 30;  // few decades: 2 and 5 of each too
      for (let v = 10 ** Math.floor(Math.log10(a)); v <= b; v *= 10) made.push(...(wide ? [v, 2 * v, 5 * v] : [v]));
      return made.filter((v) => v >= a && v <= b);
    };
    const name = (v) => (v >= 0.01 && v < 1e5 ? String(Number(v.toPrecision(3))) : v.toExponential(0));
    for (const v of decades(x0, x1)) {
      parts.push(element("svg:line", { class: "grid", x1: X(v), x2: X(v), y1: top, y2: height - bottom }));
      parts.push(element("svg:text", { x: X(v), y: height - bottom + 17, "text-anchor": X(v) > width - right - 20 ? "end" : "middle" }, name(v)));
    }
    for (const v of decades(y0, y1)) {
      parts.push(element("svg:line", { class: "grid", x1: left, x2: width - right, y1: Y(v), y2: Y(v) }));
      parts.push(element("svg:text", { x: left - 8, y: Y(v) + 4, "text-anchor": "end" }, name(v)));
    }
    parts.push(element("svg:text", { x: width - right, y: height - 6, "text-anchor": "end" }, "operations a byte"));
    parts.push(element("svg:text", { x: 8, y: 15 }, "GFLOP/s"));
    const radius = (d) => 4 + 14 * Math.sqrt(d.k.ns / Math.max(1, data.kernelNs));
    const taken = dots.map((d) => [X(d.x) - radius(d), Y(d.y) - radius(d), X(d.x) + radius(d), Y(d.y) + radius(d)]);
    const free = (b) => !taken.some((t) => b[0] < t[2] && t[0] < b[2] && b[1] < t[3] && t[1] < b[3]);
    if (machine) {
      for (const [label, rate] of roofs) {
        const start = Math.max(x0, y0 / rate), knee = Math.min(x1, peak / rate);
        if (start >= knee) continue;
        parts.push(element("svg:line", { class: "roof", x1: X(start), y1: Y(start * rate), x2: X(knee), y2: Y(knee * rate) }));
        const text = `${label} ${digits(rate)} GB/s`, wide = textWidth(text) + 4;
        const angle = Math.atan2(Y(start * rate) - Y(knee * rate), X(knee) - X(start));
        const length = Math.hypot(Y(start * rate) - Y(knee * rate), X(knee) - X(start));
        for (const part of [0.06, 0.3, 0.5, 0.7, 0.9]) {  // beside the line, where no dot is
          // L2's above its line, the others' below: the first two may lie close together.
          const off = label === "L2" ? -6 : 15;
          const x = X(start) + part * length * Math.cos(angle) + off * Math.sin(angle), y = Y(start * rate) - part * length * Math.sin(angle) + off * Math.cos(angle);
          const spot = [x - 10, y - wide * Math.sin(angle) - 12, x + wide * Math.cos(angle) + 4, y + 2];
          if (part * length + wide > length || !free(spot)) continue;
          parts.push(element("svg:text", { transform: `translate(${x} ${y}) rotate(${(-angle * 180) / Math.PI})` }, text));
          taken.push(spot);
          break;
        }
      }
      parts.push(element("svg:line", { class: "roof", x1: X(Math.max(x0, Math.min(x1, peak / roofs[0][1]))), y1: Y(peak), x2: width - right, y2: Y(peak) }));
      parts.push(element("svg:text", { x: width - right, y: Y(peak) - 7, "text-anchor": "end" }, `peak ${digits(peak)} GFLOP/s`));
      taken.push([width - right - 150, Y(peak) - 20, width, Y(peak) + 2]);
    }
    const labels = [];
    for (const d of [...dots].sort((a, b) => b.k.ns - a.k.ns)) {
      const r = radius(d), cx = X(d.x), cy = Y(d.y);
      const dot = element("svg:circle", { class: "dot", cx, cy, r, tabindex: 0, role: "img", "aria-label": `${d.k.name}: ${digits(d.y)} GFLOP/s`, style: { fill: `var(${kernelColour(d.k.name)})`, fillOpacity: 0.88 } });
      const lines = [`${digits(d.y)} GFLOP/s at ${digits(d.x)} operations a byte`, `${time(d.k.ns)}, ${plural(d.k.calls, "call")}`, machine ? `${percent(d.k.floorNs / d.k.ns)} of the limit (data in ${d.k.level.toUpperCase()})` : ""];
      dot.addEventListener("mousemove", (e) => showTip(e.clientX, e.clientY, d.k.name, lines));
      dot.addEventListener("mouseleave", hideTip);
      dot.addEventListener("focus", () => { const b = dot.getBoundingClientRect(); showTip(b.left + b.width / 2, b.top + b.height / 2, d.k.name, lines); });
      dot.addEventListener("blur", hideTip);
      parts.push(dot);
      labels.push([d, cx, cy, r]);
    }
    for (const [d, cx, cy, r] of labels.slice(0, 10)) {
      const text = d.k.name.length > 28 ? d.k.name.slice(0, 27) + "…" : d.k.name, wide = textWidth(text);
      for (const [x, y] of [[cx + r + 5, cy + 4], [cx - r - 5 - wide, cy + 4], [cx - wide / 2, cy - r - 6], [cx - wide / 2, cy + r + 15]]) {
        const spot = [x, y - 12, x + wide, y + 3];
        if (spot[0] < left || spot[2] > width - right || spot[1] < 0 || spot[3] > height - bottom || !free(spot)) continue;
        parts.push(element("svg:text", { class: "label", x, y }, text));
        taken.push(spot);
        break;
      }
    }
    svg.replaceChildren(...parts);
  }
  redraws.push(draw);
}

// --- start -----------------------------------------------------------------------------------------------------

summary();
kernelTable();
otherTables();
if (data.events) {
  flameGraph();
  timeline();
} else {
  byId("flame-section").hidden = byId("timeline-section").hidden = true;
}
roofline();
redrawAll();
let waiting = 0;
addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redrawAll); });
