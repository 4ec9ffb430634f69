import type { LobbyState } from '../rooms.ts'
import type { Expected, History, ListedRow, Lobby, LobbyRecord, Violation } from './history.ts'
import { DETECTED_LEASES, freezing, type Ownerships } from './ownership.ts'

/** A room that has ended, or whose owner has died, leaves all lists within one lease and this time. */
const GHOST_MS = 2000

/** Players find only rooms that exist, and get the seats that were reserved for them. */
export function checkLobby(history: History, ownerships: Ownerships): Violation[] {
  const { lobby } = history
  if (!lobby) return []
  const lives = new Lives(history, ownerships)
  const found = lobby.records.flatMap((record): Violation[] => {
    if (record.kind === 'listed') return ghosts(record, lives)
    if (record.kind === 'found') return misled(record, ownerships)
    if (record.kind === 'not_found') return refused(record, lobby, lives, ownerships)
    return record.marks.map((mark) => violation(record, 'layer_leaked', `it got ${mark}`))
  })
  return [...found, ...checkLobbyEnd(lobby.end), ...checkActivity(history, lobby)]
}

type Of<K extends LobbyRecord['kind']> = Extract<LobbyRecord, { kind: K }>

const violation = (
  { at, client }: Pick<LobbyRecord, 'at' | 'client'>,
  name: Violation['name'],
  message: string,
  room?: string,
): Violation => ({ name, at, client, message, ...(room !== undefined && { room }) })

const ghosts = ({ at, client, node, rows }: Of<'listed'>, lives: Lives): Violation[] =>
  rows.flatMap(({ room }) => {
    const late = lives.listedTooLong(room, node, at)
    return late === undefined
      ? []
      : [violation({ at, client }, 'listed_ghost', `${node} listed it: ${late}`, room)]
  })

function misled(record: Of<'found'>, ownerships: Ownerships): Violation[] {
  const { at, by, room, code, expected } = record
  if (by !== 'code' || !expected || (expected.room === room && expected.code === code)) return []
  // After a loss of data, another room may get the code.
  if (lostSince(ownerships, expected, at)) return []
  const message = `the code ${expected.code} of ${expected.room} led to a room with the code ${code}`
  return [violation(record, 'code_misleads', message, room)]
}

function refused(
  record: Of<'not_found'>,
  { records }: Lobby,
  lives: Lives,
  ownerships: Ownerships,
): Violation[] {
  const { at, by, client, error, expected } = record
  if (error !== 'room_full') return []
  if (by === 'joinOrCreate') return [violation(record, 'room_full', 'joinOrCreate answered room_full')]
  if (by !== 'reservation' || !expected || lostSince(ownerships, expected, at)) return []
  const isBetween = (when: number) => when >= expected.since && when <= at
  const isUsed = records.some(
    (other) =>
      other.kind === 'found' &&
      other.client === client &&
      other.room === expected.room &&
      isBetween(other.at),
  )
  if (isUsed || lives.endsOf(expected.room).some(isBetween)) return []
  const message = `its seat was reserved ${Math.round(at - expected.since)} ms before`
  return [violation(record, 'reservation_broken', message, expected.room)]
}

const lostSince = (ownerships: Ownerships, { since }: Expected, at: number): boolean =>
  ownerships.wipes(at).some(({ until }) => until >= since)

/** Times in which rooms had an owner. */
class Lives {
  readonly #history: History
  readonly #ownerships: Ownerships
  /** Claims and releases that may have taken effect, by room. */
  readonly #calls = new Map<string, History['store'][number][]>()

  constructor(history: History, ownerships: Ownerships) {
    this.#history = history
    this.#ownerships = ownerships
    for (const call of history.store) {
      if (call.ok === false || (call.kind !== 'claim' && call.kind !== 'release')) continue
      const calls = this.#calls.get(call.room)
      if (calls) calls.push(call)
      else this.#calls.set(call.room, [call])
    }
  }

  /** Times at which a room ended. */
  endsOf(room: string): number[] {
    return (this.#calls.get(room) ?? []).filter(({ forget }) => forget).map(({ ended }) => ended)
  }

  /** Returns the reason for which `edge` must not list a room at this time. Undefined: it may list the room. */
  listedTooLong(room: string, edge: string, at: number): string | undefined {
    const calls = this.#calls.get(room) ?? []
    const claims = calls.filter(({ kind, began }) => kind === 'claim' && began <= at)
    const claim = claims.toSorted((one, other) => one.epoch - other.epoch).at(-1)
    if (!claim) return undefined
    const { node, epoch } = claim
    const release = calls.find((call) => call.kind === 'release' && call.epoch === epoch && call.ended <= at)
    const died = this.#diedAt(node)
    const released = release && !this.#lostSuccessor(release) ? release.ended : Number.POSITIVE_INFINITY
    const since = Math.min(released, died)
    const heard = Math.max(
      this.#ownerships.back(edge, since),
      died > since ? this.#ownerships.back(node, since) : since,
    )
    const leases = heard > since ? DETECTED_LEASES : 1
    const mayTakeMs = leases * this.#history.run.lease_ms + GHOST_MS
    if (at <= this.#ownerships.worked(edge, heard, mayTakeMs)) return undefined
    const what = since === died ? `its owner ${node} had died` : `${node} had released it`
    return `${what} ${Math.round(at - since)} ms before`
  }

  /**
   * True: a node that drains handed the room over, and another node, perhaps the successor, was killed before it could claim the room, or
   * missed the hand-over in an outage. The row stays while the first node lives: the store has the room, and opens it for a join. A claim waits
   * at most one lease, and a node needs about as long to receive messages again.
   */
  #lostSuccessor({ node, forget, began, ended }: History['store'][number]): boolean {
    const { faults, run } = this.#history
    const drains = faults.some(
      (fault) => fault.kind === 'drain' && fault.node === node && fault.at <= began && began <= fault.until,
    )
    const kills = faults.filter(({ kind, at }) => kind === 'kill' && at >= began)
    const outages = freezing(faults, run.lease_ms).filter(({ until }) => until >= began - run.lease_ms)
    const isLost = [...kills, ...outages].some(
      ({ node: other, at }) => other !== node && at <= ended + run.lease_ms,
    )
    return drains && forget !== true && isLost
  }

  /** Time at which a node was killed or had drained. Infinity: it lives. */
  #diedAt(node: string): number {
    const ends = this.#history.faults.flatMap((fault) => {
      if (fault.node !== node) return []
      if (fault.kind === 'kill') return [fault.at]
      return fault.kind === 'drain' ? [fault.until] : []
    })
    return Math.min(Number.POSITIVE_INFINITY, ...ends)
  }
}

/** At the end, each player has a room, and each list has the running rooms. */
export function checkLobbyEnd({ at, rooms, lists, roomless }: Lobby['end']): Violation[] {
  const found: Violation[] = roomless.map((client) =>
    violation({ at, client }, 'left_out', `${client} found no room`),
  )
  const seen = new Set<string>()
  for (const { room, node, state } of rooms) {
    if (seen.has(room)) found.push({ name: 'two_owners', at, room, message: `also ${node} runs it` })
    seen.add(room)
    for (const { name, message } of (state as LobbyState).wrong) found.push({ name, at, room, message })
  }
  const right = rooms
    .filter(({ state }) => (state as LobbyState).phase === 'open')
    .map((room) => describe({ ...room, phase: 'open' }))
    .sort()
  for (const { client, rows } of lists) {
    const listed = rows.map(describe).sort()
    if (listed.join() === right.join()) continue
    const more = listed.filter((row) => !right.includes(row)).join(', ') || 'nothing'
    const less = right.filter((row) => !listed.includes(row)).join(', ') || 'nothing'
    found.push(violation({ at, client }, 'list_wrong', `its list has ${more} and lacks ${less}`))
  }
  return found
}

const describe = ({ room, players, reserved, phase }: ListedRow): string =>
  `${room} ${phase} ${players}+${reserved}`

/** Minimum number of records per player and second. It is far below that of a run in which something is broken half of the time. */
const LEAST = { listed: 0.5, joinOrCreate: 0.02, create: 0.01, code: 0.01, reservation: 0.01 }

function checkActivity({ run }: History, { records, end }: Lobby): Violation[] {
  const seconds = (run.ended - run.began) / 1000
  const count = (way: keyof typeof LEAST) =>
    records.filter((record) => record.kind === way || (record.kind === 'found' && record.by === way)).length
  return (Object.keys(LEAST) as (keyof typeof LEAST)[]).flatMap((way): Violation[] => {
    const wanted = Math.floor(LEAST[way] * seconds * end.lists.length)
    if (count(way) >= wanted) return []
    const message = `${count(way)} lobby records by ${way}; at least ${wanted} would prove something`
    return [{ name: 'too_little', at: end.at, message }]
  })
}
