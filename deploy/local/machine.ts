import { accessSync, constants, readdirSync, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer, type Server } from 'node:net'
import { delimiter, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Random } from '../../shared/random.ts'

/** The programs and the free ports of this machine. */

/** Folders of servers that PATH often lacks. */
const SYSTEM_FOLDERS = ['/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin']

/** Returns the path of the first of these programs that is in `path` (as in PATH) or in a folder of servers; undefined: none is. */
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
const BUILT = 'dist/deploy/cli/roomful.js'
const SOURCE = 'deploy/cli/roomful.ts'
/** Folders from which the compiled processes are built. */
const SOURCES = ['shared', 'control', 'dataplane', 'client', 'examples', 'deploy/cli', 'deploy/playground']

/**
 * Returns the words behind `node` that run the command line of the folder `root`: the compiled code, which starts faster, if it was built
 * from the present sources; else the sources.
 */
export function roomfulProgram(root: string = ROOT): {
  readonly words: readonly string[]
  readonly compiled: boolean
} {
  const built = changed(join(root, BUILT))
  const compiled = built !== undefined && SOURCES.every((folder) => newestIn(join(root, folder)) <= built)
  if (compiled) return { words: [join(root, BUILT)], compiled }
  // The address of the loader holds in every working folder.
  const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
  return { words: ['--import', tsx, join(root, SOURCE)], compiled }
}

/** When the file was last changed; undefined: there is none. */
const changed = (file: string): number | undefined => statSync(file, { throwIfNoEntry: false })?.mtimeMs

/** When the newest source below `folder` was changed; tests are in no build. */
const newestIn = (folder: string): number =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(tsx?|css|html|svg|lua|json)$/.test(name) && !name.endsWith('.test.ts'))
    .reduce((newest, name) => Math.max(newest, changed(join(folder, name)) ?? 0), 0)

const HOST = '127.0.0.1'
/** First port that `freePort` returns. */
const FROM = 10_000
/** First port that Linux gives to a program that asks for any. */
const EPHEMERAL = 32_768
const RANGE_FILE = '/proc/sys/net/ipv4/ip_local_port_range'
const TRIES = 1000

/**
 * Returns a port on which no process listens, and which no other call on this machine gets as long as this process runs: also while a
 * process that listens on it starts or restarts. It is no port that the system gives to a program that asks for any, or to an outgoing
 * connection. The claim of a port is that this process listens on the next one, so it ends with this process, in whatever way.
 */
export async function freePort(random: Random): Promise<number> {
  const below = ephemeralFrom()
  for (let tried = 0; tried < TRIES; tried++) {
    const port = FROM + 2 * Math.floor((random.float() * (below - FROM)) / 2)
    if ((await listening(port + 1)) && (await isFree(port))) return port
  }
  throw new Error(`${TRIES} ports from ${FROM} to ${below - 1} of this machine were tried, and all are taken`)
}

/** A server that listens on this port and keeps no process running; undefined when another process has the port. */
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

/** The first port that the system gives to a program that asks for any. */
function ephemeralFrom(): number {
  try {
    const from = Number(readFileSync(RANGE_FILE, 'utf8').trim().split(/\s+/)[0])
    return from > FROM + 2 * TRIES ? from : EPHEMERAL
  } catch {
    return EPHEMERAL
  }
}
