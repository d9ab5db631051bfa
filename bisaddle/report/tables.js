// Tables of numbers, certificates, configurations. Every number carries the run and the key it comes from.

function valueAt(run, path) {
  return path.split(".").reduce((part, key) => (part === null || part === undefined ? null : part[key]), run);
}

// the last of a column is the end of the curve
function endOf(run, path) {
  const found = valueAt(run, path);
  return Array.isArray(found) ? found[found.length - 1] : found ?? null;
}

// what is not finite counts as infinite
function median(values) {
  const sorted = values.map((v) => (v === null ? Infinity : v)).sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// of the runs of a row, which are the seeds of a method, or one run
function rowValue(row, path) {
  const values = row.runs.map((run) => endOf(run, path));
  return values.every((v) => v === null) ? null : median(values);
}

// a data set by its short name and by what it really is
const datasetTitle = ({ dataset, dataset_label: label }) => (label.toLowerCase().startsWith(dataset) ? label : `${dataset}: ${label}`);

// key, head, title; words: a column of text
const COLUMNS = [
  { key: "label", head: "method", words: true }, { key: "seed", head: "seed" }, { key: "nu", head: "nu" },
  { key: "final.gap", head: "gap at the end", best: true, corner: (run) => run.final.corner },
  { key: "final.best_gap", head: "best gap", best: true, corner: (run) => run.best_corner },
  { key: "final.mean_log10_gap", head: "mean log10 gap", best: true }, { key: "final.worst_value", head: "worst-task value", best: true },
  { key: "final.k", head: "steps" }, { key: "curve.hvps", head: "products" }, { key: "curve.seconds", head: "seconds" },
  { key: "remarks", head: "remarks", words: true },
];

const cornered = (row) => row.runs.some((run) => run.final.corner);

function remarksOf(row) {
  const count = (what) => row.runs.filter(what).length, of = (n) => (row.runs.length > 1 ? `, ${n} of ${row.runs.length}` : "");
  const said = [];
  const corners = count((run) => run.final.corner), certified = row.runs.filter((run) => run.final.status === "CERTIFIED"), cut = count((run) => run.partial);
  if (corners) said.push({ mark: "corner", text: "degenerate corner", title: row.runs[0].final.corner_sentence || "" });
  const tol = certified.length ? DATA.configs[certified[0].config].tol : null;
  if (certified.length) said.push({ mark: "certified", text: `certified${tol ? ` to ${tol.toExponential()}` : ""}${of(certified.length)}`, title: certified[0].sentence });
  if (cut) said.push({ mark: "corner", text: `interrupted${of(cut)}`, title: "" });
  return said;
}

// the rows that may be the best in a column: no degenerate corner, and a mean only over as many steps
function rivalsIn(rows, key) {
  const free = rows.filter((row) => !cornered(row)), longest = Math.max(...free.map((row) => rowValue(row, "final.k")));
  return key === "final.mean_log10_gap" ? free.filter((row) => rowValue(row, "final.k") === longest) : free;
}

function cellText(row, column) {
  const value = rowValue(row, column.key), corners = column.corner ? row.runs.filter(column.corner).length : 0;
  const many = row.runs.length > 1 ? ` ${corners} of ${row.runs.length}` : "";
  return brief(value) + (corners ? ` (corner${many})` : "");
}

function sortRows(rows) {
  if (!state.sort) return rows;
  const down = state.sort.startsWith("-"), column = COLUMNS.find((one) => one.key === state.sort.replace(/^-/, ""));
  const key = (row) => (column.key === "remarks" ? remarksOf(row).map((one) => one.text).join() : column.words ? row.runs[0][column.key] : rowValue(row, column.key));
  const compare = (a, b) => (a === null) - (b === null) || (typeof a === "string" ? a.localeCompare(b) : a - b);
  return [...rows].sort((a, b) => (key(a) === null || key(b) === null ? compare(key(a), key(b)) : (down ? -1 : 1) * compare(key(a), key(b))));
}

const columnsOf = (rows) => COLUMNS.filter((column) => column.key !== "seed" || rows.some((row) => row.seed !== null));

// rows: {runs, seed}, the seed null where there is one, or a median of all
function drawFinal(place, rows, sortable = true) {
  const table = element("table", { class: "final" }), columns = columnsOf(rows);
  element("caption", {}, table, `${DATA.groups.find((group) => group.key === (rows[0]?.runs[0].group ?? state.group)).title}${rows.some((row) => row.runs.length > 1) ? "; medians over the seeds" : ""}`);
  const head = element("tr", {}, element("thead", {}, table));
  for (const column of columns) {
    const sorted = state.sort.replace(/^-/, "") === column.key ? (state.sort.startsWith("-") ? "descending" : "ascending") : "none";
    const cell = element("th", { scope: "col", class: column.words ? "words" : "", "aria-sort": sorted }, head);
    if (!sortable) { cell.textContent = column.head; continue; }
    const button = element("button", { type: "button", class: "sort", "data-focus": `sort ${column.key}` }, cell, column.head);
    element("span", { "aria-hidden": "true" }, button, { none: " ↕", ascending: " ↑", descending: " ↓" }[sorted]);
    button.addEventListener("click", () => set("sort", { none: column.key, ascending: `-${column.key}`, descending: "" }[sorted]));
  }
  for (const dataset of DATA.datasets) {
    const here = rows.filter((row) => row.runs[0].dataset === dataset);
    if (!here.length) continue;
    const body = element("tbody", {}, table);
    element("th", { colspan: columns.length, class: "group", scope: "rowgroup" }, element("tr", {}, body), datasetTitle(here[0].runs[0]));
    for (const row of sortRows(here)) drawRow(element("tr", {}, body), row, here, columns);
  }
  place.replaceChildren(table);
}

function drawRow(place, row, here, columns) {
  for (const column of columns) {
    if (column.key === "label") {
      const name = element("th", { scope: "row" }, place);
      drawSample(name, DATA.styles[row.runs[0].method]);
      name.append(` ${row.runs[0].label}`);
    } else if (column.key === "remarks") {
      const cell = element("td", { class: "words" }, place);
      for (const { mark, text, title } of remarksOf(row)) element("span", { class: mark, title }, cell, text);
    } else {
      const value = rowValue(row, column.key), rivals = column.best ? rivalsIn(here, column.key).filter((other) => other.seed === row.seed) : [];
      const best = rivals.includes(row) && value !== null && value === Math.min(...rivals.map((other) => rowValue(other, column.key) ?? Infinity));
      const cell = element("td", { class: best ? "num best" : "num", "data-run": row.runs.map((run) => run.number).join(" "), "data-key": column.key }, place, cellText(row, column));
      if (value !== null && Number.isFinite(value)) {
        cell.setAttribute("data-value", JSON.stringify(value));
        cell.setAttribute("title", row.runs.length > 1 ? `median of ${row.runs.map((run) => endOf(run, column.key)).join(", ")}` : String(value));
      }
    }
  }
}

// the same table with all digits
function finalRows(rows) {
  const columns = columnsOf(rows);
  const made = [["experiment", "data set", ...columns.map((column) => column.head)]];
  for (const row of rows) {
    const cells = columns.map(({ key, words }) => (key === "remarks" ? remarksOf(row).map((one) => one.text).join("; ") : words ? row.runs[0][key] : rowValue(row, key)));
    made.push([row.runs[0].experiment, row.runs[0].dataset, ...cells]);
  }
  return made;
}

function drawVerdict() {
  const { verdict } = DATA;
  if (!verdict) { document.getElementById("verdict").remove(); return; }
  document.getElementById("verdict-sentence").textContent = verdict.sentence;
  const provisional = document.getElementById("provisional");
  if (verdict.provisional) element("strong", { class: "corner" }, provisional, verdict.provisional);
  else provisional.remove();
  // a column that says nothing is left out
  const said = verdict.head.map((_, i) => verdict.rows.some((row) => row[i] && row[i] !== "not run"));
  const table = element("table", { class: "verdict" }), head = element("tr", {}, element("thead", {}, table)), body = element("tbody", {}, table);
  verdict.head.forEach((text, i) => { if (said[i]) element("th", { scope: "col", class: "words" }, head, text); });
  for (const cells of verdict.rows) {
    const row = element("tr", {}, body);
    cells.forEach((text, i) => {
      if (!said[i]) return;
      if (i === 0) element("th", { scope: "row", class: "wrap" }, row, text);
      else element("td", { class: "words" }, row, { holds: "✓ holds", fails: "✗ fails" }[text] || text || "–");
    });
  }
  document.getElementById("verdict-table").replaceChildren(table);
}

function drawCertificates(place, runs, manySeeds) {
  place.replaceChildren();
  for (const dataset of DATA.datasets) {
    const here = runs.filter((run) => run.dataset === dataset);
    if (!here.length) continue;
    const details = foldable(place, `certificates ${dataset}`, `${datasetTitle(here[0])} (${here.length})`);
    const list = element("div", {}, details);
    for (const run of here) {
      const line = element("p", {}, list);
      element("b", {}, line, run.label + (manySeeds ? `, seed ${run.seed}` : ""));
      line.append(`. ${run.sentence} `);
      if (run.final.corner) element("span", { class: "corner" }, line, run.final.corner_sentence || "degenerate corner");
      if (run.final.y && run.final.lam) element("div", { class: "note" }, list, "task weights y " + run.final.y.map(brief).join(", ")
        + "; own shares lambda " + run.final.lam.map(brief).join(", "));
    }
  }
}

function settingText(value) {
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value.join(" + ") || "none";
  return value === undefined ? "" : value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
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
    element("th", { scope: "row" }, row, key);
    element("td", { class: "wrap" }, row, value);
  }
  place.replaceChildren(table);
  const details = foldable(more, "configurations", `Every configuration in full (${DATA.configs.length})`);
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
