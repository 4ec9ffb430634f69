import { expect, test } from 'vitest'
import { sleep } from '../shared/clock.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { inRoom, online, play, statuses, unsignedToken } from '../test/support/client/play.ts'
import { connect } from './index.ts'
import { tokenSub } from './token-source.ts'

const code = (value: string) => expect.objectContaining({ name: 'RoomfulError', code: value })

/** A game's backend that issues a new token for each request. */
class Backend {
  readonly clock = new FakeClock()
  readonly tokens: string[] = []
  down = false
  /** Time that each call takes, milliseconds. */
  delayMs = 0
  calls = 0

  readonly getToken = async (): Promise<string> => {
    this.calls += 1
    if (this.delayMs > 0) await sleep(this.clock, this.delayMs)
    if (this.down) throw new Error('backend down')
    this.tokens.push(unsignedToken(`token ${this.tokens.length}`))
    return this.tokens.at(-1)!
  }

  /** Returns a connected client that fetches its tokens from the backend. */
  async connected() {
    const scene = play({}, this.clock)
    const { token: _, ...options } = scene.options
    const client = await connect('ws://roomful.test', { ...options, getToken: this.getToken })
    return { ...scene, client }
  }
}

test('tokenSub reads the player without verifying the signature', () => {
  expect(tokenSub(unsignedToken())).toBe('alice')
  expect(tokenSub(`e30.${btoa('{"sub":"bob"}')}.`)).toBe('bob')
  expect(tokenSub(`e30.${btoa('{}')}.`)).toBeNull()
  // Its base64url text contains both - and _.
  expect(tokenSub(unsignedToken('ÿþ~?>ÿ'.repeat(9)))).toBe('ÿþ~?>ÿ'.repeat(9))
  for (const other of ['', 'abc', 'v4.local.abc', 'v4.public.@@@', 'v4.public.AAAA'])
    expect(tokenSub(other)).toBeUndefined()
})

test('a fresh token is sent when the server requests one, and at no other time', async () => {
  const backend = new Backend()
  const { server, pass } = await backend.connected()
  expect(server.all('hello')).toMatchObject([{ token: backend.tokens[0] }])
  await pass(600_000)
  expect([backend.calls, server.all('token')]).toEqual([1, []])
  server.requestToken()
  await pass(1)
  expect(server.all('token')).toEqual([{ t: 'token', token: backend.tokens[1] }])
})

test('a token given with getToken is used first', async () => {
  const backend = new Backend()
  const { server, pass, options } = play({ getToken: backend.getToken }, backend.clock)
  await connect('ws://roomful.test', options)
  expect(backend.tokens).toEqual([])
  server.requestToken()
  await pass(1)
  expect(server.all('token')).toEqual([{ t: 'token', token: backend.tokens[0] }])
})

test('a getToken of 8 s answers all requests that arrive until then with one token', async () => {
  const backend = new Backend()
  const { server, pass } = await backend.connected()
  backend.delayMs = 8000
  for (const pauseMs of [1000, 2000, 4000, 2000]) {
    server.requestToken()
    await pass(pauseMs)
  }
  expect([backend.calls, server.all('token')]).toEqual([2, [{ t: 'token', token: backend.tokens[1] }]])
})

test('a getToken of 8 s loses no session whose token has expired, although the server waits for 5 s only', async () => {
  const backend = new Backend()
  const { server, pass, client } = await backend.connected()
  const seen = statuses(client)
  backend.delayMs = 8000
  server.onHello = () => {
    server.welcome()
    server.requestToken(5)
  }
  server.socket.end(1006)
  await pass(300)
  await pass(5000)
  server.socket.end(4200)
  await pass(4000)
  expect(server.all('hello').map((hello) => 'resume' in hello)).toEqual([false, true, true])
  expect(server.socket.said.filter(({ t }) => t === 'token')).toEqual([
    { t: 'token', token: backend.tokens[1] },
  ])
  expect([backend.calls, client.status, seen.at(-1)]).toEqual([2, 'online', 'online'])
})

test('a request on the first socket of a move is answered on the second, once for both', async () => {
  const backend = new Backend()
  const { server, pass } = await backend.connected()
  backend.delayMs = 1000
  const [first] = server.sockets
  server.requestToken()
  server.send({ t: 'move', in_ms: 0 })
  await pass(100)
  server.send({ t: 'moved' }, first)
  await pass(100)
  server.requestToken()
  await pass(2000)
  const tokens = server.sockets.map(({ said }) => said.filter(({ t }) => t === 'token').length)
  expect([server.sockets[0] === first, tokens]).toEqual([true, [0, 1]])
})

test('a failure of getToken is reported, and the next request calls it again', async () => {
  const backend = new Backend()
  const { server, pass, errors, client } = await backend.connected()
  backend.down = true
  server.requestToken()
  await pass(1)
  expect(errors).toEqual([code('token_unavailable')])
  expect(client.stats.errors).toBe(1)
  backend.down = false
  server.requestToken()
  await pass(1)
  expect(server.all('token')).toHaveLength(1)
})

test('a refused fresh token is reported, and the next request gets another one', async () => {
  const backend = new Backend()
  const { server, pass, errors } = await backend.connected()
  server.requestToken()
  await pass(1)
  server.refuse('invalid_token')
  server.requestToken()
  await pass(1)
  expect(errors).toEqual([code('invalid_token')])
  expect(server.all('token').map(({ token }) => token)).toEqual(backend.tokens.slice(1))
  expect(backend.tokens).toHaveLength(3)
})

test('a client without getToken ignores a request', async () => {
  const { client, server, pass, errors } = await online()
  server.requestToken()
  await pass(1)
  expect([server.all('token'), errors, client.status]).toEqual([[], [], 'online'])
})

test('without getToken, an expired token closes the client', async () => {
  const { client, server, room } = await inRoom()
  const seen: unknown[] = []
  client.onConnectionChange((status, error) => seen.push([status, error]))
  const refused = expect(room.send('move')).rejects.toEqual(code('token_expired'))
  server.socket.end(4200)
  await refused
  expect(seen).toEqual([['closed', code('token_expired')]])
})

test('without getToken, a lost session is replaced with the same token, and the client closes when the token has expired', async () => {
  const { client, server, pass } = await online()
  const seen = statuses(client)
  server.onHello = (hello) => ('resume' in hello ? server.socket.end(4300) : server.welcome())
  server.socket.end(1006)
  await pass(2000)
  expect(client.status).toBe('online')
  server.onHello = (hello) => server.socket.end('resume' in hello ? 4300 : 4200)
  server.socket.end(1006)
  await pass(2000)
  expect(seen.at(-1)).toEqual(['closed', 'token_expired'])
})

test('a getToken that does not answer is called again after 10 s', async () => {
  const scene = play()
  const { token: _, ...options } = scene.options
  let asked = 0
  let answerAtLast = (_token: string) => {}
  const late = new Promise<string>((resolve) => {
    answerAtLast = resolve
  })
  const getToken = (): Promise<string> | string => {
    asked += 1
    return asked === 2 ? late : 'v4.public.unreadable'
  }
  const client = await connect('ws://roomful.test', { ...options, getToken })
  scene.server.requestToken()
  await scene.pass(9000)
  scene.server.requestToken()
  await scene.pass(2000)
  expect(asked).toBe(2)
  scene.server.requestToken()
  await scene.pass(1000)
  expect([asked, scene.server.all('token')]).toEqual([3, [{ t: 'token', token: 'v4.public.unreadable' }]])
  answerAtLast('v4.public.late')
  await scene.pass(1000)
  expect(client.status).toBe('online')
})
