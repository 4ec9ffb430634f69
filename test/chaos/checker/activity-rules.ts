import type { ClientRecord, History } from './history.ts'
import type { Violation } from './violation.ts'

/** Far below what a run does in which half of the time something is broken. */
const LEAST = {
  /** For each client and second of the run. */
  frames: 2,
  ops: 0.5,
  acks: 0.25,
  /** For each journal room and second. */
  commits: 1,
  /** For each snapshot room and second. */
  saves: 0.1,
  /** For each op. */
  refusals: 0.02,
  /** For each second, and for each fault that was planned. */
  faults: 0.1,
  planned: 0.7,
}

/** A run in which little happened proves nothing. */
export function checkActivity(history: History): Violation[] {
  const { run, rooms, clients, store, faults } = history
  const seconds = (run.ended - run.began) / 1000
  const count = (kind: ClientRecord['kind']) => clients.filter((record) => record.kind === kind).length
  const standing = (kind: 'commit' | 'snapshot', durability: 'journal' | 'snapshot') => {
    const names = rooms.filter((room) => room.durability === durability).map(({ room }) => room)
    const writes = store.filter((call) => call.kind === kind && call.ok === true && names.includes(call.room))
    return { found: writes.length, rooms: names.length }
  }
  const named = (kind: 'joined' | 'ack') =>
    new Set(clients.filter((record) => record.kind === kind).map(({ client }) => client)).size
  const ops = clients.filter((record) => record.kind === 'sent' && !record.again).length
  const commits = standing('commit', 'journal')
  const saves = standing('snapshot', 'snapshot')
  const done = faults.filter(({ kind }) => kind !== 'stall').length
  const players = Math.max(1, run.clients)
  const least: [what: string, found: number, wanted: number][] = [
    ['clients that joined', named('joined'), players],
    ['clients with an ack', named('ack'), players],
    ['frames', count('frame'), LEAST.frames * players * seconds],
    ['ops', ops, LEAST.ops * players * seconds],
    ['acks', count('ack'), LEAST.acks * players * seconds],
    ['refusals', count('refused'), LEAST.refusals * ops],
    ['commits', commits.found, LEAST.commits * commits.rooms * seconds],
    ['saves', saves.found, LEAST.saves * saves.rooms * seconds],
    ['faults', done, Math.max(LEAST.faults * seconds, LEAST.planned * run.faults)],
  ]
  return least
    .filter(([, found, wanted]) => found < Math.floor(wanted))
    .map(([what, found, wanted]) => ({
      name: 'too_little',
      at: history.end.at,
      message: `${found} ${what} in ${seconds.toFixed(1)} s; at least ${Math.floor(wanted)} would prove something`,
    }))
}
