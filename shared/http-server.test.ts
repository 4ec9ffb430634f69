import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { problemIn, rawHttp } from '../test/support/raw-client.ts'
import { createHttpServer, InternalToken } from './http-server.ts'

let opened: Socket[]

async function serve(): Promise<string> {
  const server = createHttpServer(() => new Response('here'), new SeededRandom()).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  opened = []
  server.on('connection', (socket) => opened.push(socket))
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

it.each([
  ['a request that is not HTTP', 'nonsense\r\n\r\n', 400, 'invalid_request'],
  ['a host that is none', 'GET / HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n', 400, 'invalid_request'],
  [
    'headers above 16 KiB',
    `GET / HTTP/1.1\r\nhost: a\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`,
    431,
    'headers_too_large',
  ],
])('answers %s with a problem that has a request id', async (_, request, status, code) => {
  const answer = await rawHttp(await serve(), request)
  expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
  expect(answer).toContain('content-type: application/problem+json\r\n')
  const problem = problemIn(answer)
  expect(problem).toMatchObject({ status, code, request_id: expect.stringMatching(/^req_/) })
  expect(answer).toContain(`x-request-id: ${problem.request_id}\r\n`)
})

it('closes the connection of a refused client that does not close its half', async () => {
  const { hostname, port } = new URL(await serve())
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true }, () =>
    socket.write('nonsense\r\n\r\n'),
  )
  await once(socket.resume(), 'end')
  await vi.waitFor(() => expect(opened[0]!.destroyed).toBe(true), 60_000)
  socket.destroy()
})

it('answers HTTP/1.0 without a host, as in the plain health check of haproxy', async () => {
  expect(await rawHttp(await serve(), 'GET /readyz HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 [\s\S]*here$/)
})

describe('an internal token', () => {
  it('accepts the same token and no other', () => {
    const token = new InternalToken('a-secret')
    expect(token.shown).toBe('a-secret')
    expect(token.accepts('a-secret')).toBe(true)
    for (const other of ['', 'a-secre', 'a-secret ', 'another', undefined])
      expect(token.accepts(other)).toBe(false)
  })

  it('with several values sends the first and accepts each, but not the whole list', () => {
    const token = new InternalToken('new,old')
    expect(token.shown).toBe('new')
    expect(['new', 'old', 'new,old', ''].map((given) => token.accepts(given))).toEqual([
      true,
      true,
      false,
      false,
    ])
  })

  it.each([undefined, '', ','])('that is %j accepts no token', (tokens) => {
    const none = new InternalToken(tokens)
    expect(none.shown).toBeUndefined()
    expect([none.accepts(undefined), none.accepts('')]).toEqual([false, false])
  })

  it('ignores empty values among others', () => {
    expect(new InternalToken('new,').accepts('')).toBe(false)
  })
})
