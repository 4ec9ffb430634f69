import { pino } from 'pino'
import * as v from 'valibot'
import type { startControl as StartControl } from '../../../control/main.ts'
import type { defineRoom as DefineRoom } from '../../../dataplane/index.ts'
import type { startNode as StartNode } from '../../../dataplane/node.ts'
import type { systemClock as SystemClock } from '../../../shared/clock.ts'
import type { systemRandom as SystemRandom } from '../../../shared/random.ts'
import type { openStore as OpenStore } from '../../../shared/store/open.ts'
import { AREA, FLUSHES_PER_SECOND, type Served, type Settings, serve, somewhere } from './served.ts'

/** This project: a node as it comes and the control plane that issues tokens for it, in one process. */

const INTERNAL_TOKEN = 'compare-internal-token'
/** Tokens of all clients are asked for at once. */
const UNLIMITED = { perSecond: 1e6, burst: 1e6 }

interface Place {
  x: number
  y: number
}
interface State {
  players: Record<string, Place>
  entities: Record<string, Place>
}

const move = (player: Place, x: number, y: number): void => {
  player.x = x
  player.y = y
}

const place = v.object({ x: v.number(), y: v.number() })

/** As the guide for authors of rooms would have it. */
const arena = (defineRoom: typeof DefineRoom, { tick, entities, journal }: Settings, served: Served) =>
  defineRoom({
    type: 'arena',
    messages: { move: { data: place }, nudge: { data: place } },
    sync: { rate: FLUSHES_PER_SECOND },
    durability: journal ? 'journal' : 'none',
    create: (): State => ({
      players: {},
      entities: Object.fromEntries(
        Array.from({ length: entities }, (_, i) => [`e${i}`, { x: somewhere(), y: somewhere() }]),
      ),
    }),
    onJoin(state, member, ctx) {
      served.rooms.add(ctx.roomId)
      state.players[member.id] = { x: AREA / 2, y: AREA / 2 }
    },
    onMessage(state, { type, member, data }) {
      served.inputs++
      if (type === 'move') move(state.players[member.id]!, data.x, data.y)
    },
    onLeave(state, member) {
      delete state.players[member.id]
    },
    ...(tick !== 'none' && {
      tick: { rate: FLUSHES_PER_SECOND },
      onTick(state: State, ctx: { members: readonly { id: string }[] }) {
        if (served.frozen) return
        if (tick === 'players')
          for (const { id } of ctx.members) move(state.players[id]!, somewhere(), somewhere())
        if (tick === 'entities') for (const id in state.entities) state.entities[id]!.x = somewhere()
        if (tick === 'entity') state.entities[`e${Math.floor(Math.random() * entities)}`]!.x = somewhere()
      },
    }),
  })

await serve(async (settings, served) => {
  const load = (name: string) =>
    import(new URL(`../../../${settings.built ? `dist/${name}.js` : `${name}.ts`}`, import.meta.url).href)
  const { defineRoom }: { defineRoom: typeof DefineRoom } = await load('dataplane/index')
  const { startControl }: { startControl: typeof StartControl } = await load('control/main')
  const { startNode }: { startNode: typeof StartNode } = await load('dataplane/node')
  const { openStore }: { openStore: typeof OpenStore } = await load('shared/store/open')
  const { systemClock: clock }: { systemClock: typeof SystemClock } = await load('shared/clock')
  const { systemRandom: random }: { systemRandom: typeof SystemRandom } = await load('shared/random')
  const log = pino({ level: 'warn' }, pino.destination(2))
  const store = await openStore({ redisUrl: settings.redisUrl, log, clock, random })
  const config = { controlPort: 0, internalToken: INTERNAL_TOKEN, tokenRate: UNLIMITED }
  const control = await startControl({ config, store, log, clock, random })
  const node = await startNode({
    rooms: [arena(defineRoom, settings, served)],
    store,
    log,
    wsPort: settings.port ?? 0,
    ...(settings.port !== undefined && { advertiseUrl: `ws://127.0.0.1:${settings.port}` }),
    adminPort: 0,
    controlUrl: control.url,
    internalToken: INTERNAL_TOKEN,
    newRoomsPerMinute: 0,
    maxRoomsPerProject: 0,
  })
  return { port: Number(new URL(node.wsUrl).port), controlUrl: control.url }
})
