import { describe, expect, it, vi } from 'vitest'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { unavailable } from '../place.ts'
import type { ToOwner } from '../traffic.ts'

type Said = ToOwner extends infer M ? (M extends ToOwner ? Omit<M, 'room' | 'member_id'> : never) : never

const NAME = 'prj_test/counter:a'
const seat = { edge: 'node_edge', turn: 0, codec: 'roomful.v1.msgpack', session_id: 'ses_bob' } as const
/** One message of each kind. The join is of bob, the others are of ann. */
const SAID = {
  join: { kind: 'join', request_id: 1, ...seat, sub: null, principal: 'token', options: {} },
  message: { kind: 'message', type: 'inc', data: null },
  reliable: { kind: 'message', type: 'inc', data: null, ref: 1 },
  refuse: { kind: 'refuse', from: 1, through: 1, code: 'forbidden', message: 'no' },
  resync: { kind: 'resync', reason: 'checksum' },
  renew: { kind: 'renew', data: {} },
  attach: {
    kind: 'attach',
    ask: 1,
    ...seat,
    session_id: 'ses_ann',
    epoch: 1,
    seq: 1,
    settled: 0,
    through: 0,
  },
  leave: { kind: 'leave', reason: 'left', request_id: 2 },
  detach: { kind: 'detach' },
  request: { kind: 'request', request: { id: 'operator/1', hash: '', do: { op: 'close' } } },
} satisfies Record<string, Said>
const KINDS = Object.keys(SAID) as (keyof typeof SAID)[]

const said = (bench: RoomBench, kind: keyof typeof SAID): ToOwner =>
  ({
    room: bench.address('counter'),
    member_id: kind === 'join' ? 'bob' : 'ann',
    ...SAID[kind],
  }) as ToOwner

const send = (bench: RoomBench, kind: keyof typeof SAID): boolean =>
  bench.host.receive(said(bench, kind), 'node_edge')

/** The state of the room's name, as the host shows it. A room that is leaving still runs. */
function shown({ host: { rooms } }: RoomBench): 'opening' | 'running' | 'frozen' | 'gone' {
  if (!rooms.has(NAME)) return 'gone'
  const room = rooms.get(NAME)
  if (!room) return 'opening'
  return room.frozen ? 'frozen' : 'running'
}

/** A room name in one state. `end` makes it leave this node. */
interface Staged {
  readonly bench: RoomBench
  readonly end: () => Promise<void>
}

/** The room waits for its `load`. `end` makes that fail, or finds a node that takes no more rooms. */
async function opening(fails = false): Promise<Staged> {
  let end = (_: undefined): void => {}
  const load = () =>
    new Promise<undefined>((resolve, reject) => {
      end = fails ? () => reject(new Error('the database is away')) : resolve
    })
  const bench = new RoomBench([{ ...counting('journal'), load }])
  bench.askToJoin('counter', 'zoe')
  await bench.untilIdle()
  return {
    bench,
    end: async () => {
      if (!fails) bench.host.rooms.refuseMore()
      end(undefined)
      await bench.untilIdle()
      const waiting = bench.redirected.splice(0)
      bench.redirected.push(...waiting.filter(({ message }) => message.member_id !== 'zoe'))
    },
  }
}

const STAGES: Record<'opening' | 'running' | 'frozen' | 'leaving', () => Promise<Staged>> = {
  opening: () => opening(),
  running: async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    return {
      bench,
      end: async () => {
        await bench.untilIdle()
        await bench.host.rooms.running[0]?.handOver('node_b')
      },
    }
  },
  frozen: async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    bench.mayAct = false
    bench.host.recheck()
    await bench.untilIdle()
    return {
      bench,
      end: async () => {
        await bench.claimed('counter')
        bench.host.rooms.refuseMore()
        bench.mayAct = true
        bench.host.recheck()
        await bench.untilIdle()
      },
    }
  },
  leaving: async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    bench.store.mood = 'slow'
    void bench.host.rooms.running[0]!.handOver('node_b')
    await bench.untilIdle()
    return {
      bench,
      end: async () => {
        while (bench.store.held > 0) {
          bench.store.let()
          await bench.untilIdle()
        }
      },
    }
  },
}

/** Effect of each kind of message in a state: the room handles it, or it waits and then goes to the next owner. */
async function reactions(state: keyof typeof STAGES) {
  const met: Record<string, 'handled' | 'forwarded' | 'answered'> = {}
  for (const kind of KINDS) {
    const { bench, end } = await STAGES[state]()
    expect(shown(bench)).toBe(state === 'leaving' ? 'running' : state)
    bench.sent.length = 0
    expect(send(bench, kind)).toBe(true)
    if (state !== 'running') expect(bench.sent).toEqual([])
    await end()
    expect(shown(bench)).toBe('gone')
    met[kind] = bench.redirected.length === 0 ? 'handled' : 'forwarded'
  }
  return met
}

const all = (reaction: string) => Object.fromEntries(KINDS.map((kind) => [kind, reaction]))

describe('RoomSlot', () => {
  it.each([
    ['opening', 'forwarded'],
    ['running', 'handled'],
    ['frozen', 'forwarded'],
    ['leaving', 'forwarded'],
  ] as const)('in state %s: a message of each kind is %s', async (state, reaction) => {
    expect(await reactions(state)).toEqual(all(reaction))
  })

  it.each(KINDS)('in state gone: takes no %s', async (kind) => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    await bench.host.close()
    expect([shown(bench), send(bench, kind)]).toEqual(['gone', false])
  })

  it.each(['opening', 'frozen', 'leaving'] as const)(
    'in state %s: forwards waiting messages in their order to the next owner',
    async (state) => {
      const { bench, end } = await STAGES[state]()
      for (const kind of KINDS) send(bench, kind)
      await end()
      expect(bench.redirected.map(({ message }) => message.kind)).toEqual(
        KINDS.map((kind) => SAID[kind].kind),
      )
    },
  )

  it('in state frozen: handles waiting messages in their order when the node still owns the room', async () => {
    const { bench } = await STAGES.frozen()
    for (const ref of [1, 2, 3]) bench.message('counter', 'ann', 'inc', null, ref)
    bench.mayAct = true
    bench.host.recheck()
    await bench.untilIdle()
    expect([shown(bench), bench.members.get('ann')!.acked]).toEqual(['running', 3])
    expect(bench.redirected).toEqual([])
  })

  it('in state opening: refuses waiting messages if the room cannot be opened', async () => {
    const { bench, end } = await opening(true)
    for (const kind of KINDS) send(bench, kind)
    await end()
    const answers = bench.sent.map(({ kind }) => kind)
    expect(answers).toEqual(['refused', 'refused', 'error', 'error', 'answer', 'redirect'])
    expect([bench.redirected, shown(bench)]).toEqual([[], 'gone'])
  })

  it('in no state: refuses and counts a message of each kind if the claim fails', async () => {
    const bench = new RoomBench([counting('journal')])
    vi.spyOn(bench.claims, 'claim').mockResolvedValue(unavailable(bench.address('counter'), 'no store'))
    for (const kind of KINDS) bench.router.send(said(bench, kind), 'node_edge')
    await bench.untilIdle()
    const answers = bench.sent.map(({ kind }) => kind)
    expect(answers).toEqual(['refused', 'error', 'error', 'answer', 'redirect'])
    expect([bench.redirected, bench.counts['error room_unavailable']]).toEqual([[], 3])
  })

  it('in no state: gives back and does not count a new room if the node has stopped taking rooms', async () => {
    const bench = new RoomBench([counting('journal')])
    bench.askToJoin('counter', 'ann')
    bench.host.rooms.refuseMore()
    await bench.untilIdle()
    const { rooms } = bench.store.store
    expect(await rooms.counted('prj_test', { limit: 10 })).toEqual([])
    expect((await rooms.inspect(NAME))?.owner ?? null).toBeNull()
  })

  it('in no state: makes edges resend messages that found the inbox full, also if the type is not installed', async () => {
    const bench = new RoomBench([], { limits: { waitingMessages: 1 } })
    const { rooms } = bench.store.store
    const { fence } = (await rooms.claim(NAME, 'node_b', 0, 600_000))!
    await rooms.release(NAME, fence, { forget: false, ttlMs: 600_000 })
    for (const kind of ['request', 'reliable', 'reliable'] as const)
      bench.router.send(said(bench, kind), 'node_edge')
    await bench.untilIdle()
    expect(bench.sent.map(({ kind }) => kind)).toEqual(['no_seat', 'answer', 'redirect'])
  })

  it('in no state: counts joins that may not create the room', async () => {
    const bench = new RoomBench([counting('journal')], { quota: { maxRooms: 1 } })
    await bench.join('counter', 'ann')
    bench.askToJoin('counter', 'bob', { key: 'b' })
    bench.askToJoin('nothing', 'cy')
    await bench.untilIdle()
    expect(bench.counts).toMatchObject({ 'error project_full': 1, 'error unknown_room_type': 1 })
  })
})
