// A button with `data-copy` copies the address that it names, or else the text of the <pre> beside it, and says so.

const SAID_FOR_MS = 2000;

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const address = button.dataset.copy;
  const text = address ? new URL(address, location.href).href : button.parentElement.querySelector("pre").textContent;
  const label = button.querySelector("span");
  const before = label.textContent;
  try {
    await navigator.clipboard.writeText(text);
    label.textContent = "Copied";
  } catch {
    // Browsers allow it on https and on this machine only.
    if (!address) getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
    label.textContent = address ? "Not allowed" : "Selected";
  }
  setTimeout(() => { label.textContent = before; }, SAID_FOR_MS);
});
