// Both official TypeScript clients: node session.mjs PACKAGE TRANSPORT PLACE TOKEN
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [which, transport, place, token] = process.argv.slice(2);
const find = createRequire(`${process.env.STASIS_TEST_MCP}/`);
const load = async (name) => import(pathToFileURL(find.resolve(name)).href);
const headers = { authorization: `Bearer ${token}` };
const PATIENCE = 240_000; // against hangs only

// The client and the class of its transport, under the names of either package.
async function parts() {
  if (which === 'client') {
    const own = await load('@modelcontextprotocol/client');
    const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
    return { ...own, StdioClientTransport };
  }
  const files = ['index', 'streamableHttp', 'sse', 'stdio'];
  const all = await Promise.all(files.map((file) => load(`@modelcontextprotocol/sdk/client/${file}.js`)));
  return Object.assign({}, ...all);
}

async function connect() {
  const own = await parts();
  const at = transport === 'stdio' ? ['--url', place] : ['--data-dir', place];
  const made = {
    http: () => new own.StreamableHTTPClientTransport(new URL(`${place}/mcp`), { requestInit: { headers } }),
    sse: () => new own.SSEClientTransport(new URL(`${place}/sse`), { requestInit: { headers } }),
    stdio: () => new own.StdioClientTransport({ command: process.env.STASIS, args: [...at, 'mcp'],
      env: { ...process.env, STASIS_TOKEN: token } }),
  };
  // the older transport has no way to ask for the newest revision
  const newest = which === 'client' && transport !== 'sse';
  const options = newest ? { versionNegotiation: { mode: 'auto' } } : {};
  const client = new own.Client({ name: 'test', version: '1' }, options);
  await client.connect((made[transport] ?? made.stdio)());
  return client;
}

const client = await connect();
const call = (name, args, options = { timeout: PATIENCE }) => which === 'sdk'
  ? client.callTool({ name, arguments: args }, undefined, options)
  : client.callTool({ name, arguments: args }, options);
const until = async (look) => {
  for (const end = Date.now() + PATIENCE; !(await look());) {
    assert(Date.now() < end, 'in time');
    await new Promise((done) => setTimeout(done, 50));
  }
};

const made = await call('branch_machine', { machine: 'base' });
const machine = made.structuredContent.machines[0].name;
const run = (code) => call('run_code', { machine, code, timeout_seconds: 240 });

const table = 'name,amount\n' + [...Array(10).keys()].map((n) => `row${n},${n}\n`).join('');
await call('write_file', { machine, path: '/tmp/in.csv', content: table });
const first = await run("df = pd.read_csv('/tmp/in.csv')\nint(df.amount.sum())");
assert.equal(first.structuredContent.value, '45');
assert.equal(first.structuredContent.receipt.intact, true);

const drawn = await run("fig, ax = plt.subplots(figsize=(2, 2))\nax.plot(df.amount)\nprint('drawn')\nfig");
assert.deepEqual(drawn.content.slice(0, 2).map((part) => part.type), ['text', 'image']);
assert(drawn.content[0].text.startsWith('drawn'));
assert(Buffer.from(drawn.content[1].data, 'base64').subarray(1, 4).equals(Buffer.from('PNG')));

await run("df[:1].to_csv('/tmp/out.csv', index=False)");
const read = await call('read_file', { machine, path: '/tmp/out.csv' });
assert.equal(read.structuredContent.content, 'name,amount\nrow0,0\n');

const wrong = await run("print('before')\n1/0");
assert.equal(wrong.isError, true);
assert.equal(wrong.structuredContent.stdout, 'before');

const stop = new AbortController();
const options = { signal: stop.signal, timeout: PATIENCE, onprogress: () => stop.abort('given up') };
const endless = "kept = 'yes'\nprint('on', flush=True)\nwhile True: pass";
await assert.rejects(call('run_code', { machine, code: endless, timeout_seconds: 600 }, options));
await until(async () => {
  const shown = await call('show_history', { machine, limit: 1 });
  return shown.structuredContent.instructions.at(-1).status === 'interrupted';
});
assert.equal((await run('kept')).structuredContent.value, "'yes'");

const transcript = await client.readResource({ uri: `stasis://machine/${machine}/transcript` });
assert(transcript.contents[0].text.includes('df.amount.sum()'));

if (which === 'sdk') {
  // a call that is a task from the start
  const params = { name: 'run_code', arguments: { machine, code: "import time; time.sleep(0.5); 'slept'" } };
  const kinds = [];
  const stream = client.experimental.tasks.callToolStream(params, undefined, { task: {}, timeout: PATIENCE });
  for await (const message of stream) {
    kinds.push(message.type);
    if (message.type === 'result') assert.equal(message.result.structuredContent.value, "'slept'");
  }
  assert.equal(kinds[0], 'taskCreated');
  assert.equal(kinds.at(-1), 'result');
}
await client.close();
console.log('fine');
process.exit(0);
