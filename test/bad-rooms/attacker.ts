import { setTimeout as sleep } from 'node:timers/promises'
import { connect, RoomfulError } from 'roomful/client'
import { type Target, tokenFor } from '../attack/attack.ts'
import { type Fault, type Hook, type Kind, messageOf, waysOf } from './faults.ts'
import { networkOf } from './honest-players.ts'

/** An order to trigger one kind of fault in some hooks. */
export interface Order {
  readonly target: Target
  readonly kind: Kind
  readonly hooks: readonly Hook[]
  readonly seconds: number
  /** Faults per second. */
  readonly rate: number
  /** Number of players (`sub`) that trigger them in turn. Undefined: a new one triggers each. */
  readonly players: number | undefined
}

/** Result of an order: the number of the players' promises that ended with each code. */
export type Outcome = Readonly<Record<string, number>>

/** Longest stay of a player. It is long enough for a resume at another node, and for the next owner to receive a message again. */
const STAY_MS = 8000
/** Stay in a room whose bad code runs without a message of the player. */
const LINGER_MS = 1500
/** Time until an empty room sleeps in the store. */
const SLEEP_MS = 3000
/** Pause after a fault that is triggered alone. */
const PAUSE_MS = 1000
/** Largest number of concurrent faults. */
const MOST_RUNNING = 60

/**
 * Triggers the fault in each hook once, with a pause of one second after each. Then triggers all faults in turn until the time is over,
 * `rate` per second, each in a new room.
 */
export async function attack({ target, kind, hooks, seconds, rate, players }: Order): Promise<Outcome> {
  const ways = waysOf(kind)
  const outcome: Record<string, number> = {}
  const strike = async (i: number): Promise<void> => {
    const hook = hooks[i % hooks.length]!
    const way = ways[Math.floor(i / hooks.length) % ways.length]!
    const fault: Fault = { kind, way, hook, id: `${hook}-${i}` }
    const url = target.wsUrls[i % target.wsUrls.length]!
    const token = await tokenFor(target, { sub: `attacker-${i % (players ?? Number.POSITIVE_INFINITY)}` })
    const code = await trigger({ target, fault, url, token })
    outcome[code] = (outcome[code] ?? 0) + 1
  }
  const began = performance.now()
  const elapsed = (): number => (performance.now() - began) / 1000
  let next = 0
  while (next < hooks.length && elapsed() < seconds) {
    await strike(next++)
    await sleep(PAUSE_MS)
  }
  const running = new Set<Promise<void>>()
  while (elapsed() < seconds) {
    const one = strike(next++).finally(() => running.delete(one))
    running.add(one)
    await sleep(1000 / rate)
    if (running.size >= MOST_RUNNING) await Promise.race(running)
  }
  return outcome
}

interface Strike {
  readonly target: Target
  readonly fault: Fault
  /** The node to which the player connects first. */
  readonly url: string
  readonly token: string
}

/** Triggers one fault as a player. Resolves with `done`, the code of the error that the player got, or `no answer`. */
async function trigger(strike: Strike): Promise<string> {
  const { fault } = strike
  const end = new AbortController()
  const work = fault.hook === 'migrate' ? migrate(strike, end.signal) : play(strike, end.signal)
  const code = work.then(
    () => 'done',
    (error: unknown) => (error instanceof RoomfulError ? error.code : String(error)),
  )
  const result = await Promise.race([code, sleep(STAY_MS, 'no answer')])
  end.abort()
  return result
}

async function enter({ target, fault, url, token }: Strike, roomType: string, signal: AbortSignal) {
  const { projectId, frontUrl } = target
  const network = networkOf(url, frontUrl)
  const client = await connect(url, {
    projectId,
    token,
    WebSocket: network.WebSocket,
    signal,
    reroute: false,
    onError: () => undefined,
  })
  return { client, network, room: await client.join(roomType, { key: fault.id, fault }) }
}

async function play(strike: Strike, signal: AbortSignal): Promise<void> {
  const { hook } = strike.fault
  const { room, network } = await enter(strike, 'bad', signal)
  const type = messageOf(hook)
  if (type !== undefined) await room.send(type, strike.fault)
  if (hook === 'onDisconnect' || hook === 'onReconnect') network.cut()
  if (hook === 'onLeave' || hook === 'onDispose') await room.leave()
  await sleep(LINGER_MS, undefined, { signal }).catch(() => undefined)
}

/** Creates a room at the first node, lets it sleep, and opens it at a node with newer code. */
async function migrate(strike: Strike, signal: AbortSignal): Promise<void> {
  const { wsUrls } = strike.target
  const { client } = await enter({ ...strike, url: wsUrls[0]! }, 'migrating', signal)
  client.close()
  await sleep(SLEEP_MS, undefined, { signal })
  await enter({ ...strike, url: wsUrls[1]! }, 'migrating', signal)
}
