// Each client's own score, alone or against another method, by size or by skew.
const clientView = { run: null, base: "", x: "size", spots: [] };
const QUARTERS = ["smallest quarter", "second", "third", "largest quarter"];

function setUpClients() {
  byId("client-run").addEventListener("change", (e) => {
    clientView.run = e.target.value;
    drawClients();
  });
  byId("client-base").addEventListener("change", (e) => {
    clientView.base = e.target.value;
    drawClients();
  });
  segments(
    byId("client-x"),
    "client-x",
    [
      ["size", "Samples"],
      ["skew", "Class skew"],
    ],
    (key) => {
      clientView.x = key;
      drawClients();
    },
  );
  byId("scatter").addEventListener("mousemove", onClientHover);
  byId("scatter").addEventListener("mouseleave", tip.hide);
}

// A method's score of each client: the mean over its seeds, where they were trained on the same clients.
function clientScores(group) {
  const runs = runsOf(group).filter((run) => run.scores && run.federation !== null);
  if (!runs.length) return null;
  const same = runs.filter((run) => run.federation === runs[0].federation && run.scores.length === runs[0].scores.length);
  return {
    federation: federationOf(runs[0]),
    number: runs[0].federation,
    values: Float64Array.from(runs[0].scores, (_, k) => mean(same.map((run) => run.scores[k]))),
  };
}

function pickClientRuns() {
  const known = store.groups.filter(clientScores).map((g) => [g.label, g.label]);
  if (!clientView.run || !known.some(([v]) => v === clientView.run)) {
    clientView.run = (known.find(([v]) => v === "fedgsp") || known[0])?.[0] ?? null;
    clientView.base =
      known.find(([v]) => v !== clientView.run && v === "fedavg")?.[0] ?? known.find(([v]) => v !== clientView.run)?.[0] ?? "";
  }
  choices(byId("client-run"), known, clientView.run || undefined);
  choices(
    byId("client-base"),
    [["", "nothing: its own score"], ...known.filter(([v]) => v !== clientView.run)],
    clientView.base,
  );
  clientView.base = byId("client-base").value;
}

function drawClients() {
  pickClientRuns();
  const group = store.groups.find((g) => g.label === clientView.run),
    own = group && clientScores(group),
    place = byId("scatter");
  if (!own) {
    fill(
      place,
      el("p", { class: "empty" }, "No client has been judged yet, or the run was recorded without scores of single clients."),
    );
    fill(byId("client-table"));
    byId("client-caption").textContent = "";
    return;
  }
  const other = clientView.base ? clientScores(store.groups.find((g) => g.label === clientView.base)) : null;
  const base = other && other.number === own.number ? other : null;
  const points = [];
  own.values.forEach((value, k) => {
    const y = base ? value - base.values[k] : value;
    if (!Number.isNaN(y))
      points.push({
        client: k,
        x: clientView.x === "size" ? own.federation.train[k] : own.federation.skew[k] / 20000,
        y,
        value,
      });
  });
  drawScatter(place, points, own.federation, base);
  byId("client-caption").textContent =
    clientWords(points, base) + (other && !base ? " The two were trained on different clients, so they are not compared." : "");
  drawQuarters(points, base);
}

function drawScatter(place, points, federation, base) {
  const width = Math.max(280, place.clientWidth),
    height = Math.max(260, Math.min(400, width * 0.5)),
    left = 54,
    bottom = 40;
  const size = clientView.x === "size",
    xs = points.map((p) => p.x),
    ys = points.map((p) => p.y);
  const alike = Math.max(...xs) === Math.min(...xs),
    lowX = size ? Math.max(1, Math.min(...xs)) / (alike ? 2 : 1) : 0,
    highX = Math.max(...xs) * (alike ? 2 : 1.03) + 1e-9,
    span = Math.max(1e-9, Math.max(0, ...ys) - Math.min(0, ...ys));
  const [lowY, highY] = base
    ? [Math.min(0, ...ys) - 0.06 * span, Math.max(0, ...ys) + 0.06 * span]
    : [Math.min(0, ...ys), Math.max(...ys, isShare() ? 1 : 0) * 1.03];
  const x = (v) =>
    left +
    (size ? Math.log(Math.max(v, lowX) / lowX) / Math.log(highX / lowX || 2) : (v - lowX) / (highX - lowX)) *
      (width - left - 14);
  const y = (v) => height - bottom - ((v - lowY) / (highY - lowY)) * (height - bottom - 12);
  const picture = canvasOf(width, height, clientWords(points, base)),
    sign = (v) => (v > 0 ? "+" : "");
  for (const tick of ticks(lowY, highY, 5))
    picture.append(
      svg("line", { x1: left, x2: width, y1: y(tick), y2: y(tick), class: "rule" }),
      label(
        left - 8,
        y(tick) + 4,
        isShare() ? `${base ? sign(tick) : ""}${Math.round(100 * tick)}${base ? "" : " %"}` : short(tick),
        { "text-anchor": "end", class: "faint" },
      ),
    );
  const marks = size
    ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000].filter((v) => v >= lowX && v <= highX)
    : ticks(0, highX, 6);
  let lastMark = -99;
  for (const tick of marks) {
    if (x(tick) - lastMark < 34) continue;
    lastMark = x(tick);
    picture.append(
      label(x(tick), height - bottom + 18, size ? grouped(tick) : percent(tick, 0), {
        "text-anchor": "middle",
        class: "faint",
      }),
    );
  }
  picture.append(
    label(
      width - 6,
      height - 5,
      size ? "training samples of the client" : "share of its class mix that differs from everybody's",
      { "text-anchor": "end", class: "faint" },
    ),
  );
  if (base)
    picture.append(svg("line", { x1: left, x2: width, y1: y(0), y2: y(0), stroke: "var(--soft)", "stroke-width": 1.5 }));
  const r = points.length > 1500 ? 2 : points.length > 500 ? 2.8 : 3.8,
    paths = { up: "", down: "", even: "" };
  clientView.spots = [];
  for (const p of points) {
    const px = x(p.x),
      py = y(p.y),
      gain = isScore() ? p.y : -p.y,
      key = !base ? "up" : gain > 0 ? "up" : gain < 0 ? "down" : "even";
    paths[key] += `M${(px - r).toFixed(1)} ${py.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
    clientView.spots.push([px, py, p]);
  }
  const tones = { up: "var(--blue)", down: "var(--red)", even: "var(--grey)" };
  for (const [key, d] of Object.entries(paths))
    if (d) picture.append(svg("path", { d, fill: tones[key], "fill-opacity": 0.55 }));
  fill(place, picture);
}

function clientWords(points, base) {
  if (!points.length) return "No client has been judged.";
  const values = points.map((p) => p.y).sort((a, b) => a - b);
  if (!base)
    return `${clientView.run}: ${plural(points.length, "client")}; the median one has ${scoreText(quantile(values, 0.5))}, a tenth ${isScore() ? "at most" : "at least"} ${scoreText(quantile(values, isScore() ? 0.1 : 0.9))}.`;
  const better = values.filter((v) => (isScore() ? v > 0 : v < 0)).length,
    worse = values.filter((v) => (isScore() ? v < 0 : v > 0)).length,
    points100 = (v) => (isShare() ? `${v > 0 ? "+" : ""}${(100 * v).toFixed(1)} points` : short(v));
  return `With ${clientView.run} instead of ${clientView.base}, ${plural(better, "client")} (blue) do better, ${grouped(worse)} (orange-red) worse, ${grouped(values.length - better - worse)} the same; the median difference is ${points100(quantile(values, 0.5))}, the worst ${points100(isScore() ? values[0] : values[values.length - 1])}.`;
}

function drawQuarters(points, base) {
  if (points.length < 8) {
    fill(byId("client-table"));
    return;
  }
  const sorted = [...points].sort((a, b) => a.x - b.x),
    names = clientView.x === "size" ? QUARTERS : ["least skewed quarter", "second", "third", "most skewed quarter"];
  const rows = names.map((name, k) => {
    const part = sorted.slice(Math.floor((k * sorted.length) / 4), Math.floor(((k + 1) * sorted.length) / 4)),
      values = part.map((p) => p.value).sort((a, b) => a - b);
    const span =
      clientView.x === "size"
        ? `${grouped(part[0].x)} – ${grouped(part[part.length - 1].x)}`
        : `${percent(part[0].x, 0)} – ${percent(part[part.length - 1].x, 0)}`;
    const row = [name, span, scoreText(mean(values)), scoreText(quantile(values, 0.1))];
    if (!base) return row;
    const change = mean(part.map((p) => p.y)),
      gain = part.filter((p) => (isScore() ? p.y > 0 : p.y < 0)).length / part.length,
      lose = part.filter((p) => (isScore() ? p.y < 0 : p.y > 0)).length / part.length;
    return [
      ...row,
      isShare() ? `${change > 0 ? "+" : ""}${(100 * change).toFixed(1)} points` : short(change),
      percent(gain, 0),
      percent(lose, 0),
    ];
  });
  fill(
    byId("client-table"),
    table(
      "Clients by quarter",
      [
        "clients",
        clientView.x === "size" ? "training samples" : "class skew",
        `mean ${scoreName()}`,
        isScore() ? "worst tenth" : "best tenth",
        ...(base ? ["mean change", "gain", "lose"] : []),
      ],
      rows,
    ),
  );
}

function onClientHover(event) {
  const box = byId("scatter").getBoundingClientRect(),
    x = event.clientX - box.left,
    y = event.clientY - box.top;
  let best = null,
    nearestOne = 100;
  for (const [px, py, p] of clientView.spots) {
    const d = (px - x) ** 2 + (py - y) ** 2;
    if (d < nearestOne) {
      nearestOne = d;
      best = p;
    }
  }
  if (!best) {
    tip.hide();
    return;
  }
  const federation = clientScores(store.groups.find((g) => g.label === clientView.run)).federation,
    k = best.client;
  const rows = [
    federation.names[k] ?? `client ${k}`,
    [null, "training samples", grouped(federation.train[k])],
    [null, "test samples", grouped(federation.test[k])],
    [null, "class skew", percent(federation.skew[k] / 20000, 0)],
    [null, clientView.run, scoreText(best.value)],
  ];
  if (clientView.base && best.y !== best.value) rows.push([null, clientView.base, scoreText(best.value - best.y)]);
  tip.show(event.clientX, event.clientY, rows);
}
