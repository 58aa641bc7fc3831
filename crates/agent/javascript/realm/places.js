// Maps columns of the executed code to the user's text, for instructions that the host prepared.
'use strict';

const all = new Map();

// `places` are in order: from `made` on, columns of a line are those from `own` on.
function remember(seq, places) {
  if (places === undefined || places.length === 0) all.delete(seq);
  else all.set(seq, places);
}

// The column that the user sees.
function column(seq, line, made) {
  let found;
  for (const place of all.get(seq) ?? []) {
    if (place.line === line && place.made <= made) found = place;
  }
  if (found === undefined) return made;
  return found.still ? found.own : found.own + made - found.made;
}

Object.assign(exports, { column, remember });
