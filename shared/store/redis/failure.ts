import { StoreUnavailable } from '../port.ts'
import type { Endpoint } from './address.ts'

/** Replies of a server that is there but cannot serve now: loading, failing over, out of memory, blocked, or a replica. */
const CANNOT_SERVE =
  /\b(LOADING|READONLY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|UNKILLABLE)\b/

/** Replies of a Cluster that did not run a command which it may well run a moment later. */
const LATER = /^(CLUSTERDOWN|TRYAGAIN|LOADING)\b/

/** `MOVED 3999 127.0.0.1:6381`; the host is empty when it is the one that was asked. */
const ELSEWHERE = /^(MOVED|ASK) (\d+) (.*):(\d+)$/

/** A command that certainly did not run, and why: so it may be sent again. */
export class NotRun extends StoreUnavailable {
  /**
   * `unsent`: there was no connection to send it by. `later`: the Cluster is busy with itself. `moved`: its slot is at another server
   * for good. `asking`: its key may be at another server, for this once.
   */
  readonly why: 'unsent' | 'later' | 'moved' | 'asking'
  /** The other server, where the reply names one. */
  readonly at: Endpoint | undefined

  constructor(message: string, why: NotRun['why'], at?: Endpoint) {
    super(message)
    this.why = why
    this.at = at
  }
}

/**
 * What callers of the store get for an error of the client library. Only its message is kept: the library hangs the whole
 * command on its errors, and so passwords and payloads, which must reach no log.
 */
export function storeFailure(operation: string, error: unknown): Error {
  const reason = error instanceof Error ? error.message : String(error)
  const refused = error instanceof Error && error.name === 'ReplyError'
  if (!refused) return new StoreUnavailable(`the store gave no answer to ${operation}: ${reason}`)
  const [, how, , host = '', port] = ELSEWHERE.exec(reason) ?? []
  if (how !== undefined) {
    const why = how === 'ASK' ? 'asking' : 'moved'
    return new NotRun(`the store moved the key of ${operation}: ${reason}`, why, { host, port: Number(port) })
  }
  const cannot = `the store cannot serve ${operation} now: ${reason}`
  if (LATER.test(reason)) return new NotRun(cannot, 'later')
  if (CANNOT_SERVE.test(reason)) return new StoreUnavailable(cannot)
  return new Error(`the store refused ${operation}: ${reason}`)
}
