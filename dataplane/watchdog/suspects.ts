import { type Clock, timestamp } from '../../shared/clock.ts'
import type { Bus, Records, Store } from '../../shared/store/port.ts'
import type { ProblemDescription } from '../descriptions.ts'
import { roomIdOf, roomNamed } from '../traffic.ts'
import type { Turn, TurnHook } from './turns.ts'

/**
 * How a suspect runs: inside the boundary that can cut it off (`guard`), or not at all (`refuse`), because only the end of the process could
 * stop it.
 */
export type Mode = 'guard' | 'refuse'

/** A handler with a turn that has exceeded the turn limit. */
interface Suspect {
  /** Name of the handler: `room type@hash of its code/hook/message type`. */
  readonly code: string
  readonly mode: Mode
  /** End of the suspicion, in milliseconds since 1970. */
  readonly until: number
  /** Player who caused the latest such turn. Empty: no player did. */
  readonly principal: string
  /** Start of a long turn that may still be running. Absent: a turn did not end. */
  readonly runningSince?: number
}

/** A turn that did not end. */
interface Charge {
  /** `project/principal`. Empty behind the `/`: no player caused it. */
  readonly by: string
  readonly code: string
  readonly at: number
}

/** Record in the store, shared by all nodes, of turns that do not end. */
interface SharedSuspects {
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
/** Interval at which a node reads the record again, in case it has missed a change. */
const READ_MS = 5000
/** Time after which a turn of a suspect is cut off. */
const GUARD_MS = 200
/** Time limit of a suspect with a turn that is running now, as a share of the turn limit. */
const RUNNING_SHARE = 0.85
/** Duration of the suspicion after the latest such turn. */
const SUSPECT_MS = 3_600_000
/** Maximum numbers of entries. The oldest are dropped. */
const MAX_SUSPECTS = 256
const MAX_CHARGES = 1024
/** After this many such turns of one player and handler within the window, the player's messages of that type are refused. */
const CHARGES = 3
const CHARGE_WINDOW_MS = 600_000
/** After this many such turns of one handler within a minute, it is not started any more. */
const CUTS = 10
const CUT_WINDOW_MS = 60_000
/** Life of the record, and of its counts, after the latest change. */
const RECORD_TTL_MS = 30 * 86_400_000
/** A turn that runs for longer has ended with its process. */
const LONGEST_TURN_MS = 60_000
/** A running turn that is older comes from a backup. Nodes read the record all the time, so they find a crashed node earlier. */
const OLD_TURN_MS = 600_000
/** If this many different handlers of one room type are suspects, all of its code is treated like them. */
const HANDLERS_OF_TYPE = 2
/** If this many different handlers of any type are suspects, code of all types runs inside the boundary until it is proven. */
const HANDLERS_OF_ALL = 2
/** Number of turns after which a handler is proven. */
const PROVEN_AFTER = 1000
const WRITE_ATTEMPTS = 10

/** Returns the hash of the code of a room type. Undefined: unknown. */
type CodeHashes = (roomType: string) => string | undefined

/** Returns a room type with the hash of its code. Other code of the same type, such as repaired code, is not a suspect. */
function codeType(roomType: string, hashes: CodeHashes): string {
  const hash = hashes(roomType)
  return hash === undefined ? roomType : `${roomType}@${hash}`
}

/** Returns the room type of a handler. */
const roomTypeOf = (code: string): string => code.slice(0, code.search(/[@/]/))

/** Returns the name of a turn's handler: `room type@hash/hook/message type`. */
const codeOf = ({ room, hook, type }: Turn, hashes: CodeHashes): string =>
  codeName(codeType(roomNamed(room.name).roomType, hashes), hook, type)

const codeName = (typeWithHash: string, hook: TurnHook, type: string): string =>
  `${typeWithHash}/${hook}/${type}`

/** Returns the fields of a log line about a turn. */
export function fieldsOf({ room, hook, type, principal }: Turn) {
  const address = roomNamed(room.name)
  return {
    project_id: address.projectId,
    room_id: roomIdOf(address),
    room_type: address.roomType,
    epoch: room.epoch,
    hook,
    ...(type !== '' && { message_type: type }),
    ...(principal !== '' && { principal }),
  }
}

const chargedTo = ({ room, principal }: Turn): string => `${roomNamed(room.name).projectId}/${principal}`

/** Adds a long turn. It may never end, and may end its process before anything else can be written. */
export function withRunning(
  shared: SharedSuspects,
  turn: Turn,
  hashes: CodeHashes,
  now: number,
): SharedSuspects {
  const code = codeOf(turn, hashes)
  if (shared.suspects.some((one) => one.code === code)) return shared
  return withSuspect(shared, { code, mode: 'guard', principal: turn.principal, runningSince: now }, now)
}

/** Removes a long turn that has returned. */
export function withoutRunning(shared: SharedSuspects, turn: Turn, hashes: CodeHashes): SharedSuspects {
  const code = codeOf(turn, hashes)
  const suspects = shared.suspects.filter((one) => one.code !== code || one.runningSince === undefined)
  return suspects.length === shared.suspects.length ? shared : { ...shared, suspects }
}

/** Adds a turn that did not end. `now` identifies it: if the write is repeated because the store's answer was lost, it counts once. */
export function withStuck(
  shared: SharedSuspects,
  turn: Turn,
  hashes: CodeHashes,
  { mode, now }: { readonly mode: Mode; readonly now: number },
): SharedSuspects {
  const code = codeOf(turn, hashes)
  const charge = { by: chargedTo(turn), code, at: now }
  if (shared.charges.some(({ by, code, at }) => by === charge.by && code === charge.code && at === now))
    return shared
  const charges = shared.charges.filter(({ at }) => now - at < CHARGE_WINDOW_MS)
  return counted(
    withSuspect(
      { ...shared, charges: [...charges, charge].slice(-MAX_CHARGES) },
      { code, mode, principal: turn.principal },
      now,
    ),
    code,
  )
}

/** Counts turns that have run for too long: their node has crashed, and could not write that they did not end. Drops those of a backup. */
function withoutGone(shared: SharedSuspects, now: number): SharedSuspects {
  const ageOf = ({ runningSince }: Suspect) => (runningSince === undefined ? 0 : now - runningSince)
  const suspects = shared.suspects.filter((one) => ageOf(one) <= OLD_TURN_MS)
  let next = suspects.length === shared.suspects.length ? shared : { ...shared, suspects }
  for (const { runningSince: _, ...one } of suspects.filter((one) => ageOf(one) > LONGEST_TURN_MS))
    next = counted(withSuspect(next, one, now), one.code)
  return next
}

function withSuspect(shared: SharedSuspects, added: Omit<Suspect, 'until'>, now: number): SharedSuspects {
  const before = shared.suspects.find(({ code }) => code === added.code)
  // A refused handler stays refused: it would end another process if it outlasted the boundary.
  const mode = before?.mode === 'refuse' && before.until > now ? 'refuse' : added.mode
  const others = shared.suspects.filter(({ code, until }) => code !== added.code && until > now)
  const suspects = [...others, { ...added, mode, until: now + SUSPECT_MS }].slice(-MAX_SUSPECTS)
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

interface SuspectsDeps {
  readonly store: Pick<Store, 'records' | 'bus'>
  readonly clock: Clock
  /** Hashes of the code that this node runs. */
  readonly hashes: CodeHashes
  /** Time after which the watchdog ends the process, in milliseconds. */
  readonly turnLimitMs: number
  /** In development: returns the time in milliseconds after which every turn is cut off; undefined: not now. Default: only turns of suspects. */
  readonly limitAllMs?: (() => number | undefined) | undefined
  /** Called for turns of this room type and hook that did not end. `count`: number of new ones. */
  readonly onCount: (roomType: string, hook: TurnHook, count: number) => void
}

/** The suspects in the code of this node. Reads the shared record after each change. */
export class Suspects {
  readonly #deps: SuspectsDeps
  readonly #record: SuspectRecord
  /** Suspects by handler. `limitMs`: absent while a long turn may be running. */
  #suspects = new Map<string, Suspect & { readonly limitMs?: number }>()
  #byType = new Map<string, number>()
  /** True if several handlers did not return, so that others may not return either. */
  #alert = false
  /** Number of turns of each handler that is not a suspect, since the alert started. */
  #proven = new Map<string, number>()
  /** `project/principal code` of players whose messages are refused. */
  #blocked = new Set<string>()
  /** Last counts of each record, by its `since`. A restored record must not count its turns again. */
  readonly #counts = new Map<number, SharedSuspects['counts']>()
  #cancel = () => {}
  #unsubscribe: () => Promise<void> = async () => {}
  #stopped = false

  constructor(deps: SuspectsDeps) {
    this.#deps = deps
    this.#record = new SuspectRecord(deps.store)
  }

  /** Reads the record now, and after each change. Rejects if it cannot be read. */
  async start(): Promise<void> {
    this.#unsubscribe = await this.#record.subscribe(() => void this.#readAgain())
    this.#take(await this.#record.read())
    this.#readLater()
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#cancel()
    await this.#unsubscribe()
  }

  /** Returns the time in milliseconds after which a turn is cut off; 0: it must not start. Undefined: it is not limited. */
  limitOf(turn: Turn): number | undefined {
    const { limitAllMs } = this.#deps
    if (this.#suspects.size === 0) return limitAllMs?.()
    const code = codeOf(turn, this.#deps.hashes)
    const suspect = this.#suspects.get(code)
    const limit = suspect?.limitMs ?? this.#byType.get(roomNamed(turn.room.name).roomType)
    if (limitAllMs && limit !== 0) return limitAllMs()
    return limit ?? this.#limitOfRunning(suspect) ?? (this.#alert ? this.#unproven(code) : undefined)
  }

  /** Limit while another node has a long turn of the handler, which may be slow or may never end. */
  #limitOfRunning(suspect: Suspect | undefined): number | undefined {
    const since = suspect?.runningSince
    if (since === undefined || this.#deps.clock.now() - since < this.#deps.turnLimitMs / 2) return undefined
    return RUNNING_SHARE * this.#deps.turnLimitMs
  }

  /** Limit of code that is not proven. Frequent handlers are soon proven, and then run without the cost of the boundary. */
  #unproven(code: string): number | undefined {
    const turns = this.#proven.get(code) ?? 0
    if (turns >= PROVEN_AFTER) return undefined
    this.#proven.set(code, turns + 1)
    return RUNNING_SHARE * this.#deps.turnLimitMs
  }

  /**
   * Returns true if a player's messages of this type are refused, because too many of them did not end. Without a type: if its joins of this room
   * type are refused.
   */
  blocks(projectId: string, principal: string, roomType: string, messageType?: string): boolean {
    if (this.#blocked.size === 0) return false
    const hooks = messageType === undefined ? JOIN_HOOKS : MESSAGE_HOOKS
    const type = codeType(roomType, this.#deps.hashes)
    return hooks.some((hook) =>
      this.#blocked.has(`${projectId}/${principal} ${codeName(type, hook, messageType ?? '')}`),
    )
  }

  /** Number of pairs of player and handler whose messages are refused. */
  get blocked(): number {
    return this.#blocked.size
  }

  /** The handlers with a turn that did not end, for operators. */
  get problems(): ProblemDescription[] {
    return [...this.#suspects.values()].flatMap(({ code, until, limitMs }) => {
      if (limitMs === undefined) return []
      const fate = limitMs === 0 ? 'not started' : `cut off after ${limitMs} ms`
      const detail = `a turn of ${code} did not end: its turns are ${fate} until ${timestamp(until)}`
      return { code: 'suspect', detail }
    })
  }

  /** Records a turn that was cut off, or whose code outlasted the boundary. Never rejects. */
  async stuck(turn: Turn, mode: Mode): Promise<void> {
    const { clock, hashes } = this.#deps
    const now = clock.now()
    await this.#change((shared) => withStuck(shared, turn, hashes, { mode, now }))
  }

  async #change(change: (shared: SharedSuspects) => SharedSuspects): Promise<void> {
    try {
      this.#take(await this.#record.change(change))
    } catch {
      // The next overrun writes it again.
    }
  }

  #readLater(): void {
    this.#cancel()
    this.#cancel = this.#deps.clock.schedule(READ_MS, () => void this.#readAgain())
  }

  async #readAgain(): Promise<void> {
    try {
      const shared = await this.#record.read()
      const now = this.#deps.clock.now()
      this.#take(shared)
      if (withoutGone(shared, now) !== shared) await this.#change((latest) => withoutGone(latest, now))
    } catch {
      // Keep the last list.
    }
    if (!this.#stopped) this.#readLater()
  }

  #take({ suspects, charges, counts, since }: SharedSuspects): void {
    const { clock, hashes } = this.#deps
    const now = clock.now()
    const isHere = ({ code }: { readonly code: string }) =>
      code.startsWith(`${codeType(roomTypeOf(code), hashes)}/`)
    const here = suspects.filter((one) => one.until > now && isHere(one))
    const stuck = here.filter(({ runningSince }) => runningSince === undefined)
    const cutOften = tooOften(charges, now)
    const limitOf = ({ code, mode }: Suspect) =>
      mode === 'refuse' || isAsynchronous(code) || cutOften.has(code) ? 0 : GUARD_MS
    this.#suspects = new Map(
      here.map((one) => [one.code, one.runningSince === undefined ? { ...one, limitMs: limitOf(one) } : one]),
    )
    this.#byType = limitsOfTypes(stuck)
    this.#alert = stuck.length >= HANDLERS_OF_ALL
    if (!this.#alert) this.#proven.clear()
    this.#blocked = blockedBy(charges.filter(isHere), now)
    const before = this.#counts.get(since)
    for (const [key, count] of Object.entries(counts)) {
      const more = count - (before?.[key] ?? 0)
      const [roomType = '', hook] = key.split('/')
      if (more > 0) this.#deps.onCount(roomType, hook as TurnHook, more)
    }
    this.#counts.set(since, counts)
  }
}

const MESSAGE_HOOKS: readonly TurnHook[] = ['onMessage']
const JOIN_HOOKS: readonly TurnHook[] = ['options', 'load', 'create', 'admit', 'onJoin']

/** True for a handler whose code may continue after an `await`. The boundary does not reach it there, so it is not started. */
const isAsynchronous = (code: string): boolean => ASYNCHRONOUS.includes(code.split('/', 2)[1]!)

const ASYNCHRONOUS: readonly string[] = ['load', 'save', 'admit', 'task'] satisfies TurnHook[]

/** Returns the keys that at least `least` of the items have. */
function often<T>(items: readonly T[], keyOf: (item: T) => string, least: number): string[] {
  const counts = new Map<string, number>()
  for (const key of items.map(keyOf)) counts.set(key, (counts.get(key) ?? 0) + 1)
  return [...counts].flatMap(([key, count]) => (count >= least ? [key] : []))
}

/** Returns the room types with several suspects, and the limit of all their code in milliseconds. */
function limitsOfTypes(suspects: readonly Suspect[]): Map<string, number> {
  const roomType = ({ code }: Suspect) => roomTypeOf(code)
  const refused = suspects.filter(({ mode }) => mode === 'refuse')
  return new Map([
    ...often(suspects, roomType, HANDLERS_OF_TYPE).map((type) => [type, GUARD_MS] as const),
    ...often(refused, roomType, HANDLERS_OF_TYPE).map((type) => [type, 0] as const),
  ])
}

/** Returns the handlers that were cut off too often within the last minute. */
const tooOften = (charges: readonly Charge[], now: number): Set<string> =>
  new Set(
    often(
      charges.filter(({ at }) => now - at < CUT_WINDOW_MS),
      ({ code }) => code,
      CUTS,
    ),
  )

/** Returns players and handlers, as `project/principal code`, with too many turns that did not end. */
const blockedBy = (charges: readonly Charge[], now: number): Set<string> =>
  new Set(
    often(
      charges.filter(({ by, at }) => !by.endsWith('/') && now - at < CHARGE_WINDOW_MS),
      ({ by, code }) => `${by} ${code}`,
      CHARGES,
    ),
  )
