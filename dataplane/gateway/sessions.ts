import type { Edge } from './edge.ts'
import type { KeyName } from './key-cache.ts'
import type { Session } from './session.ts'

/** Every session at this node, with or without a socket. */
export class Sessions {
  readonly #edge: Edge
  readonly #sessions = new Map<string, Session>()

  constructor(edge: Edge) {
    this.#edge = edge
  }

  get size(): number {
    return this.#sessions.size
  }

  [Symbol.iterator](): IterableIterator<Session> {
    return this.#sessions.values()
  }

  find(session_id: string): Session | undefined {
    return this.#sessions.get(session_id)
  }

  add(session: Session): void {
    this.#sessions.set(session.session_id, session)
  }

  /** The session has lost its connection and waits to be resumed, with its seats. */
  detach(session: Session): void {
    session.disconnect()
    this.#edge.detach(session)
  }

  /** The session is over: its members leave, and it cannot be resumed. Its connection, if any, is the caller's to close. */
  end(session: Session, reason: 'left' | 'session_ended'): void {
    if (!this.#sessions.delete(session.session_id)) return
    for (const seat of [...session.seats.values()]) this.#edge.giveUp(seat, reason)
  }

  /** Sessions whose token was issued under a key. */
  under({ project_id, key_id }: KeyName): Session[] {
    return [...this].filter(
      (session) => session.project_id === project_id && session.claims.key_id === key_id,
    )
  }

  /** Every key that some session depends on, once. */
  keys(): KeyName[] {
    const keys = new Map<string, KeyName>()
    for (const { project_id, claims } of this)
      keys.set(`${project_id}/${claims.key_id ?? ''}`, { project_id, key_id: claims.key_id })
    return [...keys.values()]
  }
}
