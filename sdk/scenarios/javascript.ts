// What every SDK can do, with the JavaScript SDK. Its arguments are the names of the scenarios.

import * as stasis from "@stasis/sdk";

declare const process: { argv: string[]; env: Record<string, string>; exit(code: number): never };

const HTML = "class Bold:\n    def _repr_html_(self): return '<b>x</b>'\n";
const FLAKY = { baseUrl: process.env.STASIS_FLAKY_URL };
const client = new stasis.Client();

function same(left: unknown, right: unknown): void {
  const [a, b] = [JSON.stringify(left), JSON.stringify(right)];
  if (a !== b) throw new Error(`${a} is not ${b}`);
}

function holds(condition: unknown, what = "it does not hold"): void {
  if (!condition) throw new Error(what);
}

type Kind<E> = abstract new (...args: any[]) => E;

async function fails<E>(kind: Kind<E>, call: () => unknown): Promise<E> {
  try {
    await call();
  } catch (error) {
    if (error instanceof kind) return error as E;
    throw error;
  }
  throw new Error(`no ${kind.name}`);
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

async function first<T>(items: AsyncIterable<T>): Promise<T> {
  for await (const item of items) return item;
  throw new Error("nothing came");
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 600; tries += 1) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("it never happened");
}

const lines = (chunks: stasis.types.Chunk[]) => chunks.map((chunk) => chunk.data);
const value = async (machine: stasis.Machine, code: string) => (await machine.run(code)).value;

const scenarios: Record<string, () => Promise<void>> = {
  async who() {
    same((await client.whoami()).account, "root");
    same((await client.health()).templates_ready, true);
  },

  async machines() {
    const suite = crypto.randomUUID();
    const one = await client.createMachine({ tags: { suite }, memory_mb: 512 });
    const name = `js-${suite.slice(0, 8)}`;
    const two = await client.createMachine({ name, tags: { suite, n: "2" } });
    const names = async (tags: Record<string, string>) =>
      (await all(client.listMachines({ tags }))).map((machine) => machine.name);
    same(await names({ suite }), [name, one.name]);
    same(await names({ suite, n: "2" }), [name]);
    same((await two.update({ tags: { suite } })).tags, { suite });
    same((await client.getMachine(one.name)).info?.limits.memory_mb, 512);
    await one.run("x = 1");
    same((await one.swap()).state, "swapped");
    same((await one.wake()).running, true);
    same(await value(one, "x"), "1");
    await one.remove();
    {
      await using block = two;
      await block.run("1");
    }
    same(await names({ suite }), []);
  },

  async pages() {
    await using machine = await client.createMachine();
    await machine.branches({ count: 3, tags: { page: machine.name } });
    const found = await all(client.listMachines({ tags: { page: machine.name }, limit: 2 }));
    same(found.length, 3);
    for (const branch of found) await branch.remove();
  },

  async state() {
    await using machine = await client.createMachine();
    const nothing = await machine.run("x = 41");
    same([nothing.ok, nothing.value, nothing.address], [true, null, `${machine.name}@0`]);
    same((await machine.run("x + 1")).check().value, "42");
    same(await value(machine, "'text'"), "'text'");
  },

  async output() {
    const code =
      "import sys\nfor i in range(3): print('line', i, 'é漢🦀')\nprint('bad', file=sys.stderr)\nprint()";
    await using machine = await client.createMachine();
    const seen: stasis.types.Chunk[] = [];
    const result = await machine.run(code, { onOutput: (chunk) => seen.push(chunk) });
    same(seen.map((chunk) => chunk.seq), [0, 1, 2, 3, 4]);
    same(result.stdout, [0, 1, 2].map((i) => `line ${i} é漢🦀\n`).join("") + "\n");
    same([result.stderr, result.output], ["bad\n", seen]);
    const slow = await machine.exec(
      "import time\nfor i in range(4): print(i); time.sleep(0.3)",
    );
    same((await first(slow.output)).data, "0");
    same((await slow.info()).status, "running");
    same(lines(await all(slow.output)), ["0", "1", "2", "3"]);
  },

  async "rich results"() {
    await using machine = await client.createMachine();
    const result = await machine.run(`${HTML}print('a')\ndisplay(Bold())\nBold()`);
    same(result.data["text/html"], "<b>x</b>");
    same([result.shown[0]?.data["text/html"], result.shown[0]?.after], ["<b>x</b>", 1]);
    const plot = "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2]); plt.show()";
    holds((await machine.run(plot)).png?.startsWith("iVBORw0KGgo"), "no picture");
  },

  async failures() {
    await using machine = await client.createMachine();
    await machine.run("x = 7");
    const result = await machine.run("1 / 0");
    same([result.ok, result.error?.name, result.value], [false, "ZeroDivisionError", null]);
    const error = await fails(stasis.InstructionError, () => result.check());
    same(error.errorName, "ZeroDivisionError");
    holds(error.traceback.includes("division by zero"));
    same(await value(machine, "x"), "7");
  },

  async timeouts() {
    await using machine = await client.createMachine();
    await machine.run("x = 7");
    const result = await machine.run("while True: pass", { timeoutSeconds: 0.3 });
    same([result.status, result.error?.name], ["interrupted", "TimeoutError"]);
    same((await machine.run("x", { timeoutSeconds: null })).value, "7");
  },

  async interrupt() {
    await using machine = await client.createMachine();
    same(await machine.interrupt(), false);
    const instruction = await machine.exec("x = 7\nprint('on')\nwhile True: pass");
    await first(instruction.output);
    same(await machine.interrupt(), true);
    same((await instruction.result).status, "interrupted");
    await machine.exec("while True: pass");
    const replaced = await machine.exec("x", { interrupt: true });
    same([replaced.interrupted, (await replaced.result).value], [true, "7"]);
  },

  async cancel() {
    await using machine = await client.createMachine();
    const runs = await machine.exec("print('on')\nwhile True: pass");
    const waits = await machine.exec("x = 1");
    await first(runs.output);
    same([await waits.cancel(), (await waits.result).status], [true, "cancelled"]);
    same(await runs.cancel(), false);
    await runs.stop();
    same((await runs.result).status, "interrupted");
  },

  async waiting() {
    await using machine = await client.createMachine();
    const instruction = await machine.exec("import time; time.sleep(1.5); 5");
    const error = await fails(stasis.WaitTimeout, () => instruction.wait({ waitSeconds: 0.3 }));
    holds(error.code === "client.wait_timeout" && error.hint);
    same((await instruction.result).value, "5");
  },

  async "stopped waiting"() {
    await using machine = await client.createMachine();
    const stop = new AbortController();
    const run = machine.run("x = 7\nprint('on')\nwhile True: pass", {
      onOutput: () => stop.abort(new Error("enough")),
      signal: stop.signal,
    });
    same((await fails(Error, () => run)).message, "enough");
    same((await machine.instruction(0).result).status, "interrupted");
    same(await value(machine, "x"), "7");
  },

  async idempotency() {
    await using machine = await client.createMachine();
    await machine.run("x = 0");
    const idempotencyKey = crypto.randomUUID();
    const one = await machine.exec("x += 1", { idempotencyKey });
    const again = await machine.exec("x += 1", { idempotencyKey });
    same(one.seq, again.seq);
    same(await value(machine, "x"), "1");
  },

  async "lost answers"() {
    const machine = await new stasis.Client(FLAKY).createMachine();
    await machine.run("x = 0");
    for (let i = 0; i < 4; i += 1) await machine.run("x += 1");
    same(await value(machine, "x"), "4");
    same((await client.getMachine(machine.name)).info?.instructions, 6);
    await client.machine(machine.name).remove();
    const dead = new stasis.Client({ baseUrl: "http://127.0.0.1:1", retry: { attempts: 2 } });
    same((await fails(stasis.Unreachable, () => dead.whoami())).code, "service.unreachable");
  },

  async "broken streams"() {
    const machine = await new stasis.Client(FLAKY).createMachine();
    const result = await machine.run("for i in range(200): print(i, 'x' * 60)\n'over'");
    same(lines(result.output), Array.from({ length: 200 }, (_, i) => `${i} ${"x".repeat(60)}`));
    same(result.value, "'over'");
    await client.machine(machine.name).remove();
  },

  async history() {
    await using machine = await client.createMachine({ durability: "local" });
    for (let i = 0; i < 3; i += 1) await machine.run(`x = ${i}`);
    await until(async () => (await machine.history()).map((point) => point.seq).join() === "0,1,2");
    await machine.undo();
    same(await value(machine, "x"), "1");
    await machine.rollback(0);
    same(await value(machine, "x"), "0");
    same((await machine.instruction(2).info()).rolled_back, true);
    await machine.rollback(null);
    same((await machine.run("x")).error?.name, "NameError");
  },

  async branches() {
    await using machine = await client.createMachine({ tags: { a: "1" } });
    await machine.run("x = 7");
    const one = await machine.branch({ tags: { b: "2" } });
    same([one.info?.tags, one.info?.parent?.machine], [{ a: "1", b: "2" }, machine.name]);
    const names = [`${machine.name}-a`, `${machine.name}-b`];
    const several = await machine.branches({ names });
    same(several.map((branch) => branch.name), names);
    await one.run("x = 8");
    await machine.run("x += 2");
    const values = [machine, one, ...several].map((each) => value(each, "x"));
    same(await Promise.all(values), ["9", "8", "7", "7"]);
    const early = await machine.branch({ seq: 0 });
    same(await value(early, "x"), "7");
    for (const branch of [one, early, ...several]) await branch.remove();
  },

  async variables() {
    await using machine = await client.createMachine();
    await machine.run("numbers = [1, 2, 3]");
    const found = (await machine.variables()).find((one) => one.name === "numbers");
    same([found?.kind, found?.repr], ["list", "[1, 2, 3]"]);
    same((await machine.complete("numb")).names, ["numbers"]);
  },

  async transcript() {
    await using machine = await client.createMachine();
    for (let i = 0; i < 3; i += 1) await machine.run(`${i}`);
    const listed = await all(machine.instructions());
    same(listed.map(({ seq, code, status }) => [seq, code, status]), [
      [0, "0", "done"],
      [1, "1", "done"],
      [2, "2", "done"],
    ]);
    const later = await all(machine.instructions(1, { pageSize: 1 }));
    same(later.map((one) => one.seq), [1, 2]);
  },

  async refusals() {
    const error = await fails(stasis.NotFound, () => client.getMachine("nobody"));
    same([error.code, error.status], ["machine.not_found", 404]);
    holds(error.hint && error.requestId);
    await using machine = await client.createMachine();
    const { name } = machine;
    await fails(stasis.Conflict, () => client.createMachine({ name }));
    await fails(stasis.InvalidRequest, () => client.createMachine({ name: "no/name" }));
    await fails(stasis.NotFound, () => machine.instruction(7).result);
    await fails(stasis.InvalidRequest, () => client.getMachine(".."));
    await fails(stasis.Unauthorized, () => new stasis.Client({ token: "a.b" }).whoami());
  },

  async templates() {
    const [newest] = await client.listTemplates();
    same(await client.getTemplate(newest?.name ?? ""), newest);
    await fails(stasis.NotFound, () => client.getTemplate("none"));
    await fails(stasis.ApiError, () => all(client.buildTemplate("no recipe")));
  },

  async tokens() {
    const made = await client.createToken({ name: "suite", scopes: ["machines"] });
    holds((await client.listTokens()).some((token) => token.id === made.id));
    const other = new stasis.Client({ token: made.token });
    same((await other.whoami()).scopes, ["machines"]);
    await fails(stasis.Forbidden, () => other.listTokens());
    await client.revokeToken(made.id);
    await fails(stasis.Unauthorized, () => other.whoami());
  },

  async store() {
    holds((await client.storeStats()).images > 0);
  },

  async forevervm() {
    const { machine, seq } = await client.exec("print(123) or 567");
    const body = await client.execResult(machine, seq);
    same([body.result.value, body.instruction_seq], ["567", 0]);
    const [line, end] = await all(client.execResultStream(machine, 0));
    holds(line?.type === "output" && line.chunk.data === "123");
    holds(end?.type === "result" && end.result.value === "567");
    const repl = client.repl();
    const asked = repl.exec("for i in range(2): print(i)\n'done'");
    const after = repl.exec("i");
    same(lines(await all(asked.output)), ["0", "1"]);
    same([(await asked.result).value, (await after.result).value], ["'done'", "1"]);
    same((await client.repl((await repl.machine).name).exec("i").result).value, "1");
    await (await repl.machine).remove();
    await client.machine(machine).remove();
  },
};

for (const name of process.argv.slice(2)) {
  const scenario = scenarios[name];
  if (scenario === undefined) throw new Error(`no scenario ${name}`);
  await scenario();
  console.log("ok", name);
}
process.exit(0);
