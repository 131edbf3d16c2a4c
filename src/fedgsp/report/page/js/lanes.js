// The sequential-to-parallel picture: the real plans, a round at a time.
const lanes = { run: null, at: 0, timer: null, spots: [], box: null, follow: true };

function setUpLanes() {
  byId("lane-run").addEventListener("change", (e) => { lanes.run = e.target.value; lanes.at = 0; stopPlaying(); drawLanes(); });
  byId("lane-slider").addEventListener("input", (e) => { stopPlaying(); lanes.at = Number(e.target.value); lanes.follow = lanes.at === frames().length - 1; byId("lane-follow").checked = lanes.follow; drawRound(); });
  byId("lane-play").addEventListener("click", () => (lanes.timer ? stopPlaying() : startPlaying()));
  byId("lane-follow").addEventListener("change", (e) => { lanes.follow = e.target.checked; if (lanes.follow) { lanes.at = frames().length - 1; drawRound(); } });
  byId("lanes").addEventListener("mousemove", onLaneHover);
  byId("lanes").addEventListener("mouseleave", tip.hide);
  byId("lane-strip").addEventListener("click", (e) => { const box = byId("lane-strip").getBoundingClientRect(); stopPlaying(); lanes.at = Math.max(0, Math.min(frames().length - 1, Math.round(((e.clientX - box.left) / box.width) * (frames().length - 1)))); drawRound(); });
}

const laneRun = () => store.runs.get(lanes.run);

// Finished rounds, and the one under way where the run is being watched.
function frames() {
  const run = laneRun();
  if (!run) return [];
  const now = run.now && run.now.lanes.length ? [{ round: run.now.round, lanes: run.now.lanes, groups: run.now.chains, leftOut: 0, passes: 1, starts: null, under: true }] : [];
  return [...run.plans, ...now];
}

function pickLaneRun() {
  const runs = allRuns().filter((run) => run.plans.length || run.now);
  choices(byId("lane-run"), runs.map((run) => [run.id, runLabel(run)]), lanes.run || undefined);
  if (!runs.some((run) => run.id === lanes.run)) {
    const growing = runs.find((run) => run.plans.length > 1 && run.plans[run.plans.length - 1].lanes.length > run.plans[0].lanes.length);
    lanes.run = (growing || runs[0])?.id ?? null;
    if (lanes.run) byId("lane-run").value = lanes.run;
  }
}

function drawLanes() {
  pickLaneRun();
  const shown = frames();
  byId("lane-follow-label").hidden = !store.live;
  if (!shown.length) { fill(byId("lanes"), el("p", { class: "empty" }, "No round has been planned yet.")); fill(byId("lane-strip")); drawGroups(); return; }
  if (store.live && lanes.follow) lanes.at = shown.length - 1;
  lanes.at = Math.min(lanes.at, shown.length - 1);
  drawKinds();
  drawRound();
}

function drawRound() {
  const shown = frames(), plan = shown[lanes.at], slider = byId("lane-slider");
  slider.max = String(shown.length - 1);
  slider.value = String(lanes.at);
  slider.setAttribute("aria-valuetext", `round ${plan.round}, ${plural(plan.lanes.length, "chain")}`);
  byId("lane-round").textContent = String(plan.round);
  drawStrip(shown);
  drawStations(plan);
  drawGroups();
}

// Where everything goes: lanes below each other while dots can be told apart, in as many columns as make them largest where not.
function layout(plan, run, width) {
  const height = Math.max(230, Math.min(430, width * 0.62)), n = plan.lanes.length, long = Math.max(1, ...plan.lanes.map((lane) => lane.length));
  const place = (columns) => {
    const rows = Math.ceil(n / columns), dy = Math.max(2.2, Math.min(44, (height - 16) / rows)), roomy = dy >= 15 && columns === 1;
    const margin = !roomy ? 6 : width < 560 ? 24 : 66, right = roomy && width >= 560 ? 66 : 6;
    // Alone in its column a lane shrinks with the root of its length: one sees it shorten, and its dots stay large enough to tell apart.
    const share = columns === 1 ? Math.sqrt(long / Math.max(run.longest, long)) / long : 1 / (columns * (long + 0.7));
    const dx = Math.min(46, (width - margin - right) * share);
    return { rows, columns, dx, dy, margin, long, height: Math.max(height * 0.5, rows * dy + 16), radius: Math.max(1.1, Math.min(12, 0.42 * dx, 0.42 * dy)) };
  };
  let best = place(1);
  for (let columns = 2; best.radius < 4 && columns <= Math.min(n, 400); columns++) {
    const next = place(columns);
    if (next.radius > best.radius) best = next;
  }
  return best;
}

function drawStations(plan) {
  const run = laneRun(), federation = federationOf(run), place = byId("lanes"), width = Math.max(280, place.clientWidth);
  const l = layout(plan, run, width), picture = canvasOf(width, l.height, laneWords(plan));
  const big = federation ? Math.sqrt(Math.max(1, ...federation.train)) : 1, letters = l.radius >= 7.5;
  const paths = new Map(), texts = [];
  let rails = "";
  lanes.spots = [];
  lanes.box = l;
  plan.lanes.forEach((lane, index) => {
    const column = Math.floor(index / l.rows), y = 10 + (index % l.rows) * l.dy + l.dy / 2, x0 = l.margin + column * (l.long + 0.7) * l.dx + l.dx / 2;
    if (lane.length > 1 || l.dx > 9) rails += `M${(x0 - l.dx * 0.5).toFixed(1)} ${y.toFixed(1)}H${(x0 + (lane.length - 0.4) * l.dx).toFixed(1)}`;
    if (l.margin > 20) texts.push(label(l.margin - 10, y + 4, l.margin > 30 ? `group ${index + 1}` : index + 1, { "text-anchor": "end", class: "faint" }));
    lane.forEach((client, hop) => {
      const kind = federation ? federation.kindOf[client] : 255, size = federation ? 0.5 + 0.5 * (Math.sqrt(federation.train[client]) / big) : 0.8;
      const r = l.radius * size, x = x0 + hop * l.dx;
      paths.set(kind, `${paths.get(kind) || ""}M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r.toFixed(2)} ${r.toFixed(2)} 0 1 0 ${(2 * r).toFixed(2)} 0a${r.toFixed(2)} ${r.toFixed(2)} 0 1 0 ${(-2 * r).toFixed(2)} 0`);
      if (letters && r > 6.5 && kind < 255) texts.push(svg("text", { x: x.toFixed(1), y: (y + 3.6).toFixed(1), "text-anchor": "middle", fill: "#10161c", "font-size": 10, "font-weight": 700 }, KIND_LETTERS[kind]));
      lanes.spots.push(x, y, index, hop, client);
    });
    if (l.margin > 30 && federation?.counts) texts.push(label(Math.min(width - 2, x0 + (lane.length - 0.1) * l.dx + 60), y + 4, distanceText(federation, lane), { "text-anchor": "end", class: "faint" }));
  });
  picture.append(svg("path", { d: rails, stroke: "var(--line)", "stroke-width": Math.max(1, Math.min(3, l.radius * 0.4)), fill: "none" }));
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
  const F = federation.classNames.length, sums = new Float64Array(F);
  let total = 0, all = 0;
  for (const client of lane) for (let c = 0; c < F; c++) { const v = federation.counts[client * F + c]; sums[c] += v; total += v; }
  for (const v of federation.population) all += v;
  if (!total) return null;
  let distance = 0;
  for (let c = 0; c < F; c++) distance += Math.abs(sums[c] / total - federation.population[c] / all);
  return distance;
}

function laneWords(plan) {
  const lengths = plan.lanes.map((lane) => lane.length), low = Math.min(...lengths), high = Math.max(...lengths), clients = lengths.reduce((a, b) => a + b, 0);
  const size = low === high ? plural(low, "client") : `${low} to ${high} clients`;
  const federation = federationOf(laneRun()), skews = federation?.counts ? plan.lanes.map((lane) => skewOf(federation, lane)).filter((v) => v !== null) : [];
  const extra = [];
  if (plan.passes > 1) extra.push(`each chain is walked ${plan.passes} times`);
  if (plan.groups > plan.lanes.length) extra.push(`drawn from ${plural(plan.groups, "group")}`);
  if (plan.leftOut) extra.push(`${plural(plan.leftOut, "client")} in no group`);
  if (skews.length) extra.push(`a group's class mix lies ${percent(mean(skews) / 2, 0)} from everybody's on average`);
  return `Round ${plan.round}${plan.under ? " (under way)" : ""}: ${plural(plan.lanes.length, "chain")}${plan.lanes.length > 1 ? " side by side, each " : " of "}${size} in sequence; ${plural(clients, "client")} ${plan.under ? "so far" : "train"}${extra.length ? `; ${extra.join("; ")}` : ""}.`;
}

// All rounds at a glance: how many lanes (area) and how long the longest is (line).
function drawStrip(shown) {
  const place = byId("lane-strip"), width = Math.max(280, place.clientWidth), height = 58, n = shown.length;
  const most = Math.max(...shown.map((p) => p.lanes.length)), longest = Math.max(...shown.map((p) => Math.max(...p.lanes.map((lane) => lane.length), 1)));
  const x = (k) => (n === 1 ? width / 2 : 4 + (k / (n - 1)) * (width - 8)), y = (v, top) => height - 4 - (v / top) * (height - 24);
  const walk = (value, top) => shown.map((p, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(value(p), top).toFixed(1)}`).join("");
  const count = (p) => p.lanes.length, length = (p) => Math.max(...p.lanes.map((lane) => lane.length), 0);
  const picture = canvasOf(width, height, `Lanes by round: up to ${most} chains; the longest chain has ${longest} clients.`);
  picture.append(svg("path", { d: `${walk(count, most)}L${x(n - 1)} ${height - 4}L${x(0)} ${height - 4}Z`, fill: "var(--line)" }), svg("path", { d: walk(length, longest), fill: "none", stroke: "var(--soft)", "stroke-width": 1.6 }),
    svg("line", { x1: x(lanes.at), x2: x(lanes.at), y1: 16, y2: height, stroke: "var(--ink)", "stroke-width": 2 }),
    label(width - 10, 12, width < 560 ? `${most} lanes at most` : `area: lanes, up to ${most}`, { "text-anchor": "end", class: "faint halo" }), label(width / 2, 12, width < 560 ? `longest ${longest}` : `line: clients in the longest lane, up to ${longest}`, { "text-anchor": "middle", class: "faint halo" }));
  fill(place, picture);
}

function drawKinds() {
  const federation = federationOf(laneRun());
  if (!federation) { fill(byId("lane-kinds"), el("span", {}, "This run does not say what its clients hold, so stations have no colours.")); return; }
  fill(byId("lane-kinds"), ...federation.kinds.map((kind, k) => el("span", {}, el("i", { class: "badge", "aria-hidden": "true", style: { background: `var(--k${k})` } }, KIND_LETTERS[k]),
    el("b", {}, `kind ${KIND_LETTERS[k]}`), `${plural(kind.clients, "client")}${kind.marks.length ? `, more ${kind.marks.map((c) => federation.classNames[c]).join(" ")}` : ""}`)),
  el("span", {}, "Larger dots have more samples; ± is how far a group's class mix lies from everybody's."));
}

function onLaneHover(event) {
  const box = byId("lanes").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, federation = federationOf(laneRun());
  let best = -1, nearestOne = (lanes.box ? Math.max(8, lanes.box.radius * 1.6) : 8) ** 2;
  for (let k = 0; k < lanes.spots.length; k += 5) {
    const d = (lanes.spots[k] - x) ** 2 + (lanes.spots[k + 1] - y) ** 2;
    if (d < nearestOne) { nearestOne = d; best = k; }
  }
  if (best < 0) { tip.hide(); return; }
  const [lane, hop, client] = lanes.spots.slice(best + 2, best + 5), rows = [federation?.names[client] ?? `client ${client}`, [null, "group", String(lane + 1)], [null, "station", String(hop + 1)]];
  if (federation) {
    rows.push([null, "training samples", grouped(federation.train[client])], [`var(--k${federation.kindOf[client]})`, `kind ${KIND_LETTERS[federation.kindOf[client]] ?? "–"}`], [null, "class mix from everybody's", percent(federation.skew[client] / 20000, 0)]);
    const score = laneRun().scores?.[client];
    if (score !== undefined && !Number.isNaN(score)) rows.push([null, scoreName(), scoreText(score)]);
  }
  tip.show(event.clientX, event.clientY, rows);
}

function startPlaying() {
  const pause = Math.max(45, Math.min(650, 24000 / frames().length));
  if (lanes.at >= frames().length - 1) lanes.at = 0;
  drawRound();
  lanes.timer = setInterval(() => {
    if (lanes.at >= frames().length - 1) { stopPlaying(); return; }
    lanes.at += 1;
    drawRound();
  }, pause);
  byId("lane-play").textContent = "Pause";
  byId("lane-play").setAttribute("aria-pressed", "true");
  byId("lane-caption").setAttribute("aria-live", "off");
}

function stopPlaying() {
  clearInterval(lanes.timer);
  lanes.timer = null;
  byId("lane-play").textContent = "Play";
  byId("lane-play").setAttribute("aria-pressed", "false");
  byId("lane-caption").setAttribute("aria-live", "polite");
}
