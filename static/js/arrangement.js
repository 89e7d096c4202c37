// The browser's Back and Forward between ways to arrange the groups: only the groups are asked for again.

const groups = document.getElementById("groups");

document.addEventListener("htmx:before:history:restore", (event) => {
  if (!groups) return;
  event.preventDefault();
  document.getElementById("filter").value = new URLSearchParams(location.search).get("filter") ?? "";
  // As a press of this link, but for what is asked for.
  htmx.ajax("GET", event.detail.path, { source: "#groups-view a", push: "false" });
});
