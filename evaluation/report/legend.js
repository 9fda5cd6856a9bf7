// The legend of a plot of curves: a box, a line with its mark, and a name for each.

const PATHS = {
  circle: "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
  square: "M-4-4H4V4H-4Z",
  diamond: "M0-5L5 0L0 5L-5 0Z",
  "diamond-tall": "M0-5.5L3.5 0L0 5.5L-3.5 0Z",
  "triangle-up": "M0-5L5 4H-5Z",
  "triangle-down": "M0 5L5-4H-5Z",
  "triangle-left": "M-5 0L4-5V5Z",
  "triangle-right": "M5 0L-4-5V5Z",
  cross: "M-2-5H2V-2H5V2H2V5H-2V2H-5V-2H-2Z",
  x: "M-5-2.5L-2.5-5L0-2.5L2.5-5L5-2.5L2.5 0L5 2.5L2.5 5L0 2.5L-2.5 5L-5 2.5L-2.5 0Z",
  pentagon: "M0-5L4.8-1.5L2.9 4H-2.9L-4.8-1.5Z",
  hexagon: "M0-5L4.3-2.5V2.5L0 5L-4.3 2.5V-2.5Z",
};
const DASH = { solid: "", dash: "6 3", dashdot: "6 3 2 3", dot: "2 2.5" };

// `hidden` holds the labels of the curves that are switched off; `redraw` follows every change.
function fillLegend(legend, name, curves, hidden, redraw) {
  const list = element("div", { class: "list" });
  for (const curve of curves) {
    const entry = checkbox(name, "", !hidden.has(curve.label), (on) => {
      if (on) hidden.delete(curve.label);
      else hidden.add(curve.label);
      redraw();
    });
    const words = element("span", {}, ...breakable(curve.label));
    if (curve.note) words.append(element("small", {}, curve.note));
    entry.append(swatch(curve), words);
    list.append(entry);
  }
  const every = (words, on) => {
    const button = element("button", { type: "button" }, words);
    button.addEventListener("click", () => {
      for (const curve of curves) {
        if (on) hidden.delete(curve.label);
        else hidden.add(curve.label);
      }
      for (const box of list.querySelectorAll("input")) box.checked = on;
      redraw();
    });
    return button;
  };
  const both = element("div", { class: "all" }, every("all", true), every("none", false));
  legend.replaceChildren(element("legend", {}, "Curves"), both, list);
}

function swatch(curve) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "-18 -8 36 16");
  svg.setAttribute("aria-hidden", "true");
  svg.style.setProperty("--light", curve.colour);
  svg.style.setProperty("--dark", curve.dark);
  const line = svg.appendChild(document.createElementNS(space, "path"));
  line.setAttribute("d", "M-18 0H18");
  line.setAttribute("stroke-dasharray", DASH[curve.dash]);
  const mark = svg.appendChild(document.createElementNS(space, "path"));
  mark.setAttribute("d", PATHS[curve.symbol]);
  if (curve.hollow) mark.style.fill = "var(--page)";
  return svg;
}
