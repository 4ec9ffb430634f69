import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { expectClose, type TestClient } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'

let test: TestGateway
beforeEach(async () => {
  test = await TestGateway.start()
})
afterEach(() => test.close())

/** The client's network is gone, and the gateway knows. */
async function lose(client: TestClient): Promise<void> {
  const gone = test.owner.next('detach')
  client.ws.terminate()
  await gone
}

/** What a client got, without what differs from run to run. */
const kinds = (client: TestClient): unknown[] =>
  client.received.map((message) => ('seq' in message ? [message.t, message.seq] : message.t))

describe('a session that lost its socket', () => {
  it('gets no room frame before welcome, and misses none that comes while it waits', async () => {
    const one = await test.join('one')
    one.client.send({ t: 'join', ref: 2, room_type: 'arena', options: { key: 'two' } })
    const two = await one.client.next('state.snapshot')
    await lose(one.client)
    test.owner.room('one').flush({ state: { count: 1 } })
    test.owner.silent.add('attach')
    const attaching = test.owner.next('attach')
    const again = await test.resume(one.welcome, [one.snapshot, two])
    await attaching
    const [first, second] = test.owner.of('attach')
    // Not attached yet: what happens now is among what was missed.
    test.owner.room('one').flush({ state: { count: 2 }, events: [['hit', 2]] })
    test.owner.answer(first!)
    // Attached, but not welcome yet.
    test.owner.room('one').flush({ state: { count: 3 } })
    test.owner.answer(second!)
    test.owner.room('two').flush({ state: { count: 9 } })
    await again.next('state.patch', ({ room_id: roomId }) => roomId === 'arena:two')
    expect(kinds(again)).toEqual([
      'welcome',
      ['state.patch', 2],
      ['state.patch', 3],
      ['event', 3],
      ['state.patch', 4],
      ['state.patch', 2],
    ])
  })

  it('is welcomed after 2 seconds even when an owner does not answer, and gets the frames when it does', async () => {
    const { client, welcome, snapshot } = await test.join()
    await lose(client)
    test.owner.silent.add('attach')
    const attaching = test.owner.next('attach')
    const again = await test.resume(welcome, [snapshot])
    await attaching
    test.clock.advance(2000)
    expect(await again.next('welcome')).toMatchObject({ rooms: [{ room_id: 'arena:one', resumed: false }] })
    // Asked again in the meantime; one answer is enough.
    test.owner.answer(test.owner.of('attach').at(-1)!)
    test.owner.room('one').flush({ state: { count: 5 } })
    expect(await again.next('state.patch')).toMatchObject({ seq: 2 })
  })

  it('can come back with the same token when it was lost before welcome; only the last attach counts', async () => {
    const { client, welcome, snapshot } = await test.join()
    await lose(client)
    const room = test.owner.room('one')
    room.flush({ state: { count: 1 }, events: [['hit', 1]] })
    test.owner.silent.add('attach')
    let attaching = test.owner.next('attach')
    const second = await test.resume(welcome, [snapshot])
    await attaching
    await lose(second)
    attaching = test.owner.next('attach')
    const third = await test.resume(welcome, [snapshot])
    await attaching

    // The owner comes to the first attach, the loss, and the second attach only now, and the room goes on meanwhile.
    const [before, last] = test.owner.of('attach')
    test.owner.answer(before!)
    room.flush({ state: { count: 2 }, events: [['hit', 2]] })
    const { deliver } = test.owner
    test.owner.deliver = () => {}
    room.flush({ state: { count: 3 }, events: [['hit', 3]] })
    test.owner.deliver = deliver
    test.owner.answer(last!)

    await third.roundTrip()
    const missed = [2, 3, 4].flatMap((seq) => [
      ['state.patch', seq],
      ['event', seq],
    ])
    expect(kinds(third)).toEqual(['welcome', ...missed, 'pong'])
  })

  it('ends after the resume time, with its seats', async () => {
    const { client, welcome, snapshot } = await test.join()
    await lose(client)
    test.clock.advance(60_000)
    expect(test.owner.of('leave')).toHaveLength(0)
    const leaving = test.owner.next('leave')
    test.clock.advance(1000)
    expect(await leaving).toMatchObject({ reason: 'session_ended' })
    expect(test.gateway.sessions).toBe(0)
    await expectClose(await test.resume(welcome, [snapshot]), 'resume_failed', /no such session/)
  })
})

describe('a resume token', () => {
  it('lets one in when two use it at the same time', async () => {
    const { client, welcome, snapshot } = await test.join()
    client.ws.terminate()
    const both = await Promise.all([test.resume(welcome, [snapshot]), test.resume(welcome, [snapshot])])
    const winner = await Promise.race(both.map(async (client) => client.next('welcome').then(() => client)))
    await winner.roundTrip()
    // The other one was waiting for this: the winner has its welcome.
    test.clock.advance(100)
    const loser = both.find((client) => client !== winner)!
    await expectClose(loser, 'session_taken_over', /used already/)
    expect(loser.received).toEqual([])
    await winner.roundTrip()
  })

  it('takes a live connection over', async () => {
    const { client, welcome, snapshot } = await test.join()
    const newer = await test.resume(welcome, [snapshot])
    await expectClose(client, 'session_taken_over', /newer connection/)
    // Its seats are attached where they are: nobody saw the player leave.
    expect(test.owner.of('leave')).toHaveLength(0)
    expect(await newer.next('welcome')).toMatchObject({ rooms: [{ room_id: 'arena:one', resumed: true }] })
    test.owner.room('one').flush({ state: { count: 1 } })
    expect(await newer.next('state.patch')).toMatchObject({ seq: 2 })
  })

  it('is good while control is away, when the key was good lately', async () => {
    const { client, welcome } = await test.join()
    await lose(client)
    test.control.down = true
    test.clock.advance(59_000)
    const again = await test.resume(welcome)
    await again.next('welcome')
  })
})
