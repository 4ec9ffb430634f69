import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** What the room has applied of one member. */
interface Applied {
  /** How many of its messages. */
  count: number
  /** The number that the last of them carried. Members number theirs from 1, so it is `count` unless one was lost or came twice. */
  last: number
  /** The text that came with it, for messages that have to be large. */
  text: string
}

/** Only members who have said something: those who watch cost no state. */
interface LoadState {
  players: { [memberId: string]: Applied }
  /** How many events there have been. */
  milestones: number
}

/** Every so many messages of a member come with an event besides, `milestone`. */
const EVENT_EVERY = 10

/** The data of an event. */
export type Milestone = {
  /** The first of the room has 1, and each the next one. */
  readonly number: number
}

/** A room that counts what it applies, so that each client can see that each message was applied once. */
export const countingRoom = <T extends string>(type: T, durability: 'none' | 'snapshot' | 'journal') =>
  defineRoom({
    type,
    maxMembers: 100_000,
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
