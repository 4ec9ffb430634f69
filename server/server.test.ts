import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { build } from 'esbuild'
import { afterEach, beforeEach, describe, expect, expectTypeOf, it } from 'vitest'
import type { TypedRoom } from '../shared/room-types.ts'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { Backend } from './backend.ts'
import { RoomfulError, roomful } from './index.ts'

interface Answer {
  readonly status?: number
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

/** A control that gives one answer after the other, and repeats the last. `'break'`: it ends the connection. */
class FakeControl {
  readonly requests: { line: string; headers: IncomingHttpHeaders; body: unknown }[] = []
  answers: (Answer | 'break')[] = []
  readonly #server = createServer(async (request, response) => {
    const body = await text(request)
    const { method, url, headers } = request
    this.requests.push({
      line: `${method} ${url}`,
      headers,
      body: body === '' ? undefined : JSON.parse(body),
    })
    const answer = this.answers.length > 1 ? this.answers.shift()! : this.answers[0]!
    if (answer === 'break') return void request.socket.destroy()
    const { status = 200, headers: more, body: given = {} } = answer
    response.writeHead(status, { 'content-type': 'application/json', ...more })
    response.end(typeof given === 'string' ? given : JSON.stringify(given))
  })

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  close(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }
}

type Duel = TypedRoom<
  {
    state: { hp: number }
    messages: object & { [type: string]: never }
    events: object & { [name: string]: never }
    options: { map?: string }
    calls: {
      grant: { data: { sub: string; gold: number }; reply: { total: number } }
      tick: { data: null; reply: null }
    }
    listing: { map: string }
  },
  'duel'
>

const problem = (status: number, code: string, more: object = {}): Answer => ({
  status,
  body: { status, code, detail: `it is ${code}`, ...more },
})

describe('roomful/server', () => {
  let control: FakeControl
  let url: string
  let slept: number[]
  let time: number
  let game: Backend

  beforeEach(async () => {
    control = new FakeControl()
    url = await control.start()
    slept = []
    time = 0
    game = newGame()
  })
  afterEach(() => control.close())

  const newGame = (timeoutMs?: number) =>
    new Backend(
      {
        url: `${url}/`,
        projectId: 'prj_a',
        key: 'the-secret',
        ...(timeoutMs !== undefined && { timeoutMs }),
      },
      {
        fetch,
        random: new SeededRandom(),
        monotonic: () => time,
        sleep: async (ms) => {
          slept.push(ms)
          time += ms
        },
      },
    )

  it('calls a room by its name, with the key of the project and the id that it is given', async () => {
    control.answers = [{ body: { reply: { total: 7 }, epoch: 1, seq: 2 } }]
    const table = game.room<Duel>('duel', 'table 7/b')
    expect(await table.call('grant', { sub: 'ada', gold: 5 }, { id: 'order-1' })).toEqual({ total: 7 })
    expect(control.requests).toMatchObject([
      {
        line: 'POST /projects/prj_a/rooms/duel/table%207%2Fb/calls/grant',
        headers: {
          authorization: 'Bearer the-secret',
          'idempotency-key': 'order-1',
          'content-type': 'application/json',
        },
        body: { sub: 'ada', gold: 5 },
      },
    ])
  })

  it('sends no credential for an empty key, as roomful dev takes it', async () => {
    control.answers = [{ body: { token: 't' } }]
    await roomful({ url, projectId: 'prj_a', key: '' }).token()
    expect(control.requests[0]!.headers).not.toHaveProperty('authorization')
  })

  it('repeats a call that has no answer, with the same id and the same body', async () => {
    control.answers = [
      'break',
      problem(429, 'rate_limited'),
      problem(503, 'room_unavailable'),
      problem(504, 'timeout'),
      { status: 502, body: '<html>' },
      { status: 408, body: '<html>' },
      problem(502, 'unreachable'),
      { body: { reply: { total: 1 } } },
    ]
    const call = game.room<Duel>('duel', 'a').call('grant', { sub: 'ada', gold: 1 }, { open: true })
    expect(await call).toEqual({ total: 1 })
    const sent = control.requests.map(({ line, headers, body }) => [line, headers['idempotency-key'], body])
    expect(sent).toHaveLength(8)
    expect(new Set(sent.map((request) => JSON.stringify(request))).size).toBe(1)
    expect(sent[0]![0]).toBe('POST /projects/prj_a/rooms/duel/a/calls/grant?open=1')
    expect(sent[0]![1]).toMatch(/^[\w-]{21}$/)
    await game.room<Duel>('duel', 'a').call('tick')
    expect(control.requests.at(-1)).not.toMatchObject({ headers: { 'idempotency-key': sent[0]![1] } })
    expect(control.requests.at(-1)!.body).toBeNull()
  })

  it('waits as long as retry-after says, and a random time of up to 100, 200, … 2,000 ms', async () => {
    const slow = { ...problem(429, 'rate_limited'), headers: { 'retry-after': '3' } }
    const down = problem(503, 'store_unreachable')
    control.answers = [slow, ...Array.from({ length: 6 }, () => down), { body: { token: 't' } }]
    await game.token()
    expect(slept[0]).toBeGreaterThanOrEqual(3000)
    for (const [at, ms] of slept.entries())
      expect(ms).toBeLessThanOrEqual((at === 0 ? 3000 : 0) + Math.min(2000, 100 * 2 ** at))
  })

  it('gives up when its time is over, with the last error', async () => {
    control.answers = [problem(503, 'room_unavailable')]
    const error = await newGame(5000)
      .room('duel', 'a')
      .close()
      .catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(RoomfulError)
    expect(error).toMatchObject({ code: 'room_unavailable', status: 503, retryable: true })
    expect(time).toBeLessThan(5000)
    expect(time).toBeGreaterThan(2500)
  })

  it('does not wait for a retry-after that comes after its time', async () => {
    control.answers = [{ ...problem(429, 'rate_limited'), headers: { 'retry-after': '600' } }]
    await expect(game.room('duel', 'a').close()).rejects.toMatchObject({ code: 'rate_limited' })
    expect(control.requests).toHaveLength(1)
  })

  it.each([
    [
      problem(404, 'room_not_found'),
      { code: 'room_not_found', status: 404, message: 'it is room_not_found' },
    ],
    [problem(409, 'room_logic_refused'), { code: 'room_logic_refused', retryable: false }],
    [problem(500, 'room_logic_failed'), { code: 'room_logic_failed' }],
    [
      problem(400, 'invalid_request', { errors: [{ path: 'data.gold', message: 'is required' }] }),
      { code: 'invalid_request', errors: [{ path: 'data.gold', message: 'is required' }] },
    ],
    [
      { status: 404, body: '<html>' },
      { code: 'unexpected_answer', status: 404 },
    ],
    [
      { status: 200, body: '<html>' },
      { code: 'unexpected_answer', status: 200 },
    ],
  ])('does not repeat what is answered with %j', async (answer, error) => {
    control.answers = [answer]
    await expect(game.room<Duel>('duel', 'a').call('tick')).rejects.toMatchObject(error)
    expect(control.requests).toHaveLength(1)
  })

  it.each([408, 502, 503, 504])('rejects with unreachable if a load balancer answers %i', async (status) => {
    control.answers = [{ status, body: '<html>' }]
    const expected = { code: 'unreachable', status, retryable: true }
    await expect(newGame(1000).token()).rejects.toMatchObject(expected)
  })

  it('rejects with unreachable and the reason where nothing listens', async () => {
    control.close()
    await expect(newGame(1000).token()).rejects.toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('ECONNREFUSED'),
    })
  })

  it('has the other requests of the control API', async () => {
    const position = { epoch: 1, seq: 2 }
    const ada = { sub: 'ada', connected: true, spectator: false, data: null }
    const view = {
      ...position,
      project_id: 'prj_a',
      room_id: 'duel:a',
      members: [{ ...ada, member_id: 'mem_1' }],
      reservations: [{ sub: 'bob', expires_at: '2026-01-01T00:00:00.000Z' }],
    }
    const seen = {
      ...position,
      roomId: 'duel:a',
      members: [{ ...ada, id: 'mem_1' }],
      reservations: [{ sub: 'bob', expiresAt: '2026-01-01T00:00:00.000Z' }],
    }
    const answers: Answer[] = [
      { body: { token: 'v4.public.x' } },
      { body: { created: true } },
      { body: { reserved: true } },
      { body: { kicked: 2 } },
      { body: { ended: true } },
      { body: { ...view, state: { hp: 1 } } },
      { body: view },
      { body: {} },
    ]
    control.answers = answers
    const room = game.room<Duel>('duel', 'a')
    const results = [
      await game.token({ sub: 'ada', ttlSeconds: 300, data: { name: 'Ada' } }),
      await room.open({ map: 'desert' }),
      await room.reserve(['ada', 'bob'], { seconds: 30 }),
      await room.kick('ada', { reason: 'foul play' }),
      await room.close(),
      await room.state(),
      await room.describe(),
      await game.revokePlayer('a/b'),
      await game.ban('ada', { until: new Date(0), roomTypes: ['duel'], reason: 'foul play' }),
      await game.unban('ada'),
      await game.setData('ada', { vip: true }),
      await game.clearData('ada'),
    ]
    expect(results.slice(0, 7)).toEqual([
      'v4.public.x',
      true,
      undefined,
      2,
      undefined,
      { ...seen, state: { hp: 1 } },
      seen,
    ])
    const at = '/projects/prj_a'
    expect(control.requests.map(({ line, body }) => [line, body])).toEqual([
      ['POST /tokens', { project_id: 'prj_a', sub: 'ada', ttl_seconds: 300, data: { name: 'Ada' } }],
      [`PUT ${at}/rooms/duel/a`, { options: { map: 'desert' } }],
      [`POST ${at}/rooms/duel/a/reserve`, { subs: ['ada', 'bob'], seconds: 30 }],
      [`POST ${at}/rooms/duel/a/kick`, { sub: 'ada', reason: 'foul play' }],
      [`POST ${at}/rooms/duel/a/close`, undefined],
      [`GET ${at}/rooms/duel/a?include_state=1`, undefined],
      [`GET ${at}/rooms/duel/a`, undefined],
      [`POST ${at}/subs/a%2Fb/revoke`, undefined],
      [
        `PUT ${at}/subs/ada/ban`,
        { until: '1970-01-01T00:00:00.000Z', room_types: ['duel'], reason: 'foul play' },
      ],
      [`DELETE ${at}/subs/ada/ban`, undefined],
      [`PUT ${at}/subs/ada/data`, { data: { vip: true } }],
      [`DELETE ${at}/subs/ada/data`, undefined],
    ])
    const ids = control.requests.map(({ headers }) => headers['idempotency-key'])
    const changes = control.requests.filter(({ line }) => !line.startsWith('GET'))
    expect(new Set(ids.filter((id) => id !== undefined)).size).toBe(changes.length)
  })

  it('lists rooms and bans page by page', async () => {
    const row = {
      room_id: 'duel:a',
      room_type: 'duel',
      key: 'a',
      players: 1,
      max_players: null,
      spectators: 2,
      reserved: 0,
      created_at: '2026-01-01T00:00:00.000Z',
      data: { map: 'desert' },
      code: 'K7QX2M',
    }
    control.answers = [
      { body: { rooms: [row], next_cursor: 'next' } },
      { body: { bans: [{ sub: 'ada', until: null, room_types: null, reason: 'x' }], next_cursor: null } },
    ]
    const query = { where: { map: 'desert' }, order: 'newest', full: true, limit: 5 } as const
    expect(await game.rooms<Duel>('duel', query)).toEqual({
      rooms: [
        {
          roomId: 'duel:a',
          key: 'a',
          players: 1,
          maxPlayers: undefined,
          spectators: 2,
          reserved: 0,
          createdAt: row.created_at,
          data: { map: 'desert' },
          code: 'K7QX2M',
        },
      ],
      nextCursor: 'next',
    })
    expect(await game.bans({ cursor: 'c' })).toEqual({
      bans: [{ sub: 'ada', until: undefined, roomTypes: undefined, reason: 'x' }],
      nextCursor: undefined,
    })
    const where = encodeURIComponent('{"map":"desert"}')
    expect(control.requests.map(({ line }) => line)).toEqual([
      `GET /projects/prj_a/rooms?type=duel&where=${where}&full=1&order=newest&limit=5`,
      'GET /projects/prj_a/bans?cursor=c',
    ])
  })

  it('needs nothing of Node: its bundle imports nothing and names no global of Node', async () => {
    const { outputFiles, warnings } = await build({
      entryPoints: [new URL('./index.ts', import.meta.url).pathname],
      bundle: true,
      format: 'esm',
      platform: 'neutral',
      target: 'es2022',
      write: false,
      logLevel: 'silent',
    })
    expect(warnings).toEqual([])
    const code = outputFiles[0]!.text
    expect(code).not.toMatch(/\bimport\s*[({'"]|\bfrom\s*['"]|\brequire\b|\bprocess\b|\bBuffer\b|node:/)
  })

  it('takes its types from the room definition', () => {
    const room = roomful({ url, projectId: 'prj_a', key: 'k' }).room<Duel>('duel', 'a')
    expectTypeOf(room.call<'grant'>).returns.resolves.toEqualTypeOf<{ total: number }>()
    expectTypeOf(room.call<'tick'>).returns.resolves.toEqualTypeOf<null>()
    expectTypeOf(room.state).returns.resolves.toMatchTypeOf<{ state: { readonly hp: number } }>()
    const wrong = () => {
      // @ts-expect-error: there is no such call
      void room.call('steal', {})
      // @ts-expect-error: gold is a number
      void room.call('grant', { sub: 'ada', gold: '5' })
      // @ts-expect-error: grant needs data
      void room.call('grant')
      // @ts-expect-error: there is no such option
      void room.open({ size: 1 })
      // @ts-expect-error: the definition is that of another type
      void game.room<Duel>('arena', 'a')
      // @ts-expect-error: rooms have no such field
      void game.rooms<Duel>('duel', { where: { level: 1 } })
    }
    void wrong
  })
})
