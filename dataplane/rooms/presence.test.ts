import { describe, expect, it } from 'vitest'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'
import { ROOM_LIMITS } from './environment.ts'
import { JournalFormat } from './journal.ts'
import { restore } from './restore.ts'

/** Writes down what becomes of its members. */
const lounge = ({
  durability = 'journal',
  reconnectSeconds,
}: {
  durability?: Durability
  reconnectSeconds?: number
} = {}) =>
  defineRoom({
    type: 'lounge',
    durability,
    sync: { rate: 0 },
    ...(reconnectSeconds !== undefined && { reconnectSeconds }),
    create: () => ({ diary: [] as string[] }),
    messages: {
      look: {
        data: undefinedSchema,
        handle(state, { member }, ctx) {
          for (const { id, connected, data } of ctx.members)
            state.diary.push(`${id} ${connected} ${JSON.stringify(data)}`)
          state.diary.push(JSON.stringify(member.data))
        },
      },
      out: {
        data: undefinedSchema,
        handle: (_state, { member }, ctx) => ctx.kick(member, 'no shoes in here'),
      },
    },
    onJoin(_state, member, ctx) {
      if (member.sub === 'barred') ctx.kick(member, 'you are barred')
    },
    onDisconnect(state, member, ctx) {
      state.diary.push(
        `lost ${member.id}, of ${ctx.members.filter(({ connected }) => connected).length} here`,
      )
    },
    onReconnect: (state, member) => void state.diary.push(`back ${member.id} ${member.connected}`),
    onLeave: (state, member) => void state.diary.push(`left ${member.id}`),
  })

const undefinedSchema = {
  '~standard': { version: 1, vendor: 'test', validate: () => ({ value: null }) },
} as const

const inLounge = (settings?: Parameters<typeof lounge>[0]) => roomWith(lounge(settings), ['ann', 'bob'])
const connected = (member: { members: readonly { member_id: string; connected: boolean }[] }) =>
  Object.fromEntries(member.members.map(({ member_id: id, connected }) => [id, connected]))
const RESUMES_MS = ROOM_LIMITS.movesMs

describe('a member whose connection is lost', () => {
  it('is told of, in an update of its own turn, and again when it is back', async () => {
    const { bench, ann, bob } = await inLounge()
    bench.detach('lounge', ann)
    await bench.settle()
    expect([bob.state, connected(bob)]).toEqual([
      { diary: ['lost ann, of 1 here'] },
      { ann: false, bob: true },
    ])
    await bench.resume('lounge', ann)
    expect([bob.state, connected(bob), connected(ann)]).toEqual([
      { diary: ['lost ann, of 1 here', 'back ann true'] },
      { ann: true, bob: true },
      { ann: true, bob: true },
    ])
    expect([ann.faults, bob.faults]).toEqual([[], []])
  })

  it('is told of to those who come later', async () => {
    const { bench, ann } = await inLounge()
    bench.detach('lounge', ann)
    const cem = await bench.join('lounge', 'cem')
    expect(connected(cem)).toEqual({ ann: false, bob: true, cem: true })
  })

  it.each([
    [undefined, ROOM_LIMITS.detachedMs],
    [5, 5000],
    [0, 0],
    [86_400, ROOM_LIMITS.detachedMs],
  ])('keeps its seat for %s reconnectSeconds', async (reconnectSeconds, ms) => {
    const { bench, ann, bob } = await inLounge(reconnectSeconds === undefined ? {} : { reconnectSeconds })
    bench.detach('lounge', ann)
    if (ms > 0) {
      await bench.advance(ms - 10, 1000)
      expect(bob.state).toEqual({ diary: ['lost ann, of 1 here'] })
    }
    await bench.advance(20)
    expect(bob.state).toEqual({ diary: ['lost ann, of 1 here', 'left ann'] })
    expect(connected(bob)).toEqual({ bob: true })
  })

  it('is away in the record: the next owner neither says so again, nor forgets that it is back', async () => {
    const { bench, ann, bob } = await inLounge()
    bench.detach('lounge', ann)
    await bench.settle()
    const heir = bench.successor([ann, bob])
    await heir.resume('lounge', bob)
    await heir.advance(RESUMES_MS + 100, 1000)
    expect(bob.state).toEqual({ diary: ['lost ann, of 1 here'] })
    await heir.resume('lounge', ann)
    expect([bob.state, connected(bob)]).toEqual([
      { diary: ['lost ann, of 1 here', 'back ann true'] },
      { ann: true, bob: true },
    ])
  })
})

describe('a member who is expected at another edge', () => {
  const ways = [
    ['whose edge has ended', (bench: RoomBench) => bench.host.edgeGone('node_a')],
    [
      'whose session has moved',
      (bench: RoomBench) => bench.send('lounge', 'ann', { kind: 'detach', moves: true }),
    ],
  ] as const

  it.each(ways)('%s counts as connected meanwhile', async (_, go) => {
    const { bench, ann, bob } = await inLounge()
    go(bench)
    await bench.advance(RESUMES_MS - 10, 1000)
    for (const member of [ann, bob]) await bench.resume('lounge', member, 1)
    await bench.advance(2 * RESUMES_MS, 1000)
    expect([bob.state, bob.heard.filter((line) => /away|back/.test(line))]).toEqual([{ diary: [] }, []])
  })

  it.each(ways)('%s counts as disconnected after two heartbeats', async (_, go) => {
    const { bench, bob } = await inLounge({ reconnectSeconds: 1 })
    go(bench)
    await bench.resume('lounge', bob, 1)
    await bench.advance(RESUMES_MS - 10, 1000)
    expect(bob.state).toEqual({ diary: [] })
    await bench.advance(20)
    expect(bob.state).toEqual({ diary: ['lost ann, of 1 here', 'left ann'] })
  })

  it('counts so at the next owner, too', async () => {
    const { bench, ann, bob } = await inLounge()
    const heir = bench.successor([ann, bob])
    await heir.resume('lounge', bob)
    await heir.advance(RESUMES_MS - 10, 1000)
    expect(bob.state).toEqual({ diary: [] })
    await heir.advance(20)
    expect([bob.state, connected(bob)]).toEqual([
      { diary: ['lost ann, of 1 here'] },
      { ann: false, bob: true },
    ])
  })
})

describe('the claim `data` of a token', () => {
  const join = async () => {
    const bench = new RoomBench([lounge()])
    const ann = await bench.join('lounge', 'ann', { data: { level: 3 } })
    return { bench, ann }
  }
  const look = (bench: RoomBench) => bench.say('lounge', 'ann', 'look', null)

  it('is for room code, and rests in the record', async () => {
    const { bench, ann } = await join()
    const bob = await bench.join('lounge', 'bob')
    await look(bench)
    const seen = ['ann true {"level":3}', 'bob true null', '{"level":3}']
    expect(ann.state).toEqual({ diary: seen })
    expect(JSON.stringify([ann.members, bob.members])).not.toContain('level')
    const heir = bench.successor([ann])
    await heir.resume('lounge', ann, 0, 'node_a', 0, { level: 3 })
    await look(heir)
    expect(ann.state).toEqual({ diary: [...seen, ...seen] })
  })

  it.each([
    ['is said', (bench: RoomBench) => bench.send('lounge', 'ann', { kind: 'renew', data: { level: 4 } })],
    [
      'comes with a resume',
      (bench: RoomBench) =>
        bench.resume('lounge', bench.members.get('ann')!, 1, 'node_a', 0, { level: 4 }).then(() => {}),
    ],
  ])('is replaced when a fresh token %s, without a turn, and for the next owner, too', async (_, renew) => {
    const { bench, ann } = await join()
    const { seq } = ann
    await renew(bench)
    await bench.settle()
    expect([ann.seq, ann.faults]).toEqual([seq, []])
    await look(bench)
    expect(ann.state).toMatchObject({ diary: { 1: '{"level":4}' } })
    const heir = bench.successor([ann])
    const claim = await heir.claimed('lounge')
    expect(JSON.stringify(restore(claim, new JournalFormat())!.memberships)).toContain('"data":{"level":4}')
  })
})

describe('who is removed', () => {
  it('is told why, and the others are not', async () => {
    const { bench, ann, bob } = await inLounge()
    await bench.say('lounge', 'ann', 'out', null)
    expect(ann.errors.concat(ann.heard.at(-1) as never)).toEqual(['-ann kicked: no shoes in here'])
    expect(bob.heard.at(-1)).toBe('-ann kicked')
  })

  it('is told why when it is as it joins', async () => {
    const bench = new RoomBench([lounge()])
    const ann = await bench.join('lounge', 'ann', { sub: 'barred' })
    expect(ann.errors).toMatchObject([{ code: 'join_refused', message: 'you are barred' }])
  })
})
