// A watched page asks for what is new. It says what it has, so that nothing is missed after a sleep, and nothing is sent twice.
const watching = { last: 0, every: 1000, timer: null, failed: 0, asking: false };

function startWatching(every) {
  watching.every = every || 1000;
  watching.last = Date.now();
  byId("live").hidden = false;
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) ask();
  });
  addEventListener("online", ask);
  showLive();
  later();
}

function later() {
  clearTimeout(watching.timer);
  watching.timer = setTimeout(ask, watching.failed ? Math.min(15000, watching.every * 2 ** watching.failed) : watching.every);
}

async function ask() {
  if (watching.asking) return;
  watching.asking = true;
  const have = Object.fromEntries([...store.runs].map(([id, run]) => [id, [run.epoch, run.last]]));
  try {
    const answer = await fetch(
      `updates?have=${encodeURIComponent(JSON.stringify(have))}&federations=${store.federations.length}`,
      { cache: "no-store", credentials: "same-origin" },
    );
    if (!answer.ok) throw new Error(String(answer.status));
    hear(await answer.json());
    watching.failed = 0;
    watching.last = Date.now();
  } catch {
    watching.failed = Math.min(6, watching.failed + 1);
  } finally {
    watching.asking = false;
  }
  showLive();
  later();
}

function hear(data) {
  const before = new Map([...store.runs].map(([id, run]) => [id, `${run.epoch} ${run.last} ${run.status}`]));
  const known = store.runs.size;
  take(data);
  const changed =
    store.runs.size !== known || data.runs.some((body) => before.get(body.id) !== `${body.epoch} ${body.last} ${body.status}`);
  if (changed) drawAll();
  else if (store.runs.get(lanes.run)?.now) drawLanes();
}

function showLive() {
  const pill = byId("live"),
    running = allRuns().filter((run) => run.status === "running").length;
  pill.classList.toggle("off", watching.failed > 0);
  pill.textContent = watching.failed
    ? "not reached; trying again"
    : running
      ? `live, ${plural(running, "run")} under way`
      : "live, nothing under way";
}
