// Proves: children of Node survive with the pipes and IPC channels to them, and new ones can be started, also
// synchronously.
// How: a `cat` echoes over pipes, a forked Node child answers over IPC from state of its own; execSync and
// spawnSync run anew (they wait on libuv's own pipes: one lost byte there and they hang for ever).
'use strict';
const { execSync, fork, spawn } = require('child_process');
const { expect, inTime, run } = require('./program.js');

if (process.argv[2] === 'child') {
  let total = 0;
  process.on('message', (n) => { total += n; process.send(total); });
  process.on('disconnect', () => process.exit(0));
} else {
  let steps = 0, cat, child, exits = [];
  const line = () => inTime('cat', new Promise((resolve) => cat.stdout.once('data', (data) => resolve(String(data).trim()))));
  const ask = (n) => inTime('child', new Promise((resolve) => { child.once('message', resolve); child.send(n); }));
  run({
    async setup() {
      cat = spawn('cat', { stdio: ['pipe', 'pipe', 'inherit'] });
      child = fork(__filename, ['child']);
      for (const one of [cat, child]) one.on('exit', (code, signal) => exits.push([code, signal]));
      await ask(0);
    },
    async check() {
      const heard = line();
      cat.stdin.write(`hello ${steps}\n`);
      expect('cat', await heard, `hello ${steps}`);
      expect('child', await ask(0), steps * 7);
      expect('children ended', exits, []);
      expect('execSync', String(execSync('echo $((6*7)); exit 0')).trim(), '42');
      const code = await inTime('spawn', new Promise((resolve) => spawn('sh', ['-c', 'exit 9']).on('exit', resolve)));
      expect('exit code of a new child', code, 9);
    },
    async step() { steps++; await ask(7); },
    digest: () => steps,
    finish() { cat.kill('SIGKILL'); child.disconnect(); },
  });
}
