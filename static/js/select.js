// The selection in a list of tasks: how many, the whole page at once, a range with shift, or all that there are.

for (const form of document.querySelectorAll("[data-selection]")) {
  const bar = form.querySelector("[data-bar]");
  if (bar) follow(form, bar);
}

function follow(form, bar) {
  const page = bar.querySelector("[data-select-page]");
  const all = bar.querySelector("[data-select-all]");
  const count = bar.querySelector("[data-selected-count]");
  const rows = [...form.querySelectorAll("input[name=id]")];
  let last = null;

  form.addEventListener("click", (event) => {
    const row = event.target.closest("input[name=id]");
    if (!row) return;
    if (event.shiftKey && last) selectBetween(rows, last, row);
    last = row;
    tell();
  });
  page.addEventListener("change", () => {
    for (const row of rows) row.checked = page.checked;
    all.checked = all.checked && page.checked;
    tell();
  });
  all.addEventListener("change", tell);
  // A browser that goes back in its history brings the ticks back after this module has run.
  addEventListener("pageshow", tell);
  tell();

  function tell() {
    const selected = rows.filter((row) => row.checked).length;
    page.checked = selected === rows.length;
    page.indeterminate = selected > 0 && selected < rows.length;
    bar.toggleAttribute("data-active", selected > 0 || all.checked);
    const text = all.checked ? "All selected" : selected ? `${selected} selected` : "Select tasks";
    if (count.textContent !== text) count.textContent = text;
  }
}

function selectBetween(rows, one, other) {
  const [from, to] = [rows.indexOf(one), rows.indexOf(other)].sort((a, b) => a - b);
  for (const row of rows.slice(from, to + 1)) row.checked = other.checked;
}
