import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { expectClose, type TestClient } from '../../test/support/gateway/test-client.ts'
import { TestPair } from '../../test/support/gateway/test-pair.ts'
import { arrivedAt } from './rerouting.ts'

const NEARER = { nodeId: 'node_b', url: 'wss://play.example/node-b' }
const FEATURES = ['reroute']

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
  return client.received.filter(({ t }) => t === 'reroute').length
}

describe('a session whose rooms are at another node', () => {
  it('is told where, once they have been there for some seconds', async () => {
    const { client } = await pair.a.join('one', undefined, FEATURES)
    pair.nearer = NEARER
    expect(await toldAfter(2000, client)).toBe(0)
    expect(await toldAfter(4000, client)).toBe(1)
    expect(client.received.at(-2)).toEqual({ t: 'reroute', url: NEARER.url })
  })

  it('is not told while they come and go', async () => {
    const { client } = await pair.a.join('one', undefined, FEATURES)
    for (const nodeId of ['node_b', 'node_c', 'node_b', 'node_c']) {
      pair.nearer = { ...NEARER, nodeId }
      expect(await toldAfter(2000, client)).toBe(0)
    }
  })

  it('is told again when it has not gone, after a minute at the earliest, and ever less often', async () => {
    const { client } = await pair.a.join('one', await pair.a.token({}, 3_600_000), FEATURES)
    pair.nearer = NEARER
    expect(await toldAfter(6000, client)).toBe(1)
    expect(await toldAfter(100_000, client)).toBe(1)
    expect(await toldAfter(20_000, client)).toBe(2)
    expect(await toldAfter(200_000, client)).toBe(2)
    expect(await toldAfter(40_000, client)).toBe(3)
  })

  it('is never told when its client does not understand it, nor while it joins or is in no room', async () => {
    const { client: older } = await pair.a.join()
    const { client: idle } = await pair.a.hello(undefined, FEATURES)
    const { client: joining } = await pair.a.join('one', undefined, FEATURES)
    pair.owner.silent.add('join')
    const asked = pair.owner.next('join')
    joining.send({ t: 'join', ref: 2, room_type: 'arena', options: { key: 'two' } })
    await asked
    pair.nearer = NEARER
    expect(await toldAfter(6000, joining)).toBe(0)
    for (const client of [older, idle]) expect(await toldAfter(3000, client)).toBe(0)
  })

  it('is told nothing by a node that drains', async () => {
    const { client } = await pair.a.join('one', undefined, FEATURES)
    pair.nearer = NEARER
    const drained = pair.a.gateway.drain(60_000)
    expect(await toldAfter(5000, client)).toBe(0)
    client.ws.terminate()
    await pair.meanwhile(drained)
  })
})

describe('a session that goes where it was told', () => {
  /** A client that was told to go to node_b and has resumed there. `silent`: it sends nothing after `welcome`. */
  async function gone({ silent = false } = {}) {
    const { client, welcome, snapshot, joined } = await pair.a.join('one', undefined, FEATURES)
    pair.nearer = NEARER
    expect(await toldAfter(6000, client)).toBe(1)
    const room = { ...snapshot, member_id: joined.member_id }
    const next = await pair.b.open([], { autoPong: !silent })
    next.send({
      t: 'hello',
      project_id: 'prj_one',
      resume: { session_id: welcome.session_id, resume_token: welcome.resume_token, rooms: [room] },
      features: FEATURES,
    })
    await pair.meanwhile(next.next('welcome'))
    if (!silent) next.send({ t: 'ping', at: 1 })
    return { client, next }
  }

  it('hears nothing more on its old connection, which is closed when the new one has its welcome', async () => {
    const { client, next } = await gone()
    const heard = client.received.length
    client.send({ t: 'message', room_id: 'arena:one', type: 'move', data: null, ref: 2 })
    pair.owner.room('one').flush({ state: { count: 9 } })
    expect(await next.next('state.patch')).toMatchObject({ seq: 2 })
    await pair.meanwhile(expectClose(client, 'session_taken_over', /newer connection/))
    expect(client.received.slice(heard)).toEqual([])
    expect(pair.owner.of('message')).toEqual([])
    expect([...pair.owner.of('detach'), ...pair.owner.of('leave')]).toEqual([])
  })

  it('has five seconds for that, after which the rooms hear that it is not at the old node any more', async () => {
    const { client } = await gone({ silent: true })
    await pair.pass(4000, 1000)
    expect(pair.owner.of('detach')).toEqual([])
    const detached = pair.owner.next('detach')
    await pair.meanwhile(expectClose(client, 'session_taken_over', /newer connection/))
    await detached
    expect(pair.owner.of('leave')).toEqual([])
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
