// What the curves say at one place: by mouse, by keyboard, and as a table.
function nearest(xs, x) {
  let low = 0,
    high = xs.length - 1;
  while (high - low > 1) {
    const mid = (low + high) >> 1;
    if (xs[mid] < x) low = mid;
    else high = mid;
  }
  return high >= 0 && Math.abs(xs[high] - x) < Math.abs(xs[low] - x) ? high : low;
}

function readings(x) {
  const [low, high] = [curves.plot.scales.x.min, curves.plot.scales.x.max],
    slack = (high - low) * 0.02;
  return curves.lines
    .filter((line) => line.shown && !line.thin && x <= line.points[0][line.points[0].length - 1] + slack)
    .map((line) => ({ line, value: line.points[1][nearest(line.points[0], x)] }))
    .sort((a, b) => b.value - a.value);
}

function onCursor(u) {
  if (u.cursor.left < 0 || !u.cursor.event) {
    if (!u.cursor.event) return;
    tip.hide();
    return;
  }
  const box = u.over.getBoundingClientRect(),
    x = u.posToVal(u.cursor.left, "x");
  showReadings(x, box.left + u.cursor.left, u.cursor.event.clientY || box.top + 20);
}

function showReadings(x, left, top) {
  const shown = readings(x);
  const head = curves.x === "round" ? `round ${Math.round(x)}` : X_AXES[curves.x][1](x);
  tip.show(left, top, [
    head,
    ...shown.slice(0, 12).map(({ line, value }) => [`var(--${toneOf(line.index)})`, line.label, yText(value)]),
    ...(shown.length > 12 ? [[null, `and ${shown.length - 12} more`]] : []),
  ]);
  return `${head}: ${shown
    .slice(0, 12)
    .map(({ line, value }) => `${line.label} ${yText(value)}`)
    .join(", ")}`;
}

// The arrow keys walk the cursor along the x values that there are.
function onCurveKey(event) {
  if (!curves.plot) return;
  const xs = curves.plot.data[0],
    last = xs.length - 1,
    jump = Math.max(1, Math.round(last / 10));
  const moves = {
    ArrowRight: 1,
    ArrowUp: 1,
    ArrowLeft: -1,
    ArrowDown: -1,
    PageUp: jump,
    PageDown: -jump,
    Home: -Infinity,
    End: Infinity,
  };
  if (event.key === "Escape") {
    tip.hide();
    return;
  }
  if (!(event.key in moves)) return;
  event.preventDefault();
  curves.at = Math.max(0, Math.min(last, (curves.at < 0 ? -1 : curves.at) + moves[event.key]));
  const x = xs[curves.at],
    left = curves.plot.valToPos(x, "x"),
    box = curves.plot.over.getBoundingClientRect();
  curves.plot.setCursor({ left, top: 10 }, false);
  const place = byId("curve");
  place.setAttribute("aria-valuemax", last);
  place.setAttribute("aria-valuenow", curves.at);
  place.setAttribute("aria-valuetext", showReadings(x, box.left + left, box.top + 12));
}

function drawCurveTable() {
  const lines = curves.lines.filter((line) => !line.thin);
  const most = Math.max(0, ...lines.map((line) => line.points[0].length)),
    step = Math.max(1, Math.ceil(most / 25));
  const picks = [...new Set([...Array.from({ length: Math.ceil(most / step) }, (_, k) => k * step), most - 1])].filter(
    (k) => k >= 0,
  );
  if (curves.x === "round") {
    const rows = picks.map((k) => {
      const longest = lines.find((line) => line.points[0].length > k);
      return [longest.points[0][k], ...lines.map((line) => (k < line.points[0].length ? yText(line.points[1][k]) : "–"))];
    });
    fill(byId("curve-table"), table("Curves", ["round", ...lines.map((line) => line.label)], rows));
  } else {
    const rows = lines.flatMap((line) =>
      picks
        .filter((k) => k < line.points[0].length)
        .map((k) => [line.label, X_AXES[curves.x][1](line.points[0][k]), yText(line.points[1][k])]),
    );
    fill(byId("curve-table"), table("Curves", ["method", X_AXES[curves.x][0], "value"], rows));
  }
}
