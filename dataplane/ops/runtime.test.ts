import { setImmediate as nextTurn } from 'node:timers/promises'
import { Hono } from 'hono'
import { describe, expect, it } from 'vitest'
import { answerInSlices } from './runtime.ts'

const PIECE = 'x'.repeat(8192)
/** Of these pieces, so many make a slice. */
const A_SLICE = 4

/** Answers with so many pieces, the last of which may be a failure; `made` tells how many of them were asked for. */
function ask(pieces: number, failure?: Error) {
  const seen = { made: 0, broke: [] as unknown[] }
  const app = new Hono().onError((_, c) => c.body(null, 500))
  app.get('/', (c) =>
    answerInSlices(
      c,
      (function* () {
        for (; seen.made < pieces; seen.made++) yield PIECE
        if (failure) throw failure
      })(),
      (error) => seen.broke.push(error),
    ),
  )
  return { seen, response: Promise.resolve(app.request('/')) }
}

describe('an answer in slices', () => {
  it('lets whatever else there is to do have its turn after each', async () => {
    const { seen, response } = ask(200)
    let before = 0
    let most = 0
    let goingOn = true
    const others = (async () => {
      while (goingOn) {
        await nextTurn()
        most = Math.max(most, seen.made - before)
        before = seen.made
      }
    })()
    const text = await (await response).text()
    goingOn = false
    await others
    expect(text.length).toBe(200 * PIECE.length)
    expect(most).toBeGreaterThan(0)
    expect(most).toBeLessThanOrEqual(A_SLICE)
  })

  it('is made no faster than it is read, and no further when the reader has gone', async () => {
    const { seen, response } = ask(200)
    const reader = (await response).body!.getReader()
    await reader.read()
    for (let turn = 0; turn < 50; turn++) await nextTurn()
    const made = seen.made
    expect(made).toBeLessThanOrEqual(3 * A_SLICE)
    await reader.cancel()
    for (let turn = 0; turn < 50; turn++) await nextTurn()
    expect(seen.made).toBe(made)
  })

  it('breaks off where a piece cannot be made, and says so', async () => {
    const failure = new Error('a room that cannot be described')
    const { seen, response } = ask(200, failure)
    await expect((await response).text()).rejects.toThrow()
    expect(seen).toEqual({ made: 200, broke: [failure] })
    // Nothing of a smaller one has gone out yet.
    const small = ask(2, failure)
    expect([(await small.response).status, small.seen.broke]).toEqual([500, []])
  })

  it('is whole at once when it is small', async () => {
    const { response } = ask(2)
    const answer = await response
    expect(await answer.text()).toBe(PIECE + PIECE)
    expect(answer.headers.get('content-type')).toBe('application/json')
  })
})
