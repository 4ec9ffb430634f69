import { RoomfulError } from './errors.ts'
import type { Credentials } from './tab.ts'

/** What a session is resumed by, and what it means when that is refused. */
export class ResumeRight {
  #credentials: Credentials | undefined
  /** Whether they are those that another page of the tab has left, and were not welcome since. */
  #restored = false
  /** Resumes asked for since the last welcome. */
  #unanswered = 0

  /** Undefined: the next hello starts a session. */
  get credentials(): Credentials | undefined {
    return this.#credentials
  }

  /** Whether the session has been this page's: its token is known then. */
  get ownSession(): boolean {
    return this.#credentials !== undefined && !this.#restored
  }

  /** Those of a welcome; `restored`: of another page; undefined: the session is gone. */
  replace(credentials: Credentials | undefined, restored = false): void {
    this.#credentials = credentials
    this.#restored = restored
    this.#unanswered = 0
  }

  /** A hello with them goes out. */
  asked(): void {
    this.#unanswered += 1
  }

  /**
   * "Taken over by a newer connection" may be this client's own doing: an earlier resume took place, but its welcome, with the next
   * resume token, was lost on the way. Then the session is out of reach, but no one else has it. And whatever the session of another page
   * is refused for, a new one may be let in.
   */
  understand(error: RoomfulError): RoomfulError {
    const gone = (text: string) => new RoomfulError('resume_failed', text, { retryable: true, cause: error })
    if (this.#restored && (!error.retryable || error.code === 'token_expired')) return gone(error.message)
    if (error.code !== 'session_taken_over' || this.#unanswered < 2) return error
    return gone('The session was resumed, but the answer was lost.')
  }
}
