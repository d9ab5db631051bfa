// The state of the page, its controls, and what is drawn from them. The state is in the address: a link keeps it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const AXES = { k: "iterations", hvps: "products", seconds: "seconds" };
// in the menu, and on the axis
const QUANTITIES = {
  gap: ["gap (linear minimisation + y part)", "stationarity gap"], gap_projection: ["gap by projection", "gap by projection"],
  gap_paper: ["gap with the paper's own sigma, tau", "gap, own sigma and tau"], x_gap: ["x part of the gap", "x part of the gap"],
  y_gap: ["y part of the gap", "y part of the gap"], worst_value: ["worst-task validation value", "worst-task value"],
};
const METHODS = Object.keys(DATA.styles);
const DEFAULTS = { group: DATA.groups[0].key, x: "k", y: "gap", seed: "median", logx: "1", logy: "1", best: "0", map: "order", sort: "", zoom: "", open: "",
  off: METHODS.filter((key) => !DATA.styles[key].shown).join(",") };
const state = { ...DEFAULTS };

// columns of even steps are written short
for (const { curve } of DATA.runs) {
  for (const name of curve ? Object.keys(AXES) : []) {
    if (Array.isArray(curve[name])) continue;
    const { first, last, count } = curve[name], whole = Number.isInteger(first) && Number.isInteger(last);
    const value = (i) => (i === count - 1 ? last : first + (i * (last - first)) / (count - 1));
    curve[name] = Array.from({ length: count }, (_, i) => (whole ? Math.round(value(i)) : value(i)));
  }
}

const listed = (key) => state[key].split(",").filter((part) => part);
const shown = (method) => !listed("off").includes(method);
const groupRuns = (group = state.group) => DATA.runs.filter((run) => run.group === group && run.curve);
const seedsHere = () => [...new Set(groupRuns().map((run) => run.seed))].sort((a, b) => a - b);
const axisOf = (key) => (key === "hvps" ? "Hessian-vector and cross products" : AXES[key]);

function inOrder(a, b) {
  return DATA.datasets.indexOf(a.dataset) - DATA.datasets.indexOf(b.dataset) || METHODS.indexOf(a.method) - METHODS.indexOf(b.method)
    || a.label.localeCompare(b.label) || a.seed - b.seed;
}

// what is drawn and tabulated as one: a run, or the seeds of a method
function rowsOf(group = state.group) {
  const runs = groupRuns(group).sort(inOrder);
  if (state.seed !== "median") return runs.filter((run) => state.seed === "all" || String(run.seed) === state.seed).map((run) => ({ runs: [run], seed: state.seed === "all" ? run.seed : null }));
  const rows = new Map();
  for (const run of runs) {
    const key = `${run.experiment} ${run.dataset} ${run.method}`;
    rows.set(key, [...(rows.get(key) || []), run]);
  }
  return [...rows.values()].map((members) => ({ runs: members, seed: null }));
}

function readAddress() {
  Object.assign(state, DEFAULTS);
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) if (key in state) state[key] = value;
  mend();
}

// values from an address may name what this page does not have
function mend() {
  if (!DATA.groups.some((group) => group.key === state.group)) state.group = DEFAULTS.group;
  if (!(state.x in AXES)) state.x = DEFAULTS.x;
  if (!(state.y in QUANTITIES)) state.y = DEFAULTS.y;
  if (!(state.map in ORDERS) || !DATA.sensitivity.every((one) => Array.isArray(one[state.map]))) state.map = DEFAULTS.map;
  if (!COLUMNS.some(({ key }) => key === state.sort.replace(/^-/, ""))) state.sort = "";
  const seeds = seedsHere().map(String);
  if (!["all", "median", ...seeds].includes(state.seed) || seeds.length === 1) state.seed = "median";
}

function keepAddress() {
  const changed = Object.entries(state).filter(([key, value]) => value !== DEFAULTS[key]);
  try { history.replaceState(null, "", "#" + new URLSearchParams(changed)); } catch { /* a page without an address */ }
}

function set(key, value) {
  state[key] = value;
  if (["group", "x", "y"].includes(key)) state.zoom = "";  // other numbers on the axes
  mend();
  keepAddress();
  draw();
}

const zooms = () => new Map(state.zoom.split(";").map((part) => {
  const cut = part.lastIndexOf(":"), [a, b, c, d] = part.slice(cut + 1).split(",").map(Number);
  return [part.slice(0, cut), [a, b, c, d].every(Number.isFinite) && a < b && c < d ? { x: [a, b], y: [c, d] } : null];
}));

function zoomed(key) {
  return { zoom: zooms().get(key) ?? null, onZoom: (zoom) => {
    const all = zooms();
    zoom ? all.set(key, zoom) : all.delete(key);
    const four = (v) => Number(v.toPrecision(5));
    set("zoom", [...all].filter(([name, one]) => name && one).map(([name, one]) => `${name}:${[...one.x, ...one.y].map(four).join(",")}`).join(";"));
  } };
}

// details whose state is in the address
function remember(details) {
  const name = details.dataset.open, summary = details.querySelector("summary");
  summary.setAttribute("data-focus", `open ${name}`);
  details.open = listed("open").includes(name);
  details.addEventListener("toggle", () => {
    if (printing || !details.isConnected) return;
    state.open = [...listed("open").filter((one) => one !== name), ...(details.open ? [name] : [])].join(",");
    keepAddress();
  });
}

function foldable(place, name, title) {
  const details = element("details", { "data-open": name }, place);
  element("summary", {}, details, title);
  remember(details);
  return details;
}

function segments(parent, title, key, choices) {
  const field = element("fieldset", {}, parent);
  element("legend", {}, field, title);
  const group = element("div", { class: "segments" }, field);
  for (const [value, text] of choices) {
    const button = element("button", { type: "button", "data-set": key, "data-choice": value, "data-focus": `${key} ${value}`, "aria-pressed": state[key] === value }, group, text);
    button.addEventListener("click", () => set(key, value));
  }
}

function choose(parent, title, key, choices) {
  const field = element("label", { class: "field" }, parent);
  element("span", {}, field, title);
  const select = element("select", { "data-set": key, "data-focus": key }, field);
  for (const [value, text] of choices) element("option", { value }, select, text).selected = state[key] === value;
  select.addEventListener("change", () => set(key, select.value));
}

function check(parent, text, key) {
  const label = element("label", {}, parent);
  const box = element("input", { type: "checkbox", "data-set": key, "data-focus": key }, label);
  box.checked = state[key] === "1";
  box.addEventListener("change", () => set(key, box.checked ? "1" : "0"));
  label.append(` ${text}`);
}

function drawControls() {
  const place = document.getElementById("controls");
  place.replaceChildren();
  if (DATA.groups.length > 4) choose(place, "Experiment", "group", DATA.groups.map((group) => [group.key, group.title]));
  else if (DATA.groups.length > 1) segments(place, "Experiment", "group", DATA.groups.map((group) => [group.key, group.title.split(":")[0]]));
  segments(place, "Against", "x", Object.entries(AXES));
  choose(place, "Quantity", "y", Object.entries(QUANTITIES).map(([key, [text]]) => [key, text]));
  const seeds = seedsHere();
  if (seeds.length > 1) choose(place, "Seed", "seed", [["median", "median and range"], ...seeds.map((seed) => [String(seed), String(seed)]), ["all", "every seed"]]);
  const checks = element("div", { class: "checks" }, place);
  check(checks, "log x", "logx"); check(checks, "log y", "logy"); check(checks, "best so far", "best");
}

function drawLegend(place, rows, fixed = false) {
  place.replaceChildren();
  for (const key of METHODS) {
    const row = rows.find((one) => one.runs[0].method === key);
    if (!row || (fixed && !shown(key))) continue;
    const button = element(fixed ? "span" : "button", fixed ? {} : { type: "button", "data-method": key, "data-focus": `legend ${key}`, "aria-pressed": shown(key) }, place);
    drawSample(button, DATA.styles[key]);
    button.append(row.runs[0].label);
    if (!fixed) button.addEventListener("click", () => set("off", (shown(key) ? [...listed("off"), key] : listed("off").filter((one) => one !== key)).join(",")));
  }
}

const lowest = (values) => { let low = Infinity; return values.map((v) => (v === null ? (low === Infinity ? null : low) : (low = Math.min(low, v)))); };
const at = (columns, k) => { let i = -1; while (i + 1 < columns.length && columns[i + 1] <= k) i++; return i; };

// a row as a curve: the median of its runs where they have one, and the range between them
function seriesOf(row) {
  const [first] = row.runs, many = row.runs.length > 1;
  const parts = row.runs.filter(({ curve }) => curve.values[state.y]).map(({ curve }) => {
    const raw = curve.values[state.y], places = curve.at[state.y];
    return { curve, places, ks: places.map((i) => curve.k[i]), y: state.best === "1" ? lowest(raw) : raw };
  });
  const ks = [...new Set(parts.flatMap((part) => part.ks))].sort((a, b) => a - b);
  const seen = parts.map((part) => ks.map((k) => at(part.ks, k)));
  const column = (value) => ks.map((_, n) => parts.map((part, p) => (seen[p][n] < 0 ? null : value(part, seen[p][n]))));
  const finite = (v) => (Number.isFinite(v) ? v : null), has = (values) => values.filter((v) => v !== null);
  const x = column((part, i) => part.curve[state.x][part.places[i]]).map(median), heights = column((part, i) => part.y[i]);
  const y = heights.map((values) => finite(median(values)));
  const corner = column((part, i) => part.curve.corner.some(([from, to]) => part.places[i] >= from && part.places[i] < to)).map((flags) => 2 * flags.filter(Boolean).length > flags.length);
  const range = many ? { low: heights.map((v) => (has(v).length ? Math.min(...has(v)) : null)), high: heights.map((v) => (has(v).length ? Math.max(...has(v)) : null)) } : {};
  // the ring stands where the curve ends: a log axis has no place for the gap of 0 that a corner may have
  let last = y.length - 1;
  while (last > 0 && (y[last] === null || (state.logy === "1" && y[last] <= 0))) last--;
  const nu = first.nu === null ? "" : `, nu ${brief(first.nu)}`;
  const name = first.label + nu + (row.seed !== null ? `, seed ${row.seed}` : "");
  const marks = y.length && cornered(row) ? [{ x: x[last], y: y[last] }] : [];
  return { name, method: first.method, look: DATA.styles[first.method], thin: row.seed !== null, x, y, ...range, marks, corner,
    ends: row.runs.every((run) => run.final.status === "CERTIFIED") };
}

function panelFor(place, title, what, key) {
  const panel = element("div", { class: "panel" }, place);
  const head = element("div", { class: "head" }, panel);
  element("h3", {}, head, title);
  const tools = element("div", { class: "tools" }, head), name = () => `${state.group} ${key} ${state.y} ${state.x}`.replace(/\W+/g, "_");
  const tool = (text, words, act) => element("button", { type: "button", title: words, "aria-label": `${words}, ${title}`, "data-focus": `${text} ${key}` }, tools, text).addEventListener("click", act);
  tool("+", "Zoom in", () => zoomBy(panel, 0.5)); tool("−", "Zoom out", () => zoomBy(panel, 2)); tool("all", "Show all", () => panel.chart.options.onZoom(null));
  tool("PNG", "Save as a picture", () => savePNG(panel, name())); tool("CSV", "Save the points drawn", () => saveCSV(name(), chartRows(panel.chart)));
  element("div", { class: "what" }, panel, what);
  return panel;
}

// what seconds are, as the configurations say
function secondsHow(rows) {
  return [...new Set(rows.flatMap((row) => row.runs).map((run) => DATA.configs[run.config].seconds_how).filter((how) => how))];
}

function xLabel(rows) {
  if (state.x !== "seconds") return axisOf(state.x);
  const said = [...new Set(secondsHow(rows).map((how) => how.split(",")[0]))];
  return said.length === 1 ? `seconds ${said[0]}` : said.length ? "seconds, not all measured alike: see below" : "seconds";
}

function drawPanels(place, rows) {
  place.replaceChildren();
  const best = state.best === "1" ? ", best so far" : "", labelX = xLabel(rows);
  const datasets = DATA.datasets.filter((dataset) => rows.some((row) => row.runs[0].dataset === dataset));
  // all panels first: the width of one depends on how many there are
  const panels = datasets.map((dataset) => panelFor(place, dataset, rows.find((row) => row.runs[0].dataset === dataset).runs[0].dataset_label, dataset));
  for (const [i, dataset] of datasets.entries()) {
    const here = rows.filter((row) => row.runs[0].dataset === dataset && shown(row.runs[0].method));
    const unit = (x) => (state.x === "k" ? `iteration ${x}` : state.x === "hvps" ? `${x} products` : `${brief(x)} s`);
    drawChart(panels[i], here.map(seriesOf), { key: dataset, logX: state.logx === "1", logY: state.logy === "1", labelX, labelY: QUANTITIES[state.y][1] + best, unit,
      title: `${dataset}: ${QUANTITIES[state.y][1]}${best}`, label: `${QUANTITIES[state.y][0]}${best} against ${axisOf(state.x)}, ${dataset}`, ...zoomed(dataset) });
  }
}

function drawNote(rows) {
  const title = DATA.groups.find((group) => group.key === state.group).title;
  const seeds = rows.some((row) => row.runs.length > 1) ? " Lines are medians over the seeds, bands go from the least to the largest." : "";
  const seconds = state.x === "seconds" && secondsHow(rows).length ? ` Seconds: ${secondsHow(rows).join("; or ")}.` : "";
  document.getElementById("curves-note").textContent = `${title}. Drawn: ${QUANTITIES[state.y][0]}${state.best === "1" ? ", best so far" : ""}, against ${axisOf(state.x)}.${seeds}${seconds} `
    + "A ring marks a run that ends at a degenerate corner, where the gradient in x is zero whatever x is; a large marker at the end one that ends certified. "
    + "Point at a panel for its values, or go there by Tab and use the arrow keys; drag to zoom, double-click to see all. The legend switches curves.";
}

// the grid of nu: one point a run, the chosen one ringed
function drawScale() {
  const all = DATA.runs.filter((run) => run.group === state.group && run.nu !== null && valueAt(run, "final.mean_log10_gap") !== null);
  const first = Math.min(...all.map((run) => run.seed));
  const runs = all.filter((run) => run.seed === first && shown(run.method));
  const place = document.getElementById("scale-panels"), section = document.getElementById("scale");
  place.replaceChildren();
  section.hidden = !DATA.runs.some((run) => !run.tuned);
  if (section.hidden) return;
  const jobs = [];
  for (const dataset of DATA.datasets) {
    const series = [];
    for (const [method, look] of Object.entries(DATA.styles)) {
      const here = runs.filter((run) => run.dataset === dataset && run.method === method).sort((a, b) => a.nu - b.nu);
      if (here.length < 2) continue;
      const y = here.map((run) => run.final.mean_log10_gap);
      const marks = here.filter((run) => run.tuned).map((run) => ({ x: run.nu, y: run.final.mean_log10_gap }));
      series.push({ name: here[0].label, method, look, x: here.map((run) => run.nu), y, marks, corner: here.map((run) => run.final.corner) });
    }
    const key = `nu ${dataset}`;
    if (series.length) jobs.push([panelFor(place, dataset, "a point a run", key), series, { key, logX: true, logY: false, labelX: "nu", labelY: "mean log10 gap",
      title: `${dataset}: mean log10 gap`, unit: (x) => `nu ${brief(x)}`, label: `mean log10 gap against nu, ${dataset}`, ...zoomed(key) }]);
  }
  for (const job of jobs) drawChart(...job);
  if (!place.childElementCount) section.hidden = true;
}

function drawSummary() {
  const versions = new Map();
  for (const config of DATA.configs) for (const [name, value] of Object.entries(config.versions || {})) versions.set(name, value);
  const tuned = DATA.runs.filter((run) => run.tuned).length, seeds = new Set(DATA.runs.map((run) => run.seed)).size;
  document.getElementById("summary").textContent = `${DATA.runs.length} runs (${tuned} with the chosen step sizes) on ${DATA.datasets.join(", ")}; `
    + `${seeds} seed${seeds > 1 ? "s" : ""}; ${[...versions].map(([name, value]) => `${name} ${value}`).join(", ")}.`;
}

let drawnMap = null, printing = false;

function draw() {
  const focus = document.activeElement?.dataset?.focus, panel = document.activeElement?.closest?.(".panel"), read = panel?.at ?? null;
  const rows = rowsOf();
  drawControls(); drawLegend(document.getElementById("legend"), rows); drawPanels(document.getElementById("panels"), rows); drawNote(rows);
  drawFinal(document.getElementById("final"), rows);
  drawScale();
  if (drawnMap !== state.map) drawMaps(document.getElementById("maps"));
  drawnMap = state.map;
  const runs = rows.flatMap((row) => row.runs);
  drawCertificates(document.getElementById("certificates"), runs, new Set(runs.map((run) => run.seed)).size > 1);
  // what was focused is another element now
  const again = focus ? document.querySelector(`[data-focus="${CSS.escape(focus)}"]`) : null;
  if (!again) return;
  again.focus({ preventScroll: true });
  const there = again.closest(".panel");
  if (there && read !== null && placesOf(there.chart).includes(read)) showAt(there, read, false);
}

// on paper: every experiment with its curves and its table, and all certificates of the one shown
addEventListener("beforeprint", () => {
  printing = true;
  drawPanels(document.getElementById("panels"), rowsOf()); drawScale();
  const place = document.getElementById("printed");
  for (const { key, title } of DATA.groups.filter((group) => group.key !== state.group)) {
    const part = element("section", {}, place), rows = rowsOf(key);
    element("h2", {}, part, title);
    drawLegend(element("div", { class: "legend" }, part), rows, true);
    drawPanels(element("div", { class: "panels" }, part), rows);
    drawFinal(element("div", {}, part), rows, false);
  }
  for (const details of document.querySelectorAll("#certificates details")) details.open = true;
});
addEventListener("afterprint", () => {
  printing = false;
  document.getElementById("printed").replaceChildren();
  draw();
});

readAddress();
drawSummary();
drawVerdict();
drawConfiguration(document.getElementById("configuration"), document.getElementById("configurations"));
document.querySelectorAll("details[data-open=configuration]").forEach(remember);
document.getElementById("final-csv").addEventListener("click", () => saveCSV(`${state.group}_final`, finalRows(rowsOf())));
draw();
addEventListener("hashchange", () => {
  readAddress();
  draw();
  for (const details of document.querySelectorAll("details[data-open]")) details.open = listed("open").includes(details.dataset.open);
});
let drawnAt = innerWidth;
addEventListener("resize", () => { if (innerWidth !== drawnAt && !printing) { drawnAt = innerWidth; draw(); } });
