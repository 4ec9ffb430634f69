import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { launchChromium } from '../../test/support/chromium.ts'
import { madeUpResult, type Wish } from '../../test/support/load-run.ts'
import { newFolder } from '../../test/support/run-folder.ts'
import { judge, parseLimits, succeeded } from '../limits.ts'
import type { RunResult } from '../result.ts'
import { writeReports } from './folder.ts'

const HOSTILE =
  '</script><script>window.broken = 1</script><img src=http://127.0.0.1:9/x onerror="window.broken = 2">\'"&\u2028\u0000'

function run(wish: Partial<Wish> = {}, limits: Record<string, string> = {}): RunResult {
  const result = madeUpResult({ seconds: 60, nodes: 3, clients: 600, ...wish }, new SeededRandom(3))
  const judged = { ...result, verdicts: judge(parseLimits(limits), result) }
  return { ...judged, passed: succeeded(judged) }
}

describe('the page of a report', () => {
  let browser: Browser
  let folder = ''
  let opened = 0
  const troubles: string[] = []

  beforeAll(async () => {
    folder = await newFolder()
    browser = await launchChromium()
  })

  afterAll(() => browser.close())

  /** Opens the report of a result as a file; everything it complains of or asks for goes to `troubles`. */
  async function open(result: RunResult, options: Parameters<Browser['newPage']>[0] = {}): Promise<Page> {
    troubles.length = 0
    const paths = await writeReports(result, join(folder, String(opened++)))
    const page = await browser.newPage(options)
    page.on('console', (message) => troubles.push(message.text()))
    page.on('pageerror', (error) => troubles.push(error.message))
    page.on('request', (request) => {
      if (!request.url().startsWith('data:') && !request.url().endsWith('report.html'))
        troubles.push(request.url())
    })
    await page.goto(pathToFileURL(paths.find((path) => path.endsWith('.html'))!).href)
    return page
  }
  const texts = (page: Page, selector: string) => page.locator(selector).allInnerTexts()
  const isTooWide = (page: Page) =>
    page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth)

  it('says first that a run has passed, and with what figures', async () => {
    const page = await open(run({}, { 'max-rtt-p99': '1s', 'max-errors': '0' }))
    expect(await page.title()).toBe('steady passed · roomful load test')
    expect(await texts(page, '.verdict')).toEqual([
      '✓ Passed\n\n4 promises kept, 2 limits held, no failures.',
    ])
    expect((await texts(page, '.tile'))[0]).toBe('Clients\n600\nonline at once')
    expect(await page.locator('.badge.good').count()).toBe(6)
    expect(troubles).toEqual([])
    await page.close()
  })

  it('says why a run has failed: what could not go on, what was broken, what failed', async () => {
    const { checks, totals } = run()
    const page = await open(
      run(
        {
          but: {
            failure: 'the service is gone',
            checks: checks.map((check, i) => ({
              ...check,
              violations: [3, 0, undefined, 0][i],
              examples: i === 0 ? ['room load-3: update 812 followed 810'] : [],
            })),
            failures: [{ code: 'connection_failed', count: 12, example: 'connection refused' }],
            totals: { ...totals, errors: 12 },
            bottleneck: ['a thread was up to 97% busy'],
          },
        },
        { 'max-rtt-p99': '10ms', 'max-pause-max': '2s' },
      ),
    )
    expect(await texts(page, '.verdict.failed li')).toEqual([
      'It could not go on: the service is gone',
      'sequence gaps: 3 violations',
      expect.stringMatching(/^--max-rtt-p99: .*\sms, above 10\sms$/),
      '--max-pause-max: nothing was measured',
      '12 failures: connection_failed × 12',
    ])
    expect(await texts(page, '.verdict.warned li')).toEqual(['a thread was up to 97% busy'])
    expect(await texts(page, '#checks .badge')).toEqual(['✗ broken', '✓ kept', '✓ kept', '– not checked'])
    expect(await page.locator('#checks pre').innerText()).toBe('room load-3: update 812 followed 810')
    expect(await texts(page, '#failures tbody tr')).toEqual(['connection_failed\tconnection refused\t12'])
    await page.close()
  })

  it('never shows an interrupted run as a full pass, and tells it from one that went wrong before', async () => {
    const stopped = { interrupted: true, seconds: 22.4, planned_seconds: 62 }
    const limits = { 'max-rtt-p99': '1s', 'min-online': '700' }
    const well = await open(run({ but: stopped }, limits))
    expect(await well.title()).toBe('steady interrupted · roomful load test')
    expect(await texts(well, '.verdict')).toEqual([
      expect.stringMatching(/^‖ Interrupted\n\nIt was interrupted after 0:22 of about 1:02\. Until then/),
    ])
    expect(await well.locator('.verdict progress').getAttribute('value')).toBe('0.361')
    expect(await texts(well, '#limits .badge')).toEqual(['✓ held so far', '– not reached'])
    expect(new Set(await texts(well, '#checks .badge'))).toEqual(new Set(['✓ kept so far']))
    expect(await well.locator('.badge.good').count()).toBe(0)
    expect((await texts(well, 'header .facts'))[0]).toContain('0:22 of 1:02 min')
    await well.close()
    const ill = await open(run({ but: stopped }, { 'max-rtt-p50': '0.1ms' }))
    expect(await texts(ill, '.verdict h2')).toEqual(['✗ Failed'])
    expect(await texts(ill, '.verdict p')).toEqual([
      'It was interrupted after 0:22 of about 1:02, and something had gone wrong before.',
    ])
    await ill.close()
  })

  it('shows the values of one moment in all charts, by pointer and by keys', async () => {
    const result = run()
    const page = await open(result)
    const charts = await page.locator('.charts figure').count()
    expect(await page.locator('canvas').count()).toBe(charts)
    const over = page.locator('.u-over').first()
    const { width } = (await over.boundingBox())!
    // The first second is 1, and the axis begins with it.
    await over.hover({ position: { x: (width * 40) / 59, y: 20 } })
    const moments = () => texts(page, '.u-legend tr:first-child .u-value')
    expect(new Set(await moments())).toEqual(new Set(['0:41']))
    const { rtt } = result.seconds_log[40]!.timings
    expect((await texts(page, '.u-legend'))[0]).toContain(`${rtt!.p50.toFixed(2)} ms`)
    await page.mouse.move(0, 0)

    await page.locator('[data-plot]').first().focus()
    await page.keyboard.press('End')
    await page.keyboard.press('ArrowLeft')
    expect(new Set(await moments())).toEqual(new Set(['0:59']))
    expect(troubles).toEqual([])
    await page.close()
  })

  it('lists what happened in the order of its numbers on the charts', async () => {
    const page = await open(run({}, { 'max-rtt-p99': '50ms', 'max-cpu': '90%' }))
    expect(await texts(page, '.incidents li')).toEqual([
      '0:33 node-2 was told to end',
      '0:37 node-2 serves again',
    ])
    expect(troubles).toEqual([])
    await page.close()
  })

  it('holds the values of each chart as a table', async () => {
    const result = run()
    const page = await open(result)
    await page.locator('figure summary').first().click()
    const rows = await page.locator('figure').first().locator('.scroll tbody tr').allInnerTexts()
    const { p50, p95 } = result.seconds_log[30]!.timings.rtt!
    expect(rows[30]).toMatch(`0:31\tplay\t${Number(p50.toPrecision(4))}\t${Number(p95.toPrecision(4))}`)
    expect(rows[0]).toBe('0:01\tconnect\t–\t–\t–\t–')
    await page.close()
  })

  it('lets nothing of what a service or a user wrote become part of the page', async () => {
    const { checks, totals, seconds_log: secondsLog } = run()
    const hostile = run({
      but: {
        scenario: HOSTILE,
        meaning: HOSTILE,
        target: HOSTILE,
        failure: HOSTILE,
        started_at: HOSTILE,
        options: { [HOSTILE]: HOSTILE },
        machine: { cores: 1, node: HOSTILE, roomful: HOSTILE },
        incidents: [{ at: 3, text: HOSTILE }],
        checks: checks.map((check) => ({
          ...check,
          name: HOSTILE,
          meaning: HOSTILE,
          violations: 1,
          note: HOSTILE,
          examples: [HOSTILE],
        })),
        failures: [{ code: HOSTILE, count: 1, example: HOSTILE }],
        figures: [{ name: HOSTILE, value: 1, unit: HOSTILE }],
        bottleneck: [HOSTILE],
        totals: { ...totals, errors: 1 },
        seconds_log: secondsLog.map((second) => ({
          ...second,
          phase: HOSTILE,
          servers: second.servers.map((server) => ({ ...server, name: `${HOSTILE}${server.name}` })),
        })),
      },
    })
    const page = await open(hostile)
    await page.locator('.u-over').first().hover()
    expect(await page.evaluate(() => 'broken' in window)).toBe(false)
    expect(await page.locator('img, main script').count()).toBe(0)
    expect(await page.locator('h1').innerText()).toContain('</script><script>')
    expect(troubles).toEqual([])

    const xml = await readFile(join(folder, String(opened - 1), 'junit.xml'), 'utf8')
    const read = await page.evaluate((text) => {
      const document = new DOMParser().parseFromString(text, 'application/xml')
      return {
        error: document.querySelector('parsererror')?.textContent,
        failures: document.querySelectorAll('testcase > failure').length,
        told: document.querySelector('testsuite')?.getAttribute('failures'),
      }
    }, xml)
    expect(read).toEqual({ error: undefined, failures: 6, told: '6' })
    await page.close()
  })

  it('loads nothing even when something is put into it', async () => {
    const page = await open(run())
    await page.evaluate(() => {
      const image = document.createElement('img')
      image.src = 'http://127.0.0.1:9/beacon'
      const script = document.createElement('script')
      script.textContent = 'window.broken = 1'
      document.body.append(image, script)
    })
    expect(await page.evaluate(() => 'broken' in window)).toBe(false)
    expect(troubles.filter((trouble) => trouble.includes('Content Security Policy'))).toHaveLength(2)
    await page.close()
  })

  it.each([
    ['no second at all', { seconds: 0, nodes: 0, clients: 0 }, 0],
    ['one second', { seconds: 1, nodes: 1, clients: 10 }, 13],
    ['an hour of twelve nodes', { seconds: 3600, nodes: 12, clients: 2000 }, 18],
  ] as const)('fits %s on a screen and on a phone', async (_, wish, charts) => {
    const page = await open(run(wish), { viewport: { width: 1280, height: 900 }, colorScheme: 'dark' })
    expect(await page.locator('canvas').count()).toBe(charts)
    expect(await isTooWide(page)).toBe(false)
    await page.setViewportSize({ width: 390, height: 900 })
    expect(await isTooWide(page)).toBe(false)
    expect(troubles).toEqual([])
    await page.close()
  })

  it('holds every value without any script', async () => {
    const page = await open(run(), { javaScriptEnabled: false })
    expect(await page.locator('.verdict').isVisible()).toBe(true)
    expect(await page.locator('figure .scroll tbody tr').count()).toBeGreaterThan(60)
    await page.close()
  })
})
