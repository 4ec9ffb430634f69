import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** How a ledger is kept. */
type Kept = 'journal' | 'snapshot' | 'none'

/** What a ledger says of one member. */
interface Account {
  /** Entries applied. */
  count: number
  /** The number of the last one. */
  last: number
}

/** The state of a ledger. Accounts stay when their members leave. */
export interface Ledger {
  total: number
  /** Entries that did not follow the one before them: applied twice, lost, or out of order. */
  disorder: number
  accounts: { [memberId: string]: Account }
  /** How many numbers were drawn. */
  drawn: number
  /** The names of the timers that have fired. */
  rung: string[]
}

/** A room in which each member adds 1, 2, 3, …: what was applied twice, never, or in another order shows in its state for ever. */
export const ledgerRoom = (kept: Kept) =>
  defineRoom({
    type: `ledger-${kept}`,
    events: { added: v.object({ by: v.string(), n: v.number() }) },
    sync: { rate: 0 },
    durability: kept,
    idleSeconds: 600,
    create: (): Ledger => ({ total: 0, disorder: 0, accounts: {}, drawn: 0, rung: [] }),
    messages: {
      add: { data: v.object({ n: v.number() }) },
      /** What the room knows of the player by its token. */
      whoami: {
        data: v.null(),
        reply: v.any(),
        handle: (_state, { member }, ctx) => ctx.reply(member.data),
      },
      ringAfter: {
        data: v.object({ ms: v.number(), name: v.string() }),
        handle: (_state, { data: { ms, name } }, ctx) => void ctx.after(ms, 'rings', name),
      },
      reserve: {
        data: v.object({ sub: v.string(), seconds: v.number() }),
        reply: v.boolean(),
        handle: (_state, { data }, ctx) => ctx.reply(ctx.reserve(data.sub, data.seconds)),
      },
      /** Each draw has a number of its own. */
      draw: {
        data: v.null(),
        reply: v.object({ number: v.number() }),
        handle(state, _input, ctx) {
          state.drawn += 1
          ctx.reply({ number: state.drawn })
        },
      },
    },

    timers: { rings: { data: v.string(), handle: (state, { data }) => void state.rung.push(data) } },
    onJoin(state, member) {
      state.accounts[member.id] ??= { count: 0, last: 0 }
    },

    onMessage(state, { data, member }, ctx) {
      const account = state.accounts[member.id]
      if (!account) throw new Error('no account of this member')
      if (data.n !== account.last + 1) state.disorder += 1
      account.count += 1
      account.last = data.n
      state.total += 1
      ctx.emit('added', { by: member.id, n: data.n })
    },
  })
