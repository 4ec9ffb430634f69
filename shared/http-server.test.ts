import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { expect, it, onTestFinished, vi } from 'vitest'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { problemIn, rawHttp } from '../test/support/raw-client.ts'
import { createHttpServer } from './http-server.ts'

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
  await vi.waitFor(() => expect(opened[0]!.destroyed).toBe(true), 5000)
  socket.destroy()
})

it('answers HTTP/1.0 without a host, as the plain health check of haproxy asks', async () => {
  expect(await rawHttp(await serve(), 'GET /readyz HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 [\s\S]*here$/)
})
