// Both official TypeScript clients against `stasis mcp-v8` with modules, skills and texts of its own:
// node v8_setup.mjs PACKAGE TRANSPORT PLACE FLAGS TOKEN, with the flags as JSON
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { connect } from './v8_client.mjs';

const [which, transport, place, flags, token] = process.argv.slice(2);
const session = `setup-${which}-${transport}`;
const headers = { 'x-mcp-session-id': session, ...(token && { authorization: `Bearer ${token}` }) };
const client = await connect(which, transport, place,
  { flags: ['mcp-v8', ...JSON.parse(flags), '--session-id', session], headers });
const raw = (name, args = {}) => client.callTool({ name, arguments: args });
const call = async (name, args) => JSON.parse((await raw(name, args)).content[0].text);

async function run(code) {
  const { execution_id } = await call('run_js', { code });
  for (const end = Date.now() + 240_000; ;) {
    const info = await call('get_execution', { execution_id });
    if (info.status !== 'running') return (await call('get_execution_output', { execution_id })).data;
    assert(Date.now() < end, 'in time');
    await new Promise((done) => setTimeout(done, 20));
  }
}

assert.equal(client.getInstructions(), 'Count with care.');
const { tools } = await client.listTools();
const run_js = tools.find((tool) => tool.name === 'run_js');
assert.equal(run_js.description, '@runs');
const stub = tools.at(-1);
assert.equal(stub.name, 'do__wasm__counter');
assert(stub.description.includes('Counts up.') && stub.description.includes('next()'));
assert((await raw('do__wasm__counter')).content[0].text.includes('run_js'));
assert.equal(await run('console.log(counter.next())'), '1');
assert.equal(await run('console.log(counter.next(), typeof __wasm_counter)'), '2 object');
const { code, stdout } = JSON.parse(await run(
  "console.log(JSON.stringify(await child_process.exec('echo $WORD; exit 3', { env: { WORD: 'hi' } })))"));
assert.deepEqual([code, stdout], [3, 'hi\n']);

const { resources } = await client.listResources();
const skill = resources.find((one) => one.uri === 'skill://count/SKILL.md');
assert.deepEqual([skill.name, skill.mimeType], ['count', 'text/markdown']);
const { contents } = await client.readResource({ uri: skill.uri });
assert(contents[0].text.includes('counter.next()'));
const digest = createHash('sha256').update(contents[0].text).digest('hex');
assert.equal(digest, process.env.SKILL_DIGEST);
await client.close();
console.log('fine');
process.exit(0);
