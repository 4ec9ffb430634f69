import { execFile } from 'node:child_process'
import { chmod, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import type arena from '../examples/arena/room.ts'
import { programOr } from './support/debian-package.ts'
import { type Program, startProgram } from './support/program.ts'
import { freePort } from './support/redis-port.ts'
import { type RedisServer, startRedisWith } from './support/redis-server.ts'

/** What docs/operations.md tells operators to type is typed here, as it stands, at a real deployment. */

const run = promisify(execFile)
const root = fileURLToPath(new URL('..', import.meta.url))
const page = await readFile(join(root, 'docs/operations.md'), 'utf8')

/** What stands under a heading, up to the next one of any level. */
const under = (heading: string): string => page.split(`\n### ${heading}\n`)[1]?.split(/^###? /m)[0] ?? ''

const blocks = (text: string, language: string): string[] =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(([, code]) => code!)

/** The commands under a heading, in order. */
function commands(heading: string): string[] {
  const found = blocks(under(heading), 'sh')
  if (found.length === 0) throw new Error(`docs/operations.md has no commands under "${heading}"`)
  return found
}

const runbooks = page.split('\n## Runbooks\n')[1]!
/** The headings below "Runbooks", each with its own text. */
const sections = new Map(
  runbooks
    .split(/^### /m)
    .slice(1)
    .map((text) => [text.slice(0, text.indexOf('\n')), text]),
)

let folder = ''
let redis: RedisServer
let control: Control
let node: Program
/** Every control process that was started. */
const controls: Program[] = []
let ws_url = ''
let env: Record<string, string>

const OPERATOR = { authorization: 'Bearer operator-of-the-runbooks' }
const INTERNAL = 'internal-token-of-the-runbooks'
const OLD_SECRET = 'the keyring secret that goes'
const NEW_SECRET = 'the keyring secret that comes'

beforeAll(async () => {
  for (const program of ['curl', 'jq']) programOr(program)
  folder = await mkdtemp(join(tmpdir(), 'roomful-runbooks-'))
  const shim = join(folder, 'roomful')
  await writeFile(shim, `#!/bin/sh\nexec node --import tsx ${root}deploy/cli/roomful.ts "$@"\n`)
  await chmod(shim, 0o755)
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'))
  redis = await startRedisWith({ settings: { appendonly: 'yes', 'repl-diskless-sync-delay': '0' } })
  control = await startControl(redis.url, OLD_SECRET)
  const common = { REDIS_URL: redis.url, INTERNAL_TOKEN: INTERNAL, NODE_ID: 'node-1', DRAIN_SECONDS: '1' }
  node = startProgram(['dataplane'], { ...common, CONTROL_URL: control.url, WS_PORT: '0', ADMIN_PORT: '0' })
  const [, websocket, admin_url] = await node.said(/ready: websocket (ws:[^,]+), admin (http:\/\/[\d.:]+)/)
  ws_url = websocket!
  env = {
    PATH: `${folder}:${process.env.PATH}`,
    HOME: folder,
    CONTROL: control.url,
    NODE: admin_url!,
    OPERATOR_TOKEN: 'operator-of-the-runbooks',
    INTERNAL_TOKEN: INTERNAL,
    REDIS_URL: redis.url,
    LOG_FORMAT: 'json',
  }
}, 60_000)

afterAll(async () => {
  for (const { child } of controls) child.kill('SIGKILL')
  node?.child.kill('SIGKILL')
  await redis?.close()
  await rm(folder, { recursive: true, force: true })
})

interface Control {
  readonly program: Program
  readonly url: string
}

async function startControl(redis_url: string, secret: string): Promise<Control> {
  const program = startProgram(['control'], {
    REDIS_URL: redis_url,
    CONTROL_PORT: '0',
    CONTROL_API_TOKENS: 'operator-of-the-runbooks',
    INTERNAL_TOKEN: INTERNAL,
    KEYRING_SECRET: secret,
  })
  controls.push(program)
  const [, url] = await program.said(/ready: api (http:\/\/[\d.:]+)/)
  return { program, url: url! }
}

async function end({ program }: Control): Promise<void> {
  program.child.kill('SIGTERM')
  await program.ended
}

/** Runs a block of commands as it stands; what it prints. */
async function type(block: string, more: Record<string, string> = {}): Promise<string> {
  const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', block], {
    cwd: folder,
    env: { ...env, ...more },
  })
  return stdout
}

async function call(url: string, path: string, body?: object): Promise<Record<string, string>> {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { ...OPERATOR, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`)
  return (await response.json()) as Record<string, string>
}

/** A project with a key, at a control process. */
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

/** Runbooks with commands. */
const TYPED = ['A room is stuck', 'Latency is up', 'Redis is gone', 'Redis is full', 'Control fails']

async function loginTo(url: string): Promise<{ token: string; PROJECT: string }> {
  const { id: PROJECT } = await call(url, '/projects', { name: 'runbooks' })
  const { token } = await call(url, '/tokens', { project_id: PROJECT, sub: 'player-1' })
  return { token: token!, PROJECT: PROJECT! }
}

describe('docs/operations.md, as it is typed', () => {
  it('rotates a key, lists what is left of the old one, and revokes', async () => {
    const [rotate, list, revoke] = commands('Rotate a key')
    const key = await makeKey(control.url)
    const fresh = JSON.parse(await type(rotate!, key))
    expect(fresh).toMatchObject({ rotated_from: key.KEY, secret: expect.stringMatching(/^rfsk_/) })
    const rows = (await type(list!, key)).trim().split('\n')
    expect(rows.map((row) => row.split('\t').slice(0, 2))).toEqual([
      [fresh.id, 'active'],
      [key.KEY, 'retiring'],
    ])
    expect(JSON.parse(await type(revoke!, key))).toMatchObject({ id: key.KEY, status: 'revoked' })
    expect(await canIssue(control.url, key)).toBe(false)
  })

  it('backs projects and keys up, and has them again in another Redis', async () => {
    const [backup, restore] = commands('Back up and restore')
    const key = await makeKey(control.url)
    await type(backup!)
    const port = String(await freePort())
    await type(restore!, { NEW_PORT: port })
    const restored = `redis://127.0.0.1:${port}`
    try {
      const elsewhere = await startControl(restored, OLD_SECRET)
      expect(await canIssue(elsewhere.url, key)).toBe(true)
      await end(elsewhere)
    } finally {
      await run('redis-cli', ['-u', restored, 'shutdown', 'nosave']).catch(() => undefined)
    }
  })

  it('changes the keyring secret in three steps, while control serves', async () => {
    const [rekey] = commands('Change a secret')
    const key = await makeKey(control.url)
    const both = await startControl(redis.url, `${OLD_SECRET},${NEW_SECRET}`)
    const swapped = await startControl(redis.url, `${NEW_SECRET},${OLD_SECRET}`)
    const made_in_step_2 = await makeKey(swapped.url)
    expect(await canIssue(both.url, made_in_step_2)).toBe(true)
    await type(rekey!, { NEW_SECRET, OLD_SECRET })
    const done = await startControl(redis.url, NEW_SECRET)
    expect([await canIssue(done.url, key), await canIssue(done.url, made_in_step_2)]).toEqual([true, true])
    await Promise.all([both, swapped, done].map(end))
  }, 60_000)

  it('looks at a cluster, and at a room that may be stuck', async () => {
    const { token, PROJECT } = await loginTo(control.url)
    const client = await connect(ws_url, { projectId: PROJECT, token })
    const room = await client.join<typeof arena>('arena', { key: 'stuck' })
    await room.send('move', { x: 1, y: 2 })
    const [look] = blocks(runbooks, 'sh')
    expect((await type(look!)).split('\t').slice(0, 5)).toEqual(['node-1', 'true', 'false', '1', '1'])
    const [whereabouts, owner] = commands('A room is stuck')
    const which = { PROJECT, ROOM: 'arena:stuck' }
    expect(JSON.parse(await type(whereabouts!, which))).toMatchObject({
      owner: { node_id: 'node-1', alive: true },
    })
    expect(JSON.parse(await type(owner!, which))).toMatchObject({
      room_id: 'arena:stuck',
      members: [{ sub: 'player-1', connected: true, node_id: 'node-1' }],
    })
    client.close()
  })

  it.each([
    ['Latency is up', /cmdstat_evalsha/],
    ['Redis is gone', /PONG[\s\S]*role:master/],
    ['Redis is full', /OK[\s\S]*maxmemory_policy:noeviction[\s\S]*keys/],
    ['Control fails', /ready[\s\S]*service_store_up 1/],
  ])('%s: its commands tell what they are there for', async (heading, told) => {
    let said = ''
    for (const block of commands(heading)) said += await type(block)
    expect(said).toMatch(told)
  })

  it('has no commands among the runbooks that no test types', () => {
    const typed = [...blocks(runbooks.split(/^### /m)[0]!, 'sh'), ...TYPED.flatMap(commands)]
    expect(typed).toEqual(blocks(runbooks, 'sh'))
  })

  it('takes a node out, which ends by itself', async () => {
    const [drain] = commands('Take a node out')
    expect(JSON.parse(await type(drain!))).toEqual({ draining: true })
    expect(await node.ended).toBe(0)
  })
})

describe('the runbooks', () => {
  it('name the alerts that link to them, and no others', async () => {
    const { groups } = parse(await readFile(join(root, 'deploy/prometheus/alerts.yml'), 'utf8')) as {
      groups: { rules: { alert: string; annotations: { runbook_url: string } }[] }[]
    }
    const linked = groups
      .flatMap(({ rules }) => rules)
      .map(({ alert, annotations }) => `${annotations.runbook_url.split('#')[1]}: ${alert}`)
    const named = [...sections].flatMap(([heading, text]) => {
      const alerts = /^\*(Roomful[^*]+)\*/m.exec(text)?.[1] ?? ''
      const anchor = heading.toLowerCase().replaceAll(' ', '-')
      return alerts
        .replace(/\.$/, '')
        .split(/,\s+/)
        .map((alert) => `${anchor}: ${alert}`)
    })
    expect(named.sort()).toEqual(linked.sort())
  })

  it('ask Prometheus what it understands', async () => {
    const queries = blocks(runbooks, 'promql')
    const rules = queries.map((expr, i) => ({ record: `runbook:${i}`, expr }))
    const file = join(folder, 'queries.yml')
    await writeFile(file, stringify({ groups: [{ name: 'runbooks', rules }] }))
    const { stdout } = await run(programOr('promtool', 'prometheus'), ['check', 'rules', file])
    expect(stdout).toContain(`SUCCESS: ${queries.length} rules found`)
  })

  it('ask for metrics that there are', async () => {
    const reference = await readFile(join(root, 'docs/reference.md'), 'utf8')
    const known = new Set([...reference.matchAll(/^\| `(service_\w+)`/gm)].map(([, name]) => name!))
    const asked = [...page.matchAll(/service_[a-z_]+/g)].map(([name]) =>
      name.replace(/_(bucket|sum|count)$/, ''),
    )
    const prefixes = [...known]
    expect(
      asked.filter(
        (name) => !known.has(name) && !(name.endsWith('_') && prefixes.some((p) => p.startsWith(name))),
      ),
    ).toEqual([])
  })
})
