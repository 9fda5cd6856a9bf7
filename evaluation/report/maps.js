// Heat maps side by side, as many in a row as the page is wide, all on one scale of colour.

const BELOW = 74; // pixels of a map's title, tick labels and axis title

// maps: [title, x names, y names, z rows, hover rows]
function drawMaps(canvas, maps, { range, xTitle, yTitle, cell, narrowest, gap, left }) {
  const colours = theme();
  const width = canvas.clientWidth || 600;
  const columns = Math.max(1, Math.min(maps.length, Math.floor(width / narrowest)));
  const rows = Math.ceil(maps.length / columns);
  const tallest = Math.max(...maps.map((map) => map[2].length));
  const each = Math.max(110, Math.min(260, tallest * cell));
  const height = rows * (each + BELOW);
  const traces = [];
  const more = {
    margin: { l: left, r: 8, t: 28, b: 46 },
    annotations: [],
    hovermode: "closest",
    dragmode: false,
  };
  const across = width - left - 8; // less the margins
  const wide = (across - (columns - 1) * gap) / columns;
  const inner = height - BELOW; // less the margins
  maps.forEach(([title, x, y, z, hover], k) => {
    const column = k % columns;
    const row = Math.floor(k / columns);
    const id = k ? k + 1 : "";
    const start = (column * (wide + gap)) / across;
    const end = start + wide / across;
    const top = 1 - (row * (each + BELOW)) / inner;
    const bottom = Math.max(top - each / inner, 0);
    traces.push({
      type: "heatmap",
      x: x.map(text),
      y: y.map(text),
      z,
      text: hover,
      xaxis: `x${id}`,
      yaxis: `y${id}`,
      zmin: range[0],
      zmax: range[1],
      colorscale: "Cividis",
      xgap: 1,
      ygap: 1,
      hoverongaps: false,
      hovertemplate: "%{text}<extra></extra>",
      showscale: false,
    });
    const axis = {
      showgrid: false,
      zeroline: false,
      ticks: "",
      type: "category",
      tickangle: 0,
      tickfont: { size: 11, color: colours.quiet },
    };
    more[`xaxis${id}`] = {
      ...axis,
      domain: [start, end],
      anchor: `y${id}`,
      fixedrange: true,
      title: { text: xTitle, standoff: 4, font: { size: 11, color: colours.quiet } },
    };
    more[`yaxis${id}`] = {
      ...axis,
      domain: [bottom, top],
      anchor: `x${id}`,
      fixedrange: true,
      autorange: "reversed",
      title: column
        ? undefined
        : { text: yTitle, standoff: 4, font: { size: 11, color: colours.quiet } },
    };
    more.annotations.push({
      text: `<b>${text(shortened(title, Math.floor(wide / 8)))}</b>`,
      x: start,
      y: top,
      xref: "paper",
      yref: "paper",
      xanchor: "left",
      yanchor: "bottom",
      showarrow: false,
      font: { size: 13, color: colours.ink },
    });
  });
  Plotly.react(canvas, traces, layout(colours, height, more), {
    ...config(width),
    displayModeBar: false,
  });
}

// The key to the colours, below the maps: cividis, which readers of every colour vision can order.
function colourKey(low, high) {
  return element(
    "p",
    { class: "key" },
    element("span", {}, low),
    element("span", { class: "bar cividis", "aria-hidden": "true" }),
    element("span", {}, high),
  );
}

class DiagnosticMaps {
  constructor(figure, data) {
    this.data = data;
    this.figure = figure;
    this.reading = data.readings[0];
    this.field = Object.keys(this.reading.figures)[0];
    this.controls = element("div", { class: "controls" });
    this.canvas = element("div", { class: "canvas", role: "img" });
    this.key = element("div");
    this.caption = element("figcaption");
    figure.append(this.controls, this.canvas, this.key, this.caption);
    const readings = data.readings.map((reading, k) => [k, reading.label]);
    this.controls.append(
      chooser("Scheme", "diagnostics-scheme", readings, (k) => {
        this.reading = data.readings[k];
        this.fillFigures();
        this.draw();
      }),
    );
    this.fillFigures();
  }

  // only the figures that this scheme has: angles belong to the rotary family
  fillFigures() {
    const known = Object.keys(this.reading.figures);
    if (!known.includes(this.field)) this.field = known[0];
    const names = known.map((field) => [field, this.data.figures[field][0]]);
    const made = chooser("Figure", "diagnostics-figure", names, (field) => {
      this.field = field;
      this.draw();
    });
    made.querySelector("select").value = this.field;
    if (this.choice) this.choice.replaceWith(made);
    else this.controls.append(made);
    this.choice = made;
  }

  draw() {
    const [name, meaning] = this.data.figures[this.field];
    const range = this.data.ranges[this.field];
    const found = this.reading.figures[this.field];
    const single = found.every(([, layers]) => layers.every((heads) => heads.length === 1));
    const hover = (length, layer, head, value) =>
      `length ${length}, layer ${layer}${head === null ? "" : `, head ${head}`}<br>${name}: <b>${value === null ? "–" : value}</b>`;
    let maps;
    if (single) {
      const layers = found[0][1].map((_, k) => String(k));
      const z = layers.map((_, k) => found.map(([, rows]) => rows[k]?.[0] ?? null));
      const words = z.map((row, k) => row.map((value, n) => hover(found[n][0], k, null, value)));
      maps = [["by length", found.map(([length]) => String(length)), layers, z, words]];
    } else
      maps = found.map(([length, rows]) => [
        length === this.reading.trained ? `${length} (trained)` : `${length}`,
        rows[0].map((_, head) => String(head)),
        rows.map((_, layer) => String(layer)),
        rows,
        rows.map((heads, layer) => heads.map((value, head) => hover(length, layer, head, value))),
      ]);
    drawMaps(this.canvas, maps, {
      range,
      xTitle: single ? "length" : "head",
      yTitle: "layer",
      cell: 30,
      narrowest: 150,
      gap: 30,
      left: 46,
    });
    const words = (value) => String(Number(value.toPrecision(3)));
    this.key.replaceChildren(colourKey(words(range[0]), words(range[1])));
    this.canvas.setAttribute(
      "aria-label",
      `${this.figure.dataset.label}: ${this.reading.label}, ${name}`,
    );
    this.caption.textContent = `${meaning} One scale for all schemes. ${this.reading.facts}`;
  }
}

// Accuracy by depth and length, a map per curve, for the task that the plot above it shows.
class DepthMaps {
  constructor(figure, plot) {
    this.plot = plot;
    this.title = element("h3", {}, "By depth");
    this.canvas = element("div", {
      class: "canvas",
      role: "img",
      "aria-label": "Accuracy by depth and length",
    });
    this.key = colourKey("0 %", "100 %");
    this.caption = element("figcaption");
    this.part = element("div", {}, this.title, this.canvas, this.key, this.caption);
    figure.append(this.part);
  }

  draw() {
    const curves = this.plot.view.curves.filter((curve) => curve.depths.length);
    this.part.hidden = !curves.length;
    if (!curves.length) return;
    const maps = curves.map((curve) => {
      const depths = [
        ...new Set(curve.depths.flatMap(([, rows]) => rows.map((row) => row[0]))),
      ].sort((a, b) => a - b);
      const at = curve.depths.map(([length, rows]) => [
        length,
        new Map(rows.map((row) => [row[0], row])),
      ]);
      const z = depths.map((depth) => at.map(([, rows]) => rows.get(depth)?.[1] ?? null));
      const hover = depths.map((depth) =>
        at.map(([length, rows]) => {
          const row = rows.get(depth);
          return row
            ? `${text(curve.label)}, length ${length}<br>depth ${percent(depth)}: <b>${percent(row[1])}</b> of ${row[2]} answers`
            : "";
        }),
      );
      return [curve.label, at.map(([length]) => String(length)), depths.map(percent), z, hover];
    });
    drawMaps(this.canvas, maps, {
      range: [0, 1],
      xTitle: "length",
      yTitle: "depth",
      cell: 26,
      narrowest: 210,
      gap: 56,
      left: 62,
    });
    this.caption.textContent =
      "Share of answers wholly right; depth 0 % is the start of the window, farthest from the question.";
  }
}

function percent(share) {
  return `${Number((100 * share).toFixed(1))} %`;
}

function shortened(words, most) {
  return words.length > most ? `${words.slice(0, most - 1)}…` : words;
}
