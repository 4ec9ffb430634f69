import { CODECS, type Codec } from './messages.ts'
import type { Stage } from './stage.ts'

/** One thing that docs/protocol.md promises. */
export interface Case {
  /** `topic: what happens`. */
  readonly name: string
  /** The promise, in the document's words. */
  readonly rule: string
  /** Spends its time waiting for something that takes seconds, so it runs beside others. */
  readonly waits: boolean
  readonly run: (stage: Stage) => Promise<void>
}

type Run = (stage: Stage) => Promise<void>
type RunIn = (stage: Stage, codec: Codec) => Promise<void>

/** Collects the cases of one topic. */
export class Topic {
  readonly cases: Case[] = []
  private readonly topic: string

  constructor(topic: string) {
    this.topic = topic
  }

  /** One case. */
  once(name: string, rule: string, run: Run): void {
    this.add(name, rule, false, run)
  }

  /** One case that takes seconds. */
  waiting(name: string, rule: string, run: Run): void {
    this.add(name, rule, true, run)
  }

  /** The same case in each subprotocol. */
  each(name: string, rule: string, run: RunIn): void {
    for (const codec of CODECS) this.add(`${name} (${codec})`, rule, false, (stage) => run(stage, codec))
  }

  private add(name: string, rule: string, waits: boolean, run: Run): void {
    this.cases.push({ name: `${this.topic}: ${name}`, rule, waits, run })
  }
}
