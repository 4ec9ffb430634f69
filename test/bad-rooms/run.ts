import { writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { carryOutOrders, metric, OtherProcess } from '../attack/attack.ts'
import { attack, type Order, type Outcome } from './attacker.ts'
import { FaultLog, HOOKS, type Hook, hooksOf, KINDS, type Kind, type Rerun } from './faults.ts'
import { type Experience, HonestPlayers } from './honest-players.ts'
import { type ProcessEnd, Supervisor, startCluster, startDev } from './service.ts'

const HELP = `npm run bad-rooms -- [options]

Starts a cluster of three nodes with bad room code. Players in another process trigger the faults, while six honest players play. Each kind
of fault gets a new cluster. Measures the ends of node processes, whether all nodes are live after the second end, the acks of the honest
players, and whether a message that has ended one process was given to another one.

  --seconds N      time for each kind (600): first the fault of each hook alone, then all in turn, in a new room each time
  --kinds KINDS    ${KINDS.join(', ')} (all)
  --hooks HOOKS    ${HOOKS.join(', ')} (all)
  --rate N         faults per second in new rooms (3)
  --players N      players (sub) that trigger faults in turn (40)
  --share N        required percentage of honest messages that are acked within 2 s (97); two ends weigh more in a short run
  --dev            roomful dev instead of a cluster; its process must not end, and honest players have no goals
  --json FILE      write the results to this file
  --keep           keep the folders with the logs

Exits with 1 if a goal is missed.
`
/** Allowed number of ended node processes for each kind. */
const MOST_ENDS = 2
const PROGRESS_MS = 10_000

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '600' },
    kinds: { type: 'string', default: KINDS.join() },
    hooks: { type: 'string', default: HOOKS.join() },
    rate: { type: 'string', default: '3' },
    players: { type: 'string', default: '40' },
    share: { type: 'string', default: '97' },
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

function number(option: 'seconds' | 'rate' | 'players' | 'share'): number {
  const value = Number(values[option])
  if (!(value > 0)) wrong(`--${option} is ${values[option]}: use a number above 0`)
  return value
}

const say = (line: string): void => void process.stdout.write(`${line}\n`)

/** Result of one kind of fault. */
interface Judgement extends Experience {
  readonly kind: Kind
  readonly hooks: readonly Hook[]
  readonly ends: readonly (ProcessEnd & { readonly hook: string })[]
  /** Starts of bad code. */
  readonly faults: number
  /** Hooks in which no bad code has started. */
  readonly not_reached: readonly Hook[]
  /** Share of the checks after the second end in which all nodes were ready, from 0 to 1. */
  readonly live_afterwards: number
  readonly room_errors: number
  readonly reruns: readonly Rerun[]
  readonly outcome: Outcome
  /** Descriptions of the missed goals. */
  readonly missed: readonly string[]
}

async function judge(kind: Kind, hooks: readonly Hook[]): Promise<Judgement> {
  const seconds = number('seconds')
  say(`\n${kind} in ${hooks.join(', ')}`)
  // Started before the service, so that both become ready at the same time.
  const attacker = new OtherProcess<Order, Outcome>(import.meta.filename)
  const service = await (values.dev ? startDev() : startCluster())
  const { target, processes, faultLog } = service
  const faults = new FaultLog(faultLog)
  const began = Date.now()
  const note = (line: string): void => say(`  ${((Date.now() - began) / 1000).toFixed(1)} s: ${line}`)
  const describe = (end: ProcessEnd): string => faults.culprit(end)?.hook ?? 'no fault'
  try {
    const honest = await HonestPlayers.gather(target)
    const supervisor = new Supervisor({
      processes,
      adminUrls: target.adminUrls,
      restart: !values.dev,
      onEnd: (end) => note(`${end.node} ended (${end.how}) after a fault in ${describe(end)}`),
    })
    const progress = setInterval(() => {
      const { ends } = supervisor
      note(
        `${faults.length} faults, ${ends.length} ends, ${percent(honest.share)} of honest messages in time`,
      )
    }, PROGRESS_MS)
    const order = { target, kind, hooks, seconds, rate: number('rate'), players: number('players') }
    // The rooms and the project of roomful dev are in its memory, so its end is the end of the measurement.
    const endOfDev = values.dev ? [processes[0]!.ended.then((): Outcome => ({}))] : []
    const outcome = await Promise.race([attacker.carryOut(order), ...endOfDev])
    clearInterval(progress)
    attacker.end()
    honest.stop()
    await supervisor.stop()
    const found = {
      ...(await honest.end()),
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

function missedGoals(found: Omit<Judgement, 'missed'>): readonly string[] {
  const { kind, ends, faults, due, in_time, lost, doubled, reruns, live_afterwards, room_errors } = found
  const most = values.dev ? 0 : MOST_ENDS
  const regiven = reruns.filter((rerun) => rerun.regiven)
  const errorsAreDue = ['rejection', 'timer-throw', 'task-throw'].includes(kind) && ends.length === 0
  const inCluster = [
    live_afterwards < 1 &&
      `all nodes were live in ${percent(live_afterwards)} of the time after the second end`,
    100 * in_time < number('share') * due &&
      `${percent(in_time / due)} of honest messages were acked within 2 s`,
    lost > 0 && `${lost} acked messages were lost`,
    doubled > 0 && `${doubled} messages were applied more than once`,
  ]
  return [
    faults === 0 && 'no bad code has run',
    ends.length > most && `${ends.length} processes ended, at most ${most} may`,
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
    'ack p99',
    'lost / doubled',
    'given again after an end / started again',
  ]
  const rows = judgements.map((found) => {
    const { kind, hooks, faults, ends, live_afterwards, due, in_time, ack_p99_ms, lost, doubled, reruns } =
      found
    const byHook = [...new Set(ends.map(({ hook }) => hook))].map(
      (hook) => `${hook} ${ends.filter((end) => end.hook === hook).length}`,
    )
    return [
      kind,
      hooks.length === hooksOf(kind).length ? `all ${hooks.length}` : hooks.join(', '),
      faults,
      ends.length === 0 ? 0 : `${ends.length} (${byHook.join(', ')})`,
      percent(live_afterwards),
      `${percent(in_time / due)} of ${due}`,
      `${ack_p99_ms.toFixed(0)} ms`,
      // The states were in the memory of the ended process.
      values.dev && ends.length > 0 ? '–' : `${lost} / ${doubled}`,
      `${reruns.filter(({ regiven }) => regiven).length} / ${reruns.length}`,
    ]
  })
  return [header, header.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

async function main(): Promise<number> {
  const kinds = chosen('kinds', KINDS)
  const hooks = chosen('hooks', HOOKS)
  for (const option of ['seconds', 'rate', 'players', 'share'] as const) number(option)
  const judgements: Judgement[] = []
  for (const kind of kinds) {
    // roomful dev has no second node with other code.
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
