import { FiguresCluster } from './cluster.ts'
import { type Fault, type FaultRun, runFault } from './fault-run.ts'
import { drain, kill, nothing, redis, rolling, stop } from './faults.ts'
import type { Fact, Figure, Goal } from './figure.ts'
import type { Measurement } from './measurement.ts'
import { summarize } from './statistics.ts'

/** Clients are moved over so long; a pause does not depend on it, the length of a run does. */
const DRAIN_SECONDS = '3'

interface PauseParts {
  readonly name: string
  readonly title: string
  readonly method: string
  readonly fault: Fault
  /** What the members at nodes that were not struck are called, and those at the node that was. Absent: there are none, or they are of no interest. */
  readonly elsewhere?: { readonly what: string; readonly goals?: readonly Goal[] }
  readonly there?: { readonly what: string; readonly goals?: readonly Goal[] }
  /** What the time is called that it took to strike, where that says something. */
  readonly took?: { readonly what: string }
  /** A crash may take the last second back. */
  readonly may_roll_back?: true
}

function pauseMeasurement(parts: PauseParts): Measurement {
  return {
    name: parts.name,
    most_ms_per_run: 60_000,
    async run({ runs, progress }) {
      const cluster = await FiguresCluster.start({ env: { DRAIN_SECONDS } })
      try {
        const all: FaultRun[] = []
        for (let turn = 0; turn < runs; turn++) {
          all.push(await runFault(cluster, parts.fault, turn))
          progress(`run ${turn + 1} of ${runs}, worst ${Math.round(worst(all))} ms`)
        }
        return {
          name: parts.name,
          title: parts.title,
          method: parts.method,
          figures: [
            ...figureOf(parts.elsewhere, runs, all, ({ elsewhere }) => elsewhere),
            ...figureOf(parts.there, runs, all, ({ there }) => there),
            ...figureOf(parts.took, runs, all, ({ took_ms }) => [took_ms]),
          ],
          facts: factsOf(parts, all),
        }
      } finally {
        await cluster.close()
      }
    },
  }
}

const worst = (all: readonly FaultRun[]): number =>
  Math.max(...all.flatMap(({ elsewhere, there }) => [...elsewhere, ...there]))

function figureOf(
  group: PauseParts['there'],
  runs: number,
  all: readonly FaultRun[],
  pauses: (run: FaultRun) => readonly number[],
): Figure[] {
  return group ? [{ ...group, unit: 'ms', runs, summary: summarize(all.flatMap(pauses)) }] : []
}

function factsOf({ may_roll_back }: PauseParts, all: readonly FaultRun[]): Fact[] {
  const sum = (of: (run: FaultRun) => number): number => all.reduce((total, run) => total + of(run), 0)
  const none = may_roll_back ? {} : { at_most: 0 }
  return [
    { what: 'sessions lost', value: sum((run) => run.sessions_lost), unit: '', at_most: 0 },
    { what: 'acked ops lost', value: sum((run) => run.acks_lost), unit: '', ...none },
    {
      what: 'ops refused or without effect',
      value: sum((run) => run.failures.length),
      unit: '',
      at_most: 0,
    },
    ...reasons(all).map(([reason, value]) => ({ what: `refused: ${reason}`, value, unit: '' })),
  ]
}

/** Why ops failed, and how often. */
function reasons(all: readonly FaultRun[]): [string, number][] {
  const counts = new Map<string, number>()
  for (const { failures } of all)
    for (const failure of failures) {
      const reason = failure.replace(/figures-\S+/, 'the room')
      counts.set(reason, (counts.get(reason) ?? 0) + 1)
    }
  return [...counts]
}

const CRASH_GOALS: readonly Goal[] = [
  { of: 'p50', at_most: 600 },
  { of: 'p99', at_most: 2000 },
]
const DRAIN_GOALS: readonly Goal[] = [{ of: 'p99', at_most: 100 }]

/** The pauses that members see, one measurement for each kind of fault. */
export const pauseMeasurements: readonly Measurement[] = [
  pauseMeasurement({
    name: 'nothing',
    title: 'Nothing happens',
    method:
      'What is measured when there is no fault: the unrest of this machine, which is in all that follows.',
    fault: nothing,
    elsewhere: { what: 'no fault: all members' },
  }),
  pauseMeasurement({
    name: 'kill',
    title: 'SIGKILL of the owner, journal room',
    method: 'Every run kills another node; the room is opened by its first member at that node.',
    fault: kill('journal', 'owner'),
    elsewhere: { what: 'owner killed (journal): members at other nodes', goals: CRASH_GOALS },
    there: { what: 'owner killed (journal): its own members, which reconnect; the node was both' },
  }),
  pauseMeasurement({
    name: 'kill-snapshot',
    title: 'SIGKILL of the owner, snapshot room',
    method: 'As above; what was acked in the second before the crash may be taken back.',
    fault: kill('snapshot', 'owner'),
    elsewhere: { what: 'owner killed (snapshot): members at other nodes', goals: CRASH_GOALS },
    there: { what: 'owner killed (snapshot): its own members' },
    may_roll_back: true,
  }),
  pauseMeasurement({
    name: 'edge',
    title: 'SIGKILL of an edge that is not the owner',
    method: 'The members of the edge come back through another node and resume.',
    fault: kill('journal', 'another'),
    elsewhere: { what: 'edge killed: members at other nodes' },
    there: { what: 'edge killed: its members, which reconnect' },
  }),
  pauseMeasurement({
    name: 'stop',
    title: 'SIGSTOP of the owner for two leases',
    method:
      'The process keeps its connections, so that nobody is told that it is away: its lease (2 s) has to run out. Its own members have a silent connection, which is not what is measured here.',
    fault: stop,
    elsewhere: { what: 'owner stopped: members at other nodes' },
  }),
  pauseMeasurement({
    name: 'drain',
    title: 'Drain of the owner (SIGTERM)',
    method: `DRAIN_SECONDS=${DRAIN_SECONDS}. The members of the draining node are told when to reconnect, and do so at another node.`,
    fault: drain,
    elsewhere: { what: 'owner drained: members at other nodes', goals: DRAIN_GOALS },
    there: { what: 'owner drained: its own members, which move' },
  }),
  pauseMeasurement({
    name: 'rolling',
    title: 'Rolling restart of all three nodes',
    method: 'One node after the other is drained, ends, and is started anew, while everybody plays on.',
    fault: rolling,
    elsewhere: { what: 'rolling restart: the worst pause of each member' },
    took: { what: 'rolling restart: from the first SIGTERM until all is new' },
  }),
  pauseMeasurement({
    name: 'redis',
    title: 'Restart of Redis in order (SIGTERM), with its data',
    method: 'Redis is started again as soon as it has ended; appendonly, appendfsync everysec.',
    fault: redis('SIGTERM'),
    elsewhere: { what: 'Redis restarted in order: all members' },
    took: { what: 'Redis restarted in order: Redis was away' },
  }),
  pauseMeasurement({
    name: 'redis-kill',
    title: 'SIGKILL of Redis and restart, with its data',
    method: 'As above, with a crash instead of an end in order.',
    fault: redis('SIGKILL'),
    elsewhere: { what: 'Redis killed and restarted: all members' },
    took: { what: 'Redis killed and restarted: Redis was away' },
  }),
]
