import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { parseArgs } from 'node:util'
import type { LocalCluster } from '../../deploy/local/local-cluster.ts'
import {
  type Attack,
  carryOutOrders,
  OtherProcess,
  type Outcome,
  startService,
  type Target,
} from './attack.ts'
import { ATTACKS } from './attacks.ts'
import { Bystanders, type Experience } from './bystanders.ts'

const HELP = `npm run attack -- [options]

Starts a service of two nodes on this machine, has honest players play in it, and attacks it, from another process, in one way after the
other. Tells for each what was tried, what was possible that must not be (BROKEN), and what the players met: round trips in milliseconds,
and where their p99 was more than doubled (SLOW).

  --seconds N     how long each attack goes on (10)
  --only NAMES    some of them, separated by commas: ${ATTACKS.map(({ name }) => name).join(', ')}

Ends with 1 when anything was broken or slow.
`
/** Round trips below this are short, whatever they were in quiet: two cores also carry the attacker. */
const SHORT_MS = 10

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    only: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

function wrong(message: string): never {
  process.stderr.write(`${message}\n\n${HELP}`)
  process.exit(2)
}

function chosen(): readonly Attack[] {
  if (values.only === undefined) return ATTACKS
  return values.only
    .split(',')
    .map(
      (name) =>
        ATTACKS.find((attack) => attack.name === name) ?? wrong(`--only names ${name}, which is no attack`),
    )
}

function slowed(quiet: Experience, during: Experience): readonly string[] {
  const most = Math.max(SHORT_MS, 2 * quiet.pingP99)
  return during.pingP99 > most
    ? [
        `SLOW: the players' round trip p99 went from ${quiet.pingP99.toFixed(1)} to ${during.pingP99.toFixed(1)} ms`,
      ]
    : []
}

function roundTrips({ pingP50, pingP99, ackP99 }: Experience): string {
  const ms = (value: number): string => `${value.toFixed(1)} ms`
  return `ping p50 ${ms(pingP50)}, p99 ${ms(pingP99)}; move to ack p99 ${ms(ackP99)}`
}

async function main(): Promise<number> {
  const seconds = Number(values.seconds)
  if (!(seconds >= 1)) wrong(`--seconds is ${values.seconds}; it must be a number from 1 on`)
  const attacks = chosen()
  const say = (line: string): void => void process.stdout.write(`${line}\n`)
  const siege = await Siege.begin()
  let failed = 0
  try {
    const quiet = await siege.quiet(seconds)
    say(`in quiet: ${roundTrips(quiet)}`)
    for (const [index, attack] of attacks.entries()) {
      say(`\n${index + 1}/${attacks.length} ${attack.name}: ${attack.holds}`)
      const { did, broken, during } = await siege.assault(attack, seconds)
      say(`  ${did}`)
      say(`  ${roundTrips(during)}`)
      const problems = [...broken.map((problem) => `BROKEN: ${problem}`), ...slowed(quiet, during)]
      for (const problem of problems) say(`  ${problem}`)
      if (problems.length > 0) failed += 1
    }
  } finally {
    await siege.end()
  }
  say(`\n${attacks.length - failed} of ${attacks.length} attacks were stood`)
  return failed > 0 ? 1 : 0
}

const ROOMS = `${import.meta.dirname}/rooms`
const NODES = 2

/** What the attacker is told. */
interface Order {
  readonly name: string
  readonly seconds: number
  readonly target: Target
}

/** One attack, and what it was like for the others. */
interface Assault extends Outcome {
  readonly during: Experience
}

/** A service of several processes with its default limits, bystanders who play in it, and one attack after the other. */
class Siege {
  readonly target: Target
  readonly #cluster: LocalCluster
  readonly #bystanders: Bystanders
  readonly #attacker: OtherProcess<Order, Outcome>
  /** Processes that have ended without being asked to. */
  readonly #fallen: string[]

  private constructor(target: Target, cluster: LocalCluster, bystanders: Bystanders, fallen: string[]) {
    this.target = target
    this.#cluster = cluster
    this.#bystanders = bystanders
    // Not this process: what the players meet is measured here.
    this.#attacker = new OtherProcess(import.meta.filename)
    this.#fallen = fallen
  }

  static async begin(): Promise<Siege> {
    const fallen: string[] = []
    const redirector = createServer(redirect).listen(0, '127.0.0.1').unref()
    await once(redirector, 'listening')
    const { port } = redirector.address() as AddressInfo
    const { cluster, target } = await startService({
      nodes: NODES,
      roomsDir: ROOMS,
      env: {
        NOTIFY_URL: `http://127.0.0.1:${port}`,
        NOTIFY_SECRET: `whsec_${randomBytes(32).toString('base64')}`,
      },
      onEnd: (line) => fallen.push(line),
    })
    try {
      return new Siege(target, cluster, await Bystanders.gather(target), fallen)
    } catch (error) {
      await cluster.close()
      throw error
    }
  }

  /** What the players meet while no one attacks. */
  quiet(seconds: number): Promise<Experience> {
    return this.#during(() => new Promise((resolve) => setTimeout(resolve, seconds * 1000)))
  }

  /** Has one attack made. */
  async assault({ name }: Attack, seconds: number): Promise<Assault> {
    let outcome: Outcome = { did: 'nothing', broken: [] }
    const during = await this.#during(async () => {
      outcome = await this.#attacker.carryOut({ name, seconds, target: this.target })
    })
    const broken = [
      ...outcome.broken,
      ...this.#fallen.splice(0),
      during.lost > 0 && `${during.lost} bystanders have lost their connection`,
      during.unanswered > 0 && `${during.unanswered} bystanders had no answer`,
    ].filter((problem) => problem !== false)
    return { did: outcome.did, broken, during }
  }

  async end(): Promise<void> {
    this.#attacker.end()
    this.#bystanders.leave()
    await this.#cluster.close()
    await rm(this.#cluster.folder, { recursive: true, force: true })
  }

  async #during(what: () => Promise<unknown>): Promise<Experience> {
    this.#bystanders.begin()
    await what()
    return this.#bystanders.experience()
  }
}

/** A backend that redirects each notice to the address in its data, as an attacker would have it. */
function redirect(request: IncomingMessage, response: ServerResponse): void {
  let text = ''
  request.setEncoding('utf8').on('data', (part) => {
    text += part
  })
  request.on('end', () => response.writeHead(307, { location: JSON.parse(text).data.url }).end())
}

/** Makes one attack, and tells what it came to. */
const attack = ({ name, seconds, target }: Order): Promise<Outcome> =>
  ATTACKS.find((attack) => attack.name === name)!
    .run(target, seconds)
    .catch((error: unknown): Outcome => ({ did: 'it broke off', broken: [String(error)] }))

if (process.send) carryOutOrders(attack)
else if (values.help) process.stdout.write(HELP)
else process.exit(await main())
