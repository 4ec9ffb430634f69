import { createControlApp } from '../../control/app.ts'
import { Keyring } from '../../control/keyring.ts'
import type { NodeCall } from '../../control/nodes.ts'
import type { PostNotice } from '../../dataplane/features/notices/notice.ts'
import { type Clock, sleep } from '../../shared/clock.ts'
import { PROBLEMS, Problem, type ProblemCode } from '../../shared/problem.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Mood, Notices, SystemControl } from '../chaos/harness/system.ts'
import { controlStore } from '../chaos/node/recording-store.ts'
import type { SeededRandom } from '../kit/seeded-random.ts'
import { controlDeps } from '../support/control-deps.ts'
import { type Conditions, Gate, Lane } from './network.ts'
import { INTERNAL_TOKEN, type SimNode } from './node.ts'
import { type SimStoreServer, StoreConnection } from './store.ts'

const URL = 'http://control.test'
/** Time limit of one request, milliseconds. */
const ANSWER_MS = 12_000
/** A node's timeout for the webhook, milliseconds. */
const ATTEMPT_MS = 1500

interface ControlOptions {
  readonly clock: Clock
  readonly random: SeededRandom
  readonly server: SimStoreServer
  readonly nodes: () => readonly SimNode[]
}

/** Webhook of the backends. Depending on its `mood` it accepts, fails, does not answer, or answers after the node's timeout. */
class Webhook implements Notices {
  onNotice: Notices['onNotice'] = () => {}
  mood: () => Mood = () => 'accepts'
  readonly #clock: Clock
  readonly #random: SeededRandom

  constructor(clock: Clock, random: SeededRandom) {
    this.#clock = clock
    this.#random = random
  }

  readonly post: PostNotice = async ({ id, body }) => {
    const way = new Lane(this.#clock, this.#random)
    await new Promise<void>((resolve) => way.send(resolve))
    const mood = this.mood()
    this.onNotice(id, body, mood === 'accepts')
    await sleep(this.#clock, mood === 'silent' || mood === 'late' ? ATTEMPT_MS : 0)
    if (mood === 'silent' || mood === 'late') throw new Error('no answer')
    await new Promise<void>((resolve) => way.send(resolve))
    return { status: mood === 'fails' ? 500 : 204 }
  }
}

/** The control plane in a simulated process. Projects and keys are in a separate store without faults. */
export class SimControl implements SystemControl {
  readonly url = URL
  readonly notices: Webhook
  readonly #options: ControlOptions
  readonly #own
  readonly #conditions: Conditions = { delayMs: 0, held: false }
  /** Functions that reject the requests without an answer. */
  readonly #unanswered = new Set<() => void>()
  #app: ReturnType<typeof createControlApp> | undefined
  #connection: StoreConnection | undefined
  #gate = new Gate()

  constructor(options: ControlOptions) {
    const { clock, random } = options
    this.#options = options
    this.#own = memoryStore({ clock })
    this.notices = new Webhook(clock, random)
  }

  readonly fetch: typeof fetch = async (url, init) => {
    const request = new Request(url as string, { ...init, signal: null })
    const app = this.#app
    if (!app) throw new TypeError('fetch failed: connection refused')
    return this.#within(ANSWER_MS, async () => app.fetch(request))
  }

  async start(): Promise<void> {
    const { clock, random, server } = this.#options
    const gate = new Gate()
    const connection = new StoreConnection({ server, random, conditions: this.#conditions, gate })
    this.#gate = gate
    this.#connection = connection
    this.#app = createControlApp({
      ...controlDeps({ store: controlStore(this.#own, connection.store), clock }),
      keyring: new Keyring(undefined, random),
      random,
      openTo: 'everyone',
      nodes: { call: (call) => this.#call(call), adminPages: async () => [] },
      internalToken: INTERNAL_TOKEN,
    })
  }

  async kill(): Promise<void> {
    this.#app = undefined
    this.#gate.kill()
    this.#connection?.abandon()
    for (const reject of this.#unanswered) reject()
  }

  /** Sends a call to a random node and, without an answer, to the next one. Stands for `Nodes`, which uses HTTP. */
  async #call({ method, path, query = {}, body }: NodeCall): Promise<object> {
    const { nodes, random } = this.#options
    const candidates = nodes().filter(({ alive }) => alive)
    while (candidates.length > 0) {
      const [node] = candidates.splice(random.integer(0, candidates.length - 1), 1)
      const words = Object.entries(query).filter((word): word is [string, string] => word[1] !== undefined)
      const address = `http://${node!.node}.test${path}?${new URLSearchParams(words)}`
      const request = new Request(address, {
        method,
        headers: { 'x-service-internal-token': INTERNAL_TOKEN, 'content-type': 'application/json' },
        ...(body && { body: JSON.stringify(body) }),
      })
      const response = await this.#within(ANSWER_MS, () => node!.request(request)).catch(() => undefined)
      if (!response) continue
      const answer = JSON.parse(response.body) as { code: ProblemCode; detail: string }
      if (response.status < 300) return answer
      if (!(answer.code in PROBLEMS)) break
      const headers = response.retryAfter === null ? {} : { 'retry-after': response.retryAfter }
      throw new Problem(answer.code, answer.detail, { headers })
    }
    throw new Problem('node_unavailable', 'No node answers.', { headers: { 'retry-after': '1' } })
  }

  /** Rejects when `work` takes longer than `ms`, or when control is killed. */
  #within<T>(ms: number, work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const lost = (): void => end(() => reject(new TypeError('fetch failed: connection lost')))
      const cancel = this.#options.clock.schedule(ms, lost)
      const end = (how: () => void): void => {
        cancel()
        this.#unanswered.delete(lost)
        how()
      }
      this.#unanswered.add(lost)
      work().then(
        (value) => end(() => resolve(value)),
        (error: unknown) => end(() => reject(error as Error)),
      )
    })
  }
}
