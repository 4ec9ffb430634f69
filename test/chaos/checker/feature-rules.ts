import { type ChaosState, type HeldLayers, layersIn, readersOf } from '../room-logic.ts'
import type { ClientRecord, History, Violation } from './history.ts'
import type { Ownerships } from './ownership.ts'

/** Replies, hidden layers, timers, tasks and presence: what clients were told, and what the rooms say of themselves in the end. */
export function checkFeatures(history: History, ownerships: Ownerships): Violation[] {
  return [
    ...checkReplies(history, ownerships),
    ...checkMarks(history),
    ...checkLayers(history),
    ...checkTasks(history, ownerships),
    ...history.end.owners.flatMap((owner) => checkBooks(history, owner)),
  ]
}

type Asked = Extract<ClientRecord, { kind: 'sent' }> & { answer?: string }

/** One answer to each request, before its ack and the same whenever it comes again; in a journal room that of the effect which views show. */
function checkReplies({ clients, rooms }: History, ownerships: Ownerships): Violation[] {
  const found: Violation[] = []
  const exact = new Set(
    rooms
      .filter(({ room, durability }) => durability === 'journal' && ownerships.losses(room).length === 0)
      .map(({ room }) => room),
  )
  const asked = new Map<string, Map<number, Asked>>()
  const waiting = new Map<string, Set<Asked>>()
  /** By member and number of its ops, the chain of them. */
  const chains = new Map<string, number>()
  const isOther = (room: string, member: string, { count, chain }: { count: number; chain: number }) => {
    if (!exact.has(room)) return false
    const key = `${member} ${count}`
    if (!chains.has(key)) chains.set(key, chain)
    return chains.get(key) !== chain
  }
  for (const record of clients) {
    if (!('member' in record)) continue
    const { at, client, room, member, kind } = record
    const report = (name: 'reply_lost' | 'reply_differs', message: string) =>
      found.push({ name, at, room, member, client, message })
    const ofMember = asked.get(member) ?? new Map<number, Asked>()
    const open = waiting.get(member) ?? new Set()
    asked.set(member, ofMember)
    waiting.set(member, open)
    if (kind === 'sent' && record.ask && !ofMember.has(record.ref)) {
      ofMember.set(record.ref, { ...record })
      open.add(ofMember.get(record.ref)!)
    } else if (kind === 'refused') open.delete(ofMember.get(record.ref)!)
    else if (kind === 'ack')
      for (const request of open) {
        if (request.ref > record.ref) continue
        open.delete(request)
        if (!request.answer) report('reply_lost', `ref ${request.ref} was acked, and not answered`)
      }
    else if (kind === 'reply') {
      const request = ofMember.get(record.ref)
      const answer = JSON.stringify(record.reply)
      if (request?.op !== record.reply.op || (request.answer ?? answer) !== answer)
        report('reply_differs', `ref ${record.ref} (${request?.op}) got ${answer} after ${request?.answer}`)
      else if (isOther(room, member, record.reply))
        report('reply_differs', `ref ${record.ref} got ${answer}, of which views tell another chain`)
      if (request) request.answer = answer
    } else if ((kind === 'frame' || kind === 'view') && record.view && isOther(room, member, record.view))
      report('reply_differs', `${record.view.count} ops have another chain than a reply or a view said`)
  }
  return found
}

/** Nothing comes to a client, in whichever frame, that is not for it. */
function checkMarks({ clients }: History): Violation[] {
  const clientOf = new Map<string, string>()
  for (const record of clients) if (record.kind === 'joined') clientOf.set(record.member, record.client)
  return clients.flatMap((record) => {
    if (record.kind !== 'marks') return []
    const { at, client, marks } = record
    return marks.flatMap((mark): Violation[] => {
      const readers = readersOf(mark)
      const [own = ''] = readers
      // A connection that breaks behind a member's own secrets, and before its client knows of its seat: no one else is to get them.
      if (mark.startsWith(`§${own}#`) && !clientOf.has(own)) clientOf.set(own, client)
      if (readers.some((reader) => clientOf.get(reader) === client)) return []
      return [{ name: 'layer_leaked', at, client, message: `${mark} came to ${client}` }]
    })
  })
}

/** After a resume the flushes that were missed come before the layers that were shown or hidden meanwhile. */
const LAYERS_WITHIN_MS = 1000

/** A member has the layers that the room says it was shown, and its own, each with the value of the same flush. */
function checkLayers({ clients, end }: History): Violation[] {
  const found: Violation[] = []
  /** By client, since when it has had others. */
  const wrong = new Map<string, number>()
  for (const record of clients) {
    const { at, client, kind } = record
    if (kind === 'joined' || kind === 'welcome' || kind === 'lost') wrong.delete(client)
    if (kind === 'misfit') {
      const { room, member, layer, seq, actual } = record
      const message = `what came of ${layer} at seq ${seq} led to checksum ${actual}`
      found.push({ name: 'layer_wrong', at, room, member, client, message })
    }
    if ((kind !== 'frame' && kind !== 'view' && kind !== 'layers') || !record.layers) continue
    const since = wrong.get(client) ?? at
    if (isRight(record.layers)) wrong.delete(client)
    else wrong.set(client, since)
    if (isRight(record.layers) || at - since <= LAYERS_WITHIN_MS) continue
    const { room, member } = record
    found.push({ name: 'layer_wrong', at, room, member, client, message: describe(record.layers) })
    wrong.delete(client)
  }
  for (const { room, member, client, state } of end.members) {
    const layers = layersIn(state as Partial<ChaosState>, member)
    if (!isRight(layers))
      found.push({ name: 'layer_wrong', at: end.at, room, member, client, message: describe(layers) })
  }
  return found
}

const isRight = ({ has, due }: HeldLayers): boolean => has.join() === due.join()
const describe = ({ has, due }: HeldLayers): string =>
  `it has ${has.join(', ') || 'nothing'}, and should have ${due.join(', ') || 'nothing'}`

/** In a journal no turn takes place again, nor what it has begun. */
function checkTasks({ tasks, rooms }: History, ownerships: Ownerships): Violation[] {
  const exact = rooms.filter(
    ({ room, durability }) => durability === 'journal' && ownerships.losses(room).length === 0,
  )
  const begun = new Set<string>()
  return tasks.flatMap(({ room, op, at }): Violation[] => {
    if (!exact.some((each) => each.room === room)) return []
    if (begun.has(op)) return [{ name: 'task_twice', at, room, message: `the task of ${op} began again` }]
    begun.add(op)
    return []
  })
}

/** A timer fires so long after its time at the latest, once everything works. */
const LATE_MS = 3000

/** A room's state says what should wait and what has ended, turn by turn: that has to agree with what did. */
function checkBooks({ end, rooms }: History, { room, state }: History['end']['owners'][number]): Violation[] {
  const { at } = end
  const {
    players = {},
    timers = {},
    now = 0,
    tasks = {},
    moved = 0,
    wrong = [],
  } = state as Partial<ChaosState>
  const found: Violation[] = wrong.map(({ name, message }) => ({ name, at, room, message }))
  const record = end.records.find((each) => each.room === room)
  const isKept =
    record !== undefined && rooms.some((each) => each.room === room && each.durability !== 'none')
  for (const [id, due] of Object.entries(timers))
    if (due + LATE_MS < now)
      found.push({ name: 'timer_lost', at, room, message: `${id} is ${now - due} ms late` })
    else if (isKept && !record.timers.includes(id))
      found.push({ name: 'timer_lost', at, room, message: `${id} waits, and is not in the record` })
  const unended = Object.keys(tasks)
  if (unended.length !== moved) {
    const message = `${unended.length} have not ended (${unended.join(', ')}), and ${moved} are said to be lost`
    found.push({ name: 'task_lost', at, room, message })
  }
  for (const { room: of, member, client } of end.members)
    if (of === room && players[member]?.away)
      found.push({
        name: 'presence_wrong',
        at,
        room,
        member,
        client,
        message: 'it is here, and said to be away',
      })
  return found
}
