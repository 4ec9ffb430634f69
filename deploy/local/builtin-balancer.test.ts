import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { freePort } from '../../test/support/redis-port.ts'
import { BuiltinBalancer } from './builtin-balancer.ts'

const ended: (() => void)[] = []
afterEach(() => {
  for (const end of ended.splice(0)) end()
})

/** A server that tells its name, and whether it is ready. */
async function target(name: string, ready = true) {
  const server = createServer((request, response) => {
    if (request.url === '/readyz') response.statusCode = ready ? 200 : 503
    response.end(name)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const end = (): void => {
    server.close()
    server.closeAllConnections()
  }
  ended.push(end)
  return { port, healthPort: port, end }
}

async function balancer(targets: { port: number; healthPort: number }[]) {
  const port = await freePort()
  const running = new BuiltinBalancer({ port, targets, clock: new FakeClock() })
  ended.push(() => running.close())
  await running.start()
  /** The name of what answers over a new connection; `no one` when it is broken. */
  const ask = () =>
    new Promise<string>((resolve) => {
      let heard = ''
      const socket = connect({ host: '127.0.0.1', port })
      socket.on('data', (chunk) => {
        heard += chunk.toString()
      })
      socket.once('error', () => undefined)
      socket.once('close', () => resolve(heard.split('\r\n\r\n')[1] ?? 'no one'))
      socket.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
    })
  return { running, ask }
}

it('gives connections to ready targets in turn', async () => {
  const { ask } = await balancer([await target('a'), await target('b', false), await target('c')])
  expect([await ask(), await ask(), await ask(), await ask()]).toEqual(['a', 'c', 'a', 'c'])
})

it('goes to the next target where a connection is refused, before any check has noticed', async () => {
  const first = await target('a')
  const { ask } = await balancer([first, await target('b')])
  first.end()
  expect([await ask(), await ask(), await ask()]).toEqual(['b', 'b', 'b'])
})

it('breaks connections when no target is ready, and when it ends', async () => {
  const { running, ask } = await balancer([await target('a', false)])
  expect(await ask()).toBe('no one')
  running.close()
  expect(await ask()).toBe('no one')
})
