import { describe, expect, test } from 'vitest'
import { inRoom, type Options, statuses, turn, URL } from '../test/support/client/play.ts'
import { mayGoTo } from './session.ts'

/** Address of the node that runs the client's rooms. */
const NEARER = 'ws://roomful.test/node-2'

/** A client in a room that has received a move, to another node or (`url` null) away from a draining node. Its new socket is not open. */
async function moving(options: Partial<Options> = {}, url: string | null = NEARER) {
  const scene = await inRoom(options)
  const seen = statuses(scene.client)
  scene.server.onDial = () => {}
  const before = scene.server.socket
  scene.server.send({ t: 'move', in_ms: 100, ...(url !== null && { url }) })
  await scene.pass(100)
  return { ...scene, seen, before, next: scene.server.socket }
}

/** The same after the new socket has opened, and the server has answered `move`. The hello has no answer. */
async function changingOver(options: Partial<Options> = {}, url?: string) {
  const scene = await moving(options, url)
  scene.server.onHello = () => {}
  scene.next.accept()
  scene.server.send({ t: 'moved' }, scene.before)
  return scene
}

const kinds = ({ said }: { said: readonly { t: string }[] }) => said.map(({ t }) => t)

test.each([
  ['to the node of its rooms', NEARER],
  ['away from a draining node', URL],
])('a client moves %s without a loss', async (_, url) => {
  const { client, server, room, owner, before, next, seen } = await moving({}, url === URL ? null : url)
  expect(next.url).toBe(url)
  server.deliverTo(before, owner.patch({ n: 1 }))
  expect(room.state).toEqual({ n: 1 })
  next.accept()
  expect(kinds(before).at(-1)).toBe('move')
  server.send({ t: 'moved' }, before)
  expect(server.all('hello')[1]).toEqual({
    t: 'hello',
    project_id: 'prj_1',
    resume: {
      session_id: 'ses_1',
      resume_token: 'resume_1',
      rooms: [{ room_id: 'arena:lobby', member_id: 'mem_1', epoch: 1000, seq: 8, settled: 0 }],
    },
    features: ['layers'],
  })
  expect(before.closed).toBe(false)
  server.deliver(owner.patch({ n: 2 }))
  expect(room.state).toEqual({ n: 2 })
  expect(seen).toEqual([])
  expect(client.stats).toMatchObject({ moves: 1, reconnects: 0 })
})

test('unacknowledged messages are resent on the new connection, and nothing on the old one', async () => {
  const { server, room, owner, before, next } = await moving()
  const first = room.send('first')
  server.onHello = () => {}
  next.accept()
  const said = before.said.length
  const second = room.send('second')
  server.send({ t: 'moved' }, before)
  const third = room.send('third')
  room.send('wave', null, { reliable: false })
  server.welcome()
  room.send('bow', null, { reliable: false })
  expect(before.said.slice(said)).toEqual([])
  const sent = next.said.flatMap((message) => (message.t === 'message' ? message.type : []))
  expect(sent).toEqual(['first', 'second', 'third', 'wave', 'bow'])
  server.ack(owner, Math.max(...server.messageRefs.map((ref) => ref ?? 0)))
  await Promise.all([first, second, third])
})

test('a join during the change-over is sent after the welcome', async () => {
  const { client, server, before, next } = await changingOver()
  const joining = client.join('arena', { key: 'other' })
  expect(kinds(next)).toEqual(['hello'])
  server.welcome()
  expect((await joining).memberId).toBe('mem_2')
  expect(kinds(before)).toEqual(['hello', 'ping', 'join', 'move'])
})

test('a client stays at its node when the other cannot be reached, and doubles the wait after each attempt', async () => {
  const { client, server, room, owner, clock, before, next, seen } = await moving()
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  next.end(1006)
  const triesAfter = async (ms: number) => {
    clock.advance(ms)
    server.send({ t: 'move', in_ms: 0, url: NEARER }, before)
    clock.advance(0)
    await turn()
    return server.sockets.length - 1
  }
  expect(await triesAfter(29_000)).toBe(1)
  expect(await triesAfter(1000)).toBe(2)
  expect(await triesAfter(59_000)).toBe(2)
  expect(await triesAfter(1000)).toBe(3)
  server.deliverTo(before, owner.patch({ n: 1 }))
  expect(room.state).toEqual({ n: 1 })
  expect(seen).toEqual([])
  expect(client.stats.moves).toBe(0)
})

test('a socket to another node that does not open in 5 s is closed', async () => {
  const { server, next, seen, pass } = await moving()
  await pass(6000)
  expect(next.closed).toBe(true)
  expect(server.sockets).toHaveLength(2)
  expect(seen).toEqual([])
})

test.each([1006, 1013, 4003, 4005, 4300])(
  'after a close of the new connection before its welcome (%i), the client resumes with the used token at the first address',
  async (code) => {
    const { client, server, room, owner, before, next, seen, pass } = await changingOver()
    server.onDial = (socket) => queueMicrotask(() => socket.accept())
    server.onHello = () => server.welcome()
    const sent = room.send('move')
    next.end(code)
    expect(before.closed).toBe(true)
    await pass(300)
    expect(server.sockets.map(({ url }) => url)).toEqual([URL, NEARER, URL])
    const [, , hello] = server.all('hello')
    expect(hello).toMatchObject({ resume: { resume_token: 'resume_1' } })
    server.ack(owner, server.messageRefs.at(-1)!)
    await sent
    server.deliver(owner.patch({ n: 1 }))
    expect(room.state).toEqual({ n: 1 })
    expect(seen).toEqual([['reconnecting', 'connection_lost'], 'online'])
    expect(client.stats).toMatchObject({ moves: 0, reconnects: 1 })
  },
)

test('without a welcome in time on the new connection, the client resumes at the first address', async () => {
  const { server, next, pass } = await changingOver()
  server.onDial = (socket) => queueMicrotask(() => socket.accept())
  await pass(4900)
  expect(server.sockets).toHaveLength(2)
  server.onHello = () => server.welcome()
  await pass(500)
  expect(next.closed).toBe(true)
  expect(server.all('hello')).toHaveLength(3)
})

test('a loss before the new socket is open leads to a normal resume', async () => {
  const { client, server, before, next, pass } = await moving()
  server.onDial = (socket) => queueMicrotask(() => socket.accept())
  before.end(1006)
  expect(next.closed).toBe(true)
  await pass(300)
  expect(server.socket.url).toBe(URL)
  expect(client.stats).toMatchObject({ moves: 0, reconnects: 1 })
})

test('a loss at the new node leads to a resume at the first address', async () => {
  const { client, server, next, pass } = await changingOver()
  server.welcome()
  server.onDial = (socket) => queueMicrotask(() => socket.accept())
  server.onHello = () => server.welcome()
  next.end(1006)
  await pass(300)
  expect(server.socket.url).toBe(URL)
  expect(server.all('hello').at(-1)).toMatchObject({ resume: { resume_token: 'resume_2' } })
  expect(client.stats).toMatchObject({ moves: 1, reconnects: 1 })
})

test('a client of a draining node repeats the move until its connection ends, and then resumes', async () => {
  const { client, server, room, owner, before, next, seen, pass } = await moving({}, null)
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  next.end(1006)
  await pass(5000)
  expect(server.sockets.length).toBeGreaterThan(3)
  expect(server.sockets.length).toBeLessThan(12)
  server.deliverTo(before, owner.patch({ n: 1 }))
  expect(room.state).toEqual({ n: 1 })
  server.onDial = (socket) => queueMicrotask(() => socket.accept())
  before.end(4101)
  await pass(15_000)
  expect(seen).toEqual([['reconnecting', 'draining'], 'online'])
  expect(client.stats).toMatchObject({ moves: 0, reconnects: 1 })
})

test.each(['first', 'second'])(
  'after a loss of the %s socket before `moved`, the client resumes at the first address',
  async (which) => {
    const { client, server, before, next, seen, pass } = await moving()
    next.accept()
    server.onDial = (socket) => queueMicrotask(() => socket.accept())
    const [lost, other] = which === 'first' ? [before, next] : [next, before]
    lost.end(4005)
    expect(other.closed).toBe(true)
    await pass(1000)
    expect(server.sockets.map(({ url }) => url)).toEqual([URL, NEARER, URL])
    expect(server.all('hello').at(-1)).toMatchObject({ resume: { resume_token: 'resume_1' } })
    expect(seen).toEqual([['reconnecting', 'connection_lost'], 'online'])
    expect(client.stats).toMatchObject({ moves: 0, reconnects: 1 })
  },
)

test.each([
  [
    'before `moved`',
    async () => {
      const scene = await moving()
      scene.server.onHello = () => {}
      scene.next.accept()
      return scene
    },
  ],
  ['after it', changingOver],
])('close during a change-over, %s, sends a goodbye behind the hello', async (_, begin) => {
  const { client, before, next, clock } = await begin()
  client.close()
  expect(kinds(before).at(-1)).toBe('move')
  expect(kinds(next)).toEqual(['hello', 'goodbye'])
  expect([before.closed, next.closed]).toEqual([true, true])
  expect(clock.pending).toBe(0)
})

describe('the address of a move', () => {
  test.each([
    ['may be the configured host with another path', undefined, NEARER, true],
    ['may be a host of the list', ['node-2.test'], 'ws://node-2.test:4000', true],
    ['may not be another host', undefined, 'ws://node-2.test:4000', false],
    ['may not be any address with reroute: false', false as const, NEARER, false],
  ])('%s', async (_, reroute, url, goes) => {
    const { server, pass } = await inRoom(reroute === undefined ? {} : { reroute })
    server.send({ t: 'move', in_ms: 0, url })
    await pass(1)
    expect(server.sockets).toHaveLength(goes ? 2 : 1)
  })

  test.each([
    ['ws://play.example:4001', 'ws://play.example:4000'],
    ['wss://play.example/node-3', 'wss://play.example'],
    ['wss://play.example/node-3', 'ws://play.example'],
    ['wss://node-3.play.example/ws', 'wss://play.example'],
    ['wss://[2001:db8::3]:4000', 'wss://[2001:db8::3]'],
  ])('may be %s for a client at %s', (address, given) => {
    expect(mayGoTo(address, given, ['node-3.play.example'])).toBe(true)
  })

  test.each([
    ['another host', 'wss://node-4.play.example', 'wss://play.example'],
    ['a host with the same prefix', 'wss://play.example.evil.example', 'wss://play.example'],
    ['a host after a user name', 'wss://play.example@evil.example', 'wss://play.example'],
    ['an unencrypted connection', 'ws://play.example', 'wss://play.example'],
    ['the same, from a page', 'ws://play.example', 'https://play.example'],
    ['an address without a websocket scheme', 'https://play.example', 'wss://play.example'],
    ['only a path', '/node-3', 'wss://play.example'],
    ['nothing', '', 'wss://play.example'],
  ])('may not be %s: %s for a client at %s', (_, address, given) => {
    expect(mayGoTo(address, given, ['node-3.play.example'])).toBe(false)
  })
})
