// The counts of all groups, and where they stand on the page:
//
//   data-live-group="mail"     a row or section of that group, with
//   data-live-folder="mail/"   a row of all groups whose names begin so, and that are searched for, with
//   data-live-count="ready"    the number of its tasks in a state, or "total"
//   data-live-below            the number of the folder's groups
//   data-live-total="ready"    over all groups: how many tasks are in the state,
//   data-live-groups="ready"   in how many groups there are any
//   data-live-list="17"        the list of groups, made when there were so many of them, and
//   data-live-news             hidden until groups have come or gone since
//   data-live-empty            stands where the list will be when there is a group
//   data-live-made="17"        the head of a list of tasks, made when there were so many of them,
//   data-live-made-at="<ms>"   at that time by the database's clock, and
//   data-live-of="ready"       in this state, or "total"; of `data-live-group`, or else of all groups

const STATES = ["ready", "claimed", "expired", "scheduled", "failed"];
const NONE = [0, 0, 0, 0, 0];
const [SLASH, DOT] = [47, 46]; // As in tasks_app/console/name_tree.py.
const NARROW_SPACE = "\u202f"; // As in tasks_app/console/words.py.
const FLASH = [{ opacity: 0.6 }, { opacity: 1 }];
const FLASH_MS = 500;
const MOST_FLASHES = 40; // Of one message: hundreds at once tell nobody anything, and keep the browser busy.

const stillness = matchMedia("(prefers-reduced-motion: reduce)");
const flashedAt = new WeakMap(); // Not asked of the browser: for that it would work out the style of the whole page.
let flashes = 0; // Of the message that is being shown.

export class Counts {
  #groups = new Map();
  #atMs = 0; // When they were true, by the database's clock.
  #frame = 0;
  #list = null; // The list of groups on the page,
  #known = new Set(); // what groups there were at its first numbers,
  #missed = 0; // and how many of them had come since it was made.

  // `groups` are pairs of a name and its numbers; null for numbers: the group is gone.
  replace(groups, atMs) {
    this.#groups = new Map(groups);
    this.show(atMs);
  }

  change(groups, atMs) {
    for (const [name, numbers] of groups) {
      if (numbers) this.#groups.set(name, numbers);
      else this.#groups.delete(name);
    }
    this.show(atMs);
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
    });
  }

  // The elements are looked up each time: parts of the page are replaced meanwhile.
  #showGroups() {
    for (const place of document.querySelectorAll("[data-live-group]")) {
      writeCounts(place, this.#groups.get(place.dataset.liveGroup) ?? NONE);
    }
  }

  #showFolders() {
    const rows = document.querySelectorAll("[data-live-folder]");
    if (rows.length === 0) return;
    const folders = new Map([...rows].map(({ dataset }) => [dataset.liveFolder, { groups: 0, numbers: [...NONE] }]));
    this.#addUp(folders);
    for (const row of rows) {
      const { groups, numbers } = folders.get(row.dataset.liveFolder);
      writeCounts(row, numbers);
      set(row.querySelector("[data-live-below]"), groupsIn(groups));
    }
  }

  // In one pass over the names: folders times groups would be too many.
  #addUp(folders) {
    for (const name of this.#searched()) {
      for (let end = 1; end <= name.length; end++) {
        if (!isSeparator(name.charCodeAt(end - 1))) continue;
        const folder = folders.get(name.slice(0, end));
        if (!folder) continue;
        folder.groups += 1;
        this.#groups.get(name).forEach((number, place) => (folder.numbers[place] += number));
      }
    }
  }

  #showTotals() {
    for (const element of document.querySelectorAll("[data-live-total]")) {
      write(element, this.#total(element.dataset.liveTotal));
    }
    for (const element of document.querySelectorAll("[data-live-groups]")) {
      write(element, this.#sum((numbers) => Math.min(1, numberOf(numbers, element.dataset.liveGroups))));
    }
  }

  #total(state) {
    return this.#sum((numbers) => numberOf(numbers, state));
  }

  #sum(numberOfGroup) {
    let sum = 0;
    for (const numbers of this.#groups.values()) sum += numberOfGroup(numbers);
    return sum;
  }

  // Rows do not come and go by themselves: nothing is to move under the pointer. Where there was nothing yet, they do.
  #showNews() {
    const list = document.querySelector("[data-live-list]");
    if (list) this.#tellWhatIsNotIn(list);
    else if (this.#groups.size > 0 && document.querySelector("[data-live-empty]") && !isTyping()) location.reload();
  }

  // Nor do rows of tasks: what is told is by how much their number has changed.
  #showTaskNews() {
    for (const news of document.querySelectorAll("[data-live-made]")) {
      const { liveMade, liveMadeAt, liveOf, liveGroup } = news.dataset;
      if (this.#atMs < Number(liveMadeAt)) continue; // The list is the newer one.
      const now = liveGroup === undefined ? this.#total(liveOf) : numberOf(this.#groups.get(liveGroup) ?? NONE, liveOf);
      tellOfTasks(news, now - Number(liveMade));
    }
  }

  #tellWhatIsNotIn(list) {
    const searched = this.#searched();
    if (list !== this.#list) this.#remember(list, searched);
    const rows = [...list.querySelectorAll("[data-live-group]")].map((row) => row.dataset.liveGroup);
    const added = this.#missed + searched.filter((name) => !this.#known.has(name)).length;
    const gone = rows.filter((name) => !this.#groups.has(name)).length;
    // What has been missed may be gone again: at most all that are not in sight are new.
    tell(Math.min(added, searched.length - (rows.length - gone)), gone);
  }

  // The names that the list would show.
  #searched() {
    const names = [...this.#groups.keys()];
    const text = new URLSearchParams(location.search).get("filter")?.toLowerCase();
    return text ? names.filter((name) => name.toLowerCase().includes(text)) : names;
  }

  #remember(list, searched) {
    this.#list = list;
    this.#known = new Set(searched);
    this.#missed = Math.max(0, searched.length - Number(list.dataset.liveList));
  }
}

function tell(added, gone) {
  const texts = [];
  if (added) texts.push(groupsIn(added, "new "));
  if (gone) texts.push(`${groupsIn(gone)} gone`);
  const news = document.querySelector("[data-live-news]");
  news.hidden = texts.length === 0;
  set(news.querySelector("[data-live-news-text]"), `${texts.join(", ")},`);
}

function tellOfTasks(news, more) {
  news.hidden = more === 0;
  set(news.querySelector("[data-live-news-text]"), `${grouped(Math.abs(more))} ${more > 0 ? "more" : "fewer"} now,`);
}

function isSeparator(code) {
  return code === SLASH || code === DOT;
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
  if (state === "total") return numbers[0] + numbers[1] + numbers[2] + numbers[3];
  return numbers[STATES.indexOf(state)];
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
