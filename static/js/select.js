// The selection in a list: how many, the whole page at once, a range with shift, or all that there are.
//
// It is kept for the list, whichever of its pages one looks at, until something was done to it.

const MOST = 500; // One by one: their ids have to fit an address.

for (const form of document.querySelectorAll("[data-selection]")) {
  const bar = form.querySelector("[data-bar]");
  if (bar) follow(form, bar);
}

function follow(form, bar) {
  const page = bar.querySelector("[data-select-page]");
  // Without that box all of them are never meant.
  const all = bar.querySelector("[data-select-all]") ?? document.createElement("input");
  const none = bar.querySelector("[data-select-none]");
  const count = bar.querySelector("[data-selected-count]");
  let rows = []; // Of the page, which may be replaced while it is open.
  const elsewhere = document.createElement("span"); // The selected rows of other pages, as fields of the form.
  const nothing = count.textContent;
  const storedAs = `taskstore.selection ${location.pathname} ${form.dataset.selection}`;
  let last = null;

  elsewhere.hidden = true;
  form.addEventListener("click", (event) => {
    const row = event.target.closest("input[name=id]");
    if (!row) return;
    if (event.shiftKey && last) selectBetween(rows, last, row);
    last = row;
    keep();
  });
  page.addEventListener("change", () => {
    for (const row of rows) row.checked = page.checked;
    all.checked = all.checked && page.checked;
    keep();
  });
  all.addEventListener("change", keep);
  none.addEventListener("click", () => {
    for (const row of rows) row.checked = false;
    all.checked = false;
    elsewhere.replaceChildren();
    keep();
  });
  // A browser that goes back in its history brings the ticks back after this module has run.
  addEventListener("pageshow", bringBack);
  // Something was begun: it leads to another page.
  document.addEventListener("htmx:before:response", (event) => {
    if (event.detail.ctx.response?.headers.get("HX-Redirect")) sessionStorage.removeItem(storedAs);
  });
  document.addEventListener("htmx:after:swap", bringBack);
  bringBack();

  function bringBack() {
    const kept = JSON.parse(sessionStorage.getItem(storedAs) ?? "[]");
    rows = [...form.querySelectorAll("input[name=id]")];
    const here = new Set(rows.map((row) => row.value));
    form.append(elsewhere); // Again, because a new page has no such fields.
    for (const row of rows) row.checked = kept.includes(row.value);
    elsewhere.replaceChildren(...kept.filter((id) => !here.has(id)).map(field));
    tell();
  }

  function keep() {
    sessionStorage.setItem(storedAs, JSON.stringify(selected()));
    tell();
  }

  function selected() {
    const onThisPage = rows.filter((row) => row.checked);
    return [...onThisPage, ...elsewhere.children].map((input) => input.value).slice(0, MOST);
  }

  function tell() {
    const onThisPage = rows.filter((row) => row.checked).length;
    const number = selected().length;
    page.checked = rows.length > 0 && onThisPage === rows.length;
    page.indeterminate = onThisPage > 0 && onThisPage < rows.length;
    bar.toggleAttribute("data-active", number > 0 || all.checked);
    none.hidden = !number && !all.checked;
    const onOthers = number - onThisPage;
    const some = onOthers > 0 ? `${number} selected, ${onOthers} on other pages` : `${number} selected`;
    const text = all.checked ? "All selected" : number ? some : nothing;
    if (count.textContent !== text) count.textContent = text;
  }
}

function field(id) {
  const input = document.createElement("input");
  Object.assign(input, { type: "hidden", name: "id", value: id });
  return input;
}

function selectBetween(rows, one, other) {
  const [from, to] = [rows.indexOf(one), rows.indexOf(other)].sort((a, b) => a - b);
  for (const row of rows.slice(from, to + 1)) row.checked = other.checked;
}
