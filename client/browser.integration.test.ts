import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { SeatEnd } from '../dataplane/traffic.ts'
import { launchChromium } from '../test/support/chromium.ts'
import { listedRow, TestPair } from '../test/support/gateway/test-gateway.ts'
import { bundle } from './bundle-size.ts'
import type { Client, Room } from './index.ts'

/** Globals of the page between the steps of a test. */
interface PageGlobals {
  connect: typeof import('./index.ts').connect
  client: Client
  room: Room
}

let pair: TestPair
let browser: Browser
let site: Server
let siteUrl = ''

beforeAll(async () => {
  const sdk = await bundle({ minify: true })
  site = createServer((request, response) => {
    const script = request.url === '/sdk.js'
    response.setHeader('content-type', script ? 'text/javascript' : 'text/html')
    response.end(
      script
        ? sdk
        : '<!doctype html><script type="module">import { connect } from "/sdk.js"; globalThis.connect = connect</script>',
    )
  })
  await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve))
  siteUrl = `http://127.0.0.1:${(site.address() as AddressInfo).port}`
  pair = await TestPair.start()
  browser = await launchChromium()
})

afterAll(async () => {
  await browser.close()
  await pair.close()
  site.close()
})

test('the bundle plays in a browser, moves to the node of its room, and leaves the room when the page is closed', async () => {
  const page = await browser.newPage()
  await page.goto(siteUrl)
  await page.waitForFunction(() => 'connect' in globalThis)
  const options = { url: pair.a.url, token: await pair.a.token() }
  const state = await page.evaluate(async ({ url, token }) => {
    const held = globalThis as typeof globalThis & PageGlobals
    held.client = await held.connect(url, { projectId: 'prj_one', token })
    held.room = await held.client.join('arena', { key: 'one' })
    await held.room.send('shout', 'héllo 🎲')
    return held.room.state
  }, options)
  expect(state).toEqual({ count: 1 })
  pair.nearer = { nodeId: 'node_b', url: pair.b.url }
  await pair.pass(6000, 1000)
  const gone = page.waitForFunction(() => (globalThis as typeof globalThis & PageGlobals).client.stats.moves)
  await pair.meanwhile(gone)
  const after = await page.evaluate(async () => {
    const { room, client } = globalThis as typeof globalThis & PageGlobals
    await room.send('shout', 'from there')
    return { state: room.state, reconnects: client.stats.reconnects }
  })
  expect(after).toEqual({ state: { count: 2 }, reconnects: 0 })
  expect(pair.owner.of('leave')).toEqual([])
  const left = pair.owner.next('leave')
  await page.goto('about:blank')
  expect(await left).toMatchObject({ reason: 'left' })
  await page.close()
})

/** Opens a page that shows the components of react-page.tsx after `render`. */
async function reactPage({ queues = false } = {}) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL('../test/support/client/react-page.tsx', import.meta.url))],
    bundle: true,
    write: false,
    format: 'iife',
    platform: 'browser',
    logLevel: 'silent',
  })
  const page = await browser.newPage()
  await page.goto(siteUrl)
  const setup = { url: pair.a.url, token: await pair.a.token(), queues }
  await page.evaluate(`globalThis.setup = ${JSON.stringify(setup)}; document.body.innerHTML = '<div></div>'`)
  return {
    page,
    render: () => page.addScriptTag({ content: outputFiles[0]!.text }),
    shown: (text: string) =>
      pair.meanwhile(page.waitForFunction((text) => document.body.innerText.includes(text), text)),
  }
}

test('components in StrictMode share one seat, render only after a change, and leave when the last unmounts', async () => {
  const seats = () => pair.owner.of('join').filter(({ room }) => room.roomType === 'arena').length
  const joins = seats()
  const leaves = pair.owner.of('leave').length
  const before = joins - leaves
  const { page, render, shown } = await reactPage()
  // An event that arrives with the seat, before a component can be mounted.
  pair.owner.silent.add('join')
  const answered = [pair.owner.next('join'), pair.owner.next('join')].map(async (join) => {
    const message = await join
    pair.owner.answer(message)
    if (message.room.roomType === 'arena')
      pair.owner.room('default').flush({ events: [['shouted', 'welcome']] })
  })
  await render()
  await pair.meanwhile(Promise.all(answered))
  pair.owner.silent.delete('join')
  await shown('count')
  expect(seats()).toBe(joins + 1)
  await shown('refused: unknown_room_type')
  await shown('online, heard [welcome]')
  expect(pair.lists.watchers.size).toBe(1)
  await shown('rooms: none')
  pair.lists.change(listedRow('one', { created_at: '2026-10-01T12:00:01.000Z' }), listedRow('two'))
  await shown('rooms: one,two')
  const count = Number(await page.textContent('output'))
  const renders = (name: string) => page.evaluate<number>(`renders.${name}`)
  const [constant, counting] = [await renders('constant'), await renders('counting')]
  await page.click('button')
  await pair.meanwhile(
    page.waitForFunction((n) => document.querySelector('output')?.textContent === n, String(count + 1)),
  )
  expect(await renders('constant')).toBe(constant)
  expect(await renders('counting')).toBeGreaterThan(counting)
  await shown('playing with 0 spectators')
  const { member_id } = pair.owner.of('join').findLast(({ room }) => room.roomType === 'arena')!
  pair.owner.room('default').unseat(member_id)
  await shown('watching with 1 spectators')
  expect(pair.owner.of('leave')).toHaveLength(leaves)
  const left = pair.owner.next('leave')
  await page.evaluate('unmount()')
  await pair.meanwhile(left)
  expect(pair.lists.watchers.size).toBe(0)
  expect(seats() - pair.owner.of('leave').length).toBe(before)
  expect(pair.owner.of('leave')).toHaveLength(leaves + 1)
  await page.close()
})

/** Ends a ticket of the queue `ranked`, as a queue does. */
function endTicket(memberId: string, end: SeatEnd): void {
  const queue = pair.owner.room('default', 'ranked')
  queue.members.delete(memberId)
  queue.send({ kind: 'left', member_id: memberId, farewell: { reason: 'kicked', ...end } })
}

test('a component in StrictMode has one ticket of its queue, shows the match, and leaves its room when it unmounts', async () => {
  const before = pair.owner.of('join').length
  const { page, render, shown } = await reactPage({ queues: true })
  const joins = () => pair.owner.of('join').slice(before)
  await render()
  await shown('0 waiting, short')
  pair.owner.room('default', 'ranked').flush({ state: { count: 0, waiting: 7 } })
  await shown('7 waiting')
  await shown('7 waiting, long')
  const { member_id } = joins()[0]!
  endTicket(member_id, { match: { room_id: 'arena:match-1', options: {} } })
  await shown('playing in arena:match-1')
  expect(joins().map(({ room }) => room.roomType)).toEqual(['ranked', 'arena'])
  const left = pair.owner.next('leave')
  await page.evaluate('finish()')
  expect((await pair.meanwhile(left)).room.key).toBe('match-1')
  await page.close()
})

test('a client leaves the queue when the component unmounts, and a refusal is thrown to the error boundary', async () => {
  const waiting = await reactPage({ queues: true })
  await waiting.render()
  await waiting.shown('waiting')
  const left = pair.owner.next('leave')
  await waiting.page.evaluate('finish()')
  expect((await pair.meanwhile(left)).room.roomType).toBe('ranked')
  await waiting.page.close()

  const refused = await reactPage({ queues: true })
  const join = pair.owner.next('join')
  await refused.render()
  const { member_id } = await pair.meanwhile(join)
  await refused.shown('waiting')
  endTicket(member_id, { code: 'party_timeout' })
  await refused.shown('refused: party_timeout')
  await refused.page.close()
})

test('components of a page that is being closed keep their content, and throw nothing', async () => {
  const { page, render, shown } = await reactPage()
  await render()
  await shown('online, heard []')
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent('pagehide')))
  await shown('closed, heard []')
  await page.close()
})

test('the client leaves a room that no component uses, also while a list is pending', async () => {
  const { page, render, shown } = await reactPage()
  await render()
  await shown('online, heard []')
  pair.lists.answers = false
  const left = pair.owner.next('leave')
  await page.evaluate('finish()')
  await pair.meanwhile(left)
  pair.lists.answers = true
  await page.close()
})
