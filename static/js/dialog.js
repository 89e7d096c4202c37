// Questions in the native dialog: the browser keeps the focus inside, Esc closes, and the focus goes back.
// Above it, the sign-in when the session has ended: the page stays, with what is selected and typed.

const dialog = document.getElementById("dialog");
const signIn = document.getElementById("sign-in");

document.addEventListener("htmx:after:swap", ({ detail }) => {
  const target = [dialog, signIn].find((each) => detail.ctx.target === each || detail.ctx.target === `#${each.id}`);
  if (!target?.childElementCount) return; // What asks again and again is answered, but shows nothing.
  if (!target.open) target.showModal();
  (target.querySelector("[aria-invalid=true]") ?? target.querySelector("[autofocus]"))?.focus();
  if (target === signIn) goOn(signIn.querySelector("[data-signed-in]"));
});

// Each sign-in has a new token, without which the server takes no form. Somebody else sees another page.
function goOn(signedIn) {
  if (!signedIn) return;
  if (signedIn.dataset.signedIn !== document.body.dataset.user) return location.reload();
  for (const field of document.getElementsByName("csrfmiddlewaretoken")) field.value = signedIn.dataset.token;
  document.dispatchEvent(new Event("signed-in"));
}

for (const each of [dialog, signIn]) {
  each.addEventListener("click", (event) => {
    if (!event.target.closest("[data-close]")) return;
    event.preventDefault();
    each.close();
  });
  // What it said is out of date when it is opened again.
  each.addEventListener("close", () => each.replaceChildren());
}

// Who writes what a thing is to be set to wants it to be set.
dialog.addEventListener("input", (event) => {
  const name = event.target.dataset.ticks;
  if (name) dialog.querySelector(`[name="${name}"]`).checked = true;
});

// A form without htmx is sent once, however often its button is pressed, and only to a server that answers: the
// browser's own page about one that does not would take the place of what was typed.
let sent = new WeakSet();
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post" || form.matches("[data-hx-post], dialog form")) return;
  if (sent.has(form)) return void (form.dataset.goes || event.preventDefault());
  sent.add(form);
  event.preventDefault();
  try {
    await fetch(document.querySelector("link[rel=icon]").href, { method: "HEAD", cache: "no-store" });
  } catch {
    sent.delete(form);
    return sayNoAnswer("not-sent");
  }
  form.dataset.goes = "1";
  form.requestSubmit(event.submitter);
  delete form.dataset.goes;
});
// The browser's Back may show the page as it was left.
addEventListener("pageshow", () => {
  sent = new WeakSet();
});

// The server did not answer at all: without a word a press of a button would seem to do nothing.
document.addEventListener("htmx:error", (event) => {
  if (event.detail.ctx?.target === dialog) sayNoAnswer("was-sent");
});

function sayNoAnswer(which) {
  dialog.replaceChildren(document.getElementById("no-answer").content.cloneNode(true));
  for (const text of dialog.querySelectorAll("[data-was-sent], [data-not-sent]")) {
    text.hidden = !text.hasAttribute(`data-${which}`);
  }
  if (!dialog.open) dialog.showModal();
}
