import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { startDev } from '../deploy/cli/dev.ts'
import { parseConfig } from '../shared/config.ts'
import { launchChromium } from '../test/support/chromium.ts'

/** The pages in a real browser, on everything that `npm start` runs. */

const WITHIN_MS = 20_000
vi.setConfig({ testTimeout: 90_000 })
let browser: Browser
let url: string
let stop: () => Promise<void>
/** After the last stop. */
let stopped: () => Promise<void>
const complaints: string[] = []

/** What `npm start` does. */
async function start(): Promise<void> {
  const parsed = parseConfig('dev', { EXAMPLES_PORT: '0', CONTROL_PORT: '0', WS_PORT: '0', ADMIN_PORT: '0' })
  if (!parsed.ok) throw new Error('this configuration should be valid')
  const service = await startDev({
    config: parsed.config,
    log: pino({ level: 'silent' }),
    tell: () => undefined,
  })
  stop = () => service.close()
  url = service.addresses.games ?? ''
}

beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-pages-'))
  vi.stubEnv('NOTES_FILE', join(folder, 'notes.db'))
  stopped = () => rm(folder, { recursive: true, force: true })
  await start()
  browser = await launchChromium()
})

afterAll(async () => {
  await browser?.close()
  await stop?.()
  await stopped?.()
  vi.unstubAllEnvs()
})

afterEach(async () => {
  for (const context of browser.contexts()) await context.close()
  expect(complaints.splice(0)).toEqual([])
})

const DESKTOP = { viewport: { width: 900, height: 700 } }

/** Another player: a browser of its own that opens `path`. Whatever its console complains about fails the test. */
async function player(path: string, screen: BrowserContextOptions = DESKTOP): Promise<Page> {
  const context = await browser.newContext(screen)
  const page = await context.newPage()
  page.setDefaultTimeout(WITHIN_MS)
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(error.message))
  await page.goto(url + path)
  return page
}

const shows = (page: Page, selector: string, text: string | RegExp) =>
  page.locator(selector, { hasText: text }).first().waitFor()

test('a count raised in one browser is there in the other', async () => {
  const [ada, bob] = [await player('/counter/?room=a'), await player('/counter/?room=a')]
  await ada.click('text=+5')
  await bob.click('text=+5')
  for (const page of [ada, bob]) {
    await shows(page, '#digits', /^10$/)
    await shows(page, '.toast', '10!')
  }
})

test('the room in the address is the room that is joined', async () => {
  const [ada, bob] = [await player('/counter/?room=b1'), await player('/counter/?room=b2')]
  await ada.click('text=+5')
  await shows(ada, '#digits', '5')
  await shows(bob, '#digits', '0')
  await ada.goto(`${url}/counter/`)
  await ada.waitForURL(/\?room=lobby-1$/)
})

test('a cut connection is shown, and resumed with what was missed', async () => {
  const [ada, bob] = [await player('/counter/?room=c'), await player('/counter/?room=c')]
  await shows(ada, '.pill', 'ms')
  await ada.click('text=Cut my connection')
  await shows(ada, '.pill', 'reconnecting')
  await bob.click('text=+1')
  await ada.click('text=+1')
  await shows(ada, '.pill', 'resumed')
  for (const page of [ada, bob]) await shows(page, '#digits', '2')
})

test('tic-tac-toe is played in turns, and a refused move says why', async () => {
  const x = await player('/tictactoe/?room=d')
  await shows(x, '#verdict', 'Waiting for a second player')
  const o = await player('/tictactoe/?room=d')
  await shows(x, '#verdict', 'Your move')
  const take = (page: Page, cell: number) => page.click(`#board button:nth-of-type(${cell + 1})`)

  await take(o, 0)
  await shows(o, '.toast.wrong', 'not your turn: X moves')
  for (const [page, other, cell] of [
    [x, o, 0],
    [o, x, 3],
    [x, o, 1],
    [o, x, 4],
  ] as const) {
    await take(page, cell)
    await shows(other, '#verdict', 'Your move')
  }
  await take(x, 4)
  await shows(x, '.toast.wrong', 'cell 4 is taken by O')
  await take(x, 2)
  await shows(x, '#verdict', 'You have won!')
  await shows(o, '#verdict', 'X has won')
  await x.click('text=New game')
  await shows(o, '#verdict', 'X is thinking')
})

test('in the card game each has a hand of its own, and plays it in turns, by mouse and by keyboard', async () => {
  const players = [await player('/cards/?room=k'), await player('/cards/?room=k')]
  for (const page of players) await shows(page, '#verdict', '2 at the table')
  await players[0]!.click('#deal')
  const handOf = async (page: Page) => {
    await page.locator('#hand [data-card]').first().waitFor()
    return page.locator('#hand [data-card]').evaluateAll((cards) => cards.map((card) => card.ariaLabel))
  }
  const hands = await Promise.all(players.map(handOf))
  expect(new Set(hands.flat()).size).toBe(14)
  await players[1]!.reload()
  expect(await handOf(players[1]!)).toEqual(hands[1])

  for (let turns = 0; turns < 4; turns++) {
    const mine = () => Promise.all(players.map((page) => page.locator('#hand.mine').count()))
    await vi.waitUntil(async () => (await mine()).includes(1), { timeout: WITHIN_MS })
    const page = players[(await mine()).indexOf(1)]!
    const other = players.find((one) => one !== page)!
    const playable = page.locator('#hand .playable')
    if ((await playable.count()) === 0) {
      await page.keyboard.press('d')
      await shows(page, '#verdict', 'or pass')
    }
    if ((await playable.count()) === 0) await page.keyboard.press('p')
    else {
      // Eights last, since they ask for a suit, in a dialog.
      const plain = page.locator('#hand .playable:not([data-card^="8"])')
      if ((await plain.count()) > 0) {
        await plain.first().focus()
        await page.keyboard.press('Enter')
      } else {
        await playable.first().click()
        await page.getByRole('button', { name: 'hearts', exact: true }).click()
      }
    }
    await other.locator('#hand.mine').waitFor()
  }

  await players[1]!.click('text=Cut my connection')
  await shows(players[0]!, '#others', 'connection lost')
})

test('a reload keeps the seat and the game; the other sees it go and come; a duplicated tab is another player', async () => {
  const x = await player('/tictactoe/?room=e')
  await shows(x, '#verdict', 'Waiting')
  const o = await player('/tictactoe/?room=e')
  await shows(x, '#verdict', 'Your move')
  await x.click('#board button:nth-of-type(1)')
  await shows(o, '#verdict', 'Your move')
  const name = await x.textContent('#seat-X .who')
  await x.goto('about:blank')
  await shows(o, '#seat-X', 'has lost the connection')
  await x.goBack()
  await shows(x, '#seat-X', 'you play X')
  await shows(o, '#seat-X', 'plays X')
  await x.reload()
  await shows(x, '#seat-X', 'you play X')
  await x.locator('[aria-label="top left: X"]').waitFor()
  expect(await o.textContent('#seat-X .who')).toBe(name)

  const [copy] = await Promise.all([
    x.context().waitForEvent('page'),
    x.evaluate(() => void window.open(location.href)),
  ])
  await shows(copy, '#verdict', 'You are watching')
  await copy.reload()
  await shows(copy, '#verdict', 'You are watching')
  await shows(x, '#seat-X', 'you play X')
})

test('in the arena no one goes when a page is reloaded', async () => {
  const [ada, bob] = [await player('/arena/?room=i'), await player('/arena/?room=i')]
  for (const page of [ada, bob]) await shows(page, '.count', '2')
  await bob.evaluate(() => {
    const count = document.querySelector<HTMLElement>('.count')!
    new MutationObserver(() => {
      if (!count.textContent?.startsWith('2')) count.dataset.wrong = count.textContent ?? ''
    }).observe(count, { childList: true, subtree: true })
  })
  for (let reload = 0; reload < 3; reload++) {
    await ada.reload()
    await shows(ada, '.count', '2')
    await shows(ada, '.pill', 'ms')
  }
  expect(await bob.locator('.count').getAttribute('data-wrong')).toBe(null)
})

test('in the arena players see each other, and one walks up to the other and hits it', async () => {
  const [ada, bob] = [await player('/arena/?room=f'), await player('/arena/?room=f')]
  for (const page of [ada, bob]) await shows(page, '.count', '2')
  await ada.click('text=Add a bot')
  await shows(bob, '.count', '3')
  await ada.click('text=Remove bots')
  await shows(bob, '.count', '2')

  // The walls stop both in the same corner, wherever they began.
  for (const page of [ada, bob]) {
    await page.keyboard.down('d')
    await page.keyboard.down('s')
  }
  const hit = ada.getByRole('button', { name: 'Hit the nearest player' })
  await ada.locator('#hit:not([disabled])').waitFor()
  for (let blow = 0; blow < 10; blow++) await hit.click()
  await shows(bob, '#feed', 'knocked out you')
})

test('the arena says which node runs it, and which one a player is connected to', async () => {
  const [ada, bob] = [await player('/arena/?room=g'), await player('/arena/?room=g')]
  const panel = bob.locator('#nodes')
  await shows(bob, '#nodes summary', 'you are at node-1·the room is at node-1')
  await panel.locator('summary').click()
  const row = panel.locator('tbody tr')
  await shows(bob, '#nodes tbody tr', /owneryou\d+\d+/)
  expect(await row.count()).toBe(1)
  await ada.close()
  await panel.locator('tbody td:last-child', { hasText: '1' }).waitFor()
})

test('a board has its notes when everything was ended and started again', async () => {
  const ada = await player('/notes/?room=n')
  await ada.fill('#text', 'milk')
  await ada.press('#text', 'Enter')
  await shows(ada, '#board', 'milk')
  await ada.context().close()
  await stop()
  await start()
  const bob = await player('/notes/?room=n')
  await shows(bob, '#board', 'milk')
  await bob.getByRole('button', { name: 'milk' }).click()
  await bob.locator('#board li').waitFor({ state: 'detached' })
})

test('in the playground two players use a room by hand: forms, state, what came with which seq, and a cut connection', async () => {
  const page = await player('/playground', { viewport: { width: 360, height: 780 } })
  const [alice, bob] = ['alice', 'bob'].map((name) => page.getByRole('region', { name }))
  await page.getByLabel('room type').selectOption('counter')
  await page.getByRole('button', { name: 'Join as both' }).click()
  await bob!.getByRole('treeitem', { name: 'count 0' }).waitFor()
  await alice!.getByLabel('by').fill('5')
  await alice!.getByRole('button', { name: 'Send' }).click()
  await bob!.locator('.changed', { hasText: /^count5$/ }).waitFor()
  const { seq, lines } = await bob!.locator('.log').evaluate((log) => ({
    seq: [...log.querySelectorAll('.patch [title=seq]')].map(({ textContent }) => Number(textContent)),
    lines: log.textContent,
  }))
  expect(lines).toContain('replace /count 5')
  expect(seq).toEqual(seq.toSorted((a, b) => b - a))
  await alice!.getByLabel('by').fill('101')
  await alice!.getByRole('button', { name: 'Send' }).click()
  await alice!.locator('.refused', { hasText: 'by: ' }).waitFor()
  await alice!.getByLabel('message').selectOption('take')
  await alice!.getByRole('button', { name: 'Request' }).click()
  await alice!.locator('.reply', { hasText: '{"count":6}' }).waitFor()
  await alice!.getByLabel('message').selectOption('inc')

  await bob!.getByLabel('delay').selectOption('150 ms')
  await bob!.getByRole('button', { name: 'Cut' }).click()
  await shows(page, '[role=status]', 'reconnecting')
  await alice!.locator('.log', { hasText: 'has lost the connection' }).waitFor()
  await alice!.getByLabel('by').fill('1')
  await alice!.getByRole('button', { name: 'Send' }).click()
  await bob!.getByRole('treeitem', { name: 'count 7' }).waitFor()
  await bob!.locator('.log', { hasText: 'resumed' }).waitFor()
  await bob!.getByText(/node-1 · (1[5-9]\d|[2-9]\d\d) ms/).waitFor()
})

test('the front page leads to every game', async () => {
  const page = await player('/')
  for (const name of ['Arena', 'Crazy Eights', 'Tic-tac-toe', 'Counter']) {
    await page.getByRole('link', { name, exact: true }).click()
    await shows(page, '.pill', 'ms')
    await page.goBack()
  }
})

test.each([
  [320, 568],
  [430, 932],
  [568, 320],
])('every page fits into the width of a phone of %i × %i', async (width, height) => {
  for (const path of [
    '/',
    '/arena/?room=h',
    '/counter/?room=h',
    '/tictactoe/?room=h',
    '/notes/?room=h',
    '/cards/?room=h',
    '/arena/source',
  ]) {
    const page = await player(path, { viewport: { width, height }, isMobile: true, hasTouch: true })
    if (path.includes('room')) await shows(page, '.pill', 'ms')
    // A page that is wider than its screen is shown smaller, so that its window is wider too.
    const widths = () => page.evaluate(() => [window.innerWidth, document.documentElement.scrollWidth])
    expect([path, ...(await widths())]).toEqual([path, width, width])
    await page.context().close()
  }
})
