// Keeps ages, rates and lines right, as tasks_app/console/overview.py has them now: those of the tiles, and of the groups
// in sight. Rows stay where they are; only elements with `data-flow` are written.
//
//   data-flows="/console/flow"   around the rows: where to ask for them

import { showAll as showTimes } from "./time.js";

const AGAIN_MS = 10_000;
const MOST = 100; // Rows, and
const LONGEST = 6000; // characters of an address: servers refuse much longer ones.
const SVG = "http://www.w3.org/2000/svg";
const WRITERS = { oldest: showTime, spark: showSpark, status: showStatus, why: showWhy };

const place = document.querySelector("[data-flows]");
if (place) setTimeout(refresh, AGAIN_MS);

async function refresh() {
  if (document.visibilityState === "visible" && !isPaused()) {
    try {
      for (const address of addressesOf(rowsInSight())) await askFor(address);
    } catch {
      // The server is away; the banner says so.
    }
  }
  setTimeout(refresh, AGAIN_MS);
}

async function askFor(address) {
  const answer = await fetch(address, { cache: "no-store" });
  if (answer.ok) take(await answer.json());
}

function rowsInSight() {
  return [...place.querySelectorAll("tbody tr")].filter((row) => {
    const { top, bottom } = row.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  });
}

function* addressesOf(rows) {
  let asked = question();
  for (const row of rows) {
    const { liveGroup: group, liveFolder: folder } = row.dataset;
    asked.append(group === undefined ? "folder" : "group", group ?? folder);
    if (asked.size <= MOST && `${asked}`.length < LONGEST) continue;
    yield `${place.dataset.flows}?${asked}`;
    asked = question();
  }
  yield `${place.dataset.flows}?${asked}`; // Also without a row: the tiles.
}

// Folders are asked for as they are shown: with what the filter finds in them.
function question() {
  return new URLSearchParams({ filter: new URLSearchParams(location.search).get("filter") ?? "" });
}

function take({ tiles, groups, folders }) {
  for (const [name, now] of Object.entries(tiles)) showTile(document.querySelector(`[data-flow="${name}"]`), now);
  const cellsOf = { group: new Map(Object.entries(groups)), folder: new Map(Object.entries(folders)) };
  for (const row of place.querySelectorAll("tbody tr")) {
    const { liveGroup: group, liveFolder: folder } = row.dataset;
    const cells = group === undefined ? cellsOf.folder.get(folder) : cellsOf.group.get(group);
    if (cells) show(row, cells);
  }
  showTimes();
}

function showTile(shown, now) {
  (shown.dataset.flow.endsWith("-level") ? showLevel : showText)(shown, now);
}

function show(row, cells) {
  for (const cell of row.querySelectorAll("[data-flow]")) {
    const now = cells[cell.dataset.flow];
    // Under the pointer or the focus nothing is replaced.
    if (cell.matches(":hover, :focus-within")) continue;
    (WRITERS[cell.dataset.flow] ?? showText)(cell, now);
  }
}

function showText(cell, text) {
  if (cell.textContent !== text) cell.textContent = text;
}

// To the millisecond a time is never told twice alike.
function showTime(cell, iso) {
  const time = cell.querySelector("time");
  if (iso && time && Math.abs(Date.parse(time.dateTime) - Date.parse(iso)) < 1000) return;
  if (iso && time) time.dateTime = iso;
  else if (iso) cell.replaceChildren(make("time", { className: "when", dateTime: iso, tabIndex: 0 }));
  else if (time) cell.replaceChildren(make("span", { className: "quiet", textContent: "—" }));
}

function showStatus(cell, { kind, what, icon }) {
  cell.dataset.kind = kind;
  showText(cell.querySelector("span"), what);
  const use = cell.querySelector("use");
  use.setAttribute("href", use.getAttribute("href").replace(/#.*/, `#${icon}`));
}

// The words, and what to do about it, as _group_row.html has them.
function showWhy(cell, { text, advice }) {
  const isSame = cell.textContent.trim() === [text, advice?.words].filter(Boolean).join(" ");
  if (isSame && cell.querySelector("a")?.getAttribute("href") === advice?.address) return;
  cell.replaceChildren(...(text ? [make("span", { textContent: text })] : []));
  if (!advice) return;
  const link = make("a", { className: "advice", href: advice.address, textContent: advice.words });
  if (advice.asks) Object.assign(link.dataset, { hxGet: advice.address, hxTarget: "#dialog", hxSync: "this:drop" });
  cell.append(" ", link);
  htmx.process(cell);
}

function showSpark(cell, points) {
  draw(cell, "0 0 29 20", points);
}

function showLevel(tile, points) {
  draw(tile, "0 -6 29 26", points, `0,20 ${points} 29,20`);
}

// A line, over what it encloses if that is given, as _group_row.html and _level.html have them.
function draw(shown, viewBox, line, area) {
  if (!line) return shown.replaceChildren();
  const svg = makeSvg("svg", { viewBox, preserveAspectRatio: "none", "aria-hidden": "true" });
  if (area) svg.append(makeSvg("polygon", { points: area }));
  svg.append(makeSvg("polyline", { points: line }));
  shown.replaceChildren(svg);
}

function makeSvg(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}

function make(name, properties) {
  return Object.assign(document.createElement(name), properties);
}

function isPaused() {
  return document.querySelector('[data-live="paused"]') !== null;
}
