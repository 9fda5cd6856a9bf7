"use strict";
// Draws the numbers that the schemes computed; nothing is computed here but which of them to show.
(() => {
const DATA = JSON.parse(document.getElementById("data").textContent);
const MISSING = -32768;
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 44rem)");
const state = {...DATA.start, head: 0, scheme: Object.keys(DATA.bias_lengths)[0],
  shuffled: DATA.shuffled[0], pairing: DATA.pairings[0]};

function unpack({shape, step, data}) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const values = Array.from({length: bytes.length / 2}, (_, i) => {
    const steps = view.getInt16(2 * i, true);
    return steps === MISSING ? null : steps * step;
  });
  return {shape, values};
}
const arrays = {};
for (const [name, packed] of Object.entries(DATA.arrays)) arrays[name] = unpack(packed);

// The part of an array at these first indices, as nested lists.
function part(name, ...indices) {
  const {shape, values} = arrays[name];
  const rest = shape.slice(indices.length);
  const size = rest.reduce((a, b) => a * b, 1);
  const start = indices.reduce((place, index, axis) => place * shape[axis] + index, 0) * size;
  return nest(values.slice(start, start + size), rest);
}
function nest(values, shape) {
  if (shape.length < 2) return values;
  const size = values.length / shape[0];
  return Array.from({length: shape[0]}, (_, i) =>
    nest(values.slice(i * size, (i + 1) * size), shape.slice(1)));
}
const range = (n) => Array.from({length: n}, (_, i) => i);
const chosen = (name) => DATA.sliders[name][state[name]];
const whole = (n) => n.toLocaleString("en-US");
const written = (x) => Number(x).toLocaleString("en-US", {maximumSignificantDigits: 3});
const colour = (name) => DATA.colours[name][dark.matches ? 1 : 0];

function theme() {
  const css = getComputedStyle(document.documentElement);
  const read = (name) => css.getPropertyValue(name).trim();
  const night = dark.matches;
  const scale = (list) => list.map((c, i) => [i / (list.length - 1), c]);
  return {ink: read("--ink"), quiet: read("--quiet"), rule: read("--rule"), page: read("--page"),
    turning: scale(night ? ["#4fa3f0", "#161616", "#f2685c"] : ["#2166ac", "#ffffff", "#b2182b"]),
    deep: scale(night ? ["#b5dcff", "#4a93d1", "#1f5a94", "#133350", "#161616"]
      : ["#08306b", "#2373b3", "#6aaed6", "#cfe3f1", "#ffffff"]),
    nothing: night ? "#3a342a" : "#ede7dc",
    seen: night ? ["#3d3d3d", "#2f6f9e", "#f0714a"] : ["#e3e3e3", "#8fc1e3", "#c2370f"]};
}
function axis(look, title, more = {}) {
  return {title: {text: title, standoff: 8}, color: look.ink, gridcolor: look.rule, linecolor: look.rule,
    zeroline: false, fixedrange: true, automargin: true, ...more};
}
function layout(look, x, y, more = {}) {
  return {paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false,
    font: {color: look.ink, size: narrow.matches ? 11 : 12.5}, height: narrow.matches ? 300 : 360,
    margin: {l: 50, r: 12, t: 36, b: 44}, xaxis: x, yaxis: y, hovermode: "closest",
    legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom"}, ...more};
}
const bar = (look, title) => ({thickness: 10, outlinewidth: 0, tickfont: {color: look.ink},
  title: {text: title, side: "right"}});
const down = {autorange: "reversed", showgrid: false};
function trainingLine(look, along) {
  const place = along === "x" ? {x0: DATA.train_length, x1: DATA.train_length, y0: 0, y1: 1, yref: "paper"}
    : {y0: DATA.train_length, y1: DATA.train_length, x0: 0, x1: 1, xref: "paper"};
  return {type: "line", line: {color: look.quiet, width: 1, dash: "dash"}, ...place};
}
const logTicks = (low, high) => {
  const powers = range(high - low + 1).map((i) => low + i);
  return {type: "log", tickvals: powers.map((k) => 10 ** k),
    ticktext: powers.map((k) => k < 4 ? String(10 ** k) : `10<sup>${k}</sup>`)};
};
function familyLines(x, rows, hover) {
  return DATA.family.map((name, i) => ({x, y: rows[i], name, mode: "lines",
    line: {color: colour(name), width: 2}, hovertemplate: `${name}<br>${hover}<extra></extra>`}));
}

const draw = {
  sinusoid_table(look) {
    const table = part("sinusoid", state.base), row = table[state.position];
    const last = table.length - 1, frame = {xref: "paper", x0: 0, x1: 1,
      y0: state.position - 0.5, y1: state.position + 0.5};
    const heat = {type: "heatmap", z: table, zmin: -1, zmax: 1, colorscale: look.turning,
      colorbar: bar(look, "added"),
      hovertemplate: "position %{y}, channel %{x}: %{z:.3f}<extra></extra>"};
    const half = (name, first, look) => ({x: range(row.length / 2).map((t) => 2 * t + first),
      y: row.filter((_, i) => i % 2 === first), mode: "lines+markers", name, marker: {size: 5}, line: look,
      hovertemplate: "channel %{x}: %{y:.3f}<extra></extra>"});
    return {plots: [
      [[heat], layout(look, axis(look, "channel", {showgrid: false}),
        axis(look, "position (tokens)", {range: [last + 0.5, -0.5], showgrid: false}),
        {shapes: [{type: "rect", line: {color: look.ink, width: 1.5}, ...frame}],
          margin: {l: 50, r: 12, t: 12, b: 44}})],
      [[half("sines (even channels)", 0, {color: colour("sinusoidal"), width: 2}),
        half("cosines (odd channels)", 1, {color: look.quiet, width: 1.4, dash: "dot"})],
      layout(look, axis(look, "channel"), axis(look, "added", {range: [-1.1, 1.1]}), {height: 240})]]};
  },
  rotation(look) {
    const now = part("rotation", state.base, state.position);
    const path = range(state.position + 1).map((p) => part("rotation", state.base, p));
    const lengths = [1, 0.86, 0.72, 0.58];
    const traces = now.flatMap(([x, y], t) => {
      const tint = DATA.pairs[t][dark.matches ? 1 : 0], long = lengths[t];
      return [{x: path.map((p) => p[t][0] * long), y: path.map((p) => p[t][1] * long), mode: "markers",
        marker: {size: 5, color: tint, opacity: 0.35}, hoverinfo: "skip", showlegend: false},
      {x: [0, x * long], y: [0, y * long], mode: "lines+markers", name: `pair ${t}`,
        line: {color: tint, width: 3.5}, marker: {size: [0, 12], color: tint},
        hovertemplate: `pair ${t}: ${x.toFixed(3)} + ${y.toFixed(3)}i<extra></extra>`}];
    });
    const circles = lengths.map((r) => ({type: "circle", x0: -r, y0: -r, x1: r, y1: r,
      line: {color: look.rule, width: 1}, layer: "below"}));
    const square = {range: [-1.12, 1.12], tickvals: [-1, 0, 1], showgrid: false};
    return {plots: [[traces, layout(look, axis(look, "first channel of the pair", square),
      axis(look, "second channel", {...square, scaleanchor: "x"}),
      {shapes: circles, height: narrow.matches ? 380 : 440})]],
    says: `Radians per token: ${DATA.theta[state.base].map(written).join(", ")}. ` +
      "The arrows differ in length only to keep them apart."};
  },
  inner_product(look) {
    const curve = (name, which) => {
      const rows = part("product", which, state.base);
      const lowest = Math.min(...rows.flat()), highest = Math.max(...rows.flat());
      const pad = 0.05 * (highest - lowest);
      return [[{x: range(65), y: rows[0], mode: "lines", name: "key at 0",
        line: {color: look.quiet, width: 1.2, dash: "dot"}, hoverinfo: "skip"},
      {x: range(65), y: rows[state.position], mode: "lines", name: `key at ${chosen("position")}`,
        line: {color: colour(name), width: 2.2},
        hovertemplate: "distance %{x}: %{y:.2f}<extra></extra>"}],
      layout(look, axis(look, "distance from key to query (tokens)"),
        axis(look, `q·k, ${name}`, {range: [lowest - pad, highest + pad]}))];
    };
    return {plots: [curve("rope", 0), curve("sinusoidal", 1)]};
  },
  rotation_matrix(look) {
    const z = part("matrix", DATA.pairings.indexOf(state.pairing), state.base, state.position);
    const text = z.map((row) => row.map((v) => v === 0 ? "" : v.toFixed(2)));
    const side = range(8);
    return {plots: [[[{type: "heatmap", z, text, texttemplate: "%{text}", zmin: -1.3, zmax: 1.3,
      colorscale: look.turning, showscale: false, xgap: 1, ygap: 1,
      hovertemplate: "channel %{x} to %{y}: %{z:.4f}<extra></extra>"}],
    layout(look, axis(look, "channel before", {tickvals: side, showgrid: false, constrain: "domain"}),
      axis(look, "channel after", {...down, tickvals: side, scaleanchor: "x", constrain: "domain"}),
      {height: narrow.matches ? 340 : 440, margin: {l: 50, r: 12, t: 12, b: 44}})]]};
  },
  scalings(look) {
    const rows = part("wavelength", state.base, state.factor).map((row) => row.map((v) => 10 ** v));
    const divided = rows.map((row) => row.map((turn, t) => turn / rows[0][t]));
    const factors = DATA.sliders.factor;
    return {plots: [
      [familyLines(range(64), rows, "pair %{x}: %{y:,.0f} tokens a turn"),
        layout(look, axis(look, "pair of channels, fastest first"),
          axis(look, "wavelength (tokens a turn)", {...logTicks(0, 8), range: [0.6, 8.4]}),
          {shapes: [trainingLine(look, "y")]})],
      [familyLines(range(64), divided, "pair %{x}: frequency divided by %{y:.2f}"),
        layout(look, axis(look, "pair of channels, fastest first"),
          axis(look, "frequency divided by", {type: "log", tickvals: factors, ticktext: factors.map(String),
            range: [-0.05, Math.log10(factors[factors.length - 1]) + 0.05]}))]],
    says: "Dashed: the training length. Pairs above it make no full turn in training."};
  },
  unseen_angles(look) {
    const z = part("seen", state.base, state.factor, state.length);
    const words = ["full turn seen", "within the arc seen", "outside the arc seen"];
    const text = z.map((row) => row.map((v) => words[v]));
    const steps = look.seen.flatMap((c, i) => [[i / 3, c], [(i + 1) / 3, c]]);
    const key = words.map((name, i) => ({x: [null], y: [null], mode: "markers", name,
      marker: {symbol: "square", size: 12, color: look.seen[i]}}));
    const outside = z.map((row) => row.filter((v) => v === 2).length / row.length);
    const shares = DATA.family.map((name, i) => `${name} ${Math.round(100 * outside[i])} %`);
    return {plots: [[[{type: "heatmap", z, text, y: DATA.family, zmin: -0.5, zmax: 2.5, colorscale: steps,
      showscale: false, ygap: 3, hovertemplate: "%{y}, pair %{x}: %{text}<extra></extra>"}, ...key],
    layout(look, axis(look, "pair of channels, fastest first", {showgrid: false}),
      axis(look, "", down), {showlegend: true})]],
    says: `Pairs outside at ${whole(chosen("length") * DATA.train_length)} tokens: ${shares.join(", ")}.`};
  },
  decay(look) {
    return {plots: [[familyLines(DATA.far, part("decay", state.base, state.factor),
      "distance %{x:,.0f}: %{y:.3f}"), layout(look, axis(look, "distance (tokens)", logTicks(0, 4)),
      axis(look, "q·k"), {height: 400, shapes: [trainingLine(look, "x")]})]],
    says: "Dashed: the training length."};
  },
  bias_matrices(look) {
    const name = state.scheme, {shape} = arrays[`bias ${name}`], head = Math.min(state.head, shape[1] - 1);
    const z = part(`bias ${name}`, state.length, head), points = z.length;
    const tokens = DATA.bias_lengths[name] * chosen("length");
    const places = range(points).map((i) => Math.floor(i * tokens / points)), last = places[points - 1];
    const row = z[points - 1];
    const square = {constrain: "domain", showgrid: false};
    return {plots: [[[{type: "heatmap", x: places, y: places, z, colorscale: look.deep,
      colorbar: bar(look, "logits"), hoverongaps: false,
      hovertemplate: "query %{y}, key %{x}: %{z:.3f}<extra></extra>"}],
    layout(look, axis(look, "key position (tokens)", square),
      axis(look, "query position (tokens)", {...down, ...square, scaleanchor: "x"}),
      {plot_bgcolor: look.nothing, margin: {l: 50, r: 12, t: 12, b: 44}})],
    [[{x: places.map((p) => last - p), y: row, mode: "lines", line: {color: colour("rope"), width: 2.2},
      hovertemplate: "distance %{x}: %{y:.3f}<extra></extra>"}],
    layout(look, axis(look, "distance from the last query (tokens)"), axis(look, "bias (logits)"),
      {margin: {l: 50, r: 12, t: 12, b: 44}})]],
    says: `${name}, head ${head + 1} of ${shape[1]}, at ${whole(tokens)} tokens; training length ` +
      `${DATA.bias_lengths[name]}.`};
  },
  permutation(look) {
    const which = DATA.shuffled.indexOf(state.shuffled);
    const [plain, back] = part("permutation", which);
    const change = plain.map((row, i) => row.map((v, j) => back[i][j] - v));
    const largest = Math.max(...change.flat().map(Math.abs)), most = Math.max(...plain.flat().map(Math.abs));
    const titles = ["outputs", "shuffled, put back", "difference"];
    const share = 100 * largest / most;
    return {plots: [plain, back, change].map((z, i) => [[{type: "heatmap", z, zmin: -2, zmax: 2,
      colorscale: look.turning, showscale: false,
      hovertemplate: "token %{y}, channel %{x}: %{z:.3f}<extra></extra>"}],
    layout(look, axis(look, "channel", {showgrid: false, showline: true, mirror: true}),
      axis(look, "token", {...down, showline: true, mirror: true}),
      {title: {text: titles[i], font: {size: 14}}, height: 260})]),
    says: share < 0.01 ? "Shuffling changes nothing but rounding."
      : `The largest change is ${written(share)} % of the largest output.`};
  },
};

function redraw(section) {
  const {plots, says} = draw[section.id](theme());
  section.querySelectorAll(".plot").forEach((place, i) => {
    const [traces, arrangement] = plots[i];
    Plotly.react(place, traces, arrangement, {displayModeBar: false, responsive: true});
  });
  section.querySelector(".says").textContent = says ?? "";
}
const sections = [...document.querySelectorAll("section")];
const controls = [...document.querySelectorAll("[data-control]")];
const shown = (name) => name === "head" ? String(state.head + 1) : whole(chosen(name));

function label() {
  for (const control of controls) {
    const name = control.dataset.control;
    control.value = state[name];
    if (control.type !== "range") continue;
    control.nextElementSibling.textContent = shown(name) + (name === "length" ? "×" : "");
    control.setAttribute("aria-valuetext", shown(name));
  }
}
for (const control of controls) {
  control.addEventListener("input", () => {
    const name = control.dataset.control;
    state[name] = control.type === "range" ? Number(control.value) : control.value;
    label();
    for (const section of sections) {
      if (section.querySelector(`[data-control="${name}"]`)) redraw(section);
    }
  });
}
const everything = () => sections.forEach(redraw);
label();
everything();
dark.addEventListener("change", everything);
narrow.addEventListener("change", everything);
})();
