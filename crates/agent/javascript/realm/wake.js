// Fresh randomness for a machine that is new, branched, or back in memory.
//
// Randomness used for security must differ from that of every other machine with the same memory:
// OpenSSL gets fresh entropy, and the bytes that Node drew in advance (for `randomUUID`,
// `randomInt`) are used up. `Math.random` is reseeded only on request.
'use strict';

const { environment, math, native } = node;

const UUIDS = 128;
const INTEGERS = 1024;
const ROUNDS = 8;

let own = node.random;
// The variables of the template. A default replaces them: they were not set for this machine.
const template = { ...environment };
// Functions of user code to call when the machine comes back.
const hooks = [];

function onWake(hook) {
  if (typeof hook !== 'function') {
    throw new node.global.TypeError('onWake needs a function of two arguments: reason and changed');
  }
  hooks.push(hook);
  return hook;
}

function wake({ machine, entropy, reseed, env = {}, defaults = {} }) {
  const changed = [];
  if (native.stir(entropy)) changed.push('OpenSSL random generator');
  useUp();
  if (reseed && seed(entropy)) changed.push('Math.random');
  for (const [name, value] of Object.entries({ STASIS_MACHINE: machine, ...env })) {
    environment[name] = value;
  }
  for (const [name, value] of Object.entries(defaults)) {
    const now = environment[name];
    if (now === undefined || now === template[name]) environment[name] = value;
  }
  return changed;
}

function useUp() {
  for (let count = 0; count < UUIDS; count++) node.randomUUID();
  for (let count = 0; count <= INTEGERS; count++) node.randomInt(2);
}

// Runs what every new machine begins with, so that templates hold it compiled.
function rehearse() {
  for (let round = 0; round < ROUNDS; round++) {
    useUp();
    node.generator(1, 2, 3, round)();
  }
}

// Seeds Math.random, unless user code replaced it.
function seed(entropy) {
  if (math.random !== own) return false;
  const word = (at) => Number.parseInt(entropy.slice(at * 8, at * 8 + 8) || '0', 16) | 0;
  own = node.generator(word(0), word(1), word(2), word(3));
  node.defineProperty(math, 'random', { value: own, writable: true, configurable: true });
  return true;
}

Object.assign(exports, { hooks, onWake, rehearse, wake });
