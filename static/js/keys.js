// Single keys, as long as nobody is typing; they can be turned off in the account menu.
//
//   data-key="/"   a field that the key goes to, or a button that it presses; one that is disabled says why
//   data-go="o"    a link that `g` and then the key follows
//   tbody tr       rows: `j` and `k` go to the next and the one before, `x` selects, with shift all up to it; of several
//                  tables in the one that was touched last, or else in that of the tasks

const STORED_AS = "taskstore.keys";
const TYPING = "input:not([type=checkbox]), select, textarea, [contenteditable]";
const ROWS = "tbody tr:has(a, button)";
const PATIENCE_MS = 1500; // Between `g` and the next key.
const SAID_FOR_MS = 5000;

const help = document.getElementById("keys-help");
const said = document.getElementById("keys-said");
let wentAt = -Infinity;
let touched = null;
let silence = 0;

for (const box of document.querySelectorAll("[data-keys]")) {
  box.checked = areOn();
  box.addEventListener("change", () => localStorage.setItem(STORED_AS, box.checked ? "on" : "off"));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(TYPING) || !areOn()) return;
  if (document.querySelector("dialog[open]")) return;
  if (take(event.key)) event.preventDefault();
});

help.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) help.close();
});

for (const kind of ["focusin", "pointerdown"]) {
  document.addEventListener(kind, ({ target }) => {
    touched = target.closest("main table") ?? touched;
  });
}

// Says whether the key means something here.
function take(key) {
  if (performance.now() - wentAt < PATIENCE_MS) {
    wentAt = -Infinity;
    return press(document.querySelector(`[data-go="${CSS.escape(key)}"]`));
  }
  switch (key) {
    case "g":
      wentAt = performance.now();
      return true;
    case "j":
      return goTo(1);
    case "k":
      return goTo(-1);
    case "x":
      return press(boxInFocus());
    case "X":
      return selectUpTo(boxInFocus());
    case "Enter":
      // A link opens by itself; a box would send its form.
      return document.activeElement === boxInFocus() && press(rowInFocus().querySelector("a"));
    case "t":
      return press(nextTheme());
    case "p":
      return press(document.querySelector(".live-switch"));
    case "?":
      help.showModal();
      return true;
    default:
      return reach(document.querySelector(`[data-key="${CSS.escape(key)}"]`));
  }
}

function reach(element) {
  if (element?.matches("input")) return focus(element);
  if (element?.disabled) return say(reasonOf(element));
  return press(element?.checkVisibility({ visibilityProperty: true }) ? element : null);
}

function goTo(step) {
  const rows = [...(table()?.querySelectorAll(ROWS) ?? [])];
  const place = rows.indexOf(rowInFocus());
  const next = place < 0 ? rows.at(step > 0 ? 0 : -1) : rows[place + step];
  return focus(next?.querySelector("a, button"));
}

// What was touched may have been replaced, or folded away.
function table() {
  if (touched?.isConnected && touched.checkVisibility()) return touched;
  return document.querySelector("main .tasks") ?? document.querySelector("main table");
}

function rowInFocus() {
  return document.activeElement.closest("tr");
}

function boxInFocus() {
  return rowInFocus()?.querySelector("input[type=checkbox]");
}

// As a click with shift does, which would take back what is selected already.
function selectUpTo(box) {
  if (!box) return false;
  box.checked = false;
  return box.dispatchEvent(new MouseEvent("click", { shiftKey: true, bubbles: true, cancelable: true }));
}

function nextTheme() {
  const chosen = document.querySelector("[data-theme-form] [aria-pressed=true]");
  return chosen?.nextElementSibling ?? chosen?.parentElement.firstElementChild;
}

function press(element) {
  element?.click();
  return Boolean(element);
}

function reasonOf(button) {
  return document.getElementById(button.getAttribute("aria-describedby")).textContent;
}

function say(text) {
  clearTimeout(silence);
  said.textContent = text;
  silence = setTimeout(() => said.replaceChildren(), SAID_FOR_MS);
  return true;
}

function focus(element) {
  element?.focus();
  return Boolean(element);
}

function areOn() {
  return localStorage.getItem(STORED_AS) !== "off";
}
