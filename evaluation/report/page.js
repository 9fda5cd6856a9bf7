// Fills the figures that the page has, and draws them again when its width or its colours change.

const drawn = [];
for (const figure of document.querySelectorAll("figure[data-plot]")) {
  const kind = figure.dataset.plot;
  if (kind === "diagnostics") drawn.push(new DiagnosticMaps(figure, DATA.diagnostics));
  else {
    const plot = new CurvePlot(figure, DATA[kind], kind === "probes" ? "accuracy" : "loss");
    drawn.push(plot);
    if (kind === "probes") {
      const maps = new DepthMaps(figure, plot);
      const draw = plot.draw.bind(plot);
      plot.draw = () => {
        draw();
        maps.draw();
      };
    }
  }
}

// One of several tables at a time; without scripts all of them stand one below the other.
for (const select of document.querySelectorAll("select[data-choose]")) {
  const tables = document.querySelectorAll(`#${select.dataset.choose}-tables > .choice`);
  const show = () => {
    for (const table of tables) table.hidden = table.dataset.length !== select.value;
  };
  select.addEventListener("change", show);
  show();
}

// A table that is wider than its place says so, and is shaded on the side where it goes on.
for (const box of document.querySelectorAll(".scroll")) {
  const mark = () => {
    const rest = box.scrollWidth - box.clientWidth;
    box.parentElement.classList.toggle("wide", rest > 1);
    box.parentElement.classList.toggle("more", rest - box.scrollLeft > 1);
  };
  box.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(box);
}
// A legend with more curves than have room fades out where it goes on.
for (const box of document.querySelectorAll(".legend")) {
  const mark = () => {
    const rest = box.scrollHeight - box.clientHeight - box.scrollTop;
    box.classList.toggle("more", rest > 1);
  };
  box.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(box);
}

function drawAll() {
  for (const plot of drawn) plot.draw();
}

let width = document.documentElement.clientWidth;
window.addEventListener("resize", () => {
  if (document.documentElement.clientWidth === width) return; // a phone hides its address bar
  width = document.documentElement.clientWidth;
  drawAll();
});
dark.addEventListener("change", drawAll);
drawAll();
