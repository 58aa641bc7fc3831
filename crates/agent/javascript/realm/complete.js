// Completions at the cursor. Only code without side effects is run for them.
'use strict';

const { getOwnPropertyNames, global } = node;
const inspector = use('inspector');

const MOST = 500;
const PATH = /(?:^|[^\w$.)\]'"`])((?:[A-Za-z_$][\w$]*\??\.)*)([\w$]*)$/;
const NAME = /^[A-Za-z_$][\w$]*$/;
const KEYWORDS =
  'await async break case catch class const continue debugger default delete do else export ' +
  'extends false finally for function if import in instanceof let new null return static super ' +
  'switch this throw true try typeof undefined var void while with yield';

// The offset where the name at the cursor begins, in characters, and its completions.
function complete(code, cursor) {
  const before = [...code].slice(0, Math.max(0, cursor)).join('');
  const found = PATH.exec(before.slice(before.lastIndexOf('\n') + 1));
  if (found === null) return [cursor, []];
  const [, path, word] = found;
  const names = path === '' ? top(word) : members(path.slice(0, -1).replace(/\?$/, ''));
  const fits = (name) => name.startsWith(word) && NAME.test(name);
  return [cursor - word.length, [...new Set(names)].filter(fits).sort().slice(0, MOST)];
}

function top(word) {
  if (word === '') return [];
  return [...inspector.lexicalNames(), ...chain(global), ...KEYWORDS.split(' ')];
}

function members(path) {
  const found = inspector.look(`[${path}]`);
  return found === undefined ? [] : chain(found[0]);
}

// The names of a value's properties, with those it inherits.
function chain(value) {
  const names = [];
  let at = value === undefined || value === null ? null : Object(value);
  for (let depth = 0; at !== null && depth < 20; depth++) {
    names.push(...getOwnPropertyNames(at));
    at = Object.getPrototypeOf(at);
  }
  return names;
}

Object.assign(exports, { complete });
