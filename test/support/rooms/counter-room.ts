import * as v from 'valibot'
import { type Durability, defineRoom } from '../../../dataplane/room/definition.ts'

const by = v.object({ by: v.number() })

/** A counter with messages that misbehave. */
export const counter = (settings: { durability?: 'journal' | 'snapshot' | 'none'; rate?: number } = {}) =>
  defineRoom({
    type: 'counter',
    messages: {
      inc: { data: by },
      boom: { data: v.null() },
      promise: { data: v.null() },
      bad_state: { data: v.null() },
      whisper: { data: v.object({ to: v.string() }) },
      out: { data: v.object({ who: v.string() }) },
      end: { data: v.null() },
      nothing: { data: v.null() },
      returned: { data: by },
      slow: { data: v.null(), rate: { perSecond: 1, burst: 2 } },
    },
    sync: { rate: settings.rate ?? 0 },
    durability: settings.durability ?? 'journal',
    idleSeconds: 10,
    create: (): { count: number; seen: string[] } => ({ count: 0, seen: [] }),
    onJoin(state, member, ctx) {
      state.seen.push(member.id)
      ctx.emit('hello', member.id)
    },
    onMessage(state, input, ctx) {
      switch (input.type) {
        case 'inc':
          state.count += input.data.by
          break
        case 'boom':
          state.count = -1
          ctx.emit('boom', null)
          ctx.kick(input.member)
          throw new Error('the reactor is closed')
        case 'promise':
          state.count = -1
          return Promise.resolve() as never
        case 'bad_state':
          state.count = Number.NaN
          break
        case 'whisper':
          ctx.emit('psst', null, input.data.to)
          break
        case 'out':
          ctx.emit('you_are_out', null, input.data.who)
          ctx.kick(input.data.who)
          break
        case 'end':
          ctx.emit('over', null)
          ctx.close()
          break
        case 'returned':
          return { state: { ...state, count: input.data.by }, event: { name: 'set', data: state.seen } }
      }
      return
    },
    onLeave(state, member, ctx) {
      state.seen = state.seen.filter((id) => id !== member.id)
      ctx.emit('bye', ctx.members.length)
    },
  })

/** A counter that emits an event for each step. */
export const counting = (durability: Durability) =>
  defineRoom({
    type: 'counter',
    messages: { inc: { data: v.null() } },
    sync: { rate: 0 },
    durability,
    create: () => ({ count: 0 }),
    onMessage(state, _input, ctx) {
      state.count++
      ctx.emit('counted', state.count)
    },
  })

/** Puts values that are not JSON into its state, as code without type checks can. */
export const careless = defineRoom({
  type: 'careless',
  idleSeconds: 0,
  create: ({ broken }) => ({
    at: broken === true ? (new Date(0) as unknown as string) : '',
    by: {} as Record<string, unknown>,
  }),
  messages: {
    write: {
      handle(state, { member }) {
        state.by[member.id] = { seen: new Map() }
      },
    },
    give: { handle: (state) => ({ state: { ...state, by: { all: new Set() } } }) },
  },
})

/** An update without changes. */
export const NO_CHANGES = {
  visible: true,
  delta: undefined,
  events: [],
  joined: [],
  replaced: [],
  left: [],
  presence: [],
  roles: [],
  renewed: [],
  acks: [],
  outcomes: [],
  layers: undefined,
  tables: undefined,
}
