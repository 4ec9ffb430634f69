import { type ChildProcess, fork } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { LocalCluster } from '../../deploy/local/local-cluster.ts'
import { roomfulProgram } from '../../deploy/local/programs.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'
import type { Attack, Outcome } from './attacks.ts'
import { Bystanders, type Experience } from './bystanders.ts'
import { call, type Target } from './target.ts'

const ROOMS = fileURLToPath(new URL('./rooms', import.meta.url))
const ATTACKER = fileURLToPath(new URL('./attacker.ts', import.meta.url))
const HOST = '127.0.0.1'
const NODES = 2
/** An attack that takes so much longer than it was to hangs. */
const SPARE_SECONDS = 60

/** What the attacker is told. */
export interface Order {
  readonly name: string
  readonly seconds: number
  readonly target: Target
}

/** One attack, and what it was like for the others. */
interface Assault extends Outcome {
  readonly during: Experience
}

/** A service of several processes with its default limits, bystanders who play in it, and one attack after the other. */
export class Siege {
  readonly target: Target
  readonly #cluster: LocalCluster
  readonly #bystanders: Bystanders
  readonly #attacker: ChildProcess
  /** Processes that have ended without being asked to. */
  readonly #fallen: string[]

  private constructor(target: Target, cluster: LocalCluster, bystanders: Bystanders, fallen: string[]) {
    this.target = target
    this.#cluster = cluster
    this.#bystanders = bystanders
    // Not this process: what the players meet is measured here.
    this.#attacker = fork(ATTACKER, { execArgv: ['--import', 'tsx'] })
    this.#fallen = fallen
  }

  static async begin(): Promise<Siege> {
    const fallen: string[] = []
    const cluster = await LocalCluster.prepare({
      options: { nodes: NODES, controls: 1, balancer: 'builtin', freePorts: true, advertise: false },
      env: {
        ...process.env,
        NODE_ENV: 'production',
        ROOMS_DIR: ROOMS,
        HEARTBEAT_SECONDS: '10',
        LOG_LEVEL: 'error',
      },
      roomful: roomfulProgram().words,
      clock: systemClock,
      random: systemRandom,
      tell: (line, asked) => void (asked || fallen.push(line)),
    })
    try {
      await cluster.start()
      const { ports, secrets } = cluster
      const access = { controlUrl: `http://${HOST}:${ports.api}`, operatorToken: secrets.operatorToken }
      const { id: projectId } = await call(access, '/projects', { name: 'under attack' })
      const target: Target = {
        ...access,
        wsUrls: ports.nodes.map(({ websocket }) => `ws://${HOST}:${websocket}`),
        adminUrls: ports.nodes.map(({ admin }) => `http://${HOST}:${admin}`),
        nodePids: ports.nodes.map((_, index) => cluster.child(`node-${index + 1}`)?.pid ?? 0),
        redisUrl: cluster.redisUrl,
        projectId: projectId!,
      }
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
      outcome = await this.#attack({ name, seconds, target: this.target })
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
    this.#attacker.kill('SIGKILL')
    this.#bystanders.leave()
    await this.#cluster.close()
    await rm(this.#cluster.folder, { recursive: true, force: true })
  }

  async #during(what: () => Promise<unknown>): Promise<Experience> {
    this.#bystanders.begin()
    await what()
    return this.#bystanders.experience()
  }

  #attack(order: Order): Promise<Outcome> {
    const attacker = this.#attacker
    return new Promise((resolve, reject) => {
      const broken = (): void => reject(new Error(`the attacker did not come to the end of ${order.name}`))
      const timer = setTimeout(broken, (order.seconds + SPARE_SECONDS) * 1000)
      attacker.once('exit', broken)
      attacker.once('message', (outcome: Outcome) => {
        clearTimeout(timer)
        attacker.off('exit', broken)
        resolve(outcome)
      })
      attacker.send(order)
    })
  }
}
