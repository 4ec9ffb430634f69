import { afterEach, expect, test, vi } from 'vitest'
import { FakePage } from '../test/support/client/fake-browser.ts'
import { online } from '../test/support/client/play.ts'
import { watchPage } from './client.ts'

test('a page that is left for good is told from one that is kept', () => {
  const page = new FakePage()
  const seen: string[] = []
  const stop = watchPage(page, {
    leaves: (forGood) => seen.push(forGood ? 'leaves' : 'hides'),
    returns: () => seen.push('returns'),
    online: () => seen.push('online'),
  })
  page.fire('pageshow', { persisted: false })
  page.fire('pagehide', { persisted: true })
  page.fire('pageshow', { persisted: true })
  page.fire('online')
  page.fire('pagehide', { persisted: false })
  expect(seen).toEqual(['hides', 'returns', 'online', 'leaves'])
  stop()
  page.fire('pagehide', { persisted: false })
  page.fire('pageshow')
  page.fire('online')
  expect(seen).toHaveLength(4)
})

afterEach(() => vi.unstubAllGlobals())

test('in a browser a client says goodbye when its page is left', async () => {
  const page = new FakePage()
  vi.stubGlobal('window', page)
  const { client, server } = await online()
  page.fire('pagehide', { persisted: true })
  expect(client.status).toBe('online')
  page.fire('pagehide', { persisted: false })
  expect(client.status).toBe('closed')
  expect(server.heard.at(-1)).toEqual({ t: 'goodbye' })
  expect(server.socket.closed).toBe(true)
  expect(page.listeners).toBe(0)
})

test('in a browser a client comes back as soon as the network does', async () => {
  const page = new FakePage()
  vi.stubGlobal('window', page)
  const { client, server, pass } = await online({ random: { bytes: () => new Uint8Array(), float: () => 1 } })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  server.socket.end(1006)
  await pass(12_000)
  server.onDial = (socket) => queueMicrotask(() => socket.accept())
  page.fire('online')
  page.fire('online')
  await pass(1)
  expect(client.status).toBe('online')
  expect(server.all('hello')).toHaveLength(2)
})
