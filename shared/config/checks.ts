import type { Command, Values } from './variables.ts'

/** One thing wrong with the configuration. */
export interface Problem {
  /** The variable. */
  readonly name: string
  /** Its value in words; never a secret's. */
  readonly was: string
  /** What it may be. */
  readonly mayBe: string
}

/** What is wrong only in combination, and keeps the command from starting. Values that were wrong themselves are missing here. */
export function contradictions(values: Values): Problem[] {
  const found: Problem[] = []
  const { controlHost: host, outboxHighWaterBytes: high, outboxLimitBytes: limit } = values
  if (host !== undefined && !isLoopback(host)) {
    if (values.controlApiTokens === undefined && values.controlApiAuth === undefined)
      found.push({
        name: 'CONTROL_HOST',
        was: `"${host}" while the control API is open (no CONTROL_API_TOKENS)`,
        mayBe:
          'a loopback address; or set CONTROL_API_TOKENS, or CONTROL_API_AUTH=none to be open on purpose',
      })
    if (values.keyringSecret === undefined)
      found.push({
        name: 'KEYRING_SECRET',
        was: `not set while CONTROL_HOST is "${host}"`,
        mayBe: `a secret text of ${STRONG_SECRET}; without one, CONTROL_HOST must be loopback`,
      })
  }
  const reachable = reachableHost(values)
  if (reachable !== undefined)
    for (const { name, why } of weakSecrets(values))
      found.push({
        name,
        was: `too easy to guess (${why}) while ${reachable.name} is "${reachable.host}"`,
        mayBe: `${STRONG_SECRET}; a weaker one only on loopback addresses`,
      })
  const { turnLimitMs: turn, nodeLeaseMs: lease } = values
  if (turn !== undefined && lease !== undefined && turn > longestTurn(lease))
    found.push({
      name: 'TURN_LIMIT_MS',
      was: `${turn}, more than 0.4 × NODE_LEASE_MS (${lease})`,
      mayBe: `${longestTurn(lease)} or less, so that the next owner of the room knows why the last one ended`,
    })
  if (high !== undefined && limit !== undefined && high > limit)
    found.push({
      name: 'OUTBOX_LIMIT_BYTES',
      was: `${limit}, less than OUTBOX_HIGH_WATER_BYTES (${high})`,
      mayBe: `${high} or more`,
    })
  return found
}

/** What works, but not as someone may expect: sentences for the log. */
export function weaknesses(command: Command, values: Values): string[] {
  const found: string[] = []
  if ((command === 'control' || command === 'dataplane') && values.internalToken === undefined)
    found.push(
      command === 'control'
        ? 'INTERNAL_TOKEN is not set: /internal/key-status answers 401 to everybody, so nodes on other machines cannot check keys.'
        : 'INTERNAL_TOKEN is not set: this node cannot ask control about keys and will refuse clients, and /admin answers 401.',
    )
  if (command !== 'dev' && reachableHost(values) === undefined)
    for (const { name, why } of weakSecrets(values))
      found.push(`${name} is too easy to guess (${why}): it should be ${STRONG_SECRET}.`)
  return found
}

/** The first address the command listens on that other machines reach. */
function reachableHost({ controlHost, wsHost, adminHost }: Values) {
  const hosts = { CONTROL_HOST: controlHost, WS_HOST: wsHost, ADMIN_HOST: adminHost }
  for (const [name, host] of Object.entries(hosts))
    if (host !== undefined && !isLoopback(host)) return { name, host }
  return undefined
}

/** Whether a listening address can only be reached from this machine. */
export const isLoopback = (host: string): boolean =>
  host === 'localhost' ||
  host.endsWith('.localhost') ||
  /^127(\.\d{1,3}){3}$/.test(host) ||
  /^(::ffff:127(\.\d{1,3}){3}|::1|(0{1,4}:){7}0{0,3}1)$/i.test(host)

/** What is left of a lease must do for the watchdog to tell the store which turn it was. */
const longestTurn = (leaseMs: number): number => Math.floor(0.4 * leaseMs)

/** `TURN_LIMIT_MS` where it is not set, of `NODE_LEASE_MS`. */
export const defaultTurnLimit = (leaseMs: number): number => Math.min(800, longestTurn(leaseMs))

/**
 * The secrets that may be guessed, and why. Each operator token and internal token opens the door; of the keyring's secrets the first does
 * the sealing, and those behind it are on their way out.
 */
function weakSecrets({ controlApiTokens, keyringSecret, internalToken }: Values) {
  const secrets = {
    CONTROL_API_TOKENS: controlApiTokens ?? [],
    KEYRING_SECRET: keyringSecret?.split(',').slice(0, 1) ?? [],
    INTERNAL_TOKEN: internalToken?.split(',') ?? [],
  }
  return Object.entries(secrets).flatMap(([name, values]) => {
    const reasons = values.map(weaknessOf)
    const at = reasons.findIndex((reason) => reason !== undefined)
    if (at < 0) return []
    return [{ name, why: `${reasons.length > 1 ? `value ${at + 1}: ` : ''}${reasons[at]}` }]
  })
}

/** What a secret must hold of chance to withstand guessing. */
const ENOUGH_BITS = 128
const MIN_LENGTH = 24
const MIN_DIFFERENT = 8

/** What a strong secret is, for messages. */
const STRONG_SECRET = `${MIN_LENGTH} random characters or more, as \`openssl rand -base64 32\` makes them`

/** Why a secret may be guessed, in words that do not tell it; undefined for one that holds 128 bits, as far as can be seen. */
function weaknessOf(secret: string): string | undefined {
  if (secret.length < MIN_LENGTH) return `it has ${secret.length} characters`
  if (period(secret) < secret.length) return 'it repeats itself'
  const different = new Set(secret).size
  if (different < MIN_DIFFERENT) return `it has ${different} different characters`
  const bits = Math.floor(secret.length * Math.log2(alphabetOf(secret)))
  return bits < ENOUGH_BITS ? `${secret.length} characters of its kinds hold ${bits} bits` : undefined
}

/** How many characters there are before the text repeats itself. */
const period = (text: string): number => (text + text).indexOf(text, 1)

/** How many characters there are of the kinds that the text uses. */
function alphabetOf(text: string): number {
  if (/^[0-9a-f]*$/i.test(text)) return /[a-f]/i.test(text) ? 16 : 10
  const kinds: readonly [RegExp, number][] = [
    [/[a-z]/, 26],
    [/[A-Z]/, 26],
    [/[0-9]/, 10],
    [/[^a-zA-Z0-9]/, 32],
  ]
  return kinds.reduce((sum, [kind, size]) => sum + (kind.test(text) ? size : 0), 0)
}
