import { mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { type Client, connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openAdmin, openRoom } from '../../test/support/admin/admin-page.ts'
import { board } from '../../test/support/admin/board-room.ts'
import { faintTexts } from '../../test/support/admin/contrast.ts'
import { launchChromium } from '../../test/support/chromium.ts'
import { startService, type TestService } from '../../test/support/service.ts'

const LONG = 'a-name-as-long-as-they-get-with-no-place-to-break-it-anywhere'
/** Where the pictures go that people look at. */
const PICTURES = join(tmpdir(), 'roomful-admin-page')

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
    await page.getByText('2 rooms and 2 sessions.').waitFor()
  },
  dialog: async (page) => {
    await page.getByLabel('Search').fill('')
    await page.getByRole('button', { name: 'Drain…' }).click()
    await page.getByRole('dialog').waitFor()
  },
  room: async (page) => {
    await page.keyboard.press('Escape')
    await page.getByRole('tab', { name: 'Rooms' }).click()
    await openRoom(page, `board:${LONG}`)
    await page.getByRole('treeitem', { name: 'turn' }).waitFor()
  },
  nowhere: async (page) => {
    await page.goto(`${page.url().split('#')[0]}#room=prj_of_nobody%2Fboard%3Anowhere`)
    await page.getByText('There is no such room').waitFor()
  },
  stale: async (page) => {
    await page.keyboard.press('Escape')
    await page.route('**/admin/**', (route) => route.abort())
    await page.getByText('The node does not answer').waitFor()
  },
}

describe('the looks of the admin page', () => {
  let browser: Browser
  let service: TestService
  const clients: Client[] = []

  beforeAll(async () => {
    mkdirSync(PICTURES, { recursive: true })
    service = await startService({ rooms: [board], node: { node_id: `node_${'x'.repeat(40)}` } })
    browser = await launchChromium()
    const { project_id, token } = await service.login({ sub: LONG })
    for (const key of ['short', LONG]) {
      const client = await connect(service.ws_url, { projectId: project_id, token })
      clients.push(client)
      const room = await client.join<typeof board>('board', { key })
      await room.send('shout', { name: LONG, data: LONG.repeat(5) })
      await room.send('put', { key: LONG, value: LONG.repeat(5) })
    }
  })

  afterAll(async () => {
    for (const client of clients) client.close()
    await browser.close()
    await service.close()
  })

  const views = async (
    name: string,
    options: Parameters<typeof openAdmin>[2],
    look: (page: Page, view: string) => Promise<void>,
  ) => {
    const { page } = await openAdmin(browser, service.admin_url, {
      ...options,
      token: service.internal_token,
    })
    for (const [view, go] of Object.entries(VIEWS)) {
      await go(page)
      await look(page, view)
      await page.screenshot({ path: join(PICTURES, `${view}-${name}.png`) })
    }
    await page.context().close()
  }

  it.each(['light', 'dark'] as const)(
    'can be read in %s: contrasts of 4.5 and above',
    async (colorScheme) => {
      await views(colorScheme, { colorScheme }, async (page, view) => {
        expect({ view, faint: await faintTexts(page) }).toEqual({ view, faint: [] })
      })
    },
  )

  it('fits a phone, without scrolling sideways', async () => {
    const width = 390
    await views('phone', { viewport: { width, height: 844 }, hasTouch: true }, async (page, view) => {
      const wide = await page.evaluate(
        (width) => [
          document.documentElement.scrollWidth,
          ...[...document.querySelectorAll('main *, header *, dialog[open] *')]
            .filter((element) => element.checkVisibility() && !element.closest('svg, .unseen'))
            .filter((element) => element.getBoundingClientRect().right > width + 0.5)
            .map((element) => element.id || element.textContent?.slice(0, 40)),
        ],
        width,
      )
      expect({ view, wide }).toEqual({ view, wide: [width] })
      // A room covers the rest, which must not be reached behind it.
      expect(await page.locator('#overview[inert]').count()).toBe(
        view === 'room' || view === 'nowhere' ? 1 : 0,
      )
    })
  })

  it('moves nothing for whoever wants no motion', async () => {
    await views('still', { reducedMotion: 'reduce' }, async (page, view) => {
      const moving = await page.evaluate(() =>
        [...document.querySelectorAll('*')]
          .filter((element) => !/^(0s(, )?)+$/.test(getComputedStyle(element).transitionDuration))
          .map((element) => element.className),
      )
      expect({ view, moving }).toEqual({ view, moving: [] })
    })
  })
})
