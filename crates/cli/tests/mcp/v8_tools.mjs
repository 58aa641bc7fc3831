// Both official TypeScript clients against `stasis mcp-v8` with upstream servers:
// node v8_tools.mjs PACKAGE TRANSPORT PLACE FLAGS, with the flags as JSON
import assert from 'node:assert/strict';
import { connect } from './v8_client.mjs';

const [which, transport, place, flags] = process.argv.slice(2);
const session = `tools-${which}-${transport}`;
const client = await connect(which, transport, place,
  { flags: ['mcp-v8', ...JSON.parse(flags), '--session-id', session], headers: { 'x-mcp-session-id': session } });
const raw = (name, args = {}) => client.callTool({ name, arguments: args });
const call = async (name, args) => JSON.parse((await raw(name, args)).content[0].text);

async function run(code) {
  const { execution_id } = await call('run_js', { code });
  for (const end = Date.now() + 240_000; ;) {
    const info = await call('get_execution', { execution_id });
    if (info.status !== 'running') {
      const { data } = await call('get_execution_output', { execution_id });
      return info.error ? `${data}${info.error}` : data;
    }
    assert(Date.now() < end, 'in time');
    await new Promise((done) => setTimeout(done, 20));
  }
}

const { tools } = await client.listTools();
const stub = tools.find((tool) => tool.name === 'do__issues__create_issue');
assert(stub.description.startsWith('[') && stub.description.includes('mcp.callTool("issues", "create_issue"'));
assert(stub.description.includes('Create an issue.'));
assert.deepEqual(stub.inputSchema.required, ['title']);
assert.equal(stub.annotations, undefined);
assert(tools.some((tool) => tool.name === 'do__web__echo'));
// a stub is not called itself: it says how
const said = (await raw(stub.name, { title: 'x' })).content[0].text;
assert(said.includes('mcp.callTool("issues", "create_issue", {"title":"x"})'), said);
assert.equal((await raw('do__nobody__x').catch(() => ({ isError: true }))).isError, true);

assert.equal(await run('console.log(mcp.servers.join())'), 'issues,web');
assert((await run("console.log(mcp.listTools('web').map((tool) => tool.name).join())")).includes('echo'));
assert.equal(await run("console.log((await mcp.callTool('web', 'echo', { text: 'é' })).content[0].text)"), 'é');
const made = await run("console.log((await mcp.callTool('issues', 'create_issue', { title: 'x' })).isError)");
assert.equal(made, 'false');
const failed = await run("try { await mcp.callTool('issues', 'fail') } catch (error) { console.log(error.name) }");
assert.equal(failed, 'McpToolError');
const secret = await run("console.log((await mcp.callTool('issues', 'environment')).content.some((block) => block.text.includes('ISSUES_KEY')))");
assert.equal(secret, 'true');
await client.close();
console.log('fine');
process.exit(0);
