import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

describe('joining', () => {
  it('answers the same join again, and refuses another of the same session', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann', { requestId: 5 })
    ann.state = null
    await bench.join('counter', 'ann', { requestId: 5 })
    expect(ann.state).toEqual({ count: 0, seen: ['ann'] })
    await bench.join('counter', 'ann', { requestId: 6 })
    expect(ann.errors).toMatchObject([{ code: 'already_joined', ref: 6 }])
    expect(bench.describe('counter')?.members).toHaveLength(1)
  })

  /** The edges that members' sockets are at, and how often a join was answered. */
  const answered = (bench: RoomBench) => ({
    edges: ['node_a', 'node_b'].filter((edge) => bench.host.rooms[0]!.hasMembersAt(edge)),
    joined: bench.sentOf('update').flatMap(({ joined }) => joined.map(({ member_id: id }) => id)),
  })

  it('is answered again with the same seat at the edge where the session has resumed', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann', { requestId: 5 })
    bench.detach('counter', ann)
    await bench.join('counter', 'ann', { requestId: 5, edge: 'node_b', turn: 1 })
    expect(answered(bench)).toEqual({ edges: ['node_b'], joined: ['ann', 'ann'] })
    expect(bench.describe('counter')?.members).toMatchObject([{ member_id: 'ann', connected: true }])
    // What the first edge still says is old.
    bench.detach('counter', ann)
    await bench.settle()
    expect(answered(bench).edges).toEqual(['node_b'])
  })

  it('is refused where the room may not be made, and others who wait for it are not', async () => {
    const bench = new RoomBench([counter()], { quota: { perMinute: 1 } })
    await bench.join('counter', 'ann', { sub: 'ann' })
    const eager = bench.askToJoin('counter', 'eager', { sub: 'ann', key: 'b', requestId: 7 })
    const bob = bench.askToJoin('counter', 'bob', { sub: 'bob', key: 'b' })
    await bench.settle()
    expect(eager.errors).toMatchObject([{ code: 'rate_limited', ref: 7 }])
    expect(bob.state).toEqual({ count: 0, seen: ['bob'] })
    expect(await bench.join('counter', 'eager', { sub: 'ann', key: 'b' })).toMatchObject({ inRoom: true })
  })

  it('is refused where the project may have no more rooms, also after a busy hour of those that it has', async () => {
    const { bench } = await roomWith(counter(), ['ann'], { quota: { maxRooms: 1 } })
    for (let minute = 1; minute <= 60; minute++) {
      bench.message('counter', 'ann', 'inc', { by: 1 }, minute)
      await bench.advance(60_000, 30_000)
    }
    expect(await bench.join('counter', 'bob', { key: 'b' })).toMatchObject({
      inRoom: false,
      errors: [{ code: 'project_full' }],
    })
  })

  // The record of a room that ended stays for a while, and those who were members may ask for it.
  it('is refused there also if it comes while someone looks for a room that has ended', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'], { quota: { maxRooms: 1 } })
    bench.send('counter', 'ann', { kind: 'leave', reason: 'left', request_id: 9 })
    await bench.advance(60_000, 1000)
    expect(await bench.join('counter', 'bob', { key: 'b' })).toMatchObject({ inRoom: true })
    bench.attach('counter', ann)
    const eve = bench.askToJoin('counter', 'eve')
    await bench.settle()
    expect(ann.errors).toMatchObject([{ code: 'no_seat' }])
    expect(eve.errors).toMatchObject([{ code: 'project_full' }])
  })

  it.each([
    ['options that do not fit', 'moon', 'invalid_options', /map:/],
    ['a create that throws', 'none', 'room_logic_failed', /^the room's logic failed$/],
    ['an onJoin that refuses', 'closed', 'room_logic_refused', /^this map is closed$/],
  ])('is refused for %s, and no room is left behind', async (_, map, code, message) => {
    const picky = defineRoom({
      type: 'picky',
      options: v.object({ map: v.picklist(['none', 'closed', 'open']) }),
      create: (options): { map: string } => {
        if (options.map === 'none') throw new Error('no such map')
        return options
      },
      onJoin(state, _member, ctx) {
        if (state.map === 'closed') ctx.refuse('this map is closed')
      },
    })
    const bench = new RoomBench([picky])
    const ann = await bench.join('picky', 'ann', { options: { map } })
    expect(ann.errors).toMatchObject([{ code, message: expect.stringMatching(message) }])
    await bench.advance(31_000, 1000)
    expect(bench.host.size).toBe(0)
    const eve = await bench.join('picky', 'eve', { options: { map: 'open' } })
    expect(eve.state).toEqual({ map: 'open' })
  })
})

describe('admit', () => {
  const gates: ((answer: string | undefined) => void)[] = []
  const guarded = defineRoom({
    type: 'guarded',
    maxMembers: 2,
    create: () => ({ here: 0 }),
    admit: (_member, options) => {
      if (options.now) return options.now === 'yes' ? undefined : 'not today'
      return new Promise<string | undefined>((answer) => gates.push(answer))
    },
    onJoin(state) {
      state.here++
    },
  })

  it('may refuse with a reason, at once or within five seconds', async () => {
    const bench = new RoomBench([guarded])
    const ann = await bench.join('guarded', 'ann', { options: { now: 'no' } })
    expect(ann.errors).toMatchObject([{ code: 'join_refused', message: 'not today' }])
    const bob = await bench.join('guarded', 'bob')
    expect(bob.errors).toEqual([])
    gates.shift()!('come back tomorrow')
    await bench.settle()
    expect(bob.errors).toMatchObject([{ code: 'join_refused', message: 'come back tomorrow' }])
    const eve = await bench.join('guarded', 'eve')
    await bench.advance(5000, 500)
    const message = expect.stringContaining('5 seconds')
    expect(eve.errors).toMatchObject([{ code: 'join_refused', message }])
    gates.shift()!(undefined)
    await bench.settle()
    expect(eve.inRoom).toBe(false)
  })

  /** In Colyseus and Nakama, a hook that decides on a join returns `false` to refuse it. */
  it.each<[string, unknown, string]>([
    ['false', false, 'false'],
    ['true', true, 'true'],
    ['null', null, 'null'],
    ['0', 0, '0'],
    ['an object', { ok: false }, 'an object with the keys ok'],
    ['a promise of false', Promise.resolve(false), 'false'],
  ])('that returns %s admits no one, and the log says what to return', async (_, answer, shown) => {
    const lines: string[] = []
    const log = pino({}, { write: (line) => void lines.push(line) })
    const room = defineRoom({ type: 'gate', create: () => ({ here: 0 }), admit: () => answer as never })
    const { bench, ann } = await roomWith(room, ['ann'], { log })
    expect([ann.inRoom, ann.errors]).toMatchObject([false, [{ code: 'room_logic_failed' }]])
    expect(bench.describe('gate')?.members ?? []).toEqual([])
    expect(lines.join('')).toContain(
      `admit returned ${shown}; return nothing to admit, or a text for the player to refuse`,
    )
  })

  it('is asked once about a join that comes again from the edge where its session has resumed', async () => {
    const bench = new RoomBench([guarded])
    await bench.join('guarded', 'ann', { requestId: 5 })
    await bench.join('guarded', 'ann', { requestId: 5, edge: 'node_b', turn: 1 })
    expect(gates).toHaveLength(1)
    gates.shift()!(undefined)
    await bench.settle()
    const room = bench.host.rooms[0]!
    expect([room.hasMembersAt('node_a'), room.hasMembersAt('node_b')]).toEqual([false, true])
    expect(bench.describe('guarded')?.state).toEqual({ here: 1 })
    expect(bench.sentOf('update').at(-1)?.joined).toMatchObject([{ member_id: 'ann', request_id: 5 }])
  })

  it('holds a place, so that joins at the same time respect maxMembers', async () => {
    const { bench, ann, bob, eve } = await roomWith(guarded, ['ann', 'bob', 'eve'])
    expect(eve.errors).toMatchObject([{ code: 'room_full' }])
    for (const gate of gates.splice(0)) gate(undefined)
    await bench.advance(100)
    expect([ann.inRoom, bob.inRoom, eve.inRoom]).toEqual([true, true, false])
    expect(bench.describe('guarded')?.state).toEqual({ here: 2 })
  })

  it('does not keep the others waiting, and ends with the session', async () => {
    const { bench, ann } = await roomWith(guarded, ['ann'])
    const bob = await bench.join('guarded', 'bob', { options: { now: 'yes' } })
    await bench.advance(100)
    expect([ann.inRoom, bob.inRoom]).toEqual([false, true])
    bench.send('guarded', 'ann', { kind: 'leave', reason: 'session_ended' })
    gates.shift()!(undefined)
    await bench.advance(100)
    expect(ann.inRoom).toBe(false)
    expect((await bench.join('guarded', 'eve', { options: { now: 'yes' } })).errors).toEqual([])
  })

  // The socket is lost while admit decides, and then its edge dies, so that no one tells of the session's end. A membership taken without a
  // socket from the start was never looked at again: the member stayed, and so did the room.
  it('does not keep the membership of a session that has ended meanwhile', async () => {
    const { bench, ann } = await roomWith(guarded, ['ann'], { limits: { detachedMs: 2000 } })
    bench.detach('guarded', ann)
    gates.shift()!(undefined)
    await bench.advance(100)
    expect(bench.describe('guarded')?.members).toMatchObject([{ member_id: 'ann', connected: false }])
    await bench.advance(3000, 100)
    expect(bench.describe('guarded')?.members).toEqual([])
  })
})

describe('leaving', () => {
  it('acks what came before, answers the leaver, and tells the others', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    bench.message('counter', 'bob', 'inc', { by: 2 }, 1)
    bench.send('counter', 'bob', { kind: 'leave', reason: 'left', request_id: 7 })
    await bench.settle()
    expect([bob.acked, bob.heard.at(-1), bob.inRoom]).toEqual([1, '-bob left', false])
    expect(ann.state).toEqual({ count: 2, seen: ['ann'] })
    expect(ann.heard.slice(-2)).toEqual(['bye 1', '-bob left'])
    expect(ann.members.map(({ member_id: memberId }) => memberId)).toEqual(['ann'])
    bench.message('counter', 'bob', 'inc', { by: 2 }, 2)
    expect(bob.errors).toMatchObject([{ code: 'no_seat' }])
  })

  it('by a kick brings what was for the member until then, then the farewell', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    await bench.say('counter', 'ann', 'out', { who: 'bob' })
    expect(bob.heard.slice(-2)).toEqual(['you_are_out null', '-bob kicked'])
    expect([bob.inRoom, bob.faults]).toEqual([false, []])
    expect([ann.heard.at(-1), ann.faults]).toEqual(['-bob kicked', []])
  })

  it('right after the join, in the same flush, is no news to the others', async () => {
    const { bench, ann } = await roomWith(counter({ rate: 10 }), ['ann'])
    await bench.advance(200)
    await bench.say('counter', 'ann', 'inc', { by: 1 })
    bench.askToJoin('counter', 'bob')
    bench.send('counter', 'bob', { kind: 'leave', reason: 'left', request_id: 3 })
    await bench.advance(200)
    expect(bench.members.get('bob')!.heard).toEqual([])
    expect(ann.heard.filter((news) => news.startsWith('+') || news.startsWith('-'))).toEqual([])
    expect([ann.state, ann.faults]).toEqual([{ count: 1, seen: ['ann'] }, []])
  })

  it('of everyone, by ctx.close, ends the room; the next join makes a new one', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    bench.message('counter', 'ann', 'inc', { by: 5 })
    bench.message('counter', 'bob', 'end', null, 1)
    bench.message('counter', 'bob', 'inc', { by: 5 }, 2)
    const eve = bench.askToJoin('counter', 'eve')
    await bench.settle()
    expect(ann.heard.slice(-2)).toEqual(['over null', '-ann closed'])
    expect(bob.heard.slice(-2)).toEqual(['over null', '-bob closed'])
    expect(bob.acked).toBe(1)
    expect(eve.state).toEqual({ count: 0, seen: ['eve'] })
    expect(bench.host).toMatchObject({ size: 1, members: 1 })
  })

  it('of a seat whose player is banned from the room type runs onLeave, and others see it as kicked', async () => {
    const left: string[] = []
    const { bench, bob } = await roomWith(
      { ...counter(), onLeave: (_, member) => void left.push((member as { id: string }).id) },
      ['ann', 'bob'],
    )
    bench.send('counter', 'ann', { kind: 'leave', reason: 'kicked' })
    await bench.settle()
    expect(left).toEqual(['ann'])
    expect(bob.heard.at(-1)).toBe('-ann kicked')
    expect(bench.host.members).toBe(1)
  })

  it('leaves nothing behind: an empty room is disposed of after its idle time, and its record forgotten', async () => {
    const { bench } = await roomWith(counter(), ['ann'])
    bench.send('counter', 'ann', { kind: 'leave', reason: 'session_ended' })
    await bench.advance(9000, 500)
    // It is not idle while a member is there, however silent.
    await bench.join('counter', 'bob')
    await bench.advance(60_000, 1000)
    expect(bench.host.size).toBe(1)
    bench.send('counter', 'bob', { kind: 'leave', reason: 'session_ended' })
    await bench.advance(9000, 500)
    expect(bench.host.size).toBe(1)
    await bench.advance(2000, 500)
    expect(bench.host).toMatchObject({ size: 0, members: 0 })
    const { rooms } = bench.store.store
    expect(await rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: null })
    const ann = await bench.join('counter', 'ann2')
    expect(ann.state).toEqual({ count: 0, seen: ['ann2'] })
  })
})

describe('coming back', () => {
  it('of members that asked for a state brings the same frame to all', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    ann.state = null
    bench.resync('counter', ann, 'checksum')
    bench.resync('counter', bob, 'sequence')
    const [first, second] = bench.sentOf('state')
    expect(ann.state).toEqual(bob.state)
    expect(first!.state['roomful.v1.msgpack']).toBe(second!.state['roomful.v1.msgpack'])
    expect(bench.counts).toMatchObject({ 'resync checksum': 1, 'resync sequence': 1 })
  })

  it('is possible for two minutes at most, when no one says that the session has ended', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.detach('counter', ann)
    await bench.advance(100_000, 1000)
    expect(bench.describe('counter')?.members).toMatchObject([{ connected: false }])
    await bench.advance(40_000, 1000)
    expect(bench.host.size).toBe(0)
    ann.heard.length = 0
    await bench.resume('counter', ann)
    expect(ann.heard).toEqual(['-ann session_ended: the connection was not back within 120 s: join again'])
    await bench.advance(120_000, 1000)
    await bench.resume('counter', ann)
    expect(ann.errors).toMatchObject([{ code: 'no_seat' }])
  })
})
