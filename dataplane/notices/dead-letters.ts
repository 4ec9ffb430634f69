import { type Clock, timestamp } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Records } from '../../shared/store/port.ts'
import type { NoticeMetrics } from './metrics.ts'
import type { StoredNotice } from './notice.ts'

/** A notice that the backend has not accepted. */
export interface DeadLetter extends StoredNotice {
  /** When it was moved to the dead letters, RFC 3339. */
  readonly died_at: string
  /** The last answer, such as `HTTP 400`. */
  readonly reason: string
}

/** Dependencies of DeadLetters. */
interface DeadLettersParts {
  readonly records: Pick<Records, 'read' | 'write' | 'page'>
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: Pick<NoticeMetrics, 'deadNoticesDropped'>
}

const TTL_MS = 30 * 86_400_000
/** Maximum number of dead letters of a project. */
const MAX_LETTERS = 10_000
/** So many are deleted at once, since looking for the oldest costs a read of the whole index. */
const DROPPED = 100

const indexOf = (projectId: string): string => `{room_dead_notices:${projectId}}`
/** Members of the index are in the order of their times. */
const memberOf = ({ died_at, id }: Pick<DeadLetter, 'died_at' | 'id'>): string => `${died_at} ${id}`
const keyOf = (projectId: string, member: string): string => `${indexOf(projectId)}:${member}`

/** The dead letters of each project: at most 10,000, each for 30 days. */
export class DeadLetters {
  readonly #parts: DeadLettersParts

  constructor(parts: DeadLettersParts) {
    this.#parts = parts
  }

  /** Adds a letter. If the project has 10,000, deletes the oldest. */
  async add(projectId: string, { id, body }: StoredNotice, reason: string): Promise<void> {
    const { records, clock } = this.#parts
    const letter: DeadLetter = { id, body, died_at: timestamp(clock.now()), reason }
    const member = memberOf(letter)
    const value = new TextEncoder().encode(JSON.stringify(letter))
    const add = { index: indexOf(projectId), add: member, ifFewerThan: MAX_LETTERS, ttlMs: TTL_MS }
    while (!(await records.write([{ put: keyOf(projectId, member), value, ttlMs: TTL_MS }, add])))
      await this.#dropOldest(projectId)
  }

  /** Returns letters, the newest first; `before`: only those behind this cursor of an earlier page. */
  async page(
    projectId: string,
    limit: number,
    before?: string,
  ): Promise<{ letters: DeadLetter[]; next?: string }> {
    const { records } = this.#parts
    const index = indexOf(projectId)
    const members = await records.page(index, { limit, ...(before !== undefined && { before }) })
    const found = await records.read(members.map((member) => keyOf(projectId, member)))
    const letters = found.flatMap((record) => (record ? [read(record.value)] : []))
    const last = members.length === limit ? members.at(-1) : undefined
    return { letters, ...(last !== undefined && { next: last }) }
  }

  /** Returns up to `limit` letters, the oldest first; `id`: only that of this notice. */
  async oldest(projectId: string, limit: number, id?: string): Promise<DeadLetter[]> {
    const { records } = this.#parts
    const { members: all, old } = await this.#members(projectId)
    const members = all.slice(old.length)
    if (old.length > 0) await this.#drop(projectId, old.slice(0, 10 * DROPPED))
    const asked = id === undefined ? members : members.filter((member) => member.endsWith(` ${id}`))
    const found = await records.read(asked.slice(0, limit).map((member) => keyOf(projectId, member)))
    return found.flatMap((record) => (record ? [read(record.value)] : []))
  }

  async remove(projectId: string, letter: DeadLetter): Promise<void> {
    const member = memberOf(letter)
    const drop = { index: indexOf(projectId), drop: member }
    await this.#parts.records.write([{ remove: keyOf(projectId, member) }, drop])
  }

  /** Deletes all letters of a project. */
  async removeAll(projectId: string): Promise<void> {
    for (;;) {
      const members = await this.#parts.records.page(indexOf(projectId), { limit: 10 * DROPPED })
      if (members.length === 0) return
      await this.#drop(projectId, members)
    }
  }

  async #dropOldest(projectId: string): Promise<void> {
    const { log, metrics } = this.#parts
    const { members, old } = await this.#members(projectId)
    const dropped = old.length > 0 ? old.slice(0, 10 * DROPPED) : members.slice(0, DROPPED)
    await this.#drop(projectId, dropped)
    if (old.length > 0) return
    metrics.deadNoticesDropped.inc(dropped.length)
    log.warn({ project_id: projectId, dropped: dropped.length }, 'oldest dead letters deleted')
  }

  /** Returns the index, the oldest letter first, and `old`: those at its start that have expired. */
  async #members(projectId: string): Promise<{ members: string[]; old: string[] }> {
    const { records, clock } = this.#parts
    const members = (await records.page(indexOf(projectId), { limit: MAX_LETTERS })).reverse()
    const expired = timestamp(clock.now() - TTL_MS)
    return { members, old: members.filter((member) => member < expired) }
  }

  async #drop(projectId: string, members: readonly string[]): Promise<void> {
    await this.#parts.records.write(
      members.flatMap((member) => [
        { remove: keyOf(projectId, member) },
        { index: indexOf(projectId), drop: member },
      ]),
    )
  }
}

const read = (value: Uint8Array): DeadLetter => JSON.parse(new TextDecoder().decode(value))
