// The sequential-to-parallel picture: the real plans, a round at a time.
const lanes = { run: null, at: 0, timer: null, spots: [], box: null, follow: true };

function setUpLanes() {
  byId("lane-run").addEventListener("change", (e) => {
    lanes.run = e.target.value;
    lanes.at = 0;
    stopPlaying();
    drawLanes();
  });
  byId("lane-slider").addEventListener("input", (e) => {
    stopPlaying();
    lanes.at = Number(e.target.value);
    lanes.follow = lanes.at === frames().length - 1;
    byId("lane-follow").checked = lanes.follow;
    drawRound();
  });
  byId("lane-play").addEventListener("click", () => (lanes.timer ? stopPlaying() : startPlaying()));
  byId("lane-follow").addEventListener("change", (e) => {
    lanes.follow = e.target.checked;
    if (lanes.follow) {
      lanes.at = frames().length - 1;
      drawRound();
    }
  });
  byId("lanes").addEventListener("mousemove", onLaneHover);
  byId("lanes").addEventListener("mouseleave", tip.hide);
  byId("lane-strip").addEventListener("click", (e) => {
    const box = byId("lane-strip").getBoundingClientRect();
    stopPlaying();
    lanes.at = Math.max(
      0,
      Math.min(frames().length - 1, Math.round(((e.clientX - box.left) / box.width) * (frames().length - 1))),
    );
    drawRound();
  });
}

const laneRun = () => store.runs.get(lanes.run);

// Finished rounds, and the one under way where the run is being watched.
function frames() {
  const run = laneRun();
  if (!run) return [];
  const now =
    run.now && run.now.lanes.length
      ? [
          {
            round: run.now.round,
            lanes: run.now.lanes,
            groups: run.now.chains,
            leftOut: 0,
            passes: 1,
            starts: null,
            under: true,
          },
        ]
      : [];
  return [...run.plans, ...now];
}

function pickLaneRun() {
  const runs = allRuns().filter((run) => run.plans.length || run.now);
  choices(
    byId("lane-run"),
    runs.map((run) => [run.id, runLabel(run)]),
    lanes.run || undefined,
  );
  if (!runs.some((run) => run.id === lanes.run)) {
    const growing = runs.find(
      (run) => run.plans.length > 1 && run.plans[run.plans.length - 1].lanes.length > run.plans[0].lanes.length,
    );
    lanes.run = (growing || runs[0])?.id ?? null;
    if (lanes.run) byId("lane-run").value = lanes.run;
  }
}

function drawLanes() {
  pickLaneRun();
  const shown = frames();
  byId("lane-follow-label").hidden = !store.live;
  if (!shown.length) {
    fill(byId("lanes"), el("p", { class: "empty" }, "No round has been planned yet."));
    fill(byId("lane-strip"));
    drawGroups();
    return;
  }
  if (store.live && lanes.follow) lanes.at = shown.length - 1;
  lanes.at = Math.min(lanes.at, shown.length - 1);
  drawKinds();
  drawRound();
}

function drawRound() {
  const shown = frames(),
    plan = shown[lanes.at],
    slider = byId("lane-slider");
  slider.max = String(shown.length - 1);
  slider.value = String(lanes.at);
  slider.setAttribute("aria-valuetext", `round ${plan.round}, ${plural(plan.lanes.length, "chain")}`);
  byId("lane-round").textContent = String(plan.round);
  drawStrip(shown);
  drawStations(plan);
  drawGroups();
}

// All rounds at a glance: how many lanes (area) and how long the longest is (line).
function drawStrip(shown) {
  const place = byId("lane-strip"),
    width = Math.max(280, place.clientWidth),
    height = 58,
    n = shown.length;
  const most = Math.max(...shown.map((p) => p.lanes.length)),
    longest = Math.max(...shown.map((p) => Math.max(...p.lanes.map((lane) => lane.length), 1)));
  const x = (k) => (n === 1 ? width / 2 : 4 + (k / (n - 1)) * (width - 8)),
    y = (v, top) => height - 4 - (v / top) * (height - 24);
  const walk = (value, top) =>
    shown.map((p, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(value(p), top).toFixed(1)}`).join("");
  const count = (p) => p.lanes.length,
    length = (p) => Math.max(...p.lanes.map((lane) => lane.length), 0);
  const picture = canvasOf(width, height, `Lanes by round: up to ${most} chains; the longest chain has ${longest} clients.`);
  picture.append(
    svg("path", { d: `${walk(count, most)}L${x(n - 1)} ${height - 4}L${x(0)} ${height - 4}Z`, fill: "var(--line)" }),
    svg("path", { d: walk(length, longest), fill: "none", stroke: "var(--soft)", "stroke-width": 1.6 }),
    svg("line", { x1: x(lanes.at), x2: x(lanes.at), y1: 16, y2: height, stroke: "var(--ink)", "stroke-width": 2 }),
    label(width - 10, 12, width < 560 ? `${most} lanes at most` : `area: lanes, up to ${most}`, {
      "text-anchor": "end",
      class: "faint halo",
    }),
    label(width / 2, 12, width < 560 ? `longest ${longest}` : `line: clients in the longest lane, up to ${longest}`, {
      "text-anchor": "middle",
      class: "faint halo",
    }),
  );
  fill(place, picture);
}

function drawKinds() {
  const federation = federationOf(laneRun());
  if (!federation) {
    fill(byId("lane-kinds"), el("span", {}, "This run does not say what its clients hold, so stations have no colours."));
    return;
  }
  fill(
    byId("lane-kinds"),
    ...federation.kinds.map((kind, k) =>
      el(
        "span",
        {},
        el("i", { class: "badge", "aria-hidden": "true", style: { background: `var(--k${k})` } }, KIND_LETTERS[k]),
        el("b", {}, `kind ${KIND_LETTERS[k]}`),
        `${plural(kind.clients, "client")}${kind.marks.length ? `, more ${kind.marks.map((c) => federation.classNames[c]).join(" ")}` : ""}`,
      ),
    ),
    el("span", {}, "Larger dots have more samples; ± is how far a group's class mix lies from everybody's."),
  );
}

function startPlaying() {
  const pause = Math.max(45, Math.min(650, 24000 / frames().length));
  if (lanes.at >= frames().length - 1) lanes.at = 0;
  drawRound();
  lanes.timer = setInterval(() => {
    if (lanes.at >= frames().length - 1) {
      stopPlaying();
      return;
    }
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
