// Sensitivity: the order of the methods, a cell a setting.

// Okabe and Ito, each with the colour of letters that is read on it
const MAP_COLOURS = [["#0072B2", "#fff"], ["#E69F00", "#000"], ["#009E73", "#000"], ["#CC79A7", "#000"], ["#56B4E9", "#000"], ["#D55E00", "#000"], ["#4d4d4d", "#fff"]];
const ORDERS = { order: "mean log10 gap over the run", order_final: "gap at the last step", order_hvps: "gap after as many products as OPF takes" };
const CLAIM = "opf < fp < morbit";

const orderOf = (one) => one[state.map].join(" < ");
const orderText = (order) => order.toUpperCase().replaceAll("MORBIT", "MORBiT");
const capText = (cap) => (cap === null || cap === undefined ? "nu over the whole grid" : `nu at most ${cap}`);

// one map for each experiment, data set and cap: a cell a setting, its colour the order of the methods
function drawMaps(place) {
  const all = DATA.sensitivity;
  if (!all.length) { document.getElementById("sensitivity")?.remove(); return; }
  place.replaceChildren();
  const known = Object.entries(ORDERS).filter(([key]) => all.every((one) => Array.isArray(one[key])));
  if (known.length > 1) {
    const field = element("label", { class: "field" }, place);
    element("span", {}, field, "Order by");
    const select = element("select", { id: "map-order", "data-focus": "map order" }, field);
    for (const [value, text] of known) element("option", { value }, select, text).selected = value === state.map;
    select.addEventListener("change", () => set("map", select.value));
  }
  const count = new Map();
  for (const one of all) count.set(orderOf(one), (count.get(orderOf(one)) || 0) + 1);
  // a colour belongs to an order, whatever the orders are by
  const names = [CLAIM, ...[...new Set(all.flatMap((one) => known.map(([key]) => one[key].join(" < "))))].filter((name) => name !== CLAIM).sort()];
  const colour = (name) => MAP_COLOURS[Math.min(names.indexOf(name), MAP_COLOURS.length - 1)];
  const keys = element("div", { class: "keys" }, place);
  for (const name of names.filter((one) => count.has(one) || one === CLAIM)) {
    const key = element("span", {}, keys);
    element("span", { class: "swatch" }, key).style.background = colour(name)[0];
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
  for (const column of columns) element("span", {}, element("th", { class: "column", scope: "col" }, head), column);
  for (const rowText of rows) {
    const row = element("tr", {}, table);
    element("th", { scope: "row" }, row, rowText);
    for (const column of columns) {
      const one = members.find((m) => text(m, free) === rowText && text(m, across) === column);
      if (!one) { element("td", {}, row); continue; }
      const first = one[state.map][0], stuck = (one.corners || []).includes(first);
      const title = [name, ...Object.entries(one.setting).map(([k, v]) => `${k} ${settingText(v)}`),
        ...one[state.map].map((m) => `${m}: gap ${brief(one.gaps[m])}${(one.corners || []).includes(m) ? ", degenerate corner" : ""}`)].join("\n");
      const cell = element("td", { class: "cell", title }, row, first[0].toUpperCase() + (stuck ? "*" : ""));
      [cell.style.background, cell.style.color] = colour(orderOf(one));
    }
  }
}

// the same as a table, made when it is opened: it may be long
function drawSettings(place, all, known) {
  const details = foldable(place, "settings", `All ${all.length} settings as a table`);
  const fill = () => {
    if (!details.open || details.childElementCount > 1) return;
    const table = element("table", {}, element("div", { class: "scroll" }, details));
    const methods = [...new Set(all.flatMap((one) => Object.keys(one.gaps)))], settings = [...new Set(all.flatMap((one) => Object.keys(one.setting)))];
    const head = element("tr", {}, table);
    for (const title of ["data set", "experiment", ...settings, "nu cap", ...methods.map((m) => `gap ${m}`), ...known.map(([, text]) => `order by ${text}`)]) {
      element("th", { class: "words", scope: "col" }, head, title);
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
  };
  details.addEventListener("toggle", fill);
  fill();
}
