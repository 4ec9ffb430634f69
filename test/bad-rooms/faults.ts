import { execSync } from 'node:child_process'
import { pbkdf2Sync } from 'node:crypto'
import { EventEmitter } from 'node:events'
import { closeSync, constants, openSync, readFileSync, writeSync } from 'node:fs'
import type { ProcessEnd } from './service.ts'

/** Port of this machine on which nothing listens. */
const CLOSED_PORT = 49_999
/** Duration of a blocking native call, far above every limit. */
const BLOCKED_SECONDS = 30

/** By kind of bad room code, functions that do it in different ways. */
const WAYS = {
  loop: {
    statement: () => {
      for (;;);
    },
    // A `catch` must not stop the termination.
    caught: () => {
      for (;;)
        try {
          for (;;);
        } catch {
          // The loop continues.
        }
    },
    regexp: () => /^(a+)+$/.test(`${'a'.repeat(64)}b`),
  },
  native: {
    pbkdf2: () => pbkdf2Sync('password', 'salt', BLOCKED_SECONDS * 1_000_000, 64, 'sha512'),
    exec: () => execSync(`sleep ${BLOCKED_SECONDS}`),
  },
  // A blocking native call that roomful does not forbid. Nothing writes to this pipe.
  fifo: {
    read: () => openSync(process.env.FIFO ?? '', 'r'),
  },
  rejection: {
    promise: () => void Promise.reject(new Error('a promise that nothing awaits')),
    fetch: () => void fetch(`http://127.0.0.1:${CLOSED_PORT}`),
  },
  'timer-throw': {
    timeout: () => {
      setTimeout(() => {
        throw new Error('thrown by setTimeout')
      }, 1)
    },
    emitter: () => {
      setImmediate(() => new EventEmitter().emit('error', new Error('an error without a listener')))
    },
  },
  'task-throw': {
    sync: () => {
      throw new Error('thrown by the work of a task')
    },
    async: async () => {
      await new Promise(setImmediate)
      throw new Error('rejected by the work of a task')
    },
    stray: () => void Promise.reject(new Error('not awaited by the work of a task')),
  },
  oom: {
    arrays: () => {
      const hoard: unknown[] = []
      for (;;) hoard.push(new Array(100_000).fill(hoard.length))
    },
  },
  getter: {
    message: () => {
      throw endless('message')
    },
    stack: () => {
      throw endless('stack')
    },
    other: () => {
      throw endless('detail')
    },
    rejected: () => void Promise.reject(endless('stack')),
  },
  'next-tick': {
    again: () => {
      const again = (): void => process.nextTick(again)
      again()
    },
  },
  microtask: {
    await: () => void awaitForever(),
    later: () => void setTimeout(() => void awaitForever(), 10),
    queue: () => {
      const again = (): void => queueMicrotask(again)
      again()
    },
  },
  immediate: {
    again: () => {
      const again = (): void => void setImmediate(again)
      again()
    },
  },
  exit: {
    exit: () => process.exit(1),
    kill: () => process.kill(process.pid, 'SIGKILL'),
    abort: () => process.abort(),
  },
  signal: {
    SIGTERM: () => process.emit('SIGTERM'),
    SIGINT: () => process.emit('SIGINT'),
    deaf: () => {
      process.removeAllListeners()
      setImmediate(() => {
        throw new Error('thrown where nothing listens')
      })
    },
    disconnect: () => process.disconnect?.(),
  },
  builtins: {
    push: () => overwrite('__proto__', 'push'),
    species: () => overwrite('__proto__', 'constructor'),
    static: () => overwrite('constructor', 'from'),
    delete: () => delete Object.getPrototypeOf(bags()).slice,
    // Two strings that lead from an ordinary object to the methods of all objects.
    toString: () => overwrite('__proto__', 'toString', {}),
    text: () => overwrite('__proto__', 'slice', ''),
    map: () => overwrite('__proto__', 'get', new Map()),
    promise: () => overwrite('__proto__', 'then', Promise.resolve()),
    bytes: () => overwrite('__proto__', 'subarray', Buffer.alloc(1)),
    error: () => overwrite('__proto__', 'message', new Error('x')),
    // The data, the options or the part of the state with which the hook runs.
    given: (_emit, given) => overwrite('constructor', 'keys', given),
    inherited: (_emit, given) => overwrite('__proto__', 'hasOwnProperty', given),
    method: (_emit, given) => delete (Object(given).toString as { name?: unknown }).name,
  },
  events: {
    large: (emit) => emit?.('flood', 'x'.repeat(50_000_000)),
    many: (emit) => {
      for (let i = 0; i < 300_000; i++) emit?.('flood', i)
    },
  },
} satisfies Record<string, Record<string, Way>>

/** Does something bad. `given`: the value with which the hook runs. */
type Way = (emit?: Emit, given?: unknown) => unknown

/** The `emit` of a handler's `ctx`. */
export type Emit = (name: 'flood', data: unknown) => void

/** The ordinary array of `Object.values(state.bags)`. */
const bags = (): Record<string, Record<string, unknown>> => [] as never

/** Does what `Object.values(state.bags)[data.slot][data.item] = 1` does with these strings from a client. */
function overwrite(slot: string, item: string, value: unknown = bags()): void {
  ;(value as ReturnType<typeof bags>)[slot]![item] = 1
}

/** Returns an error with a property that cannot be read. */
function endless(property: string): Error {
  const get = (): never => {
    for (;;);
  }
  return Object.defineProperty(new Error('an error with a getter'), property, { get, enumerable: true })
}

async function awaitForever(): Promise<void> {
  for (;;) await null
}

export type Kind = keyof typeof WAYS

/** All kinds of bad room code. */
export const KINDS = Object.keys(WAYS) as readonly Kind[]

/** Kinds that only the end of the process can stop. */
export const ENDING: readonly Kind[] = ['fifo', 'oom', 'next-tick', 'microtask']

/** Returns the ways of a kind. */
export const waysOf = (kind: Kind): readonly string[] => Object.keys(WAYS[kind])

/** Message types by the hook that they reach. */
const MESSAGES = {
  onMessage: 'hit',
  handle: 'handled',
  messageValidator: 'checked',
  replyValidator: 'answered',
  eventValidator: 'announced',
}
const MESSAGE_HOOKS = Object.keys(MESSAGES) as readonly (keyof typeof MESSAGES)[]

/** Returns the message type that reaches a hook. Undefined: no message reaches it. */
export const messageOf = (hook: Hook | 'none'): string | undefined =>
  (MESSAGES as Partial<Record<string, string>>)[hook]

/** All code of a room type that can be bad. `admitAfterAwait` is `admit` after its first `await`. */
export const HOOKS = [
  ...MESSAGE_HOOKS,
  'onTick',
  'onTimer',
  'timerValidator',
  'create',
  'onJoin',
  'onLeave',
  'onDisconnect',
  'onReconnect',
  'optionsValidator',
  'admit',
  'admitAfterAwait',
  'taskWork',
  'taskHandler',
  'taskValidator',
  'load',
  'save',
  'layer',
  'migrate',
  'onDispose',
] as const

export type Hook = (typeof HOOKS)[number]

/** Hooks whose bad code can emit events. */
const EMITTING_HOOKS: readonly Hook[] = ['onMessage', 'handle', 'onTick', 'onTimer', 'onJoin']

/** Returns the hooks in which a kind of fault is possible. */
export function hooksOf(kind: Kind): readonly Hook[] {
  if (kind === 'task-throw') return ['taskWork']
  return kind === 'events' ? EMITTING_HOOKS : HOOKS
}

/** A fault that a player triggers, as JSON in join options, messages and states. */
export type Fault = {
  readonly kind: Kind
  readonly way: string
  readonly hook: Hook | 'none'
  /** Different for each message or join. */
  readonly id: string
}

/** Data of the messages, and options, of honest players. */
export const NO_FAULT: Fault = { kind: 'loop', way: 'statement', hook: 'none', id: 'none' }

/** A start of bad code, as a line of the fault log. */
interface FaultStart {
  /** Milliseconds since 1970. */
  readonly at: number
  readonly node: string
  readonly pid: number
  readonly hook: Hook
  readonly id: string
}

/** Runs the fault if this is its hook, after it has written a line to FAULT_LOG. Returns what the fault returns. `emit`: `ctx.emit` of the hook. */
export function runFault(hook: Hook, fault: Fault | undefined, emit?: Emit): unknown {
  if (fault?.hook !== hook) return undefined
  const { kind, way, id } = fault
  const start: FaultStart = {
    at: Date.now(),
    node: process.env.NODE_ID ?? 'dev',
    pid: process.pid,
    hook,
    id,
  }
  const { O_APPEND, O_CREAT, O_SYNC, O_WRONLY } = constants
  const file = openSync(process.env.FAULT_LOG ?? '/dev/null', O_APPEND | O_CREAT | O_SYNC | O_WRONLY)
  writeSync(file, `${JSON.stringify(start)}\n`)
  closeSync(file)
  return (WAYS[kind] as Record<string, Way>)[way]?.(emit, fault)
}

/** A message whose bad code has started more than once. */
export interface Rerun {
  readonly id: string
  readonly hook: Hook
  /** Node and end of each start. */
  readonly starts: readonly string[]
  /** True if the message has ended a process, and then started in another process. */
  readonly regiven: boolean
}

/** Starts of bad code in all processes, oldest first. */
export class FaultLog {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
  }

  /** Returns the last start of bad code in an ended process, which has ended it. Undefined: none ran there. */
  culprit({ pid }: ProcessEnd): FaultStart | undefined {
    return this.#read().findLast((start) => start.pid === pid)
  }

  /** Time of the first start, in milliseconds since 1970. Undefined: no bad code has started. */
  get first(): number | undefined {
    return this.#read()[0]?.at
  }

  /** Number of starts. */
  get length(): number {
    return this.#read().length
  }

  /** Hooks in which bad code has started. */
  get hooks(): ReadonlySet<Hook> {
    return new Set(this.#read().map(({ hook }) => hook))
  }

  /** Returns all messages whose bad code has started more than once. */
  reruns(ends: readonly ProcessEnd[]): readonly Rerun[] {
    const all = this.#read()
    const endedBy = new Map(ends.map((end) => [all.findLast(({ pid }) => pid === end.pid), end]))
    const byId = new Map<string, FaultStart[]>()
    for (const start of all)
      if ((MESSAGE_HOOKS as readonly Hook[]).includes(start.hook))
        byId.set(start.id, [...(byId.get(start.id) ?? []), start])
    return [...byId]
      .filter(([, starts]) => starts.length > 1)
      .map(([id, starts]) => {
        const first = starts.findIndex((start) => endedBy.has(start))
        return {
          id,
          hook: starts[0]!.hook,
          starts: starts.map((start) => `${start.node}: ${endedBy.get(start)?.how ?? 'no end'}`),
          regiven: first >= 0 && starts.slice(first).some(({ pid }) => pid !== starts[first]!.pid),
        }
      })
  }

  #read(): FaultStart[] {
    try {
      const lines = readFileSync(this.#path, 'utf8').trimEnd().split('\n')
      return lines.map((line) => JSON.parse(line) as FaultStart)
    } catch {
      // No bad code has started yet.
      return []
    }
  }
}
