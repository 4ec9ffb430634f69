import { execFile } from 'node:child_process'
import { chmod, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { programOr } from './support/debian-package.ts'
import { type Program, startProgram } from './support/program.ts'
import { freePort } from './support/redis-port.ts'
import { type RedisServer, startRedisWith } from './support/redis-server.ts'

/** What docs/operations.md tells operators to type is typed here, as it stands, at a real deployment. */

const run = promisify(execFile)
const root = fileURLToPath(new URL('..', import.meta.url))
const page = await readFile(join(root, 'docs/operations.md'), 'utf8')

/** The commands under a heading, in order. */
function commands(heading: string): string[] {
  const section = page.split(`\n### ${heading}\n`)[1]?.split(/^###? /m)[0]
  const found = [...(section ?? '').matchAll(/^```sh\n(.*?)^```/gms)].map(([, code]) => code!)
  if (found.length === 0) throw new Error(`docs/operations.md has no commands under "${heading}"`)
  return found
}

let folder = ''
let redis: RedisServer
let control: Control
let node: Program
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
  const [, admin_url] = await node.said(/ready: .*admin (http:\/\/[\d.:]+)/)
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
  control?.program.child.kill('SIGKILL')
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
  })

  it('takes a node out, which ends by itself', async () => {
    const [drain] = commands('Take a node out')
    expect(JSON.parse(await type(drain!))).toEqual({ draining: true })
    expect(await node.ended).toBe(0)
  })
})
