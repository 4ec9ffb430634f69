import { describeExcused, percent } from '../checker/excuses.ts'
import { pauses } from '../checker/pauses.ts'
import { traceOf } from '../checker/trace.ts'
import { VIOLATIONS } from '../checker/violation.ts'
import type { ChaosOptions, ChaosResult } from './chaos.ts'

/** So many violations get a trace; the others are counted. */
const TRACED = 3

/** What a run has shown, in a line. */
export function summary({ history, violations, excused }: ChaosResult): string {
  const { clients, faults } = history
  const acks = clients.filter(({ kind }) => kind === 'ack').length
  const drawn = faults.filter(({ kind }) => kind !== 'stall').length
  const names = [...new Set(violations.map(({ name }) => name))]
  const verdict = names.length > 0 ? `FAILED: ${names.join(', ')}` : 'held'
  return `${verdict}; ${acks} acks, ${drawn} faults, ${percent(excused.excused, excused.pairs)} excused`
}

/** What a run has shown, for people; `command` does the same once more. */
export function report({ history, violations, excused, folder }: ChaosResult, command: string): string {
  const { clients, store, faults } = history
  const count = (kind: string) => clients.filter((record) => record.kind === kind).length
  const standing = store.filter(({ kind, ok }) => (kind === 'commit' || kind === 'snapshot') && ok).length
  const claims = store.filter(({ kind, ok }) => kind === 'claim' && ok).length
  const resyncs = clients.filter((record) => record.kind === 'frame' && record.t === 'state.resync').length
  const lines = [
    '',
    `${command}: ${clients.length} client records (${count('frame')} frames, ${count('sent')} sends, ${count('ack')} acks, ${count('refused')} refusals, ${resyncs} resyncs, ${count('resuming')} resumes), ${standing} commits and ${claims} claims in the store, ${faults.filter(({ kind }) => kind !== 'stall').length} faults`,
    '',
    'longest time a member went without the effect of its own op, by kind of fault (overlapping faults count each):',
    ...pauses(history).map(
      ({ kind, faults: times, worst_ms: worstMs, worst, median_ms: medianMs }) =>
        `  ${kind.padEnd(12)} ${String(times).padStart(3)} times   worst ${String(Math.round(worstMs)).padStart(6)} ms   median ${String(Math.round(medianMs)).padStart(6)} ms   (${worst})`,
    ),
    '',
    ...describeExcused(excused),
    '',
  ]
  if (violations.length === 0) return [...lines, 'every promise held', ''].join('\n')
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

/** The command that does the same run once more. */
export const commandFor = ({ seed, seconds, nodes, clients, rooms, unfenced }: ChaosOptions): string =>
  `npm run chaos -- --seed ${seed} --seconds ${seconds} --nodes ${nodes} --clients ${clients} --rooms ${rooms}${unfenced ? ' --unfenced' : ''}`
