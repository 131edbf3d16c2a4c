// The summary: sentences that were written where the page was made, and a card for each method.
const STATUS_WORDS = {
  running: "running",
  finished: "finished",
  target: "reached its target",
  interrupted: "interrupted",
  paused: "paused",
  failed: "failed",
  stopped: "stopped",
};
const MOST_CARDS = 12;

function drawSummary() {
  byId("title").textContent = store.title;
  document.title = `${store.title} · fedgsp`;
  const federation = store.federations[0];
  const rounds = Math.max(0, ...allRuns().map((run) => run.last));
  const about = [plural(allRuns().length, "run"), `${plural(rounds, "round")}`];
  if (federation && store.federations.length === 1)
    about.push(
      `${plural(federation.clients, "client")}`,
      federation.classes ? `${federation.classes} classes` : "regression",
      shortSource(federation.source),
    );
  byId("subtitle").textContent = about.join(" · ");
  fill(
    byId("words"),
    ...store.summary.map((s) => el("p", { class: s.kind === "caution" ? "caution" : `words-${s.kind}` }, s.text)),
  );
  const order = store.groups
    .map((group, k) => [group, k, groupFinal(group)])
    .sort((a, b) => (isScore() ? (b[2] ?? -1) - (a[2] ?? -1) : (a[2] ?? Infinity) - (b[2] ?? Infinity)));
  const shown = order.slice(0, MOST_CARDS);
  fill(
    byId("cards"),
    el("ul", { class: "cards" }, ...shown.map(([group, k, final]) => card(group, k, final))),
    order.length > MOST_CARDS
      ? el(
          "details",
          {},
          el("summary", {}, `All ${order.length} methods as a table`),
          el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All methods" }, overview(order)),
        )
      : null,
  );
}

// The source without the folders of the machine it was on.
const shortSource = (source) => (source || "data in memory").replace(/\/[^:]*\//g, "");

function groupFinal(group) {
  const finals = runsOf(group)
    .map(finalScore)
    .filter((v) => v !== null);
  return finals.length ? mean(finals) : null;
}

function totals(group) {
  const last = runsOf(group)
    .filter((run) => run.last > 0)
    .map((run) => run.columns);
  const end = (name) => (last.length ? mean(last.map((c) => c[name][c[name].length - 1])) : 0);
  return { steps: end("steps"), bytes: end("bytes"), rounds: Math.max(0, ...runsOf(group).map((run) => run.last)) };
}

function card(group, k, final) {
  const runs = runsOf(group),
    sum = totals(group),
    facts = [];
  const add = (name, value) => facts.push(el("dt", {}, name), el("dd", {}, value));
  add("rounds", grouped(sum.rounds));
  add("serial steps", grouped(sum.steps));
  add("traffic", bytesText(sum.bytes));
  if (runs.length === 1 && runs[0].final) {
    const best = runs[0].records[runs[0].records.length - 1];
    add(`round ${runs[0].final.last.round}`, scoreText(runs[0].final.last.value));
    add(`best, round ${best[0]}`, scoreText(best[1]));
  }
  if (runs.length > 1) {
    const finals = runs.map(finalScore).filter((v) => v !== null);
    add(
      plural(runs.length, "seed"),
      finals.length ? `${scoreText(Math.min(...finals))} – ${scoreText(Math.max(...finals))}` : "–",
    );
  }
  const statuses = [...new Set(runs.map((run) => STATUS_WORDS[run.status] || run.status))].join(", ");
  const planned = runs.reduce((n, run) => n + run.planned, 0),
    done = runs.reduce((n, run) => n + run.last, 0);
  const running = runs.some((run) => run.status === "running");
  return el(
    "li",
    { class: "card", style: { "--tone": `var(--${toneOf(k)})` } },
    el("h3", {}, group.label),
    el("p", { class: "big" }, scoreText(final)),
    el("p", { class: "status" }, `${scoreName()}${final === null ? "" : `, ${group.window}`} · ${statuses}`),
    el("dl", {}, ...facts),
    running
      ? el(
          "div",
          {
            class: "bar",
            role: "progressbar",
            "aria-label": `rounds of ${group.label}`,
            "aria-valuemin": 0,
            "aria-valuemax": planned,
            "aria-valuenow": done,
          },
          el("i", { style: { width: `${(100 * done) / Math.max(1, planned)}%` } }),
        )
      : null,
  );
}

function overview(order) {
  return table(
    "Methods",
    ["method", isScore() ? scoreName() : "loss", "rounds", "serial steps", "traffic", "seeds"],
    order.map(([group, , final]) => {
      const sum = totals(group);
      return [group.label, scoreText(final), grouped(sum.rounds), grouped(sum.steps), bytesText(sum.bytes), group.runs.length];
    }),
  );
}
