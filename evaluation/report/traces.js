// What plotly draws of one curve: band, line of cropped context, the curve, and where it ends.
// A point is [length, nll, low, high, bits per nat, what the bounds are, counts, why it is missing].

const UNITS = {
  perplexity: { title: "perplexity per token", of: (nll) => Math.exp(nll) },
  nats: { title: "nats per token", of: (nll) => nll },
  bits: { title: "bits per byte", of: (nll, bits) => (bits === null ? null : nll * bits) },
  accuracy: { title: "answers wholly right", of: (share) => share },
};
const HOVER = { type: "scatter", hovertemplate: "%{text}<extra></extra>" };

// look: unit, place ("length" or "position"), bands, crops
function curveTraces(curve, look, colours) {
  const colour = dark.matches ? curve.dark : curve.colour;
  const at = (value, bits) => (value === null ? null : UNITS[look.unit].of(value, bits));
  const x = curve.points.map((point) => point[0]);
  const y = curve.points.map(([, nll, , , bits]) => at(nll, bits));
  const traces = look.bands ? bandTraces(curve, at, colour) : [];
  if (look.crops && curve.cropped) {
    const [length, nll, , , bits] = curve.cropped;
    const end = x[x.length - 1];
    if (nll !== null && end > length)
      traces.push({
        ...HOVER,
        x: [length, end],
        y: [at(nll, bits), at(nll, bits)],
        mode: "lines",
        line: { color: colour, width: 1.2, dash: "4px,3px" },
        text: hover(curve, curve.cropped, { ...look, place: "context cropped to" }),
      });
  }
  traces.push({
    ...HOVER,
    x,
    y,
    mode: look.place === "position" ? "lines" : "lines+markers",
    connectgaps: false,
    line: { color: colour, width: 2, dash: curve.dash },
    marker: {
      symbol: curve.symbol,
      size: curve.symbol.startsWith("triangle") ? 11 : 9,
      color: curve.hollow ? colours.page : colour,
      line: { color: curve.hollow ? colour : colours.page, width: curve.hollow ? 1.6 : 1 },
    },
    text: curve.points.map((point) => hover(curve, point, look)),
    name: text(curve.label),
  });
  // the hollow cross where a curve ends for want of a figure, as in the static picture
  const ends = x.map((_, k) => k).filter((k) => y[k] !== null && y[k + 1] === null);
  if (ends.length)
    traces.push({
      ...HOVER,
      x: ends.map((k) => x[k]),
      y: ends.map((k) => y[k]),
      mode: "markers",
      marker: { symbol: "x", size: 13, color: colours.page, line: { color: colour, width: 1.8 } },
      text: ends.map((k) => {
        const why = wrapped(curve.points[k + 1][7] || "no figure in this unit");
        return `<b>${text(curve.label)}</b><br>${look.place} ${x[k + 1]}: ${why}`;
      }),
    });
  return traces;
}

// An area for each run of neighbouring points that have an interval.
function bandTraces(curve, at, colour) {
  const stretches = [];
  let open = null;
  for (const [length, , low, high, bits] of curve.points) {
    if (low === null || high === null) open = null;
    else {
      if (!open) stretches.push((open = []));
      open.push([length, at(low, bits), at(high, bits)]);
    }
  }
  return stretches.map((stretch) => {
    const back = [...stretch].reverse();
    return {
      type: "scatter",
      x: [...stretch, ...back].map((point) => point[0]),
      y: [...stretch.map((point) => point[1]), ...back.map((point) => point[2])],
      mode: "lines",
      fill: "toself",
      hoverinfo: "skip",
      line: { width: 0 },
      fillcolor: `${colour}${dark.matches ? "2b" : "26"}`,
    };
  });
}

function hover(curve, [length, nll, low, high, bits, interval, facts], { unit, place }) {
  const at = (value) => UNITS[unit].of(value, bits);
  if (nll === null || at(nll) === null) return "";
  const words = (value) => figure(at(value), unit);
  const name = unit === "accuracy" ? "right" : UNITS[unit].title;
  const lines = [`<b>${text(curve.label)}</b>`, `${place} ${length}: <b>${words(nll)}</b> ${name}`];
  if (low !== null) lines.push(`${words(low)} – ${words(high)}`, wrapped(interval));
  lines.push(wrapped(facts));
  return lines.join("<br>");
}

function figure(value, unit) {
  if (unit === "accuracy") return `${(100 * value).toFixed(1)} %`;
  return value >= 1000 ? value.toPrecision(4) : value.toFixed(3);
}

// lines of at most 44 characters, safe for plotly
function wrapped(words) {
  const lines = [""];
  for (const word of String(words).split(" ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + word.length > 43) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines.map((line) => text(line.slice(0, 80))).join("<br>");
}
