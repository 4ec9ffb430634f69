import { RoomfulError } from './errors.ts'
import type { Credentials } from './tab.ts'

/** Credentials for resuming a session, and the meaning of a rejected resume. */
export class ResumeRight {
  #credentials: Credentials | undefined
  /** True if another page of the tab left the credentials and no resume has succeeded since. */
  #restored = false
  /** Resumes requested since the last welcome. */
  #unanswered = 0

  /** Current credentials. Undefined: the next hello starts a session. */
  get credentials(): Credentials | undefined {
    return this.#credentials
  }

  /** True if this page has used the session and therefore knows its token. */
  get ownSession(): boolean {
    return this.#credentials !== undefined && !this.#restored
  }

  /** Sets the credentials of a welcome, or of another page (`restored`). Undefined: the session is gone. */
  replace(credentials: Credentials | undefined, restored = false): void {
    this.#credentials = credentials
    this.#restored = restored
    this.#unanswered = 0
  }

  /** A hello with the credentials is being sent. */
  asked(): void {
    this.#unanswered += 1
  }

  /**
   * This client itself may have caused "taken over by a newer connection": an earlier resume succeeded, but its welcome with the next resume
   * token was lost. Then the session is unreachable, but no other client has it. If the session of another page is rejected, a new session
   * may still be accepted.
   */
  understand(error: RoomfulError): RoomfulError {
    const gone = (text: string) => new RoomfulError('resume_failed', text, { retryable: true, cause: error })
    if (this.#restored && !error.retryable) return gone(error.message)
    if (error.code !== 'session_taken_over' || this.#unanswered < 2) return error
    return gone('The session was resumed, but the answer was lost.')
  }
}
