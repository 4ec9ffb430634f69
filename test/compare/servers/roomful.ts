import { pino } from 'pino'
import * as v from 'valibot'
import type { defineRoom as DefineRoom } from '../../../dataplane/index.ts'
import { freePort } from '../../../deploy/local/machine.ts'
import {
  AREA,
  FLUSHES_PER_SECOND,
  LISTED_SEATS,
  mapOf,
  moveTo,
  place,
  type Served,
  type Settings,
  serve,
  somewhere,
  tickOnce,
} from './served.ts'

/** This project: a node and a control plane that issues its tokens, in one process. */

const INTERNAL_TOKEN = 'compare-internal-token'
/** All tokens are issued in one burst. */
const UNLIMITED = { perSecond: 1e6, burst: 1e6 }

type Place = ReturnType<typeof place>
type Places = Record<string, Place>
interface State {
  players: Places
  entities: Places
  secrets: Places
}

const data = v.object({ x: v.number(), y: v.number() })

/** Room type as docs/rooms.md recommends. */
const arena = (defineRoom: typeof DefineRoom, settings: Settings, served: Served) =>
  defineRoom({
    type: 'arena',
    // Only here: rooms without spectators must cost as much as before.
    ...(settings.watch && { spectators: { max: 10_000 } }),
    messages: { move: { data }, nudge: { data } },
    sync: { rate: FLUSHES_PER_SECOND },
    durability: settings.journal ? 'journal' : 'none',
    ...(settings.hidden && { layers: { 'secrets.*': (id: string) => `member:${id}` } }),
    create: (): State => ({
      players: {},
      secrets: {},
      entities: Object.fromEntries(Array.from({ length: settings.entities }, (_, i) => [`e${i}`, place()])),
    }),
    onJoin(state, member, ctx) {
      served.rooms.add(ctx.roomId)
      state.players[member.id] = { x: AREA / 2, y: AREA / 2 }
      if (settings.tick === 'secrets') state.secrets[member.id] = place()
    },
    onMessage(state, { type, member, data }) {
      served.inputs++
      if (type === 'move') moveTo(state.players[member.id]!, data as Place)
    },
    onLeave(state, member) {
      delete state.players[member.id]
      delete state.secrets[member.id]
    },
    ...(settings.tick !== 'none' && {
      tick: { rate: FLUSHES_PER_SECOND },
      onTick(state: State, ctx: { members: readonly { id: string }[] }) {
        tickOnce(settings, served, {
          movePlayers: () => {
            for (const { id } of ctx.members) moveTo(state.players[id]!, place())
          },
          moveSecrets: () => {
            for (const { id } of ctx.members) moveTo(state.secrets[id]!, place())
          },
          moveEntity: (index) => {
            state.entities[`e${index}`]!.x = somewhere()
          },
        })
      },
    }),
  })

/** A listed room whose level changes once a second. */
const listed = (defineRoom: typeof DefineRoom, served: Served) =>
  defineRoom({
    type: 'arena',
    maxPlayers: LISTED_SEATS,
    sync: { rate: FLUSHES_PER_SECOND },
    durability: 'none',
    create: (): { level: number } => ({ level: 0 }),
    listing: {
      data: v.object({ map: v.string(), level: v.number() }),
      of: ({ level }, { key }) => ({ map: mapOf(key), level }),
    },
    tick: { rate: 1 },
    onTick(state) {
      if (!served.frozen) state.level += 1
    },
  })

await serve(async (settings, served) => {
  const load = <T>(name: string): Promise<T> =>
    import(new URL(`../../../${settings.built ? `dist/${name}.js` : `${name}.ts`}`, import.meta.url).href)
  const { defineRoom } = await load<typeof import('../../../dataplane/index.ts')>('dataplane/index')
  const { startControl } = await load<typeof import('../../../control/main.ts')>('control/main')
  const { startNode } = await load<typeof import('../../../dataplane/node.ts')>('dataplane/node')
  const { openStore } = await load<typeof import('../../../shared/store/open.ts')>('shared/store/open')
  const { systemClock: clock } = await load<typeof import('../../../shared/clock.ts')>('shared/clock')
  const { systemRandom: random } = await load<typeof import('../../../shared/random.ts')>('shared/random')
  const log = pino({ level: 'warn' }, pino.destination(2))
  const store = await openStore({ redisUrl: settings.redisUrl, log, clock, random })
  const config = { controlPort: 0, internalToken: INTERNAL_TOKEN, tokenRate: UNLIMITED }
  const control = await startControl({ config, store, log, clock, random })
  const wsPort = settings.direct ? await freePort(random) : 0
  const node = await startNode({
    rooms: [settings.kind === 'lobby' ? listed(defineRoom, served) : arena(defineRoom, settings, served)],
    store,
    log,
    wsPort,
    // Without it clients get no `move`.
    ...(settings.direct && { advertiseUrl: `ws://127.0.0.1:${wsPort}` }),
    adminPort: 0,
    controlUrl: control.url,
    internalToken: INTERNAL_TOKEN,
    newRoomsPerMinute: 0,
    maxRoomsPerProject: 0,
  })
  return { port: Number(new URL(node.wsUrl).port), controlUrl: control.url }
})
