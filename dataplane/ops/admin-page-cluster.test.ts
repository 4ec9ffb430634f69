import { once } from 'node:events'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { focused, openAdmin, openRoom, unlock } from '../../test/support/admin/admin-page.ts'
import { launchChromium } from '../../test/support/chromium.ts'
import { type Login, TestCluster } from '../../test/support/cluster.ts'
import type { LocalNode } from '../../test/support/cluster-node.ts'

const ROOM = 'ledger-journal:one'

describe('the admin page of a node among others', () => {
  let browser: Browser
  let cluster: TestCluster
  let login: Login
  let owner: LocalNode
  let other: LocalNode
  let page: Page
  let complaints: readonly string[]

  beforeAll(async () => {
    cluster = await TestCluster.start()
    browser = await launchChromium()
    login = await cluster.login()
  })

  afterAll(async () => {
    await browser.close()
    await cluster.close()
  })

  /** Two nodes with a room, and the page of the one that has it, or of the other. */
  const start = async (whose: 'owner' | 'other', drain_seconds = 1) => {
    const [one, two] = (await cluster.local(2, { drain_seconds })) as [LocalNode, LocalNode]
    await cluster.playersAt(login, ROOM, [one, two])
    ;[owner, other] = (await cluster.ownerFirst(login, ROOM, [one, two])) as [LocalNode, LocalNode]
    if (whose === 'owner') await open(owner)
    else await open(other)
  }

  afterEach(async () => {
    await page.context().close()
    await cluster.reset()
  })

  const open = async (node: LocalNode) => {
    const opened = await openAdmin(browser, node.admin_url, { token: cluster.internal_token })
    page = opened.page
    complaints = opened.complaints
  }

  /** A client that does not go elsewhere when it is told to. */
  const sessionThatStays = async ({ ws_url }: LocalNode): Promise<WebSocket> => {
    const socket = new WebSocket(ws_url, 'roomful.v1.json')
    await once(socket, 'open')
    socket.send(JSON.stringify({ t: 'hello', ...login }))
    await once(socket, 'message')
    return socket
  }

  it('lists every node, the own one first, and leads to the others', async () => {
    await start('owner')
    const rows = page.locator('#nodes tbody tr')
    await expect.poll(() => rows.count()).toBe(2)
    const texts = await rows.allTextContents()
    expect(texts[0]).toMatch(new RegExp(`^${owner.node_id}this nodeserving`))
    expect(texts[1]).toMatch(new RegExp(`^${other.node_id}serving`))
    // By its rooms, the own one is first, or last.
    const by_rooms = page.locator('#nodes').getByRole('button', { name: 'Rooms' })
    const first = () => rows.first().locator('.name').textContent()
    await by_rooms.click()
    expect(await first()).toBe(owner.node_id)
    await by_rooms.click()
    expect(await first()).toBe(other.node_id)
    expect(await page.getByRole('link', { name: other.node_id }).getAttribute('href')).toBe(
      `${other.admin_url}/admin`,
    )
    await other.drain()
    await page.locator('#nodes tbody tr', { hasText: /gone/ }).waitFor()
  })

  it('finds a room that another node has, and leads to it there', async () => {
    await start('other')
    await page.getByLabel('Search').fill(ROOM)
    await page.getByText('No room here matches.').waitFor()
    await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
    await page.getByText(`This room is at ${owner.node_id}.`).waitFor()
    await page.getByRole('link', { name: `Open it at ${owner.node_id}` }).click()
    await unlock(page, cluster.internal_token)
    await page.getByRole('tree').waitFor()
    expect(page.url()).toBe(
      `${owner.admin_url}/admin#room=${encodeURIComponent(`${login.project_id}/${ROOM}`)}`,
    )
    expect(await page.locator('#members li').allTextContents()).toEqual(
      expect.arrayContaining([
        expect.stringContaining(`at ${owner.node_id}`),
        expect.stringContaining(`at ${other.node_id}`),
      ]),
    )
    expect(complaints).toEqual([])
  })

  it('finds what other nodes have by a part of its name or of who is in it, and says who did not answer', async () => {
    await start('other')
    const search = page.getByLabel('Search')
    const found = page.locator('#found-list li')
    await search.fill('R-JOURNAL:o')
    await search.press('Enter')
    await expect
      .poll(() => found.allTextContents())
      .toEqual([
        expect.stringMatching(new RegExp(`^${ROOM}${login.project_id}, \\d+ members, at ${owner.node_id}$`)),
        expect.stringMatching(/^ses_/),
        expect.stringMatching(/^ses_/),
      ])
    await page.getByText('1 room and 2 sessions.').waitFor()
    await found.first().getByRole('button', { name: ROOM }).click()
    await page.getByText(`This room is at ${owner.node_id}.`).waitFor()
    await page.keyboard.press('Escape')
    expect(await focused(page)).toBe(ROOM)

    // A member whose session the other node holds.
    const session = (await found.nth(1).textContent())!.slice(0, 20)
    await search.fill(session)
    expect(await page.locator('#found').isVisible()).toBe(false)
    await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
    await page.getByText('1 room and 1 session.').waitFor()

    await search.fill('of that name there is nothing')
    await search.press('Enter')
    await page.getByText('Nothing matches.').waitFor()
    await page.route('**/admin/search*', async (route) => {
      const response = await route.fetch()
      const answer = await response.json()
      await route.fulfill({ json: { ...answer, found: { rooms: 70, sessions: 0 }, silent: ['node_deaf'] } })
    })
    await search.fill('o')
    await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
    await page
      .getByText('The first 1 of 70 rooms. More letters find fewer. No answer from node_deaf')
      .waitFor()
    expect(complaints).toEqual([])
  })

  it('drains nothing unless that is confirmed', async () => {
    await start('owner')
    const drain = page.getByRole('button', { name: 'Drain…' })
    const now = page.getByRole('button', { name: 'Drain the node' })
    await drain.click()
    await page.getByRole('dialog', { name: `Drain ${owner.node_id}?` }).waitFor()
    await page.getByText('1 other node can take them').waitFor()
    expect(await now.isDisabled()).toBe(true)
    await page.getByRole('button', { name: 'Cancel' }).click()
    // With the confirmation given, and then thought better of.
    await drain.click()
    await page.getByLabel(`Yes, drain ${owner.node_id}`).check()
    await page.keyboard.press('Escape')
    await drain.click()
    expect(await page.getByLabel(`Yes, drain ${owner.node_id}`).isChecked()).toBe(false)
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor({ state: 'hidden' })
    const runtime = await (
      await fetch(`${owner.admin_url}/admin/runtime`, {
        headers: { 'x-service-internal-token': cluster.internal_token },
      })
    ).json()
    expect(runtime.node.draining).toBe(false)
  })

  it('drains when told to with the keyboard, shows how it goes, and where to go on', async () => {
    await start('owner', 8)
    const deaf = await sessionThatStays(owner)
    const { keyboard } = page
    await page.getByRole('button', { name: 'Drain…' }).focus()
    await keyboard.press('Enter')
    expect(await focused(page)).toBe('Cancel')
    await keyboard.press('Shift+Tab')
    await keyboard.press('Space')
    await keyboard.press('Tab')
    await keyboard.press('Tab')
    expect(await focused(page)).toBe('drain-now')
    await keyboard.press('Enter')
    await page.getByRole('heading', { name: `${owner.node_id} is draining` }).waitFor()
    await page.getByText('1 of 1 room moved').waitFor()
    await page.getByText(/[01] of 2 sessions moved/).waitFor()
    deaf.close()
    await page.getByRole('heading', { name: `${owner.node_id} has drained and ended` }).waitFor()
    await page.getByText(/When it last answered, at .*, it still had/).waitFor()
    expect(await page.locator('#status').textContent()).toBe('ended')
    await page.getByRole('link', { name: other.node_id }).last().click()
    await unlock(page, cluster.internal_token)
    await openRoom(page, ROOM)
    // Its members came while the other node had it; whoever comes now has a time.
    await page.getByText(/^This node took the room over at \d\d:\d\d:\d\d\./).waitFor()
    expect(await page.locator('#events .taken ~ li .when').allTextContents()).toContain('earlier')
    await expect.poll(() => page.locator('#room-here li.connected').count()).toBe(2)
  })

  it('warns when no other node can take the rooms', async () => {
    await start('owner')
    await page.getByRole('button', { name: 'Drain…' }).click()
    await page.getByText('1 other node can take them').waitFor()
    // While somebody thinks it over.
    await other.drain()
    await page.getByText(/No other node can take them/).waitFor()
  })
})
