import { readFileSync } from 'node:fs'
import { CODECS, type Codec } from './messages.ts'
import type { Peer } from './peer.ts'
import type { RoomView } from './room-view.ts'
import type { Stage } from './stage.ts'

/** One thing that docs/protocol.md promises. */
export interface Case {
  /** `topic: what happens`. */
  readonly name: string
  /** Rule or section of the page that promises it. */
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

/** The codes of docs/protocol.md. */

const page = readFileSync(new URL('../../docs/protocol.md', import.meta.url), 'utf8')
const [, errors = ''] = page.split('\n### Error codes\n')
const [lasting = '', passing = ''] = errors.split('\n### ')[0]!.split('\nRetryable:\n')

const namesIn = (list: string): string[] => [...list.matchAll(/^- `(\w+)`:/gm)].map(([, code]) => code!)

/** Error code → retryable. */
export const ERROR_CODES: Readonly<Record<string, boolean>> = Object.fromEntries([
  ...namesIn(lasting).map((code) => [code, false]),
  ...namesIn(passing).map((code) => [code, true]),
])

/** The codes a connection may be closed with, by a name that says why. */
export const CLOSE = {
  goodbye: 1000,
  no_room_for_more: 1013,
  protocol_error: 4000,
  unauthenticated: 4001,
  revoked: 4003,
  taken_over: 4005,
  rate_limited: 4006,
  too_large: 4008,
  draining: 4101,
  room_unavailable: 4102,
  slow_reader: 4103,
  hello_timeout: 4104,
  token_expired: 4200,
  resume_failed: 4300,
} as const

/** The number of a counter. */
export const counted = (view: RoomView): number => (view.state as { count: number }).count

/** Two clients in one room. */
export interface Pair {
  peer: Peer
  view: RoomView
  other: Peer
  witness: RoomView
  room_id: string
}

/** A client in `codec` and a JSON witness, both at the same seq of a new room. */
export async function pair(stage: Stage, codec: Codec, roomType = 'counter'): Promise<Pair> {
  const key = stage.key()
  const peer = await stage.connect(codec, { sub: 'anna' })
  const other = await stage.connect('json', { sub: 'ben' })
  const view = await peer.join(roomType, key)
  const witness = await other.join(roomType, key)
  await peer.until('both stand at one seq', () => view.seq === witness.seq)
  return { peer, view, other, witness, room_id: view.roomId }
}
