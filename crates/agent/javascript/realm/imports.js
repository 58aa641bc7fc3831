// Modules that the host fetches: `npm:`, `jsr:` and `https:` names, and TypeScript files as
// JavaScript.
//
//   import ─► Node's loader ─► resolve, load (here) ─► host ─► packages in ~/.cache/stasis, texts
//
// Node's loader calls the hooks, and the hooks wait for the host, so the event loop is blocked
// meanwhile. They send requests only while an instruction runs, because the host listens only then.
// A package is in its own directory with links to its dependencies, and Node itself finds it there.
// A name keeps its first meaning for the life of the machine.
'use strict';

const { fs, global, native } = node;
const { Error: UserError, SyntaxError: UserSyntaxError } = global;

const STORE = `${node.home}/.cache/stasis/npm`;
const PACKAGE = /^(npm|jsr):/;
const WEB = /^https:/;
const RELATIVE = /^\.{0,2}\//;
const TYPED = /^file:.*\.([cm]?)ts(?:$|[?#])/;
// Maximum characters of a file that the host converts.
const LONGEST_FILE = 1 << 20;

// The number of the running instruction, if its host fetches.
let seq;
let last = 0;
// Names of packages, and their directories.
const packages = new Map();
// Redirected addresses, and texts waiting to be loaded.
const moved = new Map();
const texts = new Map();

function begin(number) {
  seq = number;
  texts.clear();
}

function failure(name, why) {
  return new UserError(`Cannot import '${name}': ${why}`);
}

// The host's answer to a request.
function ask(name, what) {
  if (seq === undefined) {
    throw failure(name, 'the host fetches only while an instruction runs; await the import');
  }
  last += 1;
  let report = JSON.stringify({ type: 'fetch', seq, id: last, what });
  for (;;) {
    const line = native.ask(report);
    if (line === undefined) throw failure(name, 'the host did not answer');
    const { op, id, answer } = JSON.parse(line);
    report = '';
    // an answer for an interrupted instruction may come first
    if (op !== 'fetched' || id !== last) continue;
    if (answer.kind === 'refused') throw failure(name, answer.message);
    return answer;
  }
}

// All bytes of a blob, which must match its hash.
function whole(name, { hash, size }) {
  const pieces = [];
  for (let offset = 0; offset < size; ) {
    const piece = node.bytes(ask(name, { kind: 'piece', hash, offset }).bytes);
    if (piece.length === 0) break;
    pieces.push(piece);
    offset += piece.length;
  }
  const bytes = node.concat(pieces);
  if (node.hash('sha256', bytes) !== hash) throw failure(name, 'it was not fetched whole');
  return bytes;
}

// --- packages ---------------------------------------------------------------------------------

function directory(id) {
  return `${STORE}/${id.replace('/', '+')}`;
}

// Fetches a package and its dependencies, if they are missing.
function install(specifier) {
  const { id, subpath, packages: all } = ask(specifier, { kind: 'module', specifier });
  const names = new Map(all.map((one) => [one.id, one.name]));
  for (const one of all) {
    if (!fs.existsSync(directory(one.id))) lay(specifier, one, names);
  }
  return { directory: directory(id), name: `${names.get(id)}${subpath}` };
}

// Installs one package atomically.
function lay(specifier, one, names) {
  const bytes = whole(specifier, one.blob);
  const place = directory(one.id);
  const part = `${place}.part`;
  fs.rmSync(part, { recursive: true, force: true });
  const own = `${part}/node_modules/${one.name}`;
  const end = bytes.indexOf(10);
  let at = end + 1;
  for (const [path, size] of JSON.parse(bytes.toString('utf8', 0, end))) {
    const file = `${own}/${path}`;
    fs.mkdirSync(file.slice(0, file.lastIndexOf('/')), { recursive: true });
    fs.writeFileSync(file, bytes.subarray(at, at + size));
    at += size;
  }
  for (const [alias, id] of Object.entries(one.dependencies)) {
    const link = `${part}/node_modules/${alias}`;
    if (link === own) continue;
    fs.mkdirSync(link.slice(0, link.lastIndexOf('/')), { recursive: true });
    fs.symlinkSync(`${directory(id)}/node_modules/${names.get(id)}`, link);
  }
  fs.renameSync(part, place);
}

function packaged(specifier, context, next) {
  let found = packages.get(specifier);
  if (found === undefined || !fs.existsSync(found.directory)) {
    found = install(specifier);
    packages.set(specifier, found);
  }
  const from = `${found.directory}/import.js`;
  if ([...context.conditions].includes('require')) {
    const file = node.createRequire(from).resolve(found.name);
    return { url: node.pathToFileURL(file).href, shortCircuit: true };
  }
  return next(found.name, { ...context, parentURL: node.pathToFileURL(from).href });
}

// --- files of web servers ---------------------------------------------------------------------

function fetched(name) {
  const { url, form, blob } = ask(name, { kind: 'module', specifier: name });
  const text = whole(name, blob).toString('utf8');
  moved.set(name, url);
  texts.set(url, { form, text });
  return url;
}

function loaded(url) {
  if (!texts.has(url)) fetched(url);
  const { form, text } = texts.get(url) ?? {};
  if (text === undefined) throw failure(url, 'it has moved meanwhile');
  texts.delete(url);
  if (form === 'json') return { format: 'json', source: text, shortCircuit: true };
  const source = form === 'typed' ? plain(url, text).code : text;
  return { format: 'module', source, shortCircuit: true };
}

// --- TypeScript -------------------------------------------------------------------------------

// A text without its types, and whether it imports or exports.
function plain(name, text) {
  const { code, is_module: isModule } = ask(name, { kind: 'source', text });
  if (code.kind === 'code') return { code: code.code, isModule };
  throw new UserSyntaxError(`${code.message} (${name}:${code.line}:${code.column})`);
}

const FORMATS = { m: 'module', c: 'commonjs' };

function typed(url, context, next, letter) {
  const path = node.fileURLToPath(url);
  if (seq === undefined || path.includes('/node_modules/')) return next(url, context);
  const text = fs.readFileSync(path, 'utf8');
  if (text.length > LONGEST_FILE) return next(url, context);
  const { code, isModule } = plain(path, text);
  const told = /^(module|commonjs)/.exec(context.format ?? '')?.[1];
  const format = FORMATS[letter] ?? told ?? (isModule ? 'module' : 'commonjs');
  return { format, source: code, shortCircuit: true };
}

// --- hooks ------------------------------------------------------------------------------------

function resolve(specifier, context, next) {
  const parent = context.parentURL ?? '';
  if (PACKAGE.test(specifier)) return packaged(specifier, context, next);
  const isWeb = WEB.test(specifier);
  if (!isWeb && !(WEB.test(parent) && RELATIVE.test(specifier))) return next(specifier, context);
  const name = isWeb ? specifier : node.url(specifier, parent);
  return { url: moved.get(name) ?? fetched(name), shortCircuit: true };
}

function load(url, context, next) {
  if (WEB.test(url)) return loaded(url);
  const found = TYPED.exec(url);
  return found === null ? next(url, context) : typed(url, context, next, found[1]);
}

function hook() {
  node.registerHooks({ resolve, load });
}

Object.assign(exports, { begin, hook });
