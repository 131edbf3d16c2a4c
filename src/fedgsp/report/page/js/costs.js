// Cost bars: what the runs would take on a fleet, and what each method spends to reach an accuracy.
const costs = { fleet: null, target: null };
const COST_PARTS = [
  ["computing", "computing", "green"],
  ["transfers", "transfers of the longest chain", "sky"],
  ["waiting", "waiting for the server's link", "orange"],
];

function setUpCosts() {
  choices(
    byId("cost-fleet"),
    store.fleets.map((f) => [f, f]),
  );
  costs.fleet = store.fleets[0];
  byId("cost-fleet").addEventListener("change", (e) => {
    costs.fleet = e.target.value;
    drawCosts();
  });
  byId("cost-target").addEventListener("input", (e) => {
    costs.target = e.target.value === "" ? null : Number(e.target.value) / 100;
    drawCostTable();
  });
}

function drawCosts() {
  const share = isShare();
  byId("cost-target").parentElement.hidden = !share;
  if (share && costs.target === null && store.target !== null) {
    costs.target = store.target;
    byId("cost-target").value = String(Math.round(100 * costs.target));
  }
  const rows = store.groups
    .map((group, k) => {
      const known = runsOf(group)
        .map((run) => run.costs[costs.fleet])
        .filter(Boolean);
      return known.length
        ? {
            name: group.label,
            k,
            parts: COST_PARTS.map(([key]) => mean(known.map((c) => c[key]))),
            rounds: totals(group).rounds,
          }
        : null;
    })
    .filter(Boolean);
  const place = byId("cost-bars");
  if (!rows.length)
    fill(
      place,
      el(
        "p",
        { class: "empty" },
        "No costs are known: either no round has finished, or the computing of this model could not be counted.",
      ),
    );
  else drawBars(place, rows);
  byId("cost-caption").textContent = rows.length
    ? `Estimated time of all rounds on ${costs.fleet} devices. A round takes as long as its longest chain, or as the server's link needs for all of them.`
    : "";
  drawCostTable();
}

function drawBars(place, rows) {
  const width = Math.max(280, place.clientWidth),
    narrow = width < 560,
    left = narrow ? 4 : Math.min(width * 0.3, 190),
    line = narrow ? 50 : 36,
    height = rows.length * line + 34;
  const sums = rows.map((row) => row.parts.reduce((a, b) => a + b, 0)),
    top = Math.max(...sums),
    room = width - left - 110;
  const picture = canvasOf(
    width,
    height,
    `Estimated time on ${costs.fleet} devices: ${rows.map((row, k) => `${row.name} ${timeText(sums[k])}`).join(", ")}.`,
  );
  let at = left;
  COST_PARTS.forEach(([, text, tone]) => {
    picture.append(
      svg("rect", { x: at, y: 2, width: 11, height: 11, rx: 2, fill: `var(--${tone})` }),
      label(at + 16, 12, narrow ? text.split(" ")[0] : text, { class: "faint", "font-size": 12 }),
    );
    at += narrow ? 100 : 40 + text.length * 6.6;
  });
  rows.forEach((row, k) => {
    const y = 30 + k * line,
      name = row.name.length > 26 ? `${row.name.slice(0, 25)}…` : row.name;
    picture.append(narrow ? label(left, y + 11, name) : label(left - 12, y + 16, name, { "text-anchor": "end" }));
    let x = left;
    row.parts.forEach((part, i) => {
      const wide = (part / top) * room;
      if (wide > 0.2)
        picture.append(
          svg("rect", { x, y: narrow ? y + 17 : y, width: wide, height: narrow ? 20 : 24, fill: `var(--${COST_PARTS[i][2]})` }),
        );
      x += wide;
    });
    picture.append(label(x + 9, narrow ? y + 32 : y + 16, timeText(sums[k])));
  });
  fill(place, picture);
}

function drawCostTable() {
  const share = isShare() && costs.target !== null;
  const average = (runs, read) => {
    const known = runs.map(read).filter((v) => v !== null && v !== undefined && !Number.isNaN(v));
    return known.length ? mean(known) : null;
  };
  const said = (v, text) => (v === null ? "–" : text(v));
  const rows = store.groups.map((group) => {
    const runs = runsOf(group).filter((run) => run.last > 0),
      sum = totals(group);
    const time = average(runs, (run) => spent(run, "time", costs.fleet)[run.columns.round.length - 1]);
    const row = [group.label, grouped(sum.steps), bytesText(sum.bytes), said(time, timeText)];
    if (!share) return row;
    const there = runs.map((run) => [run, reachedAt(run, costs.target)]).filter(([, k]) => k >= 0),
      part = there.length < runs.length && there.length ? ` (${there.length} of ${runs.length})` : "";
    if (!there.length) return [...row, "not reached", "–", "–", "–"];
    const at = (read) => {
      const known = there.map(([run, k]) => read(run, k)).filter((v) => v !== null);
      return known.length ? mean(known) : null;
    };
    return [
      ...row,
      said(
        at((run, k) => run.columns.round[k]),
        grouped,
      ) + part,
      said(
        at((run, k) => run.columns.steps[k]),
        grouped,
      ),
      said(
        at((run, k) => run.columns.bytes[k]),
        bytesText,
      ),
      said(
        at((run, k) => spent(run, "time", costs.fleet)[k]),
        timeText,
      ),
    ];
  });
  const goal = share ? `${Math.round(100 * costs.target)} %` : "";
  fill(
    byId("cost-table"),
    table(
      "Costs",
      [
        "method",
        "serial steps",
        "traffic",
        "time",
        ...(share ? [`rounds to ${goal}`, `steps to ${goal}`, `traffic to ${goal}`, `time to ${goal}`] : []),
      ],
      rows,
    ),
  );
}
