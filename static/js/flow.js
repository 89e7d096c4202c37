// Keeps the ages and rates of the groups in sight right: the numbers of the same page as the server has it now.
// Rows stay where they are; only cells with `data-flow` are written.

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
  const rows = new Map([...document.querySelectorAll("tr[data-live-group]")].map((row) => [row.dataset.liveGroup, row]));
  for (const row of page.querySelectorAll("tr[data-live-group]")) {
    for (const cell of row.querySelectorAll("[data-flow]")) {
      const shown = rows.get(row.dataset.liveGroup)?.querySelector(`[data-flow="${cell.dataset.flow}"]`);
      // Under the pointer or the focus nothing is replaced.
      if (shown && !shown.matches(":hover, :focus-within") && !shown.isEqualNode(cell)) {
        shown.replaceChildren(...document.importNode(cell, true).childNodes);
      }
    }
  }
}

function isPaused() {
  return document.querySelector('[data-live="paused"]') !== null;
}
