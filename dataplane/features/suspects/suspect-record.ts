import type { Bus, Records, Store } from '../../../shared/store/port.ts'
import type { Turn, TurnHook } from '../../room/hooks.ts'
import { roomNamed } from '../../traffic.ts'

/** What ends a turn of a handler: the boundary that cuts it off (`guard`), or only the end of its process (`refuse`). */
export type Mode = 'guard' | 'refuse'

/** A handler with a turn that has exceeded the turn limit, in one project. */
export interface Suspect {
  readonly project: string
  /** Name of the handler: `room type@hash of its code/hook/message type`. */
  readonly code: string
  /** End of the suspicion. This and the other times are in milliseconds since 1970. */
  readonly until: number
  /** Number of times that the handler was refused, because only the end of a process has stopped it. */
  readonly refusals: number
  /** The handler is not started until then. After that, it is refused to young players and in young rooms. */
  readonly refusedUntil: number
  /** Turns of young players wait until then, because the cut-offs use too much of a node. */
  readonly hotUntil: number
  /** Place in the code at which the watchdog found such a turn. Absent: unknown, as it is for turns that were cut off. */
  readonly at?: string
  /** Start of a long turn that may still be running. Absent: a turn did not end. */
  readonly runningSince?: number
  /** Start of a block of the event loop after the turn, such as after an `await`, which may still last. Absent: there is none. */
  readonly blockingSince?: number
}

/** A turn that did not end, or may not end. No later owner of its room starts it again. */
export interface Charge {
  /** `project/principal` of the player who is charged with it. Empty behind the `/`: no player is. */
  readonly by: string
  readonly code: string
  readonly at: number
  /** `project/type:key`. */
  readonly room: string
  readonly epoch: number
  /** As in `TurnCause`. */
  readonly subject: string
  readonly ref: number
}

/** Record in the store, shared by all nodes, of turns that do not end. */
export interface SharedSuspects {
  readonly suspects: readonly Suspect[]
  readonly charges: readonly Charge[]
  /** Number of turns that did not end, by `room type/hook`, since the record exists. */
  readonly counts: Readonly<Record<string, number>>
  /** Time of the first entry. It identifies the record: after a loss of data, another one is made. 0: there is no entry. */
  readonly since: number
}

const NO_SUSPECTS: SharedSuspects = { suspects: [], charges: [], counts: {}, since: 0 }

const KEY = '{nodes}:suspects'
/** Bus channel on which nodes announce changes of the record. */
const CHANNEL = 'suspects'
/** Duration of the suspicion after the latest such turn. */
const SUSPECT_MS = 3_600_000
/** Duration of the first refusal of a handler. Each further one is twice as long, up to 32 minutes. */
const REFUSED_MS = 60_000
const MAX_DOUBLINGS = 5
/** Maximum numbers of entries. The oldest are dropped. */
const MAX_SUSPECTS = 256
const MAX_CHARGES = 1024
/** Life of a turn's entry. For as long, no owner of its room starts it again. */
export const CHARGE_MS = SUSPECT_MS
/** Time for which a turn counts against its player. */
export const CHARGE_WINDOW_MS = 600_000
/** Time for which young players wait after cut-offs have used too much of a node. */
const HOT_MS = 10_000
/** Life of the record, and of its counts, after the latest change. */
const RECORD_TTL_MS = 30 * 86_400_000
/** A turn that runs for longer has ended with its process. */
const LONGEST_TURN_MS = 60_000
/** A running turn that is older comes from a backup. Nodes read the record all the time, so they find a crashed node earlier. */
const OLD_TURN_MS = 600_000
const WRITE_ATTEMPTS = 10

/** Returns the hash of the code of a room type. Undefined: unknown. */
export type CodeHashes = (roomType: string) => string | undefined

/** Returns a room type with the hash of its code. Other code of the same type, such as repaired code, is not a suspect. */
export function codeType(roomType: string, hashes: CodeHashes): string {
  const hash = hashes(roomType)
  return hash === undefined ? roomType : `${roomType}@${hash}`
}

/** Returns the room type of a handler. */
export const roomTypeOf = (code: string): string => /^[^@/]*/.exec(code)![0]

/** Returns the project of a room name. */
export const projectOf = (room: string): string => room.slice(0, room.indexOf('/'))

/** Returns the name of a turn's handler: `room type@hash/hook/message type`. */
export const codeOf = ({ room, hook, type }: Turn, hashes: CodeHashes): string =>
  codeName(codeType(roomNamed(room.name).roomType, hashes), hook, type)

export const codeName = (typeWithHash: string, hook: TurnHook, type: string): string =>
  `${typeWithHash}/${hook}/${type}`

const chargedTo = ({ room, principal }: Turn): string => `${roomNamed(room.name).projectId}/${principal}`

/** Adds a long turn. It may never end, and may end its process before anything else can be written. `outside`: it has returned, but its code blocks. */
export function withRunning(
  shared: SharedSuspects,
  turn: Turn,
  hashes: CodeHashes,
  { now, outside = false }: { readonly now: number; readonly outside?: boolean },
): SharedSuspects {
  const known = suspectOf(shared, turn, hashes)
  const suspect = {
    ...(known ?? { ...unknown(turn, hashes), runningSince: now }),
    ...(outside && { blockingSince: now }),
  }
  return withLast(known && !outside ? shared : withSuspect(shared, suspect, now), turn, hashes, now)
}

/** Removes a long turn that has returned. */
export function withoutRunning(shared: SharedSuspects, turn: Turn, hashes: CodeHashes): SharedSuspects {
  const returned = suspectOf(shared, turn, hashes)
  const suspects = shared.suspects.flatMap((one) => {
    if (one !== returned) return [one]
    const { blockingSince: _, ...known } = one
    return one.runningSince === undefined ? [known] : []
  })
  return { ...shared, charges: uncharged(shared, turn, hashes), suspects }
}

/** Adds the turn that may be the reason why its process ends. Its handler is no suspect, and its player is not charged. */
export const withLast = (
  shared: SharedSuspects,
  turn: Turn,
  hashes: CodeHashes,
  now: number,
): SharedSuspects => withCharge(shared, turn, hashes, { by: nobodyIn(turn), now })

const nobodyIn = ({ room }: Turn): string => `${projectOf(room.name)}/`

/** Adds a charge in the place of the one that was written while the turn ran. */
function withCharge(
  shared: SharedSuspects,
  turn: Turn,
  hashes: CodeHashes,
  { by, now }: { readonly by: string; readonly now: number },
): SharedSuspects {
  const { room, subject, ref } = turn
  const charge = { by, code: codeOf(turn, hashes), at: now, room: room.name, epoch: room.epoch, subject, ref }
  const others = uncharged(shared, turn, hashes).filter(({ at }) => now - at < CHARGE_MS)
  return { ...shared, charges: [...others, charge].slice(-MAX_CHARGES), since: shared.since || now }
}

/** Returns the charges without that of the turn with which no player is charged. */
function uncharged({ charges }: SharedSuspects, turn: Turn, hashes: CodeHashes): readonly Charge[] {
  const { room, subject, ref } = turn
  const [code, nobody] = [codeOf(turn, hashes), nobodyIn(turn)]
  return charges.filter(
    (one) =>
      one.by !== nobody ||
      one.code !== code ||
      one.room !== room.name ||
      one.epoch !== room.epoch ||
      one.subject !== subject ||
      one.ref !== ref,
  )
}

/** Result of a turn that did not end. */
interface Stuck {
  readonly mode: Mode
  readonly now: number
  /** The cut-offs of its handler use too much of this node. Default: they do not. */
  readonly hot?: boolean
  /** Its place in the code. Undefined: unknown. */
  readonly at?: string | undefined
}

/** Adds a turn that did not end. `now` identifies it: if the write is repeated because the store's answer was lost, it counts once. */
export function withStuck(
  shared: SharedSuspects,
  turn: Turn,
  hashes: CodeHashes,
  { mode, now, hot = false, at }: Stuck,
): SharedSuspects {
  const code = codeOf(turn, hashes)
  const by = chargedTo(turn)
  if (shared.charges.some((one) => one.by === by && one.code === code && one.at === now)) return shared
  const {
    runningSince: _,
    blockingSince: __,
    ...before
  } = suspectOf(shared, turn, hashes) ?? unknown(turn, hashes)
  // Nodes that were hit at the same time have ended for one reason.
  const refused = mode === 'refuse' && before.refusedUntil <= now
  const suspect = {
    ...before,
    ...(refused && {
      refusals: before.refusals + 1,
      refusedUntil: now + REFUSED_MS * 2 ** Math.min(before.refusals, MAX_DOUBLINGS),
    }),
    ...(hot && { hotUntil: now + HOT_MS }),
    ...(at !== undefined && { at }),
  }
  return counted(withSuspect(withCharge(shared, turn, hashes, { by, now }), suspect, now), code)
}

/** Counts turns that have run for too long: their node has crashed, and could not write that they did not end. Drops those of a backup. */
export function withoutGone(shared: SharedSuspects, now: number): SharedSuspects {
  const ageOf = ({ runningSince }: Suspect) => (runningSince === undefined ? 0 : now - runningSince)
  const suspects = shared.suspects.filter((one) => ageOf(one) <= OLD_TURN_MS)
  let next = suspects.length === shared.suspects.length ? shared : { ...shared, suspects }
  for (const { runningSince: _, ...one } of suspects.filter((one) => ageOf(one) > LONGEST_TURN_MS))
    next = counted(withSuspect(next, one, now), one.code)
  return next
}

/** Returns the entry of the turn's handler in the turn's project. */
function suspectOf({ suspects }: SharedSuspects, turn: Turn, hashes: CodeHashes): Suspect | undefined {
  const [project, code] = [projectOf(turn.room.name), codeOf(turn, hashes)]
  return suspects.find((one) => one.project === project && one.code === code)
}

const unknown = (turn: Turn, hashes: CodeHashes): Omit<Suspect, 'until'> => ({
  project: projectOf(turn.room.name),
  code: codeOf(turn, hashes),
  refusals: 0,
  refusedUntil: 0,
  hotUntil: 0,
})

function withSuspect(shared: SharedSuspects, added: Omit<Suspect, 'until'>, now: number): SharedSuspects {
  const others = shared.suspects.filter(
    ({ project, code, until }) => (project !== added.project || code !== added.code) && until > now,
  )
  const suspects = [...others, { ...added, until: now + SUSPECT_MS }].slice(-MAX_SUSPECTS)
  return { ...shared, suspects, since: shared.since || now }
}

function counted(shared: SharedSuspects, code: string): SharedSuspects {
  const key = `${roomTypeOf(code)}/${code.split('/')[1]}`
  return { ...shared, counts: { ...shared.counts, [key]: (shared.counts[key] ?? 0) + 1 } }
}

/** The record in the store. */
export class SuspectRecord {
  readonly #records: Records
  readonly #bus: Bus

  constructor({ records, bus }: Pick<Store, 'records' | 'bus'>) {
    this.#records = records
    this.#bus = bus
  }

  /** Calls `onChange` after each change, or if a change may have been missed. The returned function ends that. */
  subscribe(onChange: () => void): Promise<() => Promise<void>> {
    return this.#bus.subscribe(CHANNEL, onChange, onChange)
  }

  async read(): Promise<SharedSuspects> {
    return (await this.#read()).shared
  }

  /** Applies `change` to the record. Returns the new record. Rejects if the store does not accept the write. */
  async change(change: (shared: SharedSuspects) => SharedSuspects): Promise<SharedSuspects> {
    for (let attempt = 1; ; attempt++) {
      const { shared, version } = await this.#read()
      const next = change(shared)
      if (next === shared) return shared
      const value = new TextEncoder().encode(JSON.stringify(next))
      if (await this.#records.write([{ put: KEY, value, ttlMs: RECORD_TTL_MS, ifVersion: version }])) {
        // A node that misses this message reads the record later.
        await this.#bus.publish(CHANNEL, NOTHING).catch(() => 0)
        return next
      }
      if (attempt === WRITE_ATTEMPTS) throw new Error('the record of suspects changes too fast')
    }
  }

  async #read(): Promise<{ shared: SharedSuspects; version: number }> {
    const [stored] = await this.#records.read([KEY])
    return { shared: decoded(stored?.value), version: stored?.version ?? 0 }
  }
}

const NOTHING = new Uint8Array(0)

function decoded(value: Uint8Array | undefined): SharedSuspects {
  if (!value) return NO_SUSPECTS
  try {
    const { suspects, charges, counts, since } = JSON.parse(new TextDecoder().decode(value)) as SharedSuspects
    return { suspects: [...suspects], charges: [...charges], counts: { ...counts }, since }
  } catch {
    return NO_SUSPECTS // Damaged: what is missed is found again.
  }
}
