import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { RoomOwner } from '../../shared/store/port.ts'
import { HERE, ROOM, RouterBench, THERE } from '../../test/support/router-bench.ts'
import { Inbox } from '../inbox.ts'
import { nowhere } from '../place.ts'
import { type Arrival, roomAddress, type ToEdge, type ToOwner } from '../traffic.ts'

const NAME = ROOM.name
const ELSEWHERE = 'node_elsewhere'

const join = (memberId = 'mem_a', requestId = 1): ToOwner => ({
  kind: 'join',
  room: ROOM,
  member_id: memberId,
  request_id: requestId,
  edge: HERE,
  turn: 0,
  codec: 'roomful.v1.json',
  session_id: `ses_${memberId}`,
  sub: null,
  principal: 'token',
  options: {},
})
const message = (ref: number): ToOwner => ({
  kind: 'message',
  room: ROOM,
  member_id: 'mem_a',
  type: 'strike',
  data: {},
  ref,
})
const leave: ToOwner = { kind: 'leave', room: ROOM, member_id: 'mem_a', reason: 'left' }
const detach: ToOwner = { kind: 'detach', room: ROOM, member_id: 'mem_a' }
const redirect = (owner: string | null, epoch = 0): ToEdge => ({ room: ROOM, epoch, kind: 'redirect', owner })
const spoken = (epoch: number): ToEdge => ({ room: ROOM, epoch, kind: 'no_seat', member_id: 'mem_other' })

const ownedBy = (owner: string | null, epoch = 7): RoomOwner => ({ epoch, version: 3, owner })

const inboxOf = (...arrivals: Arrival[]): Inbox => {
  const inbox = new Inbox(10)
  for (const arrival of arrivals) inbox.add(arrival)
  return inbox
}

describe('Router', () => {
  let bench: RouterBench
  let { clock, host, records, subscribed, dead, sent, delivered, failures, reasons, router } =
    new RouterBench()

  beforeEach(() => {
    bench = new RouterBench()
    ;({ clock, host, records, subscribed, dead, sent, delivered, failures, reasons, router } = bench)
  })

  /** The owner at the node `from` sends a message to the edge of this node. */
  const hear = (message: ToEdge, from: string): void => router.receive({ to: 'edge', message }, from)

  /** The route to the room leads to `owner`. */
  const routeTo = async (owner: string): Promise<void> => {
    router.send(join())
    await records.answer(ownedBy(owner))
    sent.length = 0
  }

  describe('a message of an edge of this node', () => {
    it('goes to the room when that runs here, and no one is asked', () => {
      host.running.add(NAME)
      router.send(message(1))
      expect(host.received).toEqual([{ message: message(1), from: HERE }])
      expect(records.asked).toEqual([])
    })

    it('goes to the owner that the record names, and so do all that follow, without another question', async () => {
      router.send(join())
      expect(sent).toEqual([])
      await records.answer(ownedBy(THERE))
      router.send(message(1))
      expect(sent).toEqual([
        { to: THERE, message: { to: 'owner', message: join() } },
        { to: THERE, message: { to: 'owner', message: message(1) } },
      ])
      expect(records.asked).toEqual([NAME])
    })

    it('goes to a live owner, whose lease is not read', async () => {
      bench.known.add(THERE)
      router.send(join())
      await records.answer(ownedBy(THERE))
      expect(sent).toEqual([{ to: THERE, message: { to: 'owner', message: join() } }])
      expect(bench.judged).toEqual([])
    })

    it('waits behind what came before it while the owner is looked for', async () => {
      router.send(join())
      router.send(message(1))
      router.send(message(2))
      await records.answer(ownedBy(THERE))
      expect(records.asked).toEqual([NAME])
      const waited = [join(), message(1), message(2)]
      expect(sent.map((one) => one.message)).toEqual(waited.map((message) => ({ to: 'owner', message })))
    })

    it('is not kept without bound: of messages the first 1000 wait, the others are counted, and every join waits beside them', async () => {
      router.send(join())
      for (let ref = 1; ref <= 1200; ref++) router.send(message(ref))
      router.send(join('mem_b'))
      await records.answer(ownedBy(THERE))
      expect(sent).toHaveLength(1002)
      expect(sent.at(-1)!.message).toEqual({ to: 'owner', message: join('mem_b') })
      expect(bench.full).toHaveLength(200)
    })

    it('about a room that the store may have lost goes back to its edge, and the room is looked for again', async () => {
      bench.storeIsBehind = true
      router.send(message(4))
      await records.answer(undefined)
      expect(delivered).toEqual([{ edge: HERE, message: redirect(null) }])
      router.send(message(4))
      await records.answer(ownedBy(THERE))
      expect(sent).toEqual([{ to: THERE, message: { to: 'owner', message: message(4) } }])
    })

    it('about a room that is nowhere is answered: who asks is no member of it', async () => {
      router.send(message(4))
      router.send(detach)
      await records.answer(undefined)
      expect(delivered).toEqual([
        { edge: HERE, message: { room: ROOM, epoch: 0, kind: 'no_seat', member_id: 'mem_a' } },
      ])
      expect(host.opened).toEqual([])
    })
  })

  describe('a room that has no living owner', () => {
    it('is opened here for a join, with all that waited', async () => {
      router.send(join())
      router.send(message(1))
      await records.answer(undefined)
      expect(reasons).toEqual(['create'])
      expect(host.opened).toEqual([
        [
          { message: join(), from: HERE },
          { message: message(1), from: HERE },
        ],
      ])
    })

    it('is claimed for a join without an inspect, if it would be made here', async () => {
      bench.types.set(HERE, { [ROOM.roomType]: 1 })
      router.send(join())
      router.send(message(1))
      await records.turn()
      expect([records.asked, bench.claimed]).toMatchObject([[], [{ creator: 'token', seen: undefined }]])
      expect(host.opened).toMatchObject([[{ message: join() }, { message: message(1) }]])
    })

    it('is refused to the first join only, if that may not make it, and the next join gets it', async () => {
      bench.types.set(HERE, { [ROOM.roomType]: 1 })
      const { claims } = bench
      vi.spyOn(claims, 'claim').mockResolvedValueOnce(nowhere('project_full', 'the project has 1 rooms'))
      router.send(join('mem_a', 1))
      router.send(join('mem_b', 2))
      router.send(join('mem_c', 3))
      await records.turn()
      expect(delivered).toMatchObject([{ message: { kind: 'refused', member_id: 'mem_a' } }])
      expect(host.opened).toMatchObject([[{ message: join('mem_b', 2) }, { message: join('mem_c', 3) }]])
    })

    it('gets an inspect, if the join may not make it or another node would', async () => {
      bench.types.set(HERE, { [ROOM.roomType]: 1 })
      router.send({ ...join(), create: false } as ToOwner)
      await records.answer(undefined)
      bench.chosen = THERE
      host.running.clear()
      router.send(join())
      await records.answer(undefined)
      expect([records.asked, bench.claimed]).toMatchObject([[NAME, NAME], [{ creator: undefined }]])
    })

    it('goes on to its owner, if the claim finds one', async () => {
      bench.types.set(HERE, { [ROOM.roomType]: 1 })
      bench.place = { at: 'node', nodeId: THERE }
      router.send(join())
      await records.turn()
      router.send(message(1))
      expect(sent.map(({ to, message: { to: role } }) => [to, role])).toEqual([
        [THERE, 'owner'],
        [THERE, 'owner'],
      ])
    })

    it('is opened at the node that placement chooses, which then has what follows', async () => {
      bench.chosen = THERE
      router.send(join())
      await records.answer(undefined)
      router.send(message(1))
      expect(sent).toEqual([
        { to: THERE, message: { to: 'opener', message: join() } },
        { to: THERE, message: { to: 'owner', message: message(1) } },
      ])
    })

    it('is taken from a dead owner, also for those who are in it already', async () => {
      dead.add(THERE)
      router.send(message(1))
      await records.answer(ownedBy(THERE))
      expect(reasons).toEqual(['take_over'])
      expect(host.opened).toEqual([[{ message: message(1), from: HERE }]])
    })

    it('is opened here when the record says that it is here', async () => {
      bench.chosen = ELSEWHERE
      router.send(message(1))
      await records.answer(ownedBy(HERE))
      expect(host.opened).toHaveLength(1)
      expect(reasons).toEqual([])
    })

    it('goes elsewhere when the record says that it is here, and this node takes none any more', async () => {
      bench.chosen = ELSEWHERE
      host.accepts = false
      router.send(message(1))
      await records.answer(ownedBy(HERE))
      expect(sent).toEqual([{ to: ELSEWHERE, message: { to: 'opener', message: message(1) } }])
    })

    it('is refused to joins as overloaded when no node can take it', async () => {
      bench.chosen = undefined
      router.send(join('mem_a', 5))
      router.send(message(1))
      await records.answer(ownedBy(null))
      expect(delivered.map(({ message: answer }) => answer)).toEqual([
        expect.objectContaining({ kind: 'refused', member_id: 'mem_a', request_id: 5, code: 'overloaded' }),
        redirect(null),
      ])
    })
  })

  describe('a room whose state is of a newer version', () => {
    const newer: RoomOwner = { ...ownedBy(null), stateVersion: 2 }
    const refused = {
      kind: 'refused',
      code: 'room_unavailable',
      message: expect.stringContaining('version 2'),
    }
    const types = { [ROOM.roomType]: 1 }

    it('is opened at a node that has the code, also when another says that it is here', async () => {
      bench.types.set(HERE, types)
      bench.types.set(THERE, { [ROOM.roomType]: 2 })
      bench.chosen = THERE
      router.send(join())
      await records.answer({ ...newer, owner: HERE })
      expect(sent).toEqual([{ to: THERE, message: { to: 'opener', message: join() } }])
    })

    it.each([HERE, THERE])(
      'is refused as long as no node has the code, and opened by none (asked by %s)',
      async (edge) => {
        bench.types.set(HERE, types)
        bench.chosen = undefined
        bench.place = nowhere('newer', 'the code of its room type is too old here')
        router.send(join(), edge)
        await records.turn()
        await records.answer(newer)
        expect(delivered).toMatchObject([{ edge, message: refused }])
        expect([host.opened, sent]).toEqual([[], []])
      },
    )
  })

  it('refuses joins as room_unavailable when the store is silent, and asks again for the next', async () => {
    router.send(join('mem_a', 5))
    router.send(message(1))
    await records.fail()
    expect(delivered).toEqual([
      {
        edge: HERE,
        message: expect.objectContaining({
          kind: 'refused',
          request_id: 5,
          code: 'room_unavailable',
          epoch: 0,
        }),
      },
      { edge: HERE, message: redirect(null) },
    ])
    expect(failures).toEqual([NAME])
    router.send(join())
    await records.answer(ownedBy(THERE))
    expect(sent).toHaveLength(1)
  })

  it('refuses joins as room_unavailable when the room cannot be run, and looks again for the next', async () => {
    vi.spyOn(host, 'run').mockImplementationOnce(() => {
      throw new Error('a mistake')
    })
    router.send(join())
    await records.answer(undefined)
    expect(delivered).toMatchObject([{ message: { kind: 'refused', code: 'room_unavailable' } }])
    expect(failures).toEqual([NAME])
    router.send(join('mem_b'))
    await records.answer(undefined)
    expect(host.opened).toHaveLength(1)
  })

  describe('a message of another node', () => {
    it('goes to the room when that runs here', () => {
      host.running.add(NAME)
      router.send(message(1), THERE)
      expect(host.received).toEqual([{ message: message(1), from: THERE }])
    })

    it('is not passed on: its sender is told who has the room, once for all that came meanwhile', async () => {
      for (const ref of [1, 2]) router.send(message(ref), THERE)
      await records.answer(ownedBy(ELSEWHERE))
      expect(sent).toEqual([])
      expect(delivered).toEqual([{ edge: THERE, message: redirect(ELSEWHERE) }])
    })

    /** Two nodes that each took the other for the less loaded would pass it on forever. */
    it('opens the room here, whatever placement would say', async () => {
      bench.chosen = ELSEWHERE
      router.send(join(), THERE)
      await records.answer(undefined)
      expect(host.opened).toEqual([[{ message: join(), from: THERE }]])
      expect(reasons).toEqual([])
    })

    it('is sent back when this node takes no rooms any more, without a look', () => {
      host.accepts = false
      router.send(join(), THERE)
      expect(delivered).toEqual([{ edge: THERE, message: redirect(null) }])
      expect(records.asked).toEqual([])
    })

    it('is answered as a stranger when the room is nowhere', async () => {
      router.send(message(3), THERE)
      await records.answer(undefined)
      expect(delivered).toEqual([{ edge: THERE, message: expect.objectContaining({ kind: 'no_seat' }) }])
    })

    it('is no reason to remember where the room is, nor to forget where members of this node are', async () => {
      subscribed.clear()
      router.send(message(1), THERE)
      await records.answer(ownedBy(ELSEWHERE))
      expect(router.gone(ELSEWHERE)).toEqual([])
      subscribed.add(NAME)
      router.send(message(1), THERE)
      await records.answer(ownedBy(ELSEWHERE))
      expect(router.gone(ELSEWHERE)).toEqual([ROOM])
    })
  })

  describe('what an owner says', () => {
    it('makes it the one to send to', async () => {
      await routeTo(THERE)
      hear(spoken(9), ELSEWHERE)
      router.send(message(1))
      expect(sent.map(({ to }) => to)).toEqual([ELSEWHERE])
    })

    it('is ignored under a lower epoch than was heard: that owner was replaced', async () => {
      await routeTo(THERE)
      hear(spoken(9), ELSEWHERE)
      hear(spoken(8), THERE)
      hear(redirect(THERE, 8), THERE)
      router.send(message(1))
      expect(sent.map(({ to }) => to)).toEqual([ELSEWHERE])
    })

    it('is ignored under no epoch: that node does not run the room', async () => {
      await routeTo(THERE)
      hear(spoken(0), ELSEWHERE)
      router.send(message(1))
      expect(sent.map(({ to }) => to)).toEqual([THERE])
    })

    it('leads to its successor when it has moved', async () => {
      await routeTo(THERE)
      hear(redirect(ELSEWHERE, 7), THERE)
      router.send(message(1))
      expect(sent.map(({ to }) => to)).toEqual([ELSEWHERE])
    })

    it('leads to a look when it has moved to no one knows where', async () => {
      await routeTo(THERE)
      hear(redirect(null), THERE)
      router.send(message(1))
      await records.answer(ownedBy(ELSEWHERE))
      expect(sent.map(({ to }) => to)).toEqual([ELSEWHERE])
    })

    it('changes nothing when a node that was never taken for the owner says that it is not', async () => {
      await routeTo(THERE)
      hear(redirect(null), ELSEWHERE)
      router.send(message(1))
      expect(sent.map(({ to }) => to)).toEqual([THERE])
    })
  })

  describe('when a node is gone', () => {
    it('tells which rooms were there, and finds them again', async () => {
      await routeTo(THERE)
      expect(router.gone(ELSEWHERE)).toEqual([])
      expect(router.gone(THERE)).toEqual([ROOM])
      dead.add(THERE)
      router.send(message(1))
      await records.answer(ownedBy(THERE))
      expect(host.opened).toHaveLength(1)
    })
  })

  /** A successor that died before the word of it came, say. */
  it('takes nothing to a node that was gone when the room was said to be there', async () => {
    await routeTo(THERE)
    dead.add(ELSEWHERE)
    hear(redirect(ELSEWHERE, 7), THERE)
    router.send(message(1))
    expect(sent).toEqual([])
    await records.answer(ownedBy(ELSEWHERE))
    expect(host.opened).toHaveLength(1)
  })

  it.each([leave, detach])(
    'does not remember where a room is that the last one left: $kind',
    async (last) => {
      router.send(join())
      subscribed.clear()
      router.send(last)
      router.forget(ROOM)
      await records.answer(ownedBy(THERE))
      expect(sent.map(({ message: { to } }) => to)).toEqual(['owner', 'owner'])
      expect(router.roomsAt(THERE)).toEqual([])
      router.redirect(ROOM, inboxOf({ message: last, from: HERE }), THERE)
      expect(sent).toHaveLength(3)
      expect(router.roomsAt(THERE)).toEqual([])
    },
  )

  it('remembers where a room is that one left and another is still in', async () => {
    router.send(join())
    router.send(join('mem_b', 2))
    router.send(leave)
    await records.answer(ownedBy(THERE))
    expect(router.gone(THERE)).toEqual([ROOM])
  })

  it('tells which rooms are at a node, or at any other', async () => {
    await routeTo(THERE)
    const other = roomAddress(ROOM.projectId, ROOM.roomType, 'two')
    router.send({ ...join(), room: other })
    await records.answer(undefined)
    expect(router.roomsAt(THERE)).toEqual([ROOM])
    expect(router.roomsAt(ELSEWHERE)).toEqual([])
    expect(router.roomsAt(undefined)).toEqual([ROOM])
  })

  it('forgets a room that no one here is in any more, but not while it is looked for', async () => {
    router.send(join())
    router.forget(ROOM)
    await records.answer(ownedBy(THERE))
    expect(sent).toHaveLength(1)
    router.forget(ROOM)
    router.send(join())
    expect(records.asked).toHaveLength(2)
  })

  it('opens a room for no message once, and messages wait for it', async () => {
    const opened = router.open(ROOM)
    router.send(message(1))
    expect(await router.open(ROOM)).toBeUndefined()
    expect(await opened).toMatchObject({ at: 'here' })
    expect([host.opened, records.asked]).toEqual([[[{ message: message(1), from: HERE }]], []])
    expect(await router.open(ROOM)).toBeUndefined()
    expect(bench.claimed).toHaveLength(1)
  })

  describe('what the rooms of this node have no place for', () => {
    it('goes on to the owner, or is dropped and its edge told once who that is', () => {
      const arrivals = [
        { message: message(1), from: HERE },
        { message: message(2), from: ELSEWHERE },
        { message: message(3), from: ELSEWHERE },
      ]
      router.redirect(ROOM, inboxOf(...arrivals), THERE)
      expect(sent).toEqual([{ to: THERE, message: { to: 'owner', message: message(1) } }])
      expect(delivered).toEqual([{ edge: ELSEWHERE, message: redirect(THERE) }])
    })

    it('is looked for when no one knows who has the room', async () => {
      router.redirect(ROOM, inboxOf({ message: message(1), from: HERE }), undefined)
      await records.answer(ownedBy(THERE))
      expect(sent).toHaveLength(1)
    })
  })

  /** A room whose recorded owner lives and yet sends everything back is no reason to flood the store. */
  it('looks four times in quick succession, and then ever more slowly', async () => {
    const look = async (): Promise<void> => {
      router.send(message(1))
      await records.answer(ownedBy(THERE))
      hear(redirect(null), THERE)
    }
    for (let i = 0; i < 4; i++) await look()
    const pauses: number[] = []
    for (let i = 0; i < 8; i++) {
      router.send(message(1))
      const asked = records.asked.length
      let waitedMs = 0
      for (; records.asked.length === asked; waitedMs += 20) clock.advance(20)
      pauses.push(waitedMs)
      await records.answer(ownedBy(THERE))
      hear(redirect(null), THERE)
    }
    expect(pauses).toEqual([40, 80, 160, 320, 500, 500, 500, 500])
    clock.advance(1000)
    router.send(message(1))
    expect(records.asked).toHaveLength(13)
  })
})
