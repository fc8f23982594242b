"use strict";
// Draws the figures of a profile. Names are a stranger's: they become text nodes or canvas text, never markup.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const RUN = 0, FUNCTION = 1, KERNEL = 2, PIECE = 3;
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', 'DejaVu Sans', sans-serif";

function element(tag, attributes, ...children) {
  const made = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null) continue;
    if (key === "style") Object.assign(made.style, value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// --- numbers ------------------------------------------------------------------------------------

function digits(value, count = 3) {
  if (value === 0) return "0";
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toFixed(Math.max(0, Math.min(20, count - Math.max(whole, 1))));
}
function scaled(value, units, base) {
  let at = 0;
  while (at + 1 < units.length && Math.abs(value) >= base * 0.9995) { value /= base; at++; }
  return `${digits(value)} ${units[at]}`;
}
const time = (ns) => (ns < 1000 ? `${Math.round(ns)} ns` : scaled(ns / 1e3, ["µs", "ms", "s"], 1000));
const bytes = (n) => (n < 1000 ? `${Math.round(n)} B` : scaled(n / 1e3, ["kB", "MB", "GB", "TB"], 1000));
const count = (n) => (n === null ? "" : n.toLocaleString("en-US", { maximumFractionDigits: 0 }));
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const percent = (part) => (part > 0 && part < 0.001 ? "< 0.1 %" : `${digits(100 * part, part < 0.1 ? 2 : 3)} %`);
const gigas = (perNs) => (perNs === null ? "" : digits(perNs));  // a nanosecond's count is giga a second

// --- colours: the kernels that took longest have one of their own, the same in every figure --------

const COLOURS = 8;
const colourOf = new Map(data.kernels.slice(0, COLOURS).map((k, i) => [k.name, `--c${i}`]));
const kernelColour = (name) => colourOf.get(name) || "--rest";
const probe = document.body.appendChild(element("span", { hidden: "" }));
let palette = new Map();
function colour(name) {  // canvas knows no variables
  let found = palette.get(name);
  if (!found) {
    probe.style.color = `var(${name})`;
    palette.set(name, (found = getComputedStyle(probe).color));
  }
  return found;
}
const fillOf = (kind, name) => (kind === KERNEL || kind === PIECE ? kernelColour(name) : kind === RUN ? "--run" : "--call");
const inkOf = (kind) => (kind === KERNEL || kind === PIECE ? "--on" : "--call-ink");
const swatch = (variable) => element("span", { class: "swatch", style: { background: `var(${variable})` } });

// --- theme ----------------------------------------------------------------------------------------

const redraws = [];
function redrawAll() { palette = new Map(); for (const draw of redraws) draw(); }
const THEMES = ["auto", "light", "dark"];
byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % 3];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  byId("theme").textContent = `Theme: ${next}`;
  redrawAll();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

// --- tooltip --------------------------------------------------------------------------------------

const tip = byId("tip");
function showTip(x, y, title, lines) {
  tip.replaceChildren(element("b", {}, title), ...lines.filter(Boolean).map((line) => element("div", {}, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 12) : y + 18}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("scroll", hideTip, { passive: true, capture: true });

// --- canvases ---------------------------------------------------------------------------------------

function sized(canvas, height) {
  const ratio = devicePixelRatio || 1, width = canvas.parentElement.clientWidth;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  return [context, width];
}
function fitted(context, text, room) {
  if (room < 18) return "";
  if (text.length * 3 < room && context.measureText(text).width <= room) return text;
  let low = 0, high = Math.min(text.length, Math.ceil(room / 2));
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= room) low = middle; else high = middle - 1;
  }
  return low >= text.length ? text : low >= 2 ? text.slice(0, low) + "…" : "";
}
const ruler = document.createElement("canvas").getContext("2d");
function textWidth(text) { ruler.font = `12px ${FONT}`; return ruler.measureText(text).width; }
function box(context, x, y, width, height, kind, name, label) {
  context.fillStyle = colour(fillOf(kind, name));
  context.fillRect(x, y, Math.max(width, 0.5), height);
  if (width < 24) return;
  context.fillStyle = colour(inkOf(kind));
  const from = Math.max(x, 0);
  context.fillText(fitted(context, label, x + width - from - 10), from + 5, y + height / 2 + 0.5);
}
const labelOf = (kind, name) => (kind === FUNCTION ? `@${name}` : name);

// Round steps for an axis: 1, 2 or 5 times a power of ten.
function steps(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
  const made = [];
  for (let at = Math.ceil(low / step); at * step <= high * (1 + 1e-12) && made.length < 100; at++) made.push(at * step);
  return made;
}

// --- head and summary -------------------------------------------------------------------------------

const sum = (rows, of) => rows.reduce((total, row) => total + (of(row) || 0), 0);

function summary() {
  byId("title").textContent = data.title;
  byId("facts").textContent = data.facts.map(([name, value]) => (name ? `${name} ${value}` : value)).join(" · ");
  const operations = sum(data.kernels, (k) => k.operations), moved = sum(data.kernels, (k) => k.read + k.written);
  const tiles = [
    ["Time", time(data.ns), plural(data.runs, "run") + `, ${plural(data.threads, "thread")}`],
    ["In kernels", data.ns ? percent(data.kernelNs / data.ns) : "–", `${time(data.kernelNs)} in ${plural(sum(data.kernels, (k) => k.calls), "call")}`],
    ["Virtual machine", data.ns ? percent(1 - data.kernelNs / data.ns) : "–", time(Math.max(0, data.ns - data.kernelNs))],
  ];
  if (data.kernelNs > 0) {
    const peak = data.machine ? `${percent((operations * 1e9) / data.kernelNs / data.machine.peak)} of the peak` : "in kernels";
    tiles.push(["GFLOP/s", gigas(operations / data.kernelNs), peak], ["GB/s", gigas(moved / data.kernelNs), "read and written"]);
  }
  const peak = data.events && data.events.memory.peak;
  if (peak) tiles.push(["Peak memory", bytes(peak.live), peak.where]);
  const instructions = sum(data.instructions, (row) => row[1]);
  if (instructions) tiles.push(["Instructions", count(instructions), data.runs > 1 ? `${count(instructions / data.runs)} a run` : "executed"]);
  byId("tiles").replaceChildren(...tiles.map(([name, value, more]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, more || "")))));

  const parts = data.kernels.slice(0, COLOURS).map((k) => [k.name, k.ns, kernelColour(k.name)]);
  const others = data.kernels.slice(COLOURS);
  if (others.length) parts.push([`${others.length + data.moreKernels} other kernels`, sum(others, (k) => k.ns), "--rest"]);
  parts.push(["VM", Math.max(0, data.ns - data.kernelNs), "--call"]);
  const total = sum(parts, (p) => p[1]) || 1;
  byId("share").setAttribute("aria-label", parts.map(([name, ns]) => `${name} ${percent(ns / total)}`).join(", "));
  byId("share").replaceChildren(...parts.filter((p) => p[1] > 0).map(([name, ns, variable]) => {
    const part = element("span", { style: { width: `${(100 * ns) / total}%`, background: `var(${variable})` } });
    part.addEventListener("mousemove", (e) => showTip(e.clientX, e.clientY, name, [`${time(ns)}, ${percent(ns / total)}`]));
    part.addEventListener("mouseleave", hideTip);
    return part;
  }));
  byId("legend").replaceChildren(...parts.map(([name, ns, variable]) =>
    element("li", {}, swatch(variable), element("span", { class: "name", title: name }, name), element("span", { class: "muted" }, percent(ns / total)))));
  if (data.events && data.events.dropped) {
    byId("dropped").hidden = false;
    byId("dropped").className = "note warn";
    byId("dropped").textContent = `${plural(data.events.dropped, "event")} did not fit (--max-events). Calls, timeline and memory show ` +
      `the first ${time(data.events.ns)} only; everything else is complete.`;
  }
}

// --- tables -------------------------------------------------------------------------------------------

// columns: {title, value(row) for sorting, cell(row) -> nodes or text, left, name}
function sortable(table, columns, rows, first, after) {
  const state = { column: first, descending: true };
  const heads = columns.map((column, i) => {
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      state.descending = state.column === i ? !state.descending : !column.left;
      state.column = i;
      draw();
    });
    return element("th", { scope: "col", class: column.left ? "left" : undefined, title: column.hint }, button);
  });
  const body = element("tbody");
  table.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), body);
  let shown = rows;
  function draw() {
    const { value } = columns[state.column], sign = state.descending ? -1 : 1;
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== state.column ? "none" : state.descending ? "descending" : "ascending"));
    const order = [...shown].sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
    });
    body.replaceChildren(...order.flatMap((row) => {
      const cells = columns.map((column) => element("td", { class: column.name ? "name" : column.left ? "left" : undefined }, ...[column.cell(row)].flat()));
      const line = element("tr", {}, ...cells);
      return after ? [line, ...after(row, line)] : [line];
    }));
    if (!order.length) body.append(element("tr", {}, element("td", { class: "left muted", colspan: columns.length }, "nothing")));
  }
  draw();
  return (keep) => { shown = rows.filter(keep); draw(); };
}

function meter(part, text, variable) {
  const fill = element("span", { style: { width: `${Math.min(100, 100 * part)}%`, background: `var(${variable || "--rest"})` } });
  return [text, element("span", { class: "meter", "aria-hidden": "true" }, fill)];
}

function kernelTable() {
  const open = new Set();
  const columns = [
    { title: "Kernel", left: true, name: true, value: (k) => k.name, cell: (k) => element("div", { class: "named" }, swatch(kernelColour(k.name)), opener(k)) },
    { title: "Time", value: (k) => k.ns, cell: (k) => meter(data.ns ? k.ns / data.ns : 0, `${time(k.ns)}`, kernelColour(k.name)) },
    { title: "Share", value: (k) => k.ns, cell: (k) => (data.ns ? percent(k.ns / data.ns) : "") },
    { title: "Calls", value: (k) => k.calls, cell: (k) => count(k.calls) },
    { title: "Each", value: (k) => k.ns / k.calls, cell: (k) => time(k.ns / k.calls) },
    { title: "GFLOP/s", hint: "floating-point operations counted from the kernel's body", value: (k) => (k.operations ? k.operations / k.ns : null), cell: (k) => (k.operations && k.ns ? gigas(k.operations / k.ns) : "–") },
    { title: "GB/s", hint: "bytes that must be read and written", value: (k) => (k.ns ? (k.read + k.written) / k.ns : null), cell: (k) => (k.ns ? gigas((k.read + k.written) / k.ns) : "–") },
  ];
  if (data.machine) columns.push({
    title: "Of limit", hint: "time that the machine needs at least, divided by the time it took", value: (k) => (k.ns ? k.floorNs / k.ns : null),
    cell: (k) => (k.ns ? meter(k.floorNs / k.ns, percent(k.floorNs / k.ns)) : "–"),
  });
  function opener(k) {
    const button = element("button", { type: "button", "aria-expanded": open.has(k) ? "true" : "false" }, k.name);
    button.addEventListener("click", () => { if (!open.delete(k)) open.add(k); update((x) => matches(x)); });
    return button;
  }
  function sizes(k) {
    if (!open.has(k)) return [];
    const rows = k.sizes.map(([shapes, calls, ns, operations, moved]) => element("tr", { class: "sizes" },
      element("td", { class: "name code" }, shapes.join(" · ")), element("td", {}, time(ns)), element("td", {}, k.ns ? percent(ns / k.ns) : ""),
      element("td", {}, count(calls)), element("td", {}, time(ns / calls)), element("td", {}, operations && ns ? gigas(operations / ns) : "–"),
      element("td", {}, ns ? gigas(moved / ns) : "–"), data.machine ? element("td") : null));
    if (k.moreSizes) rows.push(element("tr", { class: "sizes" }, element("td", { class: "name", colspan: columns.length }, `and ${count(k.moreSizes)} other sizes`)));
    return rows;
  }
  const matches = (k) => k.name.toLowerCase().includes(byId("filter").value.trim().toLowerCase());
  const update = sortable(byId("kernels"), columns, data.kernels, 1, sizes);
  byId("filter").addEventListener("input", () => update(matches));
  const notes = [];
  if (data.moreKernels) notes.push(`The table shows the ${data.kernels.length} longest; ${plural(data.moreKernels, "other kernel")} took less.`);
  if (!data.machine && data.kernels.length) notes.push("The machine's limits were not measured (--limits), so no column compares with them.");
  if (!data.kernels.length) notes.push("No kernel was called.");
  byId("kernels-note").textContent = notes.join(" ");
}

function otherTables() {
  byId("lines-section").hidden = !data.lines.length;
  byId("instructions-section").hidden = !data.instructions.length;
  if (data.lines.length) {
    const place = ([fn, source, line]) => (source ? `${source}:${line}` : `@${fn}`);
    sortable(byId("lines"), [
      { title: "Line", left: true, name: true, value: (r) => place(r), cell: (r) => [element("span", {}, place(r)), element("span", { class: "muted" }, r[1] ? ` @${r[0]}` : ""), r[5] ? element("div", { class: "code" }, r[5]) : null].filter(Boolean) },
      { title: "Time", value: (r) => r[4], cell: (r) => meter(data.ns ? r[4] / data.ns : 0, time(r[4])) },
      { title: "Instructions", value: (r) => r[3], cell: (r) => count(r[3]) },
    ], data.lines, 1);
  }
  if (data.instructions.length) {
    sortable(byId("instructions"), [
      { title: "Instruction", left: true, value: (r) => r[0], cell: (r) => r[0] },
      { title: "Time", value: (r) => r[2], cell: (r) => time(r[2]) },
      { title: "Executed", value: (r) => r[1], cell: (r) => count(r[1]) },
      { title: "Each", value: (r) => r[2] / r[1], cell: (r) => time(r[2] / r[1]) },
    ], data.instructions, 1);
  }
}
