import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { REFUSALS } from './room-logic.ts'

/** State of a bank. It keeps each call that had an effect, so that it sees a second one. */
export type BankState = {
  /** Number of effects. */
  total: number
  /** By call, the value of `total` with its effect. */
  effects: { [call: string]: number }
  /** By member id, the player's sub. */
  seats: { [memberId: string]: string }
  /** Calls with a second effect. */
  twice: string[]
}

/** A room that backends call, and that sends notices. */
export const bankRoom = (durability: 'journal' | 'snapshot') =>
  defineRoom({
    type: `chaos-bank-${durability}`,
    durability,
    idleSeconds: 3600,
    reconnectSeconds: 10,
    create: (): BankState => ({ total: 0, effects: {}, seats: {}, twice: [] }),
    events: { granted: v.string() },
    notices: {
      granted: v.object({ call: v.string(), part: v.number() }),
      over: v.object({ total: v.number() }),
    },
    calls: {
      grant: {
        data: v.object({
          call: v.string(),
          refuse: v.nullable(v.picklist(REFUSALS)),
          notices: v.number(),
        }),
        reply: v.object({ total: v.number() }),
        handle(state, { data: { call, refuse, notices } }, ctx) {
          if (state.effects[call] !== undefined) state.twice.push(call)
          state.total += 1
          state.effects[call] = state.total
          ctx.emit('granted', call)
          for (let part = 0; part < notices; part++) ctx.notify('granted', { call, part })
          ctx.reply({ total: state.total })
          if (refuse === 'room_logic_refused') ctx.refuse(`${call} asked to be refused`)
          if (refuse === 'room_logic_failed') throw new Error(`${call} asked for a failure`)
        },
      },
    },
    onJoin(state, { id, sub }) {
      state.seats[id] = sub ?? ''
    },
    onLeave(state, { id }) {
      delete state.seats[id]
    },
    onDispose(state, ctx) {
      ctx.notify('over', { total: state.total })
    },
  })
