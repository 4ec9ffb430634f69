import { pino } from 'pino'
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core'
import { type Client, connect, type Room } from 'roomful/client'
import * as v from 'valibot'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { startControl } from '../../control/main.ts'
import { systemClock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import { systemRandom } from '../../shared/random.ts'
import { launchChromium } from '../../test/support/chromium.ts'
import {
  type LocalNode,
  type Login,
  startService,
  TestCluster,
  type TestService,
} from '../../test/support/cluster.ts'
import { defineRoom } from '../room/definition.ts'

/** The admin page of a node in a tab. */
interface AdminPage {
  readonly page: Page
  /** Script errors, dialogs, and violations of the content security policy. A test expects none. */
  readonly complaints: readonly string[]
  /** Origins of all requests. */
  readonly origins: ReadonlySet<string>
}

/** Opens `/admin` of a node. `token`: opens it by a link with the token. `room`: name of a room to open. */
async function openAdmin(
  context: BrowserContext,
  adminUrl: string,
  { token, room }: { token?: string; room?: string } = {},
): Promise<AdminPage> {
  const page = await context.newPage()
  // Playwright's default of 30 s is short on a busy machine.
  page.setDefaultTimeout(120_000)
  const complaints: string[] = []
  const origins = new Set<string>()
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (/security policy|trusted/i.test(message.text())) complaints.push(message.text())
  })
  page.on('dialog', (dialog) => {
    complaints.push(dialog.message())
    dialog.dismiss().catch(() => {})
  })
  page.on('request', (request) => {
    if (!request.url().startsWith('data:')) origins.add(new URL(request.url()).origin)
  })
  await page.goto(`${adminUrl}/admin${token === undefined ? '' : `#token=${encodeURIComponent(token)}`}`)
  if (token !== undefined) await page.getByRole('tab', { name: 'Rooms' }).waitFor()
  if (room !== undefined) await page.goto(`${adminUrl}/admin#room=${encodeURIComponent(room)}`)
  return { page, complaints, origins }
}

/** Enters the token. Resolves when the page shows the node. */
async function unlock(page: Page, token: string): Promise<void> {
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Show the node' }).click()
  await page.getByRole('tab', { name: 'Rooms' }).waitFor()
}

/** Makes the page poll the node now. Its pauses are five times as long as a poll, which is long on a busy machine. */
const ask = (page: Page): Promise<void> =>
  page.evaluate(() => void document.dispatchEvent(new Event('visibilitychange')))

/** Lets the page ask until it shows an item of the state. The answer to a request that is under way has the state of before. */
const askUntil = (page: Page, name: string): Promise<void> =>
  expect
    .poll(async () => {
      await ask(page)
      return page.getByRole('treeitem', { name }).count()
    })
    .toBe(1)

/** Opens a room of the list, and waits for its state tree. */
async function openRoom(page: Page, roomId: string): Promise<void> {
  await page.getByRole('button', { name: roomId, exact: true }).click()
  await page.getByRole('tree').waitFor()
}

/** Returns the id, the text or the tag of the focused element. */
const focused = (page: Page): Promise<string> =>
  page.evaluate(() => {
    const element = document.activeElement
    return element?.id || element?.textContent?.trim() || element?.tagName || ''
  })

const json = v.custom<Json>(() => true)

/** A room whose players choose its state and events. */
const board = defineRoom({
  type: 'board',
  messages: {
    put: { data: v.object({ key: v.string(), value: json }) },
    shout: { data: v.object({ name: v.string(), data: json }) },
    /** Makes the state about a megabyte large. */
    fill: { data: v.null() },
  },
  sync: { rate: 0 },
  durability: 'snapshot',
  listing: { data: v.object({}), of: () => ({}) },
  create: (): Record<string, Json> => ({ turn: 0, players: { ada: { hp: 9, at: [1, 2] } } }),
  onMessage(state, input, ctx) {
    if (input.type === 'put') state[input.data.key] = input.data.value as never
    else if (input.type === 'shout') ctx.emit(input.data.name, input.data.data)
    else {
      state.numbers = Array.from({ length: 50_000 }, (_, n) => n)
      for (let part = 0; part < 14; part++) state[`part${part}`] = 'x'.repeat(50_000)
    }
  },
})

/** A text with too little contrast. */
interface FaintText {
  readonly text: string
  readonly ratio: number
}

/**
 * Returns the visible texts of a page whose contrast ratio is below `least` (WCAG 2.2: contrast ratio, relative luminance). Disabled elements
 * are exempt. All backgrounds must be plain colours.
 */
const faintTexts = (page: Page, least = 4.5): Promise<FaintText[]> =>
  page.evaluate((least) => {
    const channels = (color: string): number[] => (color.match(/[\d.]+/g) ?? []).map(Number)
    const luminance = ([r = 0, g = 0, b = 0]: number[]): number => {
      const [lr, lg, lb] = [r, g, b].map((channel) => {
        const share = channel / 255
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
      }) as [number, number, number]
      return 0.2126 * lr + 0.7152 * lg + 0.0722 * lb
    }
    const backgroundOf = (element: Element | null): number[] => {
      for (let at = element; at; at = at.parentElement) {
        const color = channels(getComputedStyle(at).backgroundColor)
        if ((color[3] ?? 1) === 1) return color
      }
      return [255, 255, 255]
    }
    const faint: FaintText[] = []
    const check = (element: Element, text: string, color: string): void => {
      const [a, b] = [luminance(channels(color)), luminance(backgroundOf(element))]
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
      if (ratio < least) faint.push({ text, ratio: Number(ratio.toFixed(2)) })
    }
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const element = text.parentElement
      const words = text.textContent?.trim()
      if (!element || !words || element.closest('script, style, :disabled')) continue
      if (element.checkVisibility({ visibilityProperty: true }))
        check(element, words, getComputedStyle(element).color)
    }
    for (const input of document.querySelectorAll('input[placeholder]'))
      if (input.checkVisibility())
        check(input, `placeholder of ${input.id}`, getComputedStyle(input, '::placeholder').color)
    return faint
  }, least)

const HOSTILE = '<img src=x onerror=alert(1)>'
const LONG = 'a-name-as-long-as-they-get-with-no-place-to-break-it-anywhere'
/** More rooms than the page lists at first. */
const ROOMS = 60

let browser: Browser
/** For tests without a screen size: the first page of a context costs three times as much as the next one. */
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
  let alpha: Room<typeof board>

  beforeAll(async () => {
    service = await startService({
      rooms: [board],
      node: {
        nodeId: 'node_one',
        maxRoomsPerSession: 2 * ROOMS,
        playerPointsPerSecond: 1_000_000,
        newRoomsPerMinute: 0,
      },
    })
    const login = await service.login({ sub: HOSTILE, ttl_seconds: 3600 })
    projectId = login.projectId
    ada = await connect(service.wsUrl, { projectId, token: login.token })
    await Promise.all(Array.from({ length: ROOMS }, (_, n) => ada.join('board', { key: `lobby-${n}` })))
    alpha = await ada.join<typeof board>('board', { key: 'alpha' })
  })
  afterAll(async () => {
    ada.close()
    await service.close()
  })

  const open = async ({ room, ...screen }: BrowserContextOptions & { room?: string } = {}) => {
    const context = Object.keys(screen).length > 0 ? await browser.newContext(screen) : shared
    return openAdmin(context, service.adminUrl, { token: service.internalToken, ...(room && { room }) })
  }
  const rooms = (page: Page): Promise<string[]> => page.locator('#rooms tbody .open').allTextContents()

  it('belongs to a node whose metrics count rooms and sessions by project', async () => {
    for (const [what, most] of [
      ['rooms', ROOMS + 1],
      ['sessions', 1],
    ] as const)
      expect(await service.metric(`service_project_${what}{project_id="${projectId}"}`)).toBe(most)
  })

  it('asks for the token, keeps it for its tab only, forgets a wrong one, and sends requests to its node only', async () => {
    const { page, complaints, origins } = await openAdmin(shared, service.adminUrl)
    await page.getByLabel('Token').fill('not the token')
    await page.getByRole('button', { name: 'Show the node' }).click()
    await page.getByText('does not accept this token').waitFor()
    await unlock(page, service.internalToken)
    await page.reload()
    await page.locator('#status', { hasText: 'serving' }).waitFor()
    expect(await page.evaluate(() => localStorage.length + document.cookie.length)).toBe(0)
    await page.route('**/admin/runtime*', (route) => route.fulfill({ status: 401, json: { detail: 'no' } }))
    await ask(page)
    await page.getByText('does not accept this token').waitFor()
    expect(await focused(page)).toBe('token')
    expect(await page.evaluate(() => sessionStorage.getItem('roomful.internal_token'))).toBe(null)
    // The link that `roomful dev` prints.
    const { page: other } = await open()
    expect(other.url()).toBe(`${service.adminUrl}/admin`)
    expect(complaints).toEqual([])
    expect([...origins]).toEqual([service.adminUrl])
  })

  it('shows current problems, and says that its data is old when the node no longer answers', async () => {
    const { page } = await open()
    await expect.poll(() => page.locator('#problems').count()).toBe(0)
    await page.route('**/admin/runtime*', async (route) => {
      const answer = await (await route.fetch()).json()
      const problems = [{ code: 'rooms_frozen', detail: 'rooms that can do nothing: arena:1' }]
      await route.fulfill({ json: { ...answer, problems } })
    })
    await ask(page)
    await page.locator('#problems', { hasText: 'rooms that can do nothing: arena:1' }).waitFor()
    await page.unroute('**/admin/runtime*')
    await page.route('**/admin/cluster*', async (route) => {
      const { nodes } = await (await route.fetch()).json()
      const reason = { code: 'clock_wrong', detail: 'its clock is 40 s ahead' }
      const other = { ...nodes[0], node_id: 'node-9', self: false, not_ready: [reason] }
      await route.fulfill({ json: { nodes: [...nodes, other] } })
    })
    await ask(page)
    await page.locator('#problems', { hasText: 'node-9 is not ready: its clock is 40 s ahead' }).waitFor()
    const states = page.locator('#nodes td[data-label="State"]')
    expect(await states.allTextContents()).toEqual(['serving', 'not readyits clock is 40 s ahead'])
    await page.unroute('**/admin/cluster*')
    await page.route('**/admin/**', (route) => route.abort())
    await ask(page)
    await page.getByText(/The node does not answer\. What you see is from .* Trying again\./).waitFor()
    expect(await page.locator('#status').textContent()).toBe('no answer')
    await page.unroute('**/admin/**')
    await ask(page)
    await page.locator('#status', { hasText: 'serving' }).waitFor()
    expect(await page.locator('#banner').count()).toBe(0)
  })

  it('can be used without a mouse: lists by any heading, search, a room, its tree', async () => {
    const { page } = await open()
    const { keyboard } = page
    await expect.poll(() => rooms(page)).toHaveLength(50)
    await page.getByRole('button', { name: 'Show more' }).press('Enter')
    await expect.poll(() => rooms(page)).toHaveLength(ROOMS + 1)
    const byRoom = page.getByRole('button', { name: 'Room', exact: true })
    await byRoom.press('Enter')
    await expect.poll(async () => (await rooms(page))[0]).toBe('board:alpha')
    await byRoom.press('Enter')
    await expect.poll(async () => (await rooms(page))[0]).toBe('board:lobby-9')
    const heading = page.getByRole('columnheader', { name: 'Room', exact: true })
    expect(await heading.getAttribute('aria-sort')).toBe('descending')
    await page.getByRole('tab', { name: 'Rooms' }).focus()
    await keyboard.press('ArrowRight')
    expect(await focused(page)).toBe('sessions-tab')
    await page.locator('#sessions tbody', { hasText: HOSTILE }).waitFor()
    await keyboard.press('ArrowLeft')
    await keyboard.press('/')
    await keyboard.type('board:alpha')
    await keyboard.press('Enter')
    await expect.poll(() => focused(page)).toBe('room-title')
    await page.getByRole('tree').waitFor()
    await keyboard.press('Tab')
    expect(await focused(page)).toBe('hide-room')
    await keyboard.press('Tab')
    expect(await focused(page)).toBe('Close the room…')
    for (const button of ['Kick…', 'Ban…', 'End session…']) {
      await keyboard.press('Tab')
      expect(await focused(page)).toBe(button)
    }
    await keyboard.press('Tab')
    expect(await focused(page)).toMatch(/^state/)
    await keyboard.press('End')
    await keyboard.press('Home')
    await keyboard.press('ArrowDown')
    await keyboard.press('ArrowDown')
    expect(await focused(page)).toMatch(/^players/)
    await keyboard.press('ArrowLeft')
    expect(await page.getByRole('treeitem', { name: 'ada' }).count()).toBe(0)
    // It stays folded while the state changes.
    await alpha.send('put', { key: 'turn', value: 77 })
    await askUntil(page, 'turn 77')
    expect(await page.getByRole('treeitem', { name: 'ada' }).count()).toBe(0)
    expect(await focused(page)).toMatch(/^players/)
    await keyboard.press('Escape')
    expect(await focused(page)).toBe('board:alpha')
    expect(new URL(page.url()).hash).toBe('')
  })

  it('shows a room with its events and members, and inserts no text of players as markup', async () => {
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
    // Renders only the visible part of a state of a megabyte.
    await room.send('fill', null)
    await askUntil(page, 'numbers')
    await page.getByRole('treeitem', { name: 'numbers' }).click()
    await page.getByRole('treeitem', { name: '49,900 more' }).click()
    expect(await page.getByRole('treeitem').count()).toBeLessThan(300)
    await room.leave()
    expect(await page.locator('img').count()).toBe(0)
    expect(complaints).toEqual([])
    // The browser enforces it too: no script may write markup, or declare it trusted.
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

  it('closes a room and kicks a player through control, with an operator token that it keeps in memory only', async () => {
    const operatorToken = 'an operator token of the tests'.replaceAll(' ', '-')
    const control = await startControl({
      config: { controlPort: 0, controlApiTokens: [operatorToken], internalToken: service.internalToken },
      store: service.store,
      clock: systemClock,
      random: systemRandom,
      log: pino({ level: 'silent' }),
    })
    onTestFinished(() => control.close())
    const doomed = await ada.join('board', { key: 'doomed' })
    const crowd = await ada.join('board', { key: 'crowd' })
    const { page, complaints } = await open({ room: `${projectId}/board:doomed` })
    const close = page.getByRole('button', { name: 'Close the room', exact: true })
    const token = page.getByLabel('Operator token')
    await page.getByRole('button', { name: 'Close the room…' }).click()
    await page.getByText('This cannot be undone.').waitFor()
    await page.getByLabel('Address').fill('http://evil.example')
    await close.click()
    await page.getByText(/can connect to control at .*, not at http:\/\/evil\.example/).waitFor()
    await page.getByLabel('Address').fill(control.url)
    await token.fill('wrong')
    await close.click()
    await page.getByText('Control does not accept this token').waitFor()
    expect(doomed.members.length).toBe(1)
    await token.fill(operatorToken)
    await close.click()
    await page.getByText('board:doomed has ended.').waitFor()
    await page.getByText('The room has ended. The next join makes a new one.').waitFor()
    expect(await page.getByRole('button', { name: 'Close the room…' }).count()).toBe(0)
    await expect.poll(() => doomed.status).toBe('left')

    await page.getByLabel('Search').fill('board:crowd')
    await openRoom(page, 'board:crowd')
    await page.getByRole('button', { name: 'Kick…' }).click()
    expect(await token.count()).toBe(0)
    await page.getByRole('button', { name: 'Kick the player' }).click()
    await page.getByText(`${HOSTILE}: 1 seat ended.`).waitFor()
    await expect.poll(() => crowd.status).toBe('left')

    const bans = page.locator('#bans tbody tr')
    await fetch(`${control.url}/projects/${projectId}/subs/mallory/ban`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${operatorToken}`, 'content-type': 'application/json' },
      body: '{"reason":"aimbot"}',
    })
    await page.getByRole('tab', { name: 'Bans' }).click()
    await bans.waitFor()
    expect(await bans.locator('td').allTextContents()).toEqual([
      'mallory',
      'never',
      'the whole project',
      'aimbot',
      'End…',
    ])
    await bans.getByRole('button', { name: 'End…' }).click()
    await page.getByRole('button', { name: 'End the ban' }).click()
    await page.getByText('No player of this project is banned.').waitFor()
    const kept = () =>
      JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href])
    expect(await page.evaluate(kept)).not.toContain(operatorToken)
    await page.reload()
    await page.getByRole('tab', { name: 'Projects' }).click()
    await page.getByRole('button', { name: 'Show the projects…' }).click()
    await token.waitFor()
    expect(complaints).toEqual([])
  })

  it('keeps its project, and shows and resends only its notices, whatever the node lists next', async () => {
    const { page } = await open()
    let rounds = 0
    let first = 'prj_ants'
    await page.route('**/admin/runtime*', async (route) => {
      const answer = await (await route.fetch()).json()
      const problems = [{ code: 'round', detail: `round ${++rounds}` }]
      const session = { ...answer.sessions[0], project_id: first, session_id: 'ses_first' }
      await route.fulfill({
        json: { ...answer, problems, rooms: [], sessions: [session, ...answer.sessions] },
      })
    })
    await page.route('**/admin/notices?*', (route) => {
      const project = new URL(route.request().url()).searchParams.get('project_id')
      if (project !== 'prj_ants') return route.fulfill({ status: 503, json: { detail: 'the store is away' } })
      const died = { id: 'ntc_1', type: 'won', room_id: 'board:a', data: null, reason: 'HTTP 400' }
      const letters = [{ ...died, died_at: new Date().toISOString() }]
      const pending = { rooms: 0, notices: 0 }
      return route.fulfill({ json: { pending, dead_letters: letters, next_cursor: null } })
    })
    const round = async () => {
      const before = rounds
      await ask(page)
      const shown = async () =>
        Number((await page.locator('#problems').textContent())?.match(/round (\d+)/)?.[1])
      await expect.poll(shown).toBeGreaterThan(before)
    }
    await round()
    await page.reload()
    await page.getByRole('tab', { name: 'Notices' }).click()
    const project = page.getByRole('combobox', { name: 'Project' })
    const letters = page.locator('#notices tbody tr')
    await letters.waitFor()
    first = 'prj_bees'
    await round()
    expect(await project.inputValue()).toBe('prj_ants')

    let answerResend = () => {}
    await page.route('**/admin/notices/resend*', async (route) => {
      await new Promise<void>((resolve) => {
        answerResend = resolve
      })
      await route.fulfill({ status: 503, json: { detail: 'the backend is away' } })
    })
    await page.getByRole('button', { name: 'Resend…' }).click()
    await page.getByRole('dialog').getByText('prj_ants').waitFor()
    const sent = page.waitForRequest('**/admin/notices/resend*')
    await page.getByRole('button', { name: 'Resend', exact: true }).click()
    await sent
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await expect
      .poll(() => {
        answerResend()
        return page.locator('#done').textContent()
      })
      .toContain('the backend is away')

    await project.fill('')
    await project.pressSequentially('prj_')
    await round()
    await project.pressSequentially('bees')
    await round()
    expect(await project.inputValue()).toBe('prj_bees')
    await project.press('Enter')
    await page.getByText('the store is away').waitFor()
    expect(await letters.count()).toBe(0)

    let loads = 0
    await page.route('**/admin/queues*', () => void loads++)
    await page.getByRole('tab', { name: 'Queues' }).click()
    for (let n = 0; n < 2; n++) await round()
    expect(loads).toBe(1)
  })

  it('sends no requests while its tab is hidden, and shows ages by the clock of the node', async () => {
    const { page } = await open({ viewport: { width: 1280, height: 720 } })
    await page.clock.install({ time: Date.now() - 3 * 3600_000 })
    await page.reload()
    await page.getByText('this browser’s clock is 3 h 0 min behind the node’s').waitFor()
    expect(await page.locator('#about').textContent()).toMatch(/up \d+ (s|min);/)
    let asked = 0
    page.on('request', () => asked++)
    const hide = (hidden: boolean) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })
        document.dispatchEvent(new Event('visibilitychange'))
      }, hidden)
    await hide(true)
    asked = 0
    await page.clock.runFor(60_000)
    expect(asked).toBe(0)
    await hide(false)
    await expect.poll(() => asked).toBeGreaterThan(0)
  })

  it.each([
    ['at a desk, in light', { colorScheme: 'light', viewport: { width: 1280, height: 720 } }],
    ['on a phone, in dark', { colorScheme: 'dark', viewport: { width: 375, height: 812 }, hasTouch: true }],
  ] as const)('is readable %s, and fits', async (_, options) => {
    const room = await ada.join<typeof board>('board', { key: LONG })
    await room.send('shout', { name: LONG, data: LONG.repeat(5) })
    await room.send('put', { key: LONG, value: LONG.repeat(5) })
    const { page } = await open(options)
    const { width } = options.viewport
    const fits = async (view: string) => {
      const seen = await page.evaluate((width) => {
        const all = [...document.querySelectorAll('main *, header *, dialog[open] *')]
        const wide = all.filter(
          (element) => element.checkVisibility() && element.getBoundingClientRect().right > width + 0.5,
        )
        return {
          wide: wide.map((element) => element.id || element.textContent?.slice(0, 40)),
          scrolls: document.documentElement.scrollWidth > width,
        }
      }, width)
      expect({ view, faint: await faintTexts(page), ...seen }).toEqual({
        view,
        faint: [],
        wide: [],
        scrolls: false,
      })
    }
    await fits('rooms')
    // The view of a screen reader depends on the layout.
    const reader = await page.context().newCDPSession(page)
    const { nodes } = await reader.send('Accessibility.getFullAXTree')
    const heard = (role: string) => nodes.filter((node) => node.role?.value === role && !node.ignored).length
    expect([heard('table'), heard('row')]).toEqual([2, 1 + 1 + 1 + 50])
    await page.getByRole('tab', { name: 'Sessions' }).click()
    await page.locator('#sessions tbody tr').first().waitFor()
    await fits('sessions')
    for (const tab of ['Listings', 'Queues', 'Notices', 'Bans', 'Projects']) {
      await page.getByRole('tab', { name: tab }).click()
      if (tab === 'Listings') {
        await page.locator('#listed [data-label=Players][aria-sort=descending]').waitFor()
        await page.locator('#listed tbody tr').first().waitFor()
      }
      await fits(tab)
    }
    await page.getByRole('button', { name: 'Drain…' }).click()
    await page.getByRole('dialog').waitFor()
    await fits('dialog')
    await page.keyboard.press('Escape')
    await page.getByRole('tab', { name: 'Rooms' }).click()
    await page.getByLabel('Search').fill(LONG)
    await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
    await page.getByText('1 room and 1 session match.').waitFor()
    await expect.poll(() => rooms(page)).toHaveLength(1)
    await fits('found')
    await page.locator('#rooms tbody .open').click()
    await page.getByRole('tree').waitFor()
    await fits('room')
    // On a phone a room covers the rest, so the keyboard must not reach behind it.
    expect(await page.locator('#overview[inert]').count()).toBe(width < 800 ? 1 : 0)
    await room.leave()
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
    const nodes = await cluster.local(2, { drainSeconds: 2 })
    await cluster.playersAt(login, ROOM, nodes)
    ;[owner, other] = (await cluster.ownerFirst(login, ROOM, nodes)) as [LocalNode, LocalNode]
  })
  afterAll(() => cluster.close())

  it('lists every node, finds rooms of other nodes, links to them, and drains a node after a confirmation', async () => {
    const { page, complaints } = await openAdmin(shared, other.adminUrl, { token: cluster.internalToken })
    const names = page.locator('#nodes tbody a')
    await expect.poll(() => names.allTextContents()).toEqual([other.nodeId, owner.nodeId])
    await page.getByLabel('Search').fill(ROOM.slice(2))
    await page.getByText('No room here matches.').waitFor()
    await page.getByLabel('Search').press('Enter')
    await page.getByText('1 room and 2 sessions match.').waitFor()
    await page.locator('#found-list').getByRole('button', { name: ROOM }).first().click()
    await page.getByText(`This room is at ${owner.nodeId}.`).waitFor()
    await page.getByRole('link', { name: `Open it at ${owner.nodeId}` }).click()
    await unlock(page, cluster.internalToken)
    await page.getByRole('tree').waitFor()
    const name = encodeURIComponent(`${login.projectId}/${ROOM}`)
    expect(page.url()).toBe(`${owner.adminUrl}/admin#room=${name}`)
    await page.keyboard.press('Escape')

    await page.getByRole('button', { name: 'Cordon' }).click()
    await page.locator('#status', { hasText: 'cordoned' }).waitFor()
    await page.getByRole('button', { name: 'Uncordon' }).click()
    await page.locator('#status', { hasText: 'serving' }).waitFor()

    const drain = page.getByRole('button', { name: 'Drain…' })
    const sure = page.getByLabel(`Yes, drain ${owner.nodeId}`)
    await drain.click()
    await page.getByText('1 other node can take them').waitFor()
    expect(await page.getByRole('button', { name: 'Drain the node' }).isDisabled()).toBe(true)
    // The confirmation is opened, and then cancelled.
    await sure.check()
    await page.keyboard.press('Escape')
    await drain.click()
    expect(await sure.isChecked()).toBe(false)
    await sure.check()
    await page.getByRole('button', { name: 'Drain the node' }).click()
    await page
      .getByRole('heading', { name: new RegExp(`^${owner.nodeId} (is draining|has drained)`) })
      .waitFor()
    await page.getByRole('heading', { name: `${owner.nodeId} has drained and ended` }).waitFor()
    expect(await page.locator('#status').textContent()).toBe('ended')
    await page.getByRole('link', { name: other.nodeId }).last().click()
    await page.locator('#problems', { hasText: `${owner.nodeId} has ended or died` }).waitFor()
    await openRoom(page, ROOM)
    await page.getByText(/^This node took the room over/).waitFor()
    expect(complaints).toEqual([])
  })
})
