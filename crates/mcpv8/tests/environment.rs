//! The environment of code, row by row of section 5 of mcp-v8's description: each row is code that
//! runs, and its output here. `differs` says why that differs from mcp-v8's output.

use stasis_mcpv8::{V8, V8Mode, V8RunRequest};
use stasis_testbed::{TestHost, until};

const ACCOUNT: &str = "test";

struct Row {
    section: &'static str,
    about: &'static str,
    code: &'static str,
    printed: &'static str,
    differs: Option<&'static str>,
}

const fn works(
    section: &'static str,
    about: &'static str,
    code: &'static str,
    printed: &'static str,
) -> Row {
    Row { section, about, code, printed, differs: None }
}

const fn differs(row: Row, why: &'static str) -> Row {
    Row { differs: Some(why), ..row }
}

/// The minimum common set of the web's globals.
const GLOBALS: &str = "for (const name of ['AbortController', 'AbortSignal', 'Blob', \
    'ByteLengthQueuingStrategy', \
    'CompressionStream', 'CountQueuingStrategy', 'Crypto', 'CryptoKey', 'DecompressionStream', \
    'DOMException', \
    'Event', 'EventTarget', 'File', 'FormData', 'Headers', 'MessageChannel', 'MessageEvent', \
    'MessagePort', \
    'ReadableByteStreamController', 'ReadableStream', 'ReadableStreamBYOBReader', \
    'ReadableStreamBYOBRequest', \
    'ReadableStreamDefaultController', 'ReadableStreamDefaultReader', 'Request', 'Response', \
    'SubtleCrypto', \
    'TextDecoder', 'TextDecoderStream', 'TextEncoder', 'TextEncoderStream', 'TransformStream', \
    'TransformStreamDefaultController', 'URL', 'URLPattern', 'URLSearchParams', 'WebAssembly', \
    'WritableStream', \
    'WritableStreamDefaultController', 'WritableStreamDefaultWriter', 'atob', 'btoa', \
    'clearInterval', \
    'clearTimeout', 'console', 'crypto', 'fetch', 'globalThis', 'navigator', 'performance', \
    'queueMicrotask', \
    'self', 'setInterval', 'setTimeout', 'structuredClone', 'setImmediate', 'WebSocket', 'Intl', \
    'artifact']) \
    if (globalThis[name] === undefined) console.log(name)";

const MODULES: &str = "for (const name of ['assert', 'assert/strict', 'buffer', 'console', \
    'crypto', 'dns', 'events', \
    'fs', 'fs/promises', 'http', 'http2', 'https', 'module', 'net', 'os', 'path', 'process', \
    'querystring', \
    'stream', 'stream/web', 'timers', 'timers/promises', 'tls', 'url', 'util', 'zlib', \
    'child_process', \
    'worker_threads', 'async_hooks', 'dgram', 'perf_hooks', 'tty', 'test', 'vm', 'readline']) \
    await import(`node:${name}`); console.log('all')";

const ROWS: &[Row] = &[
    works(
        "5.1",
        "top-level await and import",
        "console.log(await (await import('node:path')).basename('/a'))",
        "a",
    ),
    works("5.1", "export", "export default 1; console.log(2)", "2"),
    works("5.1", "no completion value", "40 + 2", ""),
    works(
        "5.1",
        "the event loop runs to its end",
        "setTimeout(() => console.log('late'), 30)",
        "late",
    ),
    works(
        "5.1",
        "types, enums and generics",
        "enum E { A = 2 } const f = <T,>(x: T): T => x; console.log(f(E.A))",
        "2",
    ),
    works("5.1", "casts with brackets", "const x = <number>(1 as unknown); console.log(x)", "1"),
    differs(
        works(
            "5.1",
            "the module's name",
            "console.log(new URL(import.meta.url).pathname.split('/').pop())",
            "main_0.mjs",
        ),
        "a file of its own, which Node names with .mjs",
    ),
    works("5.2", "globals of the web", GLOBALS, ""),
    differs(
        works(
            "5.2",
            "no Buffer, process, require",
            "console.log(typeof Buffer, typeof process, typeof require)",
            "function object function",
        ),
        "all of Node's globals are there",
    ),
    differs(
        works("5.2", "Deno has only core", "console.log(Object.keys(Deno).join())", "Command"),
        "Deno.Command is there, and nothing of the runtime",
    ),
    differs(
        works(
            "5.2",
            "SubtleCrypto: digest and HMAC",
            "console.log((await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, \
             true, ['encrypt'])).type)",
            "secret",
        ),
        "all of Node's",
    ),
    differs(
        works(
            "5.2",
            "fetch needs a policy",
            "try { await fetch('http://127.0.0.1:9/') } catch (error) { \
             console.log(error.message) }",
            "fetch failed",
        ),
        "it is there, and reaches what the machine's network allows",
    ),
    works("5.3", "log, debug, dir", "console.log(1); console.debug(2); console.dir(3)", "1\n2\n3"),
    works(
        "5.3",
        "prefixes",
        "console.info(1); console.warn(2); console.error(3); console.assert(false, 4)",
        "[INFO] 1\n[WARN] 2\n[ERROR] 3\n[ERROR] Assertion failed: 4",
    ),
    works(
        "5.3",
        "directives",
        "console.log('%s %d %i %f %o %%', 'a', 1, 2.5, 3.5, 4)",
        "a 1 2 3.5 4 %",
    ),
    works("5.3", "count", "console.count('c'); console.count('c')", "c: 1\nc: 2"),
    differs(
        works(
            "5.3",
            "objects",
            "console.log({ a: { b: { c: { d: 1 } } } })",
            "{ a: { b: { c: [Object] } } }",
        ),
        "util.inspect of Node, depth 2",
    ),
    differs(
        works(
            "5.3",
            "group does not indent",
            "console.group('g'); console.log(1); console.groupEnd()",
            "g\n  1",
        ),
        "Node's does",
    ),
    works(
        "5.4",
        "timers and their clear forms",
        "const a = setTimeout(() => console.log('no'), 1); clearTimeout(a); const b = \
         setInterval(() => { console.log('tick'); clearInterval(b) }, 1); setImmediate(() => \
         console.log('now'))",
        "now\ntick",
    ),
    works(
        "5.4",
        "Timeout objects",
        "const t = setTimeout(() => {}, 1); console.log(typeof +t, t.hasRef(), t.unref().hasRef())",
        "number true false",
    ),
    works("5.5", "node: modules", MODULES, "all"),
    differs(
        works(
            "5.5",
            "npm: and URLs need a flag",
            "try { await import('npm:left-pad') } catch (error) { \
             console.log(error.message.includes('npm:left-pad')) }",
            "true",
        ),
        "the setting `imports` of the service allows them",
    ),
    works(
        "5.6",
        "fs: write, append, read",
        "process.chdir('/work'); \
         await fs.writeFile('a', 'x'); await fs.appendFile('a', 7); \
         console.log(await fs.readFile('a', 'utf8'), (await fs.readFile('a')).length)",
        "x7 2",
    ),
    works(
        "5.6",
        "fs: names, stats, existence",
        "process.chdir('/work'); \
         await fs.mkdir('d/e', { recursive: true }); await fs.writeFile('d/f', ''); \
         console.log(await fs.readdir('d'), (await fs.stat('d')).isDirectory(), \
         await fs.exists('no'))",
        "[ 'e', 'f' ] true false",
    ),
    works(
        "5.6",
        "fs: links, copies, renames",
        "process.chdir('/work'); \
         await fs.writeFile('a', '1'); await fs.symlink('a', 'l'); await \
         fs.copyFile('a', 'b'); await fs.rename('b', 'c'); \
         console.log(await fs.readlink('l'), (await fs.lstat('l')).isSymbolicLink(), \
         await fs.promises.readFile('c', 'utf8'))",
        "a true 1",
    ),
    works(
        "5.6",
        "fs: removal, streams",
        "process.chdir('/work'); \
         const s = fs.createWriteStream('s'); await s.write('ab'); await s.close(); await \
         fs.unlink('s'); await fs.rm('no', { force: true }); console.log(await \
         fs.exists('s'))",
        "false",
    ),
    works(
        "5.6",
        "fs: errors have Node's codes",
        "process.chdir('/work'); \
         try { await fs.readFile('no') } catch (error) { console.log(error.code) }",
        "ENOENT",
    ),
    works(
        "5.6",
        "child_process.exec",
        "const e = await child_process.exec('echo hi; exit 2'); console.log(JSON.stringify(e))",
        r#"{"code":2,"success":false,"stdout":"hi\n","stderr":""}"#,
    ),
    works(
        "5.6",
        "Deno.Command",
        "const e = await new Deno.Command('echo', { args: ['hi'] }).output(); \
         console.log(e.stdout.length, e.success)",
        "3 true",
    ),
    differs(
        works(
            "5.6",
            "mcp is there with upstream servers",
            "console.log(typeof globalThis.mcp, mcp.servers.length)",
            "object 0",
        ),
        "always there: a machine outlives changes of its servers",
    ),
    works(
        "5.6",
        "artifact: bounds",
        "for (const args of [['', 'a/b', 'x'], ['k', 'ab', 'x'], ['k', 'a/b', 7]]) try { \
         artifact(...args) } catch (error) { console.log(error.name) }",
        "TypeError\nTypeError\nTypeError",
    ),
    works(
        "5.6",
        "artifact: kinds of bytes",
        "for (const bytes of ['a', new Uint8Array(1), new DataView(new ArrayBuffer(1)), new \
         ArrayBuffer(1), new Uint16Array(1)]) artifact('k', 'a/b', bytes)",
        "",
    ),
    works(
        "5.7",
        "WebAssembly in code",
        "console.log(WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])))",
        "true",
    ),
    differs(
        works("5.8", "no environment", "console.log(typeof process.env.PATH)", "string"),
        "that of the machine; nothing of the service is in it",
    ),
    differs(
        works(
            "5.9",
            "__bootstrap",
            "console.log(typeof globalThis.__bootstrap, typeof SharedArrayBuffer)",
            "undefined function",
        ),
        "there is nothing to hide: the machine is the sandbox",
    ),
];

#[test]
fn the_environment_of_code() {
    let bed = TestHost::of("javascript");
    let v8 = V8::new(bed.host.clone());
    let mut wrong = Vec::new();
    let submit = |row: &Row| {
        let (code, mode) = (Some(row.code.to_owned()), V8Mode::Files);
        v8.run(ACCOUNT, V8RunRequest { code, mode, ..V8RunRequest::default() }).expect("accepted")
    };
    let ids: Vec<_> = ROWS.iter().map(submit).collect();
    for (row, id) in ROWS.iter().zip(ids) {
        until("the run is over", || v8.open_execution(ACCOUNT, &id).is_none());
        let (info, printed) = v8.finished(ACCOUNT, &id).expect("an execution");
        if (info.status.as_str(), &*printed) != ("completed", row.printed) {
            let Row { section, about, printed: wanted, .. } = row;
            let error = info.error.unwrap_or_default();
            wrong.push(format!("{section} {about}: {printed:?}, not {wanted:?} {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let others = ROWS.iter().filter(|row| row.differs.is_some()).count();
    println!("{} rows work, {others} differ on purpose", ROWS.len() - others);
}
