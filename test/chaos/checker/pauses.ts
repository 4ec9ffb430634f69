import type { Fault, FaultKind, History } from './history.ts'
import { Ownerships } from './ownership.ts'

/** How long the longest pause was that faults of one kind explain. */
export interface Pause {
  readonly kind: FaultKind
  /** How often it was done. */
  readonly faults: number
  /** Milliseconds; 0: nobody waited for an op at the time. */
  readonly worst_ms: number
  /** Whose op that was, and when it was sent, in milliseconds from the begin of the history. */
  readonly worst: string
  readonly median_ms: number
}

/** A fault is still felt for so long after its end. */
const FELT_MS = 1000

interface Wait {
  readonly client: string
  readonly ref: number
  readonly room: string
  /** The node of the client's socket when the op was sent. */
  readonly edge: string | undefined
  readonly from: number
  readonly to: number
}

/**
 * How long members went without the effect of their own ops, by the kinds of faults at that time. An op counts for every fault that it
 * met at its room's owner, at its client's node, or at Redis; where faults overlap it counts for each of them.
 */
export function pauses(history: History): Pause[] {
  const waits = waitsOf(history)
  const ownerships = new Ownerships(history)
  const begin = history.clients[0]?.at ?? 0
  const longest = new Map<FaultKind, Wait[]>()
  for (const fault of history.faults) {
    const felt = waits.filter((wait) => meets(wait, fault) && concerns(wait, fault, ownerships))
    const [most] = felt.sort((a, b) => lasts(b) - lasts(a))
    longest.set(fault.kind, [...(longest.get(fault.kind) ?? []), ...(most ? [most] : [])])
  }
  return [...longest].map(([kind, all]) => {
    const sorted = all.toSorted((a, b) => lasts(a) - lasts(b))
    const worst = sorted.at(-1)
    return {
      kind,
      faults: history.faults.filter((fault) => fault.kind === kind).length,
      worst_ms: lasts(worst),
      worst: worst
        ? `${worst.room} ${worst.client} ref ${worst.ref} at ${Math.round(worst.from - begin)}`
        : '',
      median_ms: lasts(sorted[Math.floor(sorted.length / 2)]),
    }
  })
}

const lasts = (wait: Wait | undefined): number => (wait ? wait.to - wait.from : 0)

/** From each op's first sending to the first sign that it is applied, while its client lost neither session nor seat. */
function waitsOf({ clients }: History): Wait[] {
  const waits: Wait[] = []
  const edges = new Map<string, string>()
  const waiting = new Map<string, Map<number, Wait>>()
  for (const record of clients) {
    if (record.kind === 'connected') edges.set(record.client, record.node)
    if (!('member' in record)) continue
    const key = `${record.room} ${record.member}`
    const open = waiting.get(key) ?? new Map<number, Wait>()
    waiting.set(key, open)
    if (record.kind === 'sent' && !record.again)
      open.set(record.ref, {
        client: record.client,
        ref: record.ref,
        room: record.room,
        edge: edges.get(record.client),
        from: record.at,
        to: record.at,
      })
    if (record.kind === 'lost') open.clear()
    const settled =
      record.kind === 'ack'
        ? record.ref
        : record.kind === 'frame' || record.kind === 'view'
          ? (record.view?.lastRef ?? 0)
          : 0
    for (const [ref, wait] of open)
      if (ref <= settled) {
        waits.push({ ...wait, to: record.at })
        open.delete(ref)
      }
  }
  return waits
}

const meets = ({ from, to }: Wait, { at, until }: Fault): boolean => from <= until + FELT_MS && to >= at

function concerns({ room, edge, from, to }: Wait, { node }: Fault, ownerships: Ownerships): boolean {
  if (node === undefined || node === edge) return true
  const chain = ownerships.of(room)
  return chain.some(
    ({ claim }, i) => claim.node === node && claim.began <= to && (chain[i + 1]?.claim.began ?? to) >= from,
  )
}
