import type { Clock } from '../../shared/clock.ts'
import type { Store } from '../../shared/store/port.ts'
import { NOTICE_PARTS } from '../../shared/store/rules.ts'
import type { DeadLetter, DeadLetters } from './dead-letters.ts'
import type { NoticeBody } from './notice.ts'
import { attemptOf, type PostNotice } from './webhook.ts'

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

/** Dependencies of NoticeOperations. */
interface NoticeOperationsParts {
  readonly notices: Pick<Store['notices'], 'rooms' | 'count' | 'drop'>
  readonly deadLetters: Pick<DeadLetters, 'page' | 'oldest' | 'remove' | 'removeAll'>
  readonly post: PostNotice
  readonly clock: Clock
}

/** Rooms with notices that are counted in each part. */
const COUNTED_ROOMS = 1000
/** Dead letters that one call resends, and milliseconds after which it resends no more. */
const RESENT = 100
const RESEND_MS = 5000

/** The notices of projects, for operators. */
export class NoticeOperations {
  readonly #parts: NoticeOperationsParts

  constructor(parts: NoticeOperationsParts) {
    this.#parts = parts
  }

  /** Describes the notices of a project, with one page of its dead letters. Rejects with `StoreUnavailable`. */
  async describe(projectId: string, limit: number, cursor?: string): Promise<NoticesDescription> {
    const { deadLetters } = this.#parts
    const [pending, { letters, next }] = await Promise.all([
      this.#pending(projectId),
      deadLetters.page(projectId, limit, cursor),
    ])
    return {
      pending,
      dead_letters: letters.map(({ id, body, died_at, reason }) => ({
        id,
        ...(JSON.parse(body) as NoticeBody),
        died_at,
        reason,
      })),
      next_cursor: next ?? null,
    }
  }

  /**
   * Sends dead letters of a project again, the oldest first, and deletes those that the backend accepts. `id`: only the one of this notice. Rejects
   * with `StoreUnavailable`.
   */
  async resend(projectId: string, id?: string): Promise<ResendResult> {
    const { deadLetters, post, clock } = this.#parts
    const until = clock.monotonic() + RESEND_MS
    const { signal: never } = new AbortController()
    let delivered = 0
    for (const letter of await deadLetters.oldest(projectId, RESENT, id)) {
      const result = await attemptOf(post, letter, never)
      if (result.is !== 'delivered') return { delivered, failed: { id: letter.id, reason: result.reason } }
      await deadLetters.remove(projectId, letter)
      delivered++
      if (clock.monotonic() > until) break
    }
    return { delivered }
  }

  /** Deletes all notices and dead letters of a project that has no rooms. Rejects with `StoreUnavailable`. */
  async removeAll(projectId: string): Promise<void> {
    const { notices, deadLetters } = this.#parts
    for (let part = 0; part < NOTICE_PARTS; part++) {
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
    await deadLetters.removeAll(projectId)
  }

  async #pending(projectId: string): Promise<NoticesDescription['pending']> {
    const { notices } = this.#parts
    const parts = Array.from({ length: NOTICE_PARTS }, (_, part) => notices.rooms(part, COUNTED_ROOMS))
    const rooms = (await Promise.all(parts)).flat().filter((room) => room.startsWith(`${projectId}/`))
    const counts = await Promise.all(rooms.map((room) => notices.count(room)))
    return {
      rooms: counts.filter((count) => count > 0).length,
      notices: counts.reduce((sum, count) => sum + count, 0),
    }
  }
}
