// Class distributions of the groups of the chosen round, and CPD over pairs of groups, method by method.
const groupsPicked = { lane: "" };
const MOST_PAIRED = 260;

function setUpGroups() {
  byId("group-pick").addEventListener("change", (e) => {
    groupsPicked.lane = e.target.value;
    drawGroups();
  });
}

function sharesOf(federation, lane) {
  const F = federation.classNames.length,
    made = new Float64Array(F);
  let total = 0;
  for (const client of lane)
    for (let c = 0; c < F; c++) {
      const v = federation.counts[client * F + c];
      made[c] += v;
      total += v;
    }
  if (!total) return null;
  for (let c = 0; c < F; c++) made[c] /= total;
  return made;
}

function drawGroups() {
  const run = laneRun(),
    plan = run ? frames()[lanes.at] : null,
    federation = run ? federationOf(run) : null;
  if (!plan || !federation?.counts) {
    for (const id of ["shares", "cpd", "cpd-table"])
      fill(byId(id), el("p", { class: "empty" }, "Without class counts of the clients there is nothing to show here."));
    return;
  }
  if (groupsPicked.lane !== "" && Number(groupsPicked.lane) >= plan.lanes.length) groupsPicked.lane = "";
  choices(
    byId("group-pick"),
    [["", `all ${plan.lanes.length}`], ...plan.lanes.slice(0, 400).map((_, k) => [String(k), `group ${k + 1}`])],
    groupsPicked.lane,
  );
  drawShares(federation, plan, runLabel(run));
  drawBoxes(plan.round);
}

function drawShares(federation, plan, name) {
  const place = byId("shares"),
    width = Math.max(280, place.clientWidth),
    height = 250,
    left = 44,
    bottom = 24,
    F = federation.classNames.length;
  const all = federation.population.reduce((a, b) => a + b, 0),
    whole = federation.population.map((v) => v / all);
  const own = plan.lanes.map((lane) => sharesOf(federation, lane)).filter(Boolean);
  if (!own.length) {
    fill(place);
    return;
  }
  const picked = groupsPicked.lane === "" ? null : sharesOf(federation, plan.lanes[Number(groupsPicked.lane)]);
  const spread = whole.map((_, c) => {
    const column = own.map((s) => s[c]).sort((a, b) => a - b);
    return [column[0], quantile(column, 0.25), quantile(column, 0.5), quantile(column, 0.75), column[column.length - 1]];
  });
  const top = Math.max(...whole, ...spread.map((s) => s[4]), ...(picked || [])) * 1.04,
    slot = (width - left - 4) / F;
  const x = (c) => left + (c + 0.5) * slot,
    y = (v) => height - bottom - (v / top) * (height - bottom - 12);
  const words = `Class shares of ${plural(own.length, "group")} of ${name} in round ${plan.round} against all clients.`,
    picture = canvasOf(width, height, words);
  for (const tick of ticks(0, top, 4))
    picture.append(
      svg("line", { x1: left, x2: width, y1: y(tick), y2: y(tick), class: "rule" }),
      label(left - 7, y(tick) + 4, percent(tick, top < 0.05 ? 1 : 0), { "text-anchor": "end", class: "faint" }),
    );
  const tone = `var(--${toneOf(groupIndex(laneRun()))})`,
    bar = Math.max(1, slot * 0.78);
  let bars = "",
    ranges = "",
    middles = "",
    quarters = "";
  whole.forEach((share, c) => {
    bars += `M${(x(c) - bar / 2).toFixed(1)} ${y(0).toFixed(1)}V${y(share).toFixed(1)}h${bar.toFixed(1)}V${y(0).toFixed(1)}Z`;
    const s = picked ? [picked[c], picked[c], picked[c], picked[c], picked[c]] : spread[c];
    ranges += `M${x(c).toFixed(1)} ${y(s[0]).toFixed(1)}V${y(s[4]).toFixed(1)}`;
    quarters += `M${x(c).toFixed(1)} ${y(s[1]).toFixed(1)}V${y(s[3]).toFixed(1)}`;
    middles += `M${(x(c) - bar * 0.42).toFixed(1)} ${y(s[2]).toFixed(1)}h${(bar * 0.84).toFixed(1)}`;
  });
  picture.append(
    svg("path", { d: bars, fill: "var(--line)" }),
    svg("path", { d: ranges, stroke: tone, "stroke-width": 1.4, fill: "none" }),
    svg("path", { d: quarters, stroke: tone, "stroke-width": Math.max(2, Math.min(7, slot * 0.3)), fill: "none" }),
    svg("path", { d: middles, stroke: "var(--ink)", "stroke-width": 1.8, fill: "none" }),
  );
  const every = Math.ceil((F * 13) / (width - left));
  federation.classNames.forEach((text, c) => {
    if (c % every === 0)
      picture.append(
        label(x(c), height - 7, text.length > 8 ? `${text.slice(0, 7)}…` : text, {
          "text-anchor": "middle",
          class: "faint",
          "font-size": 11,
        }),
      );
  });
  fill(place, picture);
  byId("shares-caption").textContent =
    `${name}, round ${plan.round}. Grey bars: all clients. ${picked ? "Dark lines: the group chosen." : "Lines: from the smallest to the largest share of any group; thick: the middle half; dark: the median."}`;
}

// CPD = (1 - 1/e) |p - q|^2 over pairs: the paper's measure with labels as one-hot points (kind "label" of fedgsp.plan.divergence).
function cpdOf(federation, laneList) {
  const step = Math.max(1, Math.ceil(laneList.length / MOST_PAIRED)),
    own = laneList
      .filter((_, k) => k % step === 0)
      .map((lane) => sharesOf(federation, lane))
      .filter(Boolean);
  const values = [],
    factor = 1 - Math.exp(-1);
  for (let i = 0; i < own.length; i++) {
    for (let j = i + 1; j < own.length; j++) {
      let d = 0;
      for (let c = 0; c < own[i].length; c++) {
        const e = own[i][c] - own[j][c];
        d += e * e;
      }
      values.push(factor * d);
    }
  }
  return values;
}

function boxesAt(round) {
  const boxes = [];
  const first = laneRun(),
    reference = federationOf(first);
  if (reference.cpd.length) boxes.push({ name: "single clients", five: reference.cpd, tone: "none" });
  store.groups.forEach((group, k) => {
    const values = [];
    let seen = 0;
    for (const run of runsOf(group)) {
      const federation = federationOf(run),
        plan = [...run.plans].reverse().find((p) => p.round <= round);
      if (!federation?.counts || !plan || seen >= 3) continue;
      seen += 1;
      for (const v of cpdOf(federation, plan.lanes)) values.push(v);
    }
    if (!values.length) return;
    values.sort((a, b) => a - b);
    boxes.push({
      name: group.label,
      five: [0, 0.25, 0.5, 0.75, 1].map((q) => quantile(values, q)),
      tone: toneOf(k),
      pairs: values.length,
    });
  });
  return boxes;
}

function drawBoxes(round) {
  const place = byId("cpd"),
    boxes = boxesAt(round),
    width = Math.max(280, place.clientWidth),
    line = 34,
    left = Math.min(width * 0.36, 170),
    height = boxes.length * line + 34;
  const positive = boxes.flatMap((b) => b.five).filter((v) => v > 0);
  if (!positive.length) {
    fill(place, el("p", { class: "empty" }, "With one group a round there are no pairs to compare."));
    fill(byId("cpd-table"));
    return;
  }
  const low = Math.max(1e-6, Math.min(...positive) * 0.8),
    high = Math.max(...positive) * 1.15;
  const x = (v) => left + (Math.log(Math.max(v, low) / low) / Math.log(high / low)) * (width - left - 10);
  const picture = canvasOf(
    width,
    height,
    `Class probability distance between groups in round ${round}: ${boxes.map((b) => `${b.name} median ${short(b.five[2])}`).join(", ")}.`,
  );
  for (const tick of ticks(low, high, 4, true))
    picture.append(
      svg("line", { x1: x(tick), x2: x(tick), y1: 4, y2: height - 26, class: "rule" }),
      label(x(tick), height - 8, short(tick), { "text-anchor": "middle", class: "faint" }),
    );
  boxes.forEach((b, k) => {
    const y = 6 + k * line + line / 2,
      tone = `var(--${b.tone})`,
      text = b.name.length > 24 ? `${b.name.slice(0, 23)}…` : b.name;
    picture.append(
      label(left - 12, y + 4, text, { "text-anchor": "end" }),
      svg("line", { x1: x(b.five[0]), x2: x(b.five[4]), y1: y, y2: y, stroke: tone, "stroke-width": 2 }),
      svg("rect", {
        x: x(b.five[1]),
        y: y - 9,
        width: Math.max(2, x(b.five[3]) - x(b.five[1])),
        height: 18,
        rx: 3,
        fill: tone,
      }),
      svg("line", { x1: x(b.five[2]), x2: x(b.five[2]), y1: y - 9, y2: y + 9, stroke: "var(--paper)", "stroke-width": 2.5 }),
    );
  });
  fill(place, picture);
  fill(
    byId("cpd-table"),
    table(
      "Class probability distance",
      ["groups of", "smallest", "lower quartile", "median", "upper quartile", "largest"],
      boxes.map((b) => [b.name, ...b.five.map(short)]),
    ),
  );
}
