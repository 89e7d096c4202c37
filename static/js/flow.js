// Keeps the ages, rates and lines in sight right: those of the same page as the server has it now.
// Rows stay where they are; only elements with `data-flow` are written, each by its name, and by its group if it has one.

const AGAIN_MS = 10_000;

if (document.querySelector("[data-flow]")) setTimeout(refresh, AGAIN_MS);

async function refresh() {
  if (document.visibilityState === "visible" && !isPaused()) {
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.ok) take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // The server is away; the banner says so.
    }
  }
  setTimeout(refresh, AGAIN_MS);
}

function take(page) {
  const places = new Map([...document.querySelectorAll("[data-flow]")].map((place) => [nameOf(place), place]));
  for (const fresh of page.querySelectorAll("[data-flow]")) {
    const shown = places.get(nameOf(fresh));
    // Under the pointer or the focus nothing is replaced.
    if (shown && !shown.matches(":hover, :focus-within") && !shown.isEqualNode(fresh)) {
      shown.replaceChildren(...document.importNode(fresh, true).childNodes);
    }
  }
}

function nameOf(place) {
  return `${place.dataset.flow} ${place.closest("[data-live-group]")?.dataset.liveGroup ?? ""}`;
}

function isPaused() {
  return document.querySelector('[data-live="paused"]') !== null;
}
