import { once } from 'node:events'
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core'
import { type Client, connect, type Room } from 'roomful/client'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import {
  ask,
  board,
  faintTexts,
  focused,
  openAdmin,
  openRoom,
  unlock,
} from '../../test/support/admin-page.ts'
import { launchChromium } from '../../test/support/chromium.ts'
import type { LocalNode } from '../../test/support/cluster.ts'
import { type Login, TestCluster } from '../../test/support/cluster.ts'
import { startService, type TestService } from '../../test/support/service.ts'

const HOSTILE = '<img src=x onerror=alert(1)>'
const LONG = 'a-name-as-long-as-they-get-with-no-place-to-break-it-anywhere'
/** More rooms than the page lists at first. */
const ROOMS = 60
const nameOf = (n: number): string => `board:lobby-${String(n).padStart(2, '0')}`
const LAST = nameOf(ROOMS - 1)

let browser: Browser
/** For all tests without a screen of their own: the first page of a context costs three times as much as the next one. */
let shared: BrowserContext

beforeAll(async () => {
  browser = await launchChromium()
  shared = await browser.newContext()
})
afterEach(async () => {
  for (const context of browser.contexts())
    if (context !== shared) await context.close()
    else for (const page of context.pages()) await page.close()
})
afterAll(() => browser.close())

describe('the admin page', () => {
  let service: TestService
  let projectId: string
  let ada: Client
  let bobby: Client
  let alpha: Room<typeof board>

  beforeAll(async () => {
    service = await startService({
      rooms: [board],
      node: {
        nodeId: 'node_one',
        maxRooms: 0,
        maxRoomsPerSession: 2 * ROOMS,
        joinsPerSecond: 1000,
        newRoomsPerMinute: 0,
      },
    })
    const login = await service.login({ sub: HOSTILE, ttl_seconds: 3600 })
    projectId = login.projectId
    const { token } = await service.call('POST', '/tokens', {
      project_id: projectId,
      sub: 'bobby',
      ttl_seconds: 3600,
    })
    ada = await connect(service.wsUrl, { projectId, token: login.token })
    bobby = await connect(service.wsUrl, { projectId, token: token! })
    for (let n = 0; n < ROOMS; n++) await ada.join('board', { key: nameOf(n).slice(6) })
    alpha = await ada.join<typeof board>('board', { key: 'alpha' })
    await bobby.join('board', { key: LAST.slice(6) })
  })

  afterAll(async () => {
    ada.close()
    bobby.close()
    await service.close()
  })

  const open = async ({ room, ...screen }: BrowserContextOptions & { room?: string } = {}) => {
    const context = Object.keys(screen).length > 0 ? await browser.newContext(screen) : shared
    return openAdmin(context, service.adminUrl, { token: service.internalToken, ...(room && { room }) })
  }
  const rooms = (page: Page): Promise<string[]> => page.locator('#rooms tbody .open').allTextContents()
  const first = async (page: Page): Promise<string | undefined> => (await rooms(page))[0]

  it('asks for the token once, keeps it for its tab only, and asks nothing of anyone but the node', async () => {
    const { page, complaints, origins } = await openAdmin(shared, service.adminUrl)
    await page.getByLabel('Token').fill('not the token')
    await page.getByRole('button', { name: 'Show the node' }).click()
    await page.getByText('does not accept this token').waitFor()
    await unlock(page, service.internalToken)
    await page.reload()
    await page.locator('#status', { hasText: 'serving' }).waitFor()
    expect(await page.evaluate(() => localStorage.length + document.cookie.length)).toBe(0)
    const other = await page.context().newPage()
    await other.goto(`${service.adminUrl}/admin`)
    await other.getByLabel('Token').waitFor()
    await page.getByRole('button', { name: 'Forget token' }).click()
    await page.getByLabel('Token').waitFor()
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
    // The link that `roomful dev` prints.
    await other.goto(`${service.adminUrl}/admin#token=${service.internalToken}`)
    await other.locator('#status', { hasText: 'serving' }).waitFor()
    expect(other.url()).toBe(`${service.adminUrl}/admin`)
    expect(complaints).toEqual([])
    expect([...origins]).toEqual([service.adminUrl])
  })

  it('asks for the token again when that is no longer the right one, whatever is open', async () => {
    const { page } = await open()
    await page.getByRole('button', { name: 'Drain…' }).click()
    await page.getByRole('dialog').waitFor()
    await page.route('**/admin/runtime*', (route) => route.fulfill({ status: 401, json: { detail: 'no' } }))
    await ask(page)
    await page.getByText('does not accept this token').waitFor()
    expect(await page.getByRole('dialog').count()).toBe(0)
    expect(await focused(page)).toBe('token')
    expect(await page.evaluate(() => sessionStorage.getItem('roomful.internal_token'))).toBe(null)
  })

  it('shows the node live, and says that it is old when the node no longer answers', async () => {
    const { page } = await open()
    expect(await page.locator('#node-id').textContent()).toBe('node_one')
    expect(await page.locator('#nodes tbody tr').allTextContents()).toEqual([
      expect.stringMatching(/^node_onethis nodeserving/),
    ])
    expect(await page.locator('#nodes td[title="no limit"] .bar.high').count()).toBe(0)
    expect(await page.locator('#nodes td[title="no limit"]').textContent()).toBe(String(ROOMS + 1))
    const members = page.locator('#members-total')
    expect(await members.textContent()).toBe(String(ROOMS + 2))
    const room = await bobby.join('board', { key: 'alpha' })
    await ask(page)
    await expect.poll(() => members.textContent()).toBe(String(ROOMS + 3))
    await room.leave()
    await page.route('**/admin/**', (route) => route.abort())
    await ask(page)
    await page.getByText(/The node does not answer\. What you see is from .* Trying again\./).waitFor()
    expect(await page.locator('#status').textContent()).toBe('no answer')
    await page.unroute('**/admin/**')
    await ask(page)
    await page.locator('#status', { hasText: 'serving' }).waitFor()
    expect(await page.locator('#banner').count()).toBe(0)
  })

  it('lists rooms by any heading, over all there are, and sessions by who came last', async () => {
    const { page } = await open()
    const table = page.getByRole('table', { name: 'Rooms' })
    const sorted = (name: string) =>
      table.getByRole('columnheader', { name, exact: true }).getAttribute('aria-sort')
    // Where most is going on comes first, though it is the youngest of more than are listed.
    await expect.poll(() => first(page)).toBe(LAST)
    expect(await sorted('Members')).toBe('descending')
    await page.getByRole('button', { name: 'Room', exact: true }).click()
    await expect.poll(() => rooms(page)).toHaveLength(50)
    await expect.poll(() => first(page)).toBe('board:alpha')
    await page.getByRole('button', { name: 'Room', exact: true }).press('Enter')
    await expect.poll(() => first(page)).toBe(LAST)
    expect([await sorted('Room'), await sorted('Members')]).toEqual(['descending', null])
    expect(await page.locator('#announcer').textContent()).toBe('Sorted by Room, descending')
    await page.getByRole('button', { name: 'Show more' }).click()
    await expect.poll(() => rooms(page)).toHaveLength(ROOMS + 1)
    // The order is kept in this tab.
    await page.reload()
    await expect.poll(async () => (await rooms(page))[1]).toBe(nameOf(ROOMS - 2))
    await page.getByRole('tab', { name: 'Sessions' }).click()
    const players = page.locator('#sessions td[data-label="Player"]')
    await expect.poll(() => players.allTextContents()).toEqual(['bobby', HOSTILE])
    await page.getByRole('button', { name: 'Connected' }).click()
    await expect.poll(() => players.allTextContents()).toEqual([HOSTILE, 'bobby'])
  })

  it('moves no row from under a person who is among them, and says so', async () => {
    const { page } = await open()
    await expect.poll(() => first(page)).toBe(LAST)
    await page.mouse.move(0, 0)
    await page.getByRole('button', { name: nameOf(3) }).focus()
    const before = await rooms(page)
    const room = await bobby.join('board', { key: nameOf(7).slice(6) })
    const row = page.locator('#rooms tbody tr', { hasText: nameOf(7) })
    await ask(page)
    await expect.poll(() => row.locator('[data-label="Members"]').textContent()).toBe('2')
    expect(await rooms(page)).toEqual(before)
    expect(await focused(page)).toBe(nameOf(3))
    await page.getByText('no row moves while you are among them').waitFor()
    await page.getByLabel('Search').focus()
    await ask(page)
    await expect.poll(async () => (await rooms(page)).slice(0, 3)).toEqual([nameOf(7), LAST, 'board:alpha'])
    // With the mouse as well.
    await page.locator('#rooms tbody tr').nth(5).hover()
    await room.leave()
    await ask(page)
    await expect.poll(() => row.locator('[data-label="Members"]').textContent()).toBe('1')
    expect(await first(page)).toBe(nameOf(7))
    await page.mouse.move(0, 0)
    await ask(page)
    await expect.poll(() => first(page)).toBe(LAST)
  })

  it('searches rooms and sessions by their names, ids and players, and opens what it finds', async () => {
    const { page } = await open()
    await page.getByLabel('Search').fill('bobby')
    await expect.poll(() => rooms(page)).toEqual([LAST])
    await page.getByRole('tab', { name: 'Sessions' }).click()
    await page.locator('#sessions tbody', { hasText: 'bobby' }).waitFor()
    await page.getByRole('button', { name: LAST }).click()
    await page.getByRole('heading', { name: LAST }).waitFor()
    await page.getByLabel('Search').fill('no one of that name')
    await page.getByText('No session here matches.').waitFor()
  })

  it('shows a room: members, state, what changes in it, and its last events', async () => {
    const { page } = await open({ room: `${projectId}/board:alpha` })
    await page.getByRole('heading', { name: 'board:alpha' }).waitFor()
    const row = (name: string) => page.getByRole('treeitem', { name })
    await row('turn 0').waitFor()
    expect(await page.locator('#members li').allTextContents()).toEqual([
      expect.stringMatching(/ses_\S+ at node_one$/),
    ])
    await row('players').click()
    expect(await row('hp').count()).toBe(0)
    // A mark stays until the next answer, which may be sooner than a busy machine looks.
    await page.locator('.tree').evaluate((tree) => {
      const marked: string[] = []
      Reflect.set(window, 'marked', marked)
      new MutationObserver((changes) => {
        for (const { target } of changes)
          if (target instanceof Element && target.classList.contains('changed'))
            marked.push(target.querySelector('.key')?.textContent ?? '')
      }).observe(tree, { subtree: true, attributeFilter: ['class'] })
    })
    const marked = () => page.evaluate(() => Reflect.get(window, 'marked'))
    await alpha.send('put', { key: 'turn', value: 1 })
    await ask(page)
    await row('turn 1').waitFor()
    await expect.poll(marked).toEqual(['turn'])
    // What was folded stays so, and says that something in it has changed.
    await alpha.send('put', { key: 'players', value: { ada: { hp: 8, at: [1, 2] } } })
    await ask(page)
    await expect.poll(marked).toEqual(['turn', 'players'])
    expect(await row('hp').count()).toBe(0)
    await alpha.send('shout', { name: 'goal', data: { by: 'ada' } })
    await ask(page)
    await page.locator('#events li', { hasText: 'goal' }).waitFor()
    expect(await page.locator('#events li').first().textContent()).toMatch(/seq \d+goal\{"by":"ada"\}$/)
    await page.getByRole('button', { name: 'Close' }).click()
    expect(new URL(page.url()).hash).toBe('')
    expect(await page.getByRole('complementary').count()).toBe(0)
  })

  it('takes nothing that players choose for markup', async () => {
    const { page, complaints } = await open()
    const room = await ada.join<typeof board>('board', { key: HOSTILE })
    await room.send('put', { key: HOSTILE, value: { [HOSTILE]: HOSTILE } })
    await room.send('shout', { name: HOSTILE, data: HOSTILE })
    await page.getByLabel('Search').fill('board:<')
    await openRoom(page, `board:${HOSTILE}`)
    for (const where of ['#room-title', '.tree', '#events', '#members'])
      await page.locator(where, { hasText: HOSTILE }).waitFor()
    await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
    await page.locator('#found-list', { hasText: HOSTILE }).waitFor()
    await page.getByRole('tab', { name: 'Sessions' }).click()
    await page.locator('#sessions', { hasText: HOSTILE }).waitFor()
    await room.leave()
    expect(await page.locator('img').count()).toBe(0)
    expect(complaints).toEqual([])
    // Nor could it, if it wanted to: nothing may write markup, or say that it is safe to.
    const failures = await page.evaluate(() =>
      ['innerHTML', 'policy'].map((way) => {
        try {
          if (way === 'innerHTML') document.body.innerHTML = '<b>'
          else Reflect.get(window, 'trustedTypes').createPolicy('safe', {})
          return 'done'
        } catch (error) {
          return (error as Error).name
        }
      }),
    )
    expect(failures).toEqual(['TypeError', 'TypeError'])
  })

  it('can be used without a mouse', async () => {
    const { page } = await openAdmin(shared, service.adminUrl)
    const { keyboard } = page
    expect(await focused(page)).toBe('token')
    await keyboard.type(service.internalToken)
    await keyboard.press('Enter')
    await page.getByRole('tab', { name: 'Rooms' }).waitFor()
    await keyboard.press('/')
    await keyboard.type('board:alpha')
    await keyboard.press('Enter')
    await expect.poll(() => focused(page)).toBe('room-title')
    await page.getByRole('tree').waitFor()
    await keyboard.press('Tab')
    expect(await focused(page)).toBe('close-room')
    await keyboard.press('Tab')
    expect(await focused(page)).toMatch(/^state/)
    // To the players, who are folded or not, then into the first.
    await keyboard.press('p')
    expect(await focused(page)).toMatch(/^players/)
    await keyboard.press('ArrowLeft')
    await keyboard.press('ArrowRight')
    await keyboard.press('ArrowRight')
    expect(await focused(page)).toMatch(/^ada/)
    await keyboard.press('ArrowLeft')
    await keyboard.press('ArrowLeft')
    expect(await focused(page)).toMatch(/^players/)
    await keyboard.press('Home')
    expect(await focused(page)).toMatch(/^state/)
    // The row with the focus is the only one that Tab leads to.
    expect(await page.locator('[role=treeitem][tabindex="0"]').count()).toBe(1)
    await alpha.send('put', { key: 'turn', value: 77 })
    await ask(page)
    await page.getByRole('treeitem', { name: 'turn 77' }).waitFor()
    expect(await focused(page)).toMatch(/^state/)
    await keyboard.press('Escape')
    expect(await focused(page)).toBe('board:alpha')
    await keyboard.press('/')
    await keyboard.press('Escape')
    await expect.poll(() => rooms(page)).toHaveLength(50)
    await page.getByRole('button', { name: LAST }).focus()
    await keyboard.press('ArrowDown')
    expect(await focused(page)).toBe('board:alpha')
    await page.getByRole('tab', { name: 'Rooms' }).focus()
    await keyboard.press('ArrowRight')
    expect(await focused(page)).toBe('sessions-tab')
    await page.locator('#sessions tbody tr').first().waitFor()
  })

  it('draws only what can be seen of a state of a megabyte', async () => {
    const room = await ada.join<typeof board>('board', { key: 'large' })
    await room.send('fill', null)
    const { page } = await open({ room: `${projectId}/board:large` })
    await page.getByRole('treeitem', { name: 'numbers' }).click()
    await page.getByRole('treeitem', { name: '49,900 more' }).click()
    expect(await page.getByRole('treeitem').count()).toBeLessThan(300)
    await room.leave()
  })

  it('asks nothing while its tab is hidden, and tells ages by the clock of the node', async () => {
    const { page } = await open({ viewport: { width: 1280, height: 720 } })
    await page.clock.install({ time: Date.now() - 3 * 3600_000 })
    await page.reload()
    await page.getByText('this browser’s clock is 3 h 0 min behind the node’s').waitFor()
    expect(await page.locator('#about').textContent()).toMatch(/up \d+ (s|min);/)
    await page.clock.setSystemTime(Date.now())
    let asked = 0
    page.on('request', () => asked++)
    const hide = (hidden: boolean) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })
        document.dispatchEvent(new Event('visibilitychange'))
      }, hidden)
    await page.clock.runFor(3000)
    await expect.poll(() => page.locator('#about').textContent()).toMatch(/up \d+ (s|min)$/)
    await hide(true)
    asked = 0
    await page.clock.runFor(60_000)
    expect(asked).toBe(0)
    await hide(false)
    await expect.poll(() => asked).toBeGreaterThan(0)
  })

  /** Everything the page can show, in the order in which it gets there. */
  const VIEWS: Record<string, (page: Page) => Promise<unknown>> = {
    rooms: async () => {},
    sessions: async (page) => {
      await page.getByRole('tab', { name: 'Sessions' }).click()
      await page.locator('#sessions tbody tr').first().waitFor()
    },
    found: async (page) => {
      await page.getByLabel('Search').fill('a-name')
      await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
      await page.getByText('1 room and 1 session.').waitFor()
    },
    dialog: async (page) => {
      await page.getByRole('button', { name: 'Drain…' }).click()
      await page.getByRole('dialog').waitFor()
    },
    room: async (page) => {
      await page.keyboard.press('Escape')
      await page.getByRole('tab', { name: 'Rooms' }).click()
      await page.locator('#rooms tbody .open').click()
      await page.getByRole('tree').waitFor()
    },
    nowhere: async (page) => {
      await page.goto(`${page.url().split('#')[0]}#room=prj_of_nobody%2Fboard%3Anowhere`)
      await page.getByText('There is no such room').waitFor()
    },
    stale: async (page) => {
      await page.keyboard.press('Escape')
      await page.route('**/admin/**', (route) => route.abort())
      await ask(page)
      await page.getByText('The node does not answer').waitFor()
    },
  }

  it.each([
    ['at a desk, in light', { colorScheme: 'light', viewport: { width: 1280, height: 720 } }],
    [
      'on a phone, in dark, without motion',
      {
        colorScheme: 'dark',
        reducedMotion: 'reduce',
        viewport: { width: 390, height: 844 },
        hasTouch: true,
      },
    ],
  ] as const)('can be read %s, and fits', async (_, options) => {
    const room = await ada.join<typeof board>('board', { key: LONG })
    await room.send('shout', { name: LONG, data: LONG.repeat(5) })
    await room.send('put', { key: LONG, value: LONG.repeat(5) })
    const { page } = await open(options)
    const isPhone = options.viewport.width < 800
    for (const [view, go] of Object.entries(VIEWS)) {
      await go(page)
      const seen = await page.evaluate((width) => {
        const all = [...document.querySelectorAll('main *, header *, dialog[open] *')]
        return {
          wide: all
            .filter((element) => element.checkVisibility() && !element.closest('svg, .unseen, .scroll'))
            .filter((element) => element.getBoundingClientRect().right > width + 0.5)
            .map((element) => element.id || element.textContent?.slice(0, 40)),
          scrolls: document.documentElement.scrollWidth > width,
          moves: all.some((element) => !/^(0s(, )?)+$/.test(getComputedStyle(element).transitionDuration)),
        }
      }, options.viewport.width)
      const moves = isPhone ? false : seen.moves
      expect({ view, faint: await faintTexts(page), ...seen }).toEqual({
        view,
        faint: [],
        wide: [],
        scrolls: false,
        moves,
      })
      // A room covers the rest, which must not be reached behind it.
      const isCovered = isPhone && (view === 'room' || view === 'nowhere')
      expect(await page.locator('#overview[inert]').count()).toBe(isCovered ? 1 : 0)
    }
    await room.leave()
  })

  it('has tables on a phone for people who hear them, and headings that sort', async () => {
    const { page } = await open({ viewport: { width: 390, height: 844 }, hasTouch: true })
    await page.getByRole('button', { name: 'Room', exact: true }).tap()
    await expect.poll(() => first(page)).not.toBe(LAST)
    // What a screen reader is told, of which the layout is a part.
    const reader = await page.context().newCDPSession(page)
    const { nodes } = await reader.send('Accessibility.getFullAXTree')
    const heard = (role: string) => nodes.filter((node) => node.role?.value === role && !node.ignored).length
    expect([heard('table'), heard('row'), heard('columnheader')]).toEqual([2, 1 + 1 + 50, 5])
  })
})

describe('the admin page of a node among others', () => {
  const ROOM = 'ledger-journal:one'
  let cluster: TestCluster
  let login: Login
  let owner: LocalNode
  let other: LocalNode

  beforeAll(async () => {
    cluster = await TestCluster.start()
    login = await cluster.login()
    const nodes = await cluster.local(2, { drainSeconds: 8 })
    await cluster.playersAt(login, ROOM, nodes)
    ;[owner, other] = (await cluster.ownerFirst(login, ROOM, nodes)) as [LocalNode, LocalNode]
  })
  afterAll(() => cluster.close())

  const open = (node: LocalNode) => openAdmin(shared, node.adminUrl, { token: cluster.internalToken })

  it('lists every node, its own first, and leads to the others and to rooms there', async () => {
    const { page, complaints } = await open(other)
    const rows = page.locator('#nodes tbody tr')
    await expect.poll(() => rows.count()).toBe(2)
    const texts = await rows.allTextContents()
    expect(texts[0]).toMatch(new RegExp(`^${other.nodeId}this nodeserving`))
    expect(texts[1]).toMatch(new RegExp(`^${owner.nodeId}serving`))
    // By its rooms, the own one is first, or last.
    const byRooms = page.locator('#nodes').getByRole('button', { name: 'Rooms' })
    const firstNode = () => rows.first().locator('.name').textContent()
    await byRooms.click()
    await expect.poll(firstNode).toBe(owner.nodeId)
    await byRooms.click()
    await expect.poll(firstNode).toBe(other.nodeId)
    expect(await page.getByRole('link', { name: owner.nodeId }).getAttribute('href')).toBe(
      `${owner.adminUrl}/admin`,
    )
    await page.getByLabel('Search').fill(ROOM)
    await page.getByText('No room here matches.').waitFor()
    await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
    await page.getByText(`This room is at ${owner.nodeId}.`).waitFor()
    await page.getByRole('link', { name: `Open it at ${owner.nodeId}` }).click()
    await unlock(page, cluster.internalToken)
    await page.getByRole('tree').waitFor()
    expect(page.url()).toBe(
      `${owner.adminUrl}/admin#room=${encodeURIComponent(`${login.projectId}/${ROOM}`)}`,
    )
    expect(await page.locator('#members li').allTextContents()).toEqual(
      expect.arrayContaining([
        expect.stringContaining(`at ${owner.nodeId}`),
        expect.stringContaining(`at ${other.nodeId}`),
      ]),
    )
    expect(complaints).toEqual([])
  })

  it('finds what other nodes have by a part of a name or of who is in it, and says who did not answer', async () => {
    const { page } = await open(other)
    const search = page.getByLabel('Search')
    const found = page.locator('#found-list li')
    await search.fill('R-JOURNAL:o')
    await search.press('Enter')
    await expect
      .poll(() => found.allTextContents())
      .toEqual([
        expect.stringMatching(new RegExp(`^${ROOM}${login.projectId}, \\d+ members, at ${owner.nodeId}$`)),
        expect.stringMatching(/^ses_/),
        expect.stringMatching(/^ses_/),
      ])
    await page.getByText('1 room and 2 sessions.').waitFor()
    await found.first().getByRole('button', { name: ROOM }).click()
    await page.getByText(`This room is at ${owner.nodeId}.`).waitFor()
    await page.keyboard.press('Escape')
    expect(await focused(page)).toBe(ROOM)
    await search.fill('of that name there is nothing')
    expect(await page.locator('#found').count()).toBe(0)
    await search.press('Enter')
    await page.getByText('Nothing matches.').waitFor()
    await page.route('**/admin/search*', async (route) => {
      const answer = await (await route.fetch()).json()
      await route.fulfill({ json: { ...answer, found: { rooms: 70, sessions: 0 }, silent: ['node_deaf'] } })
    })
    await search.fill('o')
    await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
    await page
      .getByText('The first 1 of 70 rooms. More letters find fewer. No answer from node_deaf')
      .waitFor()
  })

  it('drains nothing unless that is confirmed, shows how it goes, and where to go on', async () => {
    const { page } = await open(owner)
    const { keyboard } = page
    const drain = page.getByRole('button', { name: 'Drain…' })
    const sure = page.getByLabel(`Yes, drain ${owner.nodeId}`)
    await drain.click()
    await page.getByRole('dialog', { name: `Drain ${owner.nodeId}?` }).waitFor()
    await page.getByText('1 other node can take them').waitFor()
    expect(await page.getByRole('button', { name: 'Drain the node' }).isDisabled()).toBe(true)
    // With the confirmation given, and then thought better of.
    await sure.check()
    await keyboard.press('Escape')
    await drain.click()
    expect(await sure.isChecked()).toBe(false)
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('dialog').waitFor({ state: 'hidden' })
    expect(await page.locator('#status').textContent()).toBe('serving')

    // A client that does not go elsewhere when it is told to.
    const deaf = new WebSocket(owner.wsUrl, 'roomful.v1.json')
    await once(deaf, 'open')
    deaf.send(JSON.stringify({ t: 'hello', project_id: login.projectId, token: login.token }))
    await once(deaf, 'message')
    await drain.focus()
    await keyboard.press('Enter')
    expect(await focused(page)).toBe('Cancel')
    await keyboard.press('Shift+Tab')
    await keyboard.press('Space')
    await keyboard.press('Tab')
    await keyboard.press('Tab')
    expect(await focused(page)).toBe('drain-now')
    await keyboard.press('Enter')
    await page.getByRole('heading', { name: `${owner.nodeId} is draining` }).waitFor()
    await page.getByText('1 of 1 room moved').waitFor()
    await page.getByText(/[01] of 2 sessions moved/).waitFor()
    deaf.close()
    await ask(page)
    await page.getByRole('heading', { name: `${owner.nodeId} has drained and ended` }).waitFor()
    await page.getByText(/When it last answered, at .*, it still had/).waitFor()
    expect(await page.locator('#status').textContent()).toBe('ended')
    await page.getByRole('link', { name: other.nodeId }).last().click()
    await unlock(page, cluster.internalToken)
    await page.locator('#nodes tbody tr', { hasText: /gone/ }).waitFor()
    await openRoom(page, ROOM)
    // Its members came while the other node had it; those who come now have a time.
    await page.getByText(/^This node took the room over at \d\d:\d\d:\d\d\./).waitFor()
    expect(await page.locator('#events .taken ~ li .when').allTextContents()).toContain('earlier')
    await expect.poll(() => page.locator('#room-here li.connected').count()).toBe(2)
    await page.getByRole('button', { name: 'Drain…' }).click()
    await page.getByText(/No other node can take them/).waitFor()
  })
})
