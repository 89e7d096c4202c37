// The numbers of this page, kept right over one websocket.
//
// What comes over it is described in tasks_app/live/messages.py: states with sequence numbers.
// A gap, a new connection or a tab that was out of sight is mended by asking for everything.

import { Counts } from "./live-counts.js";
import { Status } from "./live-status.js";

const SILENCE_MS = 2500; // The server says something every second.
const SHORTEST_DELAY_MS = 200;
const LONGEST_DELAY_MS = 2000;
const NO_RIGHT = 4403;
const SIGN_OUT_MS = 1000; // From the press of the button until the browser has no session any more.

const counts = new Counts();
const status = new Status({ pause, resume });
let socket = null;
let silence = 0;
let sequence = 0;
let parts = [];
let isPaused = false;

function connect() {
  const address = new URL("/console/live", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  let hasOpened = false;
  parts = [];
  socket = new WebSocket(address);
  socket.onopen = () => {
    hasOpened = true;
  };
  socket.onmessage = (event) => {
    listen();
    take(JSON.parse(event.data));
  };
  socket.onclose = async ({ code }) => {
    lose();
    // The socket's session may be older than that of the browser, which other pages have renewed.
    const isOver = (code === NO_RIGHT || !hasOpened) && (await isTurnedAway());
    isOver ? status.ended() : connectLater();
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
  if ("full" in message) takePart(message);
  else if ("delta" in message && isNext(message)) takeChange(message);
  else if (message.seq !== sequence) askForAll();
  else counts.show(message.at); // Parts of the page may have been replaced.
}

// All counts are shown at once, also when they come in several messages.
function takePart({ seq, at, full, left }) {
  parts.push(...Object.entries(full));
  if (left > 0) return;
  counts.replace(parts, at);
  parts = [];
  sequence = seq;
}

function takeChange({ seq, at, delta }) {
  counts.change(Object.entries(delta), at);
  sequence = seq;
}

// A change may come in several messages, too.
function isNext({ seq }) {
  return seq === sequence || seq === sequence + 1;
}

function askForAll() {
  if (socket.readyState === WebSocket.OPEN) socket.send('{"type": "full"}');
}

function pause() {
  isPaused = true;
}

function resume() {
  isPaused = false;
  askForAll();
}

// The session that the socket was opened with is in the cookie alone: the server can't tell that it was thrown away.
async function endIfSignedOut() {
  if (!(await isTurnedAway())) return;
  lose();
  status.ended();
}

// A browser does not say why a connection was refused; asking for the page does.
async function isTurnedAway() {
  try {
    const page = await fetch(location.href, { method: "HEAD", redirect: "manual", cache: "no-store" });
    return page.type === "opaqueredirect" || page.status === 403;
  } catch {
    return false; // The server is away.
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") askForAll();
});
const tabs = new BroadcastChannel("taskstore.session");
tabs.onmessage = () => setTimeout(endIfSignedOut, SIGN_OUT_MS);
document.querySelector("[data-sign-out]").addEventListener("submit", () => tabs.postMessage("over"));
connect();
