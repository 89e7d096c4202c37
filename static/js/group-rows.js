// Keeps what is drawn from numbers in step with them, whoever changes them: the bars, and zeros that keep quiet.

const WHOLE = 1000;

for (const place of document.querySelectorAll("[data-follows-counts]")) {
  new MutationObserver((changes) => redraw(changes)).observe(place, { subtree: true, childList: true });
}

function redraw(changes) {
  const rows = new Set(changes.map(({ target }) => target.closest("[data-live-count]")?.closest("tr")));
  for (const row of rows) {
    if (row) drawRow(row);
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

function valueOf(element) {
  return Number(element.textContent.replace(/\D/g, ""));
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
