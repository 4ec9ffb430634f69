import { Problem } from '../problem.ts'
import { StoreUnavailable } from './port.ts'

const DETAILS = {
  store_unreachable: 'the store cannot be reached',
  store_full: 'the store has no memory left and refuses writes (OOM)',
  store_refused: 'the store refuses commands',
} as const

/** What a failed call of the store is called in answers over HTTP. `detail` is the part of a sentence. */
export function storeReason(error: unknown) {
  if (!(error instanceof StoreUnavailable))
    return { code: 'store_refused', detail: DETAILS.store_refused } as const
  const { failure: code, reply } = error
  return { code, detail: code === 'store_refused' ? `${DETAILS[code]} (${reply})` : DETAILS[code] } as const
}

/** Returns what a caller gets for a failed call of the store: a 503 whose code is the class of the failure. */
export function storeProblem(error: StoreUnavailable): Problem {
  const { code, detail } = storeReason(error)
  return new Problem(code, `The request needs the store, and ${detail}. Try again.`, {
    headers: { 'retry-after': '1' },
  })
}
