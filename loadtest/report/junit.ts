import { allowsErrors } from '../limits.ts'
import type { Check, RunResult, Verdict } from '../result.ts'
import { summary } from '../view/summary.ts'
import { inUnit, plural } from '../view/text.ts'
import { brokenLimit, interruption } from './outcome.ts'

/**
 * A run as JUnit XML: its end, each check, each limit and its failures are test cases. What is wrong is a failure; an interruption is an
 * error, as JUnit calls a test that did not get to its end.
 */

interface Case {
  readonly name: string
  readonly kind: 'run' | 'check' | 'limit'
  readonly failed?: { readonly message: string; readonly text: string }
  /** Why it did not get to its end. */
  readonly stopped?: string
  readonly skipped?: string
}

/** The XML document, well-formed whatever the texts of the run contain. */
export function junitXml(result: RunResult): string {
  const cases = casesOf(result)
  const failures = cases.filter(({ failed }) => failed).length
  const errors = cases.filter(({ stopped }) => stopped !== undefined).length
  const skipped = cases.filter(({ skipped: why }) => why !== undefined).length
  const name = `loadtest ${result.scenario}`
  const numbers = attributes({
    tests: String(cases.length),
    failures: String(failures),
    errors: String(errors),
    skipped: String(skipped),
    time: result.seconds.toFixed(3),
  })
  const properties = Object.entries({ target: result.target, ...result.options, ...result.machine })
  return `<?xml version="1.0" encoding="UTF-8"?>
<testsuites${attributes({ name: 'roomful loadtest' })}${numbers}>
  <testsuite${attributes({ name, timestamp: result.started_at.slice(0, 19) })}${numbers}>
    <properties>
${properties.map(([key, value]) => `      <property${attributes({ name: key, value: String(value) })}/>`).join('\n')}
    </properties>
${cases.map((each) => testCase(each, result)).join('\n')}
    <system-out>${escaped(summary(result))}</system-out>
  </testsuite>
</testsuites>
`
}

function casesOf(result: RunResult): Case[] {
  const { failure, checks, verdicts, failures, totals } = result
  const allowed = allowsErrors(result)
  const ended: Case = {
    name: 'ran to its end',
    kind: 'run',
    ...(failure !== undefined && { failed: { message: 'it could not go on', text: failure } }),
    ...(result.interrupted && { stopped: interruption(result) }),
  }
  const failed: Case = {
    name: 'no failures',
    kind: 'run',
    ...(totals.errors > 0 && !allowed
      ? {
          failed: {
            message: plural(totals.errors, 'failure'),
            text: failures.map(({ code, count, example }) => `${code} × ${count}: ${example}`).join('\n'),
          },
        }
      : {}),
  }
  return [ended, ...(allowed ? [] : [failed]), ...checks.map(checkCase), ...verdicts.map(limitCase)]
}

function limitCase(verdict: Verdict): Case {
  const { threshold, limit, unit, held } = verdict
  const name = `${threshold} ${inUnit(limit, unit)}`
  if (held) return { name, kind: 'limit' }
  const message = brokenLimit(verdict)
  if (held === undefined) return { name, kind: 'limit', skipped: `${message} when the run was interrupted` }
  return { name, kind: 'limit', failed: { message, text: message } }
}

function checkCase({ name, violations, meaning, note, examples }: Check): Case {
  if (violations === undefined) return { name, kind: 'check', skipped: note }
  if (violations === 0) return { name, kind: 'check' }
  const message = `${plural(violations, 'violation')}, ${note}`
  return { name, kind: 'check', failed: { message, text: [meaning, ...examples].join('\n') } }
}

function testCase({ name, kind, failed, stopped, skipped }: Case, { scenario, seconds }: RunResult): string {
  const time = kind === 'run' && !failed ? seconds.toFixed(3) : '0'
  const head = `    <testcase${attributes({ classname: `loadtest.${scenario}.${kind}`, name, time })}`
  if (failed)
    return `${head}>\n      <failure${attributes({ message: failed.message, type: kind })}>${escaped(failed.text)}</failure>\n    </testcase>`
  if (stopped !== undefined)
    return `${head}>\n      <error${attributes({ message: stopped, type: 'interrupted' })}/>\n    </testcase>`
  if (skipped !== undefined)
    return `${head}>\n      <skipped${attributes({ message: skipped })}/>\n    </testcase>`
  return `${head}/>`
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
