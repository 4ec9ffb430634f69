import { accessSync, constants, readdirSync, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer, type Server } from 'node:net'
import { delimiter, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Random } from '../../shared/random.ts'

/** Programs and free ports of this machine. */

/** Folders of server programs that are often missing in PATH. */
const SYSTEM_FOLDERS = ['/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin']

/** Returns the path of the first of these programs in `path` (as in PATH) or in a folder of servers. Undefined: none exists. */
export function findProgram(names: readonly string[], path: string | undefined): string | undefined {
  const folders = [...(path ?? '').split(delimiter).filter(Boolean), ...SYSTEM_FOLDERS]
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).find(isExecutable)
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const COMPILED = 'deploy/cli/roomful.js'
const BUILT = `dist/${COMPILED}`
const SOURCE = 'deploy/cli/roomful.ts'
/** Source folders of the compiled processes. */
const SOURCES = [
  'shared',
  'control',
  'dataplane',
  'client',
  'examples',
  'deploy/cli',
  'deploy/local',
  'deploy/playground',
]

/**
 * Returns the words after `node` that run the command line of the folder `root`: the compiled code, which starts faster, if it was built
 * from the current sources; otherwise the sources.
 */
export function roomfulProgram(root: string = ROOT): {
  readonly words: readonly string[]
  readonly compiled: boolean
} {
  // In the package, this module is compiled as well.
  if (import.meta.url.endsWith('.js')) return { words: [join(root, COMPILED)], compiled: true }
  const built = changed(join(root, BUILT))
  const compiled = built !== undefined && SOURCES.every((folder) => newestIn(join(root, folder)) <= built)
  if (compiled) return { words: [join(root, BUILT)], compiled }
  // The address of the loader is valid in every working folder.
  const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
  return { words: ['--import', tsx, join(root, SOURCE)], compiled }
}

/** Returns the modification time of the file. Undefined: it does not exist. */
const changed = (file: string): number | undefined => statSync(file, { throwIfNoEntry: false })?.mtimeMs

/** Returns the newest modification time of a source below `folder`. Tests are not part of a build. */
const newestIn = (folder: string): number =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(tsx?|css|html|svg|lua|json)$/.test(name) && !name.endsWith('.test.ts'))
    .reduce((newest, name) => Math.max(newest, changed(join(folder, name)) ?? 0), 0)

const HOST = '127.0.0.1'
/** First port that `freePort` returns. */
const FROM = 10_000
/** First port that Linux assigns to programs by default. */
const EPHEMERAL = 32_768
const RANGE_FILE = '/proc/sys/net/ipv4/ip_local_port_range'
const TRIES = 1000

/**
 * Returns a port on which no process listens, and which no other call on this machine gets while this process runs, also while a process on
 * it starts or restarts. The system does not assign it to programs or outgoing connections. The claim of a port is that this process
 * listens on the next port, so it ends with this process in any case.
 */
export async function freePort(random: Random): Promise<number> {
  const below = ephemeralFrom()
  for (let tried = 0; tried < TRIES; tried++) {
    const port = FROM + 2 * Math.floor((random.float() * (below - FROM)) / 2)
    if ((await listening(port + 1)) && (await isFree(port))) return port
  }
  throw new Error(`${TRIES} ports from ${FROM} to ${below - 1} of this machine were tried, and all are taken`)
}

/** Listens on this port without keeping the process alive. Undefined: another process has the port. */
function listening(port: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy())
    server.once('error', () => resolve(undefined))
    server.listen({ port, host: HOST, exclusive: true }, () => resolve(server.unref()))
  })
}

/** True if no process listens on this port. */
export async function isFree(port: number): Promise<boolean> {
  const server = await listening(port)
  if (server) await new Promise((resolve) => server.close(resolve))
  return server !== undefined
}

/** Returns the first port that the system assigns to programs. */
function ephemeralFrom(): number {
  try {
    const from = Number(readFileSync(RANGE_FILE, 'utf8').trim().split(/\s+/)[0])
    return from > FROM + 2 * TRIES ? from : EPHEMERAL
  } catch {
    return EPHEMERAL
  }
}
