import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { type Clock, sleep, systemClock } from '../../shared/clock.ts'

/** Number of the latest ops in a room's `log`. */
const LOG_LENGTH = 16
const MOST_TIMER_MS = 1500
const MOST_TASK_MS = 250
/** Largest number of seats that a room reserves. No player takes them. */
const MOST_RESERVED = 40
/** Longer than all clock jumps of a run together. */
const RESERVED_SECONDS = 24 * 3600

/** State of a chaos room. It keeps players that have left, so that the last state shows all ops that were ever applied. */
export type ChaosState = {
  /** Number of applied ops. */
  total: number
  players: { [memberId: string]: Player }
  /** The latest ops, oldest first. */
  log: { by: string; ref: number; op: string }[]
  /** Time of the last op, by the clock of its node. */
  now: number
  /** By key of `secrets`, the number of writes. */
  versions: { [key: string]: number }
  /** Layers. By member or team, a mark that names all its readers. */
  secrets: { [key: string]: string }
  /** A layer that no member receives. */
  deck: string
  /** By id, the due time of each pending timer. */
  timers: { [id: string]: number }
  fired: number
  /** Reserved seats, by op. */
  reserved: { [op: string]: true }
  /** Tasks without a result, by op. A task that was lost with its owner stays here. */
  tasks: { [op: string]: true }
  /** Number of tasks that were lost with their owner. */
  moved: number
  /** Violations that the room has detected. */
  wrong: { name: 'timer_twice' | 'timer_lost' | 'task_twice' | 'presence_wrong'; message: string }[]
}

export const newState = (): ChaosState => ({
  total: 0,
  players: {},
  log: [],
  now: 0,
  versions: {},
  secrets: {},
  deck: '',
  timers: {},
  fired: 0,
  reserved: {},
  tasks: {},
  moved: 0,
  wrong: [],
})

/** Additional effects of an op: shows a team's layer to the sender, or hides it; sets or cancels a timer; starts a task; reserves a seat. */
export const ACTS = ['show', 'hide', 'timer', 'cancel', 'task', 'reserve'] as const
export type Act = (typeof ACTS)[number]

const TEAMS = ['red', 'blue', 'green']

/**
 * A chaos room type. The room applies each `op` and emits an event. An `ask` is an op with a reply. An op with `refuse` changes the state and
 * then refuses or fails, so that the service must undo its changes. `began` is called at the start of each task.
 */
export const chaosRoom = (
  durability: 'journal' | 'snapshot' | 'none',
  began: (room: string, op: string) => void,
  clock: Clock = systemClock,
) => {
  const data = v.object({
    op: v.string(),
    ref: v.number(),
    refuse: v.nullable(v.picklist(REFUSALS)),
    act: v.nullable(v.picklist(ACTS)),
  })
  return defineRoom({
    type: `chaos-${durability}`,
    messages: {
      op: { data },
      ask: { data, reply: v.object({ op: v.string(), count: v.number(), chain: v.number() }) },
    },
    events: {
      applied: v.object({ by: v.string(), ref: v.number(), op: v.string(), count: v.number() }),
      whisper: v.string(),
    },
    timers: {
      due: {
        data: v.string(),
        handle(state, { data: id }) {
          if (state.timers[id] === undefined)
            state.wrong.push({ name: 'timer_twice', message: `${id} fired, and was not pending` })
          delete state.timers[id]
          state.fired += 1
        },
      },
    },
    tasks: {
      work: {
        result: v.string(),
        handle(state, outcome) {
          if (!outcome.ok) state.moved += 1
          else if (state.tasks[outcome.value]) delete state.tasks[outcome.value]
          else state.wrong.push({ name: 'task_twice', message: `${outcome.value} ended twice` })
        },
      },
    },
    layers: { 'secrets.*': (key) => (TEAMS.includes(key) ? `team:${key}` : `member:${key}`), deck: null },
    sync: { rate: 50 },
    durability,
    idleSeconds: 3600,
    create: newState,

    onJoin(state, member) {
      state.players[member.id] ??= { ...NEW_PLAYER, layers: [] }
      writeSecret(state, member.id)
    },

    onDisconnect: (state, { id }) => turnAway(state, id, true),
    onReconnect: (state, { id }) => turnAway(state, id, false),

    onLeave(state, { id }) {
      const player = state.players[id]
      const teams = player?.layers.splice(0) ?? []
      for (const team of teams) writeSecret(state, team)
    },

    onMessage(state, { type, data, member }, ctx) {
      const { op, ref, refuse, act } = data
      const by = member.id
      const player = state.players[by]
      if (!player) throw new Error('no player of this member')
      player.count += 1
      player.lastRef = ref
      player.chain = chainAfter(player.chain, op)
      state.total += 1
      state.now = ctx.now
      state.log.push({ by, ref, op })
      if (state.log.length > LOG_LENGTH) state.log.shift()
      ctx.emit('applied', { by, ref, op, count: player.count })
      if (type === 'ask') ctx.reply({ op, count: player.count, chain: player.chain })

      const team = TEAMS[ref % TEAMS.length]!
      if (act === 'show' || act === 'hide') {
        ctx[act](by, `team:${team}`)
        player.layers = player.layers.filter((other) => other !== team)
        if (act === 'show') player.layers.push(team)
      } else if (act === 'timer') {
        const delay = (ref * 397) % MOST_TIMER_MS
        state.timers[op] = Math.ceil(ctx.now + delay)
        ctx.after(delay, 'due', op, { id: op })
      } else if (act === 'cancel') {
        const id = Object.keys(state.timers).at(-1)
        if (id !== undefined && !ctx.cancel(id))
          state.wrong.push({
            name: 'timer_lost',
            message: `${id} could not be cancelled: the service does not have it`,
          })
        if (id !== undefined) delete state.timers[id]
      } else if (act === 'task') {
        const { roomId } = ctx
        state.tasks[op] = true
        ctx.task(async () => {
          began(roomId, op)
          await sleep(clock, (ref * 31) % MOST_TASK_MS)
          return op
        }, 'work')
      } else if (act === 'reserve' && durability !== 'none') {
        const count = Object.keys(state.reserved).length
        if (count < MOST_RESERVED && ctx.reserve(op, RESERVED_SECONDS)) state.reserved[op] = true
      }
      for (const key of [by, team]) writeSecret(state, key)
      state.deck = markOf('deck', state.total, [])
      if (ref % 4 === 0) ctx.emit('whisper', state.secrets[team]!, { layer: `team:${team}` })
      for (const { id, connected } of ctx.members)
        if (state.players[id]?.away === connected)
          state.wrong.push({
            name: 'presence_wrong',
            message: `${id} is away, but connected is ${connected}`,
          })

      if (refuse === 'room_logic_refused') ctx.refuse(`${op} asked to be refused`)
      if (refuse === 'room_logic_failed') throw new Error(`${op} asked for a failure`)
    },
  })
}

function turnAway(state: ChaosState, id: string, away: boolean): void {
  const player = state.players[id]
  if (player?.away === away)
    state.wrong.push({ name: 'presence_wrong', message: `${id} had two successive ${away ? 'onDisconnect' : 'onReconnect'}` })
  if (player) player.away = away
}

function writeSecret(state: ChaosState, key: string): void {
  const version = (state.versions[key] ?? 0) + 1
  const readers = TEAMS.includes(key)
    ? Object.keys(state.players).filter((id) => state.players[id]!.layers.includes(key))
    : [key]
  state.versions[key] = version
  state.secrets[key] = markOf(key, version, readers)
}

const markOf = (key: string, version: number, readers: readonly string[]): string =>
  `§${key}#${version}(${readers.join(' ')})§`

/** Returns the marks in a frame of either codec. A `§` alone is not enough, because MessagePack may contain its bytes. */
export const marksIn = (frame: string): string[] => [
  ...new Set(frame.match(/§[\w-]+#\d+\([\w -]*\)§/g) ?? []),
]

/** Members that may see a mark. */
export const readersOf = (mark: string): string[] => /\((.*)\)/.exec(mark)?.[1]?.split(' ') ?? []

/** Secrets that a member has (`has`), and secrets that it should have according to the public state (`due`), each as `key#version`. */
export interface HeldLayers {
  readonly has: readonly string[]
  readonly due: readonly string[]
}

export function layersIn(state: Partial<ChaosState>, member: string): HeldLayers {
  const { players = {}, versions = {}, secrets = {} } = state
  const due = [member, ...(players[member]?.layers ?? [])].filter((key) => versions[key] !== undefined)
  return {
    has: Object.values(secrets)
      .map((mark) => mark.slice(1, mark.indexOf('(')))
      .sort(),
    due: due.map((key) => `${key}#${versions[key]}`).sort(),
  }
}

/** Returns the part of a complete state that a member may see. */
export function visibleTo(member: string, { deck: _, ...state }: ChaosState): Partial<ChaosState> {
  const mine = Object.entries(state.secrets ?? {}).filter(([, mark]) => readersOf(mark).includes(member))
  return { ...state, secrets: Object.fromEntries(mine) }
}

/** Applied ops of one member. Together the fields show which ops were applied, how often, and in which order. */
export type View = {
  /** Number of applied ops. */
  count: number
  /** Ref of the last op. */
  lastRef: number
  /** Hash of all ops in order. */
  chain: number
}

/** Data of a chaos room for each member. */
export type Player = View & {
  /** Teams whose layers the member receives. */
  layers: string[]
  /** True while the connection is lost. */
  away: boolean
}

/** Ways in which a room refuses an op: with `ctx.refuse`, or with an exception. */
export const REFUSALS = ['room_logic_refused', 'room_logic_failed'] as const
export type Refusal = (typeof REFUSALS)[number]

/** Data of the event `applied`. */
export type AppliedOp = {
  readonly by: string
  readonly ref: number
  readonly op: string
  /** Number of the member's applied ops, including this op. */
  readonly count: number
}

export const NEW_PLAYER: Readonly<Player> = { count: 0, lastRef: 0, chain: 0, layers: [], away: false }

/** Returns the chain after an op: FNV-1a of the four bytes of the chain and the characters of the op. */
export function chainAfter(chain: number, op: string): number {
  let h = 0x811c9dc5
  for (let shift = 0; shift < 32; shift += 8) h = Math.imul(h ^ ((chain >>> shift) & 0xff), 0x01000193)
  for (let i = 0; i < op.length; i++) h = Math.imul(h ^ op.charCodeAt(i), 0x01000193)
  return h >>> 0
}
