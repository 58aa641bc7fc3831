// Shell commands of instructions: their output goes straight through the descriptors.
//
// A command is a session of its own, so that an interrupt ends all of it. How it exited is told by
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
    // it has ended by itself
  }
}

Object.assign(exports, { shell });
