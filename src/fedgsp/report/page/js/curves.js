// Curves: one line a method (seeds thin, their mean thick), against rounds, serial steps, traffic or time.
const curves = {
  x: "round",
  y: "score",
  wanted: "score",
  fleet: null,
  log: false,
  hidden: new Set(),
  plot: null,
  lines: [],
  at: -1,
};
const X_AXES = {
  round: ["Rounds", (v) => grouped(v)],
  steps: ["Serial steps", (v) => grouped(v)],
  bytes: ["Traffic", bytesText],
  time: ["Estimated time", timeText],
  wall: ["Time here", timeText],
};
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8];
const X_WORDS = {
  round: "round",
  steps: "SGD steps that had to wait for each other",
  bytes: "handed on between clients and server",
  time: "estimated time",
  wall: "time this machine took",
};

function yAxes() {
  const name = scoreName(),
    axes = [];
  if (isScore())
    axes.push(
      ["score", name],
      ["q0.1", `${name} of the worst-off tenth of clients`],
      ["q0.5", `${name} of the median client`],
      ["plain", `${name}, every sample alike`],
    );
  axes.push(["loss", "test loss"], ["trainLoss", "training loss"], ["chains", "chains side by side"]);
  return axes.filter(([key]) => allRuns().some((run) => run.columns[key].some((v) => v !== null)));
}

const yText = (v) =>
  ["score", "q0.1", "q0.5", "q0.9", "plain"].includes(curves.y) && isShare()
    ? percent(v)
    : curves.y === "chains"
      ? grouped(v)
      : short(v);

const yTick = (v, step) => (yText(v).endsWith("%") ? percent(v, step < 0.01 ? 1 : 0) : yText(v));

function setUpCurves() {
  choices(
    byId("curve-fleet"),
    store.fleets.map((f) => [f, f]),
  );
  curves.fleet = store.fleets[0];
  segments(
    byId("curve-x"),
    "curve-x",
    Object.entries(X_AXES).map(([key, [text]]) => [key, text]),
    (key) => {
      curves.x = key;
      drawCurves();
    },
  );
  byId("curve-y").addEventListener("change", (e) => {
    curves.wanted = e.target.value;
    drawCurves();
  });
  byId("curve-fleet").addEventListener("change", (e) => {
    curves.fleet = e.target.value;
    drawCurves();
  });
  byId("curve-log").addEventListener("change", (e) => {
    curves.log = e.target.checked;
    drawCurves();
  });
  byId("curve-zoom").addEventListener("click", () => drawCurves());
  const place = byId("curve");
  place.addEventListener("keydown", onCurveKey);
  place.addEventListener("mouseleave", tip.hide);
  place.addEventListener("blur", tip.hide);
}

function pointsOf(run) {
  const xs = [],
    ys = [],
    x = spent(run, curves.x, curves.fleet),
    y = run.columns[curves.y];
  for (let k = 0; k < y.length; k++) {
    if (y[k] === null || x[k] === null || (curves.log && x[k] <= 0)) continue;
    xs.push(x[k]);
    ys.push(y[k]);
  }
  return [xs, ys];
}

function meanPoints(tables) {
  const length = Math.min(...tables.map((t) => t[0].length));
  const row = (part, k) => mean(tables.map((t) => t[part][k]));
  return [Array.from({ length }, (_, k) => row(0, k)), Array.from({ length }, (_, k) => row(1, k))];
}

function curveLines() {
  const lines = [];
  store.groups.forEach((group, index) => {
    const tables = runsOf(group)
      .map(pointsOf)
      .filter((t) => t[0].length);
    if (!tables.length) return;
    const shown = !curves.hidden.has(group.label);
    if (tables.length > 1) tables.forEach((points) => lines.push({ index, points, thin: true, shown, label: group.label }));
    lines.push({ index, points: tables.length > 1 ? meanPoints(tables) : tables[0], thin: false, shown, label: group.label });
  });
  return lines;
}

function drawCurves() {
  choices(byId("curve-y"), yAxes(), curves.wanted);
  curves.y = byId("curve-y").value || "loss";
  byId("curve-fleet-label").hidden = curves.x !== "time";
  const timed = allRuns().some((run) => store.fleets.some((f) => run.columns.time[f].some((v) => v !== null)));
  byId("curve-x").querySelector('[value="time"]').disabled = !timed;
  drawLegend();
  plotCurves();
  const what = byId("curve-y").selectedOptions[0]?.textContent || "Nothing yet";
  byId("curve-caption").textContent =
    `${what[0].toUpperCase()}${what.slice(1)} against ${X_WORDS[curves.x]}${curves.x === "time" ? ` on ${curves.fleet} devices` : ""}.` +
    (store.groups.some((g) => g.runs.length > 1) ? " Thin lines are single seeds, thick ones their mean." : "") +
    " Drag to look closer.";
  drawCurveTable();
}

function drawLegend() {
  const place = byId("curve-legend"),
    focused = [...place.children].indexOf(document.activeElement);
  fill(
    place,
    ...store.groups.map((group, k) => {
      const line = svg(
        "svg",
        { width: 24, height: 10, "aria-hidden": "true" },
        svg("line", {
          x1: 0,
          y1: 5,
          x2: 24,
          y2: 5,
          stroke: `var(--${toneOf(k)})`,
          "stroke-width": 3,
          "stroke-dasharray": dashOf(k).join(" ") || null,
        }),
      );
      const button = el(
        "button",
        { type: "button", "aria-pressed": String(!curves.hidden.has(group.label)) },
        line,
        group.label,
      );
      button.addEventListener("click", () => {
        if (!curves.hidden.delete(group.label)) curves.hidden.add(group.label);
        drawCurves();
      });
      return button;
    }),
  );
  if (focused >= 0) place.children[focused]?.focus();
}

function plotCurves() {
  const place = byId("curve");
  curves.lines = curveLines();
  if (curves.plot) curves.plot.destroy();
  curves.plot = null;
  byId("curve-zoom").hidden = true;
  if (!curves.lines.length) {
    fill(place, el("p", { class: "empty" }, "Nothing to show yet."));
    return;
  }
  place.replaceChildren();
  const axis = {
    stroke: () => colour("soft"),
    grid: { stroke: () => colour("grid"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  const series = curves.lines.map((line) => ({
    label: line.label,
    show: line.shown,
    spanGaps: true,
    stroke: () => colour(toneOf(line.index)) + (line.thin ? "66" : ""),
    width: line.thin ? 1 : 2.4,
    dash: dashOf(line.index),
    points: { show: !line.thin && line.points[0].length < 3 },
  }));
  const options = {
    width: Math.max(240, place.clientWidth),
    height: place.clientHeight,
    legend: { show: false },
    series: [{}, ...series],
    scales: {
      x: { time: false, distr: curves.log ? 3 : 1, range: curves.log ? (u, low, high) => [low, high] : undefined },
      y: { range: (u, low, high) => yRange(low, high) },
    },
    axes: [
      {
        ...axis,
        incrs: ["round", "steps"].includes(curves.x) ? WHOLE : undefined,
        splits: curves.log ? (u, k, low, high) => logSplits(low, high) : undefined,
        filter: (u, vs) => vs,
        size: 36,
        space: curves.x === "round" ? 50 : 95,
        values: (u, vs) => vs.map((v) => (v === null ? "" : X_AXES[curves.x][1](v))),
      },
      { ...axis, size: 58, values: (u, vs) => vs.map((v, k) => yTick(v, vs[1] - vs[0])) },
    ],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 8 } },
    hooks: {
      setCursor: [onCursor],
      setSelect: [
        () => {
          byId("curve-zoom").hidden = false;
        },
      ],
    },
  };
  curves.plot = new uPlot(options, uPlot.join(curves.lines.map((line) => line.points)), place);
}

// 1, 2 and 5 times the powers of ten; the powers alone where there are many.
function logSplits(low, high) {
  const made = [],
    steps = high / low > 3000 ? [1] : [1, 2, 5];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
    for (const m of steps) made.push(m * 10 ** p);
  return made.filter((v) => v >= low && v <= high);
}

function yRange(low, high) {
  if (low === null || high === null) return [0, 1];
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  const top = isShare() && curves.y !== "chains" && !curves.y.includes("oss") ? Math.min(1, high + pad) : high + pad;
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, top];
}
