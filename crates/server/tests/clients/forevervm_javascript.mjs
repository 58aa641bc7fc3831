// Speaks to a service of ours exactly as foreverVM's JavaScript SDK and its MCP server do, which
// are not published at present: the same requests, headers and messages, and the same faults.
//
//     node forevervm_javascript.mjs BASE_URL TOKEN WS_MODULE
//
// The faults, on purpose: a socket that is closed or refused is opened again for ever, after 2^n
// milliseconds, with the machine's name once it is known; one message waits for a socket that is
// not open, and a second takes its place; numbers of requests go on across sockets; nothing is ever
// closed; the MCP server opens a socket for every call.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const [base, token, wsModule] = process.argv.slice(2)
const WebSocket = createRequire(import.meta.url)(wsModule)
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const headers = { authorization: `Bearer ${token}`, 'x-forevervm-sdk': 'javascript' }

async function post(path, body) {
  const all = { 'Content-Type': 'application/json', ...headers }
  const answer = await fetch(`${base}${path}`, {
    method: 'POST', headers: all, body: body === undefined ? undefined : JSON.stringify(body),
  })
  if (!answer.ok) throw new Error(`HTTP ${answer.status}: ${await answer.text()}`)
  return await answer.json()
}

async function get(path) {
  const answer = await fetch(`${base}${path}`, { headers })
  if (!answer.ok) throw new Error(`HTTP ${answer.status}: ${await answer.text()}`)
  return await answer.json()
}

const exec = (code, machine, interrupt = false, timeout_seconds = 15) =>
  post(`/v1/machine/${machine}/exec`, { instruction: { code, timeout_seconds }, interrupt })
const execResult = (machine, seq) => get(`/v1/machine/${machine}/exec/${seq}/result`)

// Lines of JSON; a last line without its end is dropped, a blank line throws.
async function* execResultStream(machine, seq) {
  const path = `/v1/machine/${machine}/exec/${seq}/stream-result`
  const answer = await fetch(`${base}${path}`, { headers })
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`)
  const decoder = new TextDecoder()
  let rest = ''
  for await (const bytes of answer.body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n')
    rest = lines.pop()
    for (const line of lines) yield JSON.parse(line)
  }
}

class Repl {
  attempts = 0
  opened = 0
  next = 0
  waiting = undefined
  running = undefined

  constructor({ machine = 'new', browser = false, sdk = true } = {}) {
    Object.assign(this, { machine, browser, sdk })
    this.connect()
  }

  connect() {
    this.attempts += 1
    const query = this.browser ? `?_forevervm_jwt=${token}` : ''
    const url = `${base.replace(/^http/, 'ws')}/v1/machine/${this.machine}/repl${query}`
    const sent = this.browser ? {} : this.sdk ? headers : { authorization: headers.authorization }
    this.socket = new WebSocket(url, { headers: sent })
    this.socket.on('open', () => {
      this.opened += 1
      this.retries = 0
      if (this.waiting) this.socket.send(this.waiting)
      this.waiting = undefined
    })
    this.socket.on('message', (data) => this.hear(JSON.parse(data.toString())))
    const again = () => {
      if (this.socket.gone) return
      this.socket.gone = true
      const wait = this.retries ? 2 ** this.retries : 0
      this.retries = (this.retries ?? 0) + 1
      setTimeout(() => this.connect(), wait)
    }
    this.socket.on('close', again)
    this.socket.on('error', again)
  }

  hear(message) {
    const running = this.running
    switch (message.type) {
      case 'connected':
        this.machine = message.machine_name
        this.connected = true
        break
      case 'exec_received':
        if (running && message.request_id === running.id) running.seq = message.seq
        break
      case 'output':
        // what comes before its acknowledgement is dropped
        if (running && message.instruction_id === running.seq) running.chunks.push(message.chunk)
        break
      case 'result':
        if (running && message.instruction_id === running.seq) running.settle(message.result)
        break
      case 'error':
        throw new Error('the MCP server dies of this')
    }
  }

  exec(code, timeoutSeconds) {
    const id = this.next++
    // absent unless the caller gives it
    const instruction = { code, timeout_seconds: timeoutSeconds }
    const message = JSON.stringify({ type: 'exec', instruction, request_id: id })
    let settle
    const result = new Promise((done) => { settle = done })
    this.running = { id, chunks: [], settle }
    const { running } = this
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(message)
    else this.waiting = message
    return result.then((result) => ({ result, chunks: running.chunks, seq: running.seq }))
  }
}

// The two tools of the MCP server.
const createRepl = async () => (await post('/v1/machine/new', {})).machine_name
async function runInRepl(replId, pythonCode) {
  const { result, chunks } = await new Repl({ machine: replId }).exec(pythonCode)
  const output = chunks.map((chunk) => chunk.data).join('\n')
  if (result.error !== undefined) return { output, result: '', error: `Error: ${result.error}` }
  if (result.data?.png) return { image: result.data.png }
  return { output, result: result.value, replId }
}

async function http() {
  assert.ok((await get('/v1/whoami')).account)
  const { machine_name } = await post('/v1/machine/new', {})
  assert.ok((await post('/v1/machine/new')).machine_name, 'as clients before 0.1.31: no body')
  const all = (await post('/v1/machine/list', {})).machines
  const own = all.find(({ name }) => name === machine_name)
  assert.equal(own.has_pending_instruction, false)
  assert.equal(own.has_pending_instructions, false)
  const tags = { unique: machine_name, other: 'é' }
  const tagged = (await post('/v1/machine/new', { tags, memory_mb: 512 })).machine_name
  const found = (await post('/v1/machine/list', { tags: { unique: machine_name } })).machines
  assert.deepEqual(found.map(({ name, tags }) => [name, tags]), [[tagged, tags]])
  const accepted = await exec('print(123) or 567', machine_name)
  assert.equal(accepted.instruction_seq, 0)
  const { result, instruction_id, instruction_seq } = await execResult(machine_name, 0)
  assert.deepEqual([result.value, instruction_id, instruction_seq], ['567', 0, 0])
  assert.ok(!('error' in result) && Number.isInteger(result.runtime_ms))
  const failed = (await execResult(machine_name, (await exec('1 / 0', machine_name)).instruction_seq)).result
  assert.ok(failed.error.includes('ZeroDivisionError') && !('value' in failed))
  const late = await exec('import time; time.sleep(60)', machine_name, false, 0.5)
  assert.ok((await execResult(machine_name, late.instruction_seq)).result.error.includes('Timed out'))
  const long = await exec('time.sleep(60)', machine_name, false, 100)
  const after = await exec('"after"', machine_name, true)
  assert.ok((await execResult(machine_name, long.instruction_seq)).result.error)
  assert.equal((await execResult(machine_name, after.instruction_seq)).result.value, "'after'")
  await assert.rejects(exec('1', 'no-such-machine'), /^Error: HTTP 404: \{"code":"machine.not_found"/)
}

async function stream() {
  const { machine_name } = await post('/v1/machine/new', {})
  const { instruction_seq } = await exec("for i in range(10): print(i, 'é€😀')\n'done'", machine_name)
  const messages = []
  for await (const message of execResultStream(machine_name, instruction_seq)) messages.push(message)
  const last = messages.pop()
  assert.deepEqual(messages.map(({ type, chunk }) => [type, chunk]), Array.from({ length: 10 },
    (_, seq) => ['output', { stream: 'stdout', data: `${seq} é€😀`, seq }]))
  assert.deepEqual([last.type, last.result.value, last.instruction_id], ['result', "'done'", instruction_seq])
}

async function repl() {
  for (const how of [{}, { browser: true }, { sdk: false }]) {
    const repl = new Repl(how)
    const first = await repl.exec('for i in range(5): print(i)')
    assert.deepEqual(first.chunks, Array.from({ length: 5 },
      (_, seq) => ({ stream: 'stdout', data: String(seq), seq })))
    const failed = await repl.exec('1 / 0')
    assert.ok(failed.result.error.includes('ZeroDivisionError') && failed.result.value === undefined)
    assert.ok((await repl.exec('import time; time.sleep(60)', 0.5)).result.error.includes('Timed out'))
    const { result } = await repl.exec('1 + 1')
    assert.deepEqual([result.value, result.error], ['2', undefined])
  }
}

async function reconnect() {
  const repl = new Repl()
  await repl.exec("x = 'state'")
  const { machine, socket } = repl
  for (let again = 1; again <= 3; again++) {
    repl.socket.close()
    // waits in the one place there is, until the next socket is open
    while (repl.socket.readyState === WebSocket.OPEN) await sleep(1)
    assert.equal((await repl.exec('x')).result.value, "'state'")
  }
  assert.equal(repl.machine, machine)
  assert.notEqual(repl.socket, socket)
  assert.equal(repl.next, 4)
}

// Two before the socket is open: the second takes the first one's place, and alone is run.
async function oneWaits() {
  const repl = new Repl()
  repl.exec("x = 'first'")
  const second = await repl.exec("'x' in globals()")
  assert.equal(second.result.value, 'False')
  // overlapping: all run in order, and what the client lost is only its own
  const lost = repl.exec("x = 'ran'")
  const { result } = await repl.exec('x')
  assert.equal(result.value, "'ran'")
  assert.equal(await Promise.race([lost, sleep(0).then(() => 'never')]), 'never')
}

// Refused before it is a socket, so that each try comes later than the one before; let in and
// closed, there would be thousands.
async function refused() {
  headers.authorization = 'Bearer a.b'
  const nobody = new Repl()
  while (nobody.attempts < 6) await sleep(1)
  assert.equal(nobody.opened, 0)
  headers.authorization = `Bearer ${token}`
}

async function mcp() {
  const replId = await createRepl()
  assert.deepEqual(await runInRepl(replId, "print('a'); print('b'); 1 + 1"),
    { output: 'a\nb', result: '2', replId })
  const failed = await runInRepl(replId, '1 / 0')
  assert.ok(failed.error.startsWith('Error: ') && failed.error.includes('ZeroDivisionError'))
  const unknown = await runInRepl('no-such-machine', '1')
  assert.ok(unknown.error.includes('machine.not_found'), 'an answer, where it would wait for ever')
  const png = "class P:\n  def _repr_png_(self): return b'\\x89PNG'\nP()"
  assert.equal((await runInRepl(replId, png)).image, 'iVBORw==')
  // a socket a call, none of which is ever closed
  const values = []
  for (let call = 0; call < 100; call++) values.push((await runInRepl(replId, String(call))).result)
  assert.deepEqual(values, Array.from({ length: 100 }, (_, call) => String(call)))
}

for (const check of [http, stream, repl, reconnect, oneWaits, mcp, refused]) {
  console.log(check.name)
  await check()
}
process.exit(0)
