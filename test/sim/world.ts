import { PerformanceObserver } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import { PublicProtocol } from 'paseto'
import { ExportPublicKeyFactory, GenerateKeyPairFactory } from 'paseto/v4/public'
import type { Logger } from 'pino'
import { noUrl } from '../../dataplane/features/notices/notice.ts'
import type { NodeOptions } from '../../dataplane/node.ts'
import { sleep, timestamp } from '../../shared/clock.ts'
import { issueToken, type SigningKey } from '../../shared/tokens.ts'
import { Run, type RunOptions } from '../chaos/harness/run.ts'
import {
  type OwnedRoom,
  ownedRoom,
  type System,
  type SystemHistory,
  type SystemLink,
} from '../chaos/harness/system.ts'
import { historyOf, overriding } from '../chaos/node/recording-store.ts'
import { TestTime } from '../kit/fake-clock.ts'
import { SeededRandom } from '../kit/seeded-random.ts'
import type { Door } from '../players/player.ts'
import { callControl } from '../support/calls.ts'
import { SimControl } from './control.ts'
import type { Conditions } from './network.ts'
import { type Mutation, SimNode } from './node.ts'
import { SimStoreServer } from './store.ts'

/** Id of the project in a world without a control plane. */
const PROJECT = 'prj_sim'
const TOKEN_MS = 24 * 3_600_000
/** The issuer's clock is this much slow, so that nodes accept its tokens after a jump of their clocks in either direction. */
const ISSUER_LAG_MS = 12 * 3_600_000
const START_ATTEMPTS = 10
const START_AGAIN_MS = 500
/** Simulated time between two checks for the end of the run. */
const LOOK_MS = 100

const protocol = new PublicProtocol(GenerateKeyPairFactory, ExportPublicKeyFactory)

const { subtle } = globalThis.crypto
const OPERATIONS = ['verify', 'sign', 'digest', 'importKey', 'exportKey', 'generateKey'] as const

/** Counts the cryptographic operations that other threads compute. Simulated time waits for them, so that a run can be repeated. */
class Cryptography {
  #running = 0

  get busy(): boolean {
    return this.#running > 0
  }

  /** Starts to count. The returned function stops. */
  watch(): () => void {
    for (const name of OPERATIONS)
      Object.defineProperty(subtle, name, {
        configurable: true,
        value: (...words: never[]): Promise<unknown> => {
          this.#running += 1
          const operation = Reflect.apply(SubtleCrypto.prototype[name], subtle, words) as Promise<unknown>
          return operation.finally(() => {
            this.#running -= 1
          })
        },
      })
    return () => {
      for (const name of OPERATIONS) Reflect.deleteProperty(subtle, name)
    }
  }
}

/**
 * Disables performance observers until the returned function is called. The metrics of each node start an observer of garbage collections and
 * never stop it, so the observers would keep all nodes of all runs in memory.
 */
function ignoreGarbageCollections(): () => void {
  const { prototype } = PerformanceObserver
  const { observe } = prototype
  prototype.observe = () => undefined
  return () => {
    prototype.observe = observe
  }
}

/** Place for a node. Its processes, one after the other, use the same network. */
interface Slot {
  readonly conditions: Conditions
  lives: number
  node: SimNode | undefined
}

/** Size, faults and mistake of a simulated run. */
export interface WorldOptions extends Omit<RunOptions, 'unfenced' | 'lobby' | 'queue' | 'backends' | 'say'> {
  /** Number of players who find rooms by lists, codes and reservations. Default: 0. */
  readonly lobby?: number
  /** Number of backends that call rooms and receive notices. Default: 0, and no control plane. */
  readonly backends?: number
  /** Number of players who queue for matches. Default: 0. */
  readonly queue?: number
  /** Mistake of all nodes. Default: none. */
  readonly mutation?: Mutation
  /** Called with each timeout of the run. Default: ignored. */
  readonly say?: (line: string) => void
  /** Logger of the nodes. Default: no logs. */
  readonly log?: Logger
}

/**
 * A deployment in one process and in simulated time: real nodes and real clients over a simulated network, a simulated store server and simulated
 * processes. The seed decides all events.
 */
export class SimWorld implements System {
  readonly #cryptography = new Cryptography()
  readonly #time = new TestTime(() => this.#cryptography.busy)
  readonly clock = this.#time.clock
  readonly store = new SimStoreServer(this.clock)
  readonly control?: SimControl
  readonly #options: WorldOptions
  readonly #random: SeededRandom
  readonly #key: SigningKey
  readonly #askKeyStatus: NonNullable<NodeOptions['askKeyStatus']>
  readonly #slots: Slot[]
  readonly #connections = { count: 0, next: () => ++this.#connections.count }
  /** All processes of nodes since the start of the run. */
  readonly #lives: SimNode[] = []

  private constructor(options: WorldOptions, key: SigningKey, publicKey: string) {
    this.#options = options
    this.#random = new SeededRandom(Math.imul(options.seed + 1, 0x9e3779b1))
    this.#key = key
    this.#askKeyStatus = async () => ({
      exists: true,
      status: 'active',
      public_key: publicKey,
    })
    if (options.backends)
      this.control = new SimControl({
        clock: this.clock,
        random: new SeededRandom(Math.imul(options.seed + 2, 0x9e3779b1)),
        server: this.store,
        nodes: () => this.#slots.flatMap(({ node }) => node ?? []),
      })
    this.#slots = Array.from({ length: options.nodes }, () => ({
      conditions: { delayMs: 0, held: false },
      lives: 0,
      node: undefined,
    }))
  }

  /** Runs players and faults in a new world. Resolves with the history of the run. */
  static async run(options: WorldOptions) {
    const { publicKey, secretKey } = await protocol.GenerateKeyPair()
    const world = new SimWorld(options, secretKey, await protocol.ExportPublicKey(publicKey))
    const undos = [world.#cryptography.watch(), ignoreGarbageCollections()]
    const undo = options.mutation?.code?.()
    if (undo) undos.push(undo)
    const history = (async () => {
      await world.control?.start()
      await Promise.all(world.#slots.map((_, slot) => world.startNode(slot)))
      return new Run(
        {
          say: () => undefined,
          unfenced: options.mutation !== undefined,
          lobby: 0,
          queue: 0,
          backends: 0,
          ...options,
        },
        world,
      ).history()
    })()
    let over = false
    const end = (): void => {
      over = true
      for (const undo of undos) undo()
    }
    history.then(end, end)
    while (!over) await world.#time.pass(LOOK_MS)
    return history
  }

  readonly dial = (door: Door): Duplex => {
    const node = this.#lives.find(({ node: name }) => name === door.node)!
    return node.dial()
  }

  async login(): Promise<{ projectId: string; token: string }> {
    const { control } = this
    const project =
      control && (await callControl(control.url, 'POST', '/projects', { name: 'sim' }, {}, control.fetch))
    const projectId = project?.id ?? PROJECT
    return { projectId, token: await this.tokenOf(projectId) }
  }

  tokenOf(projectId: string, sub?: string): Promise<string> {
    const now = this.clock.now() - ISSUER_LAG_MS
    return issueToken(this.#key, {
      project_id: projectId,
      ...(sub !== undefined && { sub }),
      issued_at: timestamp(now),
      expires_at: timestamp(now + TOKEN_MS),
    })
  }

  doors(): Door[] {
    return this.#slots.flatMap(({ node }) =>
      node?.alive ? [{ node: node.node, url: `ws://${node.node}.test` }] : [],
    )
  }

  node(slot: number): SimNode | undefined {
    const { node } = this.#slots[slot]!
    return node?.alive ? node : undefined
  }

  link(slot: number): SystemLink {
    const place = this.#slots[slot]!
    const change = (): void => place.node?.connection.changed()
    return {
      cut: () => place.node?.connection.lose(),
      delay: (ms) => {
        place.conditions.delayMs = ms
      },
      hold: (held) => {
        place.conditions.held = held
        change()
      },
    }
  }

  async startNode(slot: number): Promise<void> {
    const place = this.#slots[slot]!
    for (let attempt = 1; ; attempt++) {
      place.lives += 1
      const { log, direct, mutation = {} } = this.#options
      const node = new SimNode({
        node: `node${slot + 1}.${place.lives}`,
        clock: this.clock,
        random: new SeededRandom(this.#random.integer(1, 2 ** 31)),
        server: this.store,
        connections: this.#connections,
        conditions: place.conditions,
        askKeyStatus: this.#askKeyStatus,
        postNotice: this.control?.notices.post ?? noUrl,
        direct,
        mutation,
        ...(log && { log: log.child({ node: `node${slot + 1}.${place.lives}` }) }),
      })
      place.node = node
      this.#lives.push(node)
      try {
        await node.start()
        return
      } catch (error) {
        await node.kill()
        if (attempt === START_ATTEMPTS) throw error
        await sleep(this.clock, START_AGAIN_MS)
      }
    }
  }

  async killNodes(): Promise<void> {
    await Promise.all(this.#lives.map((node) => node.kill()))
  }

  async owners(): Promise<OwnedRoom[]> {
    return this.#slots.flatMap(({ node }) =>
      node?.alive ? node.describe().map((room) => ownedRoom(room, node.node)) : [],
    )
  }

  history(): SystemHistory {
    return historyOf(this.#lives.map((life) => ({ node: life.node, ...life.history() })))
  }

  async openStore() {
    return overriding(this.store.data, { close: async () => undefined })
  }
}
