// Small tools that every part of the page uses. Text from runs only ever becomes text nodes and attributes, never markup.
const byId = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [key, v] of Object.entries(value)) made.style.setProperty(key, v);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) continue;
    if (name === "fill" || name === "stroke") made.style.setProperty(name, value);
    else made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

// A picture of so many pixels: readers hear `label` in place of its parts.
const canvasOf = (width, height, label) =>
  svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });

const label = (x, y, text, extra) => svg("text", { x, y, ...extra }, String(text));

function fill(place, ...children) {
  place.replaceChildren(...children.filter((c) => c !== null && c !== undefined));
}

function table(caption, head, rows) {
  const cells = (row) =>
    row.map((cell, k) => (k === 0 ? el("th", { scope: "row" }, String(cell)) : el("td", {}, String(cell))));
  return el(
    "table",
    {},
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row)))),
  );
}

function choices(select, options, chosen) {
  const kept = chosen === undefined ? select.value : chosen;
  fill(select, ...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === kept)) select.value = kept;
}

// A row of radio buttons that looks like one switch.
function segments(fieldset, name, options, onPick) {
  for (const old of fieldset.querySelectorAll("label")) old.remove();
  for (const [value, text] of options) {
    const input = el("input", { type: "radio", name, value });
    input.addEventListener("change", () => onPick(value));
    fieldset.append(el("label", {}, input, text));
  }
  fieldset.querySelector("input").checked = true;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const toneOf = (index) => store.groups[index].tone;
const dashOf = (index) => DASHES[store.groups[index].dash];
const KIND_LETTERS = "ABCDEFG";

function unpack(packed) {
  if (!packed) return null;
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  if (packed.bytes === 1) return bytes;
  const view = new DataView(bytes.buffer),
    made = packed.bytes === 2 ? new Uint16Array(bytes.length / 2) : new Uint32Array(bytes.length / 4);
  for (let k = 0; k < made.length; k++)
    made[k] = packed.bytes === 2 ? view.getUint16(2 * k, true) : view.getUint32(4 * k, true);
  return made;
}

const grouped = (n) => Math.round(n).toLocaleString("en-US");
const percent = (v, digits = 1) => `${(100 * v).toFixed(digits)}\u00a0%`;
const plural = (n, word) => `${grouped(n)} ${word}${n === 1 ? "" : "s"}`;
const short = (v) =>
  v === 0 ? "0" : Math.abs(v) >= 1e4 || Math.abs(v) < 1e-3 ? v.toExponential(1) : String(Number(v.toPrecision(3)));

function bytesText(count) {
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (count < 1000 || unit === "TB") return `${unit === "B" ? Math.round(count) : Number(count.toPrecision(3))} ${unit}`;
    count /= 1000;
  }
}

function timeText(seconds) {
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(2))} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Number((seconds / 86400).toPrecision(3))} days`;
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

function quantile(sorted, q) {
  const at = (sorted.length - 1) * q,
    low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

function say(text) {
  byId("say").textContent = text;
}

const tip = {
  show(x, y, rows) {
    const box = byId("tip");
    fill(
      box,
      ...rows.map((row) =>
        typeof row === "string"
          ? el("p", {}, el("b", {}, row))
          : el(
              "p",
              {},
              row[0] ? el("span", { class: "dot", style: { background: row[0] } }) : null,
              el("span", {}, row[1]),
              el("span", {}, row[2] ?? ""),
            ),
      ),
    );
    box.hidden = false;
    const wide = box.offsetWidth,
      high = box.offsetHeight;
    box.style.left = `${Math.max(8, x + 16 + wide > innerWidth - 8 ? x - wide - 16 : x + 16)}px`;
    box.style.top = `${Math.max(8, Math.min(y + 14, innerHeight - high - 8))}px`;
  },
  hide() {
    byId("tip").hidden = true;
  },
};

// Nice places for ticks between two values, linear or logarithmic.
function ticks(low, high, count, log) {
  if (log) {
    const made = [];
    for (let p = Math.ceil(Math.log10(low)); p <= Math.floor(Math.log10(high)); p++) made.push(10 ** p);
    return made.length >= 2 ? made : [low, high];
  }
  const rough = (high - low) / Math.max(1, count),
    power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || power;
  const made = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) made.push(Number(v.toPrecision(12)));
  return made;
}
