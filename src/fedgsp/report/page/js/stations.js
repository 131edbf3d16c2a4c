// One round drawn: a lane a group, a station a client.
// Where everything goes: lanes below each other while dots can be told apart, in as many columns as make them largest where not.
function layout(plan, run, width) {
  const height = Math.max(230, Math.min(430, width * 0.62)),
    n = plan.lanes.length,
    long = Math.max(1, ...plan.lanes.map((lane) => lane.length));
  const place = (columns) => {
    const rows = Math.ceil(n / columns),
      dy = Math.max(2.2, Math.min(44, (height - 16) / rows)),
      roomy = dy >= 15 && columns === 1;
    const margin = !roomy ? 6 : width < 560 ? 24 : 66,
      right = roomy && width >= 560 ? 66 : 6;
    // Alone in its column a lane shrinks with the root of its length: one sees it shorten, and its dots stay large enough to tell apart.
    const share = columns === 1 ? Math.sqrt(long / Math.max(run.longest, long)) / long : 1 / (columns * (long + 0.7));
    const dx = Math.min(46, (width - margin - right) * share);
    return {
      rows,
      columns,
      dx,
      dy,
      margin,
      long,
      height: Math.max(height * 0.5, rows * dy + 16),
      radius: Math.max(1.1, Math.min(12, 0.42 * dx, 0.42 * dy)),
    };
  };
  let best = place(1);
  for (let columns = 2; best.radius < 4 && columns <= Math.min(n, 400); columns++) {
    const next = place(columns);
    if (next.radius > best.radius) best = next;
  }
  return best;
}

function drawStations(plan) {
  const run = laneRun(),
    federation = federationOf(run),
    place = byId("lanes"),
    width = Math.max(280, place.clientWidth);
  const l = layout(plan, run, width),
    picture = canvasOf(width, l.height, laneWords(plan));
  const big = federation ? Math.sqrt(Math.max(1, ...federation.train)) : 1,
    letters = l.radius >= 7.5;
  const paths = new Map(),
    texts = [];
  let rails = "";
  lanes.spots = [];
  lanes.box = l;
  plan.lanes.forEach((lane, index) => {
    const column = Math.floor(index / l.rows),
      y = 10 + (index % l.rows) * l.dy + l.dy / 2,
      x0 = l.margin + column * (l.long + 0.7) * l.dx + l.dx / 2;
    if (lane.length > 1 || l.dx > 9)
      rails += `M${(x0 - l.dx * 0.5).toFixed(1)} ${y.toFixed(1)}H${(x0 + (lane.length - 0.4) * l.dx).toFixed(1)}`;
    if (l.margin > 20)
      texts.push(
        label(l.margin - 10, y + 4, l.margin > 30 ? `group ${index + 1}` : index + 1, { "text-anchor": "end", class: "faint" }),
      );
    lane.forEach((client, hop) => {
      const kind = federation ? federation.kindOf[client] : 255,
        size = federation ? 0.5 + 0.5 * (Math.sqrt(federation.train[client]) / big) : 0.8;
      const r = l.radius * size,
        x = x0 + hop * l.dx;
      paths.set(
        kind,
        `${paths.get(kind) || ""}M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r.toFixed(2)} ${r.toFixed(2)} 0 1 0 ${(2 * r).toFixed(2)} 0a${r.toFixed(2)} ${r.toFixed(2)} 0 1 0 ${(-2 * r).toFixed(2)} 0`,
      );
      if (letters && r > 6.5 && kind < 255)
        texts.push(
          svg(
            "text",
            {
              x: x.toFixed(1),
              y: (y + 3.6).toFixed(1),
              "text-anchor": "middle",
              fill: "#10161c",
              "font-size": 10,
              "font-weight": 700,
            },
            KIND_LETTERS[kind],
          ),
        );
      lanes.spots.push(x, y, index, hop, client);
    });
    if (l.margin > 30 && federation?.counts)
      texts.push(
        label(Math.min(width - 2, x0 + (lane.length - 0.1) * l.dx + 60), y + 4, distanceText(federation, lane), {
          "text-anchor": "end",
          class: "faint",
        }),
      );
  });
  picture.append(
    svg("path", { d: rails, stroke: "var(--line)", "stroke-width": Math.max(1, Math.min(3, l.radius * 0.4)), fill: "none" }),
  );
  for (const [kind, d] of paths) picture.append(svg("path", { d, fill: kind === 255 ? "var(--none)" : `var(--k${kind})` }));
  picture.append(...texts);
  fill(place, picture);
  place.style.minHeight = `${Math.round(Math.max(place.offsetHeight > 700 ? 0 : parseFloat(place.style.minHeight) || 0, l.height))}px`;
  byId("lane-caption").textContent = laneWords(plan);
}

function distanceText(federation, lane) {
  const d = skewOf(federation, lane);
  return d === null ? "" : `±${percent(d / 2, 0)}`;
}

// How much of a group's class mix would have to change to become everybody's: half the sum of differences is that share.
function skewOf(federation, lane) {
  const F = federation.classNames.length,
    sums = new Float64Array(F);
  let total = 0,
    all = 0;
  for (const client of lane)
    for (let c = 0; c < F; c++) {
      const v = federation.counts[client * F + c];
      sums[c] += v;
      total += v;
    }
  for (const v of federation.population) all += v;
  if (!total) return null;
  let distance = 0;
  for (let c = 0; c < F; c++) distance += Math.abs(sums[c] / total - federation.population[c] / all);
  return distance;
}

function laneWords(plan) {
  const lengths = plan.lanes.map((lane) => lane.length),
    low = Math.min(...lengths),
    high = Math.max(...lengths),
    clients = lengths.reduce((a, b) => a + b, 0);
  const size = low === high ? plural(low, "client") : `${low} to ${high} clients`;
  const federation = federationOf(laneRun()),
    skews = federation?.counts ? plan.lanes.map((lane) => skewOf(federation, lane)).filter((v) => v !== null) : [];
  const extra = [];
  if (plan.passes > 1) extra.push(`each chain is walked ${plan.passes} times`);
  if (plan.groups > plan.lanes.length) extra.push(`drawn from ${plural(plan.groups, "group")}`);
  if (plan.leftOut) extra.push(`${plural(plan.leftOut, "client")} in no group`);
  if (skews.length) extra.push(`a group's class mix lies ${percent(mean(skews) / 2, 0)} from everybody's on average`);
  return `Round ${plan.round}${plan.under ? " (under way)" : ""}: ${plural(plan.lanes.length, "chain")}${plan.lanes.length > 1 ? " side by side, each " : " of "}${size} in sequence; ${plural(clients, "client")} ${plan.under ? "so far" : "train"}${extra.length ? `; ${extra.join("; ")}` : ""}.`;
}

function onLaneHover(event) {
  const box = byId("lanes").getBoundingClientRect(),
    x = event.clientX - box.left,
    y = event.clientY - box.top,
    federation = federationOf(laneRun());
  let best = -1,
    nearestOne = (lanes.box ? Math.max(8, lanes.box.radius * 1.6) : 8) ** 2;
  for (let k = 0; k < lanes.spots.length; k += 5) {
    const d = (lanes.spots[k] - x) ** 2 + (lanes.spots[k + 1] - y) ** 2;
    if (d < nearestOne) {
      nearestOne = d;
      best = k;
    }
  }
  if (best < 0) {
    tip.hide();
    return;
  }
  const [lane, hop, client] = lanes.spots.slice(best + 2, best + 5),
    rows = [
      federation?.names[client] ?? `client ${client}`,
      [null, "group", String(lane + 1)],
      [null, "station", String(hop + 1)],
    ];
  if (federation) {
    rows.push(
      [null, "training samples", grouped(federation.train[client])],
      [`var(--k${federation.kindOf[client]})`, `kind ${KIND_LETTERS[federation.kindOf[client]] ?? "–"}`],
      [null, "class mix from everybody's", percent(federation.skew[client] / 20000, 0)],
    );
    const score = laneRun().scores?.[client];
    if (score !== undefined && !Number.isNaN(score)) rows.push([null, scoreName(), scoreText(score)]);
  }
  tip.show(event.clientX, event.clientY, rows);
}
