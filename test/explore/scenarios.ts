import * as v from 'valibot'
import { defineRoom } from '../../dataplane/rooms/definition.ts'
import { JournalFormat } from '../../dataplane/rooms/journal.ts'
import { restore } from '../../dataplane/rooms/restore.ts'
import type { RoomTimer } from '../../dataplane/rooms/timers-and-tasks.ts'
import { roomAddress } from '../../dataplane/traffic.ts'
import {
  type Claim,
  type RoomOwner,
  type RoomRecords,
  type Store,
  StoreUnavailable,
} from '../../shared/store/port.ts'
import { type Explorable, FAULTS } from './explorer.ts'
import type { Promised, Violation } from './ledger.ts'
import type { Mutation } from './model-node.ts'
import { type Act, World, type WorldParts } from './world.ts'

/** Writes down what its members say: the state is its own history. */
const definition = defineRoom({
  type: 'log',
  messages: { add: { data: v.string() } },
  sync: { rate: 0 },
  durability: 'journal',
  idleSeconds: 3600,
  create: () => ({ log: [] as string[] }),
  onMessage(state, { data }) {
    state.log.push(data)
  },
})

/** As `definition`; and a while after each thing that was said it writes down that it rang. Each has a reservation, too. */
const ringing = defineRoom({
  type: 'log',
  messages: { add: { data: v.string() } },
  sync: { rate: 0 },
  durability: 'journal',
  idleSeconds: 3600,
  create: () => ({ log: [] as string[] }),
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

/** Small models, each around one situation. */
export const SCENARIOS: Readonly<Record<string, WorldParts>> = {
  /** A owns the room; its member goes on, whatever happens. */
  owned: {
    ...common,
    edges: [ann],
    before: [join(0), say(0, 0)],
    script: [say(0, 0), say(0, 0), say(0, 600)],
  },
  /** As `owned`, with a snapshot after every second journal entry and a record that has to be refreshed. */
  saved: {
    ...common,
    edges: [ann],
    before: [join(0), say(0, 0)],
    script: [say(0, 0), say(0, 0), say(0, 600)],
    limits: { journalEntries: 2 },
    recordTtlMs: 4000,
  },
  /** As `owned`, with a timer for each thing that is said. */
  timed: {
    ...common,
    definition: ringing,
    edges: [ann],
    before: [join(0), say(0, 0)],
    script: [say(0, 0), say(0, 600)],
    faults: ['crash', 'restart', 'lost', 'refused'],
  },
  /** As `owned`, with messages that the room refuses. */
  refused: {
    ...common,
    edges: [ann],
    before: [join(0)],
    script: [sayBad(0, 0), say(0, 0)],
    faults: ['drop', 'crash', 'restart', 'lost'],
  },
  /** No one owns the room, and both nodes are asked for it at once. */
  opened: {
    ...common,
    edges: [ann, bob],
    before: [],
    script: [join(0), join(1), say(0, 0)],
  },
  /** A hands the room over, with members who go on. */
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
  /** A owns the room, and is taken for dead by mistake; a spectator only watches. */
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
  /** The store loses everything while A lives, and B is back before A is; later someone asks B for the room. */
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
    // What the memory of its owner still has, and only that, can be saved.
    faults: ['lost', 'refused', 'late', 'drop', 'reorder'],
  },
  /** B asks for the room of A, and the store loses everything before the command arrives. */
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

/** A world of one scenario, ready to be explored. Promises that are `known` to be broken do not end a run. */
export function model(parts: WorldParts, mutation?: Mutation, known: readonly Promised[] = []): Explorable {
  return new Model(new World({ ...parts, mutation }), known, parts.definition === ringing)
}

class Model implements Explorable {
  readonly #world: World
  readonly #known: readonly Promised[]
  /** Whether what is said has a timer. */
  readonly #rings: boolean

  constructor(world: World, known: readonly Promised[], rings: boolean) {
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
    return this.#world.ledger.violations.filter(({ promised }) => !this.#known.includes(promised))
  }

  /** Every message is in the record once and in order, no fenced room runs, and members are where the record is. */
  async finish(): Promise<void> {
    const { edges, ledger, running, store, room } = this.#world
    const found = await store.rooms.inspect(room)
    for (const { process, epoch } of running)
      if (ledger.wasFenced(process, epoch))
        ledger.violate('fenced', `${process} was fenced, and still runs epoch ${epoch}`)
    const claim = await store.rooms.claim(room, 'node_checker', found?.epoch ?? 0, 1000)
    const restored = claim && restore(claim, new JournalFormat())
    if (!restored) {
      ledger.violate('applied', 'nothing is left of the room')
      return
    }
    const { log } = restored.tree.flushed as { log: string[] }
    const { timers, reservations } = restored.tables
    for (const { memberId, said: refs, position } of edges) {
      const lines = refs.map((ref) => `${memberId}:${ref}`)
      if (this.#rings) this.#checkTimers(lines, log, timers.rows)
      for (const line of this.#rings ? lines : [])
        if (!reservations.has(line)) ledger.violate('reservations', `the reservation of ${line} is gone`)
      const said = lines.join()
      const kept = log.filter((line) => line.startsWith(`${memberId}:`)).join()
      if (said !== kept) ledger.violate('applied', `${memberId} said ${said}, and the record has ${kept}`)
      if (position.seq !== restored.seq)
        ledger.violate('applied', `${memberId} is at seq ${position.seq}, the record at ${restored.seq}`)
    }
  }

  /** Each thing that was said has rung once, or its timer is still there. */
  #checkTimers(said: readonly string[], log: readonly string[], timers: readonly RoomTimer[]): void {
    for (const line of said) {
      const rang = log.filter((written) => written === `rang ${line}`).length
      const waits = timers.filter(({ data }) => data === line).length
      if (rang + waits !== 1)
        this.#world.ledger.violate(
          'timers',
          `the timer of ${line} has fired ${rang} times, and waits ${waits} times`,
        )
    }
  }
}

/** Puts some operations of rooms in the place of others. */
const rooms =
  (change: (rooms: RoomRecords) => Partial<RoomRecords>) =>
  (store: Store): Store => ({ ...store, rooms: { ...store.rooms, ...change(store.rooms) } })

/** A claim of a room that has another owner. */
const grabbed = ({ epoch, version }: RoomOwner): Claim => ({
  fence: { epoch, version },
  snapshot: undefined,
  journal: [],
  over: epoch,
  stuck: [],
})

/** What the store holds of a room whose journal says nothing of the rows of a table that were set, or that are gone. */
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

/** Ways to build ownership wrong, each of which has to be found. They live here only, around the real parts. */
export const MUTATIONS = {
  /** Commits that no fence refuses: they are made under whatever fence the record has now. */
  unfenced: {
    store: rooms((inner) => ({
      commit: async (room, fence, ...rest) => {
        const now = await inner.inspect(room)
        return inner.commit(room, now ?? fence, ...rest)
      },
    })),
  },
  /** A node that never asks whether its lease still stands. */
  trusting: { lease: { validUntil: Number.POSITIVE_INFINITY } },
  /** A record that repeats a write whose answer was lost, on top of whatever stands by now. */
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
  /** A record that takes a write for done when the store is silent. */
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
  /** A claim without compare-and-set: the node that is too late takes the epoch that the other has made. */
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
  /** A claim that is decided before it waits for the connection: the store may have lost the room until it is sent. */
  early: {
    store: rooms((inner) => ({
      open: async (room, opening, mayClaim) => {
        const may = mayClaim()
        return inner.open(room, opening, () => may)
      },
    })),
  },
  /** A new owner that does not know which timers have fired. */
  refiring: { store: forgetting('removed', 'timers') },
  /** A new owner that does not know which timers were set. */
  forgetful: { store: forgetting('set', 'timers') },
  /** A new owner that does not know which seats were reserved. */
  unreserving: { store: forgetting('set', 'reservations') },
} satisfies Record<string, Mutation>

/** One of them. */
export const mutation = (name: keyof typeof MUTATIONS): Mutation => MUTATIONS[name]
