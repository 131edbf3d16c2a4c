// Puts the page together, keeps it up to date while it is watched, and draws anew when width or colours change.
function drawAll() {
  drawSummary();
  drawCurves();
  drawLanes();
  drawCosts();
  drawClients();
  drawRepeat();
}

function redraw() {
  if (!store.order.length && !store.runs.size) return;
  drawCurves();
  drawLanes();
  drawCosts();
  drawClients();
}

// Configurations that are printed in full; of more runs only what was opened.
const MOST_PRINTED = 6;

function setUpTheme() {
  const button = byId("theme"),
    root = document.documentElement,
    words = { auto: ["Auto", "as the system says"], light: ["Light", "light"], dark: ["Dark", "dark"] };
  button.addEventListener("click", () => {
    root.dataset.theme = { auto: "light", light: "dark", dark: "auto" }[root.dataset.theme];
    button.textContent = words[root.dataset.theme][0];
    button.setAttribute("aria-label", `Colours: ${words[root.dataset.theme][1]}`);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let before = "auto";
  const few = () => (allRuns().length <= MOST_PRINTED ? byId("run-facts").querySelectorAll("details") : []);
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    for (const d of few()) d.open = true;
    if (curves.plot) {
      curves.plot.setSize({ width: Math.min(curves.plot.width, 680), height: 300 });
      curves.plot.redraw();
    }
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = before;
    redraw();
  });
}

function watchWidth() {
  let width = innerWidth,
    timer = null;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(redraw, 120);
  });
}

function take(data) {
  takeFrame(data);
  takeFederations(data.federations, data.federationsFrom || 0);
  for (const body of data.runs) takeRun(body);
}

function begin() {
  const data = JSON.parse(byId("data").textContent);
  store.live = Boolean(data.live);
  setUpTheme();
  watchWidth();
  take(data);
  setUpCurves();
  setUpLanes();
  setUpGroups();
  setUpCosts();
  setUpClients();
  drawAll();
  if (store.live) startWatching(data.every);
  document.documentElement.dataset.ready = "yes";
}

begin();
