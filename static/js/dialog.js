// Questions in the native dialog: the browser keeps the focus inside, Esc closes, and the focus goes back.

const dialog = document.getElementById("dialog");

document.addEventListener("htmx:after:swap", (event) => {
  if (event.detail.ctx.target !== dialog) return;
  if (!dialog.open) dialog.showModal();
  (dialog.querySelector("[aria-invalid=true]") ?? dialog.querySelector("[autofocus]")).focus();
});

dialog.addEventListener("click", (event) => {
  if (!event.target.closest("[data-close]")) return;
  event.preventDefault();
  dialog.close();
});

// Who writes what a thing is to be set to wants it to be set.
dialog.addEventListener("input", (event) => {
  const name = event.target.dataset.ticks;
  if (name) dialog.querySelector(`[name="${name}"]`).checked = true;
});

// A form without htmx is sent once, however often its button is pressed.
let sent = new WeakSet();
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || form.matches("[data-hx-post], dialog form")) return;
  if (sent.has(form)) event.preventDefault();
  sent.add(form);
});
// The browser's Back may show the page as it was left.
addEventListener("pageshow", () => {
  sent = new WeakSet();
});

// The server did not answer at all: without a word a press of a button would seem to do nothing.
document.addEventListener("htmx:error", (event) => {
  if (event.detail.ctx?.target !== dialog) return;
  dialog.replaceChildren(document.getElementById("no-answer").content.cloneNode(true));
  if (!dialog.open) dialog.showModal();
});

// What it said is out of date when it is opened again.
dialog.addEventListener("close", () => dialog.replaceChildren());
