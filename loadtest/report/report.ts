import { access, constants, mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  failureLine,
  hasBegun,
  interruption,
  type Judgement,
  judgementsOf,
  outcomeOf,
  timingTable,
  totalText,
} from '../judge.ts'
import { figureText, type RunResult } from '../result.ts'
import { alignedRows, clock, count, oneLine, plural } from '../text.ts'
import { reportPage } from './page.ts'

/** The reports of a run: the result itself, for continuous integration, and for people. */
const REPORTS: Readonly<Record<string, (result: RunResult) => string>> = {
  'report.json': (result) => `${JSON.stringify(result, undefined, 2)}\n`,
  'junit.xml': junitXml,
  'report.html': reportPage,
}

/**
 * Creates the folder if it is missing, and removes the reports of earlier runs, so that none counts as a report of this run. Rejects with
 * an Error that says why reports cannot be written there.
 */
export async function prepareFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true })
    await access(folder, constants.W_OK)
    for (const name of Object.keys(REPORTS)) await rm(join(folder, name), { force: true })
  } catch (error) {
    const { message } = error as Error
    throw new Error(`Reports cannot be written into ${folder}: ${message}. --out names another folder.`)
  }
}

/**
 * Writes the reports. Each appears complete or not at all. Resolves with their paths. Rejects with an Error that names those that could not
 * be written, after all others have been written.
 */
export async function writeReports(result: RunResult, folder: string): Promise<string[]> {
  const problems: string[] = []
  const paths: string[] = []
  await mkdir(folder, { recursive: true }).catch(() => undefined)
  for (const [name, text] of Object.entries(REPORTS)) {
    const path = join(folder, name)
    try {
      await writeFile(`${path}.part`, text(result))
      await rename(`${path}.part`, path)
      paths.push(path)
    } catch (error) {
      await rm(`${path}.part`, { force: true }).catch(() => undefined)
      problems.push(`${name} could not be written into ${folder}: ${(error as Error).message}`)
    }
  }
  if (problems.length > 0) throw new Error(problems.join('\n'))
  return paths
}

const MARKS = { kept: '✓', broken: '✗', open: '–' } as const

/** The end of the terminal output: the verdict, checks, limits and timings. */
export function summary(result: RunResult): string {
  const { word, sentence, reasons } = outcomeOf(result)
  const { totals, figures, scenario, interrupted, seconds } = result
  const judged = (kind: Judgement['kind']): string =>
    list(judgementsOf(result).flatMap((each) => (each.kind === kind ? [judgementLine(each)] : [])))
  const played = totals.connects > 0 || totals.errors > 0
  const parts = [
    `${word.toUpperCase()}  ${scenario}${interrupted ? '' : `, ${clock(seconds)}`}. ${sentence}`,
    list(reasons.map((reason) => `✗ ${reason}`)),
    list(result.bottleneck.map((reason) => `! The generator may have been the limit: ${reason}`)),
    list(alignedRows(timingTable(result))),
    list([
      played
        ? `${totalText(result, 'sends')} sent, ${count(totals.acks)} acked, ${totalText(result, 'updates')} updates, ${plural(totals.errors, 'failure')}`
        : '',
      totals.retries > 0 ? `${plural(totals.retries, 'attempt')} to connect made again` : '',
      ...figures.map((figure) => `${figure.name}: ${figureText(figure)}`),
    ]),
    hasBegun(result) ? judged('check') : '',
    judged('limit'),
    list(result.failures.map((failure) => `✗ ${oneLine(failureLine(failure))}`)),
  ]
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`
}

function judgementLine({ kind, name, state, found, note, examples }: Judgement): string {
  const checked = note === '' ? '' : kind === 'limit' || state === 'open' ? `, ${note}` : ` (${note})`
  const shown = examples.map((example) => `\n    ${oneLine(example)}`).join('')
  return `${MARKS[state]} ${name}: ${found}${checked}${shown}`
}

const list = (lines: readonly string[]): string => lines.filter((line) => line !== '').join('\n')

/**
 * Returns a run as JUnit XML: its end, each check, each limit and its failures are test cases. A problem is a failure. An interruption is
 * an error, as JUnit calls a test that did not reach its end. The XML is well-formed whatever the texts of the run contain.
 */
export function junitXml(result: RunResult): string {
  const cases = judgementsOf(result)
  const stopped = result.interrupted && result.failure === undefined
  const counted = (state: Judgement['state']): string =>
    String(cases.filter((each) => each.state === state).length)
  const numbers = attributes({
    tests: String(cases.length),
    failures: counted('broken'),
    errors: stopped ? '1' : '0',
    skipped: counted('open'),
    time: result.seconds.toFixed(3),
  })
  const suite = attributes({
    name: `loadtest ${result.scenario}`,
    timestamp: result.started_at.slice(0, 19),
  })
  const properties = Object.entries({ target: result.target, ...result.options, ...result.machine })
  return `<?xml version="1.0" encoding="UTF-8"?>
<testsuites${attributes({ name: 'roomful loadtest' })}${numbers}>
  <testsuite${suite}${numbers}>
    <properties>
${properties.map(([name, value]) => `      <property${attributes({ name, value: String(value) })}/>`).join('\n')}
    </properties>
${cases.map((each, i) => testCase(each, result, i === 0 && stopped)).join('\n')}
    <system-out>${escaped(summary(result))}</system-out>
  </testsuite>
</testsuites>
`
}

function testCase(judgement: Judgement, result: RunResult, stopped: boolean): string {
  const { kind, state, found, meaning, note, examples } = judgement
  const name = kind === 'limit' ? `${judgement.name} ${meaning}` : judgement.name
  const time = kind === 'run' && state === 'kept' ? result.seconds.toFixed(3) : '0'
  const head = `    <testcase${attributes({ classname: `loadtest.${result.scenario}.${kind}`, name, time })}`
  const inside = (element: string): string => `${head}>\n      ${element}\n    </testcase>`
  const limit = kind === 'limit' ? `${judgement.name}: ` : ''
  if (stopped) return inside(`<error${attributes({ message: interruption(result), type: 'interrupted' })}/>`)
  if (state === 'open') {
    const why = kind === 'limit' ? `${limit}${found} ${note}` : note
    return inside(`<skipped${attributes({ message: why })}/>`)
  }
  if (state === 'kept') return `${head}/>`
  const message = `${limit}${found}${note && `, ${note}`}`
  const text = [kind === 'check' ? meaning : '', ...examples].filter(Boolean).join('\n')
  return inside(`<failure${attributes({ message, type: kind })}>${escaped(text || message)}</failure>`)
}

const attributes = (values: Readonly<Record<string, string>>): string =>
  Object.entries(values)
    .map(([name, value]) => ` ${name}="${escaped(value).replaceAll(/\s/g, ' ')}"`)
    .join('')

/** Returns text as XML 1.0 allows it. Forbidden characters become replacement characters. */
const escaped = (text: string): string =>
  text
    .replaceAll(/[^\P{Cc}\t\n\r]|[\p{Cs}\uFFFE\uFFFF]/gu, '\uFFFD')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
