/** What a chaos room remembers of each member: enough to prove which of its ops were applied, how often, and in which order. */
export interface Player {
  /** How many ops were applied. */
  count: number
  /** The ref of the last one. */
  lastRef: number
  /** A hash over all of them, in order. */
  chain: number
}

/** How a room refuses an op that asks for it: by its own word, or by failing. */
export const REFUSALS = ['room_logic_refused', 'room_logic_failed'] as const
export type Refusal = (typeof REFUSALS)[number]

/** What a room tells everybody of an op that it has applied. */
export interface AppliedOp {
  readonly by: string
  readonly ref: number
  readonly op: string
  /** How many of its member's ops are applied with it. */
  readonly count: number
}

export const NEW_PLAYER: Readonly<Player> = { count: 0, lastRef: 0, chain: 0 }

/** The chain after one more op: FNV-1a over the chain's four bytes and the op's characters. */
export function chainAfter(chain: number, op: string): number {
  let h = 0x811c9dc5
  for (let shift = 0; shift < 32; shift += 8) h = Math.imul(h ^ ((chain >>> shift) & 0xff), 0x01000193)
  for (let i = 0; i < op.length; i++) h = Math.imul(h ^ op.charCodeAt(i), 0x01000193)
  return h >>> 0
}
