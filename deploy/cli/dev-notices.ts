import type { NoticeBody, PostNotice } from '../../dataplane/features/notices/notice.ts'
import type { ShownNotice } from './dev-routes.ts'

/** Number of notices that are kept. */
const MOST_SHOWN = 200

/** Keeps the latest notices for the playground, with the answer of the backend. */
export class ShownNotices {
  /** By id, the oldest first. */
  readonly #shown = new Map<string, ShownNotice>()

  /** Latest notices, the newest first. */
  get latest(): readonly ShownNotice[] {
    return [...this.#shown.values()].reverse()
  }

  /** Returns a function that sends notices with `post`, and keeps them. */
  through(post: PostNotice): PostNotice {
    return async (notice, signal) => {
      const { type, room_id, data } = JSON.parse(notice.body) as NoticeBody
      const keep = (answer: string): void => {
        this.#shown.set(notice.id, { id: notice.id, room_id, type, data, answer })
        const [oldest] = this.#shown.keys()
        if (this.#shown.size > MOST_SHOWN && oldest !== undefined) this.#shown.delete(oldest)
      }
      try {
        const answer = await post(notice, signal)
        keep(String(answer.status))
        return answer
      } catch (error) {
        keep((error as Error).message)
        throw error
      }
    }
  }
}
