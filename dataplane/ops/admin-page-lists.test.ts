import type { Browser, Locator, Page } from 'playwright-core'
import { type Client, connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { focused, openAdmin } from '../../test/support/admin/admin-page.ts'
import { board } from '../../test/support/admin/board-room.ts'
import { launchChromium } from '../../test/support/chromium.ts'
import { startService, type TestService } from '../../test/support/service.ts'

/** More rooms than the page lists at first. */
const ROOMS = 60
const nameOf = (n: number): string => `board:lobby-${String(n).padStart(2, '0')}`
const LAST = nameOf(ROOMS - 1)

describe('the lists of the admin page', () => {
  let browser: Browser
  let service: TestService
  let ada: Client
  let bob: Client

  beforeAll(async () => {
    service = await startService({
      rooms: [board],
      node: { node_id: 'node_one', max_rooms_per_session: ROOMS, joins_per_second: 1000 },
    })
    browser = await launchChromium()
    const { project_id, token } = await service.login({ sub: 'ada' })
    const { token: other } = await service.call('POST', '/tokens', { project_id, sub: 'bob' })
    ada = await connect(service.ws_url, { projectId: project_id, token })
    bob = await connect(service.ws_url, { projectId: project_id, token: other! })
    for (let n = 0; n < ROOMS; n++) await ada.join('board', { key: nameOf(n).slice(6) })
    await bob.join('board', { key: LAST.slice(6) })
  })

  afterAll(async () => {
    ada.close()
    bob.close()
    await browser.close()
    await service.close()
  })

  const open = async (options: object = {}): Promise<Page> =>
    (await openAdmin(browser, service.admin_url, { token: service.internal_token, ...options })).page

  const heading = (page: Page, name: string): Locator =>
    page.getByRole('table', { name: 'Rooms' }).getByRole('columnheader', { name, exact: true })
  const rooms = (page: Page): Promise<string[]> => page.locator('#rooms tbody .open').allTextContents()
  const first = async (page: Page): Promise<string | undefined> => (await rooms(page))[0]

  it('are sorted by any heading, over all there are, and stay so in this tab', async () => {
    const page = await open()
    // Where most is going on comes first, though it is the youngest of more than are listed.
    await expect.poll(() => first(page)).toBe(LAST)
    expect(await heading(page, 'Members').getAttribute('aria-sort')).toBe('descending')
    expect(await page.locator('#rooms [aria-sort]').count()).toBe(1)

    await page.getByRole('button', { name: 'Room', exact: true }).click()
    await expect.poll(() => rooms(page)).toEqual(Array.from({ length: 50 }, (_, n) => nameOf(n)))
    expect(await heading(page, 'Room').getAttribute('aria-sort')).toBe('ascending')
    await page.getByRole('button', { name: 'Room', exact: true }).press('Enter')
    await expect.poll(() => first(page)).toBe(LAST)
    expect(await heading(page, 'Room').getAttribute('aria-sort')).toBe('descending')
    expect(await heading(page, 'Members').getAttribute('aria-sort')).toBe(null)
    expect(await page.locator('#announcer').textContent()).toBe('Sorted by Room, descending')

    await page.reload()
    await expect.poll(() => first(page)).toBe(LAST)
    await expect.poll(async () => (await rooms(page))[1]).toBe(nameOf(ROOMS - 2))
    expect(await heading(page, 'Room').getAttribute('aria-sort')).toBe('descending')
    const other = await open()
    expect(await heading(other, 'Members').getAttribute('aria-sort')).toBe('descending')
    await other.context().close()
    await page.context().close()
  })

  it('of sessions begin with who came last, and say how long ago that was', async () => {
    const page = await open()
    await page.getByRole('tab', { name: 'Sessions' }).click()
    const players = page.locator('#sessions td[data-label="Player"]')
    await expect.poll(() => players.allTextContents()).toEqual(['bob', 'ada'])
    const connected = page
      .getByRole('table', { name: 'Sessions' })
      .getByRole('columnheader', { name: 'Connected' })
    expect(await connected.getAttribute('aria-sort')).toBe('ascending')
    await connected.getByRole('button').click()
    await expect.poll(() => players.allTextContents()).toEqual(['ada', 'bob'])
    await page.context().close()
  })

  it('move no row from under whoever is among them, and tell so', async () => {
    const page = await open()
    await expect.poll(() => first(page)).toBe(LAST)
    await page.mouse.move(0, 0)
    await page.getByRole('button', { name: nameOf(3) }).focus()
    const before = await rooms(page)
    const room = await bob.join('board', { key: nameOf(7).slice(6) })
    const row = page.locator('#rooms tbody tr', { hasText: nameOf(7) })
    await expect.poll(() => row.locator('[data-label="Members"]').textContent()).toBe('2')
    expect(await rooms(page)).toEqual(before)
    expect(await focused(page)).toBe(nameOf(3))
    await page.getByText('no row moves while you are among them').waitFor()
    await page.getByLabel('Search').focus()
    await expect.poll(async () => (await rooms(page)).slice(0, 3)).toEqual([nameOf(7), LAST, nameOf(0)])

    // With the mouse as well.
    await page.locator('#rooms tbody tr').nth(5).hover()
    await room.leave()
    await expect.poll(() => row.locator('[data-label="Members"]').textContent()).toBe('1')
    expect(await first(page)).toBe(nameOf(7))
    await page.mouse.move(0, 0)
    await expect.poll(() => first(page)).toBe(LAST)
    await page.context().close()
  })

  it('can be sorted on a phone, and are tables there for who hears them', async () => {
    const page = await open({ viewport: { width: 390, height: 844 }, hasTouch: true })
    await page.getByRole('button', { name: 'Room', exact: true }).tap()
    await expect.poll(() => first(page)).toBe(nameOf(0))
    // What a screen reader is told, of which the layout is a part.
    const reader = await page.context().newCDPSession(page)
    const { nodes } = await reader.send('Accessibility.getFullAXTree')
    const heard = (role: string) => nodes.filter((node) => node.role?.value === role && !node.ignored).length
    expect([heard('table'), heard('row'), heard('columnheader')]).toEqual([2, 1 + 1 + 50, 5])
    await page.context().close()
  })

  it('tell ages by the clock of the node, and that this machine’s is another', async () => {
    const page = await open()
    await page.clock.install({ time: Date.now() - 3 * 3600_000 })
    await page.reload()
    await page.getByText('this browser’s clock is 3 h 0 min behind the node’s').waitFor()
    expect(await page.locator('#about').textContent()).toMatch(/up \d+ (s|min);/)
    await page.clock.setSystemTime(Date.now())
    await page.clock.runFor(2000)
    await expect.poll(() => page.locator('#about').textContent()).toMatch(/up \d+ (s|min)$/)
    await page.context().close()
  })

  it('give way to the question for the token when that is no longer the right one, whatever is open', async () => {
    const page = await open()
    await page.getByRole('button', { name: 'Drain…' }).click()
    await page.getByRole('dialog').waitFor()
    await page.route('**/admin/runtime*', (route) => route.fulfill({ status: 401, json: { detail: 'no' } }))
    await page.getByText('does not accept this token').waitFor()
    expect(await page.getByRole('dialog').count()).toBe(0)
    expect(await focused(page)).toBe('token')
    expect(await page.evaluate(() => sessionStorage.getItem('roomful.internal_token'))).toBe(null)
    await page.context().close()
  })
})
