import type { Browser } from 'playwright-core'
import { type Client, connect, type Room } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { focused, openAdmin, openRoom, unlock } from '../../test/support/admin/admin-page.ts'
import { board } from '../../test/support/admin/board-room.ts'
import { launchChromium } from '../../test/support/chromium.ts'
import { startService, type TestService } from '../../test/support/service.ts'

const HOSTILE = '<img src=x onerror=alert(1)>'

describe('the admin page', () => {
  let browser: Browser
  let service: TestService
  let project_id: string
  const clients: Client[] = []
  let ada: Room<typeof board>

  beforeAll(async () => {
    const node = { node_id: 'node_one', admin_url: 'http://node-one.internal:9100' }
    service = await startService({ rooms: [board], node })
    browser = await launchChromium()
    const login = await service.login({ sub: HOSTILE })
    project_id = login.project_id
    const join = async (token: string, key: string) => {
      const client = await connect(service.ws_url, { projectId: project_id, token })
      clients.push(client)
      return client.join<typeof board>('board', { key })
    }
    ada = await join(login.token, 'alpha')
    const { token } = await service.call('POST', '/tokens', { project_id, sub: 'bobby' })
    await join(token!, 'beta')
    await join(login.token, HOSTILE)
  })

  afterAll(async () => {
    for (const client of clients) client.close()
    await browser.close()
    await service.close()
  })

  const open = (path = '') => openAdmin(browser, service.admin_url, { token: service.internal_token, path })

  it('asks for the token once, and keeps it for its tab only', async () => {
    const { page, complaints, origins } = await openAdmin(browser, service.admin_url)
    await page.getByLabel('Token').fill('not the token')
    await page.getByRole('button', { name: 'Show the node' }).click()
    await page.getByText('does not accept this token').waitFor()
    await unlock(page, service.internal_token)
    await page.reload()
    await page.getByText('serving').first().waitFor()
    expect(await page.evaluate(() => localStorage.length + document.cookie.length)).toBe(0)

    const other = await page.context().newPage()
    await other.goto(`${service.admin_url}/admin`)
    await other.getByLabel('Token').waitFor()

    await page.getByRole('button', { name: 'Forget token' }).click()
    await page.getByLabel('Token').waitFor()
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
    expect(complaints).toEqual([])
    expect([...origins]).toEqual([service.admin_url])
    await page.context().close()
  })

  it('shows the node live', async () => {
    const { page } = await open()
    expect(await page.locator('#node-id').textContent()).toBe('node_one')
    expect(await page.locator('#rooms-total').textContent()).toBe('3')
    expect(await page.locator('#members-total').textContent()).toBe('3')
    expect(await page.locator('#nodes tbody tr').allTextContents()).toEqual([
      expect.stringMatching(/^node_onethis nodeserving/),
    ])
    const { token } = await service.call('POST', '/tokens', { project_id })
    const late = await connect(service.ws_url, { projectId: project_id, token: token! })
    await late.join('board', { key: 'gamma' })
    await page.getByRole('button', { name: 'board:gamma' }).waitFor()
    late.close()
    await page.context().close()
  })

  it('tells the other nodes the address that operators have of it', async () => {
    const response = await fetch(`${service.admin_url}/admin/cluster`, {
      headers: { 'x-service-internal-token': service.internal_token },
    })
    const { nodes } = await response.json()
    expect(nodes).toMatchObject([
      { node_id: 'node_one', self: true, alive: true, admin_url: 'http://node-one.internal:9100' },
    ])
  })

  it('searches rooms and sessions by their names, ids and players', async () => {
    const { page } = await open()
    const listed = (id: string) => page.locator(`#${id} tbody tr`)
    await page.getByLabel('Search').fill('bobby')
    await expect.poll(() => listed('rooms').count()).toBe(1)
    expect(await listed('rooms').textContent()).toContain('board:beta')
    await page.getByRole('tab', { name: 'Sessions' }).click()
    expect(await listed('sessions').allTextContents()).toEqual([expect.stringContaining('bobby')])
    await page.getByRole('button', { name: 'board:beta' }).click()
    await page.getByRole('heading', { name: 'board:beta' }).waitFor()
    await page.getByLabel('Search').fill('nobody of that name')
    await page.getByText('No session here matches.').waitFor()
    await page.context().close()
  })

  it('shows a room: members, state, what changes in it, and its last events', async () => {
    const { page } = await open()
    await openRoom(page, 'board:alpha')
    expect(new URL(page.url()).hash).toBe(`#room=${encodeURIComponent(`${project_id}/board:alpha`)}`)
    const row = (name: string) => page.getByRole('treeitem', { name })
    await row('turn 0').waitFor()
    expect(await page.locator('#members li').allTextContents()).toEqual([
      expect.stringMatching(/ses_\S+ at node_one$/),
    ])
    await row('players').click()
    expect(await row('hp').count()).toBe(0)

    // A mark stays until the next answer, which may be sooner than a busy machine looks.
    await page.locator('#state').evaluate((tree) => {
      const marked: string[] = []
      Reflect.set(window, 'marked', marked)
      new MutationObserver((changes) => {
        for (const { target } of changes)
          if (target instanceof Element && target.classList.contains('changed'))
            marked.push(target.querySelector('.key')?.textContent ?? '')
      }).observe(tree, { subtree: true, attributeFilter: ['class'] })
    })
    const marked = () => page.evaluate(() => Reflect.get(window, 'marked'))
    await ada.send('put', { key: 'turn', value: 1 })
    await row('turn 1').waitFor()
    await expect.poll(marked).toEqual(['turn'])
    // What was folded stays so, and says that something in it has changed.
    await ada.send('put', { key: 'players', value: { ada: { hp: 8, at: [1, 2] } } })
    await expect.poll(marked).toEqual(['turn', 'players'])
    expect(await row('hp').count()).toBe(0)

    await ada.send('shout', { name: 'goal', data: { by: 'ada' } })
    await page.locator('#events li', { hasText: 'goal' }).waitFor()
    expect(await page.locator('#events li').first().textContent()).toMatch(/seq \d+goal\{"by":"ada"\}$/)
    await page.context().close()
  })

  it('opens the room that its address names', async () => {
    const { page } = await open(`#room=${encodeURIComponent(`${project_id}/board:beta`)}`)
    await page.getByRole('heading', { name: 'board:beta' }).waitFor()
    await page.getByRole('tree').waitFor()
    await page.getByRole('button', { name: 'Close' }).click()
    expect(new URL(page.url()).hash).toBe('')
    expect(await page.getByRole('complementary').count()).toBe(0)
    await page.context().close()
  })

  it('takes nothing that players choose for markup', async () => {
    const { page, complaints } = await open()
    await ada.send('put', { key: HOSTILE, value: { [HOSTILE]: HOSTILE } })
    await ada.send('shout', { name: HOSTILE, data: HOSTILE })
    await openRoom(page, 'board:alpha')
    for (const where of ['#state', '#events', '#members'])
      await page.locator(where, { hasText: HOSTILE }).waitFor()
    await openRoom(page, `board:${HOSTILE}`)
    await page.getByRole('tab', { name: 'Sessions' }).click()
    await page.locator('#sessions', { hasText: HOSTILE }).waitFor()
    await page.getByLabel('Search').fill(HOSTILE)
    await page.getByRole('button', { name: 'Look in the whole cluster' }).click()
    await page.locator('#found-list', { hasText: HOSTILE }).waitFor()
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
    await page.context().close()
  })

  it('can be used without a mouse', async () => {
    const { page } = await openAdmin(browser, service.admin_url)
    const { keyboard } = page
    expect(await focused(page)).toBe('token')
    await keyboard.type(service.internal_token)
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
    await ada.send('put', { key: 'turn', value: 77 })
    await page.getByRole('treeitem', { name: 'turn 77' }).waitFor()
    expect(await focused(page)).toMatch(/^state/)

    await keyboard.press('Escape')
    expect(await focused(page)).toBe('board:alpha')
    await keyboard.press('/')
    await keyboard.press('Escape')
    await expect.poll(() => page.locator('#rooms .open').count()).toBeGreaterThan(2)
    await page.getByRole('button', { name: 'board:alpha' }).focus()
    await keyboard.press('ArrowDown')
    expect(await focused(page)).toBe('board:beta')
    await page.getByRole('tab', { name: 'Rooms' }).focus()
    await keyboard.press('ArrowRight')
    expect(await focused(page)).toBe('sessions-tab')
    await page.locator('#sessions tbody tr').first().waitFor()
    await page.context().close()
  })

  it('stays quick with a state of a megabyte', async () => {
    await ada.send('fill', null)
    const { page } = await open()
    await openRoom(page, 'board:alpha')
    const numbers = page.getByRole('treeitem', { name: 'numbers' })
    await numbers.click()
    await page.getByRole('treeitem', { name: '49,900 more' }).click()
    expect(await page.getByRole('treeitem').count()).toBeLessThan(300)
    const longest_ms = await page.evaluate(async () => {
      let longest = 0
      const end = performance.now() + 2500
      for (let last = performance.now(); last < end; ) {
        await new Promise((resolve) => setTimeout(resolve, 5))
        longest = Math.max(longest, performance.now() - last)
        last = performance.now()
      }
      return longest
    })
    // All rows at once take many seconds.
    expect(longest_ms).toBeLessThan(1000)
    await page.context().close()
  })

  it('asks nothing while its tab is hidden', async () => {
    const { page } = await open()
    await page.clock.install()
    await page.reload()
    await page.locator('#status', { hasText: 'serving' }).waitFor()
    let asked = 0
    page.on('request', () => asked++)
    const hide = (hidden: boolean) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })
        document.dispatchEvent(new Event('visibilitychange'))
      }, hidden)
    await page.clock.runFor(3000)
    await expect.poll(() => asked).toBeGreaterThan(0)
    await hide(true)
    asked = 0
    await page.clock.runFor(60_000)
    expect(asked).toBe(0)
    await hide(false)
    await expect.poll(() => asked).toBeGreaterThan(0)
    await page.context().close()
  })
})

it('says that what it shows is old when the node no longer answers, and goes on when it does', async () => {
  const browser = await launchChromium()
  const service = await startService({ rooms: [board] })
  const { page } = await openAdmin(browser, service.admin_url, { token: service.internal_token })
  await page.route('**/admin/**', (route) => route.abort())
  await page.getByText(/The node does not answer\. What you see is from .* Trying again\./).waitFor()
  expect(await page.locator('#status').textContent()).toBe('no answer')
  await page.unroute('**/admin/**')
  await page.locator('#status', { hasText: 'serving' }).waitFor()
  expect(await page.locator('#banner').isVisible()).toBe(false)
  await browser.close()
  await service.close()
})
