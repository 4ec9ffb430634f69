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

Starts a service of two nodes on this machine with honest players, and attacks it from another process, with one attack after the other. Prints
for each attack its actions, the broken promises (BROKEN), and the round trips of the players in milliseconds. SLOW: their p99 has more than
doubled, or a promise about time was kept too late.

  --seconds N     duration of each attack (10)
  --only NAMES    only these attacks, separated by commas: ${ATTACKS.map(({ name }) => name).join(', ')}

The exit code is 1 if there is a BROKEN or a SLOW.
`
/** A shorter p99 does not count as slow: the attacker uses the same two cores. */
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
        ATTACKS.find((attack) => attack.name === name) ?? wrong(`--only has ${name}, which is not an attack`),
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

const sentences = (problems: Outcome['slow'] = []): string[] =>
  problems.filter((problem) => problem !== false)

function roundTrips({ pingP50, pingP99, ackP99 }: Experience): string {
  const ms = (value: number): string => `${value.toFixed(1)} ms`
  return `ping p50 ${ms(pingP50)}, p99 ${ms(pingP99)}; move to ack p99 ${ms(ackP99)}`
}

async function main(): Promise<number> {
  const seconds = Number(values.seconds)
  if (!(seconds >= 1)) wrong(`--seconds is ${values.seconds}: use a number from 1`)
  const attacks = chosen()
  const say = (line: string): void => void process.stdout.write(`${line}\n`)
  const siege = await Siege.begin()
  let failed = 0
  try {
    const quiet = await siege.quiet(seconds)
    say(`without an attack: ${roundTrips(quiet)}`)
    for (const [index, attack] of attacks.entries()) {
      say(`\n${index + 1}/${attacks.length} ${attack.name}: ${attack.holds}`)
      const { did, broken, slow, during } = await siege.assault(attack, seconds)
      say(`  ${did}`)
      say(`  ${roundTrips(during)}`)
      const problems = [
        ...broken.map((problem) => `BROKEN: ${problem}`),
        ...slow.map((problem) => `SLOW: ${problem}`),
        ...(attack.ignoresTimes ? [] : slowed(quiet, during)),
      ]
      for (const problem of problems) say(`  ${problem}`)
      if (problems.length > 0) failed += 1
    }
  } finally {
    await siege.end()
  }
  say(`\nwithstood ${attacks.length - failed} of ${attacks.length} attacks`)
  return failed > 0 ? 1 : 0
}

const ROOMS = `${import.meta.dirname}/rooms`
const NODES = 2

/** Order for the attacker's process. */
interface Order {
  readonly name: string
  readonly seconds: number
  readonly target: Target
}

/** Result of one attack, with the measurements of the players. */
interface Assault {
  readonly did: string
  readonly broken: readonly string[]
  readonly slow: readonly string[]
  readonly during: Experience
}

/** A service of several processes with its default limits, its bystanders, and the attacker's process. */
class Siege {
  readonly target: Target
  readonly #cluster: LocalCluster
  readonly #bystanders: Bystanders
  readonly #attacker: OtherProcess<Order, Outcome>
  /** Processes that have ended unexpectedly. */
  readonly #fallen: string[]

  private constructor(target: Target, cluster: LocalCluster, bystanders: Bystanders, fallen: string[]) {
    this.target = target
    this.#cluster = cluster
    this.#bystanders = bystanders
    // Another process, because this process measures the players.
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
        // Other addresses of this machine are addresses of clients.
        TRUSTED_PROXIES: '127.0.0.1',
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

  /** Measures the players without an attack. */
  quiet(seconds: number): Promise<Experience> {
    return this.#during(() => new Promise((resolve) => setTimeout(resolve, seconds * 1000)))
  }

  /** Runs one attack. */
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
    ]
    return { did: outcome.did, broken: sentences(broken), slow: sentences(outcome.slow), during }
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

/** A backend that redirects each notice to the address in its data. */
function redirect(request: IncomingMessage, response: ServerResponse): void {
  let text = ''
  request.setEncoding('utf8').on('data', (part) => {
    text += part
  })
  request.on('end', () => response.writeHead(307, { location: JSON.parse(text).data.url }).end())
}

/** Runs one attack. Resolves with its outcome. */
const attack = ({ name, seconds, target }: Order): Promise<Outcome> =>
  ATTACKS.find((attack) => attack.name === name)!
    .run(target, seconds)
    .catch((error: unknown): Outcome => ({ did: 'the attack failed', broken: [String(error)] }))

if (process.send) carryOutOrders(attack)
else if (values.help) process.stdout.write(HELP)
else process.exit(await main())
