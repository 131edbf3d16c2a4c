// Everything it takes to do it again: data, configuration, versions, the command.
function facts(pairs) {
  return el(
    "dl",
    { class: "facts" },
    ...pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value))]),
  );
}

function drawRepeat() {
  fill(
    byId("data-facts"),
    ...store.federations.map((f, k) =>
      el(
        "div",
        {},
        el("h3", {}, store.federations.length > 1 ? `Data ${k + 1}` : "Data"),
        facts([
          ["source", f.source || "given in Python"],
          ["fingerprint", el("code", {}, f.fingerprint)],
          ["clients", `${grouped(f.clients)}${f.heldOut ? `, ${grouped(f.heldOut)} of them held out` : ""}`],
          ["samples", `${grouped(f.samples)} of shape ${f.shape.join(" x ") || "1"}`],
          ["classes", f.classes || "none (regression)"],
          [
            "label skew",
            `a client's class mix lies ${percent(f.meanSkew / 2, 0)} from everybody's on average (EMD ${f.meanSkew.toFixed(2)})`,
          ],
        ]),
      ),
    ),
  );
  const runs = allRuns(),
    open = new Set([...byId("run-facts").querySelectorAll("details[open]")].map((d) => d.dataset.run));
  fill(
    byId("run-facts"),
    el("h3", {}, runs.length > 1 ? "Runs" : "Run"),
    ...runs.map((run) => runFacts(run, runs.length === 1 || open.has(run.id))),
  );
}

function runFacts(run, open) {
  const copy = el(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () =>
        navigator.clipboard?.writeText(run.command).then(
          () => say("The command was copied."),
          () => say("Copying is not allowed here."),
        ),
    },
    "Copy",
  );
  const trouble = [
    run.resumed ? `resumed ${plural(run.resumed, "time")}` : "",
    run.lost ? `${plural(run.lost, "chain")} walked again after a failure` : "",
    run.skipped ? `${plural(run.skipped, "hop")} skipped` : "",
  ]
    .filter(Boolean)
    .join("; ");
  const made = el(
    "details",
    { "data-run": run.id, open: open || null },
    el("summary", {}, `${runLabel(run)}: ${STATUS_WORDS[run.status] || run.status} after ${plural(run.last, "round")}`),
    facts([
      ["directory", el("code", {}, run.path)],
      ["method", run.method],
      ["model", `${run.model}${run.parameters ? `, ${grouped(run.parameters)} parameters` : ""}`],
      ["seed", run.seed],
      ["cause", run.cause],
      ["on the way", trouble],
      [
        "versions",
        Object.entries(run.versions || {})
          .map(([k, v]) => `${k} ${v}`)
          .join(", "),
      ],
    ]),
    el("p", { class: "sub" }, "This repeats the run, to the bit on the same versions:"),
    el("div", { class: "command" }, el("pre", { tabindex: 0, "aria-label": "command" }, run.command), copy),
    el("p", { class: "sub" }, "The whole configuration (config.toml):"),
    el("pre", { tabindex: 0, "aria-label": `configuration of ${runLabel(run)}` }, run.config),
  );
  return made;
}
