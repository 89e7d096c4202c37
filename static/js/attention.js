// The tab's title and icon say what trouble there is, as `data-trouble` of the attention strip has it.

const calmTitle = document.title;
const icon = document.querySelector("link[rel=icon]");
const calmIcon = icon.getAttribute("href");

document.addEventListener("htmx:after:swap", show);
show();

function show() {
  const trouble = document.getElementById("attention")?.dataset.trouble;
  document.title = trouble ? `${trouble} · ${calmTitle}` : calmTitle;
  const wanted = trouble ? icon.dataset.trouble : calmIcon;
  if (icon.getAttribute("href") !== wanted) icon.setAttribute("href", wanted);
}
