// An MCP server made with the official TypeScript package, which answers with JSON: node server.mjs PORT
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const find = createRequire(`${process.env.STASIS_TEST_MCP}/`);
const load = (name) => import(pathToFileURL(find.resolve(name)).href);
const { McpServer } = await load('@modelcontextprotocol/sdk/server/mcp.js');
const { StreamableHTTPServerTransport } = await load('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { z } = await load('zod');
const sessions = new Map();

async function opened() {
  const server = new McpServer({ name: 'typescript', version: '1' });
  server.registerTool('echo', { description: 'Return the text.', inputSchema: { text: z.string() } },
    async ({ text }) => ({ content: [{ type: 'text', text }] }));
  server.registerTool('sum', {
    description: 'Add.', inputSchema: { a: z.number(), b: z.number() }, outputSchema: { sum: z.number() },
  }, async ({ a, b }) => ({ content: [], structuredContent: { sum: a + b } }));
  server.registerTool('fail', { description: 'Fail.' }, async () => { throw new Error('it is broken'); });
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: true,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  await server.connect(transport);
  return transport;
}

createServer(async (request, response) => {
  const id = request.headers['mcp-session-id'];
  if (id && !sessions.has(id)) return response.writeHead(404).end();
  const transport = id ? sessions.get(id) : await opened();
  await transport.handleRequest(request, response);
}).listen(Number(process.argv[2]), '127.0.0.1');
