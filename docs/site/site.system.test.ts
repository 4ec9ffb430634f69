import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import axe from 'axe-core'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { launchChromium } from '../../test/support/chromium.ts'
import { ROOT } from '../../test/support/pages.ts'

/** Tests of the site that `npm run site` builds: its links, its reference and its accessibility. */

const DIST = join(ROOT, 'docs/site/dist')
const TYPES: Readonly<Record<string, string>> = { js: 'text/javascript', css: 'text/css', html: 'text/html' }
/** One short page of each kind, because the check of a long one takes ten seconds. */
const PAGES = ['/', '/guides/hidden-information', '/api/roomful/client/motion']
/** All rules are checked on a phone. A desktop with the other colours adds only these. */
const DESKTOP_RULES = ['color-contrast']

let browser: Browser
let server: Server
let address = ''

beforeAll(async () => {
  const built = spawnSync('npm', ['run', '--silent', 'site'], { cwd: ROOT, encoding: 'utf8' })
  expect(built.status, built.stdout + built.stderr).toBe(0)
  server = createServer(async (request, response) => {
    const path = new URL(request.url!, 'http://site').pathname.replace(/\/$/, '/index.html')
    const file = [join(DIST, `${path}.html`), join(DIST, path)].find((each) => existsSync(each)) ?? ''
    const body = await readFile(file).catch(() => undefined)
    response.writeHead(body ? 200 : 404, { 'content-type': TYPES[file.split('.').pop()!] ?? 'image/svg+xml' })
    response.end(body)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  browser = await launchChromium()
}, 600_000)

afterAll(async () => {
  await browser?.close()
  server?.close()
})

/** Returns the serious and critical findings of axe-core, with the elements. */
async function seriousFindings(page: Page, rules?: string[]): Promise<string[]> {
  await page.addScriptTag({ content: axe.source })
  const options = { resultTypes: ['violations' as const], ...(rules && { runOnly: rules }) }
  const { violations } = await page.evaluate(
    (options) => (globalThis as unknown as { axe: typeof axe }).axe.run(document, options),
    options,
  )
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`))
}

it.each([
  ['light', 360, undefined],
  ['dark', 1280, DESKTOP_RULES],
] as const)('can be read by everyone, %s and %i pixels wide', async (colorScheme, width, rules) => {
  const page = await browser.newPage({
    colorScheme,
    viewport: { width, height: 780 },
    reducedMotion: 'reduce',
  })
  for (const path of PAGES) {
    await page.goto(address + path, { waitUntil: 'networkidle' })
    expect.soft(await seriousFindings(page, rules), path).toEqual([])
    expect.soft(await page.evaluate(() => document.documentElement.scrollWidth), path).toBe(width)
  }
  await page.close()
})

it('has every anchor that its pages link to', async () => {
  const pages = (await readdir(DIST, { recursive: true })).filter((name) => name.endsWith('.html'))
  const text = new Map<string, string>(
    await Promise.all(
      pages.map(async (name) => [`/${name}`, await readFile(join(DIST, name), 'utf8')] as const),
    ),
  )
  const missing = [...text].flatMap(([name, html]) =>
    [...html.matchAll(/href="([^":#]*)#([^"]+)"/g)]
      .filter(([, path, anchor]) => {
        const target = path ? path.replace(/\/$/, '/index').concat('.html') : name
        return !text.get(target)?.includes(`id="${decodeURIComponent(anchor!)}"`)
      })
      .map(([link]) => `${name}: ${link}`),
  )
  expect(missing).toEqual([])
})

it('finds pages by their text', async () => {
  const page = await browser.newPage()
  await page.goto(address, { waitUntil: 'networkidle' })
  await page.getByRole('button', { name: 'Search' }).click()
  await page.locator('#localsearch-input').fill('reconnectSeconds')
  await page.locator('.VPLocalSearchBox .result').first().click()
  await expect.poll(() => page.locator('main').innerText()).toContain('reconnectSeconds')
  await page.close()
})
