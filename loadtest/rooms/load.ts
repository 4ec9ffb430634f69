import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** What the room has applied from one member. */
interface Applied {
  /** Number of its messages. */
  count: number
  /** Number in the last of them. Members number their messages from 1, so it equals `count` unless one was lost or duplicated. */
  last: number
  /** Text in the last one, for large messages. */
  text: string
}

/** Only players who have sent a message. */
interface LoadState {
  players: { [memberId: string]: Applied }
  /** Number of events so far. */
  milestones: number
}

/** Interval, in messages of a member, between the additional events `milestone`. */
const EVENT_EVERY = 10

/** The data of an event. */
export type Milestone = {
  /** Number of the event. The first of the room has 1. */
  readonly number: number
}

/** A room that counts what it applies, so that each client can check that each message was applied once. */
const countingRoom = <T extends string>(type: T, durability: 'none' | 'snapshot' | 'journal') =>
  defineRoom({
    type,
    maxPlayers: 100_000,
    spectators: { max: 100_000 },
    messages: {
      op: {
        data: v.object({ n: v.pipe(v.number(), v.integer()), text: v.optional(v.string(), '') }),
        rate: { perSecond: 10_000, burst: 10_000 },
      },
    },
    sync: { rate: 0 },
    durability,
    idleSeconds: 5,
    create: (): LoadState => ({ players: {}, milestones: 0 }),

    onMessage(state, { data, member }, ctx) {
      state.players[member.id] ??= { count: 0, last: 0, text: '' }
      const player = state.players[member.id]
      if (!player) return
      player.count += 1
      player.last = data.n
      player.text = data.text
      if (player.count % EVENT_EVERY > 0) return
      state.milestones += 1
      ctx.emit('milestone', { number: state.milestones } satisfies Milestone)
    },

    onLeave(state, member) {
      delete state.players[member.id]
    },
  })

/** The room type of the load test. */
const load = countingRoom('load', 'journal')
export default load
export type LoadRoom = typeof load
