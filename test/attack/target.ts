import { Redis } from 'ioredis'
import { callControl, metricOf } from '../support/calls.ts'
import { RawClient } from '../support/raw-client.ts'

/** A service under attack, as plain data: the attacker is a process of its own. */
export interface Target {
  /** The websocket of the load balancer. */
  readonly frontUrl: string
  /** The websockets of its nodes, without a load balancer. */
  readonly wsUrls: readonly string[]
  /** The admin side of each node, in the same order. */
  readonly adminUrls: readonly string[]
  /** The process ids of the nodes, in the same order. */
  readonly nodePids: readonly number[]
  readonly controlUrl: string
  readonly operatorToken: string
  readonly redisUrl: string
  readonly projectId: string
}

/** The limits of `welcome`. */
interface Limits {
  readonly messages_per_second: number
  readonly message_burst: number
}

/** A client that is welcome. */
export interface Player {
  readonly client: RawClient
  readonly limits: Limits
}

/** Calls the control API as an operator; the answer's body. Throws what it answers when that is no success. */
export const call = (
  { controlUrl, operatorToken }: Pick<Target, 'controlUrl' | 'operatorToken'>,
  path: string,
  body: object,
): Promise<Record<string, string>> =>
  callControl(controlUrl, 'POST', path, body, { authorization: `Bearer ${operatorToken}` })

/** A token of the target's project. */
export async function tokenFor(target: Target, claims: object = {}): Promise<string> {
  const { projectId } = target
  return (await call(target, '/tokens', { project_id: projectId, ttl_seconds: 3600, ...claims })).token!
}

/** Connects and says hello. Undefined: the server would not have it. */
export async function enter(target: Target, url: string, token: string): Promise<Player | undefined> {
  return greet(await RawClient.open(url), { t: 'hello', project_id: target.projectId, token })
}

/** Says `hello` on a fresh connection. Undefined: the server would not have it. */
export async function greet(client: RawClient, hello: object): Promise<Player | undefined> {
  const welcome = await client.ask(hello, ({ t }) => t === 'welcome')
  return welcome && { client, limits: welcome.limits as Limits }
}

/** Takes a seat. False: the join was refused. */
export async function join({ client }: Player, roomType: string, key: string, ref = 1): Promise<boolean> {
  const answer = await client.ask(
    { t: 'join', request_id: ref, room_type: roomType, options: { key } },
    (told) => (told.t === 'joined' || told.t === 'error') && told.request_id === ref,
  )
  return answer?.t === 'joined'
}

/** The sum of a metric over all series and all nodes. */
export async function metric({ adminUrls }: Target, name: string): Promise<number> {
  const values = await Promise.all(adminUrls.map((url) => metricOf(url, name)))
  return values.reduce((sum, value) => sum + value, 0)
}

/** How many commands the store has been given since it started, and how many keys it has. */
export async function storeFigures({ redisUrl }: Target): Promise<{ commands: number; keys: number }> {
  const redis = new Redis(redisUrl)
  try {
    const info = await redis.info('stats')
    return { commands: Number(/total_commands_processed:(\d+)/.exec(info)?.[1]), keys: await redis.dbsize() }
  } finally {
    redis.disconnect()
  }
}
