import { writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { carryOutOrders, metric, OtherProcess } from '../attack/attack.ts'
import { attack, type Order, type Outcome } from './attacker.ts'
import {
  ENDING,
  FaultLog,
  HOOKS,
  type Hook,
  hooksOf,
  KINDS,
  type Kind,
  messageOf,
  type Rerun,
} from './faults.ts'
import { type Experiences, HonestPlayers } from './honest-players.ts'
import { isScarcity, makeScarce, SCARCITIES, type Scarcity } from './scarcity.ts'
import { NODES, type ProcessEnd, Supervisor, startCluster, startDev } from './service.ts'

const HELP = `npm run bad-rooms -- [options]

Starts a cluster of three nodes with bad room code. Players in another process trigger the faults, each in a new room, while twelve honest
players play: in other rooms, in another project, and in the bad room type with the same messages. Each kind of fault gets a new cluster.
Measures the ends of node processes, whether all nodes are live after the last allowed end, the acks of the honest players, and whether a
message that has ended one process was given to another one. In two more trials, a node is suspended, or gets 10 % of a core.

  --seconds N      time for each kind (600): first the fault of each hook alone, then all in turn, in a new room each time
  --kinds KINDS    ${[...KINDS, ...SCARCITIES].join(', ')} (all)
  --hooks HOOKS    ${HOOKS.join(', ')} (all)
  --rate N         faults per second in new rooms (3)
  --players N      players (sub) that trigger faults in turn (a new one for each fault)
  --share N        required percentage of honest messages that are acked within 2 s (97); the ends weigh more in a short run
  --worst N        the percentage for the worst ten seconds (85); if only the end of a process stops the fault: from 15 s after the first one
  --same N         the percentage for those who send the messages of the attackers (90), if a cut-off stops the fault
  --dev            roomful dev instead of a cluster; its process must not end, and honest players have no goals
  --json FILE      write the results to this file
  --keep           keep the folders with the logs

Exits with 1 if a goal is missed.
`
/** Allowed number of ended node processes for a kind that a cut-off stops. Of other kinds, and with code after an `await`, each node may end once. */
const MOST_ENDS = 2
/** Time after the first fault in which all players must be served again. */
const SERVED_AGAIN_MS = 15_000
const PROGRESS_MS = 10_000

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '600' },
    kinds: { type: 'string', default: [...KINDS, ...SCARCITIES].join() },
    hooks: { type: 'string', default: HOOKS.join() },
    rate: { type: 'string', default: '3' },
    players: { type: 'string' },
    share: { type: 'string', default: '97' },
    worst: { type: 'string', default: '85' },
    same: { type: 'string', default: '90' },
    dev: { type: 'boolean', default: false },
    json: { type: 'string' },
    keep: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

function wrong(message: string): never {
  process.stderr.write(`${message}\n\n${HELP}`)
  process.exit(2)
}

function chosen<T extends string>(option: 'kinds' | 'hooks', all: readonly T[]): readonly T[] {
  const names = values[option].split(',')
  const unknown = names.find((name) => !(all as readonly string[]).includes(name))
  if (unknown !== undefined) wrong(`--${option} names ${unknown}: use some of ${all.join(', ')}`)
  return all.filter((name) => names.includes(name))
}

function number(option: 'seconds' | 'rate' | 'players' | 'share' | 'worst' | 'same'): number {
  const value = Number(values[option])
  if (!(value > 0)) wrong(`--${option} is ${values[option]}: use a number above 0`)
  return value
}

const say = (line: string): void => void process.stdout.write(`${line}\n`)

/** Result of one kind of fault. */
interface Judgement extends Experiences {
  readonly kind: Kind | Scarcity
  readonly hooks: readonly Hook[]
  readonly ends: readonly (ProcessEnd & { readonly hook: string })[]
  /** Starts of bad code. */
  readonly faults: number
  /** Hooks in which no bad code has started. */
  readonly not_reached: readonly Hook[]
  /** Share of the checks after the last allowed end in which all nodes were ready, from 0 to 1. */
  readonly live_afterwards: number
  readonly room_errors: number
  readonly reruns: readonly Rerun[]
  readonly outcome: Outcome
  /** Descriptions of the missed goals. */
  readonly missed: readonly string[]
}

async function judge(kind: Kind | Scarcity, hooks: readonly Hook[]): Promise<Judgement> {
  const seconds = number('seconds')
  say(`\n${kind}${hooks.length > 0 ? ` in ${hooks.join(', ')}` : ''}`)
  // Started before the service, so that both become ready at the same time.
  const attacker = new OtherProcess<Order, Outcome>(import.meta.filename)
  const service = await (values.dev ? startDev() : startCluster())
  const { target, processes, faultLog } = service
  const faults = new FaultLog(faultLog)
  const began = Date.now()
  const note = (line: string): void => say(`  ${((Date.now() - began) / 1000).toFixed(1)} s: ${line}`)
  const describe = (end: ProcessEnd): string => faults.culprit(end)?.hook ?? 'no fault'
  try {
    const honest = await HonestPlayers.gather(target, messagesOf(hooks))
    const supervisor = new Supervisor({
      processes,
      adminUrls: target.adminUrls,
      restart: !values.dev,
      mostEnds: mostEnds(kind, hooks),
      onEnd: (end) => note(`${end.node} ended (${end.how}) after a fault in ${describe(end)}`),
    })
    const progress = setInterval(() => {
      const { ends } = supervisor
      note(
        `${faults.length} faults, ${ends.length} ends, ${percent(honest.share)} of honest messages in time`,
      )
    }, PROGRESS_MS)
    const players = values.players === undefined ? undefined : number('players')
    const suffer = (): Promise<Outcome> =>
      isScarcity(kind)
        ? makeScarce(kind, target.nodePids[0]!, seconds).then(() => ({}))
        : attacker.carryOut({ target, kind, hooks, seconds, rate: number('rate'), players })
    // The rooms and the project of roomful dev are in its memory, so its end is the end of the measurement.
    const endOfDev = values.dev ? [processes[0]!.ended.then((): Outcome => ({}))] : []
    const outcome = await Promise.race([suffer(), ...endOfDev])
    clearInterval(progress)
    attacker.end()
    honest.stop()
    await supervisor.stop()
    const first = faults.first ?? began
    const found = {
      ...(await honest.end(isEnding(kind) ? first + SERVED_AGAIN_MS : first)),
      kind,
      hooks,
      ends: supervisor.ends.map((end) => ({ ...end, hook: describe(end) })),
      faults: faults.length,
      not_reached: hooks.filter((hook) => !faults.hooks.has(hook)),
      live_afterwards: supervisor.liveAfterwards,
      room_errors: await metric(target, 'service_room_errors_total').catch(() => 0),
      reruns: faults.reruns(supervisor.ends),
      outcome,
    }
    note(
      `players: ${Object.entries(outcome)
        .map(([code, times]) => `${code} × ${times}`)
        .join(', ')}`,
    )
    if (found.not_reached.length > 0) note(`not reached: ${found.not_reached.join(', ')}`)
    const missed = missedGoals(found)
    for (const goal of missed) note(`MISSED: ${goal}`)
    return { ...found, missed }
  } finally {
    attacker.end()
    if (values.keep) say(`  logs: ${service.folder}, ${service.faultLog}`)
    await service.close(values.keep)
  }
}

const isEnding = (kind: Kind | Scarcity): boolean => (ENDING as readonly string[]).includes(kind)

const mostEnds = (kind: Kind | Scarcity, hooks: readonly Hook[]): number =>
  isEnding(kind) || hooks.includes('admitAfterAwait') ? NODES : MOST_ENDS

/** Returns the types of the messages that reach the hooks, or the first type if none does. */
function messagesOf(hooks: readonly Hook[]): readonly string[] {
  const types = hooks.flatMap((hook) => messageOf(hook) ?? [])
  return types.length > 0 ? types : [messageOf('onMessage')!]
}

function missedGoals(found: Omit<Judgement, 'missed'>): readonly string[] {
  const { kind, hooks, ends, faults, others, same, lost, doubled, reruns, live_afterwards, room_errors } =
    found
  if (isScarcity(kind)) return ends.length > 0 ? [`${ends.length} processes ended, none may`] : []
  const most = values.dev ? 0 : mostEnds(kind, hooks)
  const regiven = reruns.filter((rerun) => rerun.regiven)
  const twice = ends.find(({ node }) => ends.filter((end) => end.node === node).length > 1)
  const errorsAreDue = ['rejection', 'timer-throw', 'task-throw'].includes(kind) && ends.length === 0
  const inCluster = [
    live_afterwards < 1 &&
      `all nodes were live in ${percent(live_afterwards)} of the time after the last allowed end`,
    100 * others.in_time < number('share') * others.due &&
      `${percent(others.in_time / others.due)} of honest messages were acked within 2 s`,
    100 * others.worst < number('worst') &&
      `${percent(others.worst)} of honest messages were acked within 2 s in the worst ten seconds`,
    !isEnding(kind) &&
      100 * same.in_time < number('same') * same.due &&
      `${percent(same.in_time / same.due)} of the same messages of honest players were acked within 2 s`,
    lost > 0 && `${lost} acked messages were lost`,
    doubled > 0 && `${doubled} messages were applied more than once`,
  ]
  return [
    faults === 0 && 'no bad code has run',
    most === NODES
      ? twice !== undefined && `${twice.node} ended more than once`
      : ends.length > most && `${ends.length} processes ended, at most ${most} may`,
    regiven.length > 0 &&
      `${regiven.length} messages that had ended one process were given to another one, such as ${JSON.stringify(regiven[0])}`,
    kind === 'loop' &&
      reruns.length > 0 &&
      `${reruns.length} messages were started again after they were cut off, such as ${JSON.stringify(reruns[0])}`,
    errorsAreDue && room_errors === 0 && 'service_room_errors_total is 0',
    ...(values.dev ? [] : inCluster),
  ].filter((goal) => goal !== false)
}

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`

function table(judgements: readonly Judgement[]): string {
  const header = [
    'kind',
    'hooks',
    'faults',
    'process ends',
    'live afterwards',
    'honest acks in 2 s',
    'in the worst 10 s',
    'same message: acks, worst 10 s',
    'ack p99',
    'lost / doubled',
    'given again after an end / started again',
  ]
  const rows = judgements.map((found) => {
    const { kind, hooks, faults, ends, live_afterwards, others, same, lost, doubled, reruns } = found
    const byHook = [...new Set(ends.map(({ hook }) => hook))].map(
      (hook) => `${hook} ${ends.filter((end) => end.hook === hook).length}`,
    )
    return [
      kind,
      isScarcity(kind)
        ? '–'
        : hooks.length === hooksOf(kind).length
          ? `all ${hooks.length}`
          : hooks.join(', '),
      faults,
      ends.length === 0 ? 0 : `${ends.length} (${byHook.join(', ')})`,
      percent(live_afterwards),
      `${percent(others.in_time / others.due)} of ${others.due}`,
      percent(others.worst),
      `${percent(same.in_time / same.due)}, ${percent(same.worst)}`,
      `${others.ack_p99_ms.toFixed(0)} ms`,
      // The states were in the memory of the ended process.
      values.dev && ends.length > 0 ? '–' : `${lost} / ${doubled}`,
      `${reruns.filter(({ regiven }) => regiven).length} / ${reruns.length}`,
    ]
  })
  return [header, header.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

async function main(): Promise<number> {
  const kinds = chosen<Kind | Scarcity>('kinds', [...KINDS, ...SCARCITIES])
  const hooks = chosen('hooks', HOOKS)
  for (const option of ['seconds', 'rate', 'share', 'worst', 'same'] as const) number(option)
  const judgements: Judgement[] = []
  for (const kind of kinds) {
    // roomful dev has no second node with other code.
    if (isScarcity(kind)) {
      if (!values.dev) judgements.push(await judge(kind, []))
      continue
    }
    const some = hooksOf(kind).filter((hook) => hooks.includes(hook) && !(values.dev && hook === 'migrate'))
    if (some.length > 0) judgements.push(await judge(kind, some))
  }
  say(`\n${table(judgements)}\n`)
  if (values.json !== undefined) await writeFile(values.json, `${JSON.stringify(judgements, null, 2)}\n`)
  const good = judgements.filter(({ missed }) => missed.length === 0).length
  say(`${good} of ${judgements.length} kinds met all goals`)
  return good < judgements.length ? 1 : 0
}

if (process.send) carryOutOrders(attack)
else if (values.help) process.stdout.write(HELP)
else process.exit(await main())
