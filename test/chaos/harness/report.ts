import {
  type BackendRecord,
  type History,
  type Lobby,
  type QueueRecord,
  VIOLATIONS,
  type Violation,
} from '../checker/history.ts'
import { describeExcused, percent } from '../checker/ownership.ts'
import type { ChaosOptions, ChaosResult } from './chaos.ts'

/** Number of violations that are printed with a trace. The others are only counted. */
const TRACED = 3

/** Returns the result of a run in one line. */
export function summary({ history, violations, excused }: ChaosResult): string {
  const { clients, faults } = history
  const acks = clients.filter(({ kind }) => kind === 'ack').length
  const drawn = faults.filter(({ kind }) => kind !== 'stall').length
  const [going, gone] = (['rerouting', 'rerouted'] as const).map(
    (each) => clients.filter(({ kind }) => kind === each).length,
  )
  const names = [...new Set(violations.map(({ name }) => name))]
  const verdict = names.length > 0 ? `FAILED: ${names.join(', ')}` : 'held'
  return `${verdict}; ${acks} acks, ${drawn} faults, ${going ? `${gone}/${going} change-overs, ` : ''}${percent(excused.excused, excused.pairs)} excused`
}

/** Returns the result of a run as text. `command`: command line that repeats the run. */
export function report({ history, violations, excused, folder }: ChaosResult, command: string): string {
  const { clients, store, faults } = history
  const count = (kind: string) => clients.filter((record) => record.kind === kind).length
  const standing = store.filter(({ kind, ok }) => (kind === 'commit' || kind === 'snapshot') && ok).length
  const claims = store.filter(({ kind, ok }) => kind === 'claim' && ok).length
  const resyncs = clients.filter((record) => record.kind === 'frame' && record.t === 'state.resync').length
  const lines = [
    '',
    `${command}: ${clients.length} client records (${count('frame')} frames, ${count('sent')} sends, ${count('ack')} acks, ${count('refused')} refusals, ${resyncs} resyncs, ${count('resuming')} resumes, ${count('rerouted')} of ${count('rerouting')} change-overs done), ${standing} commits and ${claims} claims in the store, ${faults.filter(({ kind }) => kind !== 'stall').length} faults`,
    ...(history.lobby ? [describeLobby(history.lobby)] : []),
    ...(history.queue ? [`queue: ${counted(history.queue.records.map(describeQueued))}`] : []),
    ...(history.backends ? [`backends: ${counted(history.backends.records.map(describeCall))}`] : []),
    '',
    ...describeExcused(excused),
    '',
  ]
  if (violations.length === 0) return [...lines, 'every guarantee held', ''].join('\n')
  for (const violation of violations.slice(0, TRACED)) {
    const { name, room, member, client, message } = violation
    lines.push(
      `VIOLATION ${name}: ${VIOLATIONS[name]}`,
      `  ${[room, member, client].filter(Boolean).join(', ')}: ${message}`,
      ...traceOf(history, violation).map((line) => `  ${line}`),
      '',
    )
  }
  const names = [...new Set(violations.map(({ name }) => name))]
  const counts = names.map(
    (name) => `${violations.filter((violation) => violation.name === name).length} ${name}`,
  )
  lines.push(`${violations.length} violations: ${counts.join(', ')}`, `again: ${command}`)
  if (folder !== undefined) lines.push(`logs and store histories: ${folder}`)
  return [...lines, ''].join('\n')
}

function describeLobby({ records }: Lobby): string {
  const kinds = records.map((record) => {
    if (record.kind === 'not_found') return `${record.by} ${record.error}`
    return record.kind === 'found' ? `found by ${record.by}` : record.kind
  })
  return `lobby: ${counted(kinds)}`
}

const describeQueued = (record: QueueRecord): string =>
  'code' in record ? `${record.kind} ${record.code}` : record.kind

function counted(kinds: readonly string[]): string {
  const counts = new Map<string, number>()
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1)
  return [...counts].map(([kind, count]) => `${count} ${kind}`).join(', ')
}

const describeCall = (record: BackendRecord): string =>
  record.kind === 'answered' && record.code !== null ? `answered ${record.code}` : record.kind

/** Returns the command line that repeats a run. */
export const commandFor = ({
  seed,
  seconds,
  nodes,
  clients,
  rooms,
  lobby,
  queue,
  backends,
  unfenced,
  direct,
}: ChaosOptions): string =>
  `npm run chaos -- --seed ${seed} --seconds ${seconds} --nodes ${nodes} --clients ${clients} --rooms ${rooms} --lobby ${lobby} --queue ${queue} --backends ${backends}${direct ? ' --direct' : ''}${unfenced ? ' --unfenced' : ''}`

/** Number of records that a trace shows before and after a violation. */
const RECORDS_BEFORE = 24
const RECORDS_AFTER = 6
const STORE_BEFORE = 10
const STORE_AFTER = 4
/** A trace shows the faults of this time before the violation. */
const FAULTS_MS = 8000

/** Returns the records that belong to a violation, one line each, in the order of time. Times are milliseconds since the first record. */
function traceOf(history: History, violation: Violation): string[] {
  const { at, room, member, client } = violation
  const begin = history.clients[0]?.at ?? 0
  const lines: { at: number; text: string }[] = []
  const add = (when: number, text: string) => lines.push({ at: when, text })

  const seen = history.clients.filter((record) => {
    const ofClient = client === undefined || record.client === client
    const ofRoom = !('room' in record) || room === undefined || record.room === room
    const ofMember = !('member' in record) || member === undefined || record.member === member
    // Events and presence add little to the patch before them.
    const telling = record.kind !== 'marks' && (record.kind !== 'frame' || record.t.startsWith('state.'))
    return ofClient && ofRoom && ofMember && telling && (client !== undefined || 'room' in record)
  })
  for (const record of around(seen, at, RECORDS_BEFORE, RECORDS_AFTER)) {
    const { at: when, client: who, kind, ...rest } = record
    const fields = Object.entries(rest).filter(([name]) => name !== 'room' && name !== 'member')
    const text = fields.map(
      ([name, value]) => `${name} ${typeof value === 'object' ? JSON.stringify(value) : value}`,
    )
    add(when, `${who} ${kind}  ${text.join(', ')}`)
  }
  if (room !== undefined) {
    const calls = history.store.filter((record) => record.room === room)
    const claims = calls.filter(({ kind }) => kind !== 'commit' && kind !== 'snapshot')
    const writes = calls.filter(({ kind }) => kind === 'commit' || kind === 'snapshot')
    const shown = [
      ...claims.filter(({ ok, ended }) => ok !== false && ended <= at).slice(-STORE_BEFORE),
      ...around(
        writes.map((record) => ({ ...record, at: record.ended })),
        at,
        STORE_BEFORE,
        STORE_AFTER,
      ),
    ]
    for (const { ended, node, kind, epoch, version, ok, content } of shown)
      add(
        ended,
        `${node} ${kind} epoch ${epoch} version ${version}${content ? ` seq ${content.seq} checksum ${content.checksum}` : ''}: ${ok === undefined ? 'no answer' : ok ? 'stands' : 'fenced'}`,
      )
  }
  for (const { kind, node, clients, at: from, until, amount } of history.faults)
    if (from <= at && until >= at - FAULTS_MS)
      add(
        from,
        `*** ${kind} of ${node ?? clients?.join(', ') ?? 'redis'}${amount ? ` ${amount}` : ''} for ${Math.round(until - from)} ms`,
      )
  return lines
    .sort((a, b) => a.at - b.at)
    .map(({ at: when, text }) => `${String(Math.round(when - begin)).padStart(8)}  ${text}`)
}

function around<T extends { readonly at: number }>(
  records: readonly T[],
  at: number,
  before: number,
  after: number,
): T[] {
  const sorted = records.toSorted((a, b) => a.at - b.at)
  const behind = sorted.findIndex((record) => record.at > at)
  const middle = behind < 0 ? sorted.length : behind
  return sorted.slice(Math.max(0, middle - before), middle + after)
}
