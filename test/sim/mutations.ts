import { NodeLinks, nodeChannel } from '../../dataplane/cluster/links.ts'
import type { PostNotice } from '../../dataplane/features/notices/notice.ts'
import { Subscription } from '../../dataplane/gateway/subscription.ts'
import type { RoomDefinition } from '../../dataplane/room/definition.ts'
import type { SystemParts } from '../../dataplane/room/handler-context.ts'
import type { Json } from '../../shared/json.ts'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import type { Claim, Fence, Listings, Records, RoomRecords, Store } from '../../shared/store/port.ts'
import { check } from '../chaos/checker/check.ts'
import type { ViolationName } from '../chaos/checker/history.ts'
import { PLANTED } from '../chaos/checker/planted.ts'
import type { OpenHistory } from '../chaos/checker/scenario.ts'
import { overriding } from '../chaos/node/recording-store.ts'
import { MUTATIONS as OF_THE_STORE } from '../explore/scenarios.ts'
import type { Replacement } from './network.ts'
import type { Mutation } from './node.ts'
import { SimWorld } from './world.ts'

/** A mutation with the rules that it must break, and the players that it needs. */
export interface Fault extends Mutation {
  /** Description of the mistake for README.md. */
  readonly what: string
  /** Changes the history of a correct run. Absent: the mistake is in the simulated product. */
  readonly plant?: (history: OpenHistory) => void
  readonly breaks: readonly [ViolationName, ...ViolationName[]]
  readonly players?: { readonly lobby?: number; readonly queue?: number; readonly backends?: number }
}

/** Delay of a commit that the node does not wait for. */
const HASTE_MS = 300

const inRooms =
  (change: (rooms: RoomRecords) => Partial<RoomRecords>) =>
  (store: Store): Store =>
    overriding(store, { rooms: overriding(store.rooms, change(store.rooms)) })

/** Changes the record that a new owner receives with a claim. */
const inClaims = (change: (claim: Claim) => Claim) =>
  inRooms((rooms) => ({
    claim: async (...asked) => {
      const claim = await rooms.claim(...asked)
      return claim && change(claim)
    },
    open: async (...asked) => {
      const found = await rooms.open(...asked)
      return found && 'fence' in found ? change(found) : found
    },
  }))

const inRecords =
  (change: (records: Records) => Partial<Records>) =>
  (store: Store): Store =>
    overriding(store, { records: overriding(store.records, change(store.records)) })

const inListings = (store: Store, write: Listings['write']): Store =>
  overriding(store, { listings: overriding(store.listings, { write }) })

const call = (hook: unknown, ...words: unknown[]): void => (hook as (...words: unknown[]) => void)(...words)

/** Changes a room type. */
const inType =
  (type: string, change: (definition: RoomDefinition) => Partial<RoomDefinition>) =>
  (definition: RoomDefinition): RoomDefinition =>
    definition.type === type ? { ...definition, ...change(definition) } : definition

/** Changes the chaos rooms. */
const inChaosRooms =
  (change: (definition: RoomDefinition) => Partial<RoomDefinition>) =>
  (definition: RoomDefinition): RoomDefinition =>
    'ask' in definition.messages ? { ...definition, ...change(definition) } : definition

type Op = { op: string; ref: number; refuse: string | null; act: string | null }
type OpMessage = { type: string; data: Op; member: { id: string } }
type Context = { refuse: (reason: string) => never; task: (...words: unknown[]) => void }

/** Replaces `onMessage` of the chaos rooms. `apply`: the correct `onMessage`. */
const inOps = (
  change: (apply: (message: OpMessage, ctx?: Context) => void, message: OpMessage, ctx: Context) => void,
) =>
  inChaosRooms(({ onMessage }) => ({
    onMessage: ((state: object, message: OpMessage, ctx: Context) =>
      change((changed, other = ctx) => call(onMessage, state, changed, other), message, ctx)) as never,
  }))

type CallHandler = (
  state: object,
  message: { data: { call: string; refuse: string | null } },
  ctx: Context,
) => void

/** Replaces the handler of `grant` of the banks. */
const inCalls =
  (change: (grant: CallHandler, ...words: Parameters<CallHandler>) => void) =>
  (definition: RoomDefinition): RoomDefinition => {
    const { grant } = definition.calls
    if (!grant) return definition
    const handle: CallHandler = (...words) => change((...others) => call(grant.handle, ...others), ...words)
    return { ...definition, calls: { grant: { ...grant, handle: handle as never } } }
  }

/** The used part of a queue's state. */
interface QueueState {
  readonly tickets: { readonly [player: string]: object }
  readonly orders: {
    [key: string]: {
      readonly at: number
      readonly cancelled?: string
      readonly seats: { readonly subs: readonly string[] }
    }
  }
}

type Of<T extends ServerMessage['t']> = Extract<ServerMessage, { t: T }>

/** Changes all messages of one kind. */
const messages =
  <T extends ServerMessage['t']>(t: T, change: (message: Of<T>, count: number) => Replacement) =>
  () => {
    let count = 0
    return (message: ServerMessage): Replacement =>
      message.t === t ? change(message as Of<T>, ++count) : [message]
  }

/** On each connection, changes one message of a kind: the first one after `after` others. */
const once = <T extends ServerMessage['t']>(t: T, change: (message: Of<T>) => Replacement, after = 9) =>
  messages(t, (message, count) => (count === after + 1 ? change(message) : [message]))

/** Replaces a method of a class until the returned function is called. */
function replaced<T extends object, N extends keyof T>(
  prototype: T,
  name: N,
  change: (method: T[N]) => T[N],
) {
  const method = prototype[name]
  prototype[name] = change(method)
  return () => {
    prototype[name] = method
  }
}

/** What a run with `lossesOf` has lost. */
export interface Losses {
  questions: number
  answers: number
}

/** Loses every twentieth flush of a connection, except the end of the client's seat. */
function lossyConnection() {
  let count = 0
  let isLost = false
  return (message: ServerMessage): Replacement => {
    const { t } = message
    if (t === 'state.patch') isLost = ++count % 20 === 0
    else if (t === 'state.snapshot' || t === 'state.resync') isLost = false
    return isLost && (t === 'state.patch' || t === 'event' || t === 'member') ? [] : [message]
  }
}

/** Shortest time between two losses between nodes. The repetitions of all open questions would otherwise be lost again and again. */
const LOSS_MS = 2000

/**
 * Every twentieth flush of a connection is lost, so that its client asks for the whole state. In turn, such a question and an answer are lost on
 * their way between two nodes, with all that is sent with them. A correct node makes up for it.
 */
export const lossesOf = (lost: Losses = { questions: 0, answers: 0 }): Mutation => {
  /** Channels on which the next message is lost. */
  const condemned = new Set<string>()
  let now = () => 0
  let lostAt = 0
  return {
    connection: lossyConnection,
    node: (store, clock) => {
      now = () => clock.monotonic()
      return overriding(store, {
        bus: overriding(store.bus, {
          publish: async (channel, bytes) =>
            condemned.delete(channel) ? 0 : store.bus.publish(channel, bytes),
        }),
      })
    },
    code: () =>
      replaced(
        NodeLinks.prototype,
        'send',
        (send) =>
          function (this: NodeLinks, to, message, urgency) {
            const kind = 'message' in message ? message.message.kind : undefined
            const next = lost.questions > lost.answers ? 'state' : 'resync'
            if (kind === next && now() - lostAt >= LOSS_MS) {
              lost[next === 'state' ? 'answers' : 'questions']++
              lostAt = now()
              condemned.add(nodeChannel(to))
            }
            send.call(this, to, message, urgency)
          },
      ),
  }
}

/** Mistakes that simulated runs must find. */
export const FAULTS = {
  unfenced: {
    what: 'A commit takes any fence',
    store: OF_THE_STORE.unfenced.store,
    breaks: ['split_commit', 'stale_commit', 'divergence'],
  },
  trusting: {
    what: 'A node takes its lease for renewed, whatever the store answers',
    node: inRecords((records) => ({
      renewLease: async (renewal) => {
        records.renewLease(renewal).catch(() => undefined)
        return { holder: renewal.holder, since: 1 }
      },
    })),
    breaks: ['acted_without_lease'],
  },
  repeating: {
    what: 'A commit without an answer is made again',
    store: OF_THE_STORE.repeating.store,
    breaks: ['version_gap', 'record_unreadable'],
  },
  hopeful: {
    what: 'A commit without an answer counts as committed',
    store: OF_THE_STORE.hopeful.store,
    breaks: ['split_commit', 'stale_commit'],
  },
  grabbing: {
    what: 'A claim that is too late gets the epoch of the other node',
    store: OF_THE_STORE.grabbing.store,
    breaks: ['epoch_claimed_twice'],
  },
  // A backend calls a room while the store is unreachable and loses its data. A join would notice the loss, because it writes its session first.
  early: {
    what: 'A claim is decided before it waits for the connection',
    store: OF_THE_STORE.early.store,
    players: { backends: 4 },
    breaks: ['call_lost', 'call_twice'],
  },
  refiring: {
    what: 'A new owner does not read which timers have fired',
    store: OF_THE_STORE.refiring.store,
    breaks: ['timer_twice'],
  },
  forgetful: {
    what: 'A new owner does not read which timers were set',
    store: OF_THE_STORE.forgetful.store,
    breaks: ['timer_lost'],
  },
  unreserving: {
    what: 'A new owner does not read which seats were reserved',
    store: OF_THE_STORE.unreserving.store,
    breaks: ['reservation_broken'],
  },
  hasty: {
    what: 'A node does not wait for the answer to a commit',
    node: (store, clock) => {
      const later = async (write: () => Promise<boolean>) => {
        clock.schedule(HASTE_MS, () => void write().catch(() => undefined))
        return true
      }
      return inRooms((rooms) => ({
        commit: (...write) => later(() => rooms.commit(...write)),
        snapshot: (...write) => later(() => rooms.snapshot(...write)),
      }))(store)
    },
    players: { queue: 6, backends: 2 },
    breaks: ['uncommitted_update', 'shown_early', 'acked_early', 'match_early', 'call_answered_early'],
  },
  amnesiac: {
    what: 'A new owner gets nothing of what the store has of a room',
    store: inClaims((claim) => ({
      ...claim,
      fence: { ...claim.fence, version: 0 },
      snapshot: undefined,
      journal: [],
    })),
    breaks: ['room_lost'],
  },
  shortened: {
    what: 'A new owner does not read the last entries of a journal',
    store: inClaims((claim) => ({ ...claim, journal: claim.journal.slice(0, -3) })),
    players: { backends: 2 },
    breaks: ['acked_lost', 'rollback', 'call_lost'],
  },
  unsaved: {
    what: 'Only the first save of an owner is made',
    node: (store) => {
      const saved = new Set<string>()
      return inRooms((rooms) => ({
        snapshot: async (room, fence, ...rest) => {
          const key = `${room} ${fence.epoch}`
          if (saved.has(key) && room.includes('chaos-snapshot')) return true
          saved.add(key)
          return rooms.snapshot(room, fence, ...rest)
        },
      }))(store)
    },
    breaks: ['rollback_too_far', 'record_differs'],
  },
  forking: {
    what: 'A resume token that was used before is accepted again',
    store: inRecords((records) => ({
      write: (writes) =>
        records.write(
          writes.map((write) => {
            if (!('put' in write && write.put.startsWith('session:'))) return write
            const { ifVersion: _, ...always } = write
            return always
          }),
        ),
    })),
    breaks: ['resumed_twice'],
  },
  lossy: {
    what: 'A connection delivers no more state after a gap',
    connection: () => {
      let count = 0
      return (message) =>
        message.t.startsWith('state.') && ++count > 9 && (count === 10 || message.t !== 'state.patch')
          ? []
          : [message]
    },
    breaks: ['seq_gap', 'final_mismatch'],
  },
  inattentive: {
    what: 'An edge forgets at a takeover that a client has asked for the whole state',
    connection: lossyConnection,
    code: () =>
      replaced(
        Subscription.prototype,
        'reattach',
        (reattach) =>
          function (this: Subscription, ask) {
            this.resync = undefined
            return reattach.call(this, ask)
          },
      ),
    breaks: ['seq_gap'],
  },
  doubled: {
    what: 'A patch is delivered twice',
    connection: once('state.patch', (patch) => [patch, patch]),
    breaks: ['seq_repeated'],
  },
  outdated: {
    what: 'A patch has the epoch of an earlier owner',
    connection: once('state.patch', (patch) => [{ ...patch, epoch: 1 }]),
    breaks: ['epoch_down'],
  },
  miscounting: {
    what: 'A patch has a wrong checksum',
    connection: once('state.patch', (patch) => [{ ...patch, checksum: (patch.checksum ^ 1) >>> 0 }]),
    breaks: ['checksum_mismatch'],
  },
  overacking: {
    what: 'An ack is for a later op than the last one',
    connection: once('ack', (ack) => [{ ...ack, ref: ack.ref + 100 }]),
    breaks: ['ack_unsent'],
  },
  silent: {
    what: 'A connection delivers no acks',
    connection: messages('ack', () => []),
    breaks: ['op_unanswered', 'too_little'],
  },
  mute: {
    what: 'A reply is not delivered',
    connection: once('reply', () => []),
    breaks: ['reply_lost'],
  },
  lying: {
    what: 'A reply has a wrong content',
    connection: once('reply', (reply) => [
      { ...reply, data: { ...(reply.data as Record<string, Json>), chain: 1 } },
    ]),
    breaks: ['reply_differs'],
  },
  unlayered: {
    what: 'A connection delivers no more layers',
    connection: messages('state.patch', ({ layers, ...patch }, count) => [
      layers && count <= 9 ? { ...patch, layers } : patch,
    ]),
    breaks: ['layer_wrong'],
  },
  unseating: {
    what: 'A member gets the answer that it has no seat',
    connection: () => {
      let count = 0
      return (message) => {
        // The node refuses another join until the session has resumed without the room.
        if (count === 10) return { close: 4101 }
        if (message.t !== 'ack' || ++count !== 10) return [message]
        return [message, { t: 'left', room_id: message.room_id, reason: 'left' }]
      }
    },
    breaks: ['seat_lost'],
  },
  closing: {
    what: 'A connection is closed for good',
    connection: once('ack', () => ({ close: 4005 })),
    breaks: ['closed_without_cause'],
  },
  unwelcoming: {
    what: 'Later connections are not answered',
    connection: (number) => (number > 30 ? () => [] : undefined),
    breaks: ['left_out'],
  },
  undescribed: {
    what: 'A node does not list the rooms that it runs',
    describe: () => [],
    breaks: ['no_owner'],
  },
  twofold: {
    what: 'A room applies an op twice',
    room: inOps((apply, message) => {
      apply(message)
      if (message.data.ref % 10 === 0) apply(message)
    }),
    breaks: ['applied_twice'],
  },
  reordering: {
    what: 'A room applies an op after a later one',
    room: (definition) => {
      const waiting = new Map<string, OpMessage>()
      return inOps((apply, message) => {
        const { id } = message.member
        const earlier = waiting.get(id)
        waiting.delete(id)
        if (!earlier && message.type === 'op' && message.data.ref % 10 === 0) waiting.set(id, message)
        else apply(message)
        if (earlier) apply(earlier)
      })(definition)
    },
    breaks: ['out_of_order'],
  },
  lenient: {
    what: 'A room applies an op that it must refuse',
    room: inOps((apply, { data, ...message }) => apply({ ...message, data: { ...data, refuse: null } })),
    breaks: ['refused_applied'],
  },
  agreeing: {
    what: 'A refusal is delivered as an ack',
    connection: once(
      'error',
      (refusal) => [{ t: 'ack', room_id: refusal.room_id ?? '', ref: refusal.ref ?? 1 }],
      0,
    ),
    breaks: ['refused_acked'],
  },
  strict: {
    what: 'A room refuses an op that it must apply',
    room: inOps((apply, message, ctx) =>
      message.data.ref % 10 === 0 ? ctx.refuse('wrong') : apply(message),
    ),
    breaks: ['refused_without_cause'],
  },
  inventing: {
    what: 'A room applies an op that was not sent',
    room: inOps((apply, { data, ...message }) =>
      apply({ ...message, data: data.ref % 10 === 0 ? { ...data, op: 'invented' } : data }),
    ),
    breaks: ['unexplained'],
  },
  open: {
    what: 'A room has no hidden layers',
    room: inChaosRooms(() => ({ layers: undefined })),
    breaks: ['layer_leaked'],
  },
  eager: {
    what: 'A room starts a task twice',
    room: inOps((apply, message, ctx) => {
      const task = (...words: unknown[]) => {
        ctx.task(...words)
        ctx.task(...words)
      }
      apply(message, overriding(ctx, { task }))
    }),
    breaks: ['task_twice'],
  },
  idle: {
    what: 'A room does not start a task',
    room: inOps((apply, message, ctx) => apply(message, overriding(ctx, { task: () => undefined }))),
    breaks: ['task_lost'],
  },
  unaware: {
    what: 'A room does not see that a member is back',
    room: inChaosRooms(() => ({ onReconnect: undefined })),
    breaks: ['presence_wrong'],
  },
  oblivious: {
    what: 'A room does not learn that a member has become a spectator',
    room: inChaosRooms(({ spectators }) => ({ spectators: { ...spectators!, onJoin: undefined } })),
    breaks: ['role_wrong'],
  },
  nostalgic: {
    what: 'A room shows the layers of players to a member that has become a spectator',
    room: inChaosRooms(({ spectators }) => ({
      spectators: {
        ...spectators!,
        onJoin: ((
          state: object,
          member: { id: string },
          ctx: { show: (id: string, layer: string) => void },
        ) => {
          call(spectators!.onJoin, state, member, ctx)
          for (const team of ['red', 'blue', 'green']) ctx.show(member.id, `team:${team}`)
        }) as never,
      },
    })),
    breaks: ['layer_leaked'],
  },
  historical: {
    what: 'A connection delivers an update from before the join',
    connection: once('state.patch', (patch) => [{ ...patch, seq: 0 }]),
    breaks: ['seen_early'],
  },
  overfull: {
    what: 'A room takes more players than its maxPlayers',
    room: inType('chaos-lobby', () => ({ maxPlayers: 100 })),
    players: { lobby: 6 },
    breaks: ['seat_twice'],
  },
  homing: {
    what: 'A node opens a room that another node runs, and no write is fenced',
    store: (store) => {
      const claimed = new Set<string>()
      const now = async (room: string, fence: Fence) => (await store.rooms.inspect(room)) ?? fence
      return inRooms((rooms) => ({
        inspect: async (room) => (claimed.has(room) ? rooms.inspect(room) : undefined),
        claim: async (room, owner, _, ttlMs) => {
          claimed.add(room)
          return rooms.claim(room, owner, (await rooms.inspect(room))?.epoch ?? 0, ttlMs)
        },
        open: async (room, opening, mayClaim) => {
          const found = await rooms.open(room, opening, mayClaim)
          if (!found || 'fence' in found || claimed.has(room)) return found
          claimed.add(room)
          return rooms.claim(room, opening.owner, found.epoch, opening.ttlMs)
        },
        commit: async (room, fence, ...rest) => rooms.commit(room, await now(room, fence), ...rest),
        snapshot: async (room, fence, ...rest) => rooms.snapshot(room, await now(room, fence), ...rest),
        refresh: async (room, fence, ...rest) => rooms.refresh(room, await now(room, fence), ...rest),
      }))(store)
    },
    breaks: ['two_owners'],
  },
  undead: {
    what: 'The row of a room that has ended stays in the list',
    store: (store) =>
      inListings(
        store,
        async (list, row, ...rest) =>
          row.value === undefined ||
          store.listings.write(list, row, Number.POSITIVE_INFINITY, ...rest.slice(1)),
      ),
    players: { lobby: 6 },
    breaks: ['listed_ghost'],
  },
  unlisted: {
    what: 'A list gets no changes of a row',
    store: (store) => {
      const listed = new Set<string>()
      return inListings(store, async (list, row, ...rest) => {
        if (row.value !== undefined && listed.has(row.roomId)) return true
        listed.add(row.roomId)
        return store.listings.write(list, row, ...rest)
      })
    },
    players: { lobby: 6 },
    breaks: ['list_wrong'],
  },
  promising: {
    what: 'A room says that it reserves a seat, and does not',
    room: inType('chaos-lobby', ({ messages: { reserve, ...others } }) => ({
      messages: {
        ...others,
        reserve: {
          ...reserve!,
          handle: ((state: object, message: object, ctx: object) =>
            call(
              reserve!.handle,
              state,
              message,
              overriding(ctx, { reserve: () => true } as object),
            )) as never,
        },
      },
    })),
    players: { lobby: 6 },
    breaks: ['reservation_broken', 'seat_twice'],
  },
  misleading: {
    what: 'A code leads to another room. An owner checks the code, so this is written into the history of a run',
    plant: PLANTED.code_misleads,
    players: { lobby: 6 },
    breaks: ['code_misleads'],
  },
  impatient: {
    what: 'A queue removes a ticket that waits',
    room: inType('chaos-queue', ({ onTick }) => {
      let ticks = 0
      return {
        onTick: ((state: { tickets: Record<string, { member: string }> }, ctx: { system: SystemParts }) => {
          call(onTick, state, ctx)
          const [first] = Object.values(state.tickets)
          if (first && ++ticks % 20 === 0) ctx.system.end(first.member, { code: 'party_timeout' })
        }) as never,
      }
    }),
    players: { queue: 6 },
    breaks: ['ticket_lost'],
  },
  separating: {
    what: 'A queue does not know the parties of tickets',
    room: inType('chaos-queue', ({ options, messages: { ticket } }) => {
      const { validate } = options!['~standard']
      const data = {
        '~standard': {
          ...options!['~standard'],
          validate: (value: unknown) => {
            const { party: _, ...others } = value as { party?: string }
            return validate(others)
          },
        },
      }
      return { options: data, messages: { ticket: { ...ticket!, data } } }
    }),
    players: { queue: 6 },
    breaks: ['party_split'],
  },
  clinging: {
    what: 'A queue keeps the ticket of a player that has left',
    room: inType('chaos-queue', () => ({ onLeave: undefined })),
    players: { queue: 6 },
    breaks: ['match_of_cancelled'],
  },
  persisting: {
    what: 'A queue goes on with a match whose player has left',
    room: inType('chaos-queue', ({ onLeave }) => ({
      onLeave: ((state: QueueState, member: object, ctx: object) => {
        const before = Object.keys(state.tickets)
        call(onLeave, state, member, overriding(ctx, { task: () => {} } as object))
        const [gone] = before.filter((player) => !state.tickets[player])
        for (const [key, { at, cancelled, seats }] of Object.entries(state.orders))
          if (cancelled === 'left' && gone !== undefined)
            state.orders[key] = { at, seats: { ...seats, subs: seats.subs.filter((sub) => sub !== gone) } }
      }) as never,
    })),
    players: { queue: 6 },
    breaks: ['match_short'],
  },
  heedless: {
    what: 'A queue notifies the players of a match although its room has refused one of them',
    room: inType('chaos-queue', ({ tasks: { reserve, cancel } }) => {
      const handle = (state: object, ended: { value?: object }, ctx: object) => {
        const value = ended.value && 'refused' in ended.value ? { reserved: true } : ended.value
        call(reserve!.handle, state, { ...ended, value }, ctx)
      }
      return { tasks: { cancel: cancel!, reserve: { ...reserve!, handle: handle as never } } }
    }),
    players: { queue: 6 },
    breaks: ['match_refused'],
  },
  repeated: {
    what: 'A match has the ticket of an earlier match',
    room: inType('chaos-queue', ({ tasks: { reserve, cancel } }) => {
      let before: string | undefined
      const handle = (
        state: { orders: Record<string, { seats: { options: { tickets: string[] } } }> },
        ended: { data: string },
        ctx: object,
      ) => {
        const tickets = state.orders[ended.data]?.seats.options.tickets
        const last = tickets?.at(-1)
        if (tickets && before !== undefined) tickets[tickets.length - 1] = before
        before = last ?? before
        call(reserve!.handle, state, ended, ctx)
      }
      return { tasks: { cancel: cancel!, reserve: { ...reserve!, handle: handle as never } } }
    }),
    players: { queue: 6 },
    breaks: ['ticket_twice'],
  },
  renaming: {
    what: 'A node gives each request another id',
    operations: (answer) => {
      let count = 0
      return async (request) => {
        const body = await request.clone().text()
        if (!body.includes('"op":"call"')) return answer(request)
        const renamed = body.replace(/"id":"/, `"id":"${++count}-`)
        return answer(new Request(request.url, { method: 'POST', headers: request.headers, body: renamed }))
      }
    },
    players: { backends: 2 },
    breaks: ['call_twice', 'call_answers_differ'],
  },
  forgiving: {
    what: 'A bank carries out a call that it must refuse',
    room: inCalls((grant, state, { data }, ctx) => grant(state, { data: { ...data, refuse: null } }, ctx)),
    players: { backends: 2 },
    breaks: ['call_refused_applied'],
  },
  unforgiving: {
    what: 'A bank refuses a call that it must carry out',
    room: inCalls((grant, state, message, ctx) =>
      message.data.call.endsWith('5') ? ctx.refuse('wrong') : grant(state, message, ctx),
    ),
    players: { backends: 2 },
    breaks: ['call_refused_without_cause'],
  },
  speechless: {
    what: 'A node never answers some calls',
    operations: (answer) => async (request) =>
      (await request.clone().text()).includes('"call":"0.7"') ? new Promise(() => {}) : answer(request),
    players: { backends: 2 },
    breaks: ['call_unanswered'],
  },
  careless: {
    what: 'A node takes each answer of the webhook for a success',
    notices: (post) => (notice, signal) =>
      post(notice, signal).then(
        () => ({ status: 204 }),
        () => ({ status: 204 }),
      ),
    players: { backends: 2 },
    breaks: ['notice_lost'],
  },
  inventive: {
    what: 'A node sends a notice that no room has written',
    notices: (post) => async (notice, signal) => {
      await post({ ...notice, id: `${notice.id}x` }, signal)
      return post(notice, signal)
    },
    players: { backends: 2 },
    breaks: ['notice_uncommitted'],
  },
  distorting: {
    what: 'A node sends another body than that of the notice',
    notices: (post) => (notice, signal) => post({ ...notice, body: '{}' }, signal),
    players: { backends: 2 },
    breaks: ['notice_differs'],
  },
  overtaking: {
    what: 'A node sends the later one of two notices first',
    notices: (post) => {
      let waiting: Parameters<PostNotice>[0] | undefined
      return async (notice, signal) => {
        const earlier = waiting
        waiting = earlier ? undefined : notice
        if (!earlier) return { status: 204 }
        await post(notice, signal)
        return post(earlier, signal)
      }
    },
    players: { backends: 2 },
    breaks: ['notice_order'],
  },
  unbanning: {
    what: 'A node does not read bans',
    node: inRecords((records) => ({
      read: async (keys) => {
        const found = await records.read(keys)
        return found.map((record, i) => (keys[i]!.startsWith('{control}:player:') ? undefined : record))
      },
    })),
    players: { backends: 2 },
    breaks: ['ban_ignored'],
  },
  unkicking: {
    what: 'A room answers a kick, and does nothing',
    operations: (answer) => async (request) =>
      (await request.clone().text()).includes('"op":"kick"')
        ? Response.json({ kicked: 1, epoch: 1, seq: 1 })
        : answer(request),
    players: { backends: 2 },
    breaks: ['kick_ignored'],
  },
  crowded: {
    what: 'joinOrCreate answers room_full. The SDK makes no such answer, so this is written into the history of a run',
    plant: PLANTED.room_full,
    players: { lobby: 6 },
    breaks: ['room_full'],
  },
} as const satisfies Record<string, Fault>

/** Smaller than the world of `npm run sim`, so that a seed takes 1 to 4 s. */
export const FAULT_RUN = { seconds: 15, nodes: 3, clients: 9, rooms: 3, direct: false }

/** Runs one seed in which every node makes a mistake. Resolves with the rules that it breaks. */
export async function violationsOf(fault: Fault, seed: number): Promise<ReadonlySet<ViolationName>> {
  const history = await SimWorld.run({ ...FAULT_RUN, ...fault.players, seed, mutation: fault })
  fault.plant?.(history as never)
  return new Set(check(history).violations.map(({ name }) => name))
}
