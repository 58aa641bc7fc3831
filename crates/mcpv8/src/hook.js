// Runs one step of a function of a hook's script, in a machine of its own. The script is loaded
// once, so what it keeps at its top level lasts. The value is the answer, as JSON.
async ({ text, name, mayFetch, hasFiles }, step) => {
  const { getBuiltinModule } = process;
  const KEY = Symbol.for('mcp-v8-hook');
  const answer = (value) => ({ [Symbol.for('Jupyter.display')]: () => ({ 'application/json': value }) });
  const told = (error) => answer({ threw: String(error?.message ?? error) });

  const load = () => {
    if (!mayFetch) for (const one of ['fetch', 'WebSocket', 'EventSource']) delete globalThis[one];
    if (hasFiles) {
      const value = getBuiltinModule('node:fs/promises');
      Object.defineProperty(globalThis, 'fs', { value, configurable: true, writable: true });
    }
    new (getBuiltinModule('node:vm').Script)(text, { filename: name }).runInThisContext();
    const state = { calls: new Map() };
    Object.defineProperty(globalThis, KEY, { value: state });
    return state;
  };

  // the next call of `next`, or the end
  const progress = async (call, own) => {
    for (;;) {
      if (own.wanted.length > 0) {
        own.pending = own.wanted.shift();
        return { next: own.pending.input ?? null };
      }
      if (own.end !== undefined) {
        globalThis[KEY].calls.delete(call);
        return own.end;
      }
      await new Promise((turn) => (own.turn = turn));
    }
  };

  const enter = (called, input) => {
    const own = { wanted: [], turn: () => {} };
    const next = (passed) =>
      new Promise((resolve, reject) => {
        own.wanted.push({ input: passed, resolve, reject });
        own.turn();
      });
    const end = (value) => {
      own.end = value;
      own.turn();
    };
    (async () => called(input, next))().then(
      (value) => end({ returned: value ?? null }),
      (error) => end({ threw: String(error?.message ?? error) }),
    );
    return own;
  };

  try {
    const { calls } = globalThis[KEY] ?? load();
    const called = (0, eval)(`typeof ${step.function} === 'function' ? ${step.function} : undefined`);
    if (called === undefined) return told(`there is no function ${step.function}`);
    if (step.kind === 'call') return answer({ returned: (await called(...step.arguments)) ?? null });
    if (step.kind === 'enter') calls.set(step.call, enter(called, step.input));
    const own = calls.get(step.call);
    if (own === undefined) return told('it was started again meanwhile');
    if (step.kind === 'resume' && step.error !== undefined) own.pending.reject(new Error(step.error));
    else if (step.kind === 'resume') own.pending.resolve(step.output);
    return answer(await progress(step.call, own));
  } catch (error) {
    return told(error);
  }
}
