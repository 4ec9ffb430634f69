import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { madeUpResult } from '../../test/support/load-run.ts'
import { newFolder } from '../../test/support/run-folder.ts'
import { figureText } from '../result.ts'
import { bytes, clock, digits, duration, inUnit, oneLine, percent } from '../text.ts'
import { LiveView } from '../view.ts'
import { reportPage } from './page.ts'
import { junitXml, prepareFolder, summary, writeReports } from './report.ts'

const random = () => new SeededRandom(9)
const result = madeUpResult({ seconds: 30, nodes: 2, clients: 100 }, random())

describe('the reports of a run', () => {
  let folder = ''
  beforeAll(async () => {
    folder = await newFolder()
  })

  it('are the result as JSON, a page, and test cases, in a new folder', async () => {
    const paths = await writeReports(result, join(folder, 'of', 'today'))
    expect(paths.map((path) => basename(path))).toEqual(['report.json', 'junit.xml', 'report.html'])
    const json = JSON.parse(await readFile(paths[0]!, 'utf8'))
    expect(json).toEqual(JSON.parse(JSON.stringify(result)))
    expect(await readFile(paths[2]!, 'utf8')).toContain('<h1>steady</h1>')
  })

  it('are each complete or missing, and the others are written if one cannot be', async () => {
    const there = join(folder, 'blocked')
    await mkdir(join(there, 'junit.xml'), { recursive: true })
    await expect(writeReports(result, there)).rejects.toThrow(
      /^junit\.xml could not be written into .*blocked: EISDIR/,
    )
    expect((await readdir(there)).toSorted()).toEqual(['junit.xml', 'report.html', 'report.json'])
  })

  it('replace the reports of an earlier run, and nothing else', async () => {
    const there = join(folder, 'again')
    await writeReports(result, there)
    await writeFile(join(there, 'notes.txt'), '')
    await prepareFolder(there)
    expect(await readdir(there)).toEqual(['notes.txt'])
    await expect(prepareFolder(join(there, 'notes.txt'))).rejects.toThrow(
      /^Reports cannot be written into .*notes\.txt: EEXIST.* --out names another folder\.$/,
    )
  })

  it('have a page that shows foreign text as text, and runs only its own script', async () => {
    const page = reportPage({
      ...result,
      target: '<img src=x onerror=alert(1)>',
      incidents: [{ at: 3, text: '</script><b>bold</b>' }],
      failures: [{ code: 'connection_failed', count: 2, example: '<i>no</i>' }],
    })
    expect(page).not.toMatch(/<img|<b>bold|<i>no/)
    expect(page).toContain('&lt;i&gt;no&lt;/i&gt;')
    const [, policy] = /content-security-policy" content="([^"]*)"/.exec(page)!
    expect(policy).toMatch(/^default-src &#39;none&#39;; style-src &#39;sha256-.*; script-src &#39;sha256-/)
    for (const title of ['Round trip', 'Messages', 'CPU', 'Event loop delay'])
      expect(page).toContain(`<b>${title}</b>`)
  })

  it('have one test case for the run, its failures, each check and each limit', () => {
    const verdicts = [
      { threshold: '--max-rtt-p99', limit: 150, actual: 183.4, unit: 'ms', held: false },
      { threshold: '--max-pause-max', limit: 2000, actual: undefined, unit: 'ms', held: false },
      { threshold: '--max-cpu', limit: 80, actual: 42, unit: '%', held: true },
    ]
    const checks = result.checks.map((check, i) => ({
      ...check,
      violations: [2, undefined, 0, 0][i],
      note: i === 1 ? 'nothing carries a checksum' : check.note,
      examples: i === 0 ? ['room a & b: 4 followed 2'] : [],
    }))
    const xml = junitXml({ ...result, verdicts, checks, passed: false })
    const cases = [...xml.matchAll(/<testcase classname="([^"]*)" name="([^"]*)"/g)].map((match) =>
      match.slice(1),
    )
    expect(cases).toEqual([
      ['loadtest.steady.run', 'ran to its end'],
      ['loadtest.steady.check', 'sequence gaps'],
      ['loadtest.steady.check', 'checksum mismatches'],
      ['loadtest.steady.check', 'lost acks'],
      ['loadtest.steady.check', 'applied twice'],
      ['loadtest.steady.limit', '--max-rtt-p99 150 ms'],
      ['loadtest.steady.limit', '--max-pause-max 2 s'],
      ['loadtest.steady.limit', '--max-cpu 80%'],
      ['loadtest.steady.run', 'no failures'],
    ])
    expect(xml).toContain('tests="9" failures="3" errors="0" skipped="1" time="30.000"')
    expect(xml).toContain('<failure message="--max-rtt-p99: 183 ms, above 150 ms" type="limit">')
    expect(xml).toContain('<skipped message="nothing carries a checksum"/>')
    expect(xml).toContain('room a &amp; b: 4 followed 2</failure>')
  })

  it('count failures as one test case, unless a limit allows a number of them', () => {
    const failed = {
      ...result,
      totals: { ...result.totals, errors: 2 },
      failures: [{ code: 'rate_limited', count: 2, example: 'too many messages' }],
    }
    expect(junitXml({ ...failed, passed: false })).toContain(
      '<failure message="2 failures" type="run">rate_limited × 2: too many messages',
    )
    const allowed = [{ threshold: '--max-errors', limit: 5, actual: 2, unit: '', held: true }]
    expect(junitXml({ ...failed, verdicts: allowed })).not.toContain('<failure')
  })

  it('never look like a full pass after an interruption', () => {
    const verdicts = [
      { threshold: '--max-rtt-p99', limit: 150, actual: 12, unit: 'ms', held: true },
      { threshold: '--min-online', limit: 500, actual: 100, unit: '', held: undefined },
    ]
    const stopped = {
      ...result,
      seconds: 12,
      planned_seconds: 60,
      interrupted: true,
      passed: false,
      verdicts,
    }
    const xml = junitXml(stopped)
    expect(xml).toContain('tests="8" failures="0" errors="1" skipped="1" time="12.000"')
    expect(xml).toContain('<error message="interrupted after 0:12 of about 1:00" type="interrupted"/>')
    expect(xml).toContain('<skipped message="--min-online: 100, below 500 when the run was interrupted"/>')
    const text = summary(stopped)
    expect(text).toMatch(
      /^INTERRUPTED {2}steady\. It was interrupted after 0:12 of about 1:00\. Until then nothing was wrong\.\n/,
    )
    expect(text).toContain('– --min-online: 100, below 500, when the run was interrupted')
    const broken = { ...stopped, totals: { ...result.totals, errors: 1 } }
    expect(summary(broken)).toMatch(
      /^FAILED {2}steady\. It was interrupted after 0:12 of about 1:00, and something had gone wrong before\.\n/,
    )
    expect(junitXml(broken)).toContain('failures="1" errors="1"')
  })

  it('end in the terminal with the verdict and every reason for it', () => {
    expect(summary(result)).toMatch(/^PASSED {2}steady, 0:30. 4 promises kept, no failures.\n/)
    const failed = summary({
      ...result,
      passed: false,
      checks: [{ ...result.checks[0]!, violations: 1, examples: ['4 followed 2\n\x1b[2J'] }],
      bottleneck: ['a thread was up to 97% busy'],
    })
    expect(failed).toMatch(
      /^FAILED {2}steady, 0:30. One thing was not as it should be.\n\n✗ sequence gaps: 1 violation\n/,
    )
    expect(failed).toContain('✗ sequence gaps: 1 violation (')
    expect(failed).toContain('\n    4 followed 2 [2J\n')
    expect(failed).toContain('! The generator may have been the limit: a thread was up to 97% busy')
    expect(failed).toMatch(/^rtt +[\d,]+ +[\d.]+ ms/m)
  })
})

describe('text', () => {
  it.each([
    [digits, 0, '0'],
    [digits, 0.4231, '0.42'],
    [digits, 42.71, '42.7'],
    [digits, 81_204.4, '81,204'],
    [duration, 0.42, '0.42 ms'],
    [duration, 999.4, '999 ms'],
    [duration, 999.6, '1.00 s'],
    [duration, 42_700, '42.7 s'],
    [duration, 725_000, '12:05 min'],
    [duration, 3_723_000, '1:02:03 h'],
    [clock, 7, '0:07'],
    [clock, 59.7, '1:00'],
    [clock, 3599.8, '1:00:00'],
    [bytes, 0, '0 B'],
    [bytes, 12_595, '12.3 KB'],
    [bytes, 148 * 1024 ** 2, '148 MB'],
    [bytes, 1.5 * 1024 ** 3, '1.50 GB'],
    [percent, 0, '0%'],
    [percent, 0.05, '5%'],
    [percent, 0.0823, '8.2%'],
    [percent, 1.4, '140%'],
  ] as const)('%o writes %d as %s', (write, value, text) => {
    expect(write(value)).toBe(text)
  })

  it('has figures in their units', () => {
    expect([
      inUnit(150, 'ms'),
      inUnit(80, '%'),
      inUnit(2, 's'),
      inUnit(3, ''),
      inUnit(12, 'sessions'),
    ]).toEqual(['150 ms', '80%', '2 s', '3', '12 sessions'])
  })

  it('has the goals of figures, and the range of their samples', () => {
    const pause = { name: 'pause', value: 400, unit: 'ms', goal: { value: 600, p99: 2000 } }
    const samples = { count: 4, min: 300, p95: 1500, p99: 1500, max: 1500 }
    expect(figureText(pause)).toBe('400 ms, goal 600 ms')
    expect(figureText({ ...pause, samples })).toBe(
      '400 ms, goal 600 ms (300 ms to 1.50 s, 4 times, p99 1.50 s, goal 2 s)',
    )
  })

  it('has no control characters of foreign text', () => {
    expect(oneLine(' gone\n\u001b[2Jaway\u0007\u009b31m ')).toBe('gone [2Jaway 31m')
  })
})

const { seconds_log: log } = madeUpResult({ seconds: 20, nodes: 2, clients: 100 }, new SeededRandom(3))

class Screen {
  text = ''
  readonly isTTY: boolean
  readonly columns = 100
  readonly rows = 24
  constructor(isTTY: boolean) {
    this.isTTY = isTTY
  }
  write(text: string): void {
    this.text += text
  }
}

describe('LiveView', () => {
  it('writes a line every five seconds, and each event, without a terminal', () => {
    const screen = new Screen(false)
    const view = new LiveView(screen)
    view.phase('play', 20, 30)
    for (const second of log.slice(0, 11)) view.update(second, 0.5)
    view.incident('node-2 was\n\x1b[2Jkilled')
    view.close()
    expect(screen.text.trimEnd().split('\n')).toEqual([
      '0:00 phase play, about 0:20',
      expect.stringMatching(
        /^0:05 play: 100 online, .* sent\/s, .* updates\/s, rtt p99 .*, worst pause .*ms/,
      ),
      expect.stringMatching(/^0:10 play: .* busiest server \d+%, 0 errors/),
      '0:11 node-2 was [2Jkilled',
    ])
  })

  it('redraws a block with a progress bar, and shows the cursor again at the end', () => {
    const screen = new Screen(true)
    const view = new LiveView(screen, { NO_COLOR: '1' })
    view.phase('play', 20, 40)
    view.update({ ...log[9]!, counts: { ...log[9]!.counts, errors: 3 } }, 0.5)
    expect(screen.text).toMatch(/run +━+─+ {2}0:10 of about 0:40/)
    expect(screen.text).toContain('3 errors')
    expect(screen.text).toContain('worst pause')
    const height = screen.text.split('\n').length
    screen.text = ''
    view.update(log[10]!, 0.6)
    expect(screen.text, 'begins at the first line of the block').toContain(`\x1b[${height - 1}A`)
    view.close()
    expect(screen.text.endsWith('\x1b[?25h\n')).toBe(true)
  })
})
