import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Pool } from 'pg'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { findProgram } from '../../../deploy/local/machine.ts'
import { testRooms } from '../../../test/kit/index.ts'
import { findOrInstall } from '../../../test/support/debian-package.ts'
import { codeOf } from '../../../test/support/pages.ts'
import { runProgram } from '../../../test/support/program.ts'
import { freePort } from '../../../test/support/redis-server.ts'
import { newFolder } from '../../../test/support/run-folder.ts'
import { defineRoom } from '../../index.ts'
import { postgresRooms, postgresSchema } from './postgres.ts'

/** A Postgres server that belongs to one test file. */
interface PostgresServer {
  /** `postgres://…`, for `pg.Pool`. */
  readonly url: string
  /** Ends the server and removes its files. */
  close(): Promise<void>
}

/** Folder of Debian's Postgres versions. */
const DEBIAN = '/usr/lib/postgresql'

/** Returns the path of a server program: in PATH, else of the newest version of Debian's package. */
function findServerProgram(name: string): string | undefined {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a)) : []
  const debian = versions.map((version) => join(DEBIAN, version, 'bin', name)).find(existsSync)
  return findProgram([name], process.env.PATH) ?? debian
}

const serverProgram = (name: string): string =>
  findOrInstall(name, ['postgresql'], () => findServerProgram(name))

/** Postgres refuses to run as root. */
function unprivileged(): { uid: number; gid: number } | Record<never, never> {
  if (process.getuid?.() !== 0) return {}
  const idOf = (flag: string) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }))
  return { uid: idOf('-u'), gid: idOf('-g') }
}

/** Starts a Postgres on a free port of this machine, with a new cluster. */
async function startPostgres(): Promise<PostgresServer> {
  const [initdb, postgres] = [serverProgram('initdb'), serverProgram('postgres')]
  const user = unprivileged()
  // Not in the folder of the run: the user postgres may not enter it.
  const folder = mkdtempSync('/tmp/roomful-postgres-')
  if ('uid' in user) chownSync(folder, user.uid, user.gid)
  const options = { ...user, cwd: folder, env: { PATH: process.env.PATH } }
  const data = join(folder, 'data')
  const made = spawnSync(
    initdb,
    ['-D', data, '-U', 'roomful', '--auth=trust', '--no-sync', '--encoding=UTF8', '--locale=C'],
    { ...options, encoding: 'utf8' },
  )
  if (made.status !== 0) throw new Error(`initdb failed: ${made.stdout}${made.stderr}`)
  const port = await freePort()
  const listens = ['-p', String(port), '-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories=']
  const child = spawn(postgres, ['-D', data, ...listens, '-c', 'fsync=off'], options)
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  // SIGQUIT ends all processes of Postgres immediately.
  const kill = () => void child.kill('SIGQUIT')
  process.once('exit', kill)
  const close = async (): Promise<void> => {
    process.off('exit', kill)
    kill()
    await ended
    rmSync(folder, { recursive: true, force: true })
  }
  let output = ''
  await new Promise<void>((resolve, reject) => {
    child.stderr.on('data', (chunk: Buffer) => {
      output += chunk
      if (/ready to accept connections/.test(output)) resolve()
    })
    void ended.then(() => reject(new Error(`postgres ended: ${output}`)))
  })
  return { url: `postgres://roomful@127.0.0.1:${port}/postgres`, close }
}

let server: PostgresServer
let pool: Pool
beforeAll(async () => {
  server = await startPostgres()
  pool = new Pool({ connectionString: server.url })
  await pool.query(postgresSchema('rooms'))
})
afterAll(async () => {
  await pool?.end()
  await server?.close()
})

const counter = (type: string) =>
  defineRoom({
    type,
    create: () => ({ count: 0, said: '' }),
    ...postgresRooms(pool, { table: 'rooms', everySeconds: 2 }),
    messages: {
      say: {
        handle(state) {
          state.count++
          state.said = 'é\0 "\\'
        },
      },
    },
  })

const at = (key: string, epoch: number, seq: number) =>
  ({ projectId: 'prj_1', roomType: 'duel', key, epoch, seq, last: false }) as const

describe('postgresRooms', () => {
  it('continues a room from its row, also after a crash, and separates room types', async () => {
    const first = await testRooms([counter('one'), counter('two')])
    const [ada] = await first.join('one')
    await ada.send('say')
    await first.killOwner()
    await ada.send('say')
    await first.advance(3000)
    await first.close()
    await expect
      .poll(async () => (await pool.query('SELECT room_type, key, version, state FROM rooms')).rows)
      .toEqual([{ room_type: 'one', key: 'default', version: 1, state: { count: 2, said: 'é\0 "\\' } }])
    const later = await testRooms([counter('one'), counter('two')])
    const [bob] = await later.join('one')
    const [eve] = await later.join('two')
    expect([bob.state.count, eve.state.count]).toEqual([2, 0])
    await later.close()
  })

  it('keeps the boards of examples/notes if DATABASE_URL is set', async () => {
    vi.stubEnv('DATABASE_URL', server.url)
    const { default: notes } = await import('../../../examples/notes/room.ts')
    vi.unstubAllEnvs()
    const t = await testRooms([notes])
    const [ada] = await t.join('notes')
    await ada.send('pin', { text: 'milk' })
    await t.advance(3000)
    await expect
      .poll(async () => (await pool.query("SELECT state FROM rooms WHERE room_type = 'notes'")).rows)
      .toEqual([{ state: { next: 2, notes: { 1: 'milk' } } }])
    await t.close()
  })

  it('refuses a save that is older than the row', async () => {
    const { load, save } = postgresRooms(pool, { table: 'rooms' })
    const loaded = () => load('a', {}, at('a', 0, 0))
    await save.to('new', at('a', 1_790_000_000_002, 5))
    await save.to('late', at('a', 1_790_000_000_001, 9))
    await save.to('older', at('a', 1_790_000_000_002, 4))
    expect(await loaded()).toBe('new')
    await save.to('again', at('a', 1_790_000_000_002, 5))
    expect(await loaded()).toBe('again')
    await save.to('newest', at('a', 1_790_000_000_003, 1))
    expect(await loaded()).toBe('newest')
    expect(await load('a', {}, { projectId: 'prj_2', roomType: 'duel' })).toBe(undefined)
  })

  it('converts a row of an older version, and rejects one of a newer version', async () => {
    const old = postgresRooms(pool, { table: 'rooms' })
    await old.save.to({ hp: 3 }, at('b', 1, 1))
    const migrate = {
      1: (state: { hp: number; full?: number }) => {
        state.full = 100
      },
      2: ({ hp, full }: { hp: number; full: number }) => ({ health: hp / full }),
    }
    const now = postgresRooms(pool, { table: 'rooms', version: 3, migrate })
    expect(await now.load('b', {}, at('b', 0, 0))).toEqual({ health: 0.03 })
    await now.save.to({ health: 1 }, at('b', 1, 2))
    await expect(old.load('b', {}, at('b', 0, 0))).rejects.toThrow(
      'the row of duel:b has version 3: this code knows versions up to 1',
    )
  })

  it('opens another connection when the server has closed an idle one', async () => {
    const own = new Pool({ connectionString: server.url })
    const { load } = postgresRooms(own, { table: 'rooms' })
    await load('d', {}, at('d', 0, 0))
    const { rows } = await own.query('SELECT pg_backend_pid() AS pid')
    await pool.query('SELECT pg_terminate_backend($1)', [rows[0].pid])
    await expect.poll(() => own.totalCount).toBe(0)
    expect(await load('d', {}, at('d', 0, 0))).toBe(undefined)
    await own.end()
  })

  it('refuses a table name that is not a plain name', () => {
    expect(() => postgresRooms(pool, { table: 'rooms; DROP TABLE rooms' })).toThrow(
      'table is "rooms; DROP TABLE rooms": use small letters, digits and _, such as rooms or game.rooms',
    )
  })
})

describe('roomful postgres-schema', () => {
  it('prints a statement that creates the table', async () => {
    const { ended, output } = runProgram(['postgres-schema', 'boards'])
    expect(await ended).toBe(0)
    await pool.query(output())
    const { load, save } = postgresRooms(pool, { table: 'boards' })
    await save.to({ n: 1 }, at('c', 1, 1))
    expect(await load('c', {}, at('c', 0, 0))).toEqual({ n: 1 })
  })
})

it('the table of docs/guides/keeping-state.md keeps the newest state', async () => {
  const code = codeOf('docs/guides/keeping-state.md', 'ts').find((block) => block.includes('ownTable'))!
  const file = join(await newFolder(), 'own-table.ts')
  await writeFile(file, code)
  const { ownTable } = await import(file)
  await pool.query('CREATE TABLE own (key text PRIMARY KEY, epoch bigint, seq bigint, state json)')
  const { load, save } = ownTable(pool)
  expect(await load('lobby')).toBe(undefined)
  for (const [state, epoch, seq] of [
    ['new', 2, 5],
    ['late', 1, 9],
    ['older', 2, 4],
  ] as const)
    await save.to(state, at('lobby', epoch, seq))
  expect(await load('lobby')).toBe('new')
  for (const [state, epoch, seq] of [
    ['again', 2, 5],
    ['newest', 3, 1],
  ] as const) {
    await save.to(state, at('lobby', epoch, seq))
    expect(await load('lobby')).toBe(state)
  }
})
