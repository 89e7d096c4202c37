// Keeps what is drawn from numbers in step with them, whoever changes them: the bars, and zeros that keep quiet.

const WHOLE = 1000;

for (const place of document.querySelectorAll("[data-follows-counts]")) {
  new MutationObserver((changes) => redraw(changes)).observe(place, { subtree: true, childList: true });
}

function redraw(changes) {
  const owners = new Set(changes.map(({ target }) => target.closest("[data-live-count], [data-live-total]")?.closest("tr, ul")));
  for (const owner of owners) {
    if (owner?.matches("tr")) drawRow(owner);
    if (owner?.matches("ul")) drawTiles(owner);
  }
}

function drawRow(row) {
  for (const number of row.querySelectorAll("[data-live-count]")) {
    number.toggleAttribute("data-zero", valueOf(number) === 0);
  }
  const pieces = [...row.querySelectorAll(".share-bar rect")];
  const counts = pieces.map((piece) => valueOf(row.querySelector(`[data-live-count="${piece.dataset.state}"]`)));
  const total = sum(counts) || 1;
  let start = 0;
  pieces.forEach((piece, place) => {
    const length = (WHOLE * counts[place]) / total;
    piece.setAttribute("x", start);
    piece.setAttribute("width", length);
    start += length;
  });
}

function drawTiles(tiles) {
  const numbers = [...tiles.querySelectorAll("[data-live-total]")];
  // Failed tasks are counted beside their state, not instead of it.
  const total = sum(numbers.filter(({ dataset }) => dataset.liveTotal !== "failed").map(valueOf)) || 1;
  for (const number of numbers) {
    number.closest("li").querySelector("rect").setAttribute("width", (WHOLE * valueOf(number)) / total);
  }
}

function valueOf(element) {
  return Number(element.textContent.replace(/\D/g, ""));
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
