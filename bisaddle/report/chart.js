// A line chart in SVG: log or linear axes, a cross-hair with the values under it.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, parent = null, text = null) {
  const made = name in { svg: 0, g: 0, path: 0, line: 0, text: 0, rect: 0, circle: 0 }
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function power(exponent) {
  const digits = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  return "10" + [...String(exponent)].map((c) => digits[c]).join("");
}

// value -> pixel, with the ticks of the axis
function scaleOf(values, log, low, high) {
  const good = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
  let [least, most] = good.length ? [Math.min(...good), Math.max(...good)] : log ? [0.1, 1] : [0, 1];
  if (log) {
    let [a, b] = [Math.log10(least), Math.log10(most)];
    if (b - a < 0.2) { a -= 0.3; b += 0.3; }
    const place = (v) => low + ((Math.log10(v) - a) / (b - a)) * (high - low);
    const step = Math.max(1, Math.ceil((b - a) / Math.max(2, Math.abs(high - low) / 45)));
    const ticks = [];
    for (let e = Math.ceil(a - 1e-9); e <= b + 1e-9; e++) if (e % step === 0) ticks.push({ at: 10 ** e, text: power(e) });
    if (ticks.length < 2) for (const v of [least, most]) ticks.push({ at: v, text: brief(v) });
    return { place, ticks, good: (v) => Number.isFinite(v) && v > 0 };
  }
  if (most === least) { most += Math.abs(most) || 1; least -= Math.abs(least) * 0.5; }
  const rough = (most - least) / Math.max(2, Math.abs(high - low) / 70);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough);
  const ticks = [];
  for (let n = Math.ceil(least / step - 1e-9); n * step <= most + 1e-9 * step; n++) ticks.push({ at: n * step, text: tickText(n * step) });
  return { place: (v) => low + ((v - least) / (most - least)) * (high - low), ticks, good: Number.isFinite };
}

function tickText(v) {
  if (v !== 0 && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3)) return v.toExponential(0);
  return String(Number(v.toPrecision(6)));
}

// three digits, for people
function brief(v) {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (Number.isInteger(v) && size < 1e7) return String(v);
  return size >= 1e-2 && size < 1e4 ? v.toPrecision(3) : v.toExponential(2);
}

// series: {name, colour, dash, thin, x, y, marks: [{x, y, kind}]}; options: logX, logY, labelX, unit(x)
function drawChart(panel, series, options) {
  const old = panel.querySelector("svg");
  const width = Math.max(220, panel.clientWidth - 20), height = Math.round(Math.min(300, Math.max(220, width * 0.66)));
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.label });
  const box = { left: 46, right: width - 10, top: 10, bottom: height - 34 };
  const X = scaleOf(series.flatMap((s) => s.x), options.logX, box.left, box.right);
  const Y = scaleOf(series.flatMap((s) => s.y.filter((v, i) => X.good(s.x[i]))), options.logY, box.bottom, box.top);
  for (const { at, text } of X.ticks) {
    element("line", { class: "grid", x1: X.place(at), x2: X.place(at), y1: box.top, y2: box.bottom }, svg);
    const near = X.place(at) > box.right - 14;  // a label in the middle would be cut
    element("text", { x: near ? width - 2 : X.place(at), y: box.bottom + 14, "text-anchor": near ? "end" : "middle" }, svg, text);
  }
  for (const { at, text } of Y.ticks) {
    element("line", { class: "grid", x1: box.left, x2: box.right, y1: Y.place(at), y2: Y.place(at) }, svg);
    element("text", { x: box.left - 5, y: Y.place(at) + 4, "text-anchor": "end" }, svg, text);
  }
  element("path", { class: "axis", fill: "none", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }, svg);
  element("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, svg, options.labelX);
  for (const s of [...series].reverse()) {  // the first lies on top
    let d = "", pen = false;
    s.x.forEach((x, i) => {
      const y = s.y[i];
      if (!X.good(x) || !Y.good(y)) { pen = false; return; }
      d += `${pen ? "L" : "M"}${X.place(x).toFixed(1)} ${Y.place(y).toFixed(1)}`;
      pen = true;
    });
    element("path", { d, fill: "none", stroke: s.colour, "stroke-width": s.thin ? 1 : 1.8, "stroke-dasharray": s.dash,
      "stroke-linejoin": "round", class: "series", "data-method": s.method }, svg);
    for (const m of s.marks || []) {
      if (X.good(m.x)) element("circle", { cx: X.place(m.x), cy: Y.good(m.y) ? Y.place(m.y) : box.bottom, r: 4.5, fill: "none",
        stroke: s.colour, "stroke-width": 2 }, svg);
    }
  }
  old ? old.replaceWith(svg) : panel.appendChild(svg);
  addReadout(panel, svg, series, X, Y, box, width, options);
}

function addReadout(panel, svg, series, X, Y, box, width, options) {
  const readout = panel.querySelector(".readout") || element("div", { class: "readout" }, panel);
  readout.style.display = "none";
  let cross = null;
  const hide = () => { readout.style.display = "none"; if (cross) cross.remove(); cross = null; };
  const show = (event) => {
    const frame = svg.getBoundingClientRect();
    const at = ((event.clientX - frame.left) / frame.width) * width;
    let nearest = null;
    for (const s of series) s.x.forEach((x) => {
      if (X.good(x) && (nearest === null || Math.abs(X.place(x) - at) < Math.abs(X.place(nearest) - at))) nearest = x;
    });
    if (nearest === null) return hide();
    if (!cross) cross = element("line", { class: "cross", y1: box.top, y2: box.bottom }, svg);
    cross.setAttribute("x1", X.place(nearest)); cross.setAttribute("x2", X.place(nearest));
    readout.replaceChildren(element("div", {}, null, options.unit(nearest)));
    for (const s of series) {
      // the last point recorded up to here
      let i = -1;
      while (i + 1 < s.x.length && s.x[i + 1] <= nearest * (1 + 1e-12)) i++;
      if (i < 0) continue;
      const over = s.x[s.x.length - 1] < nearest;
      const line = element("div", {}, readout);
      element("i", { style: `background:${s.colour}` }, line);
      line.append(`${s.name}: ${brief(s.y[i])}${s.corner && s.corner[i] ? " (corner)" : ""}${over ? " (ended)" : ""}`);
    }
    readout.style.display = "block";
    const x = event.clientX - panel.getBoundingClientRect().left, y = event.clientY - panel.getBoundingClientRect().top;
    const right = x + 14 + readout.offsetWidth > panel.clientWidth;
    readout.style.left = `${Math.max(2, right ? x - 14 - readout.offsetWidth : x + 14)}px`;
    readout.style.top = `${Math.max(2, y - readout.offsetHeight - 8)}px`;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", hide);
}
