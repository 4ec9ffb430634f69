import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { expectClose, type TestClient } from '../../test/support/gateway/test-client.ts'
import { TestPair } from '../../test/support/gateway/test-pair.ts'
import { arrivedAt } from './rerouting.ts'

const NEARER = { nodeId: 'node_b', url: 'wss://play.example/node-b' }

let pair: TestPair
beforeEach(async () => {
  pair = await TestPair.start()
})
afterEach(() => pair.close())

/** How often a client was told to go elsewhere, `ms` from now. */
async function toldAfter(ms: number, client: TestClient): Promise<number> {
  await pair.pass(ms, 1000)
  // What was written to the store meanwhile is answered, and then sent.
  await pair.meanwhile(client.roundTrip())
  return client.received.filter(({ t }) => t === 'move').length
}

describe('a session whose rooms are at another node', () => {
  it('is told where, once they have been there for some seconds', async () => {
    const { client } = await pair.a.join('one')
    pair.nearer = NEARER
    expect(await toldAfter(2000, client)).toBe(0)
    expect(await toldAfter(4000, client)).toBe(1)
    expect(client.received.at(-2)).toEqual({ t: 'move', in_ms: 0, url: NEARER.url })
  })

  it('is not told while they come and go', async () => {
    const { client } = await pair.a.join('one')
    for (const nodeId of ['node_b', 'node_c', 'node_b', 'node_c']) {
      pair.nearer = { ...NEARER, nodeId }
      expect(await toldAfter(2000, client)).toBe(0)
    }
  })

  it('is told again when it has not gone, after a minute at the earliest, and ever less often', async () => {
    const { client } = await pair.a.join('one', await pair.a.token({}, 3_600_000))
    pair.nearer = NEARER
    expect(await toldAfter(6000, client)).toBe(1)
    expect(await toldAfter(100_000, client)).toBe(1)
    expect(await toldAfter(20_000, client)).toBe(2)
    expect(await toldAfter(200_000, client)).toBe(2)
    expect(await toldAfter(40_000, client)).toBe(3)
  })

  it('is not told while it joins or is in no room', async () => {
    const { client: idle } = await pair.a.hello(undefined)
    const { client: joining } = await pair.a.join('one')
    pair.owner.silent.add('join')
    const asked = pair.owner.next('join')
    joining.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    await asked
    pair.nearer = NEARER
    expect(await toldAfter(6000, joining)).toBe(0)
    expect(await toldAfter(3000, idle)).toBe(0)
  })

  it('is only told to leave by a node that drains', async () => {
    const { client } = await pair.a.join('one')
    pair.nearer = NEARER
    const drained = pair.a.gateway.drain(60_000)
    expect(await toldAfter(5000, client)).toBe(1)
    expect(client.received.find(({ t }) => t === 'move')).not.toHaveProperty('url')
    client.ws.terminate()
    await pair.meanwhile(drained)
  })
})

describe('a session that goes where it was told', () => {
  /** A client that was told to go to node_b and has resumed there. `drain`: because node_a drains. */
  async function gone({ drain = false } = {}) {
    const { client, welcome, snapshot, joined } = await pair.a.join('one')
    let drained: Promise<void> | undefined
    if (drain) drained = pair.a.gateway.drain(60_000)
    else pair.nearer = NEARER
    expect(await toldAfter(6000, client)).toBe(1)
    const next = await pair.b.resume(welcome, [{ ...snapshot, member_id: joined.member_id }])
    await next.next('welcome')
    next.send({ t: 'ping', at: 1 })
    return { client, next, memberId: joined.member_id, drained }
  }

  it.each([false, true])(
    'hears nothing more on its old connection, which ends after five seconds (drain: %s)',
    async (drain) => {
      const { client, next, memberId } = await gone({ drain })
      const heard = client.received.length
      client.send({ t: 'message', room_id: 'arena:one', type: 'move', data: null, ref: 1, settled: 0 })
      pair.owner.room('one').flush({ state: { count: 9 } })
      expect(await next.next('state.patch')).toMatchObject({ seq: 2 })
      await pair.pass(4000, 1000)
      expect(client.ws.readyState).toBe(client.ws.OPEN)
      await pair.meanwhile(expectClose(client, 'session_taken_over', /newer connection/))
      expect(client.received.slice(heard)).toEqual([])
      expect(pair.owner.of('message')).toEqual([])
      // Of no effect at an owner that knows that the member is at node_b.
      expect(pair.owner.of('detach')).toMatchObject([{ member_id: memberId, moves: true }])
      expect(pair.owner.of('leave')).toEqual([])
    },
  )

  it('ends the drain of its old node when it closes the old connection', async () => {
    const { client, next, drained } = await gone({ drain: true })
    client.ws.close()
    await drained
    await next.roundTrip()
    expect(pair.b.gateway.sessions).toBe(1)
  })

  it('is not told again for a minute, wherever its rooms go', async () => {
    const { next } = await gone()
    pair.nearer = { ...NEARER, nodeId: 'node_c' }
    expect(await toldAfter(40_000, next)).toBe(0)
  })
})

it('a session that turns up elsewhere than it was sent has failed, and one that was not sent has not', () => {
  expect(arrivedAt('node_b', { at: 1, failures: 2, to: 'node_b' })).toEqual({ at: 1, failures: 0 })
  expect(arrivedAt('node_c', { at: 1, failures: 2, to: 'node_b' })).toEqual({ at: 1, failures: 3 })
  expect(arrivedAt('node_c', { at: 1, failures: 2 })).toBe(undefined)
})
