import * as v from 'valibot'
import { defineRoom } from '../../dataplane/room/definition.ts'
import { JournalFormat } from '../../dataplane/room/journal.ts'
import { restore } from '../../dataplane/room/restore.ts'
import type { RoomTimer } from '../../dataplane/room/timers-and-tasks.ts'
import { roomAddress } from '../../dataplane/traffic.ts'
import {
  type Claim,
  type RoomOwner,
  type RoomRecords,
  type Store,
  StoreUnavailable,
} from '../../shared/store/port.ts'
import { type Explorable, FAULTS } from './explorer.ts'
import type { Guarantee, Violation } from './ledger.ts'
import type { Mutation } from './model-node.ts'
import { type Act, World, type WorldParts } from './world.ts'

const logRoom = {
  type: 'log',
  messages: { add: { data: v.string() } },
  sync: { rate: 0 },
  durability: 'journal',
  idleSeconds: 3600,
  create: () => ({ log: [] as string[] }),
} as const

/** Room type whose state is the list of all messages. */
const definition = defineRoom({
  ...logRoom,
  onMessage(state, { data }) {
    state.log.push(data)
  },
})

/** Like `definition`. Each message also sets a timer, which adds a line to the log after 100 ms, and reserves a seat. */
const ringing = defineRoom({
  ...logRoom,
  onMessage(state, { data }, ctx) {
    state.log.push(data)
    ctx.after(100, 'rings', data)
    ctx.after(3_600_000, 'later', null, { id: 'later' })
    ctx.reserve(data, 3600)
  },
  timers: {
    rings: { data: v.string(), handle: (state, { data }) => void state.log.push(`rang ${data}`) },
    later: { data: v.null(), handle: (state) => void state.log.push('later') },
  },
})

const common = {
  room: roomAddress('prj', 'log', 'one'),
  definition,
  faults: FAULTS,
}

const join = (edge: number, at = 0): Act => ({
  at,
  what: `member ${edge + 1} joins`,
  run: ({ edges }) => edges[edge]!.join(),
})
const say = (edge: number, at: number): Act => ({
  at,
  what: `member ${edge + 1} says something`,
  run: ({ edges }) => edges[edge]!.say(),
})

const sayBad = (edge: number, at: number): Act => ({
  at,
  what: `member ${edge + 1} says something that is refused`,
  run: ({ edges }) => edges[edge]!.say(true),
})

const ann = { memberId: 'ann', nodes: ['A', 'B'] }
const bob = { memberId: 'bob', nodes: ['B', 'A'] }

/** Small models, each for one situation. */
export const SCENARIOS: Readonly<Record<string, WorldParts>> = {
  /** A owns the room, and its member sends messages. */
  owned: {
    ...common,
    edges: [ann],
    before: [join(0), say(0, 0)],
    script: [say(0, 0), say(0, 0), say(0, 600)],
  },
  /** Like `owned`, with a snapshot after each second journal entry, and a record that expires unless it is refreshed. */
  saved: {
    ...common,
    edges: [ann],
    before: [join(0), say(0, 0)],
    script: [say(0, 0), say(0, 0), say(0, 600)],
    limits: { journalEntries: 2 },
    recordTtlMs: 4000,
  },
  /** Like `owned`, with a timer for each message. */
  timed: {
    ...common,
    definition: ringing,
    edges: [ann],
    before: [join(0), say(0, 0)],
    script: [say(0, 0), say(0, 600)],
    faults: ['crash', 'restart', 'lost', 'refused'],
  },
  /** Like `owned`, with messages that the room refuses. */
  refused: {
    ...common,
    edges: [ann],
    before: [join(0)],
    script: [sayBad(0, 0), say(0, 0)],
    faults: ['drop', 'crash', 'restart', 'lost'],
  },
  /** The room has no owner, and members join through both nodes at the same time. */
  opened: {
    ...common,
    edges: [ann, bob],
    before: [],
    script: [join(0), join(1), say(0, 0)],
  },
  /** A drains and hands the room over, while its member sends messages. */
  drained: {
    ...common,
    edges: [ann],
    before: [join(0), say(0, 0)],
    script: [
      say(0, 0),
      { at: 0, what: 'A drains', run: (world) => world.drain('A') },
      say(0, 0),
      say(0, 600),
    ],
  },
  /** A owns the room, and B takes A for dead by mistake. A second member only receives. */
  watched: {
    ...common,
    hints: true,
    edges: [ann, { memberId: 'eve', nodes: ['A', 'B'], watches: true }],
    before: [join(0), join(1), say(0, 0)],
    script: [
      { at: 500, what: 'member 1 comes back at B', run: ({ edges }) => edges[0]!.move() },
      say(0, 500),
    ],
    faults: ['deaf'],
  },
  /** The store loses all data while A runs. B reconnects before A. Later a member joins through B. */
  wiped: {
    ...common,
    edges: [ann, bob],
    before: [join(0), say(0, 0)],
    script: [
      { at: 0, what: 'the store comes back empty', run: (world) => world.wipe({ A: 1200, B: 300 }) },
      { at: 800, what: 'member 1 comes back at B', run: ({ edges }) => edges[0]!.move() },
      join(1, 4000),
      say(0, 5000),
    ],
    // Only the owner's memory can restore the room, so no fault may end the owner.
    faults: ['lost', 'refused', 'late', 'drop', 'reorder'],
  },
  /** B opens the room of A, and the store loses all data before the command arrives. */
  asked: {
    ...common,
    edges: [ann, bob],
    before: [join(0), say(0, 0)],
    script: [
      join(1, 0),
      { at: 100, what: 'the store comes back empty', run: (world) => world.wipe({ A: 1200, B: 300 }) },
      say(0, 5000),
    ],
    faults: ['late', 'slow'],
  },
}

/** Creates the world of a scenario. Violations of `known` guarantees do not end a run. */
export function model(parts: WorldParts, mutation?: Mutation, known: readonly Guarantee[] = []): Explorable {
  return new Model(new World({ ...parts, mutation }), known, parts.definition === ringing)
}

class Model implements Explorable {
  readonly #world: World
  readonly #known: readonly Guarantee[]
  /** True if each message has a timer and a reservation. */
  readonly #rings: boolean

  constructor(world: World, known: readonly Guarantee[], rings: boolean) {
    this.#world = world
    this.#known = known
    this.#rings = rings
  }

  choices() {
    return this.#world.choices()
  }

  get explored(): boolean {
    return this.#world.explored
  }

  get over(): boolean {
    return this.#world.over
  }

  get digest(): string {
    return this.#world.digest
  }

  get violations(): readonly Violation[] {
    return this.#world.ledger.violations.filter(({ guarantee }) => !this.#known.includes(guarantee))
  }

  /** Checks that the record has each message once and in order, that no fenced room runs, and that members have the seq of the record. */
  async finish(): Promise<void> {
    const { edges, ledger, running, store, room } = this.#world
    const found = await store.rooms.inspect(room)
    for (const { process, epoch } of running)
      if (ledger.wasFenced(process, epoch))
        ledger.violate('fenced', `${process} is fenced, and still runs epoch ${epoch}`)
    const claim = await store.rooms.claim(room, 'node_checker', found?.epoch ?? 0, 1000)
    const restored = claim && restore(claim, new JournalFormat())
    if (!restored) {
      ledger.violate('applied', 'the store has no record of the room')
      return
    }
    const { log } = restored.state(Number.POSITIVE_INFINITY, undefined).base as { log: string[] }
    const { timers, reservations } = restored.tables
    for (const { memberId, said: refs, position } of edges) {
      const lines = refs.map((ref) => `${memberId}:${ref}`)
      if (this.#rings) this.#checkTimers(lines, log, timers.rows)
      for (const line of this.#rings ? lines : [])
        if (!reservations.has(line))
          ledger.violate('reservations', `the record has no reservation of ${line}`)
      const said = lines.join()
      const kept = log.filter((line) => line.startsWith(`${memberId}:`)).join()
      if (said !== kept) ledger.violate('applied', `${memberId} sent ${said}, and the record has ${kept}`)
      if (position.seq !== restored.seq)
        ledger.violate('applied', `${memberId} is at seq ${position.seq}, the record at ${restored.seq}`)
    }
  }

  /** Checks that the timer of each message has fired once or is pending. */
  #checkTimers(said: readonly string[], log: readonly string[], timers: readonly RoomTimer[]): void {
    for (const line of said) {
      const rang = log.filter((written) => written === `rang ${line}`).length
      const pending = timers.filter(({ data }) => data === line).length
      if (rang + pending !== 1)
        this.#world.ledger.violate(
          'timers',
          `the timer of ${line} has fired ${rang} times, and is pending ${pending} times`,
        )
    }
  }
}

/** Returns a store with some operations of rooms replaced. */
const rooms =
  (change: (rooms: RoomRecords) => Partial<RoomRecords>) =>
  (store: Store): Store => ({ ...store, rooms: { ...store.rooms, ...change(store.rooms) } })

/** Claim of a room with the fence of its present owner. */
const grabbed = ({ epoch, version }: RoomOwner): Claim => ({
  fence: { epoch, version },
  snapshot: undefined,
  journal: [],
})

/** Removes from the journal the rows of a table that were set, or the ones that were removed. */
const forgetting = (what: 'set' | 'removed', table: 'timers' | 'reservations') => {
  const format = new JournalFormat()
  const forgotten = (claim: Claim): Claim => {
    const journal = claim.journal.map((entry) => {
      const update = format.readEntry(entry)
      const changes = { set: [], removed: [], ...update.tables?.[table], [what]: [] }
      return format.entry({ ...update, tables: update.tables && { ...update.tables, [table]: changes } })
    })
    return { ...claim, journal }
  }
  return rooms((inner) => ({
    claim: async (...asked) => {
      const claim = await inner.claim(...asked)
      return claim && forgotten(claim)
    },
    open: async (...asked) => {
      const found = await inner.open(...asked)
      return found && 'fence' in found ? forgotten(found) : found
    },
  }))
}

/** Mistakes in the ownership, which the explorer must find. They are wrappers of the real code. */
export const MUTATIONS = {
  /** A store without a fence: each commit uses the present fence of the record. */
  unfenced: {
    store: rooms((inner) => ({
      commit: async (room, fence, ...rest) => {
        const now = await inner.inspect(room)
        return inner.commit(room, now ?? fence, ...rest)
      },
    })),
  },
  /** A node that does not check its lease. */
  trusting: { lease: { validUntil: Number.POSITIVE_INFINITY } },
  /** A commit without an answer is made again, on top of the present record. */
  repeating: {
    store: rooms((inner) => ({
      commit: async (room, fence, ...rest) => {
        try {
          return await inner.commit(room, fence, ...rest)
        } catch (error) {
          const now = await inner.inspect(room)
          if (now?.epoch !== fence.epoch) throw error
          return inner.commit(room, now, ...rest)
        }
      },
    })),
  },
  /** A commit without an answer counts as committed. */
  hopeful: {
    store: rooms((inner) => ({
      commit: async (...write) => {
        try {
          return await inner.commit(...write)
        } catch (error) {
          if (error instanceof StoreUnavailable) return true
          throw error
        }
      },
    })),
  },
  /** A claim without compare-and-set: the later node gets the epoch of the earlier node. */
  grabbing: {
    store: rooms((inner) => ({
      claim: async (room, owner, expectedEpoch, ttlMs) => {
        const claim = await inner.claim(room, owner, expectedEpoch, ttlMs)
        return claim ?? grabbed((await inner.inspect(room))!)
      },
      open: async (...asked) => {
        const found = await inner.open(...asked)
        return found && 'owner' in found ? grabbed(found) : found
      },
    })),
  },
  /** A claim is decided before it waits for the connection. The store may lose the room before the claim is sent. */
  early: {
    store: rooms((inner) => ({
      open: async (room, opening, mayClaim) => {
        const may = mayClaim()
        return inner.open(room, opening, () => may)
      },
    })),
  },
  /** A new owner does not know which timers have fired. */
  refiring: { store: forgetting('removed', 'timers') },
  /** A new owner does not know which timers were set. */
  forgetful: { store: forgetting('set', 'timers') },
  /** A new owner does not know which seats were reserved. */
  unreserving: { store: forgetting('set', 'reservations') },
} satisfies Record<string, Mutation>

/** The mutation with a name, as the general type. */
export const mutation = (name: keyof typeof MUTATIONS): Mutation => MUTATIONS[name]
