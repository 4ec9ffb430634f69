import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { cases } from './cases/index.ts'
import { type Outcome, runSuite, type SuiteOptions, type Summary, Unreachable } from './suite.ts'


const USAGE = `Usage: npm run conformance -- ws://127.0.0.1:4000 [options]

Holds a running service to docs/protocol.md, as a client that knows nothing but that page.

  --control URL         the control API [http://127.0.0.1:3000]
  --operator-token T    for a control API that asks for one
  --only TEXT           only cases with this text in their names
  --patient             also the cases that outlast resume_ttl_seconds, a minute by default
  --seed N              of the random inputs, to repeat a run
  --list                the names of the cases
  --help                this text

Ends with 0 when every case passed, 1 when one failed, 2 when there was nothing to test.
`

/** What is wrong with the command line. */
class Misuse extends Error {
  override readonly name = 'Misuse'
}

type Command = { list: true } | { help: true } | SuiteOptions

function parse(args: readonly string[]): Command {
  let parsed: ReturnType<typeof parseOptions>
  try {
    parsed = parseOptions(args)
  } catch (problem) {
    throw new Misuse((problem as Error).message)
  }
  const { values, positionals } = parsed
  if (values.help) return { help: true }
  if (values.list) return { list: true }
  const [wsUrl, ...more] = positionals
  if (wsUrl === undefined) throw new Misuse('no address: name the websocket, such as ws://127.0.0.1:4000')
  if (more.length > 0) throw new Misuse(`one address only, but there is also ${more.join(' ')}`)
  const controlUrl = values.control ?? 'http://127.0.0.1:3000'
  checkUrl('the address', wsUrl, ['ws:', 'wss:'])
  checkUrl('--control', controlUrl, ['http:', 'https:'])
  const { only = '', patient } = values
  const chosen = cases.filter(({ name, kind }) => name.includes(only) && (patient || kind !== 'outlasts'))
  if (chosen.length === 0)
    throw new Misuse(
      `no case has ${JSON.stringify(only)} in its name${patient ? '' : ', or only with --patient'}: --list shows them`,
    )
  const seed = values.seed === undefined ? undefined : Number(values.seed)
  if (seed !== undefined && !Number.isSafeInteger(seed)) {
    throw new Misuse(`--seed is a whole number, not ${values.seed}`)
  }
  return {
    ws_url: wsUrl,
    control_url: controlUrl,
    operator_token: values['operator-token'],
    cases: chosen,
    ...(seed !== undefined && { seed }),
  }
}

function parseOptions(args: readonly string[]) {
  return parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      control: { type: 'string' },
      'operator-token': { type: 'string' },
      only: { type: 'string' },
      patient: { type: 'boolean' },
      seed: { type: 'string' },
      list: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  })
}

function checkUrl(what: string, value: string, protocols: readonly string[]): void {
  if (!URL.canParse(value) || !protocols.includes(new URL(value).protocol)) {
    throw new Misuse(`${what} begins with ${protocols.join('// or ')}//, not ${value}`)
  }
}

const seconds = (ms: number) => `${(ms / 1000).toFixed(2)} s`

function line({ case: one, took_ms: tookMs, problem }: Outcome): string {
  if (!problem) return `✓ ${one.name}  ${seconds(tookMs)}\n`
  return `✗ ${one.name}  ${seconds(tookMs)}\n    expected by ${one.rule}\n    ${problem.message.replaceAll('\n', '\n    ')}\n`
}

function total({ outcomes, failed, took_ms: tookMs, seed }: Summary): string {
  const passed = `${outcomes.length - failed} of ${outcomes.length} cases passed in ${seconds(tookMs)}`
  if (failed === 0) return `\n${passed}.\n`
  const names = outcomes.filter(({ problem }) => problem).map((outcome) => `  ✗ ${outcome.case.name}\n`)
  return `\n${passed}; ${failed} failed (--seed ${seed}):\n${names.join('')}`
}

/** The command; gives the exit code. `print` takes what people read. */
export async function main(args: readonly string[], print: (text: string) => void): Promise<number> {
  try {
    const command = parse(args)
    if ('help' in command) {
      print(USAGE)
      return 0
    }
    if ('list' in command) {
      for (const { name } of cases) print(`${name}\n`)
      return 0
    }
    const summary = await runSuite({ ...command, on_outcome: (outcome) => print(line(outcome)) })
    print(total(summary))
    return summary.failed === 0 ? 0 : 1
  } catch (problem) {
    if (!(problem instanceof Misuse || problem instanceof Unreachable)) throw problem
    print(`conformance: ${problem.message}\n`)
    if (problem instanceof Misuse) print('--help tells how to use it.\n')
    return 2
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  process.exitCode = await main(process.argv.slice(2), (text) => process.stdout.write(text))
}
