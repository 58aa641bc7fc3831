// Transfers variables by name through a file, to another machine or past an upgrade.
//
//   "stasis-variables-javascript-1\n", then a structured clone of [names, values]
//
// All values are one clone, so that an object shared by two variables is still one object after
// loading. Values without a clone (functions, classes, symbols) are refused by name.
'use strict';

const { fs, serialize, deserialize } = node;
const inspector = use('inspector');
const { valueOf } = use('variables');
const { plain } = use('show');

const MAGIC = 'stasis-variables-javascript-1\n';

// Writes variables to a file. Returns the names written, and why others were not.
function save(wanted, path) {
  const [names, values, failed] = [[], [], {}];
  for (const name of new Set(wanted)) {
    try {
      const found = valueOf(name);
      if (found === undefined) throw 'there is no such variable';
      serialize(found.value);
      names.push(name);
      values.push(found.value);
    } catch (error) {
      failed[name] = plain(error);
    }
  }
  write(path, serialize([names, values]));
  return [names, failed];
}

// Writes a file atomically.
function write(path, bytes) {
  const part = `${path}.part`;
  const file = fs.openSync(part, 'w');
  fs.writeSync(file, MAGIC);
  for (let at = 0; at < bytes.length; ) at += fs.writeSync(file, bytes, at);
  fs.fsyncSync(file);
  fs.closeSync(file);
  fs.renameSync(part, path);
}

// Reads variables from a file. Returns the names read, and why others were not.
function load(path) {
  const bytes = fs.readFileSync(path);
  const head = [...bytes.subarray(0, MAGIC.length)];
  if (String.fromCharCode(...head) !== MAGIC) {
    return [[], { [path]: 'these are not variables of a JavaScript machine' }];
  }
  const [names, values] = deserialize(bytes.subarray(MAGIC.length));
  const [loaded, failed] = [[], {}];
  for (let at = 0; at < names.length; at++) {
    const error = inspector.assign(names[at], values[at]);
    if (error === undefined) loaded.push(names[at]);
    else failed[names[at]] = error;
  }
  return [loaded, failed];
}

Object.assign(exports, { load, save });
