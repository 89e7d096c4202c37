// The zone in which the reader wants to be told times; undefined: the browser's own.

const STORED_AS = "taskstore.zone";

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
