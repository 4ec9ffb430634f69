import { type Clock, timestamp } from '../../../shared/clock.ts'
import type { Logger } from '../../../shared/log.ts'
import { counter, gauge, type Metrics, OPEN } from '../../../shared/metrics.ts'
import type { Store } from '../../../shared/store/port.ts'
import type { ProblemDescription } from '../../descriptions.ts'
import { HOOKS, type Turn, type TurnHook } from '../../room/hooks.ts'
import type { Sender } from '../../traffic.ts'
import {
  CHARGE_MS,
  CHARGE_WINDOW_MS,
  type Charge,
  type CodeHashes,
  codeName,
  codeOf,
  codeType,
  type Mode,
  projectOf,
  roomTypeOf,
  type SharedSuspects,
  type Suspect,
  SuspectRecord,
  withoutGone,
  withStuck,
} from './suspect-record.ts'

/** Metrics of the suspects. */
export const SUSPECT_METRICS = {
  turnsStuck: counter(
    'service_room_turns_stuck_total',
    'Turns on all nodes that did not return: roomful cut them off, or the node ended.',
    { room_type: OPEN, hook: HOOKS },
  ),
  playersBlocked: gauge(
    'service_players_blocked',
    'Pairs of a player and a message type that are blocked, because three turns did not return.',
  ),
  handlersRefused: gauge(
    'service_handlers_refused',
    'Time until which a handler is refused in a project, in seconds since 1970. Hook all: the whole room type.',
    { project_id: OPEN, room_type: OPEN, hook: OPEN, message_type: OPEN },
  ),
}

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
/** A handler that blocks another node after its turn is not started until it has returned, at most for this time. */
const LONGEST_BLOCK_MS = 10_000
/** Sessions and rooms that are younger take no part in the trial of a handler, and such sessions wait if its cut-offs use too much. */
const YOUNG_MS = 60_000
/** After this many such turns of one player and handler within the window, the player's messages of that type are refused. */
const CHARGES = 3
/** If this many different handlers of one room type are suspects in a project, all of its code is treated like them. */
const HANDLERS_OF_TYPE = 2
/** If this many different handlers of any type are, code of all types runs inside the boundary there until it is proven. */
const HANDLERS_OF_ALL = 2
/** Number of turns after which a handler is proven. */
const PROVEN_AFTER = 1000
/** A handler with this many such turns in one room within the window is not started there. */
const REST_AFTER = 3
const REST_WINDOW_MS = 60_000

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
  readonly metrics: Metrics<typeof SUSPECT_METRICS>
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
  /** Suspects of all projects. In a project in which it is none, such a handler runs inside the boundary until it is proven. */
  #codes = new Set<string>()
  /** Number of turns inside the boundary of each handler that is not a suspect, by `project code`. */
  #proven = new Map<string, number>()
  /** Number of turns that did not end, by `project/principal code`. */
  #charges = new Map<string, number>()
  /** Turns that did not end, by room. */
  #turns = new Map<string, readonly Charge[]>()
  /** Resolves when the record has been read as of the latest known change. */
  #reading: Promise<void> = Promise.resolve()
  /** The record may have changed since the latest read of it has begun. */
  #isOld = false
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
    deps.metrics.playersBlocked.read(() => this.blocked)
    deps.metrics.handlersRefused.read(() => this.refusals)
  }

  /** Reads the record now, and after each change. Rejects if it cannot be read. */
  async start(): Promise<void> {
    this.#unsubscribe = await this.#record.subscribe(() => this.#readSoon())
    this.#take(await this.#record.read())
    this.#readLater()
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#cancel()
    await this.#unsubscribe()
  }

  /** Resolves when this node knows all turns that are known to have ended other nodes. Never rejects. */
  current(): Promise<void> {
    return this.#reading
  }

  /**
   * True if this turn, or one like it for which no client waits, did not return under an earlier owner of its room. `since`: epoch of the first
   * owner that counts.
   */
  hung({ hook, subject, ref, room }: Turn, since = 0): boolean {
    const { name, epoch, createdAt = 0 } = room
    return this.#turnsIn(name).some(
      (one) =>
        hookOf(one.code) === hook &&
        one.subject === subject &&
        one.ref === ref &&
        one.epoch < epoch &&
        one.epoch >= since &&
        // A later room of this name may dispose itself.
        (subject !== '' || one.at >= createdAt),
    )
  }

  /** True if the turn must not start again, or if its handler did not return three times within the last minute in its room. */
  #rests(turn: Turn): boolean {
    if (this.#turns.size === 0) return false
    const { hook, subject, ref, room } = turn
    const turns = this.#turnsIn(room.name)
    // Ticks, saves and messages without a ref look like later ones.
    const isOne = hook === 'onDispose' || (subject !== '' && (hook !== 'onMessage' || ref !== 0))
    if (isOne && this.hung(turn)) return true
    const since = this.#deps.clock.now() - REST_WINDOW_MS
    const handler = codeOf(turn, this.#deps.hashes)
    return turns.filter(({ code, at }) => at > since && code === handler).length >= REST_AFTER
  }

  #turnsIn(room: string): readonly Charge[] {
    return this.#turns.get(room) ?? []
  }

  /** Returns the time in milliseconds after which a turn is cut off; 0: it must not start. Undefined: it is not limited. */
  limitOf(turn: Turn): number | undefined {
    const { limitAllMs } = this.#deps
    if (this.#rests(turn)) return 0
    if (this.#codes.size === 0) return limitAllMs?.()
    const project = projectOf(turn.room.name)
    const code = codeOf(turn, this.#deps.hashes)
    const key = `${project} ${code}`
    const suspect = this.#suspects.get(key) ?? this.#suspects.get(typeOf(key))
    if (suspect && this.#isRefused(suspect, turn)) return 0
    if (limitAllMs) return limitAllMs()
    if (suspect?.runningSince !== undefined) return this.#limitOfRunning(suspect.runningSince)
    if (suspect) return this.#cutLimit(key)
    return this.#projects.get(project) || this.#codes.has(code) ? this.#unproven(key) : undefined
  }

  /** Returns the place in the code at which an earlier turn of the handler did not end. Undefined: unknown. */
  placeOf(turn: Turn): string | undefined {
    return this.#suspects.get(`${projectOf(turn.room.name)} ${codeOf(turn, this.#deps.hashes)}`)?.at
  }

  /** Between two refusals, only rooms that are not young try the handler. The gateway asks `verdict` about joins that make a room. */
  #isRefused({ refusals, refusedUntil, blockingSince = 0 }: Suspect, { hook, room }: Turn): boolean {
    const now = this.#deps.clock.now()
    // No boundary can cut off what blocks another node outside of its turn.
    if (now < Math.max(refusedUntil, blockingSince + LONGEST_BLOCK_MS)) return true
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
    if (this.#projects.size === 0) return 'pass'
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
    this.#cancel = this.#deps.clock.schedule(READ_MS, () => this.#readSoon())
  }

  /** Reads the record after a change. Changes during a read cause one more read. */
  #readSoon(): void {
    this.#isOld = true
    this.#reading = this.#reading.then(() => this.#readAgain())
  }

  async #readAgain(): Promise<void> {
    if (!this.#isOld) return
    this.#isOld = false
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
    this.#codes = new Set(here.map(({ code }) => code))
    if (here.length === 0) this.#proven.clear()
    for (const key of this.#cuts.keys()) if (!this.#suspects.has(key)) this.#cuts.delete(key)
    this.#turns = new Map()
    for (const one of charges)
      if (now - one.at < CHARGE_MS) this.#turns.set(one.room, [...this.#turnsIn(one.room), one])
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
      if (more > 0) this.#deps.metrics.turnsStuck.inc({ room_type: roomType, hook: hook as TurnHook }, more)
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

const hookOf = (code: string): string | undefined => code.split('/')[1]

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
