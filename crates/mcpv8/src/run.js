// Runs one piece of code as an ES module of its own, and waits until the event loop has nothing
// left of it. Called by one instruction with the code, whether files are kept and the WebAssembly
// modules there are, and with nothing else in its scope.
async (source, keepsFiles, modules) => {
  const { getBuiltinModule, cwd } = process;
  const fs = getBuiltinModule('node:fs');
  const { setTimeout, setImmediate } = getBuiltinModule('node:timers');
  const MARK = Symbol.for('mcp-v8');
  const EMITTED = '/tmp/.mcp-v8';
  const MODULES = '/tmp/.mcp-v8-wasm';

  // mcp-v8's own ways to other programs: all of their output, when they have ended
  const addPrograms = () => {
    const { spawn } = getBuiltinModule('node:child_process');
    const { signals } = getBuiltinModule('node:os').constants;
    const ended = (program, words, { cwd, env, timeout } = {}) => new Promise((done, fail) => {
      const stdio = ['ignore', 'pipe', 'pipe'];
      const child = spawn(program, words, { cwd, env: { ...process.env, ...env }, timeout, stdio });
      const said = { stdout: [], stderr: [] };
      for (const name of ['stdout', 'stderr']) child[name].on('data', (piece) => said[name].push(piece));
      child.on('error', fail);
      child.on('close', (status, signal) => {
        const code = status ?? 128 + signals[signal];
        done({ code, success: code === 0, stdout: Buffer.concat(said.stdout), stderr: Buffer.concat(said.stderr) });
      });
    });
    const exec = async (command, options) => {
      const end = await ended('/bin/sh', ['-c', String(command)], options);
      const encoding = options?.encoding ?? 'utf8';
      const text = (bytes) => (encoding === 'buffer' ? new Uint8Array(bytes) : bytes.toString(encoding));
      return { ...end, stdout: text(end.stdout), stderr: text(end.stderr) };
    };
    const missing = (name) => () => {
      throw new Error(`Deno.Command: ${name} is not there; use output(), or node:child_process`);
    };
    class Command {
      #of;
      constructor(program, options = {}) {
        this.#of = [String(program), (options.args ?? []).map(String), options];
      }
      async output() {
        const end = await ended(...this.#of);
        return { ...end, stdout: new Uint8Array(end.stdout), stderr: new Uint8Array(end.stderr) };
      }
      spawn = missing('spawn');
      outputSync = missing('outputSync');
    }
    for (const [name, value] of [['child_process', { exec }], ['Deno', { Command }]]) {
      Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
    }
  };

  // once for each line of states: what this surface adds to Node's globals
  const furnish = () => {
    const { format } = getBuiltinModule('node:util');
    const state = { runs: 0, emitted: 0 };
    const prefixed = (prefix) => (...words) => {
      process.stdout.write(`${prefix}${format(...words)}\n`);
    };
    const error = prefixed('[ERROR] ');
    console.info = prefixed('[INFO] ');
    console.warn = prefixed('[WARN] ');
    console.error = error;
    console.trace = prefixed('');
    console.assert = (holds, ...words) => {
      if (holds) return;
      error(...(words.length === 0 ? ['Assertion failed'] : ['Assertion failed:', ...words]));
    };
    globalThis.self ??= globalThis;
    globalThis.artifact = (key, mime, bytes) => {
      const size = Buffer.byteLength(key);
      if (size === 0 || size > 256) throw new TypeError('artifact: a key has 1 to 256 bytes');
      if (!/^[\x21-\x7e]+\/[\x21-\x7e]+$/.test(mime) || mime.length > 128) {
        throw new TypeError('artifact: the MIME type is not one');
      }
      const view = ArrayBuffer.isView(bytes)
        ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
        : typeof bytes === 'string' || bytes instanceof ArrayBuffer
          ? Buffer.from(bytes)
          : undefined;
      if (view === undefined) throw new TypeError('artifact: bytes, a buffer or a string');
      if (view.length > 16 << 20) throw new RangeError('artifact: at most 16 MiB');
      const number = state.emitted++;
      fs.mkdirSync(EMITTED, { recursive: true });
      fs.writeFileSync(`${EMITTED}/${number}`, view);
      fs.appendFileSync(`${EMITTED}/index`, `${JSON.stringify({ number, key, mime })}\n`);
    };
    addPrograms();
    Object.defineProperty(globalThis, MARK, { value: state });
    return state;
  };

  // mcp-v8's own way to files: promises of some of Node's functions
  const addFiles = () => {
    const own = getBuiltinModule('node:fs/promises');
    const names = ['readFile', 'writeFile', 'readdir', 'stat', 'lstat', 'mkdir', 'rm', 'rmdir', 'unlink', 'rename',
      'copyFile', 'readlink', 'symlink'];
    const promises = Object.fromEntries(names.map((name) => [name, own[name]]));
    promises.rmdir = (path, options) => options?.recursive ? own.rm(path, { recursive: true }) : own.rmdir(path);
    promises.appendFile = (path, data) => own.appendFile(path, ArrayBuffer.isView(data) ? data : String(data));
    promises.exists = (path) => own.access(path).then(() => true, () => false);
    const createWriteStream = (path, options) => {
      const opened = own.open(path, options?.flags ?? 'w');
      const write = async (data) => {
        await (await opened).writeFile(ArrayBuffer.isView(data) ? data : String(data));
      };
      return { write, close: async () => (await opened).close() };
    };
    const value = { ...promises, createWriteStream, promises };
    Object.defineProperty(globalThis, 'fs', { value, configurable: true, writable: true });
  };

  // Compiled and, if they need nothing, instantiated once for each line of states: what an instance
  // has in its memory stays.
  const addModules = (known) => {
    const add = (name, value) => {
      Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: true });
    };
    for (const { name, file } of modules) {
      if (known[name] === file) continue;
      const module = new WebAssembly.Module(fs.readFileSync(`${MODULES}/${file}`));
      add(`__wasm_${name}`, module);
      if (WebAssembly.Module.imports(module).length === 0) add(name, new WebAssembly.Instance(module).exports);
      known[name] = file;
    }
  };

  const load = async (path, text) => {
    fs.writeFileSync(path, text);
    try {
      await import(path);
    } finally {
      fs.rmSync(path, { force: true });
    }
  };

  // Types are removed when V8 cannot parse the code: then nothing of it has run. Code without types
  // comes back unchanged, and its own error counts.
  const plain = (error, path) => {
    if (!(error instanceof SyntaxError)) throw error;
    const frames = String(error.stack).split('\n').filter((line) => line.startsWith('    at '));
    if (frames.some((frame) => frame.includes(`${path}:`))) throw error;
    const { stripTypeScriptTypes } = getBuiltinModule('node:module');
    const warn = process.emitWarning;
    process.emitWarning = () => {};
    let text;
    try {
      text = stripTypeScriptTypes(source);
    } catch {
      try {
        text = stripTypeScriptTypes(source, { mode: 'transform' });
      } catch {
        throw error;
      }
    } finally {
      process.emitWarning = warn;
    }
    if (text === source) throw error;
    return text;
  };

  const waiting = () => {
    const kinds = {};
    for (const kind of process.getActiveResourcesInfo()) kinds[kind] = (kinds[kind] ?? 0) + 1;
    return kinds;
  };

  const state = globalThis[MARK] ?? furnish();
  if (keepsFiles && !state.hasFiles) {
    state.hasFiles = true;
    addFiles();
  }
  addModules(state.modules ??= {});
  fs.rmSync(EMITTED, { recursive: true, force: true });
  const before = waiting();
  const isBusy = () => {
    const now = waiting();
    return Object.keys(now).some((kind) => now[kind] > (before[kind] ?? 0));
  };
  let uncaught;
  const note = (error) => (uncaught ??= { error });
  process.on('uncaughtException', note);
  try {
    const name = `${cwd()}/main_${state.runs++}`;
    try {
      await load(`${name}.mjs`, source);
    } catch (error) {
      await load(`${name}.ts.mjs`, plain(error, `${name}.mjs`));
    }
    await new Promise((done) => setImmediate(done));
    for (let pause = 1; uncaught === undefined && isBusy(); pause = Math.min(2 * pause, 20)) {
      await new Promise((done) => setTimeout(done, pause).unref());
    }
  } finally {
    process.off('uncaughtException', note);
  }
  if (uncaught !== undefined) throw uncaught.error;
}
