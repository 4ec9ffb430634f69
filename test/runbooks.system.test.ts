import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmod, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Redis } from 'ioredis'
import { connect } from 'roomful/client'
import { withQueues } from 'roomful/client/queue'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { stringify } from 'yaml'
import { roomfulProgram } from '../deploy/local/machine.ts'
import type arena from '../examples/arena/room.ts'
import { callControl } from './support/calls.ts'
import { programOr } from './support/debian-package.ts'
import { codeOf, textOf } from './support/pages.ts'
import { examplesFolder, type Program, startProgram, startTyped } from './support/program.ts'
import {
  asAdmin,
  asRedisUser,
  freePort,
  limitedUsersFile,
  type RedisServer,
  redisFile,
  startRedisWith,
} from './support/redis-server.ts'
import { newFolder } from './support/run-folder.ts'

const run = promisify(execFile)
const root = fileURLToPath(new URL('..', import.meta.url))
const PAGES = ['docs/operations.md', 'docs/runbooks.md']
const [operations, runbooks] = PAGES.map(textOf) as [string, string]

const blocks = (text: string, language: string): string[] =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(([, code]) => code!)

/** Returns the commands under a heading, in order. */
function commands(heading: string): string[] {
  const found = PAGES.flatMap((page) => codeOf(page, 'sh', heading))
  if (found.length === 0) throw new Error(`${PAGES.join(' and ')} have no commands under "${heading}"`)
  return found
}

let folder = ''
let redis: RedisServer
let control: Control
let node: Program
/** All started control processes. */
const controls: Program[] = []
/** All started nodes. */
const nodes: Program[] = []
let wsUrl = ''
let env: Record<string, string>

const PATIENCE = { timeout: 180_000, interval: 500 }
const OPERATOR = { authorization: 'Bearer operator-of-the-runbooks' }
const INTERNAL = 'internal-token-of-the-runbooks'
const OLD_SECRET = 'the old keyring secret'
const NEW_SECRET = 'the new keyring secret'

beforeAll(async () => {
  for (const program of ['curl', 'jq']) programOr(program)
  folder = await newFolder()
  const shim = join(folder, 'roomful')
  await writeFile(shim, `#!/bin/sh\nexec node ${roomfulProgram().words.join(' ')} "$@"\n`)
  await chmod(shim, 0o755)
  for (const name of ['node_modules', 'deploy']) await symlink(join(root, name), join(folder, name))
  const aclFile = join(folder, 'users.acl')
  await writeFile(aclFile, redisFile('users.acl'))
  redis = await startRedisWith({
    settings: { appendonly: 'yes', 'repl-diskless-sync-delay': '0', aclfile: aclFile },
  })
  control = await startControl(asRedisUser(redis.url, 'roomful-control'), OLD_SECRET)
  const { program, adminUrl, ...first } = await startNode('node-1', redis.url, control.url)
  node = program
  wsUrl = first.wsUrl
  env = {
    PATH: `${folder}:${process.env.PATH}`,
    HOME: folder,
    CONTROL_URL: control.url,
    ADMIN_URL: adminUrl,
    CONTROL_API_TOKENS: 'operator-of-the-runbooks',
    INTERNAL_TOKEN: INTERNAL,
    REDIS_URL: asRedisUser(redis.url, 'roomful-control'),
    OPERATOR_REDIS_URL: asRedisUser(redis.url, 'operator'),
  }
})

afterAll(async () => {
  for (const { child } of [...controls, ...nodes]) child.kill('SIGKILL')
  await redis?.close()
})

interface Control {
  readonly program: Program
  readonly url: string
}

async function startControl(redisUrl: string, secret: string): Promise<Control> {
  const program = startProgram(['control'], {
    REDIS_URL: redisUrl,
    CONTROL_PORT: '0',
    CONTROL_API_TOKENS: 'operator-of-the-runbooks',
    INTERNAL_TOKEN: INTERNAL,
    KEYRING_SECRET: secret,
  })
  controls.push(program)
  const [, url] = await program.said(/ready: api (http:\/\/[\d.:]+)/)
  return { program, url: url! }
}

/** Starts a node at the Redis at `redisUrl`, with its user. */
async function startNode(id: string, redisUrl: string, controlUrl: string) {
  const program = startProgram(['dataplane'], {
    ROOMS_DIR: examplesFolder(),
    REDIS_URL: asRedisUser(redisUrl, 'roomful-node'),
    INTERNAL_TOKEN: INTERNAL,
    NODE_ID: id,
    DRAIN_SECONDS: '1',
    CONTROL_URL: controlUrl,
    WS_PORT: '0',
    ADMIN_PORT: '0',
  })
  nodes.push(program)
  const [, wsUrl, adminUrl] = await program.said(/ready: websocket (ws:[^,]+), admin (http:\/\/[\d.:]+)/)
  return { program, wsUrl: wsUrl!, adminUrl: adminUrl! }
}

async function end({ program }: Control): Promise<void> {
  program.child.kill('SIGTERM')
  await program.ended
}

/** Runs a block of commands without changes. Returns its output. */
async function type(block: string, more: Record<string, string> = {}): Promise<string> {
  const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', block], {
    cwd: folder,
    env: { ...env, ...more },
  })
  return stdout
}

/** Returns the cells of a table of `roomful admin`, without the headings. */
const rowsOf = (out: string): string[][] =>
  out
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => line.split(/ {2,}/))

const call = (url: string, path: string, body?: object) => callControl(url, 'POST', path, body, OPERATOR)

/** Creates a project with a key. */
async function makeKey(url: string): Promise<{ PROJECT: string; KEY: string }> {
  const { id: PROJECT } = await call(url, '/projects', { name: 'runbooks' })
  const { id: KEY } = await call(url, `/projects/${PROJECT}/keys`, {})
  return { PROJECT: PROJECT!, KEY: KEY! }
}

const canIssue = (url: string, { PROJECT, KEY }: { PROJECT: string; KEY: string }): Promise<boolean> =>
  call(url, '/tokens', { project_id: PROJECT, key_id: KEY }).then(
    ({ token }) => token!.startsWith('v4.public.'),
    () => false,
  )

/** Returns the paths of all names in a value. Of a list, only those in its first element. */
function namesIn(value: unknown, path = ''): string[] {
  if (Array.isArray(value)) return namesIn(value[0], `${path}[]`)
  if (typeof value !== 'object' || value === null) return [path]
  return Object.entries(value)
    .flatMap(([name, one]) => namesIn(one, `${path}.${name}`))
    .sort()
}

async function loginTo(url: string): Promise<{ token: string; PROJECT: string }> {
  const { id: PROJECT } = await call(url, '/projects', { name: 'runbooks' })
  const { token } = await call(url, '/tokens', { project_id: PROJECT, sub: 'player-1' })
  return { token: token!, PROJECT: PROJECT! }
}

describe('the commands of docs/operations.md and docs/runbooks.md', () => {
  it('rotate a key, list the old key, and revoke it', async () => {
    const [rotate, list, revoke] = commands('Rotate a key')
    const key = await makeKey(control.url)
    const fresh = JSON.parse(await type(rotate!, key))
    expect(fresh).toMatchObject({ rotated_from: key.KEY, secret: expect.stringMatching(/^rfsk_/) })
    expect(rowsOf(await type(list!, key))).toEqual([
      expect.arrayContaining([fresh.id, 'active']),
      expect.arrayContaining([key.KEY, 'retiring']),
    ])
    expect(JSON.parse(await type(revoke!, key))).toMatchObject({ id: key.KEY, status: 'revoked' })
    expect(await canIssue(control.url, key)).toBe(false)
  })

  it('back up projects and keys, and restore them in another Redis', async () => {
    const [backup, restore] = commands('Back up and restore')
    const key = await makeKey(control.url)
    await type(backup!)
    const port = String(await freePort())
    const restored = asRedisUser(`redis://127.0.0.1:${port}`, 'operator')
    await type(restore!, {
      NEW_PORT: port,
      ACL_FILE: join(folder, 'users.acl'),
      NEW_OPERATOR_REDIS_URL: restored,
    })
    try {
      const elsewhere = await startControl(
        asRedisUser(`redis://127.0.0.1:${port}`, 'roomful-control'),
        OLD_SECRET,
      )
      expect(await canIssue(elsewhere.url, key)).toBe(true)
      await end(elsewhere)
    } finally {
      await run('redis-cli', ['-u', restored, 'shutdown', 'nosave']).catch(() => undefined)
    }
  })

  it('change the keyring secret in three steps, while control runs', async () => {
    const [rekey] = commands('Change a secret')
    const key = await makeKey(control.url)
    const url = asRedisUser(redis.url, 'roomful-control')
    const both = await startControl(url, `${OLD_SECRET},${NEW_SECRET}`)
    const swapped = await startControl(url, `${NEW_SECRET},${OLD_SECRET}`)
    const madeInStep2 = await makeKey(swapped.url)
    expect(await canIssue(both.url, madeInStep2)).toBe(true)
    await type(rekey!, { NEW_SECRET, OLD_SECRET })
    const done = await startControl(url, NEW_SECRET)
    expect([await canIssue(done.url, key), await canIssue(done.url, madeInStep2)]).toEqual([true, true])
    await Promise.all([both, swapped, done].map(end))
  })

  it('change the password of a Redis user in two steps, and save it to the aclfile', async () => {
    const [, accept, remove] = commands('Change a secret')
    const names = {
      REDIS_USER: 'roomful-node',
      NEW_PASSWORD: 'another',
      OLD_PASSWORD: 'password-of-roomful-node',
    }
    const old = asRedisUser(redis.url, 'roomful-node')
    const fresh = old.replace(names.OLD_PASSWORD, names.NEW_PASSWORD)
    const lets = async (url: string) =>
      !(await run('redis-cli', ['-u', url, 'ping'])).stderr.includes('AUTH failed')
    const hashed = (password: string) => createHash('sha256').update(password).digest('hex')
    const saved = () => readFile(join(folder, 'users.acl'), 'utf8')
    await type(accept!, names)
    expect([await lets(old), await lets(fresh)]).toEqual([true, true])
    await type(remove!, names)
    expect([await lets(old), await lets(fresh)]).toEqual([false, true])
    expect(await saved()).toContain(hashed(names.NEW_PASSWORD))
    expect(await saved()).not.toContain(hashed(names.OLD_PASSWORD))
    await type(accept!, { ...names, NEW_PASSWORD: names.OLD_PASSWORD })
  })

  it('show the cluster and a room that may be stuck, and close the room', async () => {
    const { token, PROJECT } = await loginTo(control.url)
    const client = await connect(wsUrl, { projectId: PROJECT, token })
    const room = await client.join<typeof arena>('arena', { key: 'stuck' })
    await room.send('move', { x: 1, y: 2 })
    const [look] = blocks(runbooks, 'sh')
    expect(rowsOf(await type(look!))[0]!.slice(0, 4)).toEqual(['node-1', 'serving', '1', '1'])
    const [find, lookInto, close] = commands('A room is stuck')
    const which = { PROJECT, ROOM: 'arena:stuck' }
    expect(rowsOf(await type(find!, which))).toEqual([
      expect.arrayContaining([PROJECT, 'arena:stuck', 'node-1']),
    ])
    const shown = await type(lookInto!, which)
    for (const part of ['player-1', '"seq": ', '"players"']) expect(shown).toContain(part)
    const left = new Promise((resolve) => room.onLeave(resolve))
    expect(JSON.parse(await type(close!, which))).toMatchObject({ room_id: 'arena:stuck', ended: true })
    expect(await left).toBe('closed')
    client.close()
  })

  it('show a list, a queue, a room and notices, and ban a player', async () => {
    const { token, PROJECT } = await loginTo(control.url)
    const client = withQueues(await connect(wsUrl, { projectId: PROJECT, token }))
    const closed = new Promise((resolve) =>
      client.onConnectionChange((_, error) => error && resolve(error.code)),
    )
    await client.join('arena', { key: 'listed' })
    client.queue('cards-ranked', {}).matched.catch(() => {})
    const which = {
      PROJECT,
      ROOM: 'arena:listed',
      ROOM_TYPE: 'arena',
      QUEUE: 'cards-ranked',
      SUB: 'player-1',
    }
    const [find] = commands('Rooms cannot be found')
    const [queue] = commands('Players get no match')
    const [calls] = commands('Calls of backends fail')
    const [dead, resend] = commands('Notices are not accepted')
    const [ban, unban] = commands('Ban a player')
    // Nodes write rows and read lists about once a second.
    const found = async () => (await type(find!, which)).split(/\barena:listed /)
    await vi.waitFor(async () => expect(await found()).toHaveLength(3), PATIENCE)
    const tickets = /cards-ranked:default [^\n]*node-1[\s\S]*"wins": 0/
    await vi.waitFor(async () => expect(await type(queue!, which)).toMatch(tickets), PATIENCE)
    expect(await type(calls!, which)).toContain('"room_id": "arena:listed"')
    expect(await type(dead!, which)).toBe('none\n')
    expect(JSON.parse(await type(resend!, which))).toEqual({ delivered: 0 })
    expect(JSON.parse(await type(ban!, which))).toMatchObject({
      sub: 'player-1',
      ban: { reason: 'cheating' },
    })
    expect(await closed).toBe('banned')
    expect(await type(unban!, which)).toMatch(/player-1 .* cheating[\s\S]*"ban": null/)
  })

  it('cordon a node, end a session, and disable and delete a project', async () => {
    const [cordon] = commands('Cordon a node')
    expect(await type(cordon!)).toMatch(/"cordoned": true[\s\S]*"cordoned": false/)
    const [end, disable, remove] = commands('End a session, disable or delete a project')
    const { token, PROJECT } = await loginTo(control.url)
    const client = await connect(wsUrl, { projectId: PROJECT, token })
    // An empty room of this type stays for 60 s, longer than the commands take on a busy machine.
    await client.join('tictactoe', { key: 'short' })
    const closed = new Promise((resolve) =>
      client.onConnectionChange((_, error) => error && resolve(error.code)),
    )
    const [find] = end!.split('\n')
    const [row] = rowsOf(await type(find!)).filter((cells) => cells.includes(PROJECT))
    const SESSION = row![1]!
    expect(await type(end!, { PROJECT, SESSION })).toContain('"ended": true')
    expect(await closed).toBe('revoked')
    expect(await type(disable!, { PROJECT })).toMatch(/"disabled_at": "[\s\S]*"disabled_at": null/)
    expect(await type(remove!, { PROJECT })).toMatch(/"deleted": true,\n +"ended_rooms": 1/)
  })

  it('show a room in quarantine, and restore it', async () => {
    const { token, PROJECT } = await loginTo(control.url)
    const which = { PROJECT, ROOM: 'counter:aside' }
    const client = await connect(wsUrl, { projectId: PROJECT, token })
    const room = await client.join('counter', { key: 'aside' })
    await room.send('inc', { by: 3 })
    const stem = `roomful:{room:${PROJECT}/counter:aside}`
    const admin = new Redis(env.OPERATOR_REDIS_URL!)
    try {
      // As if its node had died, and a byte of its snapshot had changed.
      const sound = (await admin.getBuffer(`${stem}:snapshot`))!
      const damaged = Buffer.from(sound)
      damaged[20]! ^= 1
      const epoch = Number(await admin.hget(`${stem}:record`, 'epoch'))
      await admin
        .multi()
        .set(`${stem}:snapshot`, damaged)
        .hset(`${stem}:record`, { epoch: epoch + 1, owner: '' })
        .exec()
      await expect(room.send('inc', { by: 4 })).rejects.toMatchObject({ code: 'not_in_room' })
      client.close()
      const [show, restore] = commands('A room was put in quarantine')
      const shown = await type(show!, which)
      expect(shown).toContain(`${stem}:quarantine\n`)
      expect(shown).toMatch(/^a room record of \d+ bytes is damaged/m)
      expect((await readFile(join(folder, 'snapshot.bin'))).subarray(0, -1)).toEqual(damaged)
      await admin.set(`${stem}:quarantine:snapshot`, sound)
      expect(await type(restore!, which)).toBe('restored\n')
      const again = await connect(wsUrl, { projectId: PROJECT, token })
      expect((await again.join('counter', { key: 'aside' })).state).toEqual({ count: 3 })
      again.close()
      await expect(type(restore!, which)).resolves.toContain('nothing of this room is in quarantine')
    } finally {
      admin.disconnect()
    }
  })

  it.each([
    ['Latency is up', /cmdstat_evalsha/],
    ['Redis is gone', /PONG[\s\S]*role:master/],
    ['A replica of Redis is missing', /role:master[\s\S]*connected_slaves:0/],
    ['Redis is full', /OK[\s\S]*maxmemory_policy:noeviction[\s\S]*keys/],
    ['Control fails', /ready[\s\S]*service_store_up 1/],
  ])('of the runbook "%s" print its facts', async (heading, facts) => {
    let output = ''
    for (const block of commands(heading)) output += await type(block)
    expect(output).toMatch(facts)
  })

  it('start a cluster in a first deployment by hand', async () => {
    const [secrets, onControl, onNode, project] = commands('A first deployment') as [
      string,
      string,
      string,
      string,
    ]
    await symlink(join(root, 'examples'), join(folder, 'rooms'))
    const plain = await startRedisWith({})
    const [port, adminPort, wsPort] = [await freePort(), await freePort(), await freePort()].map(String)
    const here = (block: string) =>
      block
        .replaceAll('/etc/roomful', folder)
        .replaceAll('redis://redis.internal:6379', plain.url)
        .replaceAll('control.internal:3000', `127.0.0.1:${port}`)
        .replaceAll('node-1.internal:9100', `127.0.0.1:${adminPort}`)
    await type(here(secrets))
    const own = {
      CONTROL_PORT: port!,
      ADMIN_PORT: adminPort!,
      WS_PORT: wsPort!,
      // The machines of a deployment do not have the variables of the operator's shell.
      CONTROL_API_TOKENS: '',
      INTERNAL_TOKEN: '',
    }
    const started = [onControl, onNode].map((block) => startTyped(here(block), folder, { ...env, ...own }))
    try {
      await started[0]!.said(/ready/)
      const made = JSON.parse(await type(here(project)))
      expect(made).toMatchObject({ id: expect.stringMatching(/^prj_/), name: 'my game' })
      const secret = await readFile(join(folder, 'secrets/operator-tokens'), 'utf8')
      const issued = await fetch(`http://127.0.0.1:${port}/tokens`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret.trim()}`, 'content-type': 'application/json' },
        body: JSON.stringify({ project_id: made.id }),
      })
      const { token } = (await issued.json()) as { token: string }
      await started[1]!.said(/ready/)
      const client = await connect(`ws://127.0.0.1:${wsPort}`, { projectId: made.id, token })
      const room = await client.join('counter', { key: 'first' })
      await room.send('inc', { by: 3 })
      expect(room.state).toEqual({ count: 3 })
      client.close()
    } finally {
      for (const one of started) one.end()
      await plain.close()
    }
  })

  it('use only variables that the first block exports or the text names', async () => {
    const [given] = commands('Procedures')
    const exported = (await type(`${given}\nexport -p`, { PATH: process.env.PATH! }))
      .split('\n')
      .map((line) => /^declare -x ([A-Z_]+)=/.exec(line)?.[1])
    for (const name of [
      'CONTROL_URL',
      'ADMIN_URL',
      'CONTROL_API_TOKENS',
      'INTERNAL_TOKEN',
      'OPERATOR_REDIS_URL',
    ])
      expect(given).toContain(`export ${name}=`)
    const [, procedures] = operations.split('\n## Procedures\n')
    const read = `${procedures}${runbooks}`
    const prose = read.replaceAll(/^```.*?^```/gms, '')
    const used = blocks(read, 'sh').flatMap((code) =>
      [...code.matchAll(/\$\{?([A-Z_]+)/g)].map(([, name]) => name!),
    )
    const missing = used.filter((name) => !exported.includes(name) && !prose.includes(`\`${name}\``))
    expect([...new Set(missing)]).toEqual([])
  })

  it('in docs/reference.md print the fields of a node that the page shows', async () => {
    const { token, PROJECT } = await loginTo(control.url)
    const client = await connect(wsUrl, { projectId: PROJECT, token })
    await client.join('arena', { key: 'lobby-1' })
    const [look] = codeOf('docs/reference.md', 'sh', 'Admin')
    const [shown] = codeOf('docs/reference.md', 'json', 'Admin')
    const runtime = JSON.parse(await type(look!.replace('http://127.0.0.1:9100', env.ADMIN_URL!)))
    const [room] = runtime.rooms
    expect(room.state.players).toBeDefined()
    delete room.state
    expect(namesIn(runtime)).toEqual(namesIn(JSON.parse(shown!)))
    client.close()
  })

  it('drain a node, which then exits', async () => {
    const [drain] = commands('Take a node out')
    expect(JSON.parse(await type(drain!))).toEqual({ draining: true })
    expect(await node.ended).toBe(0)
  })
})

describe('A Redis whose user default may not replay its append-only file', () => {
  let place = ''
  let limited: RedisServer
  let control: Control
  let keys: { PROJECT: string; KEY: string }[]
  let own: Record<string, string>

  beforeEach(async () => {
    place = await newFolder()
    const aclFile = join(place, 'users.acl')
    await writeFile(aclFile, limitedUsersFile())
    limited = await startRedisWith({ settings: { appendonly: 'yes', aclfile: aclFile } })
    const operator = asRedisUser(limited.url, 'operator')
    control = await startControl(asRedisUser(limited.url, 'roomful-control'), OLD_SECRET)
    keys = [await makeKey(control.url), await makeKey(control.url)]
    const [, dir] = await asAdmin(operator, (redis) => redis.config('GET', 'dir') as Promise<string[]>)
    own = {
      OPERATOR_REDIS_URL: operator,
      ACL_FILE: aclFile,
      REDIS_DIR: dir!,
      REDIS_LOG: join(dir!, 'redis.log'),
    }
  })
  afterEach(async () => {
    await end(control)
    await limited.close()
  })

  const issued = () => Promise.all(keys.map((key) => canIssue(control.url, key)))
  const metric = async () => {
    const text = await (await fetch(`${control.url}/metrics`)).text()
    return /^service_redis_restart_loses_data\{.*\} (\d)$/m.exec(text)?.[1]
  }

  it('warns, and keeps all projects and keys with the commands of its runbook', async () => {
    await control.program.said(/a restart of Redis would lose all data/)
    expect(await metric()).toBe('1')
    const [prepare, stop, check] = commands('A restart of Redis would lose all data')
    expect(await type(prepare!, own)).toMatch(/^user default off resetpass ~\* &\* \+@all$/m)
    await type(stop!, own)
    await limited.restart()
    expect(await type(check!, own)).toContain('user default off ')
    await vi.waitFor(async () => expect(await issued()).toEqual([true, true]), PATIENCE)
    await vi.waitFor(async () => expect(await metric()).toBe('0'), PATIENCE)
  })

  it('loses all data at a restart, and gets it back with the commands of the runbooks', async ({ skip }) => {
    const player = await startNode('node-1', limited.url, control.url)
    const { token, PROJECT } = await loginTo(control.url)
    const client = await connect(player.wsUrl, { projectId: PROJECT, token })
    const room = await client.join('counter', { key: 'kept' })
    await room.send('inc', { by: 3 })
    await run('redis-cli', ['-u', own.OPERATOR_REDIS_URL!, 'shutdown', 'nosave'])
    await limited.restart()
    const log = await readFile(own.REDIS_LOG!, 'utf8')
    skip(!log.includes('CRITICAL'), 'this server replays its append-only file as no user')
    await control.program.said(/the store lost its data/)
    expect(await issued()).toEqual([false, false])
    // The node has written the room again.
    await room.send('inc', { by: 4 })
    const [keep, find] = commands('Redis lost its data')
    expect(await type(keep!, own)).toMatch(/aof_enabled:0\s+aof_last_rewrite_time_sec:-1/)
    expect(await type(find!, own)).toMatch(/NOPERM[\s\S]*uptime_in_seconds:\d+[\s\S]*nobody has flushed it/)
    const [mend, check] = commands('Redis rejected its append-only file')
    await type(mend!, own)
    await limited.restart()
    expect(await type(check!, own)).toMatch(/appendonly\s+yes/)
    await control.program.said(/the store has its earlier data again/)
    expect(await issued()).toEqual([true, true])
    await player.program.said(/the store has its earlier data again/)
    await room.send('inc', { by: 5 })
    client.close()
    player.program.child.kill('SIGKILL')
    await player.program.ended
    const next = await startNode('node-2', limited.url, control.url)
    const again = await connect(next.wsUrl, { projectId: PROJECT, token })
    expect((await again.join('counter', { key: 'kept' })).state).toEqual({ count: 12 })
    again.close()
    next.program.child.kill('SIGKILL')
  })
})

describe('the runbooks', () => {
  it('have valid Prometheus queries', async () => {
    const queries = blocks(runbooks, 'promql')
    const rules = queries.map((expr, i) => ({ record: `runbook:${i}`, expr }))
    const file = join(folder, 'queries.yml')
    await writeFile(file, stringify({ groups: [{ name: 'runbooks', rules }] }))
    const { stdout } = await run(programOr('promtool', 'prometheus'), ['check', 'rules', file])
    expect(stdout).toContain(`SUCCESS: ${queries.length} rules found`)
  })
})
