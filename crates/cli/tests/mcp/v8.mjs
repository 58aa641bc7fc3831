// Both official TypeScript clients against mcp-v8's tools:
// node v8.mjs PACKAGE TRANSPORT MODE PLACE TOKEN
import assert from 'node:assert/strict';
import { connect } from './v8_client.mjs';

const [which, transport, mode, place, token] = process.argv.slice(2);
const PATIENCE = 240_000; // against hangs only
const session = `ts-${which}-${transport}`;
const headers = { 'x-mcp-session-id': session, ...(token && { authorization: `Bearer ${token}` }) };

const stores = mode === 'heap' ? ['--heap-store=dir'] : ['--heap-store=dir', '--fs-store=dir'];
const flags = ['mcp-v8', ...stores, '--session-id', session];
const client = await connect(which, transport, place, { flags, headers });
const options = { timeout: PATIENCE };
const raw = (name, args = {}) => which === 'sdk'
  ? client.callTool({ name, arguments: args }, undefined, options)
  : client.callTool({ name, arguments: args }, options);
const call = async (name, args) => JSON.parse((await raw(name, args)).content[0].text);

async function run(code, more = {}) {
  const { execution_id } = await call('run_js', { code, ...more });
  for (const end = Date.now() + PATIENCE; ;) {
    const info = await call('get_execution', { execution_id });
    if (info.status !== 'running') {
      const page = await call('get_execution_output', { execution_id });
      return { ...info, printed: page.data };
    }
    assert(Date.now() < end, 'in time');
    await new Promise((done) => setTimeout(done, 20));
  }
}

assert(client.getInstructions().startsWith('JavaScript execution service'));
const names = (await client.listTools()).tools.map((tool) => tool.name);
assert.deepEqual(names, names.toSorted());
const count = mode === 'heap' ? 13 : 20;
assert.equal(names.length, count);
assert.equal((await client.listResources()).resources.length, 4);
const shown = await client.readResource({ uri: 'docs://tools' });
const list = JSON.parse(shown.contents[0].text);
assert.deepEqual([list.mode, list.tools.length], [mode, count]);

const first = await run('globalThis.list = [1]; globalThis.later = new Promise((done) => setTimeout(done, 20, 7))',
  { tags: { by: session } });
assert.equal(first.status, 'completed');
assert.equal((await run("list.push(2); throw new Error('no')")).heap, null);
assert.equal((await run('list.push(3); console.log(JSON.stringify(list), await later)')).printed, '[1,3] 7');
assert.equal((await run('console.log(list.length)', { heap: first.heap })).printed, '1');
assert.equal((await run('while (true) {}', { execution_timeout_secs: 1 })).status, 'timed_out');
await run(`artifact('${session}', 'image/png', new Uint8Array([137, 80]))`);
const image = (await raw('get_artifact', { key: session })).content[1];
assert.deepEqual([image.type, image.mimeType, image.data], ['image', 'image/png', 'iVA=']);
assert((await call('list_artifacts')).artifacts.some((one) => one.key === session));
assert.deepEqual(await call('get_heap_tags', { heap: first.heap }), { tags: { by: session } });
assert.deepEqual(await call('query_heaps_by_tags', { tags: { by: session } }),
  { results: [{ heap: first.heap, tags: { by: session } }] });
assert.deepEqual(await call('set_heap_tags', { heap: first.heap, tags: { a: '1' } }), { ok: true });
assert.deepEqual(await call('delete_heap_tags', { heap: first.heap, keys: 'a' }), { ok: true });
assert((await call('list_sessions')).sessions.includes(session));
const log = (await call('list_session_snapshots', { fields: 'index,output_heap' })).entries;
assert.deepEqual(log[0], { index: 0, output_heap: first.heap });

if (mode === 'heap+fs') {
  const write = (text, fs) => run(`process.chdir('/work'); await fs.writeFile('t', ${JSON.stringify(text)})`, { fs });
  const base = (await write('1\n2\n3\n')).fs;
  assert.equal((await call('fs_push', { ca_id: base, label: session })).status, 'advanced');
  const [ours, theirs] = [(await write('one\n2\n3\n', session)).fs, (await write('1\n2\nthree\n', session)).fs];
  assert.deepEqual(await call('fs_push', { ca_id: ours, label: session }),
    { status: 'rejected', label: session, current: base });
  assert.equal((await call('fs_push', { ca_id: ours, label: session, expected: base })).status, 'advanced');
  assert.deepEqual(await call('fs_push', { ca_id: theirs, detach: true }), { status: 'detached', ca_id: theirs });
  const merged = await call('fs_merge', { ours: session, theirs, base });
  assert.equal(merged.status, 'merged');
  const read = await run("console.log(list.length, await fs.readFile('t', 'utf8'))", { fs: merged.ca_id });
  assert.equal(read.printed, '1 one\n2\nthree\n');
  assert.deepEqual(await call('fs_label', { name: session, ca_id: merged.ca_id, message: 'both' }),
    { label: session, ca_id: merged.ca_id });
  assert.deepEqual(await call('fs_reset', { label: session, ca_id: base }), { label: session, ca_id: base });
  assert.deepEqual(await call('fs_pull', { label: session }), { label: session, ca_id: base });
  const { log: steps } = await call('fs_log', { label: session });
  assert.deepEqual(steps.map((step) => step.op), ['create', 'push', 'reset', 'reset']);
  assert((await call('fs_ls')).labels.some((one) => one.name === session && one.ca_id === base));
} else {
  assert((await call('fs_ls')).error.includes('not configured'));
}
const { execution_id } = await call('run_js', { code: 'await new Promise(() => {})' });
assert.deepEqual(await call('cancel_execution', { execution_id }), { ok: true });
assert((await call('list_executions')).executions.some((one) => one.execution_id === execution_id));
await assert.rejects(raw('get_artifact', {}));
await client.close();
console.log('fine');
process.exit(0);
