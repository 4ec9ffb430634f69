import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Context } from 'hono'

/** About so many characters are put together in one turn of the event loop: less than a millisecond of work. */
const SLICE = 32_768

/**
 * Answers with JSON that is put together piece by piece. What does not fit into one slice is made as it is sent, a slice in each turn of the
 * event loop, and only as fast as it is read: whatever else the node does goes on in between. `pieces` is not asked for more once the reader
 * has gone. Throws what the first of them throws. When a later one does, the answer has begun: its connection breaks, and `on_break` is told.
 */
export function answerInSlices(
  c: Context,
  pieces: Iterable<string>,
  on_break: (error: unknown) => void,
): Response {
  const slices = slicesOf(pieces)
  const first = slices.next()
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' }
  if (first.done || first.value.length < SLICE) return c.body(first.value ?? '', 200, headers)
  const encoder = new TextEncoder()
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(encoder.encode(first.value)),
    async pull(controller) {
      await nextTurn()
      try {
        const next = slices.next()
        if (next.done) controller.close()
        else controller.enqueue(encoder.encode(next.value))
      } catch (error) {
        on_break(error)
        throw error
      }
    },
    cancel: () => void slices.return(undefined),
  })
  return c.body(body, 200, headers)
}

function* slicesOf(pieces: Iterable<string>): Generator<string, undefined> {
  let slice = ''
  for (const piece of pieces) {
    slice += piece
    if (slice.length < SLICE) continue
    yield slice
    slice = ''
  }
  if (slice !== '') yield slice
}
