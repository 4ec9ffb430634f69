import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** How many of the last ops a room lists. */
const LOG_LENGTH = 16

/** What all chaos rooms keep. Players stay when they leave, so that the last state proves everything that was ever applied. */
export type ChaosState = {
  /** Ops applied, of everyone. */
  total: number
  players: { [memberId: string]: Player }
  /** The last ops, oldest first. */
  log: { by: string; ref: number; op: string }[]
}

/** One chaos room type. An `op` is applied and told to everyone; one that says `refuse` changes the state and then refuses or fails, so that nothing of it may stay. */
export const chaosRoom = (durability: 'journal' | 'snapshot' | 'none') =>
  defineRoom({
    type: `chaos-${durability}`,
    messages: {
      op: { data: v.object({ op: v.string(), ref: v.number(), refuse: v.nullable(v.picklist(REFUSALS)) }) },
    },
    events: {
      applied: v.object({ by: v.string(), ref: v.number(), op: v.string(), count: v.number() }),
    },
    sync: { rate: 50 },
    durability,
    idleSeconds: 3600,
    create: (): ChaosState => ({ total: 0, players: {}, log: [] }),

    onJoin(state, member) {
      state.players[member.id] ??= { ...NEW_PLAYER }
    },

    onMessage(state, { data, member }, ctx) {
      const { op, ref, refuse } = data
      const by = member.id
      const player = state.players[by]
      if (!player) throw new Error('no player of this member')
      player.count += 1
      player.lastRef = ref
      player.chain = chainAfter(player.chain, op)
      state.total += 1
      state.log.push({ by, ref, op })
      if (state.log.length > LOG_LENGTH) state.log.shift()
      ctx.emit('applied', { by, ref, op, count: player.count })
      if (refuse === 'room_logic_refused') ctx.refuse(`${op} asked to be refused`)
      if (refuse === 'room_logic_failed') throw new Error(`${op} asked for a failure`)
    },
  })

/** What a chaos room remembers of each member: enough to prove which of its ops were applied, how often, and in which order. */
export type Player = {
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

/** What a room tells everyone of an op that it has applied. */
export type AppliedOp = {
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
