// Both official TypeScript clients: node session.mjs PACKAGE TRANSPORT PLACE TOKEN
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [which, transport, place, token] = process.argv.slice(2);
const find = createRequire(`${process.env.STASIS_TEST_MCP}/`);
const load = async (name) => import(pathToFileURL(find.resolve(name)).href);
const headers = { authorization: `Bearer ${token}` };

async function connect() {
  const info = { name: 'test', version: '1' };
  const stdio = { command: process.env.STASIS, args: ['--url', place, 'mcp'],
    env: { ...process.env, STASIS_TOKEN: token } };
  let client, made;
  if (which === 'sdk') {
    const base = '@modelcontextprotocol/sdk/client';
    const { Client } = await load(`${base}/index.js`);
    client = new Client(info);
    if (transport === 'http') {
      const { StreamableHTTPClientTransport } = await load(`${base}/streamableHttp.js`);
      made = new StreamableHTTPClientTransport(new URL(`${place}/mcp`), { requestInit: { headers } });
    } else if (transport === 'sse') {
      const { SSEClientTransport } = await load(`${base}/sse.js`);
      made = new SSEClientTransport(new URL(`${place}/sse`), { requestInit: { headers } });
    } else {
      const { StdioClientTransport } = await load(`${base}/stdio.js`);
      made = new StdioClientTransport(stdio);
    }
  } else {
    const own = await load('@modelcontextprotocol/client');
    const mode = transport === 'sse' ? {} : { versionNegotiation: { mode: 'auto' } };
    client = new own.Client(info, mode);
    if (transport === 'http') {
      made = new own.StreamableHTTPClientTransport(new URL(`${place}/mcp`), { requestInit: { headers } });
    } else if (transport === 'sse') {
      made = new own.SSEClientTransport(new URL(`${place}/sse`), { requestInit: { headers } });
    } else {
      const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
      made = new StdioClientTransport(stdio);
    }
  }
  await client.connect(made);
  return client;
}

const client = await connect();
const call = (name, args, options) => which === 'sdk'
  ? client.callTool({ name, arguments: args }, undefined, options)
  : client.callTool({ name, arguments: args }, options);

const first = await call('run_code', { code: 'rows = list(range(10))\nsum(rows)' });
const { machine, value } = first.structuredContent;
assert.equal(value, '45');
const plot = `
import matplotlib
matplotlib.use('agg')
import matplotlib.pyplot as plt
fig, ax = plt.subplots(figsize=(2, 2))
ax.plot(rows)
print('drawn')
fig`;
const drawn = await call('run_code', { machine, code: plot, timeout_seconds: 120 });
assert.deepEqual(drawn.content.slice(0, 2).map((part) => part.type), ['text', 'image']);
await call('write_file', { machine, path: '/tmp/a.txt', content: 'hello' });
const read = await call('read_file', { machine, path: '/tmp/a.txt' });
assert.equal(read.structuredContent.content, 'hello');

const stop = new AbortController();
const options = { signal: stop.signal, timeout: 120_000, onprogress: () => stop.abort('given up') };
const endless = "kept = 'yes'\nprint('on', flush=True)\nwhile True: pass";
await assert.rejects(call('run_code', { machine, code: endless, timeout_seconds: 600 }, options));
for (;;) {
  const shown = await call('show_history', { machine, limit: 1 });
  if (shown.structuredContent.instructions.at(-1).status === 'interrupted') break;
  await new Promise((done) => setTimeout(done, 50));
}
const kept = await call('run_code', { machine, code: 'kept' });
assert.equal(kept.structuredContent.value, "'yes'");
await client.close();
console.log('fine');
process.exit(0);
