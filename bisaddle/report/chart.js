// A line chart in SVG: log or linear axes, zoom, a cross-hair with the values under it by pointer or keyboard.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = { svg: 0, g: 0, path: 0, line: 0, text: 0, rect: 0, circle: 0, clipPath: 0 };

function element(name, attributes = {}, parent = null, text = null) {
  const made = name in DRAWN ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

// black is the colour of the text, which is white on a dark page
const ink = (colour) => (colour === "#000000" ? "currentColor" : colour);

function power(exponent) {
  const digits = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  return "10" + [...String(exponent)].map((c) => digits[c]).join("");
}

// value -> pixel and back, with the ticks of the axis; range: [least, most] to show, or null for all values and some air
function scaleOf(values, log, low, high, range, air = 0) {
  const usable = (v) => Number.isFinite(v) && (!log || v > 0);
  const good = values.filter(usable);
  let [least, most] = range && range.every(usable) ? range
    : good.length ? [good.reduce((a, b) => Math.min(a, b)), good.reduce((a, b) => Math.max(a, b))] : log ? [0.1, 1] : [0, 1];
  const room = Math.max(2, Math.abs(high - low) / (log ? 45 : 70));
  if (log) {
    let [a, b] = [Math.log10(least), Math.log10(most)];
    if (!range && b - a < 0.2) { a -= 0.3; b += 0.3; }
    if (!range) [a, b] = [a - air * (b - a), b + air * (b - a)];
    const place = (v) => low + ((Math.log10(v) - a) / (b - a)) * (high - low);
    const value = (pixel) => 10 ** (a + ((pixel - low) / (high - low)) * (b - a));
    const step = Math.max(1, Math.ceil((b - a) / room));
    const ticks = [];
    for (let e = Math.ceil(a - 1e-9); e <= b + 1e-9; e++) if (e % step === 0) ticks.push({ at: 10 ** e, text: power(e) });
    if (ticks.length < 2 && b - a > 0.5) {
      for (let e = Math.floor(a); e <= b; e++) for (const m of [2, 5]) if (m * 10 ** e >= 10 ** a && m * 10 ** e <= 10 ** b) ticks.push({ at: m * 10 ** e, text: brief(m * 10 ** e) });
    } else if (ticks.length < 2) ticks.splice(0, 2, ...evenTicks(10 ** a, 10 ** b, room));
    return { place, value, ticks, good: usable, range: [10 ** a, 10 ** b], log };
  }
  if (most === least) { most += Math.abs(most) || 1; least -= Math.abs(least) * 0.5; }
  if (!range) [least, most] = [least - air * (most - least), most + air * (most - least)];
  const place = (v) => low + ((v - least) / (most - least)) * (high - low);
  const value = (pixel) => least + ((pixel - low) / (high - low)) * (most - least);
  return { place, value, ticks: evenTicks(least, most, room), good: usable, range: [least, most], log };
}

function evenTicks(least, most, room) {
  const rough = (most - least) / room, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough);
  const ticks = [];
  for (let n = Math.ceil(least / step - 1e-9); n * step <= most + 1e-9 * step; n++) ticks.push({ at: n * step, text: tickText(n * step) });
  return ticks;
}

function tickText(v) {
  if (v !== 0 && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3)) return String(Number(v.toPrecision(6)).toExponential());
  return String(Number(v.toPrecision(6)));
}

// three digits, for people
function brief(v) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (Number.isInteger(v) && size < 1e7) return String(v);
  return size >= 1e-2 && size < 1e4 ? v.toPrecision(3) : v.toExponential(2);
}

const round = (v) => v.toFixed(1);

// the outline of a marker around 0, 0
function markerPath(kind, r) {
  const ring = (points) => "M" + points.map(([x, y]) => `${round(x * r)} ${round(y * r)}`).join("L") + "Z";
  const turn = (count, radius) => Array.from({ length: count }, (_, i) => {
    const angle = (2 * Math.PI * i) / count - Math.PI / 2, size = radius(i);
    return [size * Math.cos(angle), size * Math.sin(angle)];
  });
  const plus = [[-1.2, -0.4], [-0.4, -0.4], [-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4]];
  return { circle: () => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`, square: () => ring([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]),
    triangle: () => ring([[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]), down: () => ring([[0, 1.2], [1.1, -0.8], [-1.1, -0.8]]),
    diamond: () => ring([[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]]), star: () => ring(turn(10, (i) => (i % 2 ? 0.62 : 1.5))),
    plus: () => ring(plus), cross: () => ring(plus.map(([x, y]) => [(x - y) * 0.75, (x + y) * 0.75])) }[kind]();
}

function drawMarker(parent, look, x, y, r = 3.4) {
  const paint = { stroke: ink(look.colour), "stroke-width": 1.3, fill: look.filled ? ink(look.colour) : "none" };
  return element("path", { class: "marker", d: markerPath(look.marker, r), transform: `translate(${round(x)} ${round(y)})`, ...paint }, parent);
}

// a piece of line with its marker, for legends and tables
function drawSample(parent, look, wide = 34) {
  const svg = element("svg", { class: "sample", width: wide, height: 12, viewBox: `0 0 ${wide} 12`, "aria-hidden": "true" }, parent);
  element("line", { x1: 0, x2: wide, y1: 6, y2: 6, stroke: ink(look.colour), "stroke-width": 2, "stroke-dasharray": look.dash }, svg);
  drawMarker(svg, look, wide / 2, 6);
  return svg;
}

// series: {name, look, thin, x, y, low, high, marks: [{x, y}], corner}; options: key, title, logX, logY, labelX, labelY,
// unit(x), label, zoom: null or {x: [a, b], y: [c, d]}, onZoom(zoom)
function drawChart(panel, series, options) {
  const old = panel.querySelector("svg.chart");
  const width = printing ? 400 : Math.max(240, panel.clientWidth - 20), height = Math.round(Math.min(320, Math.max(230, width * 0.66)));
  const svg = element("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "group", "data-focus": `chart ${options.key}`,
    "aria-label": `${options.label}. Left and right arrow keys read the values, plus and minus zoom, 0 shows all.` });
  const box = { left: 62, right: width - 10, top: 10, bottom: height - 38 }, zoom = options.zoom || {};
  const X = scaleOf(series.flatMap((s) => s.x), options.logX, box.left, box.right, zoom.x);
  const drawn = (s) => [s.y, s.low || [], s.high || []].flatMap((column) => column.filter((v, i) => X.good(s.x[i])));
  const Y = scaleOf(series.flatMap(drawn), options.logY, box.bottom, box.top, zoom.y, 0.05);
  drawAxes(svg, X, Y, box, width, height, options);
  const clip = `clip ${options.key}`.replace(/\W/g, "-");
  element("rect", { x: box.left - 6, y: box.top - 6, width: box.right - box.left + 12, height: box.bottom - box.top + 12 }, element("clipPath", { id: clip }, svg));
  const lines = element("g", { "clip-path": `url(#${clip})` }, svg);
  [...series].reverse().forEach((s, i) => drawSeries(lines, s, X, Y, box, series.length - 1 - i));  // the first lies on top
  old ? old.replaceWith(svg) : panel.appendChild(svg);
  panel.chart = { svg, series, X, Y, box, width, height, options };
  addReadout(panel);
}

function drawAxes(svg, X, Y, box, width, height, options) {
  let last = -Infinity;
  for (const { at, text } of [...X.ticks].sort((a, b) => a.at - b.at)) {
    const x = X.place(at);
    element("line", { class: "grid", x1: x, x2: x, y1: box.top, y2: box.bottom }, svg);
    const near = x > box.right - 14;  // a label in the middle would be cut
    if (x - last < 6 * text.length + 4) continue;  // labels do not lie on each other
    last = x;
    element("text", { x: near ? width - 2 : x, y: box.bottom + 14, "text-anchor": near ? "end" : "middle" }, svg, text);
  }
  for (const { at, text } of Y.ticks) {
    element("line", { class: "grid", x1: box.left, x2: box.right, y1: Y.place(at), y2: Y.place(at) }, svg);
    element("text", { x: box.left - 5, y: Y.place(at) + 4, "text-anchor": "end" }, svg, text);
  }
  element("path", { class: "axis", fill: "none", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }, svg);
  const middle = (box.top + box.bottom) / 2;
  element("text", { class: "label", x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, svg, options.labelX);
  element("text", { class: "label", x: 0, y: 0, transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, svg, options.labelY);
}

// the places of a column that an axis can show, in pieces without a hole
function pieces(s, column, X, Y) {
  const found = [[]];
  s.x.forEach((x, i) => {
    if (X.good(x) && column[i] !== null && Y.good(column[i])) found[found.length - 1].push([X.place(x), Y.place(column[i]), i]);
    else if (found[found.length - 1].length) found.push([]);
  });
  return found.filter((piece) => piece.length);
}

const pathOf = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${round(x)} ${round(y)}`).join("");

function drawSeries(parent, s, X, Y, box, place) {
  const { colour, dash } = s.look;
  if (s.low) {
    const low = s.low.map((v) => (v !== null && Y.good(v) ? v : Y.range[0]));  // a band down to 0 reaches the axis
    const ring = (piece) => pathOf([...piece, ...piece.map(([x, , i]) => [x, Y.place(low[i])]).reverse()]) + "Z";
    element("path", { class: "band", d: pieces(s, s.high, X, Y).map(ring).join(""), fill: ink(colour), "fill-opacity": 0.13, stroke: "none" }, parent);
  }
  const parts = pieces(s, s.y, X, Y);
  element("path", { d: parts.map(pathOf).join(""), fill: "none", stroke: ink(colour), "stroke-width": s.thin ? 1.1 : 1.8, "stroke-dasharray": dash,
    "stroke-linejoin": "round", class: "series", "data-method": s.method }, parent);
  // markers where there is room, at other places for every curve
  let next = box.left + 12 + ((place * 17) % 60);
  for (const [x, y] of parts.flat()) if (x >= next) { drawMarker(parent, s.look, x, y); next = x + 60; }
  const end = parts.length ? parts[parts.length - 1].slice(-1)[0] : null;
  if (end && s.ends) drawMarker(parent, s.look, end[0], end[1], 5);
  for (const m of s.marks || []) {
    if (X.good(m.x)) element("circle", { class: "ring", cx: X.place(m.x), cy: m.y !== null && Y.good(m.y) ? Y.place(m.y) : box.bottom, r: 6, fill: "none",
      stroke: ink(colour), "stroke-width": 1.8 }, parent);
  }
}
