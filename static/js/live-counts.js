// The counts of what is on the page, and where they stand:
//
//   data-live-group="mail"     a row or section of that group, with
//   data-live-folder="mail/"   a row of all groups whose names begin so, and that are searched for, with
//   data-live-count="ready"    the number of its tasks in a state, or "total"
//   data-live-below            the number of the folder's groups
//   data-live-total="ready"    over all groups: how many tasks are in the state,
//   data-live-groups="ready"   in how many groups there are any
//   data-live-list="17"        the list of groups, made when there were so many of them,
//   data-live-list-at="<ms>"   at that time by the database's clock, and
//   data-live-news             hidden until groups have come or gone since
//   data-live-empty            stands where the list will be when there is a group
//   data-live-made="17"        the head of a list of tasks, made when there were so many of them,
//   data-live-made-at="<ms>"   at that time by the database's clock, and
//   data-live-of="ready"       in this state, or "total"; of `data-live-group`, or else of all groups
//   data-live-progress="17"    the progress of the task with this first id, hidden while it has none, shown as it was
//   data-live-progress-at="<ms>" at that time, with a <progress>, and
//   data-live-percent, data-live-text

const STATES = ["ready", "claimed", "expired", "scheduled", "retrying", "failed", "finished"];
const NUMBERS = [...STATES, "errors"]; // The last one of tasks in any state.
const NONE = NUMBERS.map(() => 0);
const MOST_WATCHED = 200; // As in tasks_app/live/consumer.py, and
const MOST_PROGRESS = 100; // Tasks of a page.
const LONGEST_WATCHED = 40_000; // bytes of names, which is less than it takes.
const OF_ALL = "[data-live-total], [data-live-groups], [data-live-list], [data-live-empty], [data-live-made]:not([data-live-group])";
const NARROW_SPACE = "\u202f"; // As in tasks_app/console/words.py.
const FLASH = [{ opacity: 0.6 }, { opacity: 1 }];
const FLASH_MS = 500;
const MOST_FLASHES = 40; // Of one message: hundreds at once tell nobody anything, and keep the browser busy.

const stillness = matchMedia("(prefers-reduced-motion: reduce)");
const flashedAt = new WeakMap(); // Not asked of the browser: for that it would work out the style of the whole page.
let flashes = 0; // Of the message that is being shown.

export class Counts {
  #groups = new Map(); // By name; null: the group is gone.
  #folders = new Map();
  #progress = new Map(); // By the first id of the task; null: it has none.
  #parts = new Map(); // By the name of a part of the page: what it was when it was last made.
  #total = null;
  #holding = null; // In how many groups there is a task; a ready one, and so on.
  #found = null; // How many groups the filter finds.
  #summedMs = 0; // When these three were true, by the database's clock,
  #atMs = 0; // and when the groups were.
  #frame = 0;

  // What the page shows: the server is asked for that alone.
  watched() {
    const groups = namesOf("liveGroup", "[data-live-group]");
    const folders = namesOf("liveFolder", "[data-live-folder]");
    const filter = folders.length || document.querySelector("[data-live-list]") ? searched() : "";
    const progress = namesOf("liveProgress", "[data-live-progress]").slice(0, MOST_PROGRESS);
    const named = first(groups, folders, MOST_WATCHED - progress.length);
    const shown = namesOf("livePart", "[data-live-part]");
    const more = { ...(progress.length && { progress }), ...(shown.length && { shown }) };
    return { ...named, filter, totals: document.querySelector(OF_ALL) !== null, ...more };
  }

  replace(content, atMs) {
    this.#groups = new Map();
    this.#folders = new Map();
    this.#progress = new Map();
    this.#found = this.#total = this.#holding = null;
    this.change(content, atMs);
  }

  change({ groups = {}, folders = {}, progress = {}, shown = {}, total, holding, found, summed }, atMs) {
    for (const [name, numbers] of Object.entries(groups)) this.#groups.set(name, numbers);
    for (const [name, numbers] of Object.entries(folders)) this.#folders.set(name, numbers);
    for (const [id, reported] of Object.entries(progress)) this.#progress.set(id, reported);
    for (const [name, mark] of Object.entries(shown)) this.#renew(name, mark);
    this.#total = total ?? this.#total;
    this.#holding = holding ?? this.#holding;
    this.#found = found ?? this.#found;
    this.#summedMs = summed ?? this.#summedMs;
    this.show(atMs);
  }

  // The server makes the part again. What it showed first may be as old as the page.
  #renew(name, mark) {
    const before = this.#parts.get(name);
    this.#parts.set(name, mark);
    if (before === mark) return;
    for (const part of document.querySelectorAll("[data-live-part]")) {
      if (part.dataset.livePart === name) part.dispatchEvent(new Event("live-part"));
    }
  }

  // Once for all messages that come before the page is drawn again.
  show(atMs = 0) {
    this.#atMs = atMs;
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      flashes = 0;
      this.#showGroups();
      this.#showFolders();
      this.#showTotals();
      this.#showNews();
      this.#showTaskNews();
      this.#showProgress();
    });
  }

  // The elements are looked up each time: parts of the page are replaced meanwhile. What is new there is not known yet.
  #showGroups() {
    for (const place of document.querySelectorAll("[data-live-group]")) {
      const numbers = this.#groups.get(place.dataset.liveGroup);
      if (numbers !== undefined) writeCounts(place, numbers ?? NONE);
    }
  }

  #showFolders() {
    for (const row of document.querySelectorAll("[data-live-folder]")) {
      const known = this.#folders.get(row.dataset.liveFolder);
      if (!known) continue;
      const [groups, ...numbers] = known;
      writeCounts(row, numbers);
      set(row.querySelector("[data-live-below]"), groupsIn(groups));
    }
  }

  #showTotals() {
    if (!this.#total) return;
    for (const element of document.querySelectorAll("[data-live-total]")) {
      write(element, numberOf(this.#total, element.dataset.liveTotal));
    }
    for (const element of document.querySelectorAll("[data-live-groups]")) {
      const state = element.dataset.liveGroups;
      write(element, this.#holding[state === "total" ? 0 : 1 + STATES.indexOf(state)]);
    }
  }

  // Rows do not come and go by themselves: nothing is to move under the pointer. Where there was nothing yet, they do.
  #showNews() {
    if (this.#found === null) return;
    const list = document.querySelector("[data-live-list]");
    if (list) this.#tellWhatIsNotIn(list);
    else if (this.#holding?.[0] > 0 && document.querySelector("[data-live-empty]") && !isTyping()) location.reload();
  }

  // Nor do rows of tasks: what is told is by how much their number has changed.
  #showTaskNews() {
    for (const news of document.querySelectorAll("[data-live-made]")) {
      const { liveMade, liveMadeAt, liveOf, liveGroup } = news.dataset;
      const isOfAll = liveGroup === undefined;
      const numbers = isOfAll ? this.#total : this.#groups.get(liveGroup);
      if (numbers === undefined || (isOfAll && numbers === null)) continue; // Not known yet.
      if ((isOfAll ? this.#summedMs : this.#atMs) < Number(liveMadeAt)) continue; // The list is the newer one.
      tellOfTasks(news, numberOf(numbers ?? NONE, liveOf) - Number(liveMade));
    }
  }

  #showProgress() {
    for (const place of document.querySelectorAll("[data-live-progress]")) {
      const reported = this.#progress.get(place.dataset.liveProgress);
      if (reported === undefined) continue; // Not known yet.
      const [done, text, atMs] = reported ?? [0, "", 0];
      // Without a report, the page may be the newer one only if it has just been made.
      if (reported ? atMs < Number(place.dataset.liveProgressAt) : this.#atMs < Number(place.dataset.liveProgressAt)) continue;
      place.hidden = reported === null;
      if (!reported) continue;
      place.querySelector("progress").value = done;
      set(place.querySelector("[data-live-percent]"), `${Math.floor(done * 100 + 1e-6)}${NARROW_SPACE}%`);
      set(place.querySelector("[data-live-text]"), text);
    }
  }

  #tellWhatIsNotIn(list) {
    const rows = [...list.querySelectorAll("[data-live-group]")].map((row) => row.dataset.liveGroup);
    const gone = rows.filter((name) => this.#groups.get(name) === null).length;
    const isNewer = this.#summedMs < Number(list.dataset.liveListAt);
    const left = Number(list.dataset.liveList) - gone;
    // Others that are not in sight may be gone, too: at least so many are new.
    tell(isNewer ? 0 : Math.max(0, this.#found - left), gone);
  }
}

function namesOf(key, places) {
  return [...new Set([...document.querySelectorAll(places)].map(({ dataset }) => dataset[key]))];
}

// As many of the names as the server takes.
function first(groups, folders, most) {
  const watched = { groups: [], folders: [] };
  let bytes = 0;
  const all = [...groups.map((name) => ["groups", name]), ...folders.map((name) => ["folders", name])];
  for (const [kind, name] of all.slice(0, most)) {
    bytes += new TextEncoder().encode(JSON.stringify(name)).length + 1;
    if (bytes > LONGEST_WATCHED) break;
    watched[kind].push(name);
  }
  return watched;
}

function searched() {
  return new URLSearchParams(location.search).get("filter") ?? "";
}

function tell(added, gone) {
  const texts = [];
  if (added) texts.push(groupsIn(added, "new "));
  if (gone) texts.push(`${groupsIn(gone)} removed`);
  const news = document.querySelector("[data-live-news]");
  news.hidden = texts.length === 0;
  set(news.querySelector("[data-live-news-text]"), texts.join(", "));
}

function tellOfTasks(news, more) {
  news.hidden = more === 0;
  set(news.querySelector("[data-live-news-text]"), `${grouped(Math.abs(more))} ${more > 0 ? "more" : "fewer"} ${Math.abs(more) === 1 ? "task" : "tasks"}`);
}

function groupsIn(number, which = "") {
  return `${grouped(number)} ${which}${number === 1 ? "group" : "groups"}`;
}

function writeCounts(place, numbers) {
  for (const element of place.querySelectorAll("[data-live-count]")) {
    write(element, numberOf(numbers, element.dataset.liveCount));
  }
}

function numberOf(numbers, state) {
  if (state === "total") return STATES.reduce((sum, _, place) => sum + numbers[place], 0);
  return numbers[NUMBERS.indexOf(state)];
}

function write(element, number) {
  if (!set(element, grouped(number))) return;
  const now = performance.now();
  if (stillness.matches || flashes === MOST_FLASHES || now - flashedAt.get(element) < FLASH_MS) return;
  element.animate(FLASH, FLASH_MS);
  flashedAt.set(element, now);
  flashes += 1;
}

// Says whether there was anything to change; what is the same stays untouched.
function set(element, text) {
  if (element.textContent === text) return false;
  element.textContent = text;
  return true;
}

function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, NARROW_SPACE);
}

function isTyping() {
  return document.activeElement.matches("input, select, textarea");
}
