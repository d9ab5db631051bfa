// Tables, maps and configurations. Every number carries the run and the key it comes from.

function valueAt(run, path) {
  return path.split(".").reduce((part, key) => (part === null || part === undefined ? null : part[key]), run);
}

// a data set by its short name and by what it really is
const datasetTitle = ({ dataset, dataset_label: label }) => (label.toLowerCase().startsWith(dataset) ? label : `${dataset}: ${label}`);

function numberCell(row, run, path, best = false) {
  // the last of a column is the end of the curve
  const found = valueAt(run, path), value = Array.isArray(found) ? found[found.length - 1] : found;
  const cell = element("td", { class: best ? "num best" : "num", "data-run": run.number, "data-key": path }, row, brief(value));
  if (value !== null && value !== undefined) {
    cell.setAttribute("data-value", JSON.stringify(value));
    cell.setAttribute("title", String(value));
  }
  return cell;
}

function drawFinal(place, runs, manySeeds) {
  const table = element("table", { class: "final" });
  const head = element("tr", {}, element("thead", {}, table));
  const names = ["method", ...(manySeeds ? ["seed"] : []), "nu", "gap at the end", "best gap", "mean log10 gap", "worst-task value",
    "steps", "products", "seconds", "remarks"];
  for (const name of names) element("th", { class: name === "remarks" ? "words" : "" }, head, name);
  const body = element("tbody", {}, table);
  let last = null;
  for (const run of runs) {
    const rivals = runs.filter((other) => other.dataset === run.dataset && other.seed === run.seed);
    const least = (path) => Math.min(...rivals.map((other) => valueAt(other, path)).filter((v) => v !== null && v !== undefined));
    if (run.dataset !== last) {
      element("th", { colspan: names.length, class: "group" }, element("tr", {}, body), datasetTitle(run));
      last = run.dataset;
    }
    const row = element("tr", {}, body);
    const name = element("td", {}, row);
    element("span", { class: "swatch", style: `background:${DATA.styles[run.method].colour}` }, name);
    name.append(run.label);
    if (manySeeds) element("td", { class: "num" }, row, String(run.seed));
    numberCell(row, run, "nu");
    for (const path of ["final.gap", "final.best_gap", "final.mean_log10_gap", "final.worst_value"]) {
      numberCell(row, run, path, valueAt(run, path) === least(path));
    }
    for (const path of ["final.k", "curve.hvps", "curve.seconds"]) numberCell(row, run, path);
    const remarks = element("td", { class: "words" }, row);
    if (run.final.corner) element("span", { class: "corner", title: run.final.corner_sentence || "" }, remarks, "degenerate corner");
    if (run.partial) element("span", { class: "corner" }, remarks, "interrupted");
  }
  place.replaceChildren(table);
}

function drawCertificates(place, runs, manySeeds) {
  const open = new Set([...place.querySelectorAll("details[open]")].map((d) => d.dataset.dataset));
  place.replaceChildren();
  for (const dataset of DATA.datasets) {
    const here = runs.filter((run) => run.dataset === dataset);
    if (!here.length) continue;
    const details = element("details", { "data-dataset": dataset }, place);
    details.open = open.size ? open.has(dataset) : !place.querySelector("details[open]");
    element("summary", {}, details, `${datasetTitle(here[0])} (${here.length})`);
    const list = element("div", {}, details);
    for (const run of here) {
      const line = element("p", {}, list);
      element("b", {}, line, run.label + (manySeeds ? `, seed ${run.seed}` : ""));
      line.append(`. ${run.sentence}`);
      if (run.final.corner) element("span", { class: "corner" }, line, run.final.corner_sentence || "degenerate corner");
      if (run.final.y && run.final.lam) element("div", { class: "note" }, list, "task weights y " + run.final.y.map(brief).join(", ")
        + "; own shares lambda " + run.final.lam.map(brief).join(", "));
    }
  }
}

const MAP_COLOURS = ["#2f7ed8", "#c2410c", "#7c3aed", "#0f766e", "#a16207", "#be185d", "#475569"];
const ORDERS = { order: "mean log10 gap over the run", order_final: "gap at the last step", order_hvps: "gap after as many products as OPF takes" };
const CLAIM = "opf < fp < morbit";
let mapOrder = "order";

const orderOf = (one) => one[mapOrder].join(" < ");
const orderText = (order) => order.toUpperCase().replaceAll("MORBIT", "MORBiT");
const capText = (cap) => (cap === null || cap === undefined ? "nu over the whole grid" : `nu at most ${cap}`);

function settingText(value) {
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value.join(" + ") || "none";
  return value === undefined ? "" : value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}

// one map for each experiment, data set and cap: a cell a setting, its colour the order of the methods
function drawMaps(place) {
  const all = DATA.sensitivity;
  if (!all.length) { document.getElementById("sensitivity").remove(); return; }
  place.replaceChildren();
  const known = Object.entries(ORDERS).filter(([key]) => all.every((one) => Array.isArray(one[key])));
  if (known.length > 1) {
    const field = element("label", { class: "field" }, place);
    element("span", {}, field, "Order by");
    const select = element("select", { id: "map-order" }, field);
    for (const [value, text] of known) element("option", { value }, select, text).selected = value === mapOrder;
    select.addEventListener("change", () => { mapOrder = select.value; drawMaps(place); document.getElementById("map-order").focus(); });
  }
  const count = new Map();
  for (const one of all) count.set(orderOf(one), (count.get(orderOf(one)) || 0) + 1);
  // a colour belongs to an order, whatever the orders are by
  const names = [CLAIM, ...[...new Set(all.flatMap((one) => known.map(([key]) => one[key].join(" < "))))].filter((name) => name !== CLAIM).sort()];
  const colour = (name) => MAP_COLOURS[Math.min(names.indexOf(name), MAP_COLOURS.length - 1)];
  const keys = element("div", { class: "keys" }, place);
  for (const name of names.filter((one) => count.has(one) || one === CLAIM)) {
    const key = element("span", {}, keys);
    element("span", { class: "swatch", style: `background:${colour(name)}` }, key);
    key.append(`${orderText(name)}: ${count.get(name) || 0} of ${all.length}${name === CLAIM ? " (the paper's order)" : ""}`);
  }
  const groups = new Map();
  for (const one of all) {
    const named = (one.experiment || "").includes(one.dataset) ? [] : [one.dataset];
    const name = [one.experiment, ...named, capText(one.cap)].filter((part) => part).join(", ");
    groups.set(name, [...(groups.get(name) || []), one]);
  }
  const maps = element("div", { class: "maps" }, place);
  for (const [name, members] of groups) drawMap(element("div", { class: "map scroll" }, maps), name, members, colour);
  element("p", { class: "note" }, place, "A letter names the method with the least gap (O, F, M); an asterisk says that it ended at a degenerate corner. "
    + "Point at a cell for the setting and the gaps.");
  drawSettings(place, all, known);
}

function drawMap(place, name, members, colour) {
  element("h3", {}, place, name);
  const claimed = members.filter((one) => orderOf(one) === CLAIM).length;
  element("p", { class: "note" }, place, `the paper's order in ${claimed} of ${members.length}`);
  const values = (key) => [...new Set(members.map((one) => settingText(one.setting[key])))];
  const free = Object.keys(members[0].setting).filter((key) => values(key).length > 1);
  // columns: as many of the last keys as make a map that is not too wide
  const across = [];
  while (free.length > 1 && [...across, free[free.length - 1]].reduce((n, key) => n * values(key).length, 1) <= 12) across.unshift(free.pop());
  if (!across.length && free.length) across.unshift(free.pop());
  const text = (one, keys) => keys.map((key) => settingText(one.setting[key])).join(" · ");
  const columns = [...new Set(members.map((one) => text(one, across)))], rows = [...new Set(members.map((one) => text(one, free)))];
  const table = element("table", {}, place);
  const head = element("tr", {}, table);
  const corner = element("th", { class: "axes" }, head);
  element("div", {}, corner, `${across.join(" · ")} →`);
  element("div", {}, corner, free.length ? `${free.join(" · ")} ↓` : "");
  for (const column of columns) element("span", {}, element("th", { class: "column" }, head), column);
  for (const rowText of rows) {
    const row = element("tr", {}, table);
    element("th", {}, row, rowText);
    for (const column of columns) {
      const one = members.find((m) => text(m, free) === rowText && text(m, across) === column);
      if (!one) { element("td", {}, row); continue; }
      const first = one[mapOrder][0], cornered = (one.corners || []).includes(first);
      const title = [name, ...Object.entries(one.setting).map(([k, v]) => `${k} ${settingText(v)}`),
        ...one[mapOrder].map((m) => `${m}: gap ${brief(one.gaps[m])}${(one.corners || []).includes(m) ? ", degenerate corner" : ""}`)].join("\n");
      element("td", { class: "cell", style: `background:${colour(orderOf(one))}`, title }, row, first[0].toUpperCase() + (cornered ? "*" : ""));
    }
  }
}

// the same as a table, made when it is opened: it may be long
function drawSettings(place, all, known) {
  const details = element("details", { id: "settings" }, place);
  element("summary", {}, details, `All ${all.length} settings as a table`);
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const table = element("table", {}, element("div", { class: "scroll" }, details));
    const methods = [...new Set(all.flatMap((one) => Object.keys(one.gaps)))], settings = [...new Set(all.flatMap((one) => Object.keys(one.setting)))];
    const head = element("tr", {}, table);
    for (const title of ["data set", "experiment", ...settings, "nu cap", ...methods.map((m) => `gap ${m}`), ...known.map(([, text]) => `order by ${text}`)]) {
      element("th", { class: "words" }, head, title);
    }
    all.forEach((one, i) => {
      const row = element("tr", {}, table);
      const words = [one.dataset, one.experiment, ...settings.map((key) => one.setting[key]), one.cap ?? "none"];
      for (const word of words) element("td", { class: "words" }, row, settingText(word));
      for (const m of methods) {
        const cell = element("td", { class: "num", "data-setting": i, "data-key": m }, row, brief(one.gaps[m]));
        if (typeof one.gaps[m] === "number") cell.setAttribute("data-value", JSON.stringify(one.gaps[m]));
      }
      for (const [key] of known) element("td", { class: "words" }, row, orderText(one[key].join(" < ")));
    });
  });
}

// {a: {b: 1}} -> {"a.b": 1}
function flat(value, name = "", found = {}) {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) flat(inner, name ? `${name}.${key}` : key, found);
  } else found[name] = typeof value === "number" ? String(Number(value.toPrecision(6))) : settingText(value);
  return found;
}

// a line a setting: one value if all runs share it, a few, or how many; each configuration in full below
function drawConfiguration(place, more) {
  const configs = DATA.configs.map((config) => flat(config));
  const keys = [...new Set(configs.flatMap((config) => Object.keys(config)))];
  const table = element("table", {});
  const seeds = [...new Set(DATA.runs.map((run) => run.seed))].sort((a, b) => a - b);
  const rows = [["seeds", seeds.join(", ")]];
  for (const key of keys) {
    const values = [...new Set(configs.filter((config) => key in config).map((config) => config[key]))];
    rows.push([key, values.length === 1 ? values[0] : values.join(" | ").length <= 120 ? values.join(" | ") : `${values.length} values, see below`]);
  }
  for (const [key, value] of rows) {
    const row = element("tr", {}, table);
    element("td", {}, row, key);
    element("td", { class: "wrap" }, row, value);
  }
  place.replaceChildren(table);
  const details = element("details", {}, more);
  element("summary", {}, details, `Every configuration in full (${DATA.configs.length})`);
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    DATA.configs.forEach((config, i) => {
      const inner = element("details", {}, details);
      const seen = DATA.runs.filter((run) => run.config === i).map((run) => `${run.experiment}, ${run.label}, seed ${run.seed}`);
      element("summary", {}, inner, seen.slice(0, 3).join("; ") + (seen.length > 3 ? ` and ${seen.length - 3} more` : ""));
      element("pre", {}, inner, JSON.stringify(config, null, 1));
    });
  });
}
