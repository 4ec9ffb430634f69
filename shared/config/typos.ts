import { type Environment, variables } from './environment.ts'

/** A variable that roomful does not know but somebody may have meant for it. */
export interface Typo {
  readonly name: string
  /** The known variable that looks most like it, when one does. */
  readonly suggestion: string | undefined
}

/** Of Node itself and of tools around it: with a prefix of ours, but not meant for us. */
const OF_OTHERS = new Set([
  'NODE_AUTH_TOKEN',
  'NODE_CHANNEL_FD',
  'NODE_CHANNEL_SERIALIZATION_MODE',
  'NODE_COMPILE_CACHE',
  'NODE_COMPILE_CACHE_PORTABLE',
  'NODE_DEBUG',
  'NODE_DEBUG_NATIVE',
  'NODE_DISABLE_COLORS',
  'NODE_DISABLE_COMPILE_CACHE',
  'NODE_ENV',
  'NODE_EXTRA_CA_CERTS',
  'NODE_HOME',
  'NODE_ICU_DATA',
  'NODE_NO_WARNINGS',
  'NODE_OPTIONS',
  'NODE_PATH',
  'NODE_PENDING_DEPRECATION',
  'NODE_PENDING_PIPE_INSTANCES',
  'NODE_PRESERVE_SYMLINKS',
  'NODE_PRESERVE_SYMLINKS_MAIN',
  'NODE_REDIRECT_WARNINGS',
  'NODE_REPL_EXTERNAL_MODULE',
  'NODE_REPL_HISTORY',
  'NODE_SKIP_PLATFORM_CHECK',
  'NODE_TEST_CONTEXT',
  'NODE_TLS_REJECT_UNAUTHORIZED',
  'NODE_UNIQUE_ID',
  'NODE_USE_ENV_PROXY',
  'NODE_USE_SYSTEM_CA',
  'NODE_V8_COVERAGE',
  'NODE_VERSION',
])

/** What Kubernetes and Docker links set for every service: `REDIS_SERVICE_HOST`, `REDIS_PORT_6379_TCP_ADDR`. */
const SERVICE_LINK = /_SERVICE_(HOST|PORT)(_|$)|_PORT(_\d+_(TCP|UDP|SCTP)(_|$)|$)/

/** OpenTelemetry has dozens of variables for its libraries, and for other programs that share an environment with this one. */
const SHARED_PREFIX = /^OTEL_/

/** Small enough for a slip of the fingers. */
const NEAR = 2

/**
 * Names that are probably misspelt: unknown ones that begin with the first word of a known variable (`SESSION_…`), and unknown ones
 * two letters or less away from a known one.
 */
export function findTypos(env: Environment): Typo[] {
  const known = variables().flatMap(([name]) => [name as string, `${name}_FILE`])
  const prefixes = new Set(known.map((name) => `${name.split('_')[0]}_`))
  const typos: Typo[] = []
  for (const name of Object.keys(env)) {
    if (known.includes(name) || OF_OTHERS.has(name) || env[name] === undefined) continue
    const ranked = known
      .map((candidate) => ({ candidate, distance: distance(name, candidate) }))
      .sort((a, b) => a.distance - b.distance)
    const nearest = ranked[0]!
    const near = nearest.distance <= NEAR && name.length > 4
    const ours = prefixes.has(`${name.split('_')[0]}_`) && name.includes('_') && !SHARED_PREFIX.test(name)
    if (!near && (!ours || SERVICE_LINK.test(name))) continue
    const close = nearest.distance <= Math.max(NEAR, Math.ceil(name.length / 3))
    typos.push({ name, suggestion: close ? nearest.candidate : undefined })
  }
  return typos
}

/** How many letters to insert, drop, change or swap with their neighbour: optimal string alignment. */
export function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let best = Math.min(rows[i - 1]![j]! + 1, row[j - 1]! + 1, rows[i - 1]![j - 1]! + (same ? 0 : 1))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, rows[i - 2]![j - 2]! + 1)
      row.push(best)
    }
    rows.push(row)
  }
  return rows[a.length]![b.length]!
}
