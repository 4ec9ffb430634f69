import { type Clock, timestamp } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Bus, Records, Store } from '../../shared/store/port.ts'
import type { ProblemDescription } from '../descriptions.ts'
import { roomIdOf, roomNamed } from '../traffic.ts'
import type { Turn, TurnHook } from './turns.ts'

/** What ends a turn of a handler: the boundary that cuts it off (`guard`), or only the end of its process (`refuse`). */
export type Mode = 'guard' | 'refuse'

/** A handler with a turn that has exceeded the turn limit, in one project. */
interface Suspect {
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
/** Times in milliseconds after which turns of a suspect are cut off: the longest one whose cut-offs use at most 5 % of the node. */
const CUT_LIMITS = [200, 100, 50, 20] as const
const CUT_WINDOW_MS = 10_000
const MAX_CUT_SHARE = 0.05
/** Maximum number of cut-offs within the window, with the shortest limit. */
const MAX_CUTS = (MAX_CUT_SHARE * CUT_WINDOW_MS) / CUT_LIMITS[3]
/** Time limit of a suspect with a turn that is running now, as a share of the turn limit. */
const RUNNING_SHARE = 0.85
/** Duration of the suspicion after the latest such turn. */
const SUSPECT_MS = 3_600_000
/** Duration of the first refusal of a handler. Each further one is twice as long, up to 32 minutes. */
const REFUSED_MS = 60_000
const MAX_DOUBLINGS = 5
/** Sessions and rooms that are younger take no part in the trial of a handler, and such sessions wait if its cut-offs use too much. */
const YOUNG_MS = 60_000
/** Maximum numbers of entries. The oldest are dropped. */
const MAX_SUSPECTS = 256
const MAX_CHARGES = 1024
/** After this many such turns of one player and handler within the window, the player's messages of that type are refused. */
const CHARGES = 3
const CHARGE_WINDOW_MS = 600_000
/** Life of the record, and of its counts, after the latest change. */
const RECORD_TTL_MS = 30 * 86_400_000
/** A turn that runs for longer has ended with its process. */
const LONGEST_TURN_MS = 60_000
/** A running turn that is older comes from a backup. Nodes read the record all the time, so they find a crashed node earlier. */
const OLD_TURN_MS = 600_000
/** If this many different handlers of one room type are suspects in a project, all of its code is treated like them. */
const HANDLERS_OF_TYPE = 2
/** If this many different handlers of any type are, code of all types runs inside the boundary there until it is proven. */
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
const roomTypeOf = (code: string): string => /^[^@/]*/.exec(code)![0]

/** Returns the project of a room name. */
const projectOf = (room: string): string => room.slice(0, room.indexOf('/'))

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
  if (suspectOf(shared, turn, hashes)) return shared
  return withSuspect(shared, { ...unknown(turn, hashes), runningSince: now }, now)
}

/** Removes a long turn that has returned. */
export function withoutRunning(shared: SharedSuspects, turn: Turn, hashes: CodeHashes): SharedSuspects {
  const returned = suspectOf(shared, turn, hashes)
  if (returned?.runningSince === undefined) return shared
  return { ...shared, suspects: shared.suspects.filter((one) => one !== returned) }
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
  const charge = { by: chargedTo(turn), code, at: now }
  if (shared.charges.some(({ by, code, at }) => by === charge.by && code === charge.code && at === now))
    return shared
  const charges = shared.charges.filter(({ at }) => now - at < CHARGE_WINDOW_MS)
  const { runningSince: _, ...before } = suspectOf(shared, turn, hashes) ?? unknown(turn, hashes)
  // Nodes that were hit at the same time have ended for one reason.
  const refused = mode === 'refuse' && before.refusedUntil <= now
  const suspect = {
    ...before,
    ...(refused && {
      refusals: before.refusals + 1,
      refusedUntil: now + REFUSED_MS * 2 ** Math.min(before.refusals, MAX_DOUBLINGS),
    }),
    ...(hot && { hotUntil: now + CUT_WINDOW_MS }),
    ...(at !== undefined && { at }),
  }
  return counted(
    withSuspect({ ...shared, charges: [...charges, charge].slice(-MAX_CHARGES) }, suspect, now),
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

interface SuspectsDeps {
  readonly store: Pick<Store, 'records' | 'bus'>
  readonly clock: Clock
  readonly log: Pick<Logger, 'error'>
  /** Hashes of the code that this node runs. */
  readonly hashes: CodeHashes
  /** Time after which the watchdog ends the process, in milliseconds. */
  readonly turnLimitMs: number
  /** In development: returns the time in milliseconds after which every turn is cut off; undefined: not now. Default: only turns of suspects. */
  readonly limitAllMs?: (() => number | undefined) | undefined
  /** Called for turns of this room type and hook that did not end. `count`: number of new ones. */
  readonly onCount: (roomType: string, hook: TurnHook, count: number) => void
}

/** A player who sends a message or joins. */
interface Sender {
  readonly projectId: string
  readonly principal: string
  /** Start of its session, in milliseconds since 1970. */
  readonly since: number
}

/** A handler that is not started at the moment. Hook `all`: all code of the room type. */
interface Refusal {
  readonly project_id: string
  readonly room_type: string
  readonly hook: string
  readonly message_type: string
}

/** The suspects in the code of this node. Reads the shared record after each change. */
export class Suspects {
  readonly #deps: SuspectsDeps
  readonly #record: SuspectRecord
  /** Suspects by `project code`, and room types with several of them by `project type@hash`. */
  #suspects = new Map<string, Suspect>()
  /** Projects with suspects. True: with several, so that other handlers may not return either. */
  #projects = new Map<string, boolean>()
  /** Number of turns of each handler that is not a suspect, since its project has several. */
  #proven = new Map<string, number>()
  /** Number of turns that did not end, by `project/principal code`. */
  #charges = new Map<string, number>()
  /** Monotonic times of the latest cut-offs on this node, by `project code`. */
  readonly #cuts = new Map<string, number[]>()
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
    if (this.#projects.size === 0) return limitAllMs?.()
    const project = projectOf(turn.room.name)
    const several = this.#projects.get(project)
    if (several === undefined) return limitAllMs?.()
    const key = `${project} ${codeOf(turn, this.#deps.hashes)}`
    const suspect = this.#suspects.get(key) ?? this.#suspects.get(typeOf(key))
    if (suspect && this.#isRefused(suspect, turn)) return 0
    if (limitAllMs) return limitAllMs()
    if (suspect?.runningSince !== undefined) return this.#limitOfRunning(suspect.runningSince)
    if (suspect) return this.#cutLimit(key)
    return several ? this.#unproven(key) : undefined
  }

  /** Returns the place in the code at which an earlier turn of the handler did not end. Undefined: unknown. */
  placeOf(turn: Turn): string | undefined {
    return this.#suspects.get(`${projectOf(turn.room.name)} ${codeOf(turn, this.#deps.hashes)}`)?.at
  }

  /** Between two refusals, only rooms that are not young try the handler. The gateway asks `verdict` about joins that make a room. */
  #isRefused({ refusals, refusedUntil }: Suspect, { hook, room }: Turn): boolean {
    const now = this.#deps.clock.now()
    if (now < refusedUntil) return true
    if (refusals === 0) return false
    return room.createdAt === undefined ? !JOIN_HOOKS.includes(hook) : now - room.createdAt < YOUNG_MS
  }

  /** Limit while another node has a long turn of the handler, which may be slow or may never end. */
  #limitOfRunning(since: number): number | undefined {
    if (this.#deps.clock.now() - since < this.#deps.turnLimitMs / 2) return undefined
    return RUNNING_SHARE * this.#deps.turnLimitMs
  }

  #cutLimit(key: string): number {
    const cuts = this.#recentCuts(key).length
    return CUT_LIMITS.find((limit) => cuts * limit <= MAX_CUT_SHARE * CUT_WINDOW_MS) ?? CUT_LIMITS[3]
  }

  #recentCuts(key: string): readonly number[] {
    const since = this.#deps.clock.monotonic() - CUT_WINDOW_MS
    return (this.#cuts.get(key) ?? []).filter((at) => at > since)
  }

  /** Limit of code that is not proven. Frequent handlers are soon proven, and then run without the cost of the boundary. */
  #unproven(key: string): number | undefined {
    const turns = this.#proven.get(key) ?? 0
    if (turns >= PROVEN_AFTER) return undefined
    this.#proven.set(key, turns + 1)
    return RUNNING_SHARE * this.#deps.turnLimitMs
  }

  /**
   * Returns what the gateway does with a player's message of this type, or, without a type, with its join of this room type: it refuses it,
   * because too many of them did not end, or lets it wait.
   */
  verdict(sender: Sender, roomType: string, messageType?: string): 'pass' | 'refuse' | 'wait' {
    const { projectId, principal, since } = sender
    if (!this.#projects.has(projectId)) return 'pass'
    const now = this.#deps.clock.now()
    const isYoung = now - since < YOUNG_MS
    const type = codeType(roomType, this.#deps.hashes)
    const handlers = (messageType === undefined ? JOIN_HOOKS : MESSAGE_HOOKS).map((hook) => {
      const code = codeName(type, hook, messageType ?? '')
      const charges = this.#charges.get(`${projectId}/${principal} ${code}`) ?? 0
      const one = this.#suspects.get(`${projectId} ${code}`) ?? this.#suspects.get(`${projectId} ${type}`)
      const [isHot, isTried] = [
        one !== undefined && one.hotUntil > now,
        one !== undefined && one.refusals > 0,
      ]
      if (charges >= (isHot || isTried ? 1 : CHARGES) || (isTried && isYoung)) return 'refuse'
      return isHot && isYoung ? 'wait' : 'pass'
    })
    return (
      handlers.find((verdict) => verdict === 'refuse') ?? handlers.find((one) => one === 'wait') ?? 'pass'
    )
  }

  /** Number of pairs of player and handler whose messages are refused. */
  get blocked(): number {
    return [...this.#charges.values()].filter((charges) => charges >= CHARGES).length
  }

  /** The handlers that are not started at the moment, with the end of that in seconds since 1970. */
  get refusals(): (readonly [Refusal, number])[] {
    const now = this.#deps.clock.now()
    return [...this.#suspects.values()].flatMap((one) =>
      one.refusedUntil > now ? [[refusalOf(one), one.refusedUntil / 1000] as const] : [],
    )
  }

  /** The handlers with a turn that did not end, for operators. */
  get problems(): ProblemDescription[] {
    const now = this.#deps.clock.now()
    return [...this.#suspects].flatMap(([key, one]) => {
      if (one.runningSince !== undefined) return []
      if (one.refusedUntil > now) return [{ code: 'handler_refused', detail: refusedText(one) }]
      const fate = `cut off after ${this.#cutLimit(key)} ms until ${timestamp(one.until)}`
      return [{ code: 'suspect', detail: `turns of ${one.code} in project ${one.project} are ${fate}` }]
    })
  }

  /** Records a turn that was cut off, or whose code outlasted the boundary. Never rejects. */
  async stuck(turn: Turn, mode: Mode): Promise<void> {
    const { clock, hashes } = this.#deps
    const now = clock.now()
    const key = `${projectOf(turn.room.name)} ${codeOf(turn, hashes)}`
    const cuts = [...this.#recentCuts(key), clock.monotonic()].slice(-MAX_CUTS - 1)
    this.#cuts.set(key, cuts)
    const hot = cuts.length > MAX_CUTS
    await this.#change((shared) => withStuck(shared, turn, hashes, { mode, now, hot }))
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
    const { clock, hashes, log } = this.#deps
    const now = clock.now()
    const isHere = ({ code }: { readonly code: string }) =>
      code.startsWith(`${codeType(roomTypeOf(code), hashes)}/`)
    const here = suspects.filter((one) => one.until > now && isHere(one))
    const stuck = here.filter(({ runningSince }) => runningSince === undefined)
    const known = this.#suspects
    this.#suspects = new Map([...typesOf(stuck), ...here].map((one) => [`${one.project} ${one.code}`, one]))
    this.#projects = new Map(here.map(({ project }) => [project, severalIn(stuck, project)]))
    if (![...this.#projects.values()].includes(true)) this.#proven.clear()
    for (const key of this.#cuts.keys()) if (!this.#suspects.has(key)) this.#cuts.delete(key)
    this.#charges = new Map()
    for (const { by, code, at } of charges.filter(isHere)) {
      const key = `${by} ${code}`
      if (!by.endsWith('/') && now - at < CHARGE_WINDOW_MS)
        this.#charges.set(key, (this.#charges.get(key) ?? 0) + 1)
    }
    for (const [key, one] of this.#suspects)
      if (one.refusedUntil > now && known.get(key)?.refusedUntil !== one.refusedUntil)
        log.error({ ...refusalOf(one), until: timestamp(one.refusedUntil) }, refusedText(one))
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

const severalIn = (suspects: readonly Suspect[], project: string): boolean =>
  suspects.filter((one) => one.project === project).length >= HANDLERS_OF_ALL

/** Returns the room types with several suspects in a project, as suspects. If several are refused, so is the type. */
function typesOf(suspects: readonly Suspect[]): Suspect[] {
  const types = new Map<string, Suspect[]>()
  for (const one of suspects) {
    const key = typeOf(`${one.project} ${one.code}`)
    types.set(key, [...(types.get(key) ?? []), one])
  }
  return [...types.values()].flatMap((handlers) => {
    if (handlers.length < HANDLERS_OF_TYPE) return []
    const refused = handlers.filter(({ refusals }) => refusals > 0)
    const all = refused.length >= HANDLERS_OF_TYPE
    const latest = (times: readonly number[]) => Math.max(0, ...times)
    return {
      project: handlers[0]!.project,
      code: typeOf(handlers[0]!.code),
      until: latest(handlers.map(({ until }) => until)),
      refusals: all ? refused.length : 0,
      refusedUntil: all ? latest(refused.map(({ refusedUntil }) => refusedUntil)) : 0,
      hotUntil: 0,
    }
  })
}

/** Returns a handler's room type with its hash, with or without a project before both. */
const typeOf = (code: string): string => code.slice(0, code.indexOf('/'))

function refusalOf({ project, code }: Suspect): Refusal {
  const [, hook = 'all', message_type = ''] = code.split('/')
  return { project_id: project, room_type: roomTypeOf(code), hook, message_type }
}

/** Returns the sentence about a refused handler, for operators. */
function refusedText(suspect: Suspect): string {
  const { project_id, room_type, hook, message_type } = refusalOf(suspect)
  const turns = hook === 'onMessage' ? 'messages' : hook === 'all' ? 'turns' : `turns of ${hook}`
  const what = `${turns}${message_type === '' ? '' : ` ${message_type}`} of ${room_type}`
  return `${what} are refused in project ${project_id} until ${timestamp(suspect.refusedUntil)}`
}
