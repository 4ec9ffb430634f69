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
  it('comes back to exactly what it missed: welcome, then the frames, then the ack', async () => {
    const { client, welcome, joined, snapshot } = await test.join()
    client.send({ t: 'message', room_id: joined.room_id, type: 'move', data: null, ref: 3 })
    await client.next('ack')
    await lose(client)
    const room = test.owner.room('one')
    room.flush({ state: { count: 10 }, events: [['hit', { by: 'bob' }]] })
    room.flush({ state: { count: 11 } })

    const again = await test.resume(welcome, [{ ...snapshot, seq: snapshot.seq + 1 }])
    await again.next('ack')

    expect(kinds(again)).toEqual(['welcome', ['state.patch', 3], ['event', 3], ['state.patch', 4], 'ack'])
    expect(again.received[0]).toMatchObject({
      session_id: welcome.session_id,
      resumed: true,
      rooms: [{ room_id: 'arena:one', resumed: true }],
    })
    expect(again.received.at(-1)).toEqual({ t: 'ack', room_id: 'arena:one', ref: 3 })
    room.flush({ state: { count: 12 } })
    expect(await again.next('state.patch')).toMatchObject({ seq: 5 })
  })

  it('gets a whole state when what it missed is gone', async () => {
    const { client, welcome, snapshot } = await test.join()
    await lose(client)
    test.owner.room('one').epoch = 2
    const again = await test.resume(welcome, [snapshot])
    expect(await again.next('welcome')).toMatchObject({ rooms: [{ room_id: 'arena:one', resumed: false }] })
    expect(await again.next('state.resync')).toMatchObject({ epoch: 2, seq: 1, state: { count: 0 } })
  })

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
    await again.next('state.patch', ({ room_id }) => room_id === 'arena:two')
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

  it('leaves the rooms it does not name, so that it can join them again', async () => {
    const { client, welcome } = await test.join()
    await lose(client)
    const again = await test.resume(welcome, [])
    expect(await again.next('welcome')).toMatchObject({ resumed: true, rooms: [] })
    expect(test.owner.of('leave')).toMatchObject([{ reason: 'left' }])
    again.send({ t: 'join', ref: 1, room_type: 'arena', options: { key: 'one' } })
    expect(await again.next('joined')).toMatchObject({ room_id: 'arena:one', ref: 1 })
  })

  it('is told which of the rooms it names it has no seat in', async () => {
    const { client, welcome, snapshot } = await test.join()
    const room = test.owner.room('one')
    await lose(client)
    room.members.clear()
    const again = await test.resume(welcome, [snapshot, { room_id: 'arena:never', epoch: 1, seq: 4 }])
    expect((await again.next('welcome')).rooms).toEqual([
      { room_id: 'arena:one', resumed: false },
      { room_id: 'arena:never', resumed: false },
    ])
    const errors = [await again.next('error'), await again.next('error')]
    expect(errors.map(({ code, room_id }) => [code, room_id]).sort()).toEqual([
      ['not_in_room', 'arena:never'],
      ['not_in_room', 'arena:one'],
    ])
  })

  it('gets a new resume token each time, and each works', async () => {
    let { client, welcome, snapshot } = await test.join()
    const seen = new Set<string>()
    for (let i = 0; i < 3; i++) {
      seen.add(welcome.resume_token)
      client.ws.terminate()
      client = await test.resume(welcome, [snapshot])
      welcome = await client.next('welcome')
    }
    expect(seen.size).toBe(3)
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

describe('a goodbye', () => {
  it('ends the session at once', async () => {
    const { client, welcome } = await test.join()
    const leaving = test.owner.next('leave')
    client.ws.close(1000)
    expect(await leaving).toMatchObject({ reason: 'left' })
    expect(test.owner.of('detach')).toHaveLength(0)
    await expectClose(await test.resume(welcome), 'resume_failed', /no such session/)
  })

  it('is not any other close', async () => {
    const { client, welcome } = await test.join()
    const detached = test.owner.next('detach')
    client.ws.close(1001)
    await detached
    await (await test.resume(welcome)).next('welcome')
  })
})

describe('a resume token', () => {
  it('that was used already is refused, and the newer connection keeps the session', async () => {
    const { client, welcome, snapshot } = await test.join()
    client.ws.terminate()
    const first = await test.resume(welcome, [snapshot])
    await first.next('welcome')
    await expectClose(await test.resume(welcome), 'session_taken_over', /used already/)
    await first.roundTrip()
  })

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

  it('that is wrong is refused, and does not disturb the session', async () => {
    const { client, welcome } = await test.hello()
    const wrong = { ...welcome, resume_token: 'x'.repeat(32) }
    await expectClose(await test.resume(wrong), 'resume_failed', /not its resume token/)
    await client.roundTrip()
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
