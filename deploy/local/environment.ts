import { randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'
import type { Ports } from './ports.ts'

/** What one run makes up for itself. */
export interface Secrets {
  readonly internal_token: string
  readonly keyring_secret: string
  readonly operator_token: string
}

export const newSecrets = (random: Random): Secrets => ({
  internal_token: randomToken(random, 32),
  keyring_secret: randomToken(random, 43),
  operator_token: randomToken(random, 32),
})

export interface EnvironmentParts {
  /** What the person at the terminal has set; passed on where the cluster does not say otherwise. */
  readonly env: NodeJS.ProcessEnv
  readonly ports: Ports
  readonly secrets: Secrets
  readonly redis_url: string
  readonly key_prefix: string
  readonly control_url: string
}

const HOST = '127.0.0.1'
/** Shorter than the default, so that clients of a node that hangs look for another while somebody watches. */
const HEARTBEAT_SECONDS = '2'

/** The environment of a control process; `index` counts from 1. */
export const controlEnvironment = (parts: EnvironmentParts, index: number): NodeJS.ProcessEnv =>
  environment(parts, {
    CONTROL_HOST: HOST,
    CONTROL_PORT: String(parts.ports.controls[index - 1]),
    CONTROL_API_TOKENS: parts.secrets.operator_token,
    KEYRING_SECRET: parts.secrets.keyring_secret,
  })

/** The environment of a node; `index` counts from 1. */
export const nodeEnvironment = (parts: EnvironmentParts, index: number): NodeJS.ProcessEnv => {
  const { websocket, admin } = parts.ports.nodes[index - 1]!
  return environment(parts, {
    NODE_ID: `node-${index}`,
    WS_HOST: HOST,
    WS_PORT: String(websocket),
    ADMIN_HOST: HOST,
    ADMIN_PORT: String(admin),
    CONTROL_URL: parts.control_url,
    HEARTBEAT_SECONDS: parts.env.HEARTBEAT_SECONDS ?? HEARTBEAT_SECONDS,
  })
}

function environment(parts: EnvironmentParts, own: Record<string, string>): NodeJS.ProcessEnv {
  const said: Record<string, string> = {
    REDIS_URL: parts.redis_url,
    KEY_PREFIX: parts.key_prefix,
    INTERNAL_TOKEN: parts.secrets.internal_token,
    LOG_FORMAT: 'json',
    ...own,
  }
  const env: NodeJS.ProcessEnv = { ...parts.env, ...said }
  // A file that the person at the terminal names for one of these would contradict it; npm is none of the processes' business.
  for (const name of Object.keys(said)) delete env[`${name}_FILE`]
  delete env.npm_lifecycle_event
  return env
}
