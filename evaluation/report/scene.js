"use strict";
// What every plot shares: the page's colours, text that cannot become markup, small controls.

const DATA = JSON.parse(document.getElementById("data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const coarse = window.matchMedia("(pointer: coarse)");

function config(width) {
  return {
    displayModeBar: width < 520 ? false : "hover", // its buttons would cover a small plot's words
    displaylogo: false,
    responsive: false, // the page itself draws again when its width changes
    modeBarButtons: [["toImage", "resetScale2d"]],
  };
}

function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return { page: read("page"), ink: read("ink"), quiet: read("quiet"), rule: read("rule") };
}

// plotly reads <b>, <a href> and entities in its texts: names must reach it as text.
function text(value) {
  return String(value).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function layout(colours, height, more) {
  return {
    height,
    paper_bgcolor: colours.page,
    plot_bgcolor: colours.page,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colours.ink },
    hoverlabel: {
      bgcolor: colours.page,
      bordercolor: colours.quiet,
      font: { color: colours.ink, size: 13 },
      align: "left",
    },
    showlegend: false,
    // on a touch screen a finger on a plot scrolls the page
    dragmode: coarse.matches ? false : "zoom",
    ...more,
  };
}

function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...content);
  return made;
}

// A row of exclusive choices; arrow keys move among them, as in every radio group.
function segments(legend, name, choices, chosen, onchange) {
  const group = element("fieldset", {}, element("legend", {}, legend));
  for (const [value, words, possible] of choices) {
    const input = element("input", { type: "radio", name, value, disabled: !possible });
    input.checked = value === chosen;
    input.addEventListener("change", () => onchange(value));
    group.append(element("label", { class: "segment" }, input, element("span", {}, words)));
  }
  return group;
}

// A long name that may go on in the next line after its commas, colons and the like.
function breakable(name) {
  const parts = name.split(/(?<=[,:/|+ ])/);
  return parts.flatMap((part, k) => (k ? [element("wbr"), part] : [part]));
}

function checkbox(name, words, checked, onchange) {
  const input = element("input", { type: "checkbox", name });
  input.checked = checked;
  input.addEventListener("change", () => onchange(input.checked));
  return element("label", {}, input, words);
}

// choices: [value, words]
function chooser(words, name, choices, onchange) {
  const select = element("select", { name });
  for (const [value, label] of choices) select.append(element("option", { value }, label));
  select.addEventListener("change", () => onchange(select.value));
  return element("label", {}, words, select);
}

function bounds(values) {
  return [Math.min(...values), Math.max(...values)];
}
