import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import type { RoomOwner } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { nodeInfo } from '../../test/support/descriptions.ts'
import { Inbox } from '../inbox.ts'
import {
  type ClaimedType,
  type ClaimOptions,
  type Nowhere,
  nowhere,
  type Place,
  refuseAll,
} from '../place.ts'
import { type Arrival, type RoomAddress, roomAddress, type ToEdge, type ToOwner } from '../traffic.ts'
import type { PeerMessage } from './envelope.ts'
import { CLUSTER_METRICS } from './metrics.ts'
import { type LocalHost, Router, type RouterParts } from './router.ts'

const HERE = 'node_here'
const THERE = 'node_there'
const ROOM = roomAddress('prj_a', 'duel', 'one')

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

/** A claim that was successful. */
const CLAIMED: Place = {
  at: 'here',
  claim: { fence: { epoch: 8, version: 0 }, snapshot: undefined, journal: [] },
  mayMake: true,
}

const ownedBy = (owner: string | null, epoch = 7): RoomOwner => ({ epoch, version: 3, owner })

const inboxOf = (...arrivals: Arrival[]): Inbox => {
  const inbox = new Inbox(10)
  for (const arrival of arrivals) inbox.add(arrival)
  return inbox
}

/** Reads of room records, which the test answers in their order. */
class Records {
  readonly asked: string[] = []
  readonly #open: { resolve: (record: RoomOwner | undefined) => void; reject: (error: Error) => void }[] = []

  read(room: string): Promise<RoomOwner | undefined> {
    this.asked.push(room)
    return new Promise((resolve, reject) => this.#open.push({ resolve, reject }))
  }

  async answer(record: RoomOwner | undefined): Promise<void> {
    this.#open.shift()!.resolve(record)
    await nextTurn()
  }

  async fail(): Promise<void> {
    this.#open.shift()!.reject(new Error('the store is silent'))
    await nextTurn()
  }
}

/** The rooms of this node: the messages that they got, and those with which they were opened. */
class TestHost implements LocalHost {
  readonly running = new Set<string>()
  readonly received: Arrival[] = []
  readonly opened: Arrival[][] = []
  /** Number of messages that did not fit into their inbox. */
  full = 0
  readonly rooms = { accepts: true, has: (name: string) => this.running.has(name) }
  readonly types = { find: (): ClaimedType => ({ version: 1, durability: 'journal' }) }
  readonly #deliver: (edge: string, message: ToEdge) => void

  constructor(deliver: (edge: string, message: ToEdge) => void) {
    this.#deliver = deliver
  }

  receive(message: ToOwner, from: string): boolean {
    if (!this.running.has(message.room.name)) return false
    this.received.push({ message, from })
    return true
  }

  seat(): undefined {}

  wait(inbox: Inbox, arrival: Arrival): void {
    if (!inbox.add(arrival)) this.full++
  }

  refuse(_: RoomAddress, inbox: Inbox, place: Nowhere): void {
    refuseAll(inbox, place, this.#deliver)
  }

  run(room: RoomAddress, inbox: Inbox): void {
    this.running.add(room.name)
    this.opened.push([...inbox.take()])
  }

  verify(): void {}
  recheck(): void {}
  edgeGone(): void {}
  edgeMissed(): void {}
}

/** The router of the node `HERE`, with everything that it reads and sends. */
class RouterBench {
  readonly clock = new FakeClock()
  readonly sent: { to: string; message: PeerMessage }[] = []
  readonly delivered: { edge: string; message: ToEdge }[] = []
  readonly host = new TestHost((edge, message) => this.delivered.push({ edge, message }))
  readonly records = new Records()
  /** Nodes that are known to be alive. */
  readonly known = new Set<string>()
  /** Nodes whose lease was read. */
  readonly judged: string[] = []
  /** Nodes that have ended. */
  readonly dead = new Set<string>()
  /** Rooms whose owner could not be found. */
  readonly failures: string[] = []
  /** Rooms with members at the edge of this node. */
  readonly subscribed = new Set([ROOM.name])
  storeIsBehind = false
  /** Node that placement chooses. */
  chosen: string | undefined = HERE
  /** Reasons of the placements. */
  readonly reasons: string[] = []
  /** Versions of the code of the room types, by living node. */
  readonly types = new Map<string, Readonly<Record<string, number>>>()
  /** Result of a claim. */
  place: Place = CLAIMED
  /** Ids of the answered requests. */
  readonly answered: string[] = []
  /** Options of the claims. */
  readonly claimed: ClaimOptions[] = []
  readonly claims: RouterParts['claims'] = {
    inspect: (room) => this.records.read(room),
    claim: async (_, options) => {
      this.claimed.push(options)
      return this.place
    },
  }
  readonly router = new Router(
    {
      nodeId: HERE,
      clock: this.clock,
      links: {
        forget: () => {},
        greet: () => {},
        send: (to, message) => {
          if (message.to === 'edge') this.delivered.push({ edge: to, message: message.message })
          else this.sent.push({ to, message })
        },
      },
      maxWaitingMessages: 1000,
      metrics: registerMetrics(new Registry(), CLUSTER_METRICS),
      log: Object.assign(pino({ level: 'silent' }), {
        warn: ({ room }: { room: string }) => this.failures.push(room),
      }),
    },
    {
      claims: this.claims,
      nodes: {
        judge: async (nodeId) => {
          this.judged.push(nodeId)
          return this.dead.has(nodeId) ? 'dead' : 'alive'
        },
        isAlive: (nodeId) => this.known.has(nodeId),
        isGone: (nodeId) => this.dead.has(nodeId),
        storeIsBehind: async () => this.storeIsBehind,
        nodes: () => [...this.types.keys()].map((nodeId) => this.#infoOf(nodeId)!),
        get: (nodeId) => this.#infoOf(nodeId),
      },
      placement: {
        choose: (reason) => {
          this.reasons.push(reason)
          return this.chosen
        },
      },
      self: { draining: false, cordoned: false },
    },
  )
  /** Rooms that the edge of this node has asked for again. */
  #reattached: RoomAddress[] = []

  constructor() {
    this.router.start(
      this.host,
      {
        edge: {
          receive: (message) => this.delivered.push({ edge: HERE, message }),
          reattach: (room) => this.#reattached.push(room),
          subscribes: (room) => this.subscribed.has(room),
        },
        sessionTaken: async () => {},
        storeReturned: () => {},
      },
      {
        answered: (id) => this.answered.push(id),
        moved: () => {},
      },
    )
  }

  /** Returns the rooms that the edge of this node asks for again during `event`. */
  reattachedBy(event: () => void): RoomAddress[] {
    this.#reattached = []
    event()
    return this.#reattached
  }

  #infoOf(nodeId: string) {
    const types = this.types.get(nodeId)
    return types && { ...nodeInfo(nodeId), room_types: types }
  }
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

  /** Returns the rooms that the edge of this node asks for again when a node is gone, or joins. */
  const gone = (nodeId: string) => bench.reattachedBy(() => router.gone(nodeId))
  const joined = (nodeId: string) => bench.reattachedBy(() => router.joined(nodeInfo(nodeId)))

  /** The route to the room leads to `owner`. */
  const routeTo = async (owner: string): Promise<void> => {
    router.send(join())
    await records.answer(ownedBy(owner))
    sent.length = 0
  }

  describe('a message of an edge of this node', () => {
    it('goes to the owner that the record names, and so do all later ones, without another read', async () => {
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

    it('goes to a live owner, without a read of its lease', async () => {
      bench.known.add(THERE)
      router.send(join())
      await records.answer(ownedBy(THERE))
      expect(sent).toEqual([{ to: THERE, message: { to: 'owner', message: join() } }])
      expect(bench.judged).toEqual([])
    })

    it('waits with at most 999 others: further ones are counted, and joins are always queued', async () => {
      router.send(join())
      for (let ref = 1; ref <= 1200; ref++) router.send(message(ref))
      router.send(join('mem_b'))
      await records.answer(ownedBy(THERE))
      expect(sent).toHaveLength(1002)
      expect(sent.at(-1)!.message).toEqual({ to: 'owner', message: join('mem_b') })
      expect(host.full).toBe(200)
    })

    it('about a room that the store may have lost is sent back to its edge, and the next one starts another search', async () => {
      bench.storeIsBehind = true
      router.send(message(4))
      await records.answer(undefined)
      expect(delivered).toEqual([{ edge: HERE, message: redirect(null) }])
      router.send(message(4))
      await records.answer(ownedBy(THERE))
      expect(sent).toEqual([{ to: THERE, message: { to: 'owner', message: message(4) } }])
    })

    it('about a room that does not exist is answered with no_seat', async () => {
      router.send(message(4))
      router.send(detach)
      await records.answer(undefined)
      expect(delivered).toEqual([
        { edge: HERE, message: { room: ROOM, epoch: 0, kind: 'no_seat', member_id: 'mem_a' } },
      ])
      expect(host.opened).toEqual([])
    })
  })

  describe('a room without a living owner', () => {
    it('is claimed for a join without an inspect, if it would be created here', async () => {
      bench.types.set(HERE, { [ROOM.roomType]: 1 })
      router.send(join())
      router.send(message(1))
      await nextTurn()
      expect([records.asked, bench.claimed]).toMatchObject([[], [{ creator: 'token', seen: undefined }]])
      expect(host.opened).toMatchObject([[{ message: join() }, { message: message(1) }]])
    })

    it('is refused only to the first join, if that may not create it, and the next join gets it', async () => {
      bench.types.set(HERE, { [ROOM.roomType]: 1 })
      const { claims } = bench
      vi.spyOn(claims, 'claim').mockResolvedValueOnce(nowhere('project_full', 'the project has 1 rooms'))
      router.send(join('mem_a', 1))
      router.send(join('mem_b', 2))
      router.send(join('mem_c', 3))
      await nextTurn()
      expect(delivered).toMatchObject([{ message: { kind: 'refused', member_id: 'mem_a' } }])
      expect(host.opened).toMatchObject([[{ message: join('mem_b', 2) }, { message: join('mem_c', 3) }]])
    })

    it('is inspected if the join may not create it, or another node would', async () => {
      bench.types.set(HERE, { [ROOM.roomType]: 1 })
      router.send({ ...join(), create: false } as ToOwner)
      await records.answer(undefined)
      bench.chosen = THERE
      host.running.clear()
      router.send(join())
      await records.answer(undefined)
      expect([records.asked, bench.claimed]).toMatchObject([[NAME, NAME], [{ creator: undefined }]])
    })

    it('leads to its owner, if the claim finds one', async () => {
      bench.types.set(HERE, { [ROOM.roomType]: 1 })
      bench.place = { at: 'node', nodeId: THERE }
      router.send(join())
      await nextTurn()
      router.send(message(1))
      expect(sent.map(({ to, message: { to: role } }) => [to, role])).toEqual([
        [THERE, 'owner'],
        [THERE, 'owner'],
      ])
    })

    it('is opened at the node that placement chooses, which then gets the later messages', async () => {
      bench.chosen = THERE
      router.send(join())
      await records.answer(undefined)
      expect(reasons).toEqual(['create'])
      router.send(message(1))
      expect(sent).toEqual([
        { to: THERE, message: { to: 'opener', message: join() } },
        { to: THERE, message: { to: 'owner', message: message(1) } },
      ])
    })

    it('that was taken over sends a redirect to the owner that seems dead, which checks its record if it lives', async () => {
      dead.add(THERE)
      bench.place = { ...CLAIMED, from: THERE }
      router.send(message(1))
      await records.answer(ownedBy(THERE))
      expect(delivered).toEqual([{ edge: THERE, message: redirect(HERE) }])
    })

    it('is opened here if the record names this node', async () => {
      bench.chosen = ELSEWHERE
      router.send(message(1))
      await records.answer(ownedBy(HERE))
      expect(host.opened).toHaveLength(1)
      expect(reasons).toEqual([])
    })

    it('is opened elsewhere if the record names this node, but this node accepts no rooms any more', async () => {
      bench.chosen = ELSEWHERE
      host.rooms.accepts = false
      router.send(message(1))
      await records.answer(ownedBy(HERE))
      expect(sent).toEqual([{ to: ELSEWHERE, message: { to: 'opener', message: message(1) } }])
    })

    it('is refused to joins as overloaded if no node can take it', async () => {
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

  describe('a room with a state of a newer version', () => {
    const newer: RoomOwner = { ...ownedBy(null), stateVersion: 2 }
    const refused = {
      kind: 'refused',
      code: 'room_unavailable',
      message: expect.stringContaining('version 2'),
    }
    const types = { [ROOM.roomType]: 1 }

    it('is opened at a node that has the code, even if the record names another', async () => {
      bench.types.set(HERE, types)
      bench.types.set(THERE, { [ROOM.roomType]: 2 })
      bench.chosen = THERE
      router.send(join())
      await records.answer({ ...newer, owner: HERE })
      expect(sent).toEqual([{ to: THERE, message: { to: 'opener', message: join() } }])
    })

    it.each([HERE, THERE])(
      'is refused while no node has the code, and opened by none (asked by %s)',
      async (edge) => {
        bench.types.set(HERE, types)
        bench.chosen = undefined
        bench.place = nowhere('newer', 'the code of its room type is too old here')
        router.send(join(), edge)
        await nextTurn()
        await records.answer(newer)
        expect(delivered).toMatchObject([{ edge, message: refused }])
        expect([host.opened, sent]).toEqual([[], []])
      },
    )
  })

  it('refuses joins as room_unavailable if the store does not answer, and searches again for the next', async () => {
    router.send(join('mem_a', 5))
    router.send(message(1))
    await records.fail()
    expect(delivered).toMatchObject([
      { edge: HERE, message: { kind: 'refused', request_id: 5, code: 'room_unavailable', epoch: 0 } },
      { edge: HERE, message: redirect(null) },
    ])
    expect(failures).toEqual([NAME])
    router.send(join())
    await records.answer(ownedBy(THERE))
    expect(sent).toHaveLength(1)
  })

  it('refuses joins as room_unavailable if the room cannot be run, and searches again for the next', async () => {
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
    it('goes to the room if that runs here', () => {
      host.running.add(NAME)
      router.send(message(1), THERE)
      expect(host.received).toEqual([{ message: message(1), from: THERE }])
    })

    // This node was paused for longer than its lease. Another owner has answered the joins since, and has released the room.
    it('that is a join is not kept for a later claim, if its node may have sent it to another owner', async () => {
      router.send(join('mem_gone'), THERE)
      router.send(join('mem_other'), ELSEWHERE)
      router.send(leave, THERE)
      router.missed(THERE)
      expect(delivered).toEqual([{ edge: THERE, message: redirect(null) }])
      await records.answer(ownedBy(null))
      expect(host.opened).toMatchObject([[{ message: { member_id: 'mem_other' } }, { message: leave }]])
    })

    it('that is a join goes back to its node, if the room has ended here', () => {
      const inbox = inboxOf(
        { message: join('mem_b'), from: THERE },
        { message: message(1), from: THERE },
        { message: join(), from: HERE },
      )
      router.redirect(ROOM, inbox, undefined)
      expect(delivered).toEqual([{ edge: THERE, message: redirect(null) }])
      expect(inbox.arrivals.map((arrival) => arrival.message)).toEqual([message(1), join()])
    })

    it('that did not fit is requested again from its node, also if only joins have waited', () => {
      const inbox = inboxOf({ message: join('mem_b'), from: THERE })
      inbox.turnedAway.add(ELSEWHERE)
      router.redirect(ROOM, inbox, undefined)
      expect(delivered).toEqual([
        { edge: THERE, message: redirect(null) },
        { edge: ELSEWHERE, message: redirect(null) },
      ])
    })

    it('that is a join is dropped when its node is gone', async () => {
      router.send(join('mem_b'), THERE)
      router.send(join(), ELSEWHERE)
      router.gone(THERE)
      await records.answer(undefined)
      expect(host.opened).toEqual([[{ message: join(), from: ELSEWHERE }]])
      // Two nodes that each count the other as less loaded would pass it on forever.
      expect(reasons).toEqual([])
    })

    it('is sent back without a search if this node accepts no rooms any more', () => {
      host.rooms.accepts = false
      router.send(join(), THERE)
      expect(delivered).toEqual([{ edge: THERE, message: redirect(null) }])
      expect(records.asked).toEqual([])
    })

    it('is answered with no_seat if the room does not exist', async () => {
      router.send(message(3), THERE)
      await records.answer(undefined)
      expect(delivered).toEqual([{ edge: THERE, message: expect.objectContaining({ kind: 'no_seat' }) }])
    })

    it('creates no route, and does not delete the route of this node’s members', async () => {
      subscribed.clear()
      router.send(message(1), THERE)
      await records.answer(ownedBy(ELSEWHERE))
      expect(gone(ELSEWHERE)).toEqual([])
      subscribed.add(NAME)
      router.send(message(1), THERE)
      await records.answer(ownedBy(ELSEWHERE))
      expect(gone(ELSEWHERE)).toEqual([ROOM])
    })
  })

  describe('a message of an owner', () => {
    it.each<[string, readonly (readonly [ToEdge, from: string])[], owner: string]>([
      ['makes its sender the owner', [[spoken(9), ELSEWHERE]], ELSEWHERE],
      [
        'is ignored if its epoch is lower than the latest, because its sender was replaced',
        [
          [spoken(9), ELSEWHERE],
          [spoken(8), THERE],
          [redirect(THERE, 8), THERE],
        ],
        ELSEWHERE,
      ],
      [
        'is ignored if it has no epoch, because its sender does not run the room',
        [[spoken(0), ELSEWHERE]],
        THERE,
      ],
      ['names the new owner of a room that has moved', [[redirect(ELSEWHERE, 7), THERE]], ELSEWHERE],
      [
        'changes nothing if its sender was not the known owner, and says that it is not',
        [[redirect(null), ELSEWHERE]],
        THERE,
      ],
    ])('%s', async (_, heard, owner) => {
      await routeTo(THERE)
      for (const [said, from] of heard) hear(said, from)
      router.send(message(1))
      expect(sent.map(({ to }) => to)).toEqual([owner])
    })

    it('that answers a request goes to the sender of the request, and not to the edge', () => {
      const answer = { reply: null, epoch: 8, seq: 1 }
      hear({ room: ROOM, epoch: 8, kind: 'answer', member_id: 'request_a', answer }, THERE)
      expect(bench.answered).toEqual(['request_a'])
      expect(delivered).toEqual([])
    })

    it('starts a search if the room has moved to an unknown node', async () => {
      await routeTo(THERE)
      hear(redirect(null), THERE)
      router.send(message(1))
      await records.answer(ownedBy(ELSEWHERE))
      expect(sent.map(({ to }) => to)).toEqual([ELSEWHERE])
    })
  })

  describe('when a node is gone', () => {
    it('attaches to the rooms of that node again, and searches for their new owners', async () => {
      await routeTo(THERE)
      expect(gone(ELSEWHERE)).toEqual([])
      expect(gone(THERE)).toEqual([ROOM])
      dead.add(THERE)
      router.send(message(1))
      await records.answer(ownedBy(THERE))
      expect([reasons, host.opened.length]).toEqual([['take_over'], 1])
    })
  })

  /** For example, the new owner has crashed before the redirect arrives. */
  it('sends nothing to a node that was already gone when a redirect named it', async () => {
    await routeTo(THERE)
    dead.add(ELSEWHERE)
    hear(redirect(ELSEWHERE, 7), THERE)
    router.send(message(1))
    expect(sent).toEqual([])
    await records.answer(ownedBy(ELSEWHERE))
    expect(host.opened).toHaveLength(1)
  })

  it.each([leave, detach])('drops the route of a room that the last member left: $kind', async (last) => {
    router.send(join())
    subscribed.clear()
    router.send(last)
    router.forget(ROOM)
    await records.answer(ownedBy(THERE))
    expect(sent.map(({ message }) => message)).toEqual([{ to: 'owner', message: last }])
    expect(joined(THERE)).toEqual([])
    router.redirect(ROOM, inboxOf({ message: last, from: HERE }), THERE)
    expect(sent).toHaveLength(2)
    expect(joined(THERE)).toEqual([])
  })

  it('keeps the route of a room that one member left and another is still in', async () => {
    router.send(join())
    router.send(join('mem_b', 2))
    router.send(leave)
    await records.answer(ownedBy(THERE))
    expect(gone(THERE)).toEqual([ROOM])
  })

  it('attaches to the rooms of a node that joins, and to those of all nodes after a loss of messages', async () => {
    await routeTo(THERE)
    const other = roomAddress(ROOM.projectId, ROOM.roomType, 'two')
    router.send({ ...join(), room: other })
    await records.answer(undefined)
    expect(joined(THERE)).toEqual([ROOM])
    expect(joined(ELSEWHERE)).toEqual([])
    expect(bench.reattachedBy(() => router.missed(undefined))).toEqual([ROOM])
  })

  it('drops the route of a room without members, but not during a search', async () => {
    router.send(join())
    router.forget(ROOM)
    await records.answer(ownedBy(THERE))
    expect(sent).toHaveLength(1)
    router.forget(ROOM)
    router.send(join())
    expect(records.asked).toHaveLength(2)
  })

  it('opens a room without a message once, and messages wait for it', async () => {
    const opened = router.open(ROOM)
    router.send(message(1))
    expect(await router.open(ROOM)).toBeUndefined()
    expect(await opened).toMatchObject({ at: 'here' })
    expect([host.opened, records.asked]).toEqual([[[{ message: message(1), from: HERE }]], []])
    expect(await router.open(ROOM)).toBeUndefined()
    expect(bench.claimed).toHaveLength(1)
  })

  describe('a message that the rooms of this node do not take', () => {
    it('goes to the owner, or its edge gets one redirect to the owner', () => {
      const arrivals = [
        { message: message(1), from: HERE },
        { message: message(2), from: ELSEWHERE },
        { message: message(3), from: ELSEWHERE },
      ]
      router.redirect(ROOM, inboxOf(...arrivals), THERE)
      expect(sent).toEqual([{ to: THERE, message: { to: 'owner', message: message(1) } }])
      expect(delivered).toEqual([{ edge: ELSEWHERE, message: redirect(THERE) }])
    })

    it('starts a search if the owner is unknown', async () => {
      router.redirect(ROOM, inboxOf({ message: message(1), from: HERE }), undefined)
      await records.answer(ownedBy(THERE))
      expect(sent).toHaveLength(1)
    })
  })

  /** A room whose recorded owner is alive, but sends everything back, must not flood the store with searches. */
  it('searches eight times without a pause, and then twice a second', async () => {
    const answer = async (): Promise<void> => {
      await records.answer(ownedBy(THERE))
      hear(redirect(null), THERE)
    }
    const pauses: number[] = []
    for (let i = 0; i < 12; i++) {
      router.send(message(1))
      let waitedMs = 0
      for (; records.asked.length === i; waitedMs += 20) clock.advance(20)
      pauses.push(waitedMs)
      await answer()
    }
    expect(pauses).toEqual([...Array(8).fill(0), 500, 500, 500, 500])
    clock.advance(1000)
    for (let i = 0; i < 2; i++) {
      router.send(message(1))
      await answer()
    }
    expect(records.asked).toHaveLength(14)
  })
})
