import type { LocalService, Scenario, Stage } from '../scenario.ts'

/** Shorter than the default: clients are moved over so long; a pause does not depend on it, the length of a run does. */
const DRAIN_SECONDS = '3'
const LEASE_SECONDS = 2
const MEMBERS_PER_NODE = 2
/** Reliable messages of each member per second. */
const RATE = 100
/** Before the fault: long enough for the usual, and random so that saves of the room are not always equally old. */
const CALM_SECONDS = { least: 0.8, more: 0.7 }
/** How long members are watched after the last that is done. */
const WATCH_SECONDS = 3
const SETTLE_SECONDS = 20

interface Fault {
  /** What is done; resolves when there is no more to be done while members are watched. `other`: a node that does not own the room. */
  strike(service: LocalService, owner: string, other: string, stage: Stage): Promise<void>
  /** Makes the cluster whole again after the watch: on one machine the start of a process takes time from all others. */
  repair?(service: LocalService, owner: string, other: string): Promise<void>
  /** The node that is struck; absent: none, or all. */
  readonly victim?: 'owner' | 'other'
}

const FAULTS: Readonly<Record<string, Fault>> = {
  none: { strike: async () => undefined },
  kill: {
    strike: (service, owner) => service.kill(owner),
    repair: (service, owner) => service.start(owner),
    victim: 'owner',
  },
  edge: {
    strike: (service, _owner, other) => service.kill(other),
    repair: (service, _owner, other) => service.start(other),
    victim: 'other',
  },
  stop: {
    async strike(service, owner, _other, stage) {
      service.pause(owner)
      await stage.pass(2 * LEASE_SECONDS)
      service.resume(owner)
    },
    victim: 'owner',
  },
  drain: {
    async strike(service, owner, _other, stage) {
      await service.end(owner)
      await stage.pass(LEASE_SECONDS)
    },
    repair: (service, owner) => service.start(owner),
    victim: 'owner',
  },
  rolling: {
    async strike(service) {
      for (const node of service.nodes) await service.restart(node)
    },
  },
  redis: {
    async strike(service) {
      await service.end('redis')
      await service.start('redis')
    },
  },
  'redis-kill': {
    async strike(service) {
      await service.kill('redis')
      await service.start('redis')
    },
  },
}

/** What members of one room see when a process ends, hangs or is replaced. */
export const faults: Scenario = {
  name: 'faults',
  meaning:
    'The pause that members of a room see when a process ends, hangs or is replaced: two at each node, who send a message every 10 ms.',
  options: {
    fault: { meaning: `what is done: ${Object.keys(FAULTS).join(', ')}`, kind: 'text', default: 'kill' },
  },
  service: 'local',
  local: { direct: true, env: { DRAIN_SECONDS } },
  runs: 5,

  async run(stage) {
    const { clients, local } = stage
    const fault = FAULTS[stage.text('fault')]
    if (!fault)
      throw new Error(`--fault is "${stage.text('fault')}"; it may be: ${Object.keys(FAULTS).join(', ')}`)
    const elsewhere: number[] = []
    const there: number[] = []
    const took: number[] = []
    const count = local.nodes.length * MEMBERS_PER_NODE
    for (let run = 1; run <= stage.runs; run++)
      await stage.phase(`run ${run}`, 8, async () => {
        const room = `run-${run}`
        await clients.connect({ count, perSecond: 100 })
        await clients.join({ rooms: 1, perSecond: 100, room })
        await clients.start({ rate: RATE })
        await stage.pass(CALM_SECONDS.least + Math.random() * CALM_SECONDS.more)
        const owner = await local.ownerOf(`${stage.roomType}:${room}-0`)
        const other = local.nodes.find((node) => node !== owner) ?? owner
        await clients.markPauses()
        const began = performance.now()
        await fault.strike(local, owner, other, stage)
        took.push(performance.now() - began)
        await stage.pass(WATCH_SECONDS)
        await clients.stop()
        await clients.settle({ withinSeconds: SETTLE_SECONDS })
        const pauses = await clients.takePauses()
        await clients.leave()
        await fault.repair?.(local, owner, other)
        // Client i came to node i mod n first.
        const victim = fault.victim && { owner, other }[fault.victim]
        for (const { number, ms } of pauses) {
          const home = local.nodes[number % local.nodes.length]
          ;(home === victim ? there : elsewhere).push(ms)
        }
      })
    const struck = fault.victim !== undefined
    const goal = { kill: { value: 600, p99: 2000 }, drain: { p99: 100 } }[stage.text('fault')]
    stage.samples({
      name: struck ? 'pause of members at other nodes' : 'pause of all members',
      unit: 'ms',
      values: elsewhere,
      ...(goal && { goal }),
    })
    stage.samples({ name: 'pause of members at the node', unit: 'ms', values: there })
    stage.samples({ name: 'time that it took', unit: 'ms', values: took })
  },
}
