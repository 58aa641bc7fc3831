// What plain Node says to a transcript, without a machine: its inspector evaluates each instruction as
// a prompt does. One line of JSON for each: the value as text, the error's name and message, and what
// was printed.
'use strict';

const { readFileSync } = require('node:fs');
const { Session } = require('node:inspector');
const { inspect } = require('node:util');

const write = process.stdout.write.bind(process.stdout);
const session = new Session();
session.connect();
globalThis.require = require;

function post(method, params) {
  return new Promise((done, failed) => {
    session.post(method, params, (error, result) => (error ? failed(error) : done(result)));
  });
}

// The value behind a remote object, in a box: it may be a promise, which is not to be awaited.
async function boxed({ objectId, unserializableValue, value }) {
  const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
  const expression = '(value) => { globalThis.taken = { value } }';
  const { result } = await post('Runtime.evaluate', { expression });
  const functionDeclaration = 'function (value) { this(value) }';
  const params = { functionDeclaration, objectId: result.objectId, arguments: [argument] };
  await post('Runtime.callFunctionOn', params);
  const { taken } = globalThis;
  delete globalThis.taken;
  return taken;
}

async function main() {
  for (const expression of readFileSync(process.argv[2], 'utf8').split('// ---\n')) {
    let printed = '';
    process.stdout.write = (text) => ((printed += text), true);
    const params = { expression, replMode: true, awaitPromise: true };
    const { result, exceptionDetails } = await post('Runtime.evaluate', params);
    process.stdout.write = write;
    const { value } = await boxed(exceptionDetails?.exception ?? result);
    const thrown = exceptionDetails !== undefined;
    const shown = thrown || value === undefined ? null : inspect(value, { showProxy: true });
    const error = thrown ? [value.name, value.message] : null;
    const lines = printed === '' ? [] : printed.replace(/\n$/, '').split('\n');
    write(`${JSON.stringify([shown, error, lines])}\n`);
  }
  process.exit(0);
}

main();
