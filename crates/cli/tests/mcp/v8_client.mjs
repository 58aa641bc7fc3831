// A client of either official TypeScript package, over any transport.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const find = createRequire(`${process.env.STASIS_TEST_MCP}/`);
const load = async (name) => import(pathToFileURL(find.resolve(name)).href);

// The client and the class of its transport, under the names of either package.
async function parts(which) {
  if (which === 'client') {
    const own = await load('@modelcontextprotocol/client');
    const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
    return { ...own, StdioClientTransport };
  }
  const files = ['index', 'streamableHttp', 'sse', 'stdio'];
  const all = await Promise.all(files.map((file) => load(`@modelcontextprotocol/sdk/client/${file}.js`)));
  return Object.assign({}, ...all);
}

// Standard streams take flags, the others headers.
export async function connect(which, transport, place, { flags, headers }) {
  const own = await parts(which);
  const options = { requestInit: { headers } };
  const made = {
    http: () => new own.StreamableHTTPClientTransport(new URL(place), options),
    sse: () => new own.SSEClientTransport(new URL(place), {
      ...options,
      eventSourceInit: { fetch: (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...headers } }) },
    }),
    stdio: () => new own.StdioClientTransport({ command: process.env.STASIS, args: flags, env: { ...process.env } }),
  };
  const newest = which === 'client' && transport !== 'sse';
  const client = new own.Client({ name: 'test', version: '1' },
    newest ? { versionNegotiation: { mode: 'auto' } } : {});
  await client.connect(made[transport]());
  return client;
}
