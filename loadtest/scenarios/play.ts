import * as option from '../option-kinds.ts'
import { newestOf } from '../players/client.ts'
import { type Check, checkOf, type Timing } from '../result.ts'
import { defineScenario, type RunContext } from '../scenario.ts'

/** Scenarios whose players send messages, and check that each was applied once. */

/** Time limit for the answers to the last messages. */
const ANSWERS_SECONDS = 10

/** Options of a scenario whose players connect and join first. */
const gathering = (players: { clients: number; rooms: number; rate: number }) => ({
  clients: option.count('players', players.clients),
  rooms: option.count('rooms they are spread over', players.rooms),
  rate: option.decimal('reliable messages each player sends per second', players.rate),
  ramp: option.count('players who come each second', 100),
})

/** Connects the players, and joins their rooms. */
async function gather(
  ctx: RunContext,
  { clients: count, rooms, ramp: perSecond }: { clients: number; rooms: number; ramp: number },
): Promise<void> {
  const { clients } = ctx
  await ctx.phase('connect', count / perSecond, () => clients.connect({ count, perSecond }))
  await ctx.phase('join', count / perSecond, () => clients.join({ rooms, perSecond }))
}

/** Lets all players send for a time. */
const play = (ctx: RunContext, { rate, seconds }: { rate: number; seconds: number }): Promise<void> =>
  ctx.phase('play', seconds, async () => {
    await ctx.clients.start({ rate })
    await ctx.pass(seconds)
    await ctx.clients.stop()
  })

/** Stops sending, and waits for the answers. */
async function finish(ctx: RunContext): Promise<void> {
  await ctx.clients.stop()
  await ctx.phase('answers', 1, () => ctx.clients.awaitAnswers({ withinSeconds: ANSWERS_SECONDS }))
}

/** Waits while all players send. */
const wait = (ctx: RunContext, name: string, seconds: number): Promise<void> =>
  ctx.phase(name, seconds, () => ctx.pass(seconds))

/** Adds the longest pause in these phases as a figure. */
function worstPause(ctx: RunContext, phases: readonly string[]): void {
  const timed = phases.map((phase) => ctx.timed('pause', phase)).filter(({ count }) => count > 0)
  if (timed.length === 0) return
  const value = Math.max(...timed.map(({ max }) => max))
  ctx.figure({ name: 'worst pause of a player', value, unit: 'ms' })
}

/** Adds the 99th percentile of a timing in a phase as a figure. */
function timeFigure(ctx: RunContext, name: string, timing: Timing, phase: string): void {
  const { count, p99 } = ctx.timed(timing, phase)
  if (count > 0) ctx.figure({ name, value: p99, unit: 'ms' })
}

/** An ordinary evening. */
export const steady = defineScenario({
  name: 'steady',
  meaning: 'Full rooms whose members all send at one rate.',
  options: {
    rooms: option.count('rooms', 20),
    members: option.count('members in each room', 10),
    rate: option.decimal('reliable messages each member sends per second', 5),
    seconds: option.seconds('how long they play', 30),
    ramp: option.count('members who come each second', 100),
  },

  async run(ctx, { rooms, members, rate, seconds, ramp }) {
    await gather(ctx, { clients: rooms * members, rooms, ramp })
    await play(ctx, { rate, seconds })
    await finish(ctx)
    timeFigure(ctx, 'round trip p99 while all play', 'rtt', 'play')
  },
})

/** An evening with news about the game. */
export const connectStorm = defineScenario({
  name: 'connect-storm',
  meaning: 'Many clients connect and join together, and then send.',
  options: {
    clients: option.count('clients', 500),
    'per-second': option.count('clients that connect each second', 500),
    rooms: option.count('rooms they are spread over', 50),
    rate: option.decimal('reliable messages each of them sends per second', 1),
    seconds: option.seconds('how long they play afterwards', 10),
  },

  async run(ctx, { clients, 'per-second': ramp, rooms, rate, seconds }) {
    await gather(ctx, { clients, rooms, ramp })
    await play(ctx, { rate, seconds })
    await finish(ctx)
    for (const what of ['connect', 'join'] as const) timeFigure(ctx, `${what} p99`, what, what)
  },
})

/** A short failure of the network. */
export const resumeStorm = defineScenario({
  name: 'resume-storm',
  meaning:
    'All players send, and all sockets are cut together, several times. Every session must resume quickly.',
  options: {
    ...gathering({ clients: 600, rooms: 60, rate: 1 }),
    storms: option.count('how often all sockets are cut', 3),
    calm: option.seconds('time before and after each storm', 5),
  },
  timings: ['resume', 'pause'],

  async run(ctx, { calm, rate, storms: times, ...players }) {
    const { clients } = ctx
    await gather(ctx, players)
    await clients.start({ rate })
    await wait(ctx, 'calm', calm)
    const storms = Array.from({ length: times }, (_, index) => `storm ${index + 1}`)
    for (const storm of storms)
      await ctx.phase(storm, calm + 1, async () => {
        await clients.markPauses()
        ctx.incident('all sockets are cut')
        await clients.cut({ share: 1 })
        ctx.incident('all clients are back, or were given up')
        await ctx.pass(calm)
        await clients.takePauses()
      })
    await finish(ctx)
    worstPause(ctx, storms)
  },
})

/** Players who change rooms often. */
export const churn = defineScenario({
  name: 'churn',
  meaning: 'All players send, and some constantly leave their room and join the next one.',
  options: {
    ...gathering({ clients: 300, rooms: 60, rate: 2 }),
    moves: option.count('players who change rooms each second', 50),
    seconds: option.seconds('for how long', 20),
  },

  async run(ctx, { moves: perSecond, seconds, rate, ...players }) {
    const { clients } = ctx
    const { rooms } = players
    await gather(ctx, players)
    await clients.start({ rate })
    await ctx.phase('churn', seconds, () => clients.churn({ perSecond, rooms, seconds }))
    await finish(ctx)
  },
})

/** A final with many spectators. */
export const bigRoom = defineScenario({
  name: 'big-room',
  meaning: 'A few players send in one room, and thousands of spectators watch it at all nodes.',
  options: {
    spectators: option.count('spectators', 2000),
    players: option.count('players, who check everything that they receive', 10),
    rate: option.decimal('reliable messages each player sends per second', 1),
    ramp: option.count('spectators who come each second', 100),
    seconds: option.seconds('how long they play', 20),
  },

  async run(ctx, { spectators: count, players, rate, ramp: perSecond, seconds }) {
    const { clients } = ctx
    await ctx.phase('players', 1, async () => {
      await clients.connect({ count: players, perSecond })
      await clients.join({ rooms: 1, perSecond })
    })
    await ctx.phase('spectators', count / perSecond, () =>
      clients.watch({ count, perSecond, room: 'load-0' }),
    )
    await play(ctx, { rate, seconds })
    await finish(ctx)
  },
})

/** A final whose server fails. */
export const crowd = defineScenario({
  name: 'crowd',
  meaning:
    'While a few players send in one room, thousands of spectators join it. Then the owner of the room is killed with all of them in it.',
  options: {
    spectators: option.count('spectators', 2000),
    within: option.seconds('time in which they come', 10),
    players: option.count('players, who check everything that they receive', 4),
    rate: option.decimal('reliable messages each player sends per second', 5),
    calm: option.seconds('time before the spectators come, before the kill, and after it', 10),
  },
  timings: ['resume', 'pause'],
  local: { direct: true },

  async run(ctx, { spectators: count, within, players, rate, calm }) {
    const { clients, local } = ctx
    const room = 'load-0'
    const roomId = `${ctx.roomType}:${room}`
    const seq = async (): Promise<number> => newestOf(await clients.newest())[roomId] ?? 0
    /** Runs a phase, and returns the number of flushes of the room per second. */
    const flushes = (name: string, seconds: number, work: () => Promise<unknown>) =>
      ctx.phase(name, seconds, async () => {
        const [before, began] = [await seq(), ctx.clock.monotonic()]
        await work()
        return (1000 * ((await seq()) - before)) / (ctx.clock.monotonic() - began)
      })
    const rtt = { goal: { value: 300 }, unit: 'ms' }
    await ctx.phase('players', 1, async () => {
      await clients.connect({ count: players, perSecond: 100 })
      await clients.join({ rooms: 1, perSecond: 100 })
    })
    await clients.start({ rate })
    const before = await flushes('calm', calm, () => ctx.pass(calm))
    const during = await flushes('joins', within, () =>
      clients.watch({ count, perSecond: count / within, room }),
    )
    const after = await flushes('all watch', calm, () => ctx.pass(calm))
    ctx.figure({ name: 'flushes of the room before', value: before, unit: '/s' })
    ctx.figure({ name: 'flushes while spectators join', value: during, unit: '/s' })
    ctx.figure({ name: 'flushes while all watch', value: after, unit: '/s' })
    for (const phase of ['joins', 'all watch'])
      ctx.figure({ name: `round trip p99, ${phase}`, value: ctx.timed('rtt', phase).p99, ...rtt })
    const owner = await local.ownerOf(roomId)
    const pauses = await ctx.phase('kill', calm, async () => {
      await clients.markPauses()
      ctx.incident(`${owner} is killed`)
      await local.process(owner).kill()
      await ctx.pass(calm)
      return (await clients.takePauses()).flat()
    })
    const of = (kind: 'player' | 'spectator') =>
      pauses.filter((each) => each.kind === kind).map(({ ms }) => ms)
    ctx.samples({ name: 'pause of players', unit: 'ms', values: of('player'), goal: { p99: 2000 } })
    ctx.samples({ name: 'pause of spectators', unit: 'ms', values: of('spectator'), goal: { p99: 5000 } })
    await finish(ctx)
    await local.process(owner).start()
  },
})

/** A message with this text is below the default of MAX_MESSAGE_BYTES. */
const MOST_BYTES = 16_000

/** Phones that lose the network for a while. */
export const slowConsumers = defineScenario({
  name: 'slow-consumers',
  meaning:
    'Some clients stop reading for a while. Others must not notice, and all must have one state in the end.',
  options: {
    ...gathering({ clients: 50, rooms: 5, rate: 5 }),
    bytes: option.option(
      'N',
      'text that each message brings to all in the room',
      option.wholeNumber(
        MOST_BYTES,
        `1 to ${MOST_BYTES}: nodes refuse messages above MAX_MESSAGE_BYTES (16384)`,
      ),
      15_000,
    ),
    share: option.share('how many of the clients stop reading', 0.1),
    seconds: option.seconds('how long they do not read', 30),
    calm: option.seconds('time before and after', 10),
  },

  async run(ctx, { share, seconds, calm, rate, bytes, ...players }) {
    const { clients } = ctx
    await gather(ctx, players)
    await clients.start({ rate, bytes })
    await wait(ctx, 'all read', calm)
    const closed = await ctx.phase('some do not', seconds, async () => {
      ctx.incident(`${Math.round(share * 100)} % stop reading`)
      const closed = await clients.stall({ share, seconds })
      ctx.incident('all read again')
      return closed
    })
    await wait(ctx, 'all read again', calm)
    await finish(ctx)
    const value = closed.reduce((sum, each) => sum + each, 0)
    ctx.figure({ name: 'clients closed for reading too slowly', value, unit: '' })
    for (const phase of ['all read', 'some do not', 'all read again'])
      timeFigure(ctx, `round trip p99, ${phase}`, 'rtt', phase)
  },
})

/** Promise of the service. */
const REVOKED_WITHIN_MS = 1000
const REVOKED_WAIT_SECONDS = 10

/** A stolen key. */
export const revoke = defineScenario({
  name: 'revoke',
  meaning:
    'A key is revoked while its players send. Their sessions must close within a second, and no others.',
  options: {
    ...gathering({ clients: 300, rooms: 30, rate: 2 }),
    revoked: option.count('further players, who come with the key', 300),
    calm: option.seconds('time before and after', 5),
  },
  revokes: true,

  async run(ctx, { revoked: count, calm, rate, ...players }) {
    const { clients } = ctx
    const { rooms, ramp: perSecond } = players
    await gather(ctx, players)
    const key = await ctx.sdk.unlessInterrupted(ctx.issuer.issueUnderKey())
    await clients.use(key.credentials)
    await ctx.phase('connect under the key', count / perSecond, () => clients.connect({ count, perSecond }))
    await ctx.phase('join under the key', count / perSecond, () => clients.join({ rooms, perSecond }))
    await clients.start({ rate })
    await wait(ctx, 'calm', calm)
    const closed = await ctx.phase('revoke', 1, async () => {
      ctx.incident('the key is revoked')
      const began = ctx.clock.now()
      await ctx.sdk.unlessInterrupted(key.revoke())
      const at = await clients.awaitRevoked({ withinSeconds: REVOKED_WAIT_SECONDS })
      return at.flat().map((ms) => ms - began)
    })
    await wait(ctx, 'the others', calm)
    await finish(ctx)
    ctx.check(revocation(closed, count))
    if (closed.length > 0)
      ctx.figure({ name: 'slowest close after the revocation', value: Math.max(...closed), unit: 'ms' })
  },
})

/**
 * Judges the times at which the clients saw their sessions close. A busy generator may see them late, and the report states when it was
 * busy.
 */
export function revocation(closedMs: readonly number[], count: number): Check {
  const late = closedMs.filter((ms) => ms > REVOKED_WITHIN_MS)
  const missing = count - closedMs.length
  const note = `${closedMs.length} of ${count} sessions closed`
  const examples = [
    ...(missing > 0 ? [`${missing} sessions were not closed within ${REVOKED_WAIT_SECONDS} s`] : []),
    ...late.map((ms) => `a session was closed after ${Math.round(ms)} ms`),
  ]
  return checkOf(
    'revocation',
    'A revoked key closes every session under it within a second.',
    late.length === 0 ? note : `${note}, ${late.length} late`,
    examples,
    late.length + missing,
  )
}

/** Options of a scenario that changes one node after the other. */
const nodeOptions = {
  ...gathering({ clients: 600, rooms: 60, rate: 1 }),
  calm: option.seconds('time before the first node, and after what is done to each', 5),
}

/**
 * Runs `work` on each node in turn while all players send, and times the longest pause of each player. `seconds`: expected duration of
 * `work`.
 */
async function nodeByNode(
  ctx: RunContext,
  { calm, rate, ...players }: option.Values<typeof nodeOptions>,
  seconds: number,
  work: (node: string) => Promise<void>,
): Promise<void> {
  const { clients, local } = ctx
  await gather(ctx, players)
  await clients.start({ rate })
  await wait(ctx, 'calm', calm)
  for (const node of local.nodes)
    await ctx.phase(node, seconds + calm, async () => {
      await clients.markPauses()
      await work(node)
      ctx.incident(`${node} serves again`)
      await ctx.pass(calm)
      await clients.takePauses()
    })
  await finish(ctx)
  worstPause(ctx, local.nodes)
}

/** Time for a node to drain, end and start. */
const RESTART_SECONDS = 15

/** A deploy on a busy evening. */
export const rollingRestart = defineScenario({
  name: 'rolling-restart',
  meaning: 'All players send, and each node in turn is drained and started again. Nothing may be lost.',
  options: nodeOptions,
  timings: ['resume', 'pause'],
  local: {},

  run: (ctx, values) =>
    nodeByNode(ctx, values, RESTART_SECONDS, async (node) => {
      ctx.incident(`${node} drains`)
      await ctx.local.restart(node)
    }),
})

/** A machine that loses its power. */
export const nodeKill = defineScenario({
  name: 'node-kill',
  meaning:
    'All players send, and each node in turn is killed and started again. Other nodes must continue its rooms, and nothing may be lost.',
  options: nodeOptions,
  timings: ['resume', 'pause'],
  local: {},

  run: (ctx, values) =>
    nodeByNode(ctx, values, values.calm, async (node) => {
      ctx.incident(`${node} is killed`)
      await ctx.local.process(node).kill()
      await ctx.pass(values.calm)
      await ctx.local.process(node).start()
    }),
})
