// The zone in which the reader wants to be told times; undefined: the browser's own.

const STORED_AS = "taskstore.zone";
// What browsers still offer by its old name only.
const TODAY = {
  "America/Godthab": "America/Nuuk",
  "Asia/Calcutta": "Asia/Kolkata",
  "Asia/Katmandu": "Asia/Kathmandu",
  "Asia/Rangoon": "Asia/Yangon",
  "Asia/Saigon": "Asia/Ho_Chi_Minh",
  "Atlantic/Faeroe": "Atlantic/Faroe",
  "Europe/Kiev": "Europe/Kyiv",
};

export function zone() {
  const stored = localStorage.getItem(STORED_AS);
  return stored && isKnown(stored) ? stored : undefined;
}

// Empty: the browser's own.
export function choose(name) {
  localStorage.setItem(STORED_AS, name);
}

// What another browser or an older version has stored may be none.
function isKnown(name) {
  try {
    return Boolean(new Intl.DateTimeFormat("en", { timeZone: name }));
  } catch {
    return false;
  }
}

// As people write it today.
export function labelOf(name) {
  return (TODAY[name] ?? name).replaceAll("_", " ");
}
