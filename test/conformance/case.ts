import { CODECS, type Codec } from './messages.ts'
import type { Stage } from './stage.ts'

/** One thing that docs/protocol.md promises. */
export interface Case {
  /** `topic: what happens`. */
  readonly name: string
  /** The promise, in the document's words. */
  readonly rule: string
  /**
   * `waits`: spends its time waiting for something that takes seconds, so it runs beside others. `outlasts`: waits for
   * a whole `resume_ttl_seconds`, which may be long.
   */
  readonly kind: 'quick' | 'waits' | 'outlasts'
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
    this.add(name, rule, 'quick', run)
  }

  /** One case that takes seconds. */
  waiting(name: string, rule: string, run: Run): void {
    this.add(name, rule, 'waits', run)
  }

  /** One case that takes longer than a session without a connection lives. */
  outlasting(name: string, rule: string, run: Run): void {
    this.add(name, rule, 'outlasts', run)
  }

  /** The same case in each subprotocol. */
  each(name: string, rule: string, run: RunIn): void {
    for (const codec of CODECS) this.add(`${name} (${codec})`, rule, 'quick', (stage) => run(stage, codec))
  }

  private add(name: string, rule: string, kind: Case['kind'], run: Run): void {
    this.cases.push({ name: `${this.topic}: ${name}`, rule, kind, run })
  }
}
