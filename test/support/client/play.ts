import { expect } from 'vitest'
import { type Client, type ConnectOptions, connect, type Room } from '../../../client/index.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { type ScriptedRoom, ScriptedServer } from './scripted-server.ts'

/** Time passes in steps of this. */
const STEP_MS = 25

/** Lets everything that is ready run. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** As for a game whose backend hands out tokens. */
export type Options = Extract<ConnectOptions, { readonly dev?: undefined }>

export interface Play {
  readonly clock: FakeClock
  readonly server: ScriptedServer
  readonly options: Options
  /** What the client's `onError` was called with. */
  readonly errors: unknown[]
  /** Time passes, and everything due in it happens. */
  pass(ms: number): Promise<void>
}

/** A server and what is needed to connect to it; no one is connected yet. */
export function play(options: Partial<Options> = {}, clock = new FakeClock()): Play {
  const server = new ScriptedServer(clock)
  const errors: unknown[] = []
  return {
    clock,
    server,
    errors,
    options: {
      projectId: 'prj_1',
      token: 'v4.public.unreadable',
      WebSocket: server.WebSocket,
      clock,
      random: new SeededRandom(),
      endOfTurn: (callback) => callback(),
      onError: (error) => errors.push(error),
      ...options,
    },
    async pass(ms) {
      // In steps, because what falls due may itself wait for promises.
      await turn()
      for (let left = ms; left > 0; left -= STEP_MS) {
        clock.advance(Math.min(STEP_MS, left))
        await turn()
      }
    },
  }
}

/** A connected client. */
export async function online(
  options: Partial<Options> = {},
  clock?: FakeClock,
): Promise<Play & { client: Client }> {
  const scene = play(options, clock)
  return { ...scene, client: await connect('ws://roomful.test', scene.options) }
}

/** A connected client in the room `arena:lobby`, whose state is `{ players: {} }`. */
export async function inRoom(
  options: Partial<Options> = {},
): Promise<Play & { client: Client; room: Room; owner: ScriptedRoom }> {
  const scene = await online(options)
  const room = await scene.client.join('arena', { key: 'lobby' })
  await scene.pass(1)
  return { ...scene, room, owner: scene.server.room('arena:lobby') }
}

/** Where the scripted server is. */
export const URL = 'ws://roomful.test'

/** A `RoomfulError` with this code. */
export const code = (value: string) => expect.objectContaining({ name: 'RoomfulError', code: value })

/** Every status a client goes through from now on. */
export function statuses(client: {
  onConnectionChange(callback: (...change: unknown[]) => void): unknown
}): unknown[] {
  const seen: unknown[] = []
  client.onConnectionChange((status, error) =>
    seen.push(error === undefined ? status : [status, (error as { code: string }).code]),
  )
  return seen
}

/** A token of the player `sub` whose claims a client can read and whose signature no one would accept. */
export function unsignedToken(sub: string | undefined = 'alice'): string {
  const claims = { project_id: 'prj_1', sub }
  const payload = Buffer.concat([Buffer.from(JSON.stringify(claims)), Buffer.alloc(64, 255)])
  const footer = Buffer.from(JSON.stringify({ kid: 'key_1' })).toString('base64url')
  return `v4.public.${payload.toString('base64url')}.${footer}`
}
