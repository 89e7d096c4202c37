// The numbers of this page, kept right over one websocket.
//
// What comes over it is described in tasks_app/live/messages.py: states with sequence numbers, of what the page shows.
// A gap, a new connection or a tab that was out of sight is mended by asking for all of that.

import { Counts } from "./live-counts.js";
import { Status } from "./live-status.js";

const SILENCE_MS = 2500; // The server says something every second.
const SHORTEST_DELAY_MS = 200;
const LONGEST_DELAY_MS = 2000;
const NO_RIGHT = 4403;
const TOO_MANY = 4429;
const TOO_MANY_DELAY_MS = 30_000;
const SIGN_OUT_MS = 1000; // From the press of the button until the browser has no session any more.

// Empty where the server has no websockets: the numbers stay as they came.
const path = document.querySelector("[data-live-status]").dataset.liveStatus;
const counts = new Counts();
const status = new Status({ pause, resume });
let socket = null;
let silence = 0;
let sequence = 0;
let watched = ""; // What was asked for last.
let isPaused = false;

function connect() {
  const address = new URL(path, location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  let hasOpened = false;
  sequence = 0;
  socket = new WebSocket(address);
  socket.onopen = () => {
    hasOpened = true;
    askForAll();
  };
  socket.onmessage = (event) => {
    listen();
    take(JSON.parse(event.data));
  };
  socket.onclose = async ({ code, reason }) => {
    lose();
    if (code === TOO_MANY) {
      status.refused(reason);
      setTimeout(connect, TOO_MANY_DELAY_MS);
      return;
    }
    // The socket's session may be older than that of the browser, which other pages have renewed.
    const why = code === NO_RIGHT || !hasOpened ? await whyTurnedAway() : "";
    why ? status.ended(why) : connectLater();
  };
  listen();
}

// A connection that was cut on its way looks open for minutes.
function listen() {
  clearTimeout(silence);
  silence = setTimeout(() => {
    lose();
    connectLater();
  }, SILENCE_MS);
}

function lose() {
  if (!socket) return;
  clearTimeout(silence);
  socket.onopen = socket.onmessage = socket.onclose = null;
  socket.close();
  status.lost();
}

function connectLater() {
  // By chance, so that not all pages come at once when the server is back.
  setTimeout(connect, SHORTEST_DELAY_MS + Math.random() * (LONGEST_DELAY_MS - SHORTEST_DELAY_MS));
}

function take(message) {
  status.heard(message);
  if (isPaused) return;
  if ("full" in message) takeAll(message);
  else if ("delta" in message && isNext(message)) takeChange(message);
  else if (message.seq !== sequence) askForAll();
  else counts.show(message.at); // Parts of the page may have been replaced.
  askForNew();
}

function takeAll({ seq, at, full }) {
  counts.replace(full, at);
  sequence = seq;
}

function takeChange({ seq, at, delta }) {
  counts.change(delta, at);
  sequence = seq;
}

// A change that is in the counts already does no harm: it says what is, not how much more.
function isNext({ seq }) {
  return seq === sequence || seq === sequence + 1;
}

// Parts of the page that were replaced may show other groups.
function askForNew() {
  if (JSON.stringify(counts.watched()) !== watched) askForAll();
}

function askForAll() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const now = counts.watched();
  watched = JSON.stringify(now);
  socket.send(JSON.stringify({ type: "full", ...now }));
}

function pause() {
  isPaused = true;
}

function resume() {
  isPaused = false;
  askForAll();
}

// The server closes the socket too, up to five seconds later when another server ended the session.
async function endIfSignedOut() {
  const why = await whyTurnedAway();
  if (!why) return;
  lose();
  status.ended(why);
}

// A browser does not say why a connection was refused; asking for the page does. Empty: it was not.
async function whyTurnedAway() {
  try {
    const page = await fetch(location.href, { method: "HEAD", redirect: "manual", cache: "no-store" });
    return page.type === "opaqueredirect" ? "ended" : page.status === 403 ? "denied" : "";
  } catch {
    return ""; // The server is away.
  }
}

document.addEventListener("htmx:after:swap", askForNew);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") askForAll();
});
const tabs = new BroadcastChannel("taskstore.session");
tabs.onmessage = () => setTimeout(endIfSignedOut, SIGN_OUT_MS);
for (const form of document.querySelectorAll("[data-sign-out]")) {
  form.addEventListener("submit", () => tabs.postMessage("over"));
}
document.addEventListener("signed-in", () => path && connect());
path ? connect() : status.still();
