import { describe, expect, it } from 'vitest'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { readiness } from './health.ts'

const serving = {
  draining: () => false,
  cordoned: () => false,
  leaseValid: () => true,
  clockWrong: () => undefined,
  clock: new FakeClock(),
}

describe('readiness', () => {
  it('has no reasons against it while the store answers', async () => {
    expect(await readiness({ ...serving, ping: async () => {} })()).toEqual([])
  })

  it.each([
    ['store_unreachable', undefined, 'the store cannot be reached'],
    ['store_full', 'OOM', 'the store has no memory left and refuses writes (OOM)'],
    ['store_refused', 'NOPERM', 'the store refuses commands (NOPERM)'],
  ])(
    'tells of draining, of a cordon, of the store (%s), of a lost lease, and of a wrong clock',
    async (code, reply, detail) => {
      const ready = readiness({
        ...serving,
        draining: () => true,
        cordoned: () => true,
        ping: () => Promise.reject(new StoreUnavailable('no', reply)),
        leaseValid: () => false,
        clockWrong: () => 'the clock of this process is 31 s ahead',
      })
      expect(await ready()).toEqual([
        { code: 'draining', detail: 'the node is draining' },
        { code: 'cordoned', detail: 'the node is cordoned: it takes no new rooms and sessions' },
        { code, detail },
        { code: 'lease_lost', detail: 'the lease of the node has run out' },
        { code: 'clock_wrong', detail: 'the clock of this process is 31 s ahead' },
      ])
    },
  )

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
      Array(2).fill([{ code: 'store_unreachable', detail: 'the store did not answer within 1000 ms' }]),
    )
    expect(asked).toBe(1)
  })

  it('asks again for a later question', async () => {
    const outcomes = [Promise.reject(new StoreUnavailable('no connection')), Promise.resolve()]
    const ready = readiness({ ...serving, ping: () => outcomes.shift()! })
    expect(await ready()).not.toEqual([])
    expect(await ready()).toEqual([])
  })
})
