// Keeps relative times right and says exact ones in the reader's zone. The words are those of console/words.py.

import { choose, labelOf, zone } from "./zone.js";

const UNITS_S = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// A browser's clock may be wrong: what counts is how long ago the server said what time it is.
const aheadMs = Date.now() - Date.parse(document.querySelector("[data-now]").dataset.now);
const zones = document.querySelectorAll("[data-zone]");
let formatter = formatterFor(zone());

for (const select of zones) {
  select.options[0].text = `Browser time zone (${Intl.DateTimeFormat().resolvedOptions().timeZone})`;
  offer(select, Intl.supportedValuesOf("timeZone"));
  if (zone()) offer(select, [zone()]); // Some are known without being listed.
  select.value = zone() ?? "";
  select.addEventListener("change", () => {
    choose(select.value);
    formatter = formatterFor(zone());
    showAll();
  });
}

showAll();
setInterval(showAll, 1000);
document.addEventListener("htmx:after:swap", showAll);

function offer(select, names) {
  const offered = new Set([...select.options].map(({ value }) => value));
  const options = names.filter((name) => !offered.has(name)).map((name) => new Option(labelOf(name), name));
  select.append(...options.sort((one, other) => one.text.localeCompare(other.text)));
}

export function showAll() {
  const nowMs = Date.now() - aheadMs;
  for (const element of document.querySelectorAll("time.when")) {
    show(element, Date.parse(element.dateTime), nowMs);
  }
}

function show(element, atMs, nowMs) {
  const text = textOf(element.dataset.form, atMs, nowMs);
  // A text that is the same stays untouched: somebody may be selecting it.
  if (element.textContent !== text) element.textContent = text;
  if (element.dataset.exactly === element.dateTime + formatter.zone) return;
  element.dataset.exactly = element.dateTime + formatter.zone;
  element.dataset.exact = exact(atMs);
}

function textOf(form, atMs, nowMs) {
  switch (form) {
    case "lease": return lease(atMs, nowMs);
    case "clock": return partsOf(atMs).time.slice(0, 8);
    case "exact": return exact(atMs);
    case "stamp": return stamp(atMs, nowMs);
    default: return relative(atMs, nowMs);
  }
}

function exact(atMs) {
  const { date, time, zone } = partsOf(atMs);
  return `${date} ${time} ${zone}`;
}

function stamp(atMs, nowMs) {
  const { date, time } = partsOf(atMs);
  return date === partsOf(nowMs).date ? time : `${date} ${time}`;
}

function relative(atMs, nowMs) {
  const distanceS = Math.floor(Math.abs(atMs - nowMs) / 1000);
  if (distanceS === 0) return "now";
  const [unit, lengthS] = UNITS_S.find(([, lengthS]) => distanceS >= lengthS);
  const amount = `${grouped(Math.floor(distanceS / lengthS))} ${unit}`;
  return atMs > nowMs ? `in ${amount}` : `${amount} ago`;
}

function lease(atMs, nowMs) {
  const leftS = Math.ceil((atMs - nowMs) / 1000);
  if (leftS <= 0) return `ended ${relative(atMs, nowMs)}`;
  if (leftS >= 3600) return `ends ${relative(atMs, nowMs)}`;
  return `ends in ${Math.floor(leftS / 60)}:${String(leftS % 60).padStart(2, "0")}`;
}

function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function formatterFor(timeZone) {
  const format = new Intl.DateTimeFormat("en-GB", {
    timeZone,
    year: "numeric", month: "2-digit", day: "2-digit",
    hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
    hourCycle: "h23", timeZoneName: "short",
  });
  return { zone: format.resolvedOptions().timeZone, parts: (ms) => format.formatToParts(ms) };
}

function partsOf(ms) {
  const part = Object.fromEntries(formatter.parts(ms).map(({ type, value }) => [type, value]));
  return {
    date: `${part.year}-${part.month}-${part.day}`,
    time: `${part.hour}:${part.minute}:${part.second}.${part.fractionalSecond}`,
    zone: part.timeZoneName,
  };
}
