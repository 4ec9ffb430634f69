import { setTimeout as sleep } from 'node:timers/promises'
import type { Durability } from '../../dataplane/rooms/definition.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import type { FiguresCluster, Slot } from './cluster.ts'
import type { Door, Doors } from './doors.ts'
import { pauseOf } from './pauses.ts'
import { Player, roomIdOf } from './player.ts'

/** Something that is done to a cluster while members play. */
export interface Fault {
  readonly durability: Durability
  /** What is done; resolves when there is no more to be done while members are watched. */
  strike(stage: Stage): Promise<void>
  /** Makes the cluster whole again after the watch: on one machine the start of a process takes time from all others. */
  repair(stage: Stage): Promise<void>
  /** The node that is struck; undefined: none. */
  victim(cluster: FiguresCluster, owner: Slot): Slot | undefined
  /** How long members are watched at least from the stroke on, milliseconds. */
  readonly watch_ms: number
}

/** Where a fault happens. */
export interface Stage {
  readonly cluster: FiguresCluster
  /** The node that ran the room when it began. */
  readonly owner: Slot
  /** Nodes that a load balancer would send nobody to. */
  readonly closed: Set<Door>
}

/** What the members of one run saw. */
export interface FaultRun {
  /** The pause of each member whose connection was at a node that was not struck, milliseconds. */
  readonly elsewhere: readonly number[]
  /** The same of those at the node that was struck. */
  readonly there: readonly number[]
  /** How long it took to strike, milliseconds. */
  readonly took_ms: number
  readonly sessions_lost: number
  readonly acks_lost: number
  /** Why ops were refused, one text for each; those that had no effect at the end are among them. */
  readonly failures: readonly string[]
}

const OP_MS = 10
const MEMBERS_PER_NODE = 2
/** Before the stroke: long enough for the normal period, short enough for many runs. */
const WARM_MS = 800
/** And so much longer at most, so that saves of the room are not always equally old. */
const WARM_MORE_MS = 700
/** Members play on for as long as somebody waits, but no longer than this. */
const MOST_MS = 20_000
/** Who had no effect for so long is waiting. */
const WAITING_MS = 150
const STOP_MS = 5000

/** One room with members at every node, and one fault; `turn` says where the room is opened. Leaves a cluster that is whole again. */
export async function runFault(cluster: FiguresCluster, fault: Fault, turn: number): Promise<FaultRun> {
  const room = { durability: fault.durability, key: `run-${randomToken(systemRandom, 8)}` }
  const closed = new Set<Door>()
  const doors: Doors = { slots: cluster.slots, isOpen: (slot) => !closed.has(slot) }
  await cluster.settle()
  const players: Player[] = []
  try {
    for (let i = 0; i < cluster.slots.length * MEMBERS_PER_NODE; i++)
      players.push(await Player.join(cluster.slot(turn + i), room, cluster.credentials, doors))
    const owner = await cluster.ownerOf(roomIdOf(room))
    const victim = fault.victim(cluster, owner)
    for (const player of players) player.start(OP_MS)
    await sleep(WARM_MS + Math.random() * WARM_MORE_MS)

    const from = performance.now()
    const stage: Stage = { cluster, owner, closed }
    let took_ms = 0
    const over = fault.strike(stage).then(() => {
      took_ms = performance.now() - from
    })
    await Promise.all([over, sleep(fault.watch_ms)])
    while (performance.now() - from < MOST_MS && players.some(isWaiting)) await sleep(WAITING_MS)
    const until = performance.now()
    const settled = await Promise.all(players.map((player) => player.stop(STOP_MS)))
    await fault.repair(stage)

    const pauseOfAll = (chosen: (player: Player) => boolean): number[] =>
      players.filter(chosen).map(({ effects }) => pauseOf(effects, { from, until }))
    return {
      elsewhere: pauseOfAll(({ home }) => home !== victim),
      there: pauseOfAll(({ home }) => home === victim),
      took_ms,
      sessions_lost: players.filter(({ session_lost }) => session_lost).length,
      acks_lost: players.reduce((sum, { acks_lost }) => sum + acks_lost, 0),
      failures: players.flatMap(({ failures }, i) => (settled[i] ? failures : [...failures, 'no answer'])),
    }
  } finally {
    for (const player of players) player.close()
  }
}

const isWaiting = ({ effects }: Player): boolean => performance.now() - (effects.at(-1) ?? 0) > WAITING_MS
