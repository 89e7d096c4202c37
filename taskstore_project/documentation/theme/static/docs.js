// Shows which theme is chosen, and lets the keyboard reach what has to be scrolled.

const theme = document.documentElement.dataset.theme;
for (const button of document.querySelectorAll("[data-theme-form] button")) {
  button.setAttribute("aria-pressed", String(button.value === theme));
}

const asked = new URLSearchParams(location.search).get("q");
if (asked) document.querySelector("#find").value = asked;

function reach() {
  for (const each of document.querySelectorAll(".page pre, .page table")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
    else each.removeAttribute("tabindex");
  }
}

reach();
addEventListener("resize", reach);
