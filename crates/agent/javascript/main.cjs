// Starts the agent: `node main.cjs`, with the control socket as descriptor 3.
//
//   main realm    user code, Node's modules, this file
//   agent's realm everything in realm/: arrays, strings, promises, JSON of its own
//
// User code shares the process and may replace any global and change any prototype. The agent
// therefore runs in its own realm, whose intrinsics user code does not reach, and captures Node's
// functions now, before user code runs.
'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const tls = require('node:tls');
const util = require('node:util');
const v8 = require('node:v8');
const vm = require('node:vm');
const { spawn } = require('node:child_process');
const crypto = require('node:crypto');
const { createRequire, registerHooks } = require('node:module');
const { fileURLToPath, pathToFileURL } = require('node:url');
const { Writable } = require('node:stream');

const { emitWarning } = process;
process.emitWarning = () => {};
const { Connection } = process.binding('inspector');
const { internalBinding } = require('internal/test/binding');
process.emitWarning = emitWarning;

// Code that the inspector evaluates cannot load modules by itself; it uses this loader of the
// global object: Node's, with names relative to the working directory.
const { host_defined_option_symbol: loader } = internalBinding('util').privateSymbols;
globalThis[loader] = internalBinding('symbols').vm_dynamic_import_default_internal;

// Beside the interpreter: both are in the machine's root file system.
const native = { exports: {} };
process.dlopen(native, path.join(path.dirname(process.execPath), '../lib/stasis.node'));

// a realm created now has `gc`
v8.setFlagsFromString('--expose-gc');
const realm = vm.createContext({});
const gc = vm.runInContext('gc', realm);
vm.runInContext('delete globalThis.gc', realm);
v8.setFlagsFromString('--no-expose-gc');

const here = path.join(__dirname, 'realm');
const loaded = { __proto__: null };

function use(name) {
  if (loaded[name] === undefined) {
    const filename = path.join(here, `${name}.js`);
    const source = fs.readFileSync(filename, 'utf8');
    const body = vm.compileFunction(source, ['exports', 'use', 'node'], {
      filename,
      parsingContext: realm,
    });
    loaded[name] = vm.runInContext('({ __proto__: null })', realm);
    body(loaded[name], use, node);
  }
  return loaded[name];
}

// A standard stream of user code. Writes are flushed at once, and it cannot be closed.
function stream(fd) {
  const { write } = native.exports;
  const { toString } = Buffer.prototype;
  const { apply } = Reflect;
  const made = new Writable({
    decodeStrings: false,
    write(chunk, encoding, done) {
      write(fd, typeof chunk === 'string' ? chunk : apply(toString, chunk, []));
      done();
    },
  });
  const end = (chunk) => {
    if (typeof chunk !== 'function' && chunk != null) made.write(chunk);
    return made;
  };
  return Object.assign(made, { fd, _type: 'pipe', _isStdio: true, end, destroy: () => made });
}

// Math.random from a seed of four numbers: sfc32, two steps for 53 bits.
function generator(a, b, c, d) {
  function step() {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + t) | 0;
    return t >>> 0;
  }
  for (let count = 0; count < 16; count++) step();
  return {
    random() {
      return ((step() >>> 5) * 67108864 + (step() >>> 6)) / 9007199254740992;
    },
  }.random;
}

// Node reads NODE_EXTRA_CA_CERTS when it starts, and this process started in the template. So the
// file is read again before a TLS connection, if the variable names another one than before.
function trustAnew() {
  const { createSecureContext, getCACertificates, setDefaultCACertificates } = tls;
  const { readFileSync } = fs;
  const { env } = process;
  const certificate = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;
  let [known, usual] = [env.NODE_EXTRA_CA_CERTS, undefined];
  const trust = () => {
    const file = env.NODE_EXTRA_CA_CERTS;
    if (file === undefined || file === known) return;
    known = file;
    try {
      const more = readFileSync(file, 'latin1').match(certificate) ?? [];
      usual ??= getCACertificates('default');
      setDefaultCACertificates([...usual, ...more]);
    } catch {
      // as Node does at its start: a file that cannot be read is left out
    }
  };
  tls.createSecureContext = function (options) {
    trust();
    return createSecureContext(options);
  };
}
trustAnew();

const node = {
  __proto__: null,
  Connection,
  Script: vm.Script,
  agent: __dirname,
  bytes: (text) => Buffer.from(text, 'base64'),
  concat: Buffer.concat,
  createRequire,
  defineProperty: Object.defineProperty,
  deserialize: v8.deserialize,
  environment: process.env,
  fileURLToPath,
  fs: { ...fs },
  gc,
  generator,
  getOwnPropertyDescriptor: Object.getOwnPropertyDescriptor,
  getOwnPropertyNames: Object.getOwnPropertyNames,
  global: globalThis,
  hash: crypto.hash,
  home: os.homedir(),
  inspect: util.inspect,
  list: (...items) => items,
  math: Math,
  native: native.exports,
  pathToFileURL,
  process,
  random: Math.random,
  randomInt: crypto.randomInt,
  randomUUID: crypto.randomUUID,
  registerHooks,
  serialize: v8.serialize,
  signals: os.constants.signals,
  spawn,
  stream,
  stringify: JSON.stringify,
  types: util.types,
  url: (name, from) => new URL(name, from).href,
};

use('serve').main();
