import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { startDev } from '../deploy/cli/dev.ts'
import { parseConfig } from '../shared/config.ts'
import { launchChromium } from '../test/support/chromium.ts'

/** The pages in a real browser, on everything that `npm start` runs. */

const WITHIN_MS = 60_000
let browser: Browser
let url: string
/** As `npm start` prints it, with the token. */
let adminUrl: string
let stop: () => Promise<void>
/** After the last stop. */
let stopped: () => Promise<void>
const complaints: string[] = []

/** What `npm start` does. */
async function start(): Promise<void> {
  const parsed = parseConfig('dev', {
    EXAMPLES_PORT: '0',
    CONTROL_PORT: '0',
    WS_PORT: '0',
    ADMIN_PORT: '0',
  })
  if (!parsed.ok) throw new Error('this configuration should be valid')
  const service = await startDev({
    config: parsed.config,
    log: pino({ level: 'silent' }),
    tell: (text) => {
      adminUrl = /admin +(\S+)/.exec(text)![1]!
    },
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
const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }

/** Another player: a browser of its own that opens `path`. Whatever its console complains about fails the test. */
async function player(path: string, screen: BrowserContextOptions = DESKTOP): Promise<Page> {
  const context = await browser.newContext(screen)
  const page = await context.newPage()
  page.setDefaultTimeout(WITHIN_MS)
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(error.message))
  await page.goto(new URL(path, url).href)
  return page
}

const shows = (page: Page, selector: string, text: string | RegExp) =>
  page.locator(selector, { hasText: text }).first().waitFor()

test('a count raised in one browser, by keys, is there in the other, where it is raised by touch', async () => {
  const [ada, bob] = [await player('/counter/?room=a'), await player('/counter/?room=a', PHONE)]
  await ada.focus('text=+5')
  await ada.locator('#five:not([disabled])').press('Enter')
  await bob.tap('text=+5')
  for (const page of [ada, bob]) {
    await shows(page, '#digits', /^10$/)
    await shows(page, '.toast', '10!')
  }
  // Beneath what it is about, and what one presses.
  const top = (await bob.locator('.toast').boundingBox())!.y
  for (const one of ['#digits', '#one', '#crowd']) {
    const { y, height } = (await bob.locator(one).boundingBox())!
    expect(y + height).toBeLessThanOrEqual(top)
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
  const o = await player('/tictactoe/?room=d', PHONE)
  await shows(x, '#verdict', 'Your move')
  // One by keys, the other by touch.
  const take = (page: Page, cell: number) => {
    const button = page.locator(`#board button:nth-of-type(${cell + 1})`)
    return page === x ? button.press('Enter') : button.tap()
  }

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
    // Who has just played may not have seen yet that it is the other's turn.
    const [page] = (await vi.waitUntil(
      async () => {
        const mine = await Promise.all(players.map((one) => one.locator('#hand.mine').count()))
        return mine.reduce((sum, one) => sum + one) === 1 && players.filter((_, i) => mine[i])
      },
      { timeout: WITHIN_MS },
    )) as [Page]
    const other = players.find((one) => one !== page)!
    const playable = page.locator('#hand .playable')
    expect(await page.locator('#pass').count()).toBe(0)
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
  await shows(players[0]!, '#others', 'offline')
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
  await shows(o, '#seat-X', 'offline')
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

test('in the playground two players use a room by hand on a phone: forms, state, log with seq, and a cut connection', async () => {
  const page = await player('/playground', { ...PHONE, viewport: { width: 360, height: 780 } })
  /** The pane of a player, behind its tab. */
  const pane = async (name: string) => {
    await page.getByRole('button', { name, exact: true }).tap()
    return page.getByRole('region', { name })
  }
  const send = async (by: string) => {
    const alice = await pane('alice')
    await alice.getByLabel('by').fill(by)
    await alice.getByRole('button', { name: 'Send' }).tap()
    return alice
  }
  expect(await page.getByRole('region').count()).toBe(0)
  await page.getByLabel('room type').selectOption('counter')
  await page.getByRole('button', { name: 'Join as both' }).tap()
  await send('5')
  let bob = await pane('bob')
  await bob.getByRole('treeitem', { name: 'count 5' }).waitFor()
  const { seq, lines } = await bob.locator('.log').evaluate((log) => ({
    seq: [...log.querySelectorAll('.patch [title=seq]')].map(({ textContent }) => Number(textContent)),
    lines: log.textContent,
  }))
  expect(lines).toContain('replace /count 5')
  expect(seq).toEqual(seq.toSorted((a, b) => b - a))
  let alice = await send('101')
  await alice.locator('.refused', { hasText: 'by: ' }).waitFor()
  await alice.getByLabel('message').selectOption('take')
  await alice.getByRole('button', { name: 'Request' }).tap()
  await alice.locator('.reply', { hasText: '{"count":6}' }).waitFor()
  await alice.getByLabel('message').selectOption('inc')

  bob = await pane('bob')
  await bob.getByLabel('delay').selectOption('150 ms')
  await bob.getByRole('button', { name: 'Cut' }).tap()
  await bob.getByRole('status').filter({ hasText: 'reconnecting' }).waitFor()
  alice = await send('1')
  await alice.locator('.log', { hasText: 'has lost the connection' }).waitFor()
  bob = await pane('bob')
  await bob.locator('.log', { hasText: 'resumed' }).waitFor()
  await bob.getByRole('treeitem', { name: 'count 7' }).waitFor()
  await bob.getByText(/node-1 · (1[5-9]\d|[2-9]\d\d) ms/).waitFor()
})

test('the front page leads to every game', async () => {
  const page = await player('/')
  for (const name of ['Arena', 'Crazy Eights', 'Tic-tac-toe', 'Counter', 'Notes']) {
    await page.getByRole('link', { name, exact: true }).click()
    await shows(page, '.pill', 'ms')
    await page.goBack()
  }
})

/** What of a page is off its screen: wider, or higher where it has to be `onOneScreen`. */
const offScreen = (page: Page, onOneScreen: boolean): Promise<string[]> =>
  page.evaluate((onOneScreen) => {
    const { scrollWidth, scrollHeight } = document.documentElement
    // A page that is wider than its screen is shown smaller, so that its window is wider too.
    const found = [window.innerWidth, scrollWidth]
      .filter((width) => width > screen.width)
      .map((width) => `${width} pixels wide`)
    if (onOneScreen && scrollHeight > screen.height) found.push(`${scrollHeight} pixels high`)
    for (const one of document.querySelectorAll('a, button, input, select, h1, h2')) {
      const { left, right, width } = one.getBoundingClientRect()
      const isShown = one.checkVisibility() && width > 1 && !one.closest('.log, .tree, .source')
      if (isShown && (left < 0 || right > screen.width)) found.push(`off the screen: ${one.outerHTML}`)
    }
    return found
  }, onOneScreen)

/** What axe finds serious in a page. */
async function serious(page: Page): Promise<string[]> {
  await page.evaluate(axe)
  const violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[] =
    await page.evaluate(
      // A queen is called so, though her card says Q.
      "axe.run(document, { resultTypes: ['violations'], rules: { 'label-content-name-mismatch': { enabled: false } } }).then((it) => it.violations)",
    )
  return violations
    .filter(({ impact }) => ['serious', 'critical'].includes(impact))
    .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`))
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** Those that are played on one screen. */
const GAMES = ['arena', 'counter', 'tictactoe', 'cards']

const PHONES = [
  { width: 320, height: 568, colorScheme: 'light', inspect: true },
  { width: 430, height: 932, colorScheme: 'dark', inspect: true },
  { width: 568, height: 320, colorScheme: 'dark', inspect: false },
] as const

test('every page can be used and read on phones, upright and on their side, in light and in dark', async () => {
  const opened: Record<string, (page: Page) => Promise<unknown>> = {
    ...Object.fromEntries(
      [...GAMES, 'notes'].map((game) => [`/${game}/?room=h`, (page: Page) => shows(page, '.pill', 'ms')]),
    ),
    '/': async () => {},
    '/arena/source': async () => {},
    '/playground': async (page) => {
      await page.getByRole('button', { name: 'Join as both' }).click()
      await page.getByRole('tree').waitFor()
    },
    [adminUrl]: async (page) => {
      await page.getByRole('tab', { name: 'Rooms' }).waitFor()
      expect(page.url()).toBe(adminUrl.split('#')[0])
    },
  }
  for (const [path, open] of Object.entries(opened)) {
    const page = await player(path, PHONE)
    await open(page)
    for (const { width, height, colorScheme, inspect } of PHONES) {
      await page.setViewportSize({ width, height })
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      const onOneScreen = GAMES.some((game) => path === `/${game}/?room=h`)
      const what = `${path} at ${width} × ${height}`
      // Until it is laid out for this screen, and colours have changed.
      await expect.poll(() => offScreen(page, onOneScreen), { message: what, timeout: WITHIN_MS }).toEqual([])
      if (inspect) await expect.poll(() => serious(page), { message: what, timeout: WITHIN_MS }).toEqual([])
    }
    await page.context().close()
  }
})
