import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { readiness } from './health.ts'

const serving = {
  draining: () => false,
  leaseValid: () => true,
  clockWrong: () => undefined,
  clock: new FakeClock(),
}

describe('readiness', () => {
  it('has no reasons against it while the store answers', async () => {
    expect(await readiness({ ...serving, ping: async () => {} })()).toEqual([])
  })

  it('tells of a store that cannot be reached, of draining, of a lease that is lost, and of a wrong clock', async () => {
    const ready = readiness({
      ...serving,
      draining: () => true,
      ping: () => Promise.reject(new Error('no connection')),
      leaseValid: () => false,
      clockWrong: () => 'the clock of this process is 31 s ahead',
    })
    expect((await ready()).map((reason) => reason.code)).toEqual([
      'draining',
      'store_unavailable',
      'lease_lost',
      'clock_wrong',
    ])
  })

  it('asks a store that hangs only once, and gives up on it', async () => {
    const clock = new FakeClock()
    let asked = 0
    const ready = readiness({
      ...serving,
      clock,
      ping: () => {
        asked += 1
        return new Promise(() => {})
      },
    })
    const answers = [ready(), ready()]
    clock.advance(1000)
    expect(await Promise.all(answers)).toEqual(
      Array(2).fill([{ code: 'store_unavailable', detail: 'the store did not answer within 1000 ms' }]),
    )
    expect(asked).toBe(1)
  })

  it('asks again for a later question', async () => {
    const outcomes = [Promise.reject(new Error('no connection')), Promise.resolve()]
    const ready = readiness({ ...serving, ping: () => outcomes.shift()! })
    expect(await ready()).not.toEqual([])
    expect(await ready()).toEqual([])
  })
})
