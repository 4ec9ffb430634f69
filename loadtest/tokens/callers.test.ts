import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { Callers } from './callers.ts'

let server: Server
afterEach(() => void server.close())

/** A server that says the same to everybody, and notes how many asked at once and over how many connections. */
async function serverThatSays(status: number, text: string) {
  const seen = { asked: 0, connections: 0, at_once: 0, most_at_once: 0 }
  server = createServer((request, response) => {
    seen.asked += 1
    seen.at_once += 1
    seen.most_at_once = Math.max(seen.most_at_once, seen.at_once)
    request.resume().once('end', () => {
      seen.at_once -= 1
      response.writeHead(status).end(text)
    })
  })
  server.on('connection', () => {
    seen.connections += 1
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { seen, call: { url, credential: 'secret', project_id: 'prj_1' } }
}

it('each caller asks again once it is answered, over a connection that it keeps, and every answer counts', async () => {
  const { seen, call } = await serverThatSays(200, '{"token":"v4.public.abc"}')
  const callers = new Callers(3)
  const served = await callers.run(call, 0.2)
  callers.close()
  expect(served.tokens).toBe(seen.asked)
  expect(served.tokens).toBeGreaterThan(3)
  expect(served.latency).toMatchObject({ n: served.tokens })
  expect(seen.connections).toBe(3)
  expect(seen.most_at_once).toBeLessThanOrEqual(3)
})

it.each([
  [429, '{"code":"rate_limited"}'],
  [200, '{"something":"else"}'],
])('an answer without a token is no figure: %i %s', async (status, text) => {
  const { call } = await serverThatSays(status, text)
  const callers = new Callers(1)
  await expect(callers.run(call, 0.2)).rejects.toThrow(`POST /tokens answered ${status}: ${text}`)
  callers.close()
})
