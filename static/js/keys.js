// Single keys, as long as nobody is typing; they can be turned off in the account menu.

const STORED_AS = "taskstore.keys";
const TYPING = "input, select, textarea, [contenteditable]";

for (const box of document.querySelectorAll("[data-keys]")) {
  box.checked = areOn();
  box.addEventListener("change", () => localStorage.setItem(STORED_AS, box.checked ? "on" : "off"));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(TYPING) || !areOn()) return;
  const field = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!field || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  field.focus();
});

function areOn() {
  return localStorage.getItem(STORED_AS) !== "off";
}
