import { type Clock, timestamp } from '../../shared/clock.ts'
import type { Bus, Records, Store } from '../../shared/store/port.ts'
import type { ProblemDescription } from '../descriptions.ts'
import { roomIdOf, roomNamed } from '../traffic.ts'
import type { Turn, TurnHook } from './turns.ts'

/**
 * How a suspect runs: inside the boundary that can cut it off (`guard`), or not at all (`refuse`), since nothing but the end of the process
 * would stop it.
 */
export type Mode = 'guard' | 'refuse'

/** A handler that once did not return in time. */
export interface Suspect {
  /** `room type@hash of its code/hook/message type`. */
  readonly code: string
  readonly mode: Mode
  /** Until when, milliseconds since 1970. */
  readonly until: number
  /** The player who caused the last overrun; empty: no player did. */
  readonly principal: string
  /** Since when a turn of it runs that takes long; absent: a turn of it did not end. */
  readonly runningSince?: number
}

/** A turn that did not end. */
interface Charge {
  /** `project/principal`; nothing behind the `/`: no player caused it. */
  readonly by: string
  readonly code: string
  readonly at: number
}

/** The record in the store that all nodes share about turns that do not end. */
export interface SharedSuspects {
  readonly suspects: readonly Suspect[]
  readonly charges: readonly Charge[]
  /** Turns that did not end, by `room type/hook`, since the store has this record. */
  readonly counts: Readonly<Record<string, number>>
}

export const NO_SUSPECTS: SharedSuspects = { suspects: [], charges: [], counts: {} }

const KEY = '{nodes}:suspects'
/** Channel on which changes of the record are announced to every node. */
const CHANNEL = 'suspects'
/** A node reads the record again after so long, in case it has missed a change. */
const READ_MS = 5000
/** A turn of a suspect is cut off after so long. */
const GUARD_MS = 200
/** The share of the limit of all turns that a suspect gets of which a turn runs at the moment. */
const RUNNING_SHARE = 0.85
/** A suspect is one for so long after its last overrun. */
const SUSPECT_MS = 3_600_000
/** The oldest are dropped. */
const MAX_SUSPECTS = 256
const MAX_CHARGES = 1024
/** So many turns of one player and handler within the window, and the player's messages of that type are refused for as long. */
const CHARGES = 3
const CHARGE_WINDOW_MS = 600_000
/** So many turns of one handler within a minute, and it is not started for as long. */
const CUTS = 10
const CUT_WINDOW_MS = 60_000
/** The counts are kept for so long after the last change. */
const RECORD_TTL_MS = 30 * 86_400_000
/** A turn that runs for longer has ended together with its process. */
const LONGEST_TURN_MS = 60_000
/** So many different handlers of one room type, and all of its code is treated as they are. */
const HANDLERS_OF_TYPE = 2
/** So many different handlers of any type, and code of all types runs inside the boundary until it has proven itself. */
const HANDLERS_OF_ALL = 2
/** A handler has proven itself after so many turns. */
const PROVEN_AFTER = 1000
const WRITE_ATTEMPTS = 10

/** Returns the hash of the code of a room type; undefined: it is not known. */
export type CodeHashes = (roomType: string) => string | undefined

/** Returns a room type with the hash of its code: other code of the same type, such as repaired code, is not a suspect. */
function codeType(roomType: string, hashes: CodeHashes): string {
  const hash = hashes(roomType)
  return hash === undefined ? roomType : `${roomType}@${hash}`
}

/** Returns the room type of a handler. */
const roomTypeOf = (code: string): string => code.slice(0, code.search(/[@/]/))

/** Returns the name of a turn's handler among the suspects: `room type@hash/hook/message type`. */
const codeOf = ({ room, hook, type }: Turn, hashes: CodeHashes): string =>
  codeName(codeType(roomNamed(room.name).roomType, hashes), hook, type)

const codeName = (typeWithHash: string, hook: TurnHook, type: string): string =>
  `${typeWithHash}/${hook}/${type}`

/** The fields of a log line about a turn. */
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

/** A turn takes long: it may never end, and take its process with it before anything else can be written. */
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

/** A turn that took long has returned. */
export function withoutRunning(shared: SharedSuspects, turn: Turn, hashes: CodeHashes): SharedSuspects {
  const code = codeOf(turn, hashes)
  const suspects = shared.suspects.filter((one) => one.code !== code || one.runningSince === undefined)
  return suspects.length === shared.suspects.length ? shared : { ...shared, suspects }
}

/** A turn did not end. `now` names it: if it is written again, since the answer of the store was lost, it counts once. */
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

/** A node that had a turn running for too long is gone, and could not write that. */
export function withoutGone(shared: SharedSuspects, now: number): SharedSuspects {
  const isGone = ({ runningSince }: Suspect) =>
    runningSince !== undefined && now - runningSince > LONGEST_TURN_MS
  let next = shared
  for (const { runningSince: _, ...one } of shared.suspects.filter(isGone))
    next = counted(withSuspect(next, one, now), one.code)
  return next
}

function withSuspect(shared: SharedSuspects, added: Omit<Suspect, 'until'>, now: number): SharedSuspects {
  const before = shared.suspects.find(({ code }) => code === added.code)
  // Refused once, it stays so: a boundary that it outlasts ends another process.
  const mode = before?.mode === 'refuse' && before.until > now ? 'refuse' : added.mode
  const others = shared.suspects.filter(({ code, until }) => code !== added.code && until > now)
  const suspects = [...others, { ...added, mode, until: now + SUSPECT_MS }].slice(-MAX_SUSPECTS)
  return { ...shared, suspects }
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

  /** Calls `onChange` after each change, or when one may have been missed. The returned function ends that. */
  subscribe(onChange: () => void): Promise<() => Promise<void>> {
    return this.#bus.subscribe(CHANNEL, onChange, onChange)
  }

  async read(): Promise<SharedSuspects> {
    return (await this.#read()).shared
  }

  /** Replaces the record by what `change` makes of it. Returns what it is then. Rejects where the store does not take it. */
  async change(change: (shared: SharedSuspects) => SharedSuspects): Promise<SharedSuspects> {
    for (let attempt = 1; ; attempt++) {
      const { shared, version } = await this.#read()
      const next = change(shared)
      if (next === shared) return shared
      const value = new TextEncoder().encode(JSON.stringify(next))
      if (await this.#records.write([{ put: KEY, value, ttlMs: RECORD_TTL_MS, ifVersion: version }])) {
        // A node that does not hear of it reads it later.
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
    const { suspects, charges, counts } = JSON.parse(new TextDecoder().decode(value)) as SharedSuspects
    return { suspects: [...suspects], charges: [...charges], counts: { ...counts } }
  } catch {
    return NO_SUSPECTS // Damaged: what is missed is found again.
  }
}

interface SuspectsDeps {
  readonly store: Pick<Store, 'records' | 'bus'>
  readonly clock: Clock
  /** The code that this node runs. */
  readonly hashes: CodeHashes
  /** Milliseconds that a turn may take before the watchdog ends the process. */
  readonly turnLimitMs: number
  /** Milliseconds after which each turn is cut off, in development; undefined: not now. Default: only turns of suspects are. */
  readonly limitAllMs?: (() => number | undefined) | undefined
  /** Another turn of this room type and hook did not end; `count`: how many more. */
  readonly onCount: (roomType: string, hook: TurnHook, count: number) => void
}

/** The suspects among the code of this node: it reads the shared record after each change. */
export class Suspects {
  readonly #deps: SuspectsDeps
  readonly #record: SuspectRecord
  /** By code. `limitMs`: absent while a turn runs that takes long. */
  #suspects = new Map<string, Suspect & { readonly limitMs?: number }>()
  #byType = new Map<string, number>()
  /** Whether several handlers did not return: others may not either. */
  #alert = false
  /** Turns of each handler that is no suspect, since the alert began. */
  #proven = new Map<string, number>()
  /** `project/principal code`, of players whose messages are refused. */
  #blocked = new Set<string>()
  #counts: Readonly<Record<string, number>> = {}
  #cancel = () => {}
  #unsubscribe: () => Promise<void> = async () => {}
  #stopped = false

  constructor(deps: SuspectsDeps) {
    this.#deps = deps
    this.#record = new SuspectRecord(deps.store)
  }

  /** Reads the record, and again after each change. Rejects where it cannot be read. */
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

  /** Milliseconds after which a turn is to be cut off; 0: it must not start; undefined: it runs as any other. */
  limitOf(turn: Turn): number | undefined {
    const { limitAllMs } = this.#deps
    if (this.#suspects.size === 0) return limitAllMs?.()
    const code = codeOf(turn, this.#deps.hashes)
    const suspect = this.#suspects.get(code)
    const limit = suspect?.limitMs ?? this.#byType.get(roomNamed(turn.room.name).roomType)
    if (limitAllMs && limit !== 0) return limitAllMs()
    return limit ?? this.#limitOfRunning(suspect) ?? (this.#alert ? this.#unproven(code) : undefined)
  }

  /** A turn of the handler runs elsewhere for long: it may be slow, or never end. */
  #limitOfRunning(suspect: Suspect | undefined): number | undefined {
    const since = suspect?.runningSince
    if (since === undefined || this.#deps.clock.now() - since < this.#deps.turnLimitMs / 2) return undefined
    return RUNNING_SHARE * this.#deps.turnLimitMs
  }

  /** Much-used code soon runs as fast as ever; only new paths pay for the boundary. */
  #unproven(code: string): number | undefined {
    const turns = this.#proven.get(code) ?? 0
    if (turns >= PROVEN_AFTER) return undefined
    this.#proven.set(code, turns + 1)
    return RUNNING_SHARE * this.#deps.turnLimitMs
  }

  /**
   * Whether a player's messages of this type are refused, since too many of them did not end; without a type: whether its joins of rooms of this
   * room type are.
   */
  blocks(projectId: string, principal: string, roomType: string, messageType?: string): boolean {
    if (this.#blocked.size === 0) return false
    const hooks = messageType === undefined ? JOIN_HOOKS : MESSAGE_HOOKS
    const type = codeType(roomType, this.#deps.hashes)
    return hooks.some((hook) =>
      this.#blocked.has(`${projectId}/${principal} ${codeName(type, hook, messageType ?? '')}`),
    )
  }

  /** Players and handlers whose messages are refused. */
  get blocked(): number {
    return this.#blocked.size
  }

  /** The handlers with a turn that did not end, as operators see them. */
  get problems(): ProblemDescription[] {
    return [...this.#suspects.values()].flatMap(({ code, until, limitMs }) => {
      if (limitMs === undefined) return []
      const fate = limitMs === 0 ? 'not started' : `cut off after ${limitMs} ms`
      const detail = `a turn of ${code} did not end: its turns are ${fate} until ${timestamp(until)}`
      return { code: 'suspect', detail }
    })
  }

  /** A turn was cut off, or its code outlived it. Never rejects. */
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

  #take({ suspects, charges, counts }: SharedSuspects): void {
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
    for (const [key, count] of Object.entries(counts)) {
      const more = count - (this.#counts[key] ?? 0)
      const [roomType = '', hook] = key.split('/')
      if (more > 0) this.#deps.onCount(roomType, hook as TurnHook, more)
    }
    this.#counts = counts
  }
}

const MESSAGE_HOOKS: readonly TurnHook[] = ['onMessage']
const JOIN_HOOKS: readonly TurnHook[] = ['options', 'load', 'create', 'admit', 'onJoin']

/** Whether its code may continue after an `await`, where no boundary reaches it: then it is not started. */
const isAsynchronous = (code: string): boolean => ASYNCHRONOUS.includes(code.split('/', 2)[1]!)

const ASYNCHRONOUS: readonly string[] = ['load', 'save', 'admit', 'task'] satisfies TurnHook[]

/** Returns the keys that at least `least` of the items have. */
function often<T>(items: readonly T[], keyOf: (item: T) => string, least: number): string[] {
  const counts = new Map<string, number>()
  for (const key of items.map(keyOf)) counts.set(key, (counts.get(key) ?? 0) + 1)
  return [...counts].flatMap(([key, count]) => (count >= least ? [key] : []))
}

/** Room types of which several handlers did not return, with the limit of all their code in milliseconds. */
function limitsOfTypes(suspects: readonly Suspect[]): Map<string, number> {
  const roomType = ({ code }: Suspect) => roomTypeOf(code)
  const refused = suspects.filter(({ mode }) => mode === 'refuse')
  return new Map([
    ...often(suspects, roomType, HANDLERS_OF_TYPE).map((type) => [type, GUARD_MS] as const),
    ...often(refused, roomType, HANDLERS_OF_TYPE).map((type) => [type, 0] as const),
  ])
}

/** Handlers that were cut off too often within the last minute. */
const tooOften = (charges: readonly Charge[], now: number): Set<string> =>
  new Set(
    often(
      charges.filter(({ at }) => now - at < CUT_WINDOW_MS),
      ({ code }) => code,
      CUTS,
    ),
  )

/** Players and handlers, as `project/principal code`, with too many turns that did not end. */
const blockedBy = (charges: readonly Charge[], now: number): Set<string> =>
  new Set(
    often(
      charges.filter(({ by, at }) => !by.endsWith('/') && now - at < CHARGE_WINDOW_MS),
      ({ by, code }) => `${by} ${code}`,
      CHARGES,
    ),
  )
