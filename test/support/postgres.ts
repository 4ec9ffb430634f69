import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../../deploy/local/machine.ts'
import { findOrInstall } from './debian-package.ts'
import { freePort } from './redis-server.ts'

/** A Postgres server that belongs to one test file. */
export interface PostgresServer {
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
export async function startPostgres(): Promise<PostgresServer> {
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
  const server = spawn(postgres, ['-D', data, ...listens, '-c', 'fsync=off'], options)
  const ended = new Promise<void>((resolve) => server.once('close', () => resolve()))
  // SIGQUIT ends all processes of Postgres immediately.
  const kill = () => void server.kill('SIGQUIT')
  process.once('exit', kill)
  const close = async (): Promise<void> => {
    process.off('exit', kill)
    kill()
    await ended
    rmSync(folder, { recursive: true, force: true })
  }
  let output = ''
  await new Promise<void>((resolve, reject) => {
    server.stderr.on('data', (chunk: Buffer) => {
      output += chunk
      if (/ready to accept connections/.test(output)) resolve()
    })
    void ended.then(() => reject(new Error(`postgres ended: ${output}`)))
  })
  return { url: `postgres://roomful@127.0.0.1:${port}/postgres`, close }
}
