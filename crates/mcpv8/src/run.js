// Runs one piece of code as an ES module of its own, and waits until the event loop has nothing
// left of it. Called by one instruction with the code, whether files are kept, the WebAssembly
// modules there are and the categories of its policies, and with nothing else in its scope. The
// first run leaves this function in the session's state, so that later runs send only its arguments.
// Without code it rehearses, for a template whose machines only run code through it: such a template
// holds the function, the globals, and what Node prepares at the first use of each of its parts.
async function run(source, keepsFiles, modules, policies) {
  const { getBuiltinModule, cwd } = process;
  const fs = getBuiltinModule('node:fs');
  const { setTimeout, setImmediate } = getBuiltinModule('node:timers');
  const { pathToFileURL } = getBuiltinModule('node:url');
  const MARK = Symbol.for('mcp-v8');
  const EMITTED = '/tmp/.mcp-v8';
  const MODULES = '/tmp/.mcp-v8-wasm';

  const add = (name, value) => {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  };

  // Takes an operation through the policies and hooks of its category. The host says whether it is
  // executed, with which input and how often, and what its output is. If there are no hooks behind
  // it, the result of `execute` is the result; otherwise it makes an output of its result.
  const through = async (category, input, execute) => {
    const effects = globalThis[Symbol.for('stasis.effects')];
    let step = effects.begin(category, input);
    for (;;) {
      if (step.kind === 'output') return { output: step.output };
      if (step.last) return { result: await execute(step.input, false) };
      let output;
      let failure;
      try {
        output = await execute(step.input, true);
      } catch (error) {
        failure = { error };
      }
      try {
        step = effects.end(step.call, output, failure && String(failure.error?.message ?? failure.error));
      } catch (error) {
        throw failure === undefined ? error : failure.error;
      }
    }
  };

  // `fetch` under policies: redirects are not followed
  const addFetch = () => {
    const real = globalThis.fetch;
    const parsed = (text) => {
      const { protocol, hostname, port, pathname, search } = new URL(text);
      const [scheme, query] = [protocol.slice(0, -1), search.slice(1)];
      return { scheme, host: hostname, port: port === '' ? null : Number(port), path: pathname, query };
    };
    const whole = async (response) => {
      const { status, statusText, url, redirected } = response;
      const body = Buffer.from(await response.arrayBuffer()).toString('base64');
      const headers = Object.fromEntries(response.headers);
      return { status, statusText, headers, url, redirected, body, bodyEncoding: 'base64' };
    };
    add('fetch', async (resource, init) => {
      const request = new Request(resource, { ...init, redirect: 'manual' });
      const { url, method, signal } = request;
      const headers = Object.fromEntries(request.headers);
      const input = { operation: 'fetch', url, method, headers, url_parsed: parsed(url) };
      const bytes = request.body === null ? undefined : await request.arrayBuffer();
      const { result, output } = await through('fetch', input, async (effective, isSeen) => {
        const hasBody = !['GET', 'HEAD'].includes(effective.method);
        const body = hasBody ? bytes : undefined;
        const options = { method: effective.method, headers: effective.headers, body, signal, redirect: 'manual' };
        const response = await real(effective.url, options);
        return isSeen ? whole(response) : response;
      });
      if (result !== undefined) return result;
      const { status = 200, statusText = '', headers: own = {}, body = '', bodyEncoding } = output;
      const content = bodyEncoding === 'base64' ? Buffer.from(body, 'base64') : String(body);
      const isEmpty = [101, 204, 205, 304].includes(status);
      const answer = new Response(isEmpty ? null : content, { status, statusText, headers: own });
      Object.defineProperty(answer, 'url', { value: output.url ?? url });
      return answer;
    });
  };

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
    const gated = async (operation, program, words, options) => {
      if (policies === null) return ended(program, words, options);
      const { cwd, env } = options ?? {};
      const input = { operation, command: program, args: words, cwd, env };
      const { result, output } = await through('subprocess', input, async (effective, isSeen) => {
        const { command, args = [], cwd, env } = effective;
        const end = await ended(String(command), args.map(String), { ...options, cwd, env });
        if (!isSeen) return end;
        return { ...end, stdout: end.stdout.toString(), stderr: end.stderr.toString() };
      });
      if (result !== undefined) return result;
      const { code = 0, stdout = '', stderr = '' } = output;
      return { code, success: code === 0, stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) };
    };
    const exec = async (command, options) => {
      const end = await gated('exec', '/bin/sh', ['-c', String(command)], options);
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
        const end = await gated('command_output', ...this.#of);
        return { ...end, stdout: new Uint8Array(end.stdout), stderr: new Uint8Array(end.stderr) };
      }
      spawn = missing('spawn');
      outputSync = missing('outputSync');
    }
    add('child_process', { exec });
    add('Deno', { Command });
  };

  // once for each line of states: what this surface adds to Node's globals
  const furnish = () => {
    const { format } = getBuiltinModule('node:util');
    state.isFurnished = true;
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
  };

  // with policies, what they do not mention is not there
  const restrict = () => {
    state.isRestricted = true;
    if (policies === null) return;
    const has = (category) => policies.includes(category);
    for (const name of ['child_process', 'Deno']) delete globalThis[name];
    if (has('subprocess')) addPrograms();
    if (has('fetch')) addFetch();
    else delete globalThis.fetch;
    if (!has('websocket')) delete globalThis.WebSocket;
  };

  const begin = () => {
    const state = { runs: 0, emitted: 0 };
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
    add('fs', policies?.includes('filesystem') ? gatedFiles(value) : value);
  };

  // the same under policies: each call is asked about first
  const gatedFiles = (own) => {
    const gate = async (operation, input, act) => {
      const { result } = await through('filesystem', { operation, ...input }, act);
      return result;
    };
    const read = (options) => ((typeof options === 'string' ? options : options?.encoding) ? 'utf8' : 'buffer');
    const written = (data) => (ArrayBuffer.isView(data) ? 'buffer' : 'utf8');
    const of = (operation, name = operation) => (path, ...rest) =>
      gate(operation, { path: String(path) }, (at) => own[name](at.path, ...rest));
    const deep = (operation, name = operation) => (path, options) =>
      gate(operation, { path: String(path), recursive: options?.recursive === true },
        (at) => own[name](at.path, options));
    const both = (name) => (path, destination) =>
      gate(name, { path: String(path), destination: String(destination) },
        (at) => own[name](at.path, at.destination));
    const writes = (name) => (path, data, options) =>
      gate(name, { path: String(path), encoding: written(data) }, (at) => own[name](at.path, data, options));
    const promises = {
      readFile: (path, options) =>
        gate('readFile', { path: String(path), encoding: read(options) }, (at) => own.readFile(at.path, options)),
      writeFile: writes('writeFile'),
      appendFile: writes('appendFile'),
      mkdir: deep('mkdir'),
      rm: deep('rm'),
      rmdir: deep('rm', 'rmdir'),
      unlink: deep('rm', 'unlink'),
      rename: both('rename'),
      copyFile: both('copyFile'),
      symlink: both('symlink'),
    };
    for (const name of ['readdir', 'stat', 'lstat', 'readlink', 'exists']) promises[name] = of(name);
    const createWriteStream = (path, options) => {
      const opened = gate('writeFile', { path: String(path) }, (at) => own.createWriteStream(at.path, options));
      const write = async (data) => (await opened).write(data);
      return { write, close: async () => (await opened).close() };
    };
    return { ...promises, createWriteStream, promises };
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

  // The module under way is served from memory, under the address of a file.
  const addSources = () => {
    const sources = new Map();
    const resolve = (name, context, next) =>
      sources.has(name) ? { url: name, format: 'module', shortCircuit: true } : next(name, context);
    const load = (url, context, next) =>
      sources.has(url) ? { source: sources.get(url), format: 'module', shortCircuit: true } : next(url, context);
    getBuiltinModule('node:module').registerHooks({ resolve, load });
    return sources;
  };

  const load = async (url, text) => {
    const sources = (state.sources ??= addSources());
    sources.set(url, text);
    try {
      await import(url);
    } finally {
      sources.delete(url);
    }
  };

  // Only V8's parser, or the host's, reports an error of syntax without a place in the module.
  const isUnparsed = (error, url) => {
    if (!(error instanceof SyntaxError)) return false;
    const frames = String(error.stack).split('\n').filter((line) => line.startsWith('    at '));
    return !frames.some((frame) => frame.includes(`${url}:`));
  };

  // Code that V8 cannot parse may have types: nothing of it has run. The host removes them from a
  // file of TypeScript. If it cannot either, V8's error counts.
  const loadTyped = async (path, error) => {
    const { href } = pathToFileURL(path);
    fs.writeFileSync(path, source);
    try {
      await import(href);
    } catch (other) {
      throw isUnparsed(other, href) ? error : other;
    } finally {
      fs.rmSync(path, { force: true });
    }
  };

  const waiting = () => {
    const kinds = {};
    for (const kind of process.getActiveResourcesInfo()) kinds[kind] = (kinds[kind] ?? 0) + 1;
    return kinds;
  };

  // Executes a module, and waits until nothing is left of it.
  const execute = async (path) => {
    const before = waiting();
    const isBusy = () => {
      const now = waiting();
      return Object.keys(now).some((kind) => now[kind] > (before[kind] ?? 0));
    };
    let uncaught;
    const note = (error) => (uncaught ??= { error });
    process.on('uncaughtException', note);
    try {
      const { href } = pathToFileURL(`${path}.mjs`);
      try {
        await load(href, source ?? 'console.log(`${0}`)');
      } catch (error) {
        if (!isUnparsed(error, href)) throw error;
        await loadTyped(`${path}.mts`, error);
      }
      await new Promise((done) => setImmediate(done));
      for (let pause = 1; uncaught === undefined && isBusy(); pause = Math.min(2 * pause, 20)) {
        await new Promise((done) => setTimeout(done, pause).unref());
      }
    } finally {
      process.off('uncaughtException', note);
    }
    if (uncaught !== undefined) throw uncaught.error;
  };

  const state = globalThis[MARK] ?? begin();
  if (state.run !== run) Object.defineProperty(state, 'run', { value: run, configurable: true });
  // states of an earlier program have no such marks
  if (!(state.isFurnished ?? state.runs > 0)) furnish();
  if (source === undefined) {
    for (let round = 0; round < 8; round++) await execute(`${cwd()}/rehearsal_${round}`);
    return;
  }
  if (!(state.isRestricted ?? state.runs > 0)) restrict();
  const hasFiles = policies === null ? keepsFiles : policies.includes('filesystem');
  if ((hasFiles || keepsFiles) && !state.hasFiles) {
    state.hasFiles = true;
    addFiles();
  }
  addModules(state.modules ??= {});
  fs.rmSync(EMITTED, { recursive: true, force: true });
  await execute(`${cwd()}/main_${state.runs++}`);
}
