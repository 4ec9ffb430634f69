import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { launchChromium } from '../../test/support/chromium.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import type { RunResult } from '../result.ts'
import { hasPassed, judge, parseThresholds } from '../thresholds.ts'
import { madeUpResult, type Wish } from './made-up-result.ts'
import { writeReports } from './write.ts'

const HOSTILE =
  '</script><script>window.broken = 1</script><img src=http://127.0.0.1:9/x onerror="window.broken = 2">\'"&\u2028\u0000'

function run(wish: Partial<Wish> = {}, limits: Record<string, string> = {}): RunResult {
  const result = madeUpResult({ seconds: 60, nodes: 3, clients: 600, ...wish }, new SeededRandom(3))
  const judged = { ...result, verdicts: judge(parseThresholds(limits), result) }
  return { ...judged, passed: hasPassed(judged) }
}

describe('the page of a report', () => {
  let browser: Browser
  let folder = ''
  let opened = 0
  const troubles: string[] = []

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'roomful-report-'))
    browser = await launchChromium()
  })

  afterAll(async () => {
    await browser.close()
    await rm(folder, { recursive: true })
  })

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
      '✓\nPassed\n\n4 promises kept, 2 limits held, no failures.',
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
    expect(await texts(page, '#failures tbody tr')).toEqual(['connection_failed\t12\tconnection refused'])
    await page.close()
  })

  it('never shows an interrupted run as a full pass, and tells it from one that went wrong before', async () => {
    const stopped = { interrupted: true, seconds: 22.4, planned_seconds: 62 }
    const limits = { 'max-rtt-p99': '1s', 'min-online': '700' }
    const well = await open(run({ but: stopped }, limits))
    expect(await well.title()).toBe('steady interrupted · roomful load test')
    expect(await texts(well, '.verdict')).toEqual([
      expect.stringMatching(/^‖\nInterrupted\n\nIt was interrupted after 0:22 of about 1:02\. Until then/),
    ])
    expect(await well.locator('.verdict progress').getAttribute('value')).toBe('0.361')
    expect(await texts(well, '#limits .badge')).toEqual(['✓ held so far', '– not reached'])
    expect(new Set(await texts(well, '#checks .badge'))).toEqual(new Set(['✓ kept so far']))
    expect(await well.locator('.badge.good').count()).toBe(0)
    expect((await texts(well, 'header .facts'))[0]).toContain('0:22 of 1:02 min')
    await well.close()
    const ill = await open(run({ but: stopped }, { 'max-rtt-p50': '0.1ms' }))
    expect(await texts(ill, '.verdict h2')).toEqual(['Failed'])
    expect(await texts(ill, '.verdict p')).toEqual([
      'It was interrupted after 0:22 of about 1:02, and something had gone wrong before.',
    ])
    await ill.close()
  })

  it('draws every percentile within its chart, the higher the longer', async () => {
    const page = await open(run())
    const boxes = await page.locator('#chart-0').evaluate((figure) => {
      const plot = figure.querySelector('.reach')!.getBoundingClientRect()
      return {
        plot: [plot.top, plot.bottom],
        lines: [...figure.querySelectorAll('.series')].map((group) => {
          const { top, bottom, width } = group.getBoundingClientRect()
          return { name: group.classList[1]!, top, bottom, share: width / plot.width }
        }),
      }
    })
    const tops = ['max', 'p99', 'p95', 'p50'].map((name) => boxes.lines.find((each) => each.name === name)!)
    expect(tops.map(({ top }) => top)).toEqual(tops.map(({ top }) => top).toSorted((a, b) => a - b))
    for (const { top, bottom, share } of tops) {
      expect(top).toBeGreaterThanOrEqual(boxes.plot[0]! - 1)
      expect(bottom).toBeLessThanOrEqual(boxes.plot[1]! + 1)
      expect(share).toBeCloseTo(0.85, 1)
    }
    await page.close()
  })

  it('shows the values of one moment in all charts, by pointer and by keys', async () => {
    const result = run()
    const page = await open(result)
    const reach = page.locator('#chart-0 .reach')
    const { width } = (await reach.boundingBox())!
    await reach.hover({ position: { x: (width * 40.5) / 60, y: 20 } })
    expect(new Set(await texts(page, '.moment'))).toEqual(new Set(['0:41 play']))
    const { rtt } = result.seconds_log[40]!.timings
    expect(await texts(page, '#chart-0 .entry b')).toContain(`${rtt!.p50.toFixed(2)} ms`)
    expect(await page.locator('.cross.on').count()).toBe(await page.locator('.chart').count())
    await page.mouse.move(0, 0)
    expect(await page.locator('.cross.on').count()).toBe(0)
    expect(await page.locator('#chart-0 .moment').innerText()).toBe('whole run')

    await reach.focus()
    await page.keyboard.press('End')
    await page.keyboard.press('ArrowLeft')
    expect(await page.locator('#chart-0 .moment').innerText()).toBe('0:59 settle')
    expect(await reach.getAttribute('aria-valuetext')).toMatch(/^0:59 settle: p50 \d.* ms, p95 /)
    await page.keyboard.press('Escape')
    expect(await page.locator('.cross.on').count()).toBe(0)
    await page.close()
  })

  it('switches lines off and on', async () => {
    const page = await open(run())
    const entry = page.locator('#chart-0 .entry', { hasText: 'p99' })
    const line = page.locator('#chart-0 g.series.p99')
    await entry.click()
    expect([await entry.getAttribute('aria-pressed'), await line.isVisible()]).toEqual(['false', false])
    await entry.press('Enter')
    expect([await entry.getAttribute('aria-pressed'), await line.isVisible()]).toEqual(['true', true])
    await page.close()
  })

  it('numbers what happened on every chart, and marks the limits', async () => {
    const page = await open(run({}, { 'max-rtt-p99': '50ms', 'max-cpu': '90%' }))
    expect(await texts(page, '.incidents li')).toEqual([
      '0:33 node-2 was told to end',
      '0:37 node-2 serves again',
    ])
    const charts = await page.locator('.chart').count()
    expect(await page.locator('.flag.incident-0').count()).toBe(charts)
    const { place, plot } = await page.locator('#chart-0').evaluate((figure) => {
      const box = figure.querySelector('.flag')!.getBoundingClientRect()
      const area = figure.querySelector('.reach')!.getBoundingClientRect()
      return { place: box.left + box.width / 2, plot: [area.left, area.width] }
    })
    expect((place - plot[0]!) / plot[1]!).toBeCloseTo(33 / 60, 2)
    expect(await page.locator('.limit-name').allTextContents()).toEqual(['max-rtt-p99 50 ms', 'max-cpu 90%'])
    await page.close()
  })

  it('holds the values of each chart as a table', async () => {
    const result = run()
    const page = await open(result)
    await page.locator('#chart-0 summary').click()
    const rows = await texts(page, '#chart-0 tbody tr')
    expect(rows).toHaveLength(60)
    const { p50, p95 } = result.seconds_log[30]!.timings.rtt!
    expect(rows[30]).toMatch(`0:31\tplay\t${p50.toFixed(2)} ms\t${p95.toFixed(2)} ms`)
    expect(rows[0]).toBe('0:01\tconnect\t–\t–\t–\t–')
    await page.close()
  })

  it('lets nothing of what a service or a user wrote become part of the page', async () => {
    const { checks, totals, seconds_log } = run()
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
        seconds_log: seconds_log.map((second) => ({
          ...second,
          phase: HOSTILE,
          servers: second.servers.map((server) => ({ ...server, name: `${HOSTILE}${server.name}` })),
        })),
      },
    })
    const page = await open(hostile)
    await page.locator('#chart-0 .reach').hover()
    expect(await page.evaluate(() => 'broken' in window)).toBe(false)
    expect(await page.locator('img, script:not([type])').count()).toBe(0)
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
    expect(await page.locator('.chart').count()).toBe(charts)
    expect(await isTooWide(page)).toBe(false)
    await page.setViewportSize({ width: 390, height: 900 })
    expect(await isTooWide(page)).toBe(false)
    expect(troubles).toEqual([])
    await page.close()
  })

  it('shows its charts without any script', async () => {
    const page = await open(run(), { javaScriptEnabled: false })
    expect(await page.locator('#chart-0 .series path').first().isVisible()).toBe(true)
    expect(await texts(page, '#chart-0 .entry')).toHaveLength(4)
    await page.close()
  })
})
