import { expect, test } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { inRoom, online, play, statuses, unsignedToken } from '../test/support/client/play.ts'
import { connect } from './index.ts'
import { tokenSub } from './token-source.ts'

const LIFE_SECONDS = 100
const code = (value: string) => expect.objectContaining({ name: 'RoomfulError', code: value })

/** A game's backend that issues a new token for each request. */
class Backend {
  readonly clock = new FakeClock()
  readonly tokens: string[] = []
  down = false

  readonly getToken = async (): Promise<string> => {
    if (this.down) throw new Error('backend down')
    this.tokens.push(unsignedToken(`token ${this.tokens.length}`))
    return this.tokens.at(-1)!
  }

  /** Returns a connected client that fetches its tokens from the backend. */
  async connected() {
    const scene = play({}, this.clock)
    scene.server.tokenSeconds = LIFE_SECONDS
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

test('a new token is sent when 80 % of the previous one’s lifetime is over', async () => {
  const backend = new Backend()
  const { server, client, pass, clock } = await backend.connected()
  expect(server.all('hello')).toMatchObject([{ token: backend.tokens[0] }])
  await pass(79_000)
  expect(server.all('token')).toEqual([])
  await pass(2000)
  expect(server.all('token')).toEqual([{ t: 'token', token: backend.tokens[1] }])
  await pass(80_000)
  expect(server.all('token')).toHaveLength(2)
  client.close()
  expect(clock.pending).toBe(0)
})

test('a token given with getToken is used first', async () => {
  const backend = new Backend()
  const { server, pass, options } = play({ getToken: backend.getToken }, backend.clock)
  server.tokenSeconds = 10
  await connect('ws://roomful.test', options)
  expect(backend.tokens).toEqual([])
  await pass(8100)
  expect(server.all('token')).toEqual([{ t: 'token', token: backend.tokens[0] }])
})

test('a failure of getToken is reported, and getToken is called again', async () => {
  const backend = new Backend()
  const { server, pass, errors, client } = await backend.connected()
  backend.down = true
  await pass(82_000)
  expect(errors[0]).toEqual(code('token_unavailable'))
  expect(client.stats.errors).toBe(errors.length)
  backend.down = false
  await pass(10_000)
  expect(server.all('token')).toHaveLength(1)
})

test('a refused new token is reported and replaced', async () => {
  const backend = new Backend()
  const { server, pass, errors } = await backend.connected()
  await pass(81_000)
  server.refuse('invalid_token')
  await pass(2000)
  expect(errors).toEqual([code('invalid_token')])
  expect(server.all('token').map(({ token }) => token)).toEqual(backend.tokens.slice(1))
  expect(backend.tokens).toHaveLength(3)
})

test('a resume after the token has expired sends a new one', async () => {
  const backend = new Backend()
  const { server, pass } = await backend.connected()
  server.tokenSeconds = 0
  server.socket.end(1006)
  await pass(300)
  // Immediately: the server waits only as long as for a hello.
  expect(server.heard.slice(-3)).toMatchObject([
    { t: 'hello', resume: {} },
    { t: 'ping' },
    { t: 'token', token: backend.tokens[1] },
  ])
})

test('a backend that issues expired tokens is asked fewer than 10 times in 10 s', async () => {
  const backend = new Backend()
  const { server, pass } = await backend.connected()
  server.tokenSeconds = 0
  server.socket.end(1006)
  await pass(10_000)
  expect(server.all('token').length).toBeLessThan(10)
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

test('a getToken that does not answer is called again', async () => {
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
  scene.server.socket.end(4200)
  await scene.pass(12_000)
  expect(asked).toBe(3)
  answerAtLast('v4.public.late')
  await scene.pass(1000)
  expect(scene.server.sockets).toHaveLength(2)
  expect(client.status).toBe('online')
})
