import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { pino } from 'pino'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { startDev } from '../deploy/cli/dev.ts'
import { parseConfig } from '../shared/config.ts'
import { launchChromium } from '../test/support/chromium.ts'

/** Tests of the pages in a real browser, with everything that `npm start` runs. */

const WITHIN_MS = 180_000
/** A small window and a low frame rate, because a machine without graphics hardware computes each pixel of each frame. */
const DESKTOP = { viewport: { width: 680, height: 540 } }
const FRAME_MS = 80
const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }
let browser: Browser
/** The first page of a context costs three times as much as the next one. */
let desktop: BrowserContext
let phone: BrowserContext
let url: string
let apiUrl: string
/** Address in the output of `npm start`, with the token. */
let adminUrl: string
/** Address for other devices, with the secret. It is one of this machine, too. */
let lanUrl: string
const LAN_HOST = '127.0.0.2'
let stop: () => Promise<void>
const complaints: string[] = []

beforeAll(async () => {
  const parsed = parseConfig('dev', {
    EXAMPLES_PORT: '0',
    CONTROL_PORT: '0',
    WS_PORT: '0',
    ADMIN_PORT: '0',
  })
  if (!parsed.ok) throw new Error('this configuration should be valid')
  let printed = ''
  const [service, chromium] = await Promise.all([
    startDev({
      config: parsed.config,
      log: pino({ level: 'silent' }),
      tell: (text) => {
        printed += text
      },
      lan: [LAN_HOST],
    }),
    launchChromium(),
  ])
  adminUrl = /admin +(\S+)/.exec(printed)![1]!
  ;[lanUrl] = /http:\S+#lan=\S+/.exec(printed)!
  browser = chromium
  desktop = await browser.newContext(DESKTOP)
  phone = await browser.newContext(PHONE)
  for (const context of [desktop, phone]) await context.addInitScript(drawSlowly, FRAME_MS)
  url = service.addresses.games!
  apiUrl = service.addresses.api!
  stop = () => service.close()
})

afterAll(async () => {
  await browser?.close()
  await stop?.()
})

/** Runs in pages before their scripts. */
function drawSlowly(frameMs: number): void {
  window.requestAnimationFrame = (draw) => window.setTimeout(() => draw(performance.now()), frameMs)
  window.cancelAnimationFrame = (handle) => window.clearTimeout(handle)
}

afterEach(() => expect(complaints.splice(0)).toEqual([]))

/** Removes all players. */
const endAll = () =>
  Promise.all(browser.contexts().flatMap((context) => context.pages().map((page) => page.close())))

/** Opens `path` in a new tab, as another player. An error in its console fails the test. */
async function player(path: string, context = desktop): Promise<Page> {
  const page = await context.newPage()
  page.setDefaultTimeout(WITHIN_MS)
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(error.message))
  await page.goto(new URL(path, url).href)
  return page
}

const shows = (page: Page, selector: string, text: string | RegExp): Promise<void> =>
  page
    .locator(selector, { hasText: text })
    .first()
    .waitFor()
    .catch(async (error: Error) => {
      throw new Error(`${error.message}\n${page.url()} shows: ${await page.innerText('body')}`)
    })

/** Returns the position of the next milestone toast, in pixels from the top. */
const topOfToast = (page: Page): Promise<number> =>
  page.evaluate(
    () =>
      new Promise((resolve) => {
        const look = () => {
          const toast = document.querySelector('.toast')
          if (toast?.textContent === '10!') resolve(toast.getBoundingClientRect().top)
          else requestAnimationFrame(look)
        }
        look()
      }),
  )

describe('the counter', () => {
  let ada: Page
  let bob: Page
  beforeAll(async () => {
    ada = await player('/counter/')
    await ada.waitForURL(/\?room=lobby-1$/)
    bob = await player('/counter/?room=lobby-1', phone)
  })
  afterAll(endAll)

  test('a count raised with the keyboard in one browser is shown in another, which raises it by touch', async () => {
    await ada.focus('text=+5')
    await ada.locator('#five:not([disabled])').press('Enter')
    // Watched from before, because it is shown for 3 s.
    const toasts = [ada, bob].map(topOfToast)
    await bob.tap('text=+5')
    for (const page of [ada, bob]) await shows(page, '#digits', /^10$/)
    // Below the number and the buttons.
    const [, top] = await Promise.all(toasts)
    for (const one of ['#digits', '#one', '#crowd']) {
      const { y, height } = (await bob.locator(one).boundingBox())!
      expect(y + height).toBeLessThanOrEqual(top!)
    }
  })

  test('a cut connection is shown, and the missed changes arrive after the resume', async () => {
    // Each status is shown for 2.5 s.
    const seen = ['reconnecting', 'resumed'].map((status) => shows(ada, '.pill', status))
    await ada.click('text=Cut my connection')
    await bob.tap('text=+1')
    await ada.click('text=+1')
    await Promise.all(seen)
    for (const page of [ada, bob]) await shows(page, '#digits', /^12$/)
  })

  test('the page joins the room in the address', async () => {
    await ada.goto(`${url}/counter/?room=other`)
    await ada.click('text=+5')
    await shows(ada, '#digits', /^5$/)
    await shows(bob, '#digits', /^12$/)
  })
})

describe('tic-tac-toe', () => {
  let x: Page
  let o: Page
  beforeAll(async () => {
    x = await player('/tictactoe/?room=d')
    await shows(x, '#verdict', 'Waiting for a second player')
    o = await player('/tictactoe/?room=d', phone)
    await shows(x, '#verdict', 'Your move')
  })
  afterAll(endAll)

  test('is played in turns, and a refused move shows its reason', async () => {
    // One player uses the keyboard, the other touch.
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
    // A new element would be drawn again at each change.
    const line = (await x.locator('.line').elementHandle())!
    const spectator = await player('/tictactoe/?room=d')
    await shows(x, '#watching', '1 watching')
    expect(await line.evaluate(({ isConnected }) => isConnected)).toBe(true)
    await spectator.close()
    await x.click('text=New game')
    await shows(o, '#verdict', 'X is thinking')
  })

  test('keeps the seat and the game over a reload, which the other player sees, and a duplicated tab is another player', async () => {
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
    for (const page of [x, copy]) await shows(page, '#watching', '1 watching')
    await shows(x, '#seat-X', 'you play X')
    await copy.close()
  })

  test('shows a newcomer when the seat of an absent player becomes free, and lets the newcomer take it', async () => {
    await x.close()
    const eve = await player('/tictactoe/?room=d', phone)
    await shows(eve, '#seat-X', /offline · \d+ s/)
    await shows(eve, '#verdict', 'You are watching. X is away.')
    // After `reconnectSeconds`.
    await eve.getByRole('button', { name: 'Take seat' }).tap()
    await shows(eve, '#seat-X', 'you play X')
    await shows(o, '#verdict', 'Your move')
  })
})

describe('the arena', () => {
  let ada: Page
  let bob: Page
  beforeAll(async () => {
    ada = await player('/arena/?room=f')
    await shows(ada, '.count', '3')
    await ada.click('text=Remove bots')
    await shows(ada, '.count', '1')
    bob = await player('/arena/?room=f')
    for (const page of [ada, bob]) await shows(page, '.count', '2')
  })
  afterAll(endAll)

  test('shows players to each other, and one walks to the other and hits', async () => {
    await ada.click('text=Add a bot')
    await shows(bob, '.count', '3')
    await ada.click('text=Remove bots')
    await shows(bob, '.count', '2')

    // The walls stop both in the same corner, wherever they started.
    for (const page of [ada, bob]) {
      await page.keyboard.down('d')
      await page.keyboard.down('s')
    }
    const hit = ada.getByRole('button', { name: 'Hit the nearest player' })
    await ada.locator('#hit:not([disabled])').waitFor()
    // Until both stand in the corner, a blow may miss.
    const knockedOut = bob.locator('#feed', { hasText: 'knocked out you' })
    const strike = () => hit.click().then(() => knockedOut.count())
    await expect.poll(strike).toBeGreaterThan(0)
  })

  test('has a lobby with a live list, which leads to other rooms and back, also after a cut connection', async () => {
    const cid = await player('/arena/?lobby', phone)
    const picture = cid.locator('.lobby img')
    await expect.poll(() => picture.evaluate((img: HTMLImageElement) => img.naturalWidth)).toBeGreaterThan(0)
    const row = cid.locator('.choice', { hasText: /^f/ })
    await row.filter({ hasText: '2 of 64' }).waitFor()
    const isCut = shows(cid, '.pill', 'reconnecting')
    await cid.tap('text=Cut my connection')
    await isCut
    await shows(cid, '.pill', 'ms')
    await row.tap()
    await cid.waitForURL(/\?room=f$/)
    await shows(ada, '.count', '3')
    await cid.tap('text=Other rooms')
    await row.filter({ hasText: '2 of 64' }).waitFor()
    await cid.tap('text=Play now')
    await shows(ada, '.count', '3')
    await cid.tap('text=Other rooms')
    await shows(ada, '.count', '2')
    // Chromium may never close a page in the middle of a navigation.
    await row.filter({ hasText: '2 of 64' }).waitFor()
    await cid.close()
  })

  test('opens in a running arena, and its buttons are outside of the field', async () => {
    const cid = await player('/arena/')
    await cid.waitForURL(/\?room=f$/)
    await shows(ada, '.count', '3')
    for (const width of [375, 800]) {
      await cid.setViewportSize({ width, height: 600 })
      const covering = () =>
        cid.evaluate(() => {
          const { top, bottom } = document.querySelector('#floor')!.getBoundingClientRect()
          const buttons = [...document.querySelectorAll('button, a, summary')].filter((one) =>
            one.checkVisibility(),
          )
          const covers = (one: Element) => {
            const box = one.getBoundingClientRect()
            return box.bottom > top && box.top < bottom
          }
          return { found: buttons.length > 6, covering: buttons.filter(covers).map((one) => one.outerHTML) }
        })
      await expect.poll(covering).toEqual({ found: true, covering: [] })
    }
    await cid.click('text=Other rooms')
    await shows(cid, '.lobby', 'Open arenas')
    await cid.close()
    await shows(ada, '.count', '2')
  })

  test('keeps the player when a page is reloaded', async () => {
    await bob.evaluate(() => {
      const count = document.querySelector<HTMLElement>('.count')!
      new MutationObserver(() => {
        if (!count.textContent?.startsWith('2')) count.dataset.wrong = count.textContent ?? ''
      }).observe(count, { childList: true, subtree: true })
    })
    for (let reload = 0; reload < 2; reload++) {
      await ada.reload()
      await shows(ada, '.count', '2')
      await shows(ada, '.pill', 'ms')
    }
    expect(await bob.locator('.count').getAttribute('data-wrong')).toBe(null)
  })

  test('shows the node that runs it, and the node of each player', async () => {
    const panel = bob.locator('#nodes')
    await shows(bob, '#nodes summary', 'you are at node-1·the room is at node-1')
    await panel.locator('summary').click()
    const row = panel.locator('tbody tr')
    await shows(bob, '#nodes tbody tr', /owneryou\d+2$/)
    expect(await row.count()).toBe(1)
    await ada.close()
    await panel.locator('tbody td:last-child', { hasText: '1' }).waitFor()
  })
})

/** Returns the parts of a page outside its screen: too wide or, with `onOneScreen`, too high. */
const offScreen = (page: Page, onOneScreen: boolean): Promise<string[]> =>
  page.evaluate((onOneScreen) => {
    const { scrollWidth, scrollHeight } = document.documentElement
    // A page that is wider than its screen is scaled down, so its window is wider too.
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

/** Returns the serious findings of axe in a page. `rules`: only of these rules. */
async function serious(page: Page, rules?: readonly string[]): Promise<string[]> {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe)
  const options = {
    resultTypes: ['violations'],
    // A queen is named so, although her card shows Q.
    rules: { 'label-content-name-mismatch': { enabled: false } },
    ...(rules && { runOnly: rules }),
  }
  const violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[] =
    await page.evaluate(`axe.run(document, ${JSON.stringify(options)}).then((it) => it.violations)`)
  return violations
    .filter(({ impact }) => ['serious', 'critical'].includes(impact))
    .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`))
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** Games that fit one screen. */
const GAMES = ['arena', 'counter', 'tictactoe', 'cards']

/** Sizes and colours, with the rules that are checked there: all, or these. */
const PHONES = [
  { width: 320, height: 568, colorScheme: 'light', inspect: undefined },
  { width: 430, height: 932, colorScheme: 'dark', inspect: ['color-contrast'] },
  { width: 568, height: 320, colorScheme: 'dark', inspect: [] },
] as const

describe('the pages', () => {
  afterEach(endAll)

  test('in the card game a friend joins by a code, each plays a separate hand in turns, by mouse and by keyboard, and both then play a ranked game', async () => {
    const players = [await player('/cards/'), await player('/cards/', phone)]
    await players[0]!.click('text=Play with a friend')
    const code = (await players[0]!.textContent('#invite strong'))!
    for (const [typed, leads] of [
      ['no-code', () => shows(players[1]!, '.alarm', 'no room with the code')],
      [code.toLowerCase(), () => shows(players[1]!, '#verdict', '2 at the table')],
    ] as const) {
      await players[1]!.fill('#code', typed)
      await players[1]!.tap('text=Join by code')
      await leads()
    }
    await shows(players[0]!, '#verdict', '2 at the table')
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
      // The player of the last card may not have received the turn of the other yet.
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
        // Eights last, because they open a dialog for the suit.
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

    for (const one of players) await one.goto(new URL('/cards/', url).href)
    const looking = () => shows(players[0]!, '.lobby', 'Looking for an opponent')
    await players[0]!.click('text=Ranked game')
    await looking()
    await players[0]!.click('text=Cancel')
    await players[0]!.click('text=Ranked game')
    await looking()
    await players[1]!.tap('text=Ranked game')
    for (const one of players) await shows(one, '#verdict', '2 at the table')
  })

  test('a note that is pinned in one browser is removed in the other, and an empty board shows a hint', async () => {
    const [ada, bob] = [await player('/notes/?room=n'), await player('/notes/?room=n', phone)]
    await shows(ada, '#blank', 'An empty board')
    await ada.fill('#text', 'milk')
    await ada.press('#text', 'Enter')
    await shows(bob, '#board', 'milk')
    expect(await bob.isVisible('#blank')).toBe(false)
    await bob.getByRole('button', { name: 'Take down: milk' }).tap()
    await shows(ada, '#blank', 'An empty board')
  })

  test('in the playground a player watches a room, and takes a place by a message', async () => {
    const page = await player('/playground#tictactoe')
    await page.getByRole('button', { name: 'Join as alice' }).click()
    await page.getByLabel('watch').check()
    await page.getByRole('button', { name: 'Join as bob' }).click()
    await page.getByRole('button', { name: 'bob', exact: true }).click()
    const bob = page.getByRole('region', { name: 'bob' })
    await bob.getByText('1 watching').waitFor()
    await bob.getByLabel('message').selectOption('sit')
    await bob.getByRole('button', { name: 'Send' }).click()
    await bob.locator('.log', { hasText: 'is here' }).waitFor()
    expect(await bob.getByText('watches').count()).toBe(0)
    await page.close()
  })

  test('in the playground two players use a room by hand on a phone: forms, state, log with seq, a cut connection, and a listed room', async () => {
    const page = await player('/playground', phone)
    /** Returns the pane of a player, after a click on its tab. */
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
    const state = page.getByRole('region', { name: 'State' })
    await state.getByRole('treeitem', { name: 'count 5' }).waitFor()
    let bob = await pane('bob')
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
    await state.getByRole('treeitem', { name: 'count 7 bob: 6' }).waitFor()
    await alice.locator('.log', { hasText: 'is away' }).waitFor()
    bob = await pane('bob')
    await bob.locator('.log', { hasText: 'resumed' }).waitFor()
    await state.getByText('alice and bob see the same').waitFor()
    await state.getByRole('treeitem', { name: 'count 7' }).waitFor()
    await bob.getByText(/node-1 · (1[5-9]\d|[2-9]\d\d) ms/).waitFor()

    await page.goto(new URL('/playground#arena', url).href)
    await page.reload()
    const rooms = page.getByRole('list', { name: 'Rooms of arena' }).getByRole('listitem')
    const visitor = await player('/arena/?room=p')
    await shows(visitor, '.count', '3')
    await visitor.click('text=Remove bots')
    await rooms
      .filter({ hasText: /p1 of 64\{"wounded":\d\}/ })
      .getByRole('button', { name: 'Join' })
      .tap()
    await shows(visitor, '.count', '3')
  })

  test('another device of the network plays all games with the secret of the printed address, and opens nothing without it', async () => {
    const page = await player(lanUrl, phone)
    // The address without the secret, which the cookies have.
    await page.waitForURL(/2:\d+\/$/)
    await shows(page, 'h1', 'Games')
    // Without the playground, which is for this machine only.
    const names = await page.locator('h2:visible').allTextContents()
    expect(names).toEqual(['Arena', 'Crazy Eights', 'Tic-tac-toe', 'Counter', 'Notes'])
    for (const game of [...GAMES, 'notes']) {
      await page.goto(new URL(`/${game}/?room=lan`, lanUrl).href)
      await shows(page, '.pill', 'ms')
    }
    const stranger = await browser.newContext(PHONE)
    const closed = await stranger.newPage()
    await closed.goto(new URL('/', lanUrl).href)
    await shows(closed, 'p', 'scan the code again')
    const statusOf = (path: string) => closed.evaluate(async (path) => (await fetch(path)).status, path)
    for (const path of ['/arena/page.js', '/api/cluster'])
      expect([path, await statusOf(path)]).toEqual([path, 403])
    // Into the same tab.
    await closed.goto(lanUrl)
    await shows(closed, 'h1', 'Games')
    await stranger.close()
  })

  test('the page of the control API shows requests to copy, with nothing from another server', async () => {
    const page = await player(new URL('/docs#?route=post-/tokens', apiUrl).href)
    const requests: string[] = []
    page.on('request', (request) => requests.push(request.url()))
    await page.reload()
    await page.getByText('Issue a client token').first().waitFor()
    await page.getByText('curl -X POST').waitFor()
    await page.getByText('v4.public.').waitFor()
    expect(requests.filter((each) => !each.startsWith(apiUrl) && !each.startsWith('data:'))).toEqual([])
  })

  test('the front page leads to every page', async () => {
    const page = await player('/')
    const links = await page
      .locator('h2:visible a')
      .evaluateAll((all) => all.map((link) => link.getAttribute('href')))
    const games = ['tictactoe', 'counter', 'notes'].map((game) => `/${game}/?room=lobby-1`)
    expect(links).toEqual(['/arena/', '/cards/', ...games, '/playground'])
  })
})

describe('on phones, upright and on their side, in light and in dark', () => {
  let page: Page
  beforeAll(async () => {
    page = await player('/', phone)
  })
  afterAll(endAll)

  test.each([
    ...[...GAMES, 'notes'].map((game) => [`/${game}/?room=h`, () => shows(page, '.pill', 'ms')] as const),
    ...['arena', 'cards'].map((game) => [`/${game}/?lobby`, () => shows(page, '.lobby', '.')] as const),
    ['/', () => shows(page, 'h1', 'Games')],
    ['/arena/source', () => shows(page, 'h1', 'How arena works')],
    [
      '/playground',
      async () => {
        await page.getByRole('button', { name: 'Join as both' }).tap()
        await page.getByRole('tree').waitFor()
      },
    ],
    [
      '/admin',
      async () => {
        await page.getByRole('tab', { name: 'Rooms' }).waitFor()
        expect(page.url()).toBe(adminUrl.split('#')[0])
      },
    ],
  ] as const)('%s can be used and read', async (path, opened) => {
    await page.goto(path === '/admin' ? adminUrl : new URL(path, url).href)
    await opened()
    for (const { width, height, colorScheme, inspect } of PHONES) {
      await page.setViewportSize({ width, height })
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      const onOneScreen = GAMES.some((game) => path === `/${game}/?room=h`)
      const options = { message: `${path} at ${width} × ${height}`, timeout: WITHIN_MS }
      // Waits until the layout fits this screen and the colours have changed.
      await expect.poll(() => offScreen(page, onOneScreen), options).toEqual([])
      if (inspect?.length !== 0) await expect.poll(() => serious(page, inspect), options).toEqual([])
    }
  })
})
