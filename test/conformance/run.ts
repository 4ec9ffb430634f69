import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import WebSocket from 'ws'
import { type Case, Control, Stage, type Target } from './case.ts'
import { forms } from './cases/forms.ts'
import { handshake } from './cases/handshake.ts'
import { hostile } from './cases/hostile.ts'
import { messages } from './cases/messages.ts'
import { resume } from './cases/resume.ts'
import { rooms } from './cases/rooms.ts'
import { sessions } from './cases/sessions.ts'
import { state } from './cases/state.ts'
import { tokens } from './cases/tokens.ts'
import { watch } from './cases/watch.ts'
import { type ClientRun, NoCluster, runClient } from './client/command.ts'
import { FAULTS } from './client/faults.ts'

/** All cases, in the order in which they run. */
export const cases: readonly Case[] = [
  ...forms,
  ...handshake,
  ...rooms,
  ...messages,
  ...state,
  ...resume,
  ...sessions,
  ...tokens,
  ...watch,
  ...hostile,
]

const USAGE = `Usage: npm run conformance -- ws://127.0.0.1:4000 [options]

Checks a running service against docs/protocol.md, with clients that are written from that page only.

  --control URL         the control API [http://127.0.0.1:3000]
  --operator-token T    if the control API needs a token
  --only TEXT           only cases with this text in their names
  --patient             also cases that wait for resume_ttl_seconds, a minute by default
  --seed N              seed of the random inputs, to repeat a run
  --list                the names of the cases
  --help                this text

       npm run conformance -- --client ws://127.0.0.1:7350 [options]

Runs a proxy between a client and a running \`npm run cluster\`. It injects faults, and reports the rules of docs/protocol.md that the client
breaks.

  --client URL          the address for the client; the next ports are those for the nodes
  --cluster URL         a node; repeat for each node [those of npm run cluster, or of npm start]
  --dev URL             the development routes [http://127.0.0.1:8080, or http://127.0.0.1:4000]
  --seconds N           time with faults [20]
  --level N             checks the rules of levels 1 to N [6]
  --without FAULT       a fault that is not injected; repeat for each fault:
                        ${FAULTS.join(', ')}
  --seed N              seed of the faults
  --exec COMMAND        starts a client with ROOMFUL_URL, ROOMFUL_PROJECT_ID, ROOMFUL_TOKEN, ROOMFUL_TOKEN_URL and ROOMFUL_SECONDS in its
                        environment, sends it SIGTERM at the end, and fails if it fails

The exit code is 0 if all cases passed, 1 if a case failed, and 2 if there was nothing to test.
`

/** A mistake in the command line. */
class Misuse extends Error {
  override readonly name = 'Misuse'
}

type Command = { list: true } | { help: true } | { client: ClientRun } | SuiteOptions

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
  const seed = wholeNumber('seed', values.seed)
  if (values.client !== undefined) return { client: clientRun(values, seed ?? randomSeed()) }
  const [wsUrl, ...more] = positionals
  if (wsUrl === undefined)
    throw new Misuse('no address: give a websocket address, such as ws://127.0.0.1:4000')
  if (more.length > 0) throw new Misuse(`more than one address: ${[wsUrl, ...more].join(' ')}; give one`)
  const controlUrl = values.control ?? 'http://127.0.0.1:3000'
  checkUrl('the address', wsUrl, ['ws:', 'wss:'])
  checkUrl('--control', controlUrl, ['http:', 'https:'])
  const { only = '', patient } = values
  const chosen = cases.filter(({ name, kind }) => name.includes(only) && (patient || kind !== 'outlasts'))
  if (chosen.length === 0)
    throw new Misuse(
      `no case has ${JSON.stringify(only)} in its name${patient ? '' : ', or only with --patient'}: --list prints all names`,
    )
  return {
    ws_url: wsUrl,
    control_url: controlUrl,
    operator_token: values['operator-token'],
    cases: chosen,
    ...(seed !== undefined && { seed }),
  }
}

function clientRun(values: ReturnType<typeof parseOptions>['values'], seed: number): ClientRun {
  const { client = '', cluster = [], dev, exec, without = [] } = values
  checkUrl('--client', client, ['ws:'])
  for (const node of cluster) checkUrl('--cluster', node, ['ws:'])
  if (dev !== undefined) checkUrl('--dev', dev, ['http:', 'https:'])
  const unknown = without.find((fault) => !FAULTS.some((known) => known === fault))
  if (unknown !== undefined) throw new Misuse(`--without ${unknown}: there are ${FAULTS.join(', ')}`)
  return {
    client_url: client,
    nodes: cluster,
    dev_url: dev,
    seconds: wholeNumber('seconds', values.seconds) ?? 20,
    level: wholeNumber('level', values.level) ?? 6,
    without: new Set(without),
    seed,
    exec,
    print,
  }
}

function wholeNumber(name: string, text: string | undefined): number | undefined {
  const number = text === undefined ? undefined : Number(text)
  if (number !== undefined && !Number.isSafeInteger(number))
    throw new Misuse(`--${name} is ${text}: use an integer`)
  return number
}

const randomSeed = (): number => Math.floor(Math.random() * 2 ** 32)

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
      client: { type: 'string' },
      cluster: { type: 'string', multiple: true },
      dev: { type: 'string' },
      seconds: { type: 'string' },
      level: { type: 'string' },
      without: { type: 'string', multiple: true },
      exec: { type: 'string' },
    },
  })
}

function checkUrl(what: string, value: string, protocols: readonly string[]): void {
  if (!URL.canParse(value) || !protocols.includes(new URL(value).protocol)) {
    throw new Misuse(`${what} is ${value}: use an address that starts with ${protocols.join('// or ')}//`)
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

const print = (text: string): void => void process.stdout.write(text)

/** Runs the command. Returns the exit code. */
async function main(args: readonly string[]): Promise<number> {
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
    if ('client' in command) return await runClient(command.client)
    const summary = await runSuite({ ...command, on_outcome: (outcome) => print(line(outcome)) })
    print(total(summary))
    return summary.failed === 0 ? 0 : 1
  } catch (problem) {
    if (!(problem instanceof Misuse || problem instanceof Unreachable || problem instanceof NoCluster))
      throw problem
    print(`conformance: ${problem.message}\n`)
    if (problem instanceof Misuse) print('--help prints all options.\n')
    return 2
  }
}

/** Result of one case. */
interface Outcome {
  readonly case: Case
  readonly took_ms: number
  /** Reason of the failure. Undefined: the case has passed. */
  readonly problem: Error | undefined
}

interface SuiteOptions {
  /** Websocket address. */
  readonly ws_url: string
  /** Address of the control API. */
  readonly control_url: string
  /** Token for the control API. Default: none. */
  readonly operator_token?: string | undefined
  /** Cases to run. Default: all. */
  readonly cases?: readonly Case[]
  /** Seed of the random inputs. Default: a random seed. */
  readonly seed?: number
  /** Called at the end of each case. */
  readonly on_outcome?: (outcome: Outcome) => void
}

interface Summary {
  readonly outcomes: readonly Outcome[]
  readonly failed: number
  readonly took_ms: number
  readonly seed: number
}

/** The service cannot be tested: it does not listen, or control refuses the call. */
class Unreachable extends Error {
  override readonly name = 'Unreachable'
}

/** True for a case about a limit. It runs alone: a client exceeds a rate only while the turns of the event loop are short. */
export const runsAlone = ({ rule }: Case): boolean => rule.includes('Limits')

/**
 * Runs the cases against a running service. Cases that wait for seconds run concurrently, and all others one after the other. Throws
 * Unreachable if there is no service.
 */
export async function runSuite(options: SuiteOptions): Promise<Summary> {
  const startedAt = performance.now()
  const target = await reach(options)
  const outcomes: Outcome[] = []
  const run = async (one: Case) => {
    const outcome = await runCase(one, target)
    outcomes.push(outcome)
    options.on_outcome?.(outcome)
  }
  const chosen = options.cases ?? cases
  const waiting = chosen.filter(({ kind }) => kind !== 'quick').map(run)
  for (const one of chosen) if (one.kind === 'quick') await run(one)
  await Promise.all(waiting)
  return {
    outcomes,
    failed: outcomes.filter(({ problem }) => problem).length,
    took_ms: performance.now() - startedAt,
    seed: target.seed,
  }
}

/** Runs one case against a service. Rejects if the service breaks its rule. */
export async function holds(one: Case, service: { wsUrl: string; controlUrl: string }): Promise<void> {
  const { wsUrl, controlUrl } = service
  const { outcomes } = await runSuite({ ws_url: wsUrl, control_url: controlUrl, cases: [one] })
  for (const { problem } of outcomes) if (problem) throw problem
}

async function runCase(one: Case, target: Target): Promise<Outcome> {
  const startedAt = performance.now()
  const stage = new Stage(target)
  let problem: Error | undefined
  try {
    await one.run(stage)
    await stage.end()
  } catch (thrown) {
    problem = stage.abandon(thrown)
  }
  return { case: one, took_ms: performance.now() - startedAt, problem }
}

/** Connects to both addresses, and creates a project for this run. */
async function reach(options: SuiteOptions): Promise<Target> {
  const { ws_url: wsUrl, control_url: controlUrl, operator_token: operatorToken } = options
  await listens(wsUrl)
  const control = new Control(controlUrl, operatorToken)
  try {
    const projectId = await control.createProject()
    return {
      ws_url: wsUrl,
      control,
      project_id: projectId,
      seed: options.seed ?? randomSeed(),
    }
  } catch (problem) {
    const { cause, message } = problem as Error
    throw new Unreachable(
      `the control API at ${controlUrl} creates no project; start the service with \`npm start\`, or name the control API with --control, and its token with --operator-token (${message}${cause instanceof Error ? `: ${cause.message}` : ''})`,
    )
  }
}

async function listens(wsUrl: string): Promise<void> {
  const socket = new WebSocket(wsUrl, ['roomful.v1.json'], { handshakeTimeout: 20_000 })
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve)
    socket.once('error', (problem) =>
      reject(
        new Unreachable(
          `no websocket at ${wsUrl}; start the service with \`npm start\`, or name another address (${problem.message || 'connection refused'})`,
        ),
      ),
    )
  })
  socket.close()
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  process.exitCode = await main(process.argv.slice(2))
}
