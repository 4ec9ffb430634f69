import { StoreUnavailable } from '../port.ts'

/** Replies of a server that is there but cannot serve now: loading, failing over, out of memory, blocked, or a replica. */
const CANNOT_SERVE =
  /\b(LOADING|READONLY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|UNKILLABLE)\b/

/**
 * What callers of the store get for an error of the client library. Only its message is kept: the library hangs the whole
 * command on its errors, and so passwords and payloads, which must reach no log.
 */
export function storeFailure(operation: string, error: unknown): Error {
  const reason = error instanceof Error ? error.message : String(error)
  const refused = error instanceof Error && error.name === 'ReplyError'
  if (!refused) return new StoreUnavailable(`the store gave no answer to ${operation}: ${reason}`)
  if (CANNOT_SERVE.test(reason))
    return new StoreUnavailable(`the store cannot serve ${operation} now: ${reason}`)
  return new Error(`the store refused ${operation}: ${reason}`)
}
