import { type Durability, defineRoom } from 'roomful'
import * as v from 'valibot'

/** One member's entries in a ledger. */
interface Account {
  /** Number of applied entries. */
  count: number
  /** Number of the last entry. */
  last: number
}

/** State of a ledger. A member's account stays when the member leaves. */
export interface Ledger {
  total: number
  /** Entries without the next number of their member: an entry was applied twice, lost, or reordered. */
  disorder: number
  accounts: { [memberId: string]: Account }
  /** Numbers drawn so far. */
  drawn: number
  /** Names of the timers that have fired. */
  rung: string[]
}

/** A room in which each member adds 1, 2, 3, …. Its state shows every entry that was applied twice, lost, or reordered. */
export const ledgerRoom = (durability: Durability) =>
  defineRoom({
    type: `ledger-${durability}`,
    events: { added: v.object({ by: v.string(), n: v.number() }) },
    sync: { rate: 0 },
    durability,
    idleSeconds: 600,
    create: (): Ledger => ({ total: 0, disorder: 0, accounts: {}, drawn: 0, rung: [] }),
    messages: {
      add: { data: v.object({ n: v.number() }) },
      /** Replies with the `data` of the player's token. */
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
      /** Replies with a new number for each draw. */
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
