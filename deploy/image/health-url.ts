import { type Command, type Environment, type ReadFile, readVariables } from '../../shared/config.ts'

/** What a container can run that has a health. */
type Plane = Extract<Command, 'control' | 'dataplane'>

/** The plane that a command line runs; throws where it runs neither. */
export function planeOf(words: readonly string[]): Plane {
  const plane = words.find((word): word is Plane => word === 'control' || word === 'dataplane')
  if (plane === undefined)
    throw new Error(`"${words.join(' ').trim()}" runs neither control nor dataplane, so it has no health`)
  return plane
}

/** Where a plane that was started with this environment answers for its health, from inside its own container. */
export function healthUrl(plane: Plane, env: Environment, readFile: ReadFile): string {
  const { values } = readVariables(plane, env, readFile)
  const [host = '127.0.0.1', port] =
    plane === 'control' ? [values.controlHost, values.controlPort] : [values.adminHost, values.adminPort]
  return `http://${reachable(host)}:${port}/healthz`
}

/** An address that listens on all is asked on loopback. */
function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1'
  if (host === '::') return '[::1]'
  return host.includes(':') ? `[${host}]` : host
}
