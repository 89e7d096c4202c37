// Says how fresh the numbers are: a dot, a word and an age in `data-live-status`, a banner when they grow old.
// The dot's button lets them stand still.

const OLD_MS = 3000;
const LOST_MS = 400; // So short an interruption is nobody's business.
const LOOK_EVERY_MS = 250;

const WORDS = {
  connecting: "connecting",
  live: "live",
  old: "not updating",
  lost: "reconnecting",
  paused: "paused",
  refused: "not live",
  still: "loaded",
  ended: "signed out",
  denied: "no access",
};
const TITLES = {
  paused: "Resume live updates",
  still: "Not live: load the page again for new numbers",
};
const BANNERS = {
  old: "The server can't read the database at the moment. It keeps retrying.",
  lost: "The server is not responding. This page keeps retrying.",
  refused: "",
  ended: "You are signed out.",
  denied: "You no longer have access to this page. An administrator can give it back.",
};

export class Status {
  #connection = "connecting";
  #lostAt = 0;
  #isPaused = false;
  #trueAt = performance.now(); // The page came with numbers of its own.
  #switch = make("button", { type: "button", className: "live-switch" });
  #word = make("span");
  #age = make("span", { className: "live-age", ariaHidden: "true" }); // Else it would be read out each second.
  #banner = make("p", { className: "alert live-banner", role: "alert", hidden: true });
  #text = make("span");
  #signIn = make("a", { className: "button", textContent: "Sign in", href: document.body.dataset.signIn, hidden: true });
  #time = make("time", { className: "when", dateTime: document.body.dataset.now }); // static/js/time.js writes it.

  // `pause` and `resume` are called when the reader asks for it.
  constructor({ pause, resume }) {
    this.#time.dataset.form = "clock";
    this.#switch.append(make("span", { className: "live-dot", ariaHidden: "true" }), this.#word, this.#age);
    this.#switch.addEventListener("click", () => {
      if (this.#connection === "still") return location.reload();
      this.#isPaused = !this.#isPaused;
      (this.#isPaused ? pause : resume)();
      this.#show();
    });
    document.querySelector("[data-live-status]").append(this.#switch);
    this.#banner.append(this.#text, this.#signIn);
    // Above this page, so that it keeps what is selected and typed.
    this.#signIn.addEventListener("click", (event) => {
      event.preventDefault();
      htmx.ajax("GET", this.#signIn.href, { target: "#sign-in" });
    });
    document.body.append(this.#banner);
    setInterval(() => this.#show(), LOOK_EVERY_MS);
    this.#show();
  }

  // The server is there. `at` and `age` say when its counts were true; it may have none yet.
  heard({ at, age }) {
    this.#connection = "live";
    if (age !== undefined && !this.#isPaused) {
      this.#trueAt = performance.now() - age;
      this.#time.dateTime = new Date(at).toISOString();
    }
    this.#show();
  }

  // The server says why it sends no numbers to this page.
  refused(reason) {
    this.#connection = "refused";
    BANNERS.refused = reason || "Too many pages with live numbers are open.";
    this.#show();
  }

  // The server sends no numbers at all.
  still() {
    this.#connection = "still";
    this.#show();
  }

  lost() {
    if (this.#connection !== "lost") this.#lostAt = performance.now();
    this.#connection = "lost";
  }

  ended(why = "ended") {
    this.#connection = why;
    this.#show();
  }

  #show() {
    const ageMs = performance.now() - this.#trueAt;
    const state = this.#state(ageMs);
    set(this.#age, ageOf(ageMs));
    if (this.#switch.dataset.live === state) return;
    this.#switch.dataset.live = state;
    this.#switch.title = TITLES[state] ?? "Pause live updates";
    this.#word.textContent = WORDS[state];
    this.#banner.hidden = !(state in BANNERS);
    if (state in BANNERS) this.#text.replaceChildren(`${BANNERS[state]} Numbers are as of `, this.#time, ".");
    this.#signIn.hidden = state !== "ended";
  }

  #state(ageMs) {
    if (["ended", "denied", "refused", "still"].includes(this.#connection)) return this.#connection;
    if (this.#connection === "lost") return performance.now() - this.#lostAt > LOST_MS ? "lost" : "live";
    if (this.#isPaused) return "paused";
    return this.#connection === "live" && ageMs > OLD_MS ? "old" : this.#connection;
  }
}

function ageOf(ms) {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 60_000 ? `${Math.floor(ms / 1000)} s` : `${Math.floor(ms / 60_000)} min`;
}

function make(name, properties = {}) {
  return Object.assign(document.createElement(name), properties);
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
