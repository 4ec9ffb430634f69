import { fileURLToPath } from 'node:url'
import { pino } from 'pino'
import { startDev } from '../../deploy/cli/dev.ts'
import { parseConfig } from '../../shared/config.ts'
import { launchChromium } from '../../test/support/chromium.ts'

/**
 * `npx tsx docs/site/picture.ts` plays the card game until one of three players has three cards and the turn. That is the picture of the
 * front page.
 */

const ports = { CONTROL_PORT: '0', WS_PORT: '0', ADMIN_PORT: '0', EXAMPLES_PORT: '0' }
const parsed = parseConfig('dev', ports)
if (!parsed.ok) throw new Error('this configuration should be valid')
const log = pino({ level: 'silent' })
const service = await startDev({ config: parsed.config, log, tell: () => undefined })
const browser = await launchChromium()
const sitDown = async () => {
  const page = await browser.newPage({ viewport: { width: 640, height: 560 }, deviceScaleFactor: 1.5 })
  await page.goto(`${service.addresses.games}/cards/?room=picture`)
  await page.locator('#deal').waitFor()
  return page
}
const first = await sitDown()
const pages = [first, await sitDown(), await sitDown()]
const hand = first.locator('#hand.mine:has(.playable) [data-card]')
/** Clicks the first of these that exists. */
const STEPS = ['#deal:enabled', '#hand.mine .playable:not([data-card^="8"])', '#deck:enabled', '#pass']
while ((await hand.count()) !== 3)
  for (const page of pages)
    for (const step of STEPS) {
      if ((await hand.count()) === 3 || !(await page.locator(step).count())) continue
      await page.locator(step).first().dispatchEvent('click')
      await page.waitForTimeout(200)
      break
    }
// No card has the focus, and the last animation has ended.
await first.mouse.click(1, 1)
await first.waitForTimeout(800)
const path = fileURLToPath(new URL('public/cards.jpg', import.meta.url))
await first.locator('main').screenshot({ path, type: 'jpeg', quality: 85 })
await browser.close()
await service.close()
