import * as v from 'valibot'
import type { Clock } from '../shared/clock.ts'
import { randomToken } from '../shared/ids.ts'
import type { Logger } from '../shared/log.ts'
import type { Random } from '../shared/random.ts'
import type { Bus } from '../shared/store/port.ts'

/** Subject of calls between nodes. */
interface Topic<Question, Answer> {
  /** A node receives the calls on the channel `<name>:<node id>`. */
  readonly name: string
  readonly question: v.GenericSchema<unknown, Question>
  readonly answer: v.GenericSchema<unknown, Answer>
}

/** Dependencies of the calls of a node. */
export interface CallsEnvironment {
  readonly nodeId: string
  readonly bus: Bus
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

/** A question or an answer, with the id of its call. JSON in UTF-8. Readers ignore unknown fields. */
const MESSAGE = v.object({
  kind: v.picklist(['ask', 'answer']),
  call: v.string(),
  from: v.string(),
  body: v.unknown(),
})

const ID_LENGTH = 16

/**
 * Questions between nodes, each with an answer, over the bus. A node of a version without the topic does not listen on its channel, and counts as
 * a node that does not answer.
 */
export class NodeCalls<Question, Answer> {
  readonly #topic: Topic<Question, Answer>
  readonly #environment: CallsEnvironment
  readonly #respond: (question: Question) => Answer | Promise<Answer>
  /** Resolvers of the unanswered calls, by call id. */
  readonly #open = new Map<string, (answer?: Answer) => void>()
  #unsubscribe: (() => Promise<void>) | undefined

  /** `respond`: answers a question of another node. Must not reject. */
  constructor(
    topic: Topic<Question, Answer>,
    environment: CallsEnvironment,
    respond: (question: Question) => Answer | Promise<Answer>,
  ) {
    this.#topic = topic
    this.#environment = environment
    this.#respond = respond
  }

  /** Resolves when other nodes can ask this one. Rejects with `StoreUnavailable`. */
  async start(): Promise<void> {
    const { bus, nodeId } = this.#environment
    const channel = `${this.#topic.name}:${nodeId}`
    this.#unsubscribe = await bus.subscribe(channel, (bytes) => void this.#receive(bytes))
  }

  /** Stops answering. Open calls resolve without an answer. */
  async stop(): Promise<void> {
    for (const resolve of this.#open.values()) resolve()
    await this.#unsubscribe?.()
  }

  /** Returns the answer of another node. Undefined: it does not listen, or has not answered within `waitMs`. Never rejects. */
  ask(nodeId: string, question: Question, waitMs: number): Promise<Answer | undefined> {
    const { clock, random } = this.#environment
    const call = randomToken(random, ID_LENGTH)
    return new Promise((resolve) => {
      const cancel = clock.schedule(waitMs, () => end())
      const end = (answer?: Answer): void => {
        cancel()
        this.#open.delete(call)
        resolve(answer)
      }
      this.#open.set(call, end)
      void this.#send(nodeId, 'ask', call, question).then((isHeard) => {
        if (!isHeard) end()
      })
    })
  }

  async #receive(bytes: Uint8Array): Promise<void> {
    const { name, question, answer } = this.#topic
    try {
      const { kind, call, from, body } = read(MESSAGE, JSON.parse(new TextDecoder().decode(bytes)))
      if (kind === 'answer') {
        const given = read(answer, body)
        this.#open.get(call)?.(given)
      } else await this.#send(from, 'answer', call, await this.#respond(read(question, body)))
    } catch (error) {
      this.#environment.log.warn({ err: error, topic: name }, 'call of another node failed')
    }
  }

  /** Publishes one message. Returns false if the node does not listen, or the store is unavailable. */
  async #send(to: string, kind: 'ask' | 'answer', call: string, body: Question | Answer): Promise<boolean> {
    const { bus, nodeId } = this.#environment
    const message = new TextEncoder().encode(JSON.stringify({ kind, call, from: nodeId, body }))
    try {
      return (await bus.publish(`${this.#topic.name}:${to}`, message)) > 0
    } catch {
      return false
    }
  }
}

/** Checks a value. Throws if it does not fit. The error names the place and not the value, which may contain names of players. */
function read<T>(schema: v.GenericSchema<unknown, T>, value: unknown): T {
  const result = v.safeParse(schema, value)
  if (result.success) return result.output
  const [issue] = result.issues
  throw new TypeError(`${v.getDotPath(issue) ?? 'the message'}: ${issue.message}`)
}
