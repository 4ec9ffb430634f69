import { timestamp } from '../../../shared/clock.ts'
import { DUE_PARTS } from '../../../shared/store/port.ts'
import { attemptOf, type NoticeBody, type NoticeEnvironment, type StoredNotice } from './notice.ts'

/** A notice that the backend has not accepted. */
interface DeadLetter extends StoredNotice {
  /** When it was moved to the dead letters, RFC 3339. */
  readonly died_at: string
  /** The last answer, such as `HTTP 400`. */
  readonly reason: string
}

/** A dead letter, as operators see it. */
export type DeadLetterDescription = NoticeBody & Pick<DeadLetter, 'id' | 'died_at' | 'reason'>

/** The notices of a project. */
export interface NoticesDescription {
  /** Rooms with notices that wait to be delivered, and the number of these notices. At most 1,000 rooms of a part of the index are counted. */
  readonly pending: { readonly rooms: number; readonly notices: number }
  /** The newest first. */
  readonly dead_letters: readonly DeadLetterDescription[]
  /** Null: there are no more. */
  readonly next_cursor: string | null
}

/** Result of `resend`. */
export interface ResendResult {
  readonly delivered: number
  /** The dead letter that the backend has not accepted now either. It ends the call. Absent: all were accepted. */
  readonly failed?: { readonly id: string; readonly reason: string }
}

const TTL_MS = 30 * 86_400_000
/** Maximum number of dead letters of a project. */
const MAX_LETTERS = 10_000
/** Number of letters that are deleted together: to find the oldest, the whole index is read. */
const DROPPED = 100
/** Maximum number of rooms with notices that are counted in each part. */
const COUNTED_ROOMS = 1000
/** Maximum number of dead letters that one call resends, and the milliseconds after which it resends no more. */
const RESENT = 100
const RESEND_MS = 5000

const indexOf = (projectId: string): string => `{room_dead_notices:${projectId}}`
/** Members of the index are in the order of their times. */
const memberOf = ({ died_at, id }: { readonly died_at: string; readonly id: string }): string =>
  `${died_at} ${id}`
const keyOf = (projectId: string, member: string): string => `${indexOf(projectId)}:${member}`

/**
 * The dead letters of each project, at most 10,000, each for 30 days. Operators see them with the number of notices that wait. Each method
 * rejects with `StoreUnavailable`.
 */
export class DeadLetters {
  readonly #env: NoticeEnvironment

  constructor(env: NoticeEnvironment) {
    this.#env = env
  }

  /** Adds a letter. If the project has 10,000, deletes the oldest. */
  async add(projectId: string, { id, body }: StoredNotice, reason: string): Promise<void> {
    const { store, clock } = this.#env
    const letter: DeadLetter = { id, body, died_at: timestamp(clock.now()), reason }
    const member = memberOf(letter)
    const put = {
      put: keyOf(projectId, member),
      value: new TextEncoder().encode(JSON.stringify(letter)),
      ttlMs: TTL_MS,
    }
    const add = { index: indexOf(projectId), add: member, ifFewerThan: MAX_LETTERS, ttlMs: TTL_MS }
    while (!(await store.records.write([put, add]))) await this.#dropOldest(projectId)
  }

  /** Describes the notices of a project, with one page of its dead letters. `before`: the cursor of the page before. */
  async describe(projectId: string, limit: number, before?: string): Promise<NoticesDescription> {
    const page = { limit, ...(before !== undefined && { before }) }
    const [pending, members] = await Promise.all([
      this.#pending(projectId),
      this.#env.store.records.page(indexOf(projectId), page),
    ])
    const letters = await this.#read(projectId, members)
    return {
      pending,
      dead_letters: letters.map(({ id, body, died_at, reason }) => ({
        id,
        ...(JSON.parse(body) as NoticeBody),
        died_at,
        reason,
      })),
      next_cursor: (members.length === limit ? members.at(-1) : undefined) ?? null,
    }
  }

  /**
   * Sends dead letters of a project again, the oldest first, and deletes those that the backend accepts. `id`: only the one of this notice.
   */
  async resend(projectId: string, id?: string): Promise<ResendResult> {
    const { post, clock } = this.#env
    const until = clock.monotonic() + RESEND_MS
    const { signal: never } = new AbortController()
    const { members: all, old } = await this.#members(projectId)
    if (old.length > 0) await this.#drop(projectId, old.slice(0, 10 * DROPPED))
    const kept = all.slice(old.length)
    const asked = id === undefined ? kept : kept.filter((member) => member.endsWith(` ${id}`))
    let delivered = 0
    for (const letter of await this.#read(projectId, asked.slice(0, RESENT))) {
      const result = await attemptOf(post, { projectId, ...letter }, never)
      if (result.is !== 'delivered') return { delivered, failed: { id: letter.id, reason: result.reason } }
      await this.#drop(projectId, [memberOf(letter)])
      delivered++
      if (clock.monotonic() > until) break
    }
    return { delivered }
  }

  /** Deletes all notices and dead letters of a project that has no rooms. */
  async removeAll(projectId: string): Promise<void> {
    const { notices, records } = this.#env.store
    for (let part = 0; part < DUE_PARTS; part++) {
      let found: boolean
      do {
        found = false
        let page: string[]
        let skip = 0
        do {
          page = await notices.rooms(part, COUNTED_ROOMS, skip)
          const rooms = page.filter((room) => room.startsWith(`${projectId}/`))
          await Promise.all(rooms.map((room) => notices.drop(room)))
          found ||= rooms.length > 0
          skip += page.length - rooms.length
        } while (page.length === COUNTED_ROOMS)
        // Deliveries change the order of the index, so a pass may have missed rooms.
      } while (found)
    }
    for (;;) {
      const members = await records.page(indexOf(projectId), { limit: 10 * DROPPED })
      if (members.length === 0) return
      await this.#drop(projectId, members)
    }
  }

  async #pending(projectId: string): Promise<NoticesDescription['pending']> {
    const { notices } = this.#env.store
    const parts = Array.from({ length: DUE_PARTS }, (_, part) => notices.rooms(part, COUNTED_ROOMS))
    const rooms = (await Promise.all(parts)).flat().filter((room) => room.startsWith(`${projectId}/`))
    const counts = await Promise.all(rooms.map((room) => notices.count(room)))
    return {
      rooms: counts.filter((count) => count > 0).length,
      notices: counts.reduce((sum, count) => sum + count, 0),
    }
  }

  async #dropOldest(projectId: string): Promise<void> {
    const { log, metrics } = this.#env
    const { members, old } = await this.#members(projectId)
    const dropped = old.length > 0 ? old.slice(0, 10 * DROPPED) : members.slice(0, DROPPED)
    await this.#drop(projectId, dropped)
    if (old.length > 0) return
    metrics.deadNoticesDropped.inc(dropped.length)
    log.warn({ project_id: projectId, dropped: dropped.length }, 'oldest dead letters deleted')
  }

  /** Returns the index, the oldest letter first, and `old`: those at its start that have expired. */
  async #members(projectId: string): Promise<{ members: string[]; old: string[] }> {
    const { store, clock } = this.#env
    const members = (await store.records.page(indexOf(projectId), { limit: MAX_LETTERS })).reverse()
    const expired = timestamp(clock.now() - TTL_MS)
    return { members, old: members.filter((member) => member < expired) }
  }

  async #drop(projectId: string, members: readonly string[]): Promise<void> {
    await this.#env.store.records.write(
      members.flatMap((member) => [
        { remove: keyOf(projectId, member) },
        { index: indexOf(projectId), drop: member },
      ]),
    )
  }

  async #read(projectId: string, members: readonly string[]): Promise<DeadLetter[]> {
    const found = await this.#env.store.records.read(members.map((member) => keyOf(projectId, member)))
    return found.flatMap((record) => (record ? [JSON.parse(new TextDecoder().decode(record.value))] : []))
  }
}
