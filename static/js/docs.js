// Lets the keyboard reach code and tables that have to be scrolled sideways, and closes the contents that lie over a page.

function reach() {
  for (const each of document.querySelectorAll(".page pre, .page .scrolled")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
    else each.removeAttribute("tabindex");
  }
}

reach();
document.fonts.ready.then(reach);
addEventListener("resize", reach);

// A link to a section of the same page.
for (const details of document.querySelectorAll("details.sections")) {
  details.addEventListener("click", ({ target }) => {
    if (target.closest("a")) details.open = false;
  });
}

// The contents are longer than most windows: the page that is read stays in sight.
const current = document.querySelector(".contents [aria-current]");
const contents = current?.closest(".contents");
if (contents && current.offsetTop > contents.clientHeight - 80) contents.scrollTop = current.offsetTop - contents.clientHeight / 2;
