import { nodeChannel } from '../../dataplane/cluster/links.ts'
import type { RoomDefinition } from '../../dataplane/room/definition.ts'
import type { RoomLimits } from '../../dataplane/room/limits.ts'
import type { RoomAddress, ToEdge, ToOwner } from '../../dataplane/traffic.ts'
import type { Store } from '../../shared/store/port.ts'
import { Calls } from './calls.ts'
import { type Choice, type Fault, type Item, ordinary, RANK } from './explorer.ts'
import { textOf } from './history.ts'
import { Ledger } from './ledger.ts'
import { Links } from './links.ts'
import { ModelEdge } from './model-edge.ts'
import {
  LEASE_MS,
  ModelNode,
  type Mutation,
  Process,
  SimClock,
  SimStore,
  type SimTime,
} from './model-node.ts'

/** Longest duration of pauses, cuts and slow calls: longer than a lease. */
const FAULT_MS = 1.5 * LEASE_MS
/** Pause in which another process with the same name can acquire the lease and the rooms. */
const REPLACED_MS = 2 * LEASE_MS
/** Time limit of a phase. */
const PATIENT_MS = 20_000
/** Long enough that other nodes take a deaf node for dead. */
const DEAF_MS = 500
const NODES = ['A', 'B']

/** Id of the node in a process. */
const nodeIdOf = ({ node, id }: Process): string => `node_${node}~${id}`

type Phase = 'before' | 'explored' | 'healing' | 'after' | 'over'

/**
 * Two nodes, one room, a store and some edges. Each step is a choice. The phases of a run: the setup (`before`), the part with faults
 * (`explored`), a time without new faults (`healing`), and one more message of each member, which must be answered (`after`).
 */
export class World {
  readonly ledger = new Ledger()
  readonly edges: readonly ModelEdge[]
  readonly #parts: WorldParts
  readonly #time: SimTime = { ms: 0, order: 0 }
  readonly #store: SimStore
  readonly #processes: Process[] = []
  readonly #calls: Calls
  readonly #links: Links
  #script: Act[]
  #phase: Phase = 'before'
  #deadline = Number.POSITIVE_INFINITY

  constructor(parts: WorldParts) {
    this.#parts = parts
    this.#script = [...parts.before]
    const time = this.#time
    this.#store = new SimStore(
      new SimClock(time),
      () => time.ms,
      (operation) => this.#calls.add(this.#processes.find(({ id }) => id === operation.process)!, operation),
    )
    this.#calls = new Calls({
      time,
      ledger: this.ledger,
      store: () => this.store,
      room: this.room,
      processes: this.#processes,
      may: (fault) => this.#may(fault),
      faultMs: FAULT_MS,
    })
    this.#links = new Links(time)
    this.edges = parts.edges.map(
      (edge, i) =>
        new ModelEdge({
          ...edge,
          name: `edge_${i + 1}`,
          room: parts.room,
          clock: new SimClock(time),
          send: (node, message) => this.#toNode(`edge_${i + 1}`, node, message),
          violate: (text) => this.ledger.violate('members', text),
        }),
    )
    for (const node of NODES) this.#start(node, node)
  }

  /** True in the phase with faults. */
  get explored(): boolean {
    return this.#phase === 'explored'
  }

  get over(): boolean {
    return this.#phase === 'over'
  }

  /** The store without its network, for the check at the end. */
  get store(): Store {
    return this.#store.raw
  }

  /** `project/type:key` of the room. */
  get room(): string {
    return this.#parts.room.name
  }

  /** Rooms that run in live processes. */
  get running(): { readonly process: string; readonly epoch: number }[] {
    return this.#processes
      .filter(({ alive }) => alive)
      .flatMap(({ id, model }) => model.rooms.map(({ epoch }) => ({ process: id, epoch })))
  }

  /** Equal for worlds with the same possible futures. */
  get digest(): string {
    const pending = this.#processes.flatMap(({ pending }) => pending).concat(this.#links.pending)
    return [
      this.#phase,
      this.#time.ms,
      this.#script.length,
      ...this.#processes.map(({ digest }) => digest),
      ...this.edges.map(({ digest }) => digest),
      ...pending.sort((a, b) => a.order - b.order).map(({ id }) => id),
      this.#calls.digest,
      this.#store.digest,
    ].join(' ')
  }

  /** Possible next steps. The first one is the ordinary one. Not empty before the run is over. */
  choices(): Choice[] {
    const [first, ...others] = this.#items()
    if (!first) return [this.#rest()]
    if (!this.explored) return [first]
    const reordered = others.map((item) => ({ ...item, label: `before its turn, ${item.label}`, cost: 1 }))
    return [
      first,
      ...first.instead,
      ...this.#befalling(first),
      ...(this.#may('reorder') ? reordered : []),
      ...this.#early(first),
      ...this.#calls.early(first),
    ]
  }

  /** Drains a node. */
  drain(node: string): void {
    const process = this.#process(node)
    if (!process?.running) return
    process.lived('drain')
    process.draining = true
    void process.model.drain()
  }

  /** Restarts the store without its data. `backAfter`: by node, the time until it reconnects, in ms. */
  wipe(backAfter: Readonly<Record<string, number>>): void {
    this.#store.wipe()
    this.ledger.forget()
    for (const process of this.#processes)
      if (process.alive) process.cutUntil = this.#time.ms + (backAfter[process.node] ?? 0)
  }

  #may(fault: Fault): boolean {
    return this.#parts.faults.includes(fault)
  }

  #items(): Item[] {
    const now = this.#time.ms
    const items = this.#processes.flatMap((process) => this.#itemsOf(process))
    items.push(...this.#links.next((to) => this.#receiver(to), this.#may('drop')), ...this.#calls.ending())
    for (const edge of this.edges) {
      const { due, next } = edge.clock
      if (due === undefined || due > now) continue
      const label = `${edge.memberId} has waited (${next})`
      items.push({
        ...ordinary(label, due, undefined, () => edge.fire()),
        rank: RANK.timer,
        about: 'edges',
      })
    }
    const [act] = this.#script
    if (act && act.at <= now) {
      const take = () => {
        this.#script.shift()
        act.run(this)
      }
      items.push({ ...ordinary(act.what, act.at, undefined, take), rank: RANK.act })
    }
    return items.sort((a, b) => a.rank - b.rank || a.order - b.order)
  }

  #itemsOf(process: Process): Item[] {
    const { id, answers, deferred, clock, pausedUntil, cutUntil, deafUntil } = process
    const now = this.#time.ms
    const items: Item[] = []
    const call = this.#calls.next(process)
    if (call) items.push(call)
    const ends = (until: number | undefined, label: string, take: () => void) => {
      if (!process.running || until === undefined || until > now) return
      items.push({ ...ordinary(label, until, undefined, take), rank: RANK.ending })
    }
    ends(cutUntil, `${id} reaches the store again`, () => process.reconnect())
    ends(deafUntil, `${id} receives messages again`, () => process.listen())
    if (!process.alive) return items
    if (pausedUntil !== undefined) {
      const wakes = this.#wake(process, false)
      if (pausedUntil <= now)
        items.push({
          ...ordinary(wakes.label, pausedUntil, undefined, wakes.take),
          rank: RANK.ending,
          instead: [this.#wake(process, true)],
        })
      return items
    }
    const [answer] = answers
    if (answer) {
      const take = () => {
        answers.shift()
        this.#calls.deliver(process, answer.id, answer.value)
      }
      items.push(ordinary(`${id} receives ${answer.value.operation.name}`, answer.order, process, take))
    }
    if (deferred) {
      const take = () => {
        process.deferred = undefined
        process.lived('turn')
        for (const callback of deferred.value) callback()
      }
      items.push(ordinary(`${id} ends its turn`, deferred.order, process, take))
    }
    const { due, next } = clock
    if (due === undefined || due > now) process.timersFirst = false
    else {
      const take = () => {
        process.lived(`timer ${next}`)
        clock.fire()
      }
      const rank = process.timersFirst ? RANK.hurried : RANK.timer
      items.push({ ...ordinary(`${id} timer ${next}`, due, process, take), rank })
    }
    return items
  }

  /** Pauses may end at any moment. That makes a difference only before another process uses shared state. */
  #early({ process: next, about }: Item): Choice[] {
    return this.#processes
      .filter(({ pausedUntil = 0 }) => pausedUntil > this.#time.ms)
      .filter((process) => about !== undefined && process !== next)
      .map((process) => this.#wake(process, false))
  }

  #wake(process: Process, timersFirst: boolean): Choice {
    return {
      label: `${process.id} resumes${timersFirst ? ', with its timers' : ''}`,
      cost: 0,
      take: () => {
        process.pausedUntil = undefined
        process.timersFirst = timersFirst
      },
    }
  }

  /** Faults of the process whose step is next. */
  #befalling({ process }: Item): Choice[] {
    if (!process?.running) return []
    const spare = this.#processes.some((other) => other !== process && other.alive && !other.draining)
    const faults: Choice[] = []
    const add = (fault: Fault, what: string, take: () => void) => {
      if (this.#may(fault)) faults.push({ label: `${process.id} ${what}`, cost: 1, take })
    }
    add('pause', 'pauses', () => {
      process.pausedUntil = this.#time.ms + FAULT_MS
    })
    add('deaf', 'misses the messages of others', () => {
      process.deafUntil = this.#time.ms + DEAF_MS
    })
    if (spare) add('crash', 'crashes', () => this.#crash(process))
    if (spare && process.operations.length > 0)
      add('crash', 'crashes before it sends its store calls', () => {
        process.operations.length = 0
        this.#crash(process)
      })
    const startAgain = () => {
      const lives = this.#processes.filter(({ node }) => node === process.node).length
      this.#start(`${process.node}${lives + 1}`, process.node)
    }
    add('restart', 'restarts', () => {
      this.#crash(process)
      startAgain()
    })
    add('replace', 'pauses, and another process with its name starts', () => {
      process.pausedUntil = this.#time.ms + REPLACED_MS
      startAgain()
    })
    return faults
  }

  /** The only choice when no item is due: the next phase, or the next time. */
  #rest(): Choice {
    const done = this.#script.length === 0 && this.#calm
    if (this.#phase === 'before' && done) return this.#turn('explored')
    if (this.#phase === 'explored' && done) return this.#turn('healing')
    if (this.#phase === 'healing' && this.#time.ms >= this.#deadline) return this.#turn('after')
    if (this.#phase === 'after' && done) return this.#turn('over')
    return this.#pass()
  }

  /** True if all members have their answers, and no fault is active. */
  get #calm(): boolean {
    return (
      this.edges.every(({ answered }) => answered) &&
      this.#calls.dues.length === 0 &&
      this.#processes.every(({ calm }) => calm)
    )
  }

  #turn(phase: Phase): Choice {
    const take = () => {
      const now = this.#time.ms
      this.#phase = phase
      this.#deadline = now + (phase === 'healing' ? LEASE_MS : PATIENT_MS)
      if (phase === 'explored') this.#script = this.#parts.script.map((act) => ({ ...act, at: act.at + now }))
      if (phase === 'after') this.#sayAll()
    }
    return { label: `— ${phase} —`, cost: 0, take }
  }

  #sayAll(): void {
    this.edges.forEach((edge, i) => {
      if (!this.#parts.edges[i]!.watches) edge.say()
    })
  }

  #pass(): Choice {
    const times = [
      ...this.#processes.flatMap(({ times }) => times),
      ...this.edges.flatMap(({ clock }) => clock.due ?? []),
      ...this.#calls.dues,
      ...this.#script.map(({ at }) => at),
      ...(this.#phase === 'healing' ? [this.#deadline] : []),
    ]
    const next = Math.max(this.#time.ms, Math.min(...times))
    const take = () => {
      this.#time.ms = next
      if (next <= this.#deadline) return
      this.ledger.violate('rest', `a member or node still waits after ${PATIENT_MS} ms`)
      this.#phase = 'over'
    }
    return { label: `… ${next} ms`, cost: 0, take }
  }

  #start(id: string, node: string): void {
    const { definition, limits = {}, recordTtlMs = 600_000, mutation } = this.#parts
    // Clocks of different machines differ.
    const process = new Process(id, node, this.#time, this.#processes.length * 777)
    this.#processes.push(process)
    process.model = new ModelNode({
      nodeId: nodeIdOf(process),
      definition,
      clock: process.clock,
      store: this.#store.port(
        id,
        () => process.cutUntil === undefined,
        (callback) => {
          process.onReturn.add(callback)
          return () => process.onReturn.delete(callback)
        },
        (channels) => this.#listeners(process, channels),
      ),
      seed: this.#processes.length,
      limits,
      recordTtlMs,
      mutation,
      deliver: (edge, message) => this.#toEdge(process, edge, message),
      edges: this.edges.map((_, i) => `edge_${i + 1}`),
      ask: (to, room) => this.#toPeer(process, to, room),
      onReplaced: () => process.end(),
      defer: (callback) => {
        if (process.deferred) process.deferred.value.push(callback)
        else process.deferred = { order: this.#time.order++, id: `${id} turn`, value: [callback] }
      },
    })
    process.model.start()
  }

  /** Returns the number of listeners of each channel. A paused process still listens. */
  async #listeners(asking: Process, channels: readonly string[]): Promise<number[] | undefined> {
    if (!this.#parts.hints) return undefined
    const counts = channels.map((channel) => {
      const process = this.#processes.find((one) => one.alive && channel === nodeChannel(nodeIdOf(one)))
      return process && process.deafUntil === undefined ? 1 : 0
    })
    asking.lived(`listeners ${counts}`)
    return counts
  }

  #crash(process: Process): void {
    process.end()
    this.#links.clear(process.node)
  }

  #process(node: string): Process | undefined {
    return this.#processes.findLast((process) => process.node === node && process.alive)
  }

  /** Receiver of messages to a node or an edge. Undefined: the node cannot receive now. */
  #receiver(to: string): { readonly process?: Process } | undefined {
    if (!NODES.includes(to)) return {}
    const process = this.#process(to)
    return process?.running && process.model.ready ? { process } : undefined
  }

  #toNode(edge: string, node: string, message: ToOwner): void {
    if (!this.#process(node)) return
    this.#links.send(edge, node, message.kind, () => {
      const process = this.#process(node)!
      process.lived(textOf(message))
      process.model.receive(message, edge)
    })
  }

  #toPeer(from: Process, to: string, room: RoomAddress): void {
    const process = this.#processes.find((one) => one.alive && nodeIdOf(one) === to)
    if (!process) return
    this.#links.send(from.id, process.node, 'open', () => {
      if (!process.alive) return
      process.lived('open')
      process.model.open(room)
    })
  }

  #toEdge(process: Process, edge: string, message: ToEdge): void {
    this.ledger.emitted(process.id, message, this.#time.ms)
    const to = this.edges[Number(edge.slice('edge_'.length)) - 1]
    this.#links.send(process.id, edge, message.kind, (missed) => {
      if (missed) to?.missed()
      to?.receive(message)
    })
  }
}

/** Act of a member or an operator, `at` ms after the start of its phase. */
export interface Act {
  readonly at: number
  readonly what: string
  readonly run: (world: World) => void
}

/** A member of the room. */
export interface Member {
  readonly memberId: string
  /** Nodes that its edge asks, in this order. */
  readonly nodes: readonly string[]
  /** The member only receives. It sends no message at the end. */
  readonly watches?: boolean
}

/** Configuration of a world. */
export interface WorldParts {
  readonly room: RoomAddress
  readonly definition: RoomDefinition
  /** Members. Each has a separate edge. */
  readonly edges: readonly Member[]
  /** Acts of the setup. */
  readonly before: readonly Act[]
  /** Acts of the part with faults. */
  readonly script: readonly Act[]
  readonly faults: readonly Fault[]
  /** True: the store reports listeners, so that a node detects the death of another node before its lease has expired. */
  readonly hints?: boolean
  readonly limits?: Partial<RoomLimits>
  readonly recordTtlMs?: number
  readonly mutation?: Mutation | undefined
}
