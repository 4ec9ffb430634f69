import type { RunResult } from '../result.ts'
import { interruption, type Judgement, judgementsOf, summary } from './outcome.ts'

/**
 * A run as JUnit XML: its end, each check, each limit and its failures are test cases. What is wrong is a failure; an interruption is an
 * error, as JUnit calls a test that did not get to its end. Well-formed whatever the texts of the run contain.
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

/** Text as XML 1.0 allows it: what it cannot hold at all is shown as a replacement character. */
const escaped = (text: string): string =>
  text
    .replaceAll(/[^\P{Cc}\t\n\r]|[\p{Cs}\uFFFE\uFFFF]/gu, '\uFFFD')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
