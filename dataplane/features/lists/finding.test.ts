import type { Socket } from 'node:net'
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { listAfter } from '../../../client/finding.ts'
import { codeKey } from '../../../shared/ids.ts'
import type { JsonObject } from '../../../shared/json.ts'
import type { ErrorCode } from '../../../shared/protocol/error-codes.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { StoreUnavailable } from '../../../shared/store/port.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import type { TestClient } from '../../../test/support/gateway/test-gateway.ts'
import { listedRow, TestControl, TestGateway, TestLists } from '../../../test/support/gateway/test-gateway.ts'
import { TestOwner, testCodecs } from '../../../test/support/gateway/test-owner.ts'
import { WrongCodes } from './finding.ts'
import { type PlaceRequest, type Placing, PlacingFailed } from './placing.ts'
import { InvalidQuery } from './rows.ts'

let test: TestGateway
let lists: TestLists
let placed: PlaceRequest[]
let place: Placing['place']
let addCode: (code: string, roomId: string) => Promise<unknown>
let storeAway: boolean
let warnings: object[]

beforeEach(async () => {
  const clock = new FakeClock()
  const { records } = memoryStore({ clock })
  lists = new TestLists()
  placed = []
  place = async () => ({ key: 'chosen', create: false, comparisons: 0 })
  storeAway = false
  warnings = []
  test = await TestGateway.start(
    {},
    {
      log: pino({ level: 'warn' }, { write: (line) => void warnings.push(JSON.parse(line)) }),
      directory: lists,
      maxPlayers: () => 4,
      placing: {
        place(request) {
          placed.push(request)
          return place(request)
        },
      },
      records: {
        write: (writes) => records.write(writes),
        renewLease: (lease) => records.renewLease(lease),
        page: (...page) => records.page(...page),
        read: (keys) =>
          storeAway && keys[0]!.startsWith('code:')
            ? Promise.reject(new StoreUnavailable('away'))
            : records.read(keys),
      },
    },
    { clock, control: await TestControl.start(), owner: new TestOwner(testCodecs()) },
  )
  addCode = (code, roomId) =>
    records.write([{ put: codeKey('prj_one', code), value: new TextEncoder().encode(roomId) }])
})
afterEach(() => test.close())

/** Returns the node’s answer to the request of this id: the message, or the code of the error. */
async function answered(client: TestClient, id: number): Promise<unknown> {
  await client.roundTrip()
  const answers = client.received.filter((message) => 'request_id' in message && message.request_id === id)
  return answers.map((answer) => (answer.t === 'error' ? answer.code : answer)).at(-1)
}

let lastId = 0
const listed = (client: TestClient, query = {}, roomType = 'arena'): Promise<unknown> => {
  const id = ++lastId
  client.send({ t: 'rooms', request_id: id, room_type: roomType, query })
  return answered(client, id)
}
const withCode = (client: TestClient, code: string): Promise<unknown> => {
  const id = ++lastId
  client.send({ t: 'find', request_id: id, code })
  return answered(client, id)
}
const found = (roomId: string) => {
  const [room_type, key] = roomId.split(':')
  return expect.objectContaining({ t: 'found', room_type, key })
}

describe('A list of rooms', () => {
  it('has the rows of the directory, without codes and nodes', async () => {
    lists.all = [listedRow('one'), listedRow('two', { max_players: 4 })]
    const { client } = await test.hello()
    const wire = (key: string, more = {}) => ({
      room_id: `arena:${key}`,
      players: 1,
      ...more,
      reserved: 0,
      created_at: '2026-10-01T12:00:00.000Z',
      data: { map: 'desert' },
    })
    expect(await listed(client, { where: { map: 'desert' }, limit: 5 })).toEqual({
      t: 'rooms',
      request_id: lastId,
      rooms: [wire('one'), wire('two', { max_players: 4 })],
    })
    const list = { projectId: 'prj_one', roomType: 'arena' }
    expect(lists.queries).toEqual([[list, { where: { map: 'desert' }, limit: 5 }]])
  })

  it('has only rooms that the latest token allows', async () => {
    lists.all = [listedRow('one'), listedRow('two')]
    const { client } = await test.hello(await test.token({ rooms: ['arena:one'] }))
    const ids = async () =>
      ((await listed(client)) as { rooms: { room_id: string }[] }).rooms.map(({ room_id }) => room_id)
    expect(await ids()).toEqual(['arena:one'])
    client.send({ t: 'token', token: await test.token({ rooms: ['arena:two'] }) })
    expect(await ids()).toEqual(['arena:two'])
  })

  it('is refused for an invalid query, with a text that says what would be right', async () => {
    const { client } = await test.hello()
    await listed(client, { limit: 101 })
    await listed(client, { where: { map: 'x'.repeat(4096) } })
    const errors = client.received.flatMap((message) => (message.t === 'error' ? [message] : []))
    expect(errors).toMatchObject([
      { code: 'invalid_options', message: expect.stringMatching(/^limit is 101: .*1 to 100/) },
      { code: 'invalid_options', message: expect.stringMatching(/characters: 4096 are allowed/) },
    ])
    lists.failure = new InvalidQuery('there is no such room type', 'unknown_room_type')
    expect(await listed(client, {}, 'chess')).toBe('unknown_room_type')
  })

  it('is refused with room_unavailable while the store is unavailable', async () => {
    const { client } = await test.hello()
    lists.failure = new StoreUnavailable('away')
    expect(await listed(client)).toBe('room_unavailable')
  })

  it('is logged once in 10 s if it fails, with the number of suppressed logs', async () => {
    const { client } = await test.hello()
    const { client: second } = await test.hello()
    lists.failure = new StoreUnavailable('away')
    for (const one of [client, second, client]) await listed(one)
    expect(warnings).toMatchObject([{ err: { message: 'away' }, suppressed: 0 }])
    test.clock.advance(10_000)
    await listed(client)
    expect(warnings.slice(1)).toMatchObject([{ suppressed: 2 }])
  })

  it('waits above 10 a second with a burst of 30, for all sessions of a player', async () => {
    await test.close()
    test = await TestGateway.start({ playerPointsPerSecond: 1000 }, { directory: lists })
    const { client } = await test.hello()
    const { client: second } = await test.hello()
    const beganAt = test.clock.monotonic()
    let isOver = false
    const asking = (async () => {
      const answers = []
      for (let i = 0; i < 40; i++) answers.push(await listed(i % 2 ? client : second))
      isOver = true
      return answers
    })()
    while (!isOver) {
      test.clock.advance(10)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(await asking).not.toContain('rate_limited')
    // Two hellos and 30 lists use up a whole budget.
    expect(test.clock.monotonic() - beganAt).toBeGreaterThan(900)
  })
})

describe('A query', () => {
  /** Returns the milliseconds until the answer to a list that is asked after `first`. */
  async function waitAfter(first: (client: TestClient) => Promise<unknown>): Promise<number> {
    await test.close()
    test = await TestGateway.start({}, { directory: lists, placing: { place } })
    const { client } = await test.hello()
    await first(client)
    lists.work = {}
    const beganAt = test.clock.monotonic()
    let isOver = false
    const answer = listed(client).finally(() => {
      isOver = true
    })
    while (!isOver) {
      test.clock.advance(10)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(await answer).toMatchObject({ t: 'rooms' })
    return test.clock.monotonic() - beganAt
  }
  // No round trip: its ping would have to wait.
  const list = (client: TestClient): Promise<unknown> => {
    client.send({ t: 'rooms', request_id: ++lastId, room_type: 'arena' })
    return client.next('rooms')
  }
  const find =
    (answer: 'found' | 'error') =>
    (client: TestClient): Promise<unknown> => {
      client.send({ t: 'find', request_id: ++lastId, room: { room_type: 'arena' } })
      return client.next(answer)
    }

  it('costs its player a point for 250 comparisons, as a list, a search and a watch', async () => {
    expect(await waitAfter(list)).toBeLessThan(500)
    // 3,500 points: all that are saved up, and a debt.
    lists.work = { comparisons: 875_000 }
    expect(await waitAfter(list)).toBeGreaterThan(500)
    place = async () => ({ key: 'chosen', create: false, comparisons: 875_000 })
    expect(await waitAfter(find('found'))).toBeGreaterThan(500)
    place = async () => {
      throw new InvalidQuery('the query stopped', 'invalid_options', 875_000)
    }
    expect(await waitAfter(find('error'))).toBeGreaterThan(500)
    const watched = async (client: TestClient): Promise<void> => {
      client.send({ t: 'rooms', request_id: ++lastId, room_type: 'arena', watch: true })
      await client.next('rooms')
      expect(lists.latest!.canPay()).toBe(true)
      lists.latest!.pay(875_000)
      expect(lists.latest!.canPay()).toBe(false)
    }
    expect(await waitAfter(watched)).toBeGreaterThan(500)
  })

  it('that stops after too many rows is refused, with a text that says what to do', async () => {
    const { client } = await test.hello()
    const { room_id, players, reserved, created_at } = listedRow('one')
    lists.work = { stoppedAt: { room_id, players, reserved, created_at }, looked: 10_000, comparisons: 1 }
    expect(await listed(client)).toBe('invalid_options')
    expect(client.received.at(-1)).toMatchObject({
      message: expect.stringMatching(/10000 rooms .* use conditions/),
    })
  })

  it('that stops ends its watch with an error', async () => {
    const { client } = await test.hello()
    client.send({ t: 'rooms', request_id: ++lastId, room_type: 'arena', watch: true })
    await client.roundTrip()
    lists.latest!.failed(new InvalidQuery('the query stopped'))
    expect(await answered(client, lastId)).toBe('invalid_options')
    expect(lists.watchers.size).toBe(0)
  })
})

describe('A watch', () => {
  const watch = (client: TestClient, id: number) =>
    client.send({ t: 'rooms', request_id: id, room_type: 'arena', watch: true })
  const lengths = (client: TestClient, id: number) => {
    let rows: ReturnType<typeof listAfter> = []
    return client.received.flatMap((message) => {
      if (message.t !== 'rooms' || message.request_id !== id) return []
      rows = listAfter(rows, message)
      return [rows.length]
    })
  }

  it('sends the list immediately and after each change, until rooms.end', async () => {
    const { client } = await test.hello()
    watch(client, 1)
    await client.roundTrip()
    lists.change(listedRow('one'))
    await client.roundTrip()
    client.send({ t: 'rooms.end', request_id: 1 })
    await client.roundTrip()
    expect(lists.watchers.size).toBe(0)
    expect(lengths(client, 1)).toEqual([0, 1])
  })

  it('ends with its connection', async () => {
    const { client } = await test.hello()
    watch(client, 1)
    await client.roundTrip()
    client.send({ t: 'goodbye' })
    await client.closed
    await expect.poll(() => lists.watchers.size).toBe(0)
  })

  it('is replaced by another one with the same id', async () => {
    const { client } = await test.hello()
    watch(client, 1)
    watch(client, 1)
    await client.roundTrip()
    expect(lists.watchers.size).toBe(1)
  })

  it('is refused if the session already has four', async () => {
    const { client } = await test.hello()
    for (const id of [1, 2, 3, 4, 5]) watch(client, id)
    // Not retryable: a client that retries would wait until another list ends.
    expect(await answered(client, 5)).toBe('too_many_rooms')
    expect(client.received).toContainEqual(expect.objectContaining({ t: 'error', retryable: false }))
    expect(lists.watchers.size).toBe(4)
    client.send({ t: 'rooms.end', request_id: 1 })
    watch(client, 5)
    expect(await answered(client, 5)).toMatchObject({ t: 'rooms' })
  })

  it('sends the list that a fresh token allows, also if no room changes', async () => {
    lists.all = [listedRow('one'), listedRow('two')]
    const { client } = await test.hello()
    watch(client, 1)
    for (let i = 0; i < 2; i++) {
      await test.renew(client, await test.token({ rooms: ['arena:one'] }))
    }
    await client.roundTrip()
    expect(lengths(client, 1)).toEqual([2, 1])
    expect(lists.watchers.size).toBe(1)
    client.send({ t: 'rooms.end', request_id: 1 })
    await client.roundTrip()
    expect(lists.watchers.size).toBe(0)
  })

  it('sends only the latest list to a client that does not read', async () => {
    const { client } = await test.hello()
    watch(client, 1)
    await client.roundTrip()
    const socket = Reflect.get(client.ws, '_socket') as Socket
    socket.pause()
    const many = Array.from({ length: 100 }, (_, at) => listedRow(`${at}`, { data: 'x'.repeat(1000) }))
    for (let i = 0; i < 400; i++) {
      lists.change(...many)
      await new Promise((resolve) => setImmediate(resolve))
    }
    lists.change(listedRow('latest'))
    socket.resume()
    await expect.poll(() => lengths(client, 1).at(-1)).toBe(1)
    expect(lengths(client, 1).length).toBeLessThan(300)
  })
})

describe('A code', () => {
  it('leads to its room, whatever its case and look-alike characters', async () => {
    await addCode('K0QX1M', 'arena:one')
    const { client } = await test.hello()
    expect(await withCode(client, 'koqxim')).toEqual(found('arena:one'))
  })

  it('of no room, and of one that the token does not allow, is room_not_found', async () => {
    await addCode('K7QX2M', 'arena:one')
    const { client } = await test.hello(await test.token({ rooms: ['arena:two', 'chess'] }))
    expect([
      await withCode(client, 'K7QX2M'),
      await withCode(client, '000000'),
      await withCode(client, 'x'),
    ]).toEqual(Array(3).fill('room_not_found'))
  })

  it('is refused after ten wrong ones in a minute, and right ones do not count', async () => {
    await addCode('K7QX2M', 'arena:one')
    const { client } = await test.hello()
    for (let i = 0; i < 9; i++) expect(await withCode(client, '000000')).toBe('room_not_found')
    for (let i = 0; i < 15; i++) expect(await withCode(client, 'K7QX2M')).toEqual(found('arena:one'))
    test.clock.advance(1000)
    expect(await withCode(client, '000000')).toBe('room_not_found')
    expect(await withCode(client, 'K7QX2M')).toBe('rate_limited')
    test.clock.advance(60_000)
    const { client: later } = await test.hello()
    expect(await withCode(later, 'K7QX2M')).toEqual(found('arena:one'))
  })

  it('is sent to the owner with the next join that creates no room, also after a resume', async () => {
    await addCode('K0QX1M', 'arena:one')
    const { client, welcome } = await test.hello()
    const join = (client: TestClient, id: number, more = {}) =>
      client.send({ t: 'join', request_id: id, room_type: 'arena', options: { key: 'one' }, ...more })
    await withCode(client, 'koqxim')
    const back = await test.resume(welcome, [])
    join(back, 101, { create: false })
    await answered(back, 101)
    back.send({ t: 'leave', request_id: 102, room_id: 'arena:one' })
    await back.next('left')
    join(back, 103, { create: false })
    await answered(back, 103)
    expect(test.owner.of('join').map(({ code }) => code)).toEqual(['K0QX1M', undefined])
  })

  it('is not sent with a join that may create the room', async () => {
    await addCode('K0QX1M', 'arena:one')
    const { client } = await test.hello()
    await withCode(client, 'K0QX1M')
    client.send({ t: 'join', request_id: 101, room_type: 'arena', options: { key: 'one' } })
    await client.roundTrip()
    expect(test.owner.of('join').map(({ code }) => code)).toEqual([undefined])
  })

  it('does not count as wrong if the store does not answer', async () => {
    await addCode('K7QX2M', 'arena:one')
    const { client } = await test.hello()
    storeAway = true
    for (let i = 0; i < 11; i++) expect(await withCode(client, 'K7QX2M')).toBe('room_unavailable')
    storeAway = false
    expect(await withCode(client, 'K7QX2M')).toEqual(found('arena:one'))
  })
})

describe('Wrong codes', () => {
  const attempt = (player: string, address: string, projectId = 'p') => ({ player, address, projectId })

  it('are limited to 100 in a minute from one address', () => {
    const codes = new WrongCodes(new FakeClock())
    for (let i = 0; i < 100; i++) expect(codes.add(attempt(`${i}`, 'one'))).toBeDefined()
    expect(codes.add(attempt('new', 'one'))).toBe(undefined)
    expect(codes.add(attempt('new', 'two'))).toBeDefined()
  })

  it('beyond 1,000 in a project are refused only to players and addresses that have sent one', () => {
    const codes = new WrongCodes(new FakeClock())
    for (let i = 0; i < 1000; i++) expect(codes.add(attempt(`${i}`, `a${i}`))).toBeDefined()
    expect(codes.add(attempt('5', 'elsewhere'))).toBe(undefined)
    expect(codes.add(attempt('new', 'a5'))).toBe(undefined)
    expect(codes.add(attempt('new', 'elsewhere'))).toBeDefined()
    expect(codes.add(attempt('5', 'a5', 'other'))).toBeDefined()
  })
})

describe('A room for joinOrCreate', () => {
  const find = async (client: TestClient, room: { options?: JsonObject; query?: JsonObject } = {}) => {
    const id = ++lastId
    client.send({ t: 'find', request_id: id, room: { room_type: 'arena', ...room } })
    return answered(client, id)
  }

  it('is the room that the placer chooses', async () => {
    const { client, welcome } = await test.hello(await test.token({ rooms: ['arena'] }))
    const room = { query: { where: { map: 'ice' } }, options: { map: 'ice' } }
    expect(await find(client, room)).toEqual(found('arena:chosen'))
    expect(placed).toEqual([
      {
        projectId: 'prj_one',
        roomType: 'arena',
        query: { where: { map: 'ice' } },
        optionsHash: expect.any(String),
        sessionId: welcome.session_id,
        requestId: lastId,
        not: [],
        allows: ['arena'],
        maxPlayers: 4,
        isPromised: true,
      },
    ])
  })

  it('gives the promise of an earlier request back, and is no promise after three that were broken', async () => {
    const { client, welcome } = await test.hello()
    const ids: number[] = []
    for (let times = 0; times < 5; times++) {
      await find(client)
      ids.push(lastId)
    }
    const earlier = (index: number) => ({ sessionId: welcome.session_id, requestId: ids[index] })
    expect(placed.map(({ isPromised, instead }) => [isPromised, instead])).toEqual([
      [true, undefined],
      [true, earlier(0)],
      [true, earlier(1)],
      [false, earlier(2)],
      [false, undefined],
    ])
  })

  it('is a promise that a join keeps, also one that is refused', async () => {
    const { client } = await test.hello(await test.token({ rooms: ['arena:chosen'] }))
    const other = await test.hello(await test.token({ rooms: ['arena:other'] }))
    for (const asking of [client, other.client])
      for (let times = 0; times < 5; times++) {
        await find(asking)
        asking.send({ t: 'join', request_id: ++lastId, room_type: 'arena', options: { key: 'chosen' } })
        await asking.roundTrip()
      }
    expect(placed.map(({ isPromised, instead }) => [isPromised, instead])).toEqual(
      Array(10).fill([true, undefined]),
    )
  })

  it('is none that the session is in, nor for 10 s one that has refused it', async () => {
    const { client } = await test.hello()
    const joins = async (key: string, refusal?: ErrorCode) => {
      if (refusal) test.owner.silent.add('join')
      const join = test.owner.next('join')
      client.send({ t: 'join', request_id: ++lastId, room_type: 'arena', options: { key } })
      const { member_id, request_id } = await join
      test.owner.silent.clear()
      const refused = { kind: 'refused', member_id, request_id, message: 'no' } as const
      if (refusal) test.owner.room(key).send({ ...refused, code: refusal })
      await client.roundTrip()
    }
    const leftOut = async () => {
      await find(client)
      return placed.at(-1)!.not
    }
    await joins('mine')
    await joins('full', 'room_full')
    await joins('closed', 'join_refused')
    expect(await leftOut()).toEqual(['arena:mine', 'arena:full'])
    test.clock.advance(5000)
    await joins('banned', 'banned')
    await joins('other', 'already_joined')
    expect(await leftOut()).toEqual(['arena:mine', 'arena:full', 'arena:banned', 'arena:other'])
    test.clock.advance(5000)
    expect(await leftOut()).toEqual(['arena:mine', 'arena:banned', 'arena:other'])
  })

  it('is requested with a hash that distinguishes options, whatever the order of their keys', async () => {
    const { client } = await test.hello()
    for (const options of [{ a: 1, b: { c: 2, d: 3 } }, { b: { d: 3, c: 2 }, a: 1 }, { a: 2 }, {}, undefined])
      await find(client, options && { options })
    const [one, same, two, none, absent] = placed.map(({ optionsHash }) => optionsHash)
    expect([same, absent]).toEqual([one, none])
    expect(new Set([one, two, none]).size).toBe(3)
  })

  it('is refused with the error of the placer', async () => {
    const { client } = await test.hello()
    place = () => Promise.reject(new PlacingFailed('room_unavailable', 'no node can choose a room'))
    expect(await find(client)).toBe('room_unavailable')
    place = () => Promise.reject(new PlacingFailed('forbidden', 'the token allows no new room'))
    expect(await find(client)).toBe('forbidden')
    expect(await find(client, { query: { limit: 'x' } })).toBe('invalid_options')
  })
})

describe('A join with create: false', () => {
  it('is sent to the owner with that field', async () => {
    const { client } = await test.hello()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' }, create: false })
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' }, create: true })
    await client.roundTrip()
    expect(test.owner.of('join').map(({ create }) => create)).toEqual([false, undefined])
  })
})

describe('The code of a room', () => {
  it('is in the answer to a join', async () => {
    const { client } = await test.hello()
    test.owner.room('one').code = 'K7QX2M'
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    expect(await client.next('joined')).toMatchObject({ code: 'K7QX2M' })
  })
})

describe('A fresh token with another rooms claim', () => {
  it('leaves seats alone, and applies to new joins and resumes', async () => {
    const { client, welcome, joined } = await test.join('lobby')
    client.send({ t: 'token', token: await test.token({ rooms: ['arena:private'] }) })
    const join = (request_id: number, key: string) =>
      client.send({ t: 'join', request_id, room_type: 'arena', options: { key } })
    join(2, 'private')
    join(3, 'other')
    client.send({ t: 'message', room_id: 'arena:lobby', type: 'move', data: 1, ref: 1, settled: 0 })
    expect(await client.next('ack')).toMatchObject({ room_id: 'arena:lobby', ref: 1 })
    expect(await answered(client, 2)).toMatchObject({ room_id: 'arena:private' })
    expect(await answered(client, 3)).toBe('forbidden')
    const left = test.owner.next('leave')
    const back = await test.resume(welcome, [
      { room_id: 'arena:lobby', member_id: joined.member_id, epoch: 1, seq: 1 },
      { room_id: 'arena:private', epoch: 1, seq: 1 },
    ])
    expect(await back.next('left')).toMatchObject({ room_id: 'arena:lobby' })
    expect(await left).toMatchObject({ room: { key: 'lobby' }, reason: 'session_ended' })
    back.send({ t: 'message', room_id: 'arena:private', type: 'move', data: 1, ref: 1, settled: 0 })
    expect(await back.next('ack')).toMatchObject({ room_id: 'arena:private' })
  })
})
