// Reading a chart: values under the pointer or by keyboard, zoom, and a panel saved as PNG or CSV.

// the places on the x axis where something is recorded, in order
function placesOf({ series, X }) {
  const inside = (x) => X.good(x) && x >= X.range[0] * (1 - 1e-9) - 1e-300 && x <= X.range[1] * (1 + 1e-9);
  return [...new Set(series.flatMap((s) => s.x))].filter(inside).sort((a, b) => a - b);
}

// what every curve has at x: the last point recorded up to there
function valuesAt(series, x) {
  return series.flatMap((s) => {
    let i = -1;
    while (i + 1 < s.x.length && s.x[i + 1] <= x * (1 + 1e-12)) i++;
    if (i < 0) return [];
    const band = s.low && s.low[i] !== s.high[i] ? ` (${brief(s.low[i])} to ${brief(s.high[i])})` : "";
    const corner = s.corner && s.corner[i] ? " (corner)" : "", over = s.x[s.x.length - 1] < x ? " (ended)" : "";
    return [{ s, text: `${s.name}: ${brief(s.y[i])}${band}${corner}${over}` }];
  });
}

function showAt(panel, x, aloud) {
  const { svg, series, X, box, width, options } = panel.chart;
  const readout = panel.querySelector(".readout"), at = X.place(x);
  svg.querySelector(".cross")?.remove();
  element("line", { class: "cross", x1: at, x2: at, y1: box.top, y2: box.bottom }, svg);
  const lines = valuesAt(series, x);
  readout.replaceChildren(element("b", {}, null, options.unit(x)));
  for (const { s, text } of lines) {
    const line = element("div", {}, readout);
    drawSample(line, s.look, 22);
    line.append(` ${text}`);
  }
  readout.hidden = false;
  panel.at = x;
  const frame = svg.getBoundingClientRect(), left = frame.left - panel.getBoundingClientRect().left + (at / width) * frame.width;
  const right = left + 14 + readout.offsetWidth > panel.clientWidth;
  readout.style.left = `${Math.max(2, right ? left - 14 - readout.offsetWidth : left + 14)}px`;
  readout.style.top = `${svg.offsetTop || panel.querySelector(".what").offsetTop + 20}px`;
  if (aloud) panel.querySelector(".aloud").textContent = [options.unit(x), ...lines.map((line) => line.text)].join("; ");
}

function hide(panel) {
  panel.querySelector(".readout").hidden = true;
  panel.chart.svg.querySelector(".cross")?.remove();
  panel.at = null;
}

function addReadout(panel) {
  if (!panel.querySelector(".readout")) {
    element("div", { class: "readout" }, panel).hidden = true;
    element("div", { class: "aloud", "aria-live": "polite" }, panel);
  }
  const { svg, width } = panel.chart;
  const pixel = (event) => {
    const frame = svg.getBoundingClientRect();
    return [((event.clientX - frame.left) / frame.width) * width, ((event.clientY - frame.top) / frame.width) * width];
  };
  const look = (event) => {
    const [at] = pixel(event), { X } = panel.chart;
    const nearest = placesOf(panel.chart).reduce((best, x) => (best === null || Math.abs(X.place(x) - at) < Math.abs(X.place(best) - at) ? x : best), null);
    nearest === null ? hide(panel) : showAt(panel, nearest, false);
  };
  let from = null, band = null;
  svg.addEventListener("pointerdown", (event) => {
    look(event);
    if (event.pointerType !== "touch" && event.button === 0) from = pixel(event);  // a finger scrolls the page
  });
  svg.addEventListener("pointermove", (event) => {
    if (!from) return look(event);
    const [a, b] = [from, pixel(event)];
    if (Math.hypot(a[0] - b[0], a[1] - b[1]) < 8 && !band) return;
    svg.setPointerCapture?.(event.pointerId);
    band = band || element("rect", { class: "select" }, svg);
    for (const [name, i] of [["x", 0], ["y", 1]]) {
      band.setAttribute(name, Math.min(a[i], b[i]));
      band.setAttribute(i ? "height" : "width", Math.abs(a[i] - b[i]));
    }
  });
  svg.addEventListener("pointerup", (event) => {
    const [a, b] = [from, pixel(event)], zooms = band !== null;
    from = null; band?.remove(); band = null;
    if (zooms) zoomTo(panel, a, b);
  });
  svg.addEventListener("pointerleave", () => { if (!from && document.activeElement !== svg) hide(panel); });
  svg.addEventListener("dblclick", () => panel.chart.options.onZoom(null));
  svg.addEventListener("blur", () => hide(panel));
  svg.addEventListener("keydown", (event) => onKey(panel, event));
}

function zoomTo(panel, a, b) {
  const { X, Y, box, options } = panel.chart;
  const clip = (v, low, high) => Math.min(Math.max(v, low), high);
  const xs = [a[0], b[0]].map((v) => clip(v, box.left, box.right)).sort((p, q) => p - q), ys = [a[1], b[1]].map((v) => clip(v, box.top, box.bottom)).sort((p, q) => q - p);
  if (xs[1] - xs[0] > 4 && ys[0] - ys[1] > 4) options.onZoom({ x: xs.map(X.value), y: ys.map(Y.value) });
}

// in, out: by a factor of two around the cross-hair, or the middle
function zoomBy(panel, factor) {
  const { X, Y, box } = panel.chart, whole = panel.chart.options.zoom;
  if (factor > 1 && !whole) return;
  const middle = panel.at === null || panel.at === undefined ? (box.left + box.right) / 2 : X.place(panel.at), height = (box.top + box.bottom) / 2;
  const at = (low, high, centre) => [centre - (factor * (high - low)) / 2, centre + (factor * (high - low)) / 2];
  const [left, right] = at(box.left, box.right, middle), [top, bottom] = at(box.top, box.bottom, height);
  panel.chart.options.onZoom({ x: [X.value(left), X.value(right)], y: [Y.value(bottom), Y.value(top)] });
}

function onKey(panel, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const places = placesOf(panel.chart), last = places.length - 1;
  const here = panel.at === null || panel.at === undefined ? -1 : places.findIndex((x) => x >= panel.at);
  const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
  if (step && last >= 0) showAt(panel, places[Math.min(Math.max(here < 0 ? (step > 0 ? 0 : last) : here + step, 0), last)], true);
  else if (event.key === "Home" && last >= 0) showAt(panel, places[0], true);
  else if (event.key === "End" && last >= 0) showAt(panel, places[last], true);
  else if (event.key === "+" || event.key === "=") zoomBy(panel, 0.5);
  else if (event.key === "-") zoomBy(panel, 2);
  else if (event.key === "0") panel.chart.options.onZoom(null);
  else if (event.key === "Escape") hide(panel);
  else return;
  event.preventDefault();
}

function save(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function csv(rows) {
  const cell = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return rows.map((row) => row.map(cell).join(",") + "\n").join("");
}

// what is drawn, point by point
function chartRows({ series, options }) {
  const rows = [["curve", options.labelX, options.labelY, "lowest of the seeds", "highest of the seeds"]];
  for (const s of series) s.x.forEach((x, i) => rows.push([s.name, x, s.y[i], s.low ? s.low[i] : "", s.high ? s.high[i] : ""]));
  return rows;
}

// the chart with its title and legend, drawn with nothing but attributes, as a picture
function pictureOf({ svg, series, width, height, options }) {
  const style = getComputedStyle(svg), back = getComputedStyle(svg.closest(".panel")).backgroundColor;
  const top = 24, row = 18, whole = element("svg", { xmlns: SVG, width, height: height + top + row * series.length + 8, color: style.color, "font-family": "sans-serif", "font-size": 11 });
  element("rect", { width: "100%", height: "100%", fill: back }, whole);
  element("text", { x: 10, y: 17, fill: style.color, "font-size": 13, "font-weight": "bold" }, whole, options.title);
  const copy = svg.cloneNode(true);
  copy.querySelector(".cross")?.remove();
  const all = [...svg.querySelectorAll(":not(.cross)")], copies = [...copy.querySelectorAll("*")];
  all.forEach((node, i) => {
    const paint = getComputedStyle(node);
    for (const name of ["fill", "stroke", "stroke-dasharray", "stroke-width"]) copies[i].setAttribute(name, paint.getPropertyValue(name));
  });
  copy.setAttribute("y", top); copy.setAttribute("width", width);
  whole.append(copy);
  series.forEach((s, i) => {
    const sample = drawSample(whole, s.look), y = height + top + row * i;
    sample.setAttribute("x", 62); sample.setAttribute("y", y);
    element("text", { x: 104, y: y + 10, fill: style.color }, whole, s.name);
  });
  return whole;
}

function savePNG(panel, name) {
  const picture = pictureOf(panel.chart), scale = 2, image = new Image();
  return new Promise((done) => {
    image.onload = () => {
      const canvas = element("canvas", { width: scale * picture.getAttribute("width"), height: scale * picture.getAttribute("height") });
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      pen.drawImage(image, 0, 0);
      canvas.toBlob((blob) => { save(`${name}.png`, blob); done(); }, "image/png");
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(picture));
  });
}

function saveCSV(name, rows) { save(`${name}.csv`, new Blob([csv(rows)], { type: "text/csv" })); }
