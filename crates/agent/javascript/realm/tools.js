// Tools of upstream servers: `stasis.tools.SERVER.TOOL({...})`, and mcp-v8's `mcp.callTool`.
//
//   call ─► arguments as JSON ─► host: policy, perhaps a person, server ─► promise of a value
//
// The host answers over the control socket while the agent waits, so the event loop stands still
// meanwhile, and a machine needs no network. The machine may leave memory and come back before the
// answer: then a wake order comes first. Only the main thread can ask, while an instruction runs.
'use strict';

const { global, native, stringify } = node;
const { Error: UserError, JSON: UserJSON, Promise: UserPromise, Proxy: UserProxy } = global;
const { parse } = UserJSON;
const { apply } = Reflect;

const LONGEST = 1 << 20;
const LONGEST_EFFECT = 8 << 20;
const DEEPEST = 60;
const FOREVER = -1;

// The number of the instruction under way, if its host has tools.
let seq;
let last = 0;
let waits = false;
let onWake;
// Lists of tools by server: what they are, and the instruction that read them.
const lists = new Map();

function begin(number) {
  seq = number;
  waits = false;
}

function define(object, name, value) {
  node.defineProperty(object, name, { value, writable: true, configurable: true });
}

function failure(message, code, more = {}) {
  const error = new UserError(message);
  define(error, 'name', code === 'tool.denied' || code === 'tool.expired' ? 'ToolDenied' : 'ToolError');
  define(error, 'code', code);
  for (const name of Object.keys(more)) define(error, name, more[name]);
  return error;
}

// The text of the host's answer to a request.
function ask(what) {
  if (seq === undefined) {
    throw failure('tools can be called only while an instruction runs', 'tool.unavailable');
  }
  if (waits) throw failure('another call is under way', 'tool.unavailable');
  last += 1;
  const own = last;
  waits = true;
  try {
    return answer(own, `{"type":"tool","seq":${seq},"id":${own},"what":${what}}`);
  } finally {
    waits = false;
  }
}

function answer(own, report) {
  for (let text = report; ; text = '') {
    const line = native.ask(text, FOREVER);
    if (line === undefined) throw failure('the call was interrupted', 'tool.interrupted');
    const order = JSON.parse(line);
    if (order.op === 'wake') onWake(order);
    // an answer for an instruction that was interrupted may come first
    else if (order.op === 'tool' && order.id === own) return order.answer;
  }
}

// A value of the agent's realm as one of user code's.
function own(value) {
  return value === undefined ? undefined : apply(parse, UserJSON, [JSON.stringify(value)]);
}

function depth(value) {
  let [deepest, level] = [0, [value]];
  while (level.length > 0 && deepest <= DEEPEST) {
    const next = [];
    for (const one of level) {
      if (typeof one === 'object' && one !== null) next.push(...Object.values(one));
    }
    level = next;
    deepest += 1;
  }
  return deepest;
}

// The result of a call as the host has it.
function call(server, tool, given) {
  let text = '{}';
  if (given !== undefined && given !== null) {
    text = stringify(given);
    if (typeof given !== 'object' || text === undefined || text[0] !== '{') {
      throw failure('the arguments of a tool are one object', 'tool.invalid', { server, tool });
    }
    if (text.length > LONGEST) {
      throw failure('the arguments have more than 1 MiB', 'tool.too_large', { server, tool });
    }
    if (depth(JSON.parse(text)) > DEEPEST) {
      throw failure('the arguments are nested deeper than 60', 'tool.too_large', { server, tool });
    }
  }
  const name = JSON.stringify({ kind: 'call', server: `${server}`, tool: `${tool}` });
  const found = ask(`${name.slice(0, -1)},"arguments":${text}}`);
  if (found.kind === 'failed') {
    throw failure(found.message, found.code, { server, tool });
  }
  return found;
}

// --- stasis.tools ---------------------------------------------------------------------------------

function list(server) {
  const known = lists.get(server);
  if (known !== undefined && known.seq === seq) return known;
  const what = { kind: 'list', server, etag: known?.etag ?? null };
  const found = ask(JSON.stringify(what));
  if (found.kind === 'failed') throw failure(found.message, found.code, { server });
  const kept = found.kind === 'tools' ? { etag: found.etag, tools: found.tools } : known;
  lists.set(server, { ...kept, seq });
  return lists.get(server);
}

function servers() {
  return ask('{"kind":"servers"}').servers;
}

// A name as code can write it.
function safe(name) {
  return name.replace(/[^A-Za-z0-9]/g, '_').replace(/^_+/, '') || 'tool';
}

function text(content) {
  return content
    .filter(({ type }) => type === 'text')
    .map((block) => block.text)
    .join('\n');
}

// Whether a server put a plain value into an object, as the SDKs for Python do.
function isWrapped(tool, output, structured) {
  const keys = Object.keys(structured);
  const marked = output?.title === `${tool}Output` || output?.['x-fastmcp-wrap-result'] === true;
  return marked && keys.length === 1 && keys[0] === 'result';
}

// What a call of `stasis.tools` is resolved with: the structured result, a text, or media.
function valueOf({ content, structured, is_error: isError }, server, tool, output) {
  if (isError) {
    const more = { server, tool, content: own(content) };
    throw failure(text(content) || 'the tool failed', 'tool.failed', more);
  }
  if (structured !== undefined) {
    return own(isWrapped(tool, output, structured) ? structured.result : structured);
  }
  const values = content.map((block) => {
    if (block.type === 'text') return block.text;
    if (block.type === 'image' || block.type === 'audio') return media(block);
    return own(block);
  });
  return values.length === 1 ? values[0] : values.length === 0 ? undefined : node.list(...values);
}

function media({ data, mimeType }) {
  const bytes = node.bytes(data);
  const made = own({ mimeType });
  made.data = bytes;
  if (mimeType.startsWith('image/')) {
    define(made, global.Symbol.for('Jupyter.display'), () => own({ [mimeType]: data }));
  }
  return made;
}

// A promise of what a function returns or throws.
function promised(work) {
  return new UserPromise((resolve, reject) => {
    try {
      resolve(work());
    } catch (error) {
      reject(error);
    }
  });
}

function toolNamed(server, name) {
  const { tools } = list(server);
  const exact = tools.filter((tool) => tool.name === name);
  const found = exact.length > 0 ? exact : tools.filter((tool) => safe(tool.name) === name);
  if (found.length === 1) return found[0];
  const what = found.length === 0 ? 'no tool' : 'several tools called';
  throw failure(`tool server '${server}' has ${what} '${name}'`, 'tool.not_found', { server });
}

function serverProxy(server) {
  return new UserProxy(own({}), {
    __proto__: null,
    get: (target, name) => {
      // asked by `await` and by what shows values
      if (typeof name !== 'string' || name === 'then' || name === 'toJSON') return undefined;
      return (given) =>
        promised(() => {
          const { name: tool, output_schema: output } = toolNamed(server, name);
          return valueOf(call(server, tool, given), server, tool, output);
        });
    },
    ownKeys: () => (seq === undefined ? node.list() : node.list(...list(server).tools.map((one) => one.name))),
    has: (target, name) => list(server).tools.some((one) => one.name === name),
    getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }),
  });
}

function toolsProxy() {
  return new UserProxy(own({}), {
    __proto__: null,
    get: (target, name) => {
      if (typeof name !== 'string' || name === 'then' || name === 'toJSON') return undefined;
      const found = servers().find((one) => one === name || one.replaceAll('-', '_') === name);
      return found === undefined ? undefined : serverProxy(found);
    },
    ownKeys: () => (seq === undefined ? node.list() : node.list(...servers())),
    has: (target, name) => servers().includes(name),
    getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }),
  });
}

// --- mcp ------------------------------------------------------------------------------------------

function mcpError(message, serverName, toolName, result) {
  const error = new UserError(message);
  define(error, 'name', 'McpToolError');
  define(error, 'result', result);
  define(error, 'serverName', serverName);
  define(error, 'toolName', toolName);
  return error;
}

function callTool(server, tool, given) {
  return promised(() => {
    let found;
    try {
      found = call(server, tool, given);
    } catch (error) {
      if (error.code !== 'tool.denied') throw error;
      const said = `mcp.callTool denied by policy: ${server}.${tool} is not allowed`;
      define(error, 'message', `${said} (${error.message})`);
      throw error;
    }
    const { content, structured, is_error: isError } = found;
    const result = own({ content, isError, structuredContent: structured });
    if (isError) throw mcpError(text(content) || 'the tool failed', server, tool, result);
    return result;
  });
}

function listTools(server) {
  const all = server === undefined ? servers() : [`${server}`];
  const tools = all.flatMap((one) =>
    list(one).tools.map(({ name, description, input_schema: inputSchema }) => ({
      server: one,
      name,
      description,
      inputSchema,
    })),
  );
  return own(tools);
}

function mcp() {
  const made = own({});
  node.defineProperty(made, 'servers', { get: () => own(servers()), enumerable: true });
  define(made, 'listTools', listTools);
  define(made, 'callTool', callTool);
  return made;
}

// --- operations under policies ----------------------------------------------------------------------

// The host's answer about an operation: execute it with an input, its output, or an error.
function effect(what) {
  if (what.length > LONGEST_EFFECT) throw failure('the operation has more than 8 MiB', 'tool.too_large');
  const found = ask(what);
  if (found.kind === 'failed') {
    const error = new UserError(found.message);
    define(error, 'code', found.code);
    throw error;
  }
  return own(found);
}

function effects() {
  const made = own({});
  define(made, 'begin', (category, input) => {
    return effect(`{"kind":"effect","category":${JSON.stringify(`${category}`)},"input":${stringify(input) ?? 'null'}}`);
  });
  define(made, 'end', (call, output, error) => {
    const said = error === undefined ? 'null' : JSON.stringify(`${error}`);
    return effect(`{"kind":"effected","call":${Number(call)},"output":${stringify(output) ?? 'null'},"error":${said}}`);
  });
  return made;
}

function furnish(wake) {
  onWake = wake;
  node.defineProperty(global, Symbol.for('stasis.effects'), { value: effects() });
  define(global.stasis, 'tools', toolsProxy());
  define(global, 'mcp', mcp());
}

Object.assign(exports, { begin, furnish });
