import type { StandardSchemaV1 } from '@standard-schema/spec'
import { defineRoom } from 'roomful'
import { type Emit, type Fault, type Hook, runFault } from '../faults.ts'

/** Schema that accepts every value. If `hook` is the hook of the fault in the value, runs the fault first. */
const schema = <T>(hook?: Hook, faultOf = (value: T) => value as Fault): StandardSchemaV1<T> => ({
  '~standard': {
    version: 1,
    vendor: 'bad-rooms',
    validate(value) {
      if (hook) runFault(hook, faultOf(value as T))
      return { value: value as T }
    },
  },
})

const sound = schema<Fault>()

/** Room type whose hooks run the fault in its join options, its state or a message. */
export default defineRoom({
  type: 'bad',
  options: schema<{ fault: Fault }>('optionsValidator', ({ fault }) => fault),
  sync: { rate: 20 },
  tick: { rate: 2 },
  durability: 'journal',
  idleSeconds: 1,
  layers: {
    'layered.*': (fault) => {
      runFault('layer', JSON.parse(fault) as Fault)
      return 'layered'
    },
  },
  async load(_key, { fault }) {
    runFault('load', fault)
    return undefined
  },
  create({ fault }) {
    runFault('create', fault)
    const layered: Record<string, number> = fault.hook === 'layer' ? { [JSON.stringify(fault)]: 1 } : {}
    return { fault, hits: 0, layered }
  },
  save: { everySeconds: 1, to: async ({ fault }) => void runFault('save', fault) },
  messages: {
    hit: { data: sound },
    handled: {
      data: sound,
      handle(state, { data }, ctx) {
        state.hits += 1
        runFault('handle', data, ctx.emit as Emit)
      },
    },
    checked: { data: schema<Fault>('messageValidator') },
    answered: { data: sound, reply: schema<Fault>('replyValidator') },
    announced: { data: sound },
  },
  events: { announced: schema<Fault>('eventValidator'), flood: schema<unknown>() },
  timers: {
    bell: {
      data: schema<Fault>('timerValidator'),
      handle: (_state, { data }, ctx) => void runFault('onTimer', data, ctx.emit as Emit),
    },
  },
  tasks: {
    job: {
      result: schema<Fault>('taskValidator'),
      handle: (_state, outcome) => void (outcome.ok && runFault('taskHandler', outcome.value)),
    },
  },
  async admit(_member, { fault }) {
    runFault('admit', fault)
    await new Promise(setImmediate)
    runFault('admitAfterAwait', fault)
  },
  onJoin(state, _member, ctx, { fault }) {
    // Without a change, the room would not save.
    state.hits += 1
    runFault('onJoin', fault, ctx.emit as Emit)
    if (fault.hook === 'onTimer' || fault.hook === 'timerValidator') ctx.after(50, 'bell', fault)
    if (fault.hook.startsWith('task'))
      ctx.task(() => Promise.resolve(runFault('taskWork', fault)).then(() => fault), 'job')
  },
  onMessage(state, { type, data }, ctx) {
    state.hits += 1
    runFault('onMessage', data, ctx.emit as Emit)
    if (type === 'answered') ctx.reply(data)
    if (type === 'announced') ctx.emit('announced', data)
  },
  onTick: ({ fault }, ctx) => void runFault('onTick', fault, ctx.emit as Emit),
  onDisconnect: ({ fault }) => void runFault('onDisconnect', fault),
  onReconnect: ({ fault }) => void runFault('onReconnect', fault),
  onLeave: ({ fault }) => void runFault('onLeave', fault),
  onDispose: ({ fault }) => void runFault('onDispose', fault),
})
