// The state of the page, its controls, and what is drawn from them. The state is in the address: a link keeps it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const AXES = { k: "iterations", hvps: "products", seconds: "seconds" };
const AXIS_WORDS = { k: "iterations", hvps: "Hessian-vector and cross products", seconds: "seconds" };
const QUANTITIES = {
  gap: "gap (linear minimisation + y part)", gap_projection: "gap by projection", gap_paper: "gap with the paper's own sigma, tau",
  x_gap: "x part of the gap", y_gap: "y part of the gap", worst_value: "worst-task validation value",
};
const state = { group: DATA.groups[0].key, x: "k", y: "gap", seed: "", logx: "0", logy: "1", best: "0" };
const hidden = new Set(Object.entries(DATA.styles).filter(([, style]) => !style.shown).map(([key]) => key));

const groupRuns = () => DATA.runs.filter((run) => run.group === state.group && run.curve);
const seedsHere = () => [...new Set(groupRuns().map((run) => run.seed))].sort((a, b) => a - b);

function chosenRuns() {
  const order = Object.keys(DATA.styles);
  return groupRuns().filter((run) => state.seed === "all" || String(run.seed) === state.seed)
    .sort((a, b) => DATA.datasets.indexOf(a.dataset) - DATA.datasets.indexOf(b.dataset)
      || order.indexOf(a.method) - order.indexOf(b.method) || a.label.localeCompare(b.label) || a.seed - b.seed);
}

function readAddress() {
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) if (key in state) state[key] = value;
  mend();
}

// values from an address may name what this page does not have
function mend() {
  if (!DATA.groups.some((group) => group.key === state.group)) state.group = DATA.groups[0].key;
  if (!(state.x in AXES)) state.x = "k";
  if (!(state.y in QUANTITIES)) state.y = "gap";
  const seeds = seedsHere().map(String);
  if (state.seed !== "all" && !seeds.includes(state.seed)) state.seed = seeds[0] ?? "";
}

function set(key, value) {
  state[key] = value;
  mend();
  try { history.replaceState(null, "", "#" + new URLSearchParams(state)); } catch { /* a page without an address */ }
  draw();
}

function segments(parent, title, key, choices) {
  const field = element("fieldset", {}, parent);
  element("legend", {}, field, title);
  const group = element("div", { class: "segments" }, field);
  for (const [value, text] of choices) {
    const button = element("button", { type: "button", "data-set": key, "data-choice": value, "aria-pressed": state[key] === value }, group, text);
    button.addEventListener("click", () => set(key, value));
  }
}

function choose(parent, title, key, choices) {
  const field = element("label", { class: "field" }, parent);
  element("span", {}, field, title);
  const select = element("select", { "data-set": key }, field);
  for (const [value, text] of choices) element("option", { value }, select, text).selected = state[key] === value;
  select.addEventListener("change", () => set(key, select.value));
}

function check(parent, text, key) {
  const label = element("label", {}, parent);
  const box = element("input", { type: "checkbox", "data-set": key }, label);
  box.checked = state[key] === "1";
  box.addEventListener("change", () => set(key, box.checked ? "1" : "0"));
  label.append(` ${text}`);
}

function drawControls() {
  const place = document.getElementById("controls"), focus = document.activeElement;
  const again = focus && focus.dataset.set ? `[data-set="${focus.dataset.set}"]` + (focus.dataset.choice ? `[data-choice="${focus.dataset.choice}"]` : "") : null;
  place.replaceChildren();
  if (DATA.groups.length > 4) choose(place, "Experiment", "group", DATA.groups.map((group) => [group.key, group.title]));
  else if (DATA.groups.length > 1) segments(place, "Experiment", "group", DATA.groups.map((group) => [group.key, group.title.split(":")[0]]));
  segments(place, "Against", "x", Object.entries(AXES));
  choose(place, "Quantity", "y", Object.entries(QUANTITIES));
  const seeds = seedsHere();
  if (seeds.length > 1) choose(place, "Seed", "seed", [...seeds.map((seed) => [String(seed), String(seed)]), ["all", "all seeds"]]);
  const checks = element("div", { class: "checks" }, place);
  check(checks, "log x", "logx"); check(checks, "log y", "logy"); check(checks, "best so far", "best");
  if (again) place.querySelector(again)?.focus();
}

function drawLegend(runs) {
  const place = document.getElementById("legend");
  place.replaceChildren();
  for (const key of Object.keys(DATA.styles)) {
    const run = runs.find((one) => one.method === key);
    if (!run) continue;
    const { colour, dash } = DATA.styles[key];
    const button = element("button", { type: "button", "data-method": key, "aria-pressed": !hidden.has(key) }, place);
    const svg = element("svg", { width: 22, height: 8 }, button);
    element("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash }, svg);
    button.append(run.label);
    button.addEventListener("click", () => { hidden.has(key) ? hidden.delete(key) : hidden.add(key); draw(); });
  }
}

const lowest = (values) => { let low = Infinity; return values.map((v) => (v === null ? (low === Infinity ? null : low) : (low = Math.min(low, v)))); };

function seriesOf(run) {
  const { colour, dash } = DATA.styles[run.method];
  const raw = run.curve[state.y] || run.curve.k.map(() => null);
  const x = run.curve[state.x], y = state.best === "1" ? lowest(raw) : raw;
  // the ring stands where the curve ends: a log axis has no place for the gap of 0 that a corner may have
  let last = y.length - 1;
  while (last > 0 && (y[last] === null || (state.logy === "1" && y[last] <= 0))) last--;
  const nu = run.nu === null ? "" : `, nu ${brief(run.nu)}`;
  const marks = run.final.corner ? [{ x: x[last], y: y[last] }] : [];
  const name = run.label + nu + (state.seed === "all" ? `, seed ${run.seed}` : "");
  return { name, method: run.method, colour, dash, thin: state.seed === "all", x, y, marks, corner: run.curve.corner };
}

function panelFor(place, title, what) {
  const panel = element("div", { class: "panel" }, place);
  element("h3", {}, panel, title);
  element("div", { class: "what" }, panel, what);
  return panel;
}

function drawPanels(runs) {
  const place = document.getElementById("panels");
  place.replaceChildren();
  const words = `${QUANTITIES[state.y]}${state.best === "1" ? ", best so far" : ""}`;
  const shown = DATA.datasets.filter((dataset) => runs.some((run) => run.dataset === dataset));
  // all panels first: the width of one depends on how many there are
  const panels = shown.map((dataset) => panelFor(place, dataset, runs.find((run) => run.dataset === dataset).dataset_label));
  for (const [i, dataset] of shown.entries()) {
    const panel = panels[i], here = runs.filter((run) => run.dataset === dataset && !hidden.has(run.method));
    const unit = (x) => (state.x === "k" ? `iteration ${x}` : state.x === "hvps" ? `${x} products` : `${brief(x)} s`);
    drawChart(panel, here.map(seriesOf), { logX: state.logx === "1", logY: state.logy === "1", labelX: AXIS_WORDS[state.x], unit,
      label: `${words} against ${AXIS_WORDS[state.x]}, ${dataset}` });
  }
  const title = DATA.groups.find((group) => group.key === state.group).title;
  document.getElementById("curves-note").textContent = `${title}. Drawn: ${words}, against ${AXIS_WORDS[state.x]}. A ring marks a run that ends at a `
    + "degenerate corner, where the gradient in x is zero whatever x is: a small gap says nothing about x there. Point at or touch a panel for the values; the legend switches curves.";
}

// the grid of nu: one point a run, the chosen one ringed
function drawScale() {
  const all = DATA.runs.filter((run) => run.group === state.group && run.nu !== null && valueAt(run, "final.mean_log10_gap") !== null);
  const first = Math.min(...all.map((run) => run.seed));
  const runs = all.filter((run) => run.seed === first && !hidden.has(run.method));
  const place = document.getElementById("scale-panels"), section = document.getElementById("scale");
  place.replaceChildren();
  section.hidden = !DATA.runs.some((run) => !run.tuned);
  if (section.hidden) return;
  const jobs = [];
  for (const dataset of DATA.datasets) {
    const series = [];
    for (const [method, { colour, dash }] of Object.entries(DATA.styles)) {
      const here = runs.filter((run) => run.dataset === dataset && run.method === method).sort((a, b) => a.nu - b.nu);
      if (here.length < 2) continue;
      const y = here.map((run) => run.final.mean_log10_gap);
      const marks = here.filter((run) => run.tuned).map((run) => ({ x: run.nu, y: run.final.mean_log10_gap }));
      series.push({ name: here[0].label, method, colour, dash, x: here.map((run) => run.nu), y, marks });
    }
    if (series.length) jobs.push([panelFor(place, dataset, "mean log10 gap"), series, { logX: true, logY: false, labelX: "nu",
      unit: (x) => `nu ${brief(x)}`, label: `mean log10 gap against nu, ${dataset}` }]);
  }
  for (const job of jobs) drawChart(...job);
  if (!place.childElementCount) section.hidden = true;
}

function drawSummary() {
  const versions = new Map();
  for (const config of DATA.configs) for (const [name, value] of Object.entries(config.versions || {})) versions.set(name, value);
  const tuned = DATA.runs.filter((run) => run.tuned).length, seeds = new Set(DATA.runs.map((run) => run.seed)).size;
  document.getElementById("summary").textContent = `${DATA.runs.length} runs (${tuned} with the chosen step sizes) on ${DATA.datasets.join(", ")}; `
    + `${seeds} seed${seeds > 1 ? "s" : ""}; ${[...versions].map(([name, value]) => `${name} ${value}`).join(", ")}.`
    + (DATA.configs.some((config) => config.quick) ? " Quick form: fewer steps, seeds or values of nu than the paper's experiments." : "")
    + (DATA.runs.some((run) => run.partial) ? " Some runs were interrupted." : "");
}

function draw() {
  const runs = chosenRuns();
  drawControls(); drawLegend(runs); drawPanels(runs);
  drawFinal(document.getElementById("final"), runs, state.seed === "all");
  drawScale();
  drawCertificates(document.getElementById("certificates"), runs, state.seed === "all");
}

readAddress();
drawSummary();
drawMaps(document.getElementById("maps"));
drawConfiguration(document.getElementById("configuration"), document.getElementById("configurations"));
draw();
addEventListener("hashchange", () => { readAddress(); draw(); });
let drawnAt = innerWidth;
addEventListener("resize", () => { if (innerWidth !== drawnAt) { drawnAt = innerWidth; draw(); } });
