import fc from 'fast-check'
import { pino } from 'pino'
import { expect, inject, it } from 'vitest'
import { freshPrefix } from '../../test/support/redis-store.ts'
import { systemClock } from '../clock.ts'
import { memoryStore } from './memory/memory.ts'
import type { Claim, Fence, RoomRecords, Store, Write } from './port.ts'
import { redisStore } from './redis/redis.ts'

const LONG_MS = 600_000

/** Reference of an operation to a fence of the room's claims, and the offset of its version. */
interface Aim {
  readonly room: string
  /** 0: the fence of the last claim, 1: of the one before, … */
  readonly claimsBack: number
  readonly offBy: number
}

type Operation =
  | { readonly kind: 'write'; readonly writes: readonly Write[] }
  | { readonly kind: 'read'; readonly keys: readonly string[] }
  | {
      readonly kind: 'page'
      readonly index: string
      readonly before: string | undefined
      readonly limit: number
    }
  | { readonly kind: 'inspect'; readonly room: string }
  | {
      readonly kind: 'reserve'
      readonly room: string
      readonly maxRooms: number
      readonly maxLasting: number
    }
  | { readonly kind: 'claim'; readonly aim: Aim; readonly owner: string }
  | { readonly kind: 'open'; readonly room: string; readonly owner: string; readonly creator?: string }
  | { readonly kind: 'commit' | 'snapshot'; readonly aim: Aim; readonly value: Uint8Array }
  | { readonly kind: 'release'; readonly aim: Aim; readonly forget: boolean }
  | { readonly kind: 'refresh'; readonly aim: Aim; readonly lasting: boolean }
  | { readonly kind: 'quarantine'; readonly aim: Aim }

const key = fc.constantFrom('{t}:a', '{t}:b', '{t}:c')
const index = fc.constantFrom('{t}:i', '{t}:j')
const member = fc.oneof(fc.constantFrom('', 'a', 'b', 'aa'), fc.string({ unit: 'grapheme', maxLength: 4 }))
const value = fc.uint8Array({ maxLength: 40 })
const ifVersion = fc.nat({ max: 3 })
const aim = fc.record({
  room: fc.constantFrom('p/a:x', 'p/a:y'),
  claimsBack: fc.constantFrom(0, 0, 0, 0, 1, 2),
  offBy: fc.constantFrom(0, 0, 0, 0, 0, 1, -1),
})

/** Removes undefined fields, which the optional fields of the port do not allow. */
const given = <T extends object>(fields: T): T =>
  Object.fromEntries(Object.entries(fields).filter(([, field]) => field !== undefined)) as T

const ttlMs = fc.constant(LONG_MS)
const write: fc.Arbitrary<Write> = fc.oneof(
  fc.record({ put: key, value, ifVersion, ttlMs }, { requiredKeys: ['put', 'value'] }),
  fc.record({ remove: key, ifVersion }, { requiredKeys: ['remove'] }),
  fc.record(
    { index, add: member, ifFewerThan: fc.nat({ max: 3 }), ttlMs },
    { requiredKeys: ['index', 'add'] },
  ),
  fc.record({ index, drop: member }),
)

const kind = <K extends string>(name: K) => fc.constant(name)
const recordOperation: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({ kind: kind('write'), writes: fc.array(write, { maxLength: 4 }) }),
  fc.record({ kind: kind('read'), keys: fc.array(key, { maxLength: 4 }) }),
  fc.record({
    kind: kind('page'),
    index,
    before: fc.option(member, { nil: undefined }),
    limit: fc.integer({ min: 1, max: 4 }),
  }),
)
const roomOperation: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({ kind: kind('inspect'), room: fc.constantFrom('p/a:x', 'p/a:y') }),
  fc.record({
    kind: kind('reserve'),
    room: fc.constantFrom('p/a:x', 'p/a:y', 'q/a:x'),
    maxRooms: fc.nat({ max: 2 }),
    maxLasting: fc.nat({ max: 1 }),
  }),
  fc.record({ kind: kind('claim'), aim, owner: fc.constantFrom('node_a', 'node_b') }),
  fc.record(
    {
      kind: kind('open'),
      room: fc.constantFrom('p/a:x', 'p/a:y'),
      owner: fc.constantFrom('node_a', 'node_b'),
      creator: fc.constant('someone'),
    },
    { requiredKeys: ['kind', 'room', 'owner'] },
  ),
  fc.record({
    kind: fc.constantFrom('commit' as const, 'snapshot' as const),
    aim,
    value,
  }),
  fc.record({ kind: kind('release'), aim, forget: fc.boolean() }),
  fc.record({ kind: kind('refresh'), aim, lasting: fc.boolean() }),
  fc.record({ kind: kind('quarantine'), aim }),
)

/** Runs operations on one store and returns its answers. Epochs are numbered from the first claim, and of `idleMs` only counts whether it is
 * known, because the stores' clocks differ. */
class Run {
  readonly #store: Store
  /** Fences of each room's claims, updated as an owner would. */
  readonly #fences = new Map<string, Fence[]>()

  constructor(store: Store) {
    this.#store = store
  }

  async answer(operation: Operation): Promise<unknown> {
    const { records, rooms } = this.#store
    switch (operation.kind) {
      case 'write':
        return records.write(operation.writes)
      case 'read':
        return records.read(operation.keys)
      case 'page':
        return records.page(
          operation.index,
          given({ before: operation.before, limit: operation.limit }) as { limit: number },
        )
      case 'inspect': {
        const owner = await rooms.inspect(operation.room)
        return owner && { ...owner, epoch: this.#ordinal(operation.room, owner.epoch) }
      }
      case 'reserve':
        return rooms.reserve(
          operation.room,
          'someone',
          { maxRooms: operation.maxRooms, maxLasting: operation.maxLasting, perMinute: 0 },
          LONG_MS,
        )
      case 'claim':
        return this.#claim(operation.aim, operation.owner)
      case 'open':
        return this.#open(operation)
      default:
        return this.#fenced(rooms, operation)
    }
  }

  async #claim({ room, claimsBack }: Aim, owner: string): Promise<unknown> {
    const fences = this.#fences.get(room) ?? []
    const expected = fences.at(-1 - claimsBack)?.epoch ?? 0
    const claim = await this.#store.rooms.claim(room, owner, expected, LONG_MS)
    return claim && this.#claimed(room, claim)
  }

  async #open({ room, ...opening }: Extract<Operation, { kind: 'open' }>): Promise<unknown> {
    const asked = { ...opening, ttlMs: LONG_MS, stateVersion: 1 }
    const found = await this.#store.rooms.open(room, asked, () => true)
    if (!found || 'fence' in found) return found && this.#claimed(room, found)
    return { ...found, epoch: this.#ordinal(room, found.epoch) }
  }

  #claimed(room: string, claim: Claim): object {
    const fences = this.#fences.get(room) ?? []
    expect(claim.fence.epoch).toBeGreaterThan(fences.at(-1)?.epoch ?? 0)
    this.#fences.set(room, [...fences, claim.fence])
    const fence = { ...claim.fence, epoch: this.#ordinal(room, claim.fence.epoch) }
    return { ...claim, fence, idleMs: claim.idleMs !== undefined }
  }

  async #fenced(
    rooms: RoomRecords,
    operation: Exclude<
      Operation,
      { kind: 'write' | 'read' | 'page' | 'inspect' | 'reserve' | 'claim' | 'open' }
    >,
  ): Promise<boolean> {
    const { room, claimsBack, offBy } = operation.aim
    const fences = this.#fences.get(room) ?? []
    const at = fences.length - 1 - claimsBack
    const own = fences[at] ?? { epoch: 1, version: 0 }
    const fence = { epoch: own.epoch, version: own.version + offBy }
    switch (operation.kind) {
      case 'release':
        return rooms.release(room, fence, { forget: operation.forget, ttlMs: LONG_MS })
      case 'refresh':
        return rooms.refresh(room, fence, LONG_MS, operation.lasting)
      case 'quarantine': {
        return rooms.quarantine(room, fence, { reason: 'equivalence', ttlMs: LONG_MS })
      }
      default: {
        const done = await rooms[operation.kind](room, fence, operation.value, LONG_MS)
        if (done) fences[at] = { epoch: fence.epoch, version: fence.version + 1 }
        return done
      }
    }
  }

  #ordinal(room: string, epoch: number): number {
    return 1 + (this.#fences.get(room) ?? []).findIndex((fence) => fence.epoch === epoch)
  }
}

it.each([
  ['records', recordOperation],
  ['rooms', roomOperation],
  ['both', fc.oneof(recordOperation, roomOperation)],
])('memory and Redis give the same answers to any sequence of operations on %s', async (_, operation) => {
  const prefix = freshPrefix()
  const log = pino({ level: 'silent' })
  let runs = 0
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { size: 'large', maxLength: 60 }), async (operations) => {
      const redis = await redisStore({ url: inject('redisUrl'), keyPrefix: `${prefix}${runs++}:`, log })
      try {
        const [one, other] = [new Run(memoryStore({ clock: systemClock })), new Run(redis)]
        for (const operation of operations) {
          expect(await other.answer(operation)).toEqual(await one.answer(operation))
        }
      } finally {
        await redis.close()
      }
    }),
    { numRuns: 60 },
  )
})
