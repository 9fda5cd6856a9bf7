// Curves against length: the plot, its controls, and what changes when one of them is used.

const FEW = 12; // curves whose bands can still be told apart

class CurvePlot {
  constructor(figure, views, measure) {
    this.figure = figure;
    this.views = views;
    this.measure = measure;
    this.view = views[0];
    this.unit = measure === "loss" ? "perplexity" : "accuracy";
    this.scale = measure === "loss" ? "log" : "linear";
    this.bands = views[0].curves.length <= FEW;
    this.crops = true;
    this.hidden = new Set();
    this.canvas = element("div", { class: "canvas", role: "img" });
    this.legend = element("fieldset", { class: "legend" });
    this.caption = element("figcaption");
    this.controls = element("div", { class: "controls" });
    figure.append(
      this.controls,
      element("div", { class: "split" }, this.canvas, this.legend),
      this.caption,
    );
    this.fillControls();
    this.listCurves();
  }

  listCurves() {
    const name = `${this.figure.dataset.plot}-curve`;
    fillLegend(this.legend, name, this.view.curves, this.hidden, () => this.draw());
  }

  place() {
    return this.view.name === "position" ? "position" : "length";
  }

  set(key, value) {
    this[key] = value;
    this.draw();
  }

  fillControls() {
    const plot = this.figure.dataset.plot;
    const add = (...controls) => this.controls.append(...controls);
    if (this.views.length > 1) {
      const names = this.views.map((view, k) => [k, view.name]);
      const words = this.measure === "loss" ? "Protocol" : "Task";
      add(
        chooser(words, `${plot}-view`, names, (k) => {
          this.view = this.views[k];
          this.listCurves();
          this.draw();
        }),
      );
    }
    if (this.measure !== "loss") {
      add(checkbox(`${plot}-bands`, "intervals", this.bands, (on) => this.set("bands", on)));
      return;
    }
    const points = this.views.flatMap((view) => view.curves).flatMap((curve) => curve.points);
    const bytes = points.some((point) => point[4] !== null);
    const units = [
      ["perplexity", "perplexity", true],
      ["nats", "nats", true],
      ["bits", "bits per byte", bytes],
    ];
    const scales = [
      ["log", "log", true],
      ["linear", "linear", true],
    ];
    add(
      segments("Unit", `${plot}-unit`, units, this.unit, (unit) => this.set("unit", unit)),
      segments("Axis", `${plot}-scale`, scales, this.scale, (scale) => this.set("scale", scale)),
      checkbox(`${plot}-bands`, "intervals", this.bands, (on) => this.set("bands", on)),
    );
    if (this.views.some((view) => view.curves.some((curve) => curve.cropped)))
      add(checkbox(`${plot}-cropped`, "cropped context", true, (on) => this.set("crops", on)));
  }

  draw() {
    const colours = theme();
    const shown = this.view.curves.filter((curve) => !this.hidden.has(curve.label));
    const look = { unit: this.unit, place: this.place(), bands: this.bands, crops: this.crops };
    const traces = shown.flatMap((curve) => curveTraces(curve, look, colours));
    this.canvas.setAttribute("aria-label", `${this.figure.dataset.label}. ${this.view.facts}`);
    this.caption.textContent = `${this.view.reading} ${this.view.facts}`;
    Plotly.react(this.canvas, traces, this.layout(colours), config(this.canvas.clientWidth));
  }

  layout(colours) {
    const points = this.view.curves.flatMap((curve) => curve.points);
    const lengths = [...new Set(points.map((point) => point[0]))].sort((a, b) => a - b);
    const [first, last] = bounds(lengths);
    const room = Math.max(Math.log10(last / first), 0.3) * 0.04;
    const narrow = this.canvas.clientWidth < 520;
    let ticks = lengths;
    if (lengths.length > 14) ticks = lengths.filter((n) => Number.isInteger(Math.log2(n)));
    const gap = Math.log10(last / first) / (narrow ? 7 : 13);
    ticks = ticks.reduceRight(
      (kept, n) => (kept.length && Math.log10(kept[0] / n) < gap ? kept : [n, ...kept]),
      [],
    );
    const axis = {
      gridcolor: colours.rule,
      zeroline: false,
      tickfont: { color: colours.ink },
      title: { font: { size: 13, color: colours.quiet } },
    };
    const share = this.unit === "accuracy";
    const lines = this.view.trained.filter((n) => n >= first && n <= last);
    return layout(colours, narrow ? 340 : 480, {
      margin: { l: narrow ? 46 : 62, r: 12, t: 34, b: 48 },
      hovermode: "closest",
      uirevision: `${this.view.name} ${this.unit} ${this.scale}`,
      xaxis: {
        ...axis,
        type: "log",
        range: [Math.log10(first) - room, Math.log10(last) + room],
        tickvals: ticks,
        ticktext: ticks.map(String),
        showline: true,
        linecolor: colours.quiet,
        title: {
          ...axis.title,
          text:
            this.place() === "position"
              ? "position in the window (tokens)"
              : "context length (tokens)",
          standoff: 10,
        },
      },
      yaxis: {
        ...axis,
        type: this.scale,
        automargin: true,
        tickformat: share ? ".0%" : "~g",
        nticks: 9,
        range: share ? [-0.03, 1.03] : undefined,
        autorange: !share,
        title: { ...axis.title, text: narrow ? "" : UNITS[this.unit].title, standoff: 8 },
      },
      shapes: lines.map((n) => ({
        type: "line",
        x0: n,
        x1: n,
        yref: "paper",
        y0: 0,
        y1: 1,
        layer: "below",
        line: { color: colours.quiet, width: 1.3 },
      })),
      annotations: lines.map((n, k) => ({
        x: Math.log10(n),
        y: 1,
        yref: "paper",
        yanchor: "bottom",
        showarrow: false,
        ...(Math.log(n / first) > 0.7 * Math.log(last / first)
          ? { xanchor: "right", xshift: 2 }
          : { xanchor: "left", xshift: -2 }),
        text: lines.length > 1 ? `trained at ${n}` : `training length ${n}`,
        font: { size: 12, color: colours.quiet },
      })),
    });
  }
}
