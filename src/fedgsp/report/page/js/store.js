// The page's data: runs by id, grown by updates; everything else is worked out from here.
const store = { runs: new Map(), order: [], groups: [], federations: [], summary: [], fleets: [], target: null, title: "", live: false };
const COLUMN_LISTS = [
  "round",
  "groups",
  "chains",
  "clients",
  "steps",
  "bytes",
  "trainLoss",
  "loss",
  "score",
  "plain",
  "q0.1",
  "q0.5",
  "q0.9",
  "wall",
];

function takeFrame(data) {
  store.groups = data.groups;
  store.summary = data.summary;
  store.fleets = data.fleets;
  store.target = data.target;
  store.title = data.title;
}

function takeFederations(made, from) {
  made.forEach((raw, k) => {
    store.federations[from + k] = {
      ...raw,
      train: unpack(raw.train),
      test: unpack(raw.test),
      counts: unpack(raw.counts),
      skew: unpack(raw.skew),
      kindOf: unpack(raw.kindOf),
    };
  });
}

function takeRun(body) {
  const known = store.runs.get(body.id);
  const plans = decodePlans(body.plans);
  if (!known || known.epoch !== body.epoch || body.after === 0) {
    store.runs.set(body.id, { ...body, plans, scores: scoresOf(body) });
  } else {
    for (const name of COLUMN_LISTS) known.columns[name].push(...body.columns[name]);
    for (const fleet of Object.keys(body.columns.time)) known.columns.time[fleet].push(...body.columns.time[fleet]);
    known.plans.push(...plans);
    store.runs.set(body.id, { ...body, columns: known.columns, plans: known.plans, scores: scoresOf(body) });
  }
  const run = store.runs.get(body.id);
  run.longest = body.plans.longest;
  run.most = body.plans.lanes;
  run.series = {};
}

function scoresOf(body) {
  if (!body.scores) return null;
  const steps = unpack(body.scores);
  return Float64Array.from(steps.subarray(0, steps.length - 1), (v) => (v === 65535 ? NaN : v / body.scores.scale));
}

function decodePlans(raw) {
  const clients = unpack(raw.clients);
  let at = 0;
  return raw.rounds.map((round, k) => {
    const lanes = [];
    for (let i = 0; i < raw.lengths[k].length; i += 2) {
      for (let n = 0; n < raw.lengths[k][i]; n++) {
        lanes.push(clients.subarray(at, at + raw.lengths[k][i + 1]));
        at += raw.lengths[k][i + 1];
      }
    }
    return {
      round,
      lanes,
      groups: raw.groups[k],
      leftOut: raw.leftOut[k],
      passes: raw.passes[k],
      starts: raw.starts[String(round)] || null,
    };
  });
}

const runsOf = (group) => group.runs.map((id) => store.runs.get(id)).filter(Boolean);
const allRuns = () => store.groups.flatMap(runsOf);
const federationOf = (run) => (run.federation === null ? null : store.federations[run.federation]);
const groupIndex = (run) => store.groups.findIndex((g) => g.runs.includes(run.id));
const runLabel = (run) => {
  const g = store.groups[groupIndex(run)];
  return g.runs.length > 1 ? `${g.label}, seed ${run.seed}` : g.label;
};
const isScore = () => allRuns().some((run) => run.score);
const scoreName = () => allRuns().find((run) => run.score)?.score || "loss";
const isShare = () => scoreName() === "accuracy";
const scoreText = (v) => (v === null || Number.isNaN(v) ? "–" : isShare() ? percent(v) : short(v));

// What a run reports, as run/metrics.py worked it out.
const finalScore = (run) => (run.final ? run.final.value : null);

// A column added up from the first round on: what was spent up to the end of each round.
function spent(run, kind, fleet) {
  const key = kind + (fleet || "");
  if (run.series[key]) return run.series[key];
  const c = run.columns;
  if (kind === "round" || kind === "steps" || kind === "bytes") return (run.series[key] = c[kind]);
  let sum = 0,
    known = true;
  return (run.series[key] = (kind === "wall" ? c.wall : c.time[fleet]).map((v) => {
    known = known && v !== null;
    sum += v || 0;
    return known ? sum : null;
  }));
}

// The place of the first round at an accuracy: `records` are the rounds that were better than all before.
function reachedAt(run, target) {
  const found = run.records.find(([, value]) => value >= target);
  return found ? run.columns.round.indexOf(found[0]) : -1;
}
