import { defineQueue, defineRoom, type Member, type RoomContext } from 'roomful'
import * as v from 'valibot'
import { type Clock, sleep, systemClock } from '../../shared/clock.ts'

/** Number of the latest ops in a room's `log`. */
const LOG_LENGTH = 16
const MOST_TIMER_MS = 1500
const MOST_TASK_MS = 250
/** Largest number of seats that a room reserves. No player takes them. */
const MOST_RESERVED = 40
/** Longer than all clock jumps of a run together, so that a reservation ends only by the join of its player. */
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
  wrong: {
    name: 'timer_twice' | 'timer_lost' | 'task_twice' | 'presence_wrong' | 'role_wrong'
    message: string
  }[]
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

/**
 * Additional effects of an op: shows a team's layer to the sender, or hides it; sets or cancels a timer; starts a task; reserves a seat; makes
 * the sender a spectator, or a player again.
 */
export const ACTS = ['show', 'hide', 'timer', 'cancel', 'task', 'reserve', 'role'] as const
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
      op: { data, spectators: true },
      ask: {
        data,
        spectators: true,
        reply: v.object({ op: v.string(), count: v.number(), chain: v.number() }),
      },
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

    spectators: {
      max: 1000,
      onJoin: (state, member) => enter(state, member, true),
      onLeave: (state, { id }) => exit(state, id, true),
    },
    onJoin: (state, member) => enter(state, member, false),
    onDisconnect: (state, { id }) => turnAway(state, id, true),
    onReconnect: (state, { id }) => turnAway(state, id, false),
    onLeave: (state, { id }) => exit(state, id, false),

    onMessage(state, { type, data, member }, ctx) {
      const { op, ref, refuse, act } = data
      const by = member.id
      const player = state.players[by]
      if (!player) throw new Error('no player of this member')
      for (const { id, spectator } of ctx.members)
        if (state.players[id]?.watches !== spectator)
          state.wrong.push({ name: 'role_wrong', message: `${id} is a spectator: ${spectator}` })
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
      } else if (act === 'role') {
        if (member.spectator) ctx.seat(member)
        else ctx.unseat(member)
      }
      for (const key of [by, team]) writeSecret(state, key)
      state.deck = markOf('deck', state.total, [])
      if (ref % 4 === 0) ctx.emit('whisper', state.secrets[team]!, { layer: `team:${team}` })
      for (const { id, connected } of ctx.players)
        if (id !== by && state.players[id]?.away === connected)
          state.wrong.push({
            name: 'presence_wrong',
            message: `${id} is away, but connected is ${connected}`,
          })

      if (refuse === 'room_logic_refused') ctx.refuse(`${op} asked to be refused`)
      if (refuse === 'room_logic_failed') throw new Error(`${op} asked for a failure`)
    },
  })
}

/** A member gets a role. Its hook does not know what layers it had in its earlier role. */
function enter(
  state: ChaosState,
  { id, connected }: Pick<Member, 'id' | 'connected'>,
  watches: boolean,
): void {
  state.players[id] ??= { ...NEW_PLAYER, layers: [] }
  const player = state.players[id]
  player.watches = watches
  player.away = !connected
  writeSecret(state, id)
}

/** A member loses its role, and the layers that were shown to it. */
function exit(state: ChaosState, id: string, watched: boolean): void {
  const player = state.players[id]
  if (player?.watches !== watched)
    state.wrong.push({ name: 'role_wrong', message: `${id} has lost a role that it did not have` })
  const teams = player?.layers.splice(0) ?? []
  for (const team of teams) writeSecret(state, team)
}

function turnAway(state: ChaosState, id: string, away: boolean): void {
  const player = state.players[id]
  if (player?.watches) state.wrong.push({ name: 'role_wrong', message: `a hook of players ran for ${id}` })
  if (player?.away === away)
    state.wrong.push({
      name: 'presence_wrong',
      message: `${id} had two successive ${away ? 'onDisconnect' : 'onReconnect'}`,
    })
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
  /** True while the connection of a player is lost. */
  away: boolean
  /** True for a spectator. */
  watches: boolean
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

export const NEW_PLAYER: Readonly<Player> = {
  count: 0,
  lastRef: 0,
  chain: 0,
  layers: [],
  away: false,
  watches: false,
}

/** Returns the chain after an op: FNV-1a of the four bytes of the chain and the characters of the op. */
export function chainAfter(chain: number, op: string): number {
  let h = 0x811c9dc5
  for (let shift = 0; shift < 32; shift += 8) h = Math.imul(h ^ ((chain >>> shift) & 0xff), 0x01000193)
  for (let i = 0; i < op.length; i++) h = Math.imul(h ^ op.charCodeAt(i), 0x01000193)
  return h >>> 0
}

const LOBBY_SEATS = 3
/** State of a lobby room. The room counts its seats, to detect that the service has given one seat to two players. */
export type LobbyState = {
  phase: 'open' | 'closed'
  /** By member id, the player's sub. */
  seats: { [memberId: string]: string }
  /** Spectators: by member id, the sub. */
  watching: { [memberId: string]: string }
  /** By sub. */
  reserved: { [sub: string]: true }
  turns: number
  /** Hidden from all members: a mark without readers. */
  secret: string
  wrong: { name: 'seat_twice' | 'role_wrong'; message: string }[]
}

/**
 * A room that players find by lists, codes and reservations. Its row contains everything that `listing.of` receives. Spectators get the places of
 * players who leave.
 */
export const lobbyRoom = defineRoom({
  type: 'chaos-lobby',
  maxPlayers: LOBBY_SEATS,
  codes: true,
  // Empty rooms stay listed for 6 s, so that an owner can die and leave the row of an empty room.
  idleSeconds: 6,
  reconnectSeconds: 10,
  create: (): LobbyState => ({
    phase: 'open',
    seats: {},
    watching: {},
    reserved: {},
    turns: 0,
    secret: '',
    wrong: [],
  }),
  spectators: {
    max: 3,
    onJoin(state, { id, sub }, ctx) {
      state.watching[id] = sub ?? ''
      count(state, ctx)
    },
    onLeave(state, { id }) {
      delete state.watching[id]
    },
  },
  layers: { secret: null },
  listing: {
    data: v.object({ phase: v.string(), seen: v.string() }),
    of: (state) => (state.phase === 'open' ? { phase: state.phase, seen: JSON.stringify(state) } : null),
  },
  messages: {
    turn: {
      data: v.null(),
      handle(state, _input, ctx) {
        state.phase = state.phase === 'open' ? 'closed' : 'open'
        count(state, ctx)
      },
    },
    reserve: {
      data: v.object({ sub: v.string() }),
      reply: v.object({ reserved: v.boolean() }),
      handle(state, { data: { sub } }, ctx) {
        const isMember = Object.values(state.seats).includes(sub)
        if (ctx.reserve(sub, RESERVED_SECONDS) && !isMember) state.reserved[sub] = true
        count(state, ctx)
        ctx.reply({ reserved: state.reserved[sub] === true })
      },
    },
  },
  onJoin(state, { id, sub }, ctx) {
    delete state.reserved[sub ?? '']
    state.seats[id] = sub ?? ''
    count(state, ctx)
  },
  onLeave(state, { id }, ctx) {
    delete state.seats[id]
    count(state, ctx)
    for (const { id: next } of ctx.spectators) if (ctx.seat(next)) break
  },
})

/** Compares the state with the members of the room, and the number of places that are taken with that of all places. */
function count(
  state: LobbyState,
  { players, spectators }: Pick<RoomContext, 'players' | 'spectators'>,
): void {
  state.turns += 1
  const [plays, watches] = [players.map(({ id }) => id), spectators.map(({ id }) => id)]
  const isRight = plays.every((id) => id in state.seats) && watches.every((id) => id in state.watching)
  if ((!isRight || plays.length > LOBBY_SEATS) && state.wrong.length === 0)
    state.wrong.push({
      name: 'role_wrong',
      message: `${plays.join(', ')} play and ${watches.join(', ')} watch, and the state has ${JSON.stringify(state)}`,
    })
  state.secret = `§lobby#${state.turns}()§`
  const [seats, reserved] = [Object.values(state.seats), Object.keys(state.reserved)]
  if (seats.length + reserved.length <= LOBBY_SEATS || state.wrong.length > 0) return
  const message = `${seats.join(', ')} have a seat, and ${reserved.join(', ')} a reservation, in a room with ${LOBBY_SEATS} seats`
  state.wrong.push({ name: 'seat_twice', message })
}

/** State of a bank. It keeps each call that had an effect, to detect a second effect. */
export type BankState = {
  /** Number of effects. */
  total: number
  /** By call, the value of `total` with its effect. */
  effects: { [call: string]: number }
  /** By member id, the player's sub. */
  seats: { [memberId: string]: string }
  /** Calls with a second effect. */
  twice: string[]
}

/** A room that backends call. It sends notices. */
export const bankRoom = (durability: 'journal' | 'snapshot') =>
  defineRoom({
    type: `chaos-bank-${durability}`,
    durability,
    idleSeconds: 3600,
    reconnectSeconds: 10,
    create: (): BankState => ({ total: 0, effects: {}, seats: {}, twice: [] }),
    events: { granted: v.string() },
    notices: {
      granted: v.object({ call: v.string(), part: v.number() }),
      over: v.object({ total: v.number() }),
    },
    calls: {
      grant: {
        data: v.object({
          call: v.string(),
          refuse: v.nullable(v.picklist(REFUSALS)),
          notices: v.number(),
        }),
        reply: v.object({ total: v.number() }),
        handle(state, { data: { call, refuse, notices } }, ctx) {
          if (state.effects[call] !== undefined) state.twice.push(call)
          state.total += 1
          state.effects[call] = state.total
          ctx.emit('granted', call)
          for (let part = 0; part < notices; part++) ctx.notify('granted', { call, part })
          ctx.reply({ total: state.total })
          if (refuse === 'room_logic_refused') ctx.refuse(`${call} asked to be refused`)
          if (refuse === 'room_logic_failed') throw new Error(`${call} asked for a failure`)
        },
      },
    },
    onJoin(state, { id, sub }) {
      state.seats[id] = sub ?? ''
    },
    onLeave(state, { id }) {
      delete state.seats[id]
    },
    onDispose(state, ctx) {
      ctx.notify('over', { total: state.total })
    },
  })

export const MATCH_PLAYERS = 3
export const PARTY_SIZE = 2
/** Number of levels. Tickets of the same level match. */
export const LEVELS = 2

/** Name of a ticket: player, number, and party number (0: no party). */
export const ticketName = (player: string, number: number, party = 0): string =>
  `${player}/${number}/${party}`
export const playerOf = (ticket: string): string => ticket.split('/')[0]!
/** Party number of a ticket. Undefined: none. */
export const partyOf = (ticket: string): string | undefined => {
  const party = ticket.split('/')[2]!
  return party === '0' ? undefined : party
}

/** Numbers of the tickets that the room of their match refuses. A player that has missed a refusal requests the same ticket again. */
const REFUSED = [3, 7]
export const isRefused = (ticket: string): boolean => REFUSED.includes(numberOf(ticket))
const numberOf = (ticket: string): number => Number(ticket.split('/')[1])
/** Longest time of `admit`, so that players cancel while it decides. */
const MOST_ADMIT_MS = 500

/** The room of a match. Its state has the players with a seat, and all players that ever had a seat. */
export const matchRoom = (clock: Clock = systemClock) =>
  defineRoom({
    type: 'chaos-match',
    maxPlayers: MATCH_PLAYERS,
    sameSub: 'replace',
    idleSeconds: 3,
    reconnectSeconds: 10,
    options: v.object({ tickets: v.optional(v.array(v.string()), []) }),
    create: ({ tickets }) => ({
      tickets,
      /** Player of each member id. */
      seats: {} as { [memberId: string]: string },
      /** Players that ever had a seat. */
      came: {} as { [player: string]: true },
    }),
    async admit({ sub }, { tickets }) {
      const own = tickets.find((ticket) => playerOf(ticket) === sub)
      if (own === undefined) return undefined
      await sleep(clock, (numberOf(own) * 170) % MOST_ADMIT_MS)
      return isRefused(own) ? `${own} is refused` : undefined
    },
    onJoin(state, { id, sub }) {
      state.seats[id] = sub ?? ''
      state.came[sub ?? ''] = true
    },
    onLeave(state, { id }) {
      delete state.seats[id]
    },
  })

/** All room types of a run. `began` and `clock`: see `chaosRoom`. */
export const roomsOfRun = (began: (room: string, op: string) => void, clock?: Clock) => [
  lobbyRoom,
  bankRoom('journal'),
  bankRoom('snapshot'),
  chaosQueue,
  matchRoom(clock),
  ...(['journal', 'snapshot', 'none'] as const).map((durability) => chaosRoom(durability, began, clock)),
]

/** A queue for matches of three players. */
export const chaosQueue = defineQueue({
  type: 'chaos-queue',
  room: 'chaos-match',
  players: MATCH_PLAYERS,
  reconnectSeconds: 10,
  ticket: v.object({ name: v.string(), level: v.number() }),
  near: ({ level }) => level,
  fits: (a, b) => a.level === b.level,
  options: (tickets) => ({ tickets: tickets.map(({ name }) => name) }),
})
