import type { RoomDefinition } from '../../dataplane/rooms/definition.ts'
import type { RoomLimits } from '../../dataplane/rooms/environment.ts'
import { type RoomAddress, roomName, type ToEdge, type ToOwner } from '../../dataplane/traffic.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { textOf } from './digest.ts'
import { Ledger } from './ledger.ts'
import { ModelEdge } from './model-edge.ts'
import { LEASE_MS, ModelNode, type Mutation } from './model-node.ts'
import { type Answer, type Pending, Process } from './process.ts'
import { SimClock, type SimTime } from './sim-clock.ts'
import { type Operation, SimStore } from './sim-store.ts'

/**
 * What may go wrong. Of a call of the store: it takes place and the answer is `lost`; it does not take place (`refused`); it takes
 * place `late`, after the caller was told that the store is silent; it, or the answer to it, takes long (`slow`). Of a node: `pause`, `crash`,
 * `restart` under the same id, `cut` from the store. Of both: `outage`. Of messages: `drop` to an edge. Of everything: `reorder`.
 */
export const FAULTS = [
  'lost',
  'refused',
  'late',
  'slow',
  'pause',
  'crash',
  'restart',
  'cut',
  'outage',
  'drop',
  'reorder',
] as const
export type Fault = (typeof FAULTS)[number]

/** How long pauses, cuts and slow calls last when nothing ends them before: longer than a lease. */
const FAULT_MS = 1.5 * LEASE_MS
/** After this much time without faults everything must have come to rest. */
const PATIENT_MS = 20_000

/** Something the members or operators of a world do, at a time after the beginning. */
export interface Act {
  readonly at: number
  readonly what: string
  readonly run: (world: World) => void
}

/** What a world is made of. */
export interface WorldParts {
  readonly room: RoomAddress
  readonly definition: RoomDefinition
  /** Each edge has one member, and asks its first node first. */
  readonly edges: readonly { readonly member_id: string; readonly nodes: readonly string[] }[]
  /** Before anything goes wrong. */
  readonly before: readonly Act[]
  /** While things go wrong. */
  readonly script: readonly Act[]
  readonly faults: readonly Fault[]
  readonly limits?: Partial<RoomLimits>
  readonly record_ttl_ms?: number
  readonly mutation?: Mutation | undefined
}

/** One thing that may happen next, and how far it is from the ordinary. */
export interface Choice {
  readonly label: string
  /** 0: ordinary, or a free choice; 1: a deviation. */
  readonly cost: number
  readonly take: () => void | Promise<void>
}

interface Item extends Choice {
  readonly rank: number
  readonly order: number
  /** The process it happens to. */
  readonly process: Process | undefined
  readonly instead: readonly Choice[]
}

interface Link {
  readonly to: string
  readonly queue: Pending<() => void>[]
  /** What is on it, for people. */
  sent: number
}

/** A call, or an answer, that takes long. */
interface Landing {
  readonly id: string
  readonly due: number
  readonly land: () => void | Promise<void>
}

const QUEUE = 0
const ENDING = 1
const TIMER = 2
const SCRIPT = 3
const NODES = ['A', 'B'] as const

/** Two nodes, one room, a store and some edges, in which nothing happens but what is chosen. */
export class World {
  readonly ledger = new Ledger()
  readonly edges: readonly ModelEdge[]
  readonly #parts: WorldParts
  readonly #time: SimTime = { ms: 0 }
  readonly #store: SimStore
  readonly #processes: Process[] = []
  readonly #links = new Map<string, Link>()
  #landings: Landing[] = []
  #script: Act[]
  #phase: 'before' | 'explored' | 'healing' | 'after' | 'over' = 'before'
  #order = 0
  #deadline = Number.POSITIVE_INFINITY

  constructor(parts: WorldParts) {
    this.#parts = parts
    this.#script = [...parts.before]
    this.#store = new SimStore(
      new SimClock(this.#time),
      () => this.#time.ms,
      (operation) => this.#asked(operation),
    )
    this.edges = parts.edges.map(
      ({ member_id, nodes }, i) =>
        new ModelEdge({
          name: `edge_${i + 1}`,
          room: parts.room,
          member_id,
          nodes,
          clock: new SimClock(this.#time),
          send: (node, message) => this.#toNode(`edge_${i + 1}`, node, message),
          violate: (text) => this.ledger.violate(text),
        }),
    )
    for (const node of NODES) this.#start(node, node)
  }

  /** Whether choices are open. */
  get explored(): boolean {
    return this.#phase === 'explored'
  }

  get over(): boolean {
    return this.#phase === 'over'
  }

  get now(): number {
    return this.#time.ms
  }

  /** Equal for worlds from which the same can follow. */
  get digest(): string {
    const pending = this.#processes.flatMap(({ operations, answers, deferred }) => [
      ...operations,
      ...answers,
      ...(deferred ? [deferred] : []),
    ])
    const queued = [...pending, ...[...this.#links.values()].flatMap(({ queue }) => queue)]
    return [
      this.#phase,
      this.#time.ms,
      this.#script.length,
      ...this.#processes.map(({ digest }) => digest),
      ...this.edges.map(({ digest }) => digest),
      ...queued.sort((a, b) => a.order - b.order).map(({ id }) => id),
      ...this.#landings.map(({ id, due }) => `${id} ${due}`),
      this.#store.digest,
    ].join(' ')
  }

  /** What may happen next; the first is the ordinary. Never empty before it is over. */
  choices(): Choice[] {
    const items = this.#items()
    const [first, ...others] = items
    if (!first) return [this.#rest()]
    if (!this.explored) return [first]
    const reordered = this.#may('reorder')
      ? others
          .filter(({ rank }) => rank < SCRIPT || first.rank < SCRIPT)
          .map((item) => ({ ...item, label: `early: ${item.label}`, cost: 1 }))
      : []
    return [first, ...first.instead, ...this.#nodeFaults(first), ...reordered, ...this.#early()]
  }

  /** The node hands over what it has, and ends. */
  drain(node: string): void {
    const process = this.#process(node)
    if (!process?.running) return
    process.lived('drain')
    process.draining = true
    process.model.drain()
  }

  /** The rooms that run on nodes that live. */
  get running(): { readonly node: string; readonly epoch: number; readonly seq: number }[] {
    return this.#processes
      .filter(({ alive }) => alive)
      .flatMap(({ node, model }) => model.rooms.map(({ epoch, seq }) => ({ node, epoch, seq })))
  }

  /** The store without its network, to look at the end. */
  get store() {
    return this.#store.raw
  }

  get room(): string {
    return roomName(this.#parts.room)
  }

  #may(fault: Fault): boolean {
    return this.#parts.faults.includes(fault)
  }

  // ---- what is to happen

  #items(): Item[] {
    const items: Item[] = []
    for (const process of this.#processes) this.#itemsOf(process, items)
    for (const [name, link] of this.#links) {
      const [head] = link.queue
      if (head && this.#reads(link.to)) items.push(this.#message(name, link, head))
    }
    for (const landing of this.#landings) {
      if (landing.due > this.#time.ms) continue
      items.push({
        rank: ENDING,
        order: landing.due,
        process: undefined,
        instead: [],
        ...this.#landing(landing),
      })
    }
    for (const edge of this.edges) {
      const { due, next } = edge.clock
      if (due === undefined || due > this.#time.ms) continue
      items.push({
        rank: TIMER,
        order: due,
        process: undefined,
        label: `${edge.member_id} waited (${next})`,
        cost: 0,
        take: () => edge.fire(),
        instead: [],
      })
    }
    const [act] = this.#script
    if (act && act.at <= this.#time.ms) items.push(this.#act(act))
    return items.sort((a, b) => a.rank - b.rank || a.order - b.order)
  }

  #itemsOf(process: Process, items: Item[]): void {
    const { id, operations, answers, deferred, clock, paused_until, cut_until } = process
    const [operation] = operations
    if (operation) items.push(this.#operation(process, operation))
    if (cut_until !== undefined && cut_until <= this.#time.ms)
      items.push({
        ...plain(`${id} reaches the store again`, () => {
          process.cut_until = undefined
        }),
        rank: ENDING,
        order: cut_until,
      })
    if (!process.alive) return
    if (paused_until !== undefined) {
      if (paused_until <= this.#time.ms)
        items.push({
          ...this.#wake(process, false),
          rank: ENDING,
          order: paused_until,
          process: undefined,
          instead: this.explored ? [this.#wake(process, true)] : [],
        })
      return
    }
    const [answer] = answers
    if (answer)
      items.push({
        ...plain(`${id} hears of ${answer.value.operation.name}`, () => {
          answers.shift()
          this.#hear(process, answer.id, answer.value)
        }),
        order: answer.order,
        process,
      })
    if (deferred)
      items.push({
        ...plain(`${id} ends its turn`, () => {
          process.deferred = undefined
          process.lived('turn')
          for (const callback of deferred.value) callback()
        }),
        order: deferred.order,
        process,
      })
    const { due, next } = clock
    if (due === undefined || due > this.#time.ms) process.timers_first = false
    else
      items.push({
        ...plain(`${id} timer ${next}`, () => {
          process.lived(`timer ${next}`)
          clock.fire()
        }),
        rank: process.timers_first ? -1 : TIMER,
        order: due,
        process,
      })
  }

  #operation(process: Process, pending: Pending<Operation>): Item {
    const { id, value: operation, order } = pending
    const { name, writes } = operation
    const label = `${process.id} ${name}${describe(operation)}`
    const gone = (then: () => void | Promise<void>) => () => {
      process.operations.shift()
      return then()
    }
    const fail = () => this.#answer(process, id, operation, undefined, new StoreUnavailable(name))
    if (process.cut_until !== undefined)
      return { ...plain(`${label}: out of reach`, gone(fail)), order, process }
    const instead: Choice[] = []
    const add = (fault: Fault, text: string, then: () => void | Promise<void>) => {
      if (this.#may(fault)) instead.push({ label: `${label}: ${text}`, cost: 1, take: gone(then) })
    }
    const later = (land: () => void | Promise<void>) => {
      this.#landings.push({ id, due: this.#time.ms + FAULT_MS, land })
    }
    add('refused', 'does not take place', fail)
    if (writes) {
      add('lost', 'takes place, the answer is lost', async () => {
        await this.#perform(operation)
        fail()
      })
      add('late', 'the store is silent, and it takes place later', () => {
        later(async () => void (await this.#perform(operation)))
        fail()
      })
      add('slow', 'takes long', () => later(() => this.#complete(process, id, operation)))
    } else
      add('slow', 'the answer takes long', async () => {
        const answer = await this.#perform(operation)
        later(() => this.#answer(process, id, operation, answer.result, answer.error, answer.recorded_epoch))
      })
    add('cut', 'is out of reach, as all that follows', () => {
      process.cut_until = this.#time.ms + FAULT_MS
      fail()
    })
    if (writes)
      add('cut', 'takes place, the answer is lost, and the store is out of reach', async () => {
        process.cut_until = this.#time.ms + FAULT_MS
        await this.#perform(operation)
        fail()
      })
    add('outage', 'the store is out of reach for everybody', () => {
      for (const other of this.#processes) if (other.alive) other.cut_until = this.#time.ms + FAULT_MS
      fail()
    })
    return {
      ...plain(
        label,
        gone(() => this.#complete(process, id, operation)),
      ),
      order,
      process,
      instead,
    }
  }

  #message(name: string, link: Link, { order, value, id }: Pending<() => void>): Item {
    const arrive = () => {
      link.queue.shift()
      value()
    }
    const process = this.#process(link.to)
    const drop = this.#may('drop') && !process
    const instead = drop ? [{ label: `${id} is lost`, cost: 1, take: () => void link.queue.shift() }] : []
    return { ...plain(`${name} (${id})`, arrive), order, process, instead }
  }

  #landing(landing: Landing): Choice {
    return {
      label: `${landing.id} lands`,
      cost: 0,
      take: () => {
        this.#landings = this.#landings.filter((other) => other !== landing)
        return landing.land()
      },
    }
  }

  #wake(process: Process, timers_first: boolean): Choice {
    return {
      label: `${process.id} goes on${timers_first ? ', with its timers' : ''}`,
      cost: 0,
      take: () => {
        process.paused_until = undefined
        process.timers_first = timers_first
      },
    }
  }

  #act(act: Act): Item {
    return {
      ...plain(act.what, () => {
        this.#script.shift()
        act.run(this)
      }),
      rank: SCRIPT,
      order: act.at,
    }
  }

  /** What could befall the process that is about to act. */
  #nodeFaults({ process }: Item): Choice[] {
    if (!process?.running) return []
    const others = this.#processes.some((other) => other !== process && other.alive && !other.draining)
    const faults: Choice[] = []
    const add = (fault: Fault, label: string, take: () => void) => {
      if (this.#may(fault)) faults.push({ label: `${process.id} ${label}`, cost: 1, take })
    }
    add('pause', 'pauses', () => {
      process.paused_until = this.#time.ms + FAULT_MS
    })
    if (others) add('crash', 'crashes', () => this.#crash(process))
    if (others && process.operations.length > 0)
      add('crash', 'crashes before it has sent anything', () => {
        process.operations.length = 0
        this.#crash(process)
      })
    add('restart', 'restarts', () => {
      this.#crash(process)
      const lives = this.#processes.filter(({ node }) => node === process.node).length
      this.#start(`${process.node}${lives + 1}`, process.node)
    })
    return faults
  }

  /** What takes long may end at any moment. */
  #early(): Choice[] {
    return [
      ...this.#processes
        .filter(({ paused_until }) => paused_until !== undefined && paused_until > this.#time.ms)
        .map((process) => this.#wake(process, false)),
      ...this.#landings.filter(({ due }) => due > this.#time.ms).map((landing) => this.#landing(landing)),
    ]
  }

  // ---- when nothing is left to do at this moment

  #rest(): Choice {
    if (this.#phase === 'before' && this.#script.length === 0 && this.#calm) return this.#turn('explored')
    if (this.#phase === 'explored' && this.#script.length === 0 && this.#calm) return this.#turn('healing')
    if (this.#phase === 'healing' && this.#time.ms >= this.#deadline) return this.#turn('after')
    if (this.#phase === 'after' && this.#calm) return this.#turn('over')
    return this.#pass()
  }

  /** Whether everybody has what they asked for, and nothing is wrong at this moment. */
  get #calm(): boolean {
    return (
      this.edges.every(({ settled }) => settled) &&
      this.#landings.length === 0 &&
      this.#processes.every(
        ({ alive, model, paused_until, cut_until }) =>
          !alive || (model.ready && paused_until === undefined && cut_until === undefined),
      )
    )
  }

  #turn(phase: 'explored' | 'healing' | 'after' | 'over'): Choice {
    return {
      label: `— ${phase} —`,
      cost: 0,
      take: () => {
        this.#phase = phase
        const now = this.#time.ms
        if (phase === 'explored') {
          this.#script = this.#parts.script.map((act) => ({ ...act, at: act.at + now }))
          this.#deadline = now + PATIENT_MS
        } else if (phase === 'healing') this.#deadline = now + 2 * LEASE_MS
        else {
          // Everybody must be able to go on.
          this.#deadline = now + PATIENT_MS
          if (phase === 'after') for (const edge of this.edges) edge.say()
        }
      },
    }
  }

  #pass(): Choice {
    const times = [
      ...this.#processes.flatMap(({ running, clock, paused_until, cut_until }) => [
        running ? clock.due : undefined,
        paused_until,
        cut_until,
      ]),
      ...this.edges.map(({ clock }) => clock.due),
      ...this.#landings.map(({ due }) => due),
      this.#script[0]?.at,
      this.#phase === 'healing' ? this.#deadline : undefined,
    ].filter((time) => time !== undefined)
    const next = Math.min(...times)
    return {
      label: `… ${next} ms`,
      cost: 0,
      take: () => {
        if (this.#phase !== 'healing' && next > this.#deadline) {
          this.ledger.violate(`nothing comes to rest within ${PATIENT_MS} ms: some wait for ever`)
          this.#phase = 'over'
        }
        this.#time.ms = Math.max(next, this.#time.ms)
      },
    }
  }

  // ---- how it happens

  #asked(operation: Operation): void {
    const process = this.#processes.find(({ id }) => id === operation.process)!
    if (!process.alive) return
    process.operations.push({ order: this.#order++, id: process.nextOperation(), value: operation })
  }

  async #complete(process: Process, id: string, operation: Operation): Promise<void> {
    const { result, error, recorded_epoch } = await this.#perform(operation)
    this.#answer(process, id, operation, result, error, recorded_epoch)
  }

  async #perform(operation: Operation): Promise<Answer> {
    let result: unknown
    let error: Error | undefined
    try {
      result = await operation.perform()
    } catch (problem) {
      error = problem as Error
    }
    this.ledger.performed(operation, result)
    const recorded_epoch = (await this.#store.raw.rooms.inspect(this.room))?.epoch ?? 0
    return { operation, result, error, recorded_epoch }
  }

  #answer(
    process: Process,
    id: string,
    operation: Operation,
    result: unknown,
    error: Error | undefined,
    recorded_epoch = 0,
  ): void {
    const answer = { operation, result, error, recorded_epoch }
    if (process.running) this.#hear(process, id, answer)
    else if (process.alive) process.answers.push({ order: this.#order++, id, value: answer })
  }

  #hear(process: Process, id: string, { operation, result, error, recorded_epoch }: Answer): void {
    process.lived(`${id} ${error ? error.name : textOf(result)}`)
    if (error) operation.fail(error)
    else {
      this.ledger.answered(operation, result, recorded_epoch)
      operation.answer(result)
    }
  }

  #start(id: string, node: string): void {
    const process = new Process(id, node, this.#time, this.#processes.length * 777)
    this.#processes.push(process)
    const { definition, limits = {}, record_ttl_ms = 600_000, mutation } = this.#parts
    process.model = new ModelNode({
      node_id: `node_${node}`,
      rooms: [definition],
      clock: process.clock,
      store: this.#store.port(id),
      seed: this.#processes.length,
      limits,
      record_ttl_ms,
      mutation,
      deliver: (edge, message) => this.#toEdge(process, edge, message),
      defer: (callback) => {
        if (process.deferred) process.deferred.value.push(callback)
        else process.deferred = { order: this.#order++, id: `${id} turn`, value: [callback] }
      },
    })
    process.model.start()
  }

  #crash(process: Process): void {
    process.alive = false
    process.paused_until = undefined
    process.cut_until = undefined
    process.answers.length = 0
    process.deferred = undefined
    for (const link of this.#links.values()) if (link.to === process.node) link.queue.length = 0
    for (const edge of this.edges) edge.broken(process.node)
  }

  #process(node: string): Process | undefined {
    return this.#processes.find((process) => process.node === node && process.alive)
  }

  /** Whether what is sent to a node or an edge is taken now. */
  #reads(to: string): boolean {
    if (!(NODES as readonly string[]).includes(to)) return true
    const process = this.#process(to)
    return process !== undefined && process.running && process.model.ready
  }

  #toNode(edge: string, node: string, message: ToOwner): void {
    if (!this.#process(node)) return
    this.#send(`${edge} → ${node} ${message.kind}`, `${edge} → ${node}`, node, () => {
      const process = this.#process(node)!
      process.lived(textOf(message))
      process.model.receive(message, edge)
    })
  }

  #toEdge(process: Process, edge: string, message: ToEdge): void {
    this.ledger.emitted(process.id, message, this.#time.ms)
    const to = this.edges[Number(edge.slice('edge_'.length)) - 1]
    this.#send(`${process.id} → ${edge} ${message.kind}`, `${process.id} → ${edge}`, edge, () =>
      to?.receive(message),
    )
  }

  #send(text: string, name: string, to: string, arrive: () => void): void {
    const link = this.#links.get(name) ?? { to, queue: [], sent: 0 }
    this.#links.set(name, link)
    link.queue.push({ order: this.#order++, id: `${text} ${++link.sent}`, value: arrive })
  }
}

const plain = (label: string, take: () => void | Promise<void>): Item => ({
  label,
  cost: 0,
  take,
  rank: QUEUE,
  order: 0,
  process: undefined,
  instead: [],
})

/** Which fence a call names, for people. */
function describe({ name, args }: Operation): string {
  if (name === 'rooms.claim') return ` over epoch ${args[2]}`
  const fence = args[1]
  if (typeof fence !== 'object' || fence === null || !('epoch' in fence)) return ''
  const { epoch, version } = fence as { epoch: number; version: number }
  return ` at ${epoch}.${version}`
}
