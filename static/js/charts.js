// Charts of how tasks come and go, drawn by uPlot:
//
//   data-rates="/console/rates?span=1h"   what says all numbers of the charts within, by line,
//   data-chart="flow"                     a chart: flow, backlog, waits or runs; with
//   data-plot                             where it is drawn,
//   data-line="entered"                   a line, with
//   data-value                            its number at the pointer, else its newest, and
//   data-time                             the time at the pointer

import { zone } from "./zone.js";

const AGAIN_MS = 15_000;
const DASHES = [[], [7, 4], [2, 3]]; // Colour is never alone.
const NARROW_SPACE = "\u202f"; // As in tasks_app/console/words.py.
const UNITS_MS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000], ["ms", 1]];
const DAYS_S = [1, 2, 3, 7].map((days) => days * 86_400);
const MINUTES_S = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720, 1440].map((minutes) => minutes * 60);
const SAY = { flow: number, backlog: number, waits: duration, runs: duration };

class Chart {
  #figure;
  #place;
  #lines;
  #say;
  #plot = null;

  constructor(figure) {
    this.#figure = figure;
    this.#place = figure.querySelector("[data-plot]");
    this.#lines = [...figure.querySelectorAll("[data-line]")];
    this.#say = SAY[figure.dataset.chart];
    new ResizeObserver(() => this.#plot?.setSize(this.#size())).observe(this.#place);
  }

  show(rates) {
    const data = [rates.times, ...this.#lines.map(({ dataset }) => rates[dataset.line])];
    this.#figure.toggleAttribute("data-empty", data.slice(1).every((line) => line.every((value) => !value)));
    if (this.#plot) this.#plot.setData(data);
    else this.#plot = new uPlot(this.#options(), data, this.#place);
    this.#write();
  }

  // With the colours of the theme as it is now.
  redraw() {
    const data = this.#plot?.data;
    this.#plot?.destroy();
    if (data) this.#plot = new uPlot(this.#options(), data, this.#place);
  }

  #size() {
    return { width: this.#place.clientWidth, height: this.#place.clientHeight };
  }

  #options() {
    const colour = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();
    const axis = {
      stroke: resolved(this.#place, "--quiet"),
      grid: { stroke: resolved(this.#place, "--line"), width: 1 },
      ticks: { show: false },
      font: `11px ${colour(this.#place, "--sans")}`,
    };
    return {
      ...this.#size(),
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { setScale: false } },
      hooks: { setCursor: [() => this.#write()] },
      scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, 4)] } },
      axes: [
        { ...axis, size: 26, space: 70, incrs: (_, __, from, to) => (to - from > DAYS_S[2] ? DAYS_S : MINUTES_S), values: (_, times) => times.map((time) => timeOf(time, times.at(-1) - times[0])) },
        { ...axis, size: 58, space: 15, values: (_, numbers) => unlike(numbers.map((each) => this.#say(each))) },
      ],
      series: [{}, ...this.#lines.map((line, place) => ({ stroke: resolved(line, "--own"), dash: DASHES[place], width: 1.6, points: { show: true, size: 4, filter: lonely } }))],
    };
  }

  // The numbers at the pointer, or the newest ones.
  #write() {
    if (!this.#plot) return;
    const { data, cursor } = this.#plot;
    const place = cursor.idx ?? data[0].length - 1;
    const words = this.#lines.map((line, number) => {
      const value = data[number + 1][place];
      const text = value === null || value === undefined ? "–" : this.#say(value);
      set(line.querySelector("[data-value]"), text);
      return `${line.textContent.trim()}`;
    });
    const isAtPointer = cursor.idx !== null && cursor.idx !== undefined;
    set(this.#figure.querySelector("[data-time]"), isAtPointer ? momentOf(data[0][place]) : "");
    const title = this.#figure.querySelector(".chart-title").textContent;
    if (!isAtPointer) this.#place.setAttribute("aria-label", `${title}: ${words.join(", ")}`);
  }
}

for (const section of document.querySelectorAll("[data-rates]")) {
  const charts = [...section.querySelectorAll("[data-chart]")].map((figure) => new Chart(figure));
  keepShowing(section, charts);
  const redraw = () => charts.forEach((chart) => chart.redraw());
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

async function keepShowing(section, charts) {
  if (document.visibilityState === "visible") {
    try {
      const answer = await fetch(section.dataset.rates, { cache: "no-store" });
      if (answer.ok) {
        const rates = await answer.json();
        charts.forEach((chart) => chart.show(rates));
      }
    } catch {
      // The server is away; the banner says so.
    }
  }
  setTimeout(() => keepShowing(section, charts), AGAIN_MS);
}

// The numbers without one before and after them, which no line would show.
function lonely({ data }, line) {
  const has = (place) => (data[line][place] ?? null) !== null;
  return data[line].flatMap((_, place) => (has(place) && !has(place - 1) && !has(place + 1) ? [place] : []));
}

// A canvas knows neither variables nor light-dark().
function resolved(element, name) {
  const probe = document.createElement("i");
  probe.hidden = true;
  probe.style.color = `var(${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function number(value) {
  const rounded = value < 10 ? Math.round(value * 10) / 10 : Math.round(value);
  return String(rounded).replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, NARROW_SPACE);
}

function duration(ms) {
  if (!ms) return "0";
  const [unit, length] = UNITS_MS.find(([, length]) => ms >= length) ?? ["ms", 1];
  const amount = ms / length;
  return `${amount < 10 && length > 1 ? Math.round(amount * 10) / 10 : Math.round(amount)} ${unit}`;
}

// A label says nothing where it is the same as the one below.
function unlike(labels) {
  return labels.map((label, place) => (label === labels[place - 1] ? "" : label));
}

function timeOf(seconds, spanS) {
  const form = spanS > DAYS_S[1] ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Intl.DateTimeFormat("en-GB", { ...form, timeZone: zone() }).format(seconds * 1000);
}

function momentOf(seconds) {
  const form = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Intl.DateTimeFormat("en-GB", { ...form, timeZone: zone() }).format(seconds * 1000);
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
