import { withCluster } from './cluster.ts'
import { commitRate } from './commits.ts'
import type { Figure } from './figure.ts'
import { manyRooms } from './many-rooms.ts'
import type { Measurement } from './measurement.ts'
import type { Rest } from './rest.ts'
import { playerAt, type RoundTrips, takeTurns } from './round-trips.ts'
import { sessions } from './sessions-measurement.ts'
import { inBlocks, percentile, summarize } from './statistics.ts'

/** Round trips of each player and run: the run's figure is their median. */
const TRIPS_PER_RUN = 250
const HOP_GOAL_MS = 1
const JOURNAL_GOAL_MS = 1.5
const KIB = 1024
const IDLE_ROOM_KIB = 20
const ROOMS = 5000
const REST_SECONDS = 20
/**
 * Half of ROOM_ORPHAN_TTL (600 s): a node looks at its rooms every quarter, and passes over records that were written since the look
 * before, so that each is kept alive at least once in this time.
 */
const PERIOD_SECONDS = 300

function tripFigures(
  trips: RoundTrips,
  runs: number,
  names: { first: string; second: string; difference: string; at_most: number },
): Figure[] {
  const medians = (samples: readonly number[]): number[] =>
    inBlocks(samples, TRIPS_PER_RUN).map((block) => percentile(block, 0.5))
  const [first, second] = [medians(trips.first), medians(trips.second)]
  const differences = second.map((median, i) => median - (first[i] ?? 0))
  return [
    { what: names.first, unit: 'ms', runs, summary: summarize(trips.first) },
    { what: names.second, unit: 'ms', runs, summary: summarize(trips.second) },
    {
      what: names.difference,
      unit: 'ms',
      runs,
      summary: summarize(differences),
      goals: [{ of: 'p50', at_most: names.at_most }],
    },
  ]
}

const hop: Measurement = {
  name: 'hop',
  most_ms_per_run: 30_000,
  run: ({ runs }) =>
    withCluster({}, async (cluster) => {
      const [owner, edge] = [cluster.slot(0), cluster.slot(1)]
      const near = await playerAt(cluster, { owner, edge: owner, durability: 'none' })
      const far = await playerAt(cluster, { owner, edge, durability: 'none' })
      const trips = await takeTurns(near, far, runs * TRIPS_PER_RUN)
      for (const player of [near, far]) player.close()
      return {
        name: 'hop',
        title: 'What an edge hop adds',
        method: `Two rooms at one node (durability none, sync.rate 0) with one member each, one connected to that node and one to another, taking turns with a reliable op. A run is ${TRIPS_PER_RUN} round trips of each; its difference is that of the two medians.`,
        figures: tripFigures(trips, runs, {
          first: 'round trip, connected to the owner (none)',
          second: 'round trip, connected to another node (none)',
          difference: 'added by the edge hop',
          at_most: HOP_GOAL_MS,
        }),
        facts: [],
      }
    }),
}

const journal: Measurement = {
  name: 'journal',
  most_ms_per_run: 30_000,
  run: ({ runs }) =>
    withCluster({}, async (cluster) => {
      const owner = cluster.slot(0)
      const none = await playerAt(cluster, { owner, edge: owner, durability: 'none' })
      const kept = await playerAt(cluster, { owner, edge: owner, durability: 'journal' })
      const trips = await takeTurns(none, kept, runs * TRIPS_PER_RUN)
      for (const player of [none, kept]) player.close()
      return {
        name: 'journal',
        title: 'What a journal adds',
        method: `As above, with both members connected to the owner, one in a room of durability none and one in a journal room. Redis writes its log before it answers and syncs it each second.`,
        figures: tripFigures(trips, runs, {
          first: 'round trip, room of durability none',
          second: 'round trip, journal room',
          difference: 'added by the journal',
          at_most: JOURNAL_GOAL_MS,
        }),
        facts: [],
      }
    }),
}

const commits: Measurement = {
  name: 'commits',
  most_ms_per_run: 60_000,
  run: ({ runs, progress }) =>
    withCluster({ nodes: 1 }, async (cluster) => {
      const rates = []
      for (const rooms of [1, 16, 64, 256]) {
        rates.push(await commitRate(cluster, { rooms, windows: runs, window_ms: 1000 }))
        progress(`${rooms} rooms`)
      }
      const percent = (share: number): number => Math.round(share * 100)
      return {
        name: 'commits',
        title: 'Commits per second of one node',
        method: `Closed loops of one op in each journal room, at a node that is alone (others would be given rooms once it is busy); commits counted in windows of one second, of which there are as many as runs. p50 is what was usual; max the best second. CPU is of one core; the clients share the machine.`,
        figures: rates.map(({ rooms, rates: samples }) => ({
          what: `commits, ${rooms} ${rooms === 1 ? 'room' : 'rooms'}`,
          unit: '/s',
          runs,
          summary: summarize(samples),
        })),
        facts: rates.flatMap(({ rooms, cpu }) => [
          {
            what: `${rooms} ${rooms === 1 ? 'room' : 'rooms'}: CPU of the node`,
            value: percent(cpu.nodes[0] ?? 0),
            unit: '%',
          },
          {
            what: `${rooms} ${rooms === 1 ? 'room' : 'rooms'}: CPU of Redis`,
            value: percent(cpu.redis),
            unit: '%',
          },
          {
            what: `${rooms} ${rooms === 1 ? 'room' : 'rooms'}: CPU of the clients`,
            value: percent(cpu.clients),
            unit: '%',
          },
        ]),
      }
    }),
}

const rooms: Measurement = {
  name: 'rooms',
  most_ms_per_run: 600_000,
  run: ({ progress }) =>
    withCluster({ env: { SESSION_RESUME_TTL: '3600' } }, async (cluster) => {
      progress(`opening ${ROOMS} rooms`)
      const found = await manyRooms(cluster, {
        rooms: ROOMS,
        rest_seconds: REST_SECONDS,
        period_seconds: PERIOD_SECONDS,
        durability: 'journal',
      })
      return {
        name: 'rooms',
        title: `${ROOMS.toLocaleString('en')} rooms on three nodes`,
        method: `Journal rooms with one member each, ten to a session, opened by 8 clients at a time at every node in turn. "Idle": all connections were broken, the sessions may be resumed and every seat is kept. Memory is what is in use after a garbage collection (heap and buffers), of all three nodes, less what was in use before the rooms were opened, so it includes a tenth of a session. The Redis commands, and the CPU, are those of ${REST_SECONDS} s in which nobody does anything: leases, the look at the other nodes, and heartbeats of connected members. In ${PERIOD_SECONDS} s every room's record is also kept alive at least once (its time to live is 600 s), which is the one thing that grows with the rooms.`,
        figures: [
          { what: 'join that creates a room', unit: 'ms', runs: 1, summary: summarize(found.joins_ms) },
        ],
        facts: [
          { what: 'creation', value: found.creation_seconds, unit: 's' },
          { what: 'rooms per second', value: ROOMS / found.creation_seconds, unit: '/s' },
          ...found.rooms_per_node.map((value, i) => ({ what: `rooms of node ${i + 1}`, value, unit: '' })),
          ...restFacts('no rooms', found.empty),
          ...restFacts('all rooms, members connected', found.connected),
          ...restFacts('all rooms, idle', found.idle),
          ...restFacts(`all rooms, idle, ${PERIOD_SECONDS} s`, found.period),
          {
            what: 'memory of a room, member connected',
            value: found.used_bytes_connected / KIB,
            unit: 'KiB',
          },
          {
            what: 'memory of an idle room',
            value: found.used_bytes_idle / KIB,
            unit: 'KiB',
            at_most: IDLE_ROOM_KIB,
          },
          { what: 'RSS of an idle room', value: found.rss_bytes_idle / KIB, unit: 'KiB' },
        ],
      }
    }),
}

const restFacts = (when: string, rest: Rest) => [
  { what: `${when}: Redis commands`, value: rest.commands_per_second, unit: '/s' },
  {
    what: `${when}: CPU of a node`,
    value: (100 * rest.nodes_cpu.reduce((sum, share) => sum + share, 0)) / rest.nodes_cpu.length,
    unit: '%',
  },
  { what: `${when}: CPU of Redis`, value: 100 * rest.redis_cpu, unit: '%' },
]

/** What it costs to play, and to keep what nobody plays. */
export const costMeasurements: readonly Measurement[] = [hop, journal, commits, rooms, sessions]
