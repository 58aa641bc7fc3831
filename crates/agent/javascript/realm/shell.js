// Shell commands of instructions: their output goes straight through the descriptors.
//
// A command runs in its own session, so that an interrupt ends all of it. Its exit is reported by
// number.
'use strict';

const { global, signals, spawn } = node;
const { Promise } = global;
const { kill } = node.process;
const { onInterrupt } = use('session');

const SHELLS = ['/bin/bash', '/usr/bin/bash', '/bin/sh'];
const program = SHELLS.find((path) => node.fs.existsSync(path));

function shell(command) {
  const stdio = ['ignore', 'inherit', 'inherit'];
  return new Promise((resolve, reject) => {
    const child = spawn(program, ['-c', command], { stdio, detached: true });
    const forget = onInterrupt(() => end(child.pid));
    child.on('error', (error) => (forget(), reject(error)));
    child.on('close', (code, signal) => (forget(), resolve(code ?? 128 + (signals[signal] ?? 0))));
  });
}

function end(pid) {
  try {
    kill(-pid, 'SIGKILL');
  } catch {
    // it has exited
  }
}

Object.assign(exports, { shell });
