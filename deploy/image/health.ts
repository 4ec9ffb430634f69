import { readFileSync, realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import {
  type Command,
  type Environment,
  type ReadFile,
  readSecretFile,
  readVariables,
} from '../../shared/config.ts'

/**
 * Health check of the image. It exits with 0 if the plane in process 1 of the container answers `GET /healthz`, otherwise with 1 and the
 * reason. A word selects another plane: `health.js dataplane`.
 */

const ANSWER_WITHIN_MS = 3000

/** Commands of a container with a health check. */
type Plane = Extract<Command, 'control' | 'dataplane'>

/** Returns the plane of a command line. Throws if it runs none. */
export function planeOf(words: readonly string[]): Plane {
  const plane = words.find((word): word is Plane => word === 'control' || word === 'dataplane')
  if (plane === undefined)
    throw new Error(`"${words.join(' ').trim()}" runs neither control nor dataplane, so it has no health`)
  return plane
}

/** Returns the address of the health check of a plane with this environment, as seen from inside its container. */
export function healthUrl(plane: Plane, env: Environment, readFile: ReadFile): string {
  const { values } = readVariables(plane, env, readFile)
  const [host = '127.0.0.1', port] =
    plane === 'control' ? [values.controlHost, values.controlPort] : [values.adminHost, values.adminPort]
  return `http://${reachable(host)}:${port}/healthz`
}

/** For an address that listens on all, the check uses loopback. */
function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1'
  if (host === '::') return '[::1]'
  return host.includes(':') ? `[${host}]` : host
}

// Node resolves symbolic links in the URL of a module, but not in its arguments.
if (realpathSync(process.argv[1] ?? '') === fileURLToPath(import.meta.url)) {
  try {
    const [word] = process.argv.slice(2)
    const words = word === undefined ? readFileSync('/proc/1/cmdline', 'utf8').split('\0') : [word]
    const url = healthUrl(planeOf(words), process.env, readSecretFile)
    const response = await fetch(url, { signal: AbortSignal.timeout(ANSWER_WITHIN_MS) })
    await response.arrayBuffer()
    if (!response.ok) throw new Error(`${url} answered ${response.status}, not 200`)
  } catch (error) {
    const { message, cause } = error as Error & { cause?: Error }
    process.stderr.write(`unhealthy: ${message}${cause instanceof Error ? ` (${cause.message})` : ''}\n`)
    process.exitCode = 1
  }
}
