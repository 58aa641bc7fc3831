// The scenarios of all SDKs, with the JavaScript SDK. Its arguments are the names of the scenarios.

import * as stasis from "@stasis/sdk";

/** Arguments and environment; in a browser from the page, which is not a process. */
interface Given {
  argv: string[];
  env: Record<string, string>;
  exit?(code: number): never;
}

const scope = globalThis as { process?: Given; page?: Given };
const given = scope.process ?? scope.page ?? { argv: [], env: {} };
const inBrowser = scope.process === undefined;

const HTML = "class Bold:\n    def _repr_html_(self): return '<b>x</b>'\n";
const LONG = "for n in range(6000): print(' ' * 1000 + 'line', n)";
// goes on when there is a file `go`
const GATED = "import os, time\nprint(0)\nwhile not os.path.exists('go'): time.sleep(0.01)\n";
// programs find them in their environment
const OWN = inBrowser ? { baseUrl: given.env.STASIS_URL, token: given.env.STASIS_TOKEN } : {};
// runtimes throw pieces away that came right before a break, so a busy host needs many tries
const FLAKY = { ...OWN, baseUrl: given.env.STASIS_FLAKY_URL, retry: { resumes: 1000, longestMs: 200 } };
const client = new stasis.Client(OWN);

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
  for (let tries = 0; tries < 6000; tries += 1) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("it never happened");
}

/** A page has no files: it gets an error with an alternative. */
async function withoutFiles(): Promise<void> {
  await using machine = await client.createMachine();
  const calls = [
    () => machine.files.upload("a", "a"),
    () => machine.files.download("a", "a"),
    () => machine.files.uploadDir("a"),
    () => machine.exportTo("a"),
    () => client.importMachine("a"),
  ];
  for (const call of calls) {
    const error = await fails(stasis.StasisError, call);
    holds(error.code === "client.file" && error.hint);
  }
}

/** Exports a machine to a local file, and imports it. */
async function movedInFile(machine: stasis.Machine, size: number): Promise<void> {
  const fs = await import(["node", "fs/promises"].join(":"));
  const local: string = await fs.mkdtemp(`${given.env.TMPDIR ?? "/tmp"}/stasis-scenario-`);
  try {
    const file = `${local}/machine`;
    await machine.exportTo(file, { history: true, root: false });
    holds((await fs.stat(file)).size < size, "its template's files are in it");
    same(await fs.readdir(local), ["machine"]);
    await fails(stasis.Conflict, () => client.importMachine(file));
    await using copy = await client.importMachine(file, { name: `${machine.name}-file` });
    same((await all(copy.instructions())).map((one) => one.code), ["x = 7"]);
    await fails(stasis.NotFound, () => client.machine("nobody").exportTo(`${local}/none`));
    same(await fs.readdir(local), ["machine"]);
    await fails(Error, () => client.importMachine(`${local}/none`));
  } finally {
    await fs.rm(local, { recursive: true });
  }
}

const lines = (chunks: stasis.types.Chunk[]) => chunks.map((chunk) => chunk.data);
const value = async (machine: stasis.Machine, code: string) => (await machine.run(code)).value;

const scenarios: Record<string, () => Promise<void>> = {
  async who() {
    same((await client.whoami()).account, "root");
    same((await client.health()).templates_ready, true);
  },

  async discovery() {
    same((await new stasis.Client({ ...OWN }).whoami()).account, "root");
    if (inBrowser) return;
    const { STASIS_URL: url = "", STASIS_TOKEN: token = "" } = given.env;
    const fs = await import(["node", "fs"].join(":"));
    const here: string = fs.mkdtempSync("/tmp/stasis-discovery-");
    const kept = { ...given.env };
    try {
      Object.assign(given.env, { STASIS_TOKEN: "", STASIS_DATA_DIR: here, XDG_CONFIG_HOME: here });
      await fails(stasis.Unauthorized, () => new stasis.Client().whoami());
      fs.writeFileSync(`${here}/token`, `${token}\n`);
      same((await new stasis.Client().whoami()).account, "root");
      same((await new stasis.Client(url).whoami()).account, "root");
      Object.assign(given.env, { STASIS_URL: "", STASIS_DATA_DIR: "/nothing" });
      fs.mkdirSync(`${here}/stasis`);
      const login = `url = "${url}"\ntoken = "${token}"\n`;
      fs.writeFileSync(`${here}/stasis/login.toml`, login, { mode: 0o600 });
      same((await new stasis.Client().whoami()).account, "root");
      fs.rmSync(`${here}/stasis/login.toml`);
      const config = `url = "${url}"\ntoken = '${token}' # the root's\n[limits]\npids = 9\n`;
      fs.writeFileSync(`${here}/stasis/config.toml`, config);
      same((await new stasis.Client().whoami()).account, "root");
      fs.writeFileSync(`${here}/stasis/config.toml`, config.replace(url, "https://other"));
      await fails(stasis.Unauthorized, () => new stasis.Client(url).whoami());
    } finally {
      for (const name of ["STASIS_DATA_DIR", "XDG_CONFIG_HOME"]) delete given.env[name];
      Object.assign(given.env, kept);
      fs.rmSync(here, { recursive: true });
    }
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
    const slow = await machine.exec(`${GATED}for i in range(1, 4): print(i)`);
    same((await first(slow.output)).data, "0");
    same((await slow.info()).status, "running");
    await machine.files.write("go", "");
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
    const instruction = await machine.exec(`${GATED}5`);
    const error = await fails(stasis.WaitTimeout, () => instruction.wait({ waitSeconds: 0.3 }));
    holds(error.code === "client.wait_timeout" && error.hint);
    await machine.files.write("go", "");
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
    const dead = new stasis.Client({ ...OWN, baseUrl: "http://127.0.0.1:1", retry: { attempts: 2 } });
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
    await machine.redo();
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

  async "the past"() {
    await using machine = await client.createMachine({ durability: "local" });
    await machine.run("x = 1; open('note', 'w').write('one')");
    await machine.run("x = 2; open('note', 'w').write('two')");
    same((await machine.label(0, "first"))[0]?.label, "first");
    const before = await machine.at(0).variables();
    same(before.find((one) => one.name === "x")?.repr, "1");
    const home = (await value(machine, "import os; os.getcwd()"))?.slice(1, -1) ?? "";
    same(new TextDecoder().decode(await machine.at(0).read(`${home}/note`)), "one");
    holds((await machine.at(0).files(home)).some((view) => view.path.endsWith("note")));
    same((await machine.lineage()).tree.machine, machine.name);
    holds((await client.lineage()).some((family) => family.machine === machine.name));
    holds((await machine.disk()).checkpoints >= 2);
    holds((await machine.history({ files: true }))[1]?.files?.names.some((name) => name.endsWith("note")));
    same((await machine.history())[1]?.files, undefined);
  },

  async "compare and adopt"() {
    await using machine = await client.createMachine();
    await machine.run("x = 1");
    await using branch = await machine.branch();
    await branch.run("y = 5");
    const { variables } = await client.compare(machine, branch);
    same(variables.map((one) => [one.name, one.change]), [["y", "added"]]);
    same((await machine.adopt(branch, { variables: ["y"] })).variables, ["y"]);
    same(await value(machine, "x + y"), "6");
  },

  async promote() {
    const machine = await client.createMachine();
    await machine.run("x = 1");
    const branch = await machine.branch();
    await branch.run("x = 2");
    const former = await branch.promote();
    holds(branch.name === machine.name && former.name !== machine.name);
    same([await value(machine, "x"), await value(former, "x")], ["2", "1"]);
    await former.remove();
    await machine.remove();
  },

  async vary() {
    await using machine = await client.createMachine();
    await machine.run("x = 1");
    const candidates = ["x += 1; x", { variables: { x: 10 }, code: "x" }, "1 / 0"];
    const ends = (await all(machine.vary(candidates))).sort((a, b) => a.index - b.index);
    const outcomes = ends.map((end) => end.instruction?.outcome);
    same(outcomes.map((outcome) => outcome?.value ?? null), ["2", "10", null]);
    same(outcomes[2]?.error?.name, "ZeroDivisionError");
    for (const end of ends) await client.machine(end.machine).remove();
  },

  async explore() {
    const machine = await client.createMachine();
    await machine.run("x = 1");
    const found = await machine.explore(["x = 3", "x = 7", "1 / 0"], "x");
    same([found.best?.name, await value(machine, "x")], [machine.name, "7"]);
    same(found.candidates.map((one) => one.score ?? null), [3, 7, null]);
    same(found.former ?? null, null);
    await machine.remove();
  },

  async attempts() {
    await using machine = await client.createMachine();
    await machine.run("x = 1");
    const { former } = await machine.attempt((branch) => branch.run("x = 2"));
    same([await value(machine, "x"), former], ["2", undefined]);
    const kept = await machine.attempt((branch) => branch.run("x = 5"), { keep: true });
    holds(kept.former !== undefined && (await value(kept.former, "x")) === "2");
    await machine.run("x = 2");
    await kept.former?.remove();
    await fails(stasis.InstructionError, () =>
      machine.attempt(async (branch) => {
        await branch.run("x = 3");
        (await branch.run("1 / 0")).check();
      }),
    );
    same([await value(machine, "x"), (await machine.lineage()).children.length], ["2", 0]);
  },

  async variables() {
    await using machine = await client.createMachine();
    await machine.run("numbers = [1, 2, 3]");
    const found = (await machine.variables()).find((one) => one.name === "numbers");
    same([found?.kind, found?.repr], ["list", "[1, 2, 3]"]);
    same((await machine.complete("numb")).names, ["numbers"]);
  },

  async files() {
    const large = new Uint8Array(256 * 40).map((_, i) => i % 256);
    await using machine = await client.createMachine();
    const { files } = machine;
    same((await files.write("data/a.txt", "é\n", { mode: "600" })).mode, "600");
    same(await value(machine, "open('data/a.txt').read()"), "'é\\n'");
    same(await files.readText("data/a.txt"), "é\n");
    same([...(await files.read("data/a.txt", { start: 2, end: 3 }))], [10]);
    await machine.run("open('data/b.bin', 'wb').write(bytes(range(256)) * 40)");
    const flaky = new stasis.Client(FLAKY).machine(machine.name).files;
    same([...(await flaky.read("data/b.bin"))], [...large]);
    const stream = new Blob([large]).stream() as ReadableStream<Uint8Array>;
    same((await files.write("data/c.bin", stream)).size, large.length);
    same((await files.write("data/d.bin", large)).size, large.length);
    const found = await all(files.list("data", { pageSize: 2 }));
    same(found.map((info) => info.path.split("/").pop()), ["a.txt", "b.bin", "c.bin", "d.bin"]);
    await files.remove("data/a.txt");
    await fails(stasis.NotFound, () => files.stat("data/a.txt"));
    await fails(stasis.ApiError, () => files.remove("data"));
    await files.remove("data", { recursive: true });
    await fails(stasis.InvalidRequest, () => files.read("../secret"));
  },

  async directories() {
    if (inBrowser) return withoutFiles();
    // not a constant: this is checked without the types of Node
    const fs = await import(["node", "fs/promises"].join(":"));
    const large = new Uint8Array(3_000_000).map((_, i) => i % 256);
    const local: string = await fs.mkdtemp(`${given.env.TMPDIR ?? "/tmp"}/stasis-scenario-`);
    await using machine = await client.createMachine();
    const { files } = machine;
    try {
      await fs.mkdir(`${local}/in/sub`, { recursive: true });
      await fs.writeFile(`${local}/in/large.bin`, large);
      await fs.writeFile(`${local}/in/sub/small`, "é");
      same((await files.upload(`${local}/in/large.bin`, "one.bin")).size, large.length);
      same(await files.uploadDir(`${local}/in`, "tree"), 2);
      const look =
        "open('tree/sub/small').read(), open('tree/large.bin', 'rb').read() == open('one.bin', 'rb').read()";
      same(await value(machine, look), "('é', True)");
      await machine.run("import os; os.symlink('/etc/passwd', 'tree/link')");
      await files.download("one.bin", `${local}/one.bin`);
      same([...(await fs.readFile(`${local}/one.bin`))], [...large]);
      same(await files.downloadDir("tree", `${local}/out`), 2);
      same((await fs.readdir(`${local}/out`)).sort(), ["large.bin", "sub"]);
      same(await fs.readFile(`${local}/out/sub/small`, "utf8"), "é");
      await fails(stasis.NotFound, () => files.download("none", `${local}/none`));
      same((await fs.readdir(local)).sort(), ["in", "one.bin", "out"]);
      await fails(Error, () => files.upload(`${local}/none`, "none"));
    } finally {
      await fs.rm(local, { recursive: true });
    }
  },

  async watching() {
    await using machine = await client.createMachine();
    await machine.files.write("seen/a", "1");
    const changes = machine.files.watch("seen");
    same((await changes.next()).value?.kind, "watching");
    await machine.files.write("seen/b", "2");
    for await (const change of changes) if (change.name === "b") break;
    const below = machine.files.watch("seen", undefined, { recursive: true });
    same((await below.next()).value?.kind, "watching");
    await machine.files.write("seen/deep/down/c", "3");
    for await (const change of below) if (change.name === "deep/down/c") break;
  },

  async artifacts() {
    await using machine = await client.createMachine();
    const result = await machine.run(LONG, { timeoutSeconds: null });
    const [artifact] = result.instruction.outcome?.artifacts ?? [];
    const id = artifact?.id ?? "";
    same([artifact?.name, (await machine.artifacts()).map((one) => one.id)], ["output", [id]]);
    const text = async (span: stasis.Span) =>
      new Blob((await all(machine.artifact(id, span))) as never[]).text();
    same(await text({ start: 1000, end: 1006 }), "line 0");
    holds((await text({})).endsWith("line 5999\n"));
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
    await fails(stasis.Unauthorized, () => new stasis.Client({ ...OWN, token: "a.b" }).whoami());
  },

  async events() {
    const flaky = new stasis.Client(FLAKY);
    const made = await flaky.createMachine({ tags: { of: "events" } });
    for (let i = 0; i < 12; i += 1) await made.run(`${i}`);
    // over a way that breaks: each is told, in order, and once
    const found: stasis.types.Event[] = [];
    const wanted = { machine: made.name, kind: "instruction.finished", after: 0 };
    for await (const event of flaky.events(wanted)) if (found.push(event) === 12) break;
    same(found.map((event) => event.seq), [...Array(12).keys()]);
    const machine = client.machine(made.name);
    const ids = found.map((event) => event.id);
    same([...new Set(ids)].sort((a, b) => a - b), ids);
    const [one = 0, , , four = 0] = ids;
    same(await first(machine.events({ after: one - 1, kind: "instruction.f" })), found[0]);
    holds((await first(client.events({ tag: "of=events", after: four - 1 }))).id >= four);
    const stop = new AbortController();
    const never = client.events({ kind: "nothing.", signal: stop.signal }).next();
    stop.abort(new Error("enough"));
    same((await fails(Error, () => never)).message, "enough");
    await machine.remove();
  },

  async moving() {
    await using machine = await client.createMachine();
    await machine.run("x = 7");
    // a page has it in memory
    const whole = new Blob((await all(machine.export({ root: !inBrowser }))) as never[]);
    {
      await using copy = await client.importMachine(whole, { name: `${machine.name}-copy` });
      same([copy.name, await value(copy, "x")], [`${machine.name}-copy`, "7"]);
    }
    if (!inBrowser) await movedInFile(machine, whole.size);
    {
      const name = `${machine.name}-piped`;
      await using piped = await client.importMachine(machine.export({ root: false }), { name });
      same(await value(piped, "x + 1"), "8");
    }
    const nothing = new TextEncoder().encode("no machine");
    await fails(stasis.ApiError, () => client.importMachine(nothing));
  },

  async templates() {
    const [newest] = await client.listTemplates();
    same(await client.getTemplate(newest?.name ?? ""), newest);
    await fails(stasis.NotFound, () => client.getTemplate("none"));
    await fails(stasis.NotFound, () => client.removeTemplate("none"));
    await fails(stasis.ApiError, () => all(client.buildTemplate("no recipe")));
  },

  async tokens() {
    const made = await client.createToken({ name: "suite", scopes: ["machines"] });
    holds((await client.listTokens()).some((token) => token.id === made.id));
    const other = new stasis.Client({ ...OWN, token: made.token });
    same((await other.whoami()).scopes, ["machines"]);
    await fails(stasis.Forbidden, () => other.listTokens());
    await client.revokeToken(made.id);
    await fails(stasis.Unauthorized, () => other.whoami());
  },

  async approvals() {
    holds(Array.isArray(await client.listApprovals({ all: true })));
    await fails(stasis.NotFound, () => client.getApproval(1e9));
    await using machine = await client.createMachine({ network: "policy:asks" });
    const code = "import stasis\nstasis.tools.issues.delete_issue(4)";
    const waiting = async () => {
      for (;;) {
        const [call] = await client.listApprovals({ machine: machine.name });
        if (call) return call;
        await new Promise((done) => setTimeout(done, 50));
      }
    };
    const allowed = await machine.exec(code);
    const call = await waiting();
    same([call.tool, call.state, call.seq], ["delete_issue", "waiting", allowed.seq]);
    same((await client.getApproval(call.id)).arguments, '{"number":4}');
    const made = await client.createToken({ name: "suite", scopes: ["machines"] });
    const other = new stasis.Client({ ...OWN, token: made.token });
    await fails(stasis.Forbidden, () => other.approve(call.id));
    await client.revokeToken(made.id);
    same((await client.approve(call.id)).state, "approved");
    same((await allowed.result).value, "'deleted 4'");
    await fails(stasis.Conflict, () => client.deny(call.id));
    const denied = await machine.exec(code);
    await client.deny((await waiting()).id, "not today");
    holds((await denied.result).error?.message.includes("not today"));
    same((await machine.calls()).map((one) => one.state), ["denied", "completed"]);
  },

  async store() {
    holds((await client.storeStats()).images > 0);
    same(typeof (await client.storeGc()).bytes, "number");
    holds(Array.isArray((await client.storeCheck()).findings));
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

for (const name of given.argv.slice(2)) {
  const scenario = scenarios[name];
  if (scenario === undefined) throw new Error(`no scenario ${name}`);
  await scenario();
  console.log("ok", name);
}
given.exit?.(0);
