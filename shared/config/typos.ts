import { closest, distance } from 'fastest-levenshtein'
import { type Environment, variables } from './variables.ts'

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

/** Small enough for a slip of the fingers, of which two letters swapped is the largest. */
const NEAR = 2

/**
 * Names that are probably misspelt, as sentences for the log: unknown ones that begin with the first word of a known variable
 * (`SESSION_…`), and unknown ones two letters or less away from a known one.
 */
export function typoWarnings(env: Environment): string[] {
  const known = variables().flatMap(([name]) => [name as string, `${name}_FILE`])
  const prefixes = new Set(known.map((name) => `${name.split('_')[0]}_`))
  const warnings: string[] = []
  for (const name of Object.keys(env)) {
    if (known.includes(name) || OF_OTHERS.has(name) || env[name] === undefined) continue
    const nearest = closest(name, known)
    const far = distance(name, nearest)
    const near = far <= NEAR && name.length > 4
    const ours = prefixes.has(`${name.split('_')[0]}_`) && name.includes('_') && !SHARED_PREFIX.test(name)
    if (!near && (!ours || SERVICE_LINK.test(name))) continue
    const question = far <= Math.max(NEAR, Math.ceil(name.length / 3)) ? ` Did you mean ${nearest}?` : ''
    warnings.push(`${name} is set, but roomful has no variable of this name.${question}`)
  }
  return warnings
}
