// Changes the theme at once; the server would do the same with the form, by a page more.

const AGE_S = 365 * 24 * 3600;

for (const form of document.querySelectorAll("[data-theme-form]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = event.submitter.value;
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `theme=${chosen}; path=/; max-age=${AGE_S}; samesite=lax${secure}`;
    document.documentElement.dataset.theme = chosen;
    for (const button of form.querySelectorAll("[name=theme]")) {
      button.setAttribute("aria-pressed", String(button === event.submitter));
    }
  });
}
