import { type ChaosState, MATCH_PLAYERS } from '../rooms.ts'
import type { ClientRecord, QueueRecord, StoreRecord, ViolationName } from './history.ts'
import { BankScenario, type OpenHistory, Scenario } from './scenario.ts'

type Kind = ClientRecord['kind']
type Of<K extends Kind> = Extract<ClientRecord, { kind: K }>
type Writable<T> = { -readonly [P in keyof T]: T[P] }

/** Returns a journal room with two members, refused ops, a crash, a hand-over and a resume. */
export function journal(): OpenHistory {
  const scenario = new Scenario('journal')
  play(scenario)
  scenario.fault('kill')
  scenario.claim('node_b')
  play(scenario)
  scenario.release()
  scenario.claim('node_c')
  scenario.resume('ann')
  ops(scenario)
  return withBank(withQueue(withLobby(scenario.end())))
}

export const LOBBY_ROOM = 'chaos-lobby:one'
const LOBBY_ROW = { room: LOBBY_ROOM, players: 1, reserved: 0, phase: 'open' }

/** Adds a lobby room of node_c, with Eve, who has the room in her list. */
function withLobby(history: OpenHistory): OpenHistory {
  const { at } = history.end
  const state = { phase: 'open', seats: {}, reserved: {}, turns: 1, secret: '', wrong: [] }
  const began = at - 10_000
  history.store.push({
    kind: 'claim',
    node: 'node_c',
    room: LOBBY_ROOM,
    began,
    ended: began,
    ok: true,
    epoch: 1,
    version: 0,
  })
  history.lobby = {
    records: [
      { at: began, client: 'eve', kind: 'found', by: 'create', room: LOBBY_ROOM, code: 'K7QX2M' },
      { at, client: 'eve', kind: 'listed', node: 'node_a', rows: [LOBBY_ROW] },
    ],
    end: {
      at,
      rooms: [{ ...LOBBY_ROW, node: 'node_c', state }],
      lists: [{ client: 'eve', rows: [LOBBY_ROW] }],
      roomless: [],
    },
  }
  return history
}

/** Fay's search for the room of Eve, 5 s before the end. `told`: time at which Eve passed the code on. */
export function search(history: OpenHistory, what: object, told = history.end.at - 6000): void {
  const expected = { room: LOBBY_ROOM, since: told, code: 'K7QX2M' }
  const record = { at: history.end.at - 5000, client: 'fay', expected, ...what }
  history.lobby!.records.push(record as never)
}

export function play(scenario: Scenario): void {
  if (scenario.clients.length === 0) join(scenario)
  ops(scenario)
}

export function join(scenario: Scenario): void {
  for (const client of ['ann', 'bob']) scenario.join(client)
}

export function ops(scenario: Scenario): void {
  for (let round = 0; round < 5; round++) {
    scenario.op('ann')
    scenario.op('bob')
    scenario.refusedOp('ann')
  }
}

/** Returns a snapshot room whose owner crashes, with its unsaved changes. `unsaved_ms`: time since the last save. */
export function forgetful({
  crash,
  unsaved_ms: unsavedMs = 0,
}: {
  crash: Crash
  unsaved_ms?: number
}): OpenHistory {
  const scenario = new Scenario('snapshot')
  play(scenario)
  scenario.save()
  ops(scenario)
  scenario.wait(unsavedMs)
  ops(scenario)
  if (crash === 'kill') scenario.fault('kill')
  if (crash === 'of another node') scenario.fault('kill', { node: 'node_z' })
  if (crash === 'over') {
    scenario.fault('pause')
    scenario.wait(5000)
  }
  scenario.claim('node_b')
  ops(scenario)
  return scenario.end()
}

export type Crash = 'kill' | 'of another node' | 'over' | 'none'

export const records = <K extends Kind>(history: OpenHistory, kind: K, client = 'ann'): Writable<Of<K>>[] =>
  history.clients.filter((record) => record.kind === kind && record.client === client) as never

export const commits = (history: OpenHistory): Writable<StoreRecord>[] =>
  history.store.filter(({ kind }) => kind === 'commit')

export const remove = (history: OpenHistory, record: unknown): void => {
  history.clients = history.clients.filter((candidate) => candidate !== record)
}

const insertBehind = (history: OpenHistory, record: unknown, added: unknown): void => {
  history.clients.splice(history.clients.indexOf(record as never) + 1, 0, added as never)
}

export const patches = (history: OpenHistory, client = 'ann') =>
  records(history, 'frame', client).filter(({ t }) => t === 'state.patch')

/** Removes the last op of Ann that all members have seen from all records after its ack. */
export function forget(history: OpenHistory): void {
  const before = patches(history).at(-3)!.view!
  const last = patches(history).at(-1)!
  last.view = before
  const owner = history.end.owners[0]!.state as { players: Record<string, unknown> }
  for (const { state } of [...history.end.owners, ...history.end.members, ...history.end.records])
    (state as typeof owner).players.mem_ann = before
}

/** Adds a bank with right records of its backends and guest, and changes the records with `spoil`. */
function addBank(history: OpenHistory, spoil: (bank: BankScenario) => void): void {
  const bank = new BankScenario(history.end.at - 10_000)
  bank.online()
  bank.sit('mem_gus')
  for (let n = 0; n < 12; n++) bank.do(`a${n}`)
  for (let n = 0; n < 12; n++) bank.answer(`a${n}`)
  bank.call('refused', { refuse: true })
  spoil(bank)
  if (!bank.records.some((record) => record.kind === 'answered' && record.call === 'refused'))
    bank.answer('refused', 'room_logic_refused')
  bank.wait(4000)
  history.store = [...history.store.filter(({ room }) => room !== bank.room), ...bank.store]
  history.backends = bank.backends()
}

const withBank = (history: OpenHistory): OpenHistory => {
  addBank(history, () => {})
  return history
}

const planted =
  (spoil: (bank: BankScenario) => void) =>
  (history: OpenHistory): void =>
    addBank(history, spoil)

const lastCommit = (bank: BankScenario) => bank.store.findLast(({ kind }) => kind === 'commit')!

/** Violations of the rules for backends. */
const PLANTED_BACKENDS = {
  call_twice: planted((bank) => {
    bank.grant('a3')
  }),
  call_lost: planted((bank) => {
    delete bank.state.effects.a11
  }),
  call_answered_early: planted((bank) => {
    lastCommit(bank).ended += 100
  }),
  call_refused_applied: planted((bank) => {
    bank.grant('refused')
  }),
  call_refused_without_cause: planted((bank) => {
    bank.answer('a4', 'room_logic_failed')
  }),
  call_answers_differ: planted((bank) => {
    bank.state.effects.a5 = 99
    bank.answer('a5')
  }),
  call_unanswered: planted((bank) => {
    bank.call('unanswered')
  }),
  notice_lost: planted((bank) => {
    bank.call('silent')
    bank.grant('silent', { arrives: false })
    bank.answer('silent')
  }),
  notice_uncommitted: planted((bank) => {
    bank.receive({ id: 'ntc_none', body: '{}' })
  }),
  notice_differs: planted((bank) => {
    bank.receive({ id: 'ntc_1', body: '{"call":"another"}' })
  }),
  notice_order: planted((bank) => {
    const [first, second] = bank.records.filter(({ kind }) => kind === 'received')
    ;[first!.at, second!.at] = [second!.at, first!.at]
  }),
  ban_ignored: planted((bank) => {
    bank.ban()
  }),
  kick_ignored: planted((bank) => {
    bank.kick()
  }),
} satisfies { [N in ViolationName]?: (history: OpenHistory) => void }

type OfQueue<K extends QueueRecord['kind']> = Extract<QueueRecord, { kind: K }>

export const MATCH = 'chaos-match:one'
/** Tickets of the match: gil alone, hal and ida in a party. */
export const TICKETS = ['gil/1/0', 'hal/1/1', 'ida/1/1']
const PLAYERS = ['gil', 'hal', 'ida']
/** Time before the end of the run at which players are notified of the match, milliseconds. */
const ANNOUNCED = 6000

/** Three players are matched, and jim waits. */
export function withQueue(history: OpenHistory): OpenHistory {
  const { at } = history.end
  const began = at - ANNOUNCED - 20
  history.store.push({
    kind: 'snapshot',
    node: 'node_b',
    room: MATCH,
    began,
    ended: began + 10,
    ok: true,
    epoch: 1,
    version: 0,
    content: { seq: 1, checksum: 0, visible: undefined, applied: {}, reserved: PLAYERS },
  })
  const records = TICKETS.flatMap((ticket, i): QueueRecord[] => {
    const client = PLAYERS[i]!
    return [
      { at: at - 9000 + i, client, kind: 'connected' },
      { at: at - 8000 + i, client, kind: 'asked', ticket },
      { at: at - 7900 + i, client, kind: 'placed', ticket },
      { at: at - ANNOUNCED + i, client, kind: 'announced', room: MATCH, tickets: TICKETS },
      { at: at - 5900 + i, client, kind: 'matched', ticket, room: MATCH, tickets: TICKETS, seated: true },
    ]
  })
  history.queue = {
    records: records.sort((one, other) => one.at - other.at),
    end: {
      at,
      queues: [{ node: 'node_a', state: { tickets: { jim: {} }, orders: {} } }],
      waiting: [{ client: 'jim', ticket: 'jim/1/0', level: 0 }],
      outside: [],
    },
  }
  return history
}

/** The first record of a kind. */
export const queued = <K extends QueueRecord['kind']>(history: OpenHistory, kind: K): Writable<OfQueue<K>> =>
  history.queue!.records.find((record): record is OfQueue<K> => record.kind === kind)!

/** Adds a record of gil, or of another player, `before` milliseconds before the end of the run. */
export function note(history: OpenHistory, before: number, record: object, client = 'gil'): void {
  const { records } = history.queue!
  records.push({ at: history.end.at - before, client, ...record } as QueueRecord)
  records.sort((one, other) => one.at - other.at)
}

/** Players are notified of another match of gil, 3 s after the first. */
export const matchAgain = (history: OpenHistory): void => {
  const [room, tickets] = ['chaos-match:two', ['gil/1/0', 'kai/1/0', 'lea/1/0']]
  const write = history.store.find((call) => call.room === MATCH)!
  const content = { ...write.content!, reserved: ['kai'] }
  history.store.push({ ...write, room, content })
  note(history, ANNOUNCED - 3000, { kind: 'announced', room, tickets }, 'kai')
}

/** Adds waiting tickets that can be a match. */
export function moreWait(history: OpenHistory, tickets: readonly string[], level = 0): void {
  const { end } = history.queue!
  const waiting = tickets.map((ticket) => ({ client: ticket.split('/')[0]!, ticket, level }))
  const all = [...end.waiting, ...waiting]
  const state = { tickets: Object.fromEntries(all.map(({ client }) => [client, {}])), orders: {} }
  history.queue!.end = { ...end, waiting: all, queues: [{ node: 'node_a', state }] }
}

/** Violations of the rules for queues. */
export const PLANTED_IN_QUEUE = {
  ticket_twice: matchAgain,
  ticket_lost: (history: OpenHistory) =>
    moreWait(
      history,
      Array.from({ length: MATCH_PLAYERS - 1 }, (_, i) => `p${i}/1/0`),
    ),
  party_split: (history: OpenHistory) => {
    queued(history, 'announced').tickets = ['gil/1/0', 'hal/1/1', 'kai/1/0']
  },
  match_of_cancelled: (history: OpenHistory) =>
    note(history, 7000, { kind: 'ended', ticket: 'gil/1/0', code: 'cancelled', cancelled: true }),
  match_short: (history: OpenHistory) => {
    const { records } = history.queue!
    const before = (record: QueueRecord) =>
      record.client !== 'gil' || (record.kind !== 'announced' && record.kind !== 'matched')
    history.queue!.records = records.filter(before)
    note(history, 7000, { kind: 'ended', ticket: 'gil/1/0', code: 'cancelled', cancelled: true })
  },
  match_refused: (history: OpenHistory) => {
    queued(history, 'announced').tickets = ['gil/3/0', 'hal/1/0', 'kai/1/0']
  },
  match_early: (history: OpenHistory) => {
    const write = history.store.find(({ room }) => room === MATCH)!
    write.ended += 25
  },
}

/** One planted violation of each kind. Each function changes a history, also that of a simulated run. */
export const PLANTED: { [N in ViolationName]: (history: OpenHistory) => void } = {
  split_commit: (history) => {
    const [first] = commits(history)
    history.store.push({ ...first!, node: 'node_z', content: { ...first!.content!, checksum: 1 } })
  },
  stale_commit: (history) => {
    const claim = history.store.filter(({ kind }) => kind === 'claim')[1]!
    const old = commits(history)
      .filter(({ epoch }) => epoch < claim.epoch)
      .at(-1)!
    old.began = claim.ended + 1
    old.ended = claim.ended + 2
  },
  version_gap: (history) => {
    history.store.splice(history.store.indexOf(commits(history)[4]!), 1)
  },
  epoch_claimed_twice: (history) => {
    const claim = history.store.filter(({ kind }) => kind === 'claim')[1]!
    history.store.push({ ...claim, node: 'node_z' })
  },
  acted_without_lease: (history) => {
    history.late.push({ node: 'node_a', room: history.rooms[0]!.room, hook: 'onMessage', at: 1 })
  },
  room_lost: (history) => {
    const [{ room: lost }] = history.rooms as [OpenHistory['rooms'][number]]
    const last = history.store.filter(({ kind, room }) => kind === 'claim' && room === lost).at(-1)!
    last.version = 0
  },
  record_differs: (history) => {
    history.end.records[0]!.version += 1
  },
  record_unreadable: (history) => {
    history.end.unreadable.push({ room: history.rooms[0]!.room, message: 'an entry has seq 4 behind seq 6' })
  },
  uncommitted_update: (history) => {
    const { seq } = patches(history)[3]!
    const commit = commits(history).find(({ content }) => content!.seq === seq)!
    commit.ok = false
  },
  shown_early: (history) => {
    for (const commit of commits(history)) commit.ended += 3000
  },
  acked_early: (history) => {
    for (const ack of records(history, 'ack')) ack.at -= 20
    history.clients.sort((a, b) => a.at - b.at)
  },
  seq_gap: (history) => {
    for (const frame of patches(history).slice(-3)) remove(history, frame)
    const [first] = patches(history).slice(-1)
    insertBehind(history, first, {
      ...first!,
      seq: first!.seq + 3,
      actual: undefined,
      view: undefined,
      checksum: undefined,
    })
  },
  seq_repeated: (history) => {
    const frame = patches(history)[3]!
    insertBehind(history, frame, { ...frame })
  },
  epoch_down: (history) => {
    const last = patches(history).at(-1)!
    insertBehind(history, last, { ...last, epoch: 1_000_000, seq: last.seq + 1, checksum: undefined })
  },
  checksum_mismatch: (history) => {
    patches(history)[2]!.actual! += 1
  },
  divergence: (history) => {
    const frame = patches(history, 'bob')[2]!
    frame.checksum! += 1
    frame.actual! += 1
  },
  acked_lost: forget,
  applied_twice: (history) => replay(history, (refs) => [...refs.slice(0, -1), refs.at(-2)!]),
  out_of_order: (history) => replay(history, (refs) => [...refs.slice(0, -2), refs.at(-1)!, refs.at(-2)!]),
  refused_applied: (history) => {
    const ack = records(history, 'ack').at(-1)!
    insertBehind(history, ack, { ...ack, kind: 'refused', code: 'rate_limited' })
    remove(history, ack)
  },
  refused_acked: (history) => {
    const refused = records(history, 'refused')[3]!
    insertBehind(history, refused, { ...place(history), at: refused.at, kind: 'ack', ref: refused.ref })
    remove(history, refused)
  },
  refused_without_cause: (history) => {
    const sent = records(history, 'sent').find(({ refuse }) => refuse)!
    sent.refuse = null
  },
  unexplained: (history) => replay(history, (refs) => [...refs.slice(0, -1), 4711]),
  ack_unsent: (history) => {
    records(history, 'ack').at(-1)!.ref += 100
  },
  op_unanswered: (history) => remove(history, records(history, 'ack').at(-1)),
  rollback: (history) => {
    const last = patches(history).at(-1)!
    insertBehind(history, last, {
      ...last,
      t: 'state.resync',
      seq: last.seq - 1,
      checksum: undefined,
      actual: undefined,
    })
  },
  rollback_too_far: (history) => {
    Object.assign(history, forgetful({ crash: 'kill', unsaved_ms: 120_000 }))
  },
  seat_lost: (history) => {
    const last = history.clients.at(-1)!
    history.clients.push({ ...place(history), at: last.at, kind: 'lost', why: 'seat' } as never)
  },
  closed_without_cause: (history) => {
    const last = history.clients.at(-1)!
    history.clients.push({
      at: last.at,
      client: 'ann',
      kind: 'closed',
      code: 4005,
      reason: '',
      asked: false,
    } as never)
  },
  resumed_twice: (history) => {
    const { at } = history.clients.at(-1)!
    history.clients.push({ at, client: 'ann', kind: 'raced', winners: 2 } as never)
  },
  reply_lost: (history) => remove(history, records(history, 'reply')[3]),
  reply_differs: (history) => {
    const reply = records(history, 'reply')[3]!
    insertBehind(history, reply, { ...reply, reply: { ...reply.reply, count: 1 } })
  },
  layer_leaked: (history) => {
    records(history, 'marks')[2]!.marks = ['§red#7(mem_bob mem_eve)§']
  },
  layer_wrong: (history) => {
    for (const frame of patches(history).slice(-3)) {
      frame.layers = { has: ['mem_ann#1'], due: ['mem_ann#1', 'red#7'] }
      frame.at += frame === patches(history).at(-1) ? 2000 : 0
    }
  },
  timer_twice: (history) => {
    books(history).wrong.push({ name: 'timer_twice', message: '' })
  },
  timer_lost: (history) => {
    Object.assign(books(history), { timers: { 'ann/3': 1000 }, now: 9000 })
  },
  task_twice: (history) => {
    history.tasks.push(history.tasks[1]!)
  },
  task_lost: (history) => {
    books(history).tasks['ann/3'] = true
  },
  role_wrong: (history) => {
    books(history).wrong.push({ name: 'role_wrong', message: '' })
  },
  seen_early: (history) => {
    const { at, client, room, member } = patches(history)[0]!
    history.clients.push({ kind: 'early', at, client, room, member, t: 'state.patch', seq: 1 })
  },
  presence_wrong: (history) => {
    books(history).players.mem_ann!.away = true
  },
  left_out: (history) => {
    history.end.members.pop()
  },
  no_owner: (history) => {
    history.end.owners = []
  },
  two_owners: (history) => {
    history.end.owners.push({ ...history.end.owners[0]!, node: 'node_b', epoch: 1 })
  },
  listed_ghost: (history) => {
    const at = history.end.at - 3100
    history.faults.push({ kind: 'kill', node: 'node_c', at, until: at })
  },
  list_wrong: (history) => {
    history.lobby!.end.lists = [{ client: 'eve', rows: [{ ...LOBBY_ROW, players: 2 }] }]
  },
  room_full: (history) => search(history, { kind: 'not_found', by: 'joinOrCreate', error: 'room_full' }),
  seat_twice: (history) => {
    const [room] = history.lobby!.end.rooms
    const wrong = [{ name: 'seat_twice', message: 'l1, l2, l3 have a seat, and l4 a reservation' }]
    history.lobby!.end.rooms = [{ ...room!, state: { ...(room!.state as object), wrong } }]
  },
  reservation_broken: (history) =>
    search(history, { kind: 'not_found', by: 'reservation', error: 'room_full' }),
  code_misleads: (history) =>
    search(history, { kind: 'found', by: 'code', room: 'chaos-lobby:two', code: 'K7QX2M' }),
  ...PLANTED_BACKENDS,
  ...PLANTED_IN_QUEUE,
  final_mismatch: (history) => {
    history.end.members[0]!.state = { total: 0 }
  },
  too_little: (history) => {
    history.clients = []
  },
}

const books = (history: OpenHistory) => history.end.owners[0]!.state as ChaosState

const place = (history: OpenHistory) => ({ client: 'ann', room: history.rooms[0]!.room, member: 'mem_ann' })

/** Makes the last views of Ann's ops show the refs that `change` returns. Frames between do not show her ops. */
function replay(history: OpenHistory, change: (refs: number[]) => number[]): void {
  const refs = records(history, 'ack').map(({ ref }) => ref)
  const wrong = new Scenario('journal')
  const view = wrong.playerAfter(change(refs).map((ref) => `mem_ann/${ref}`))
  for (const frame of patches(history).slice(-6)) delete (frame as { view?: unknown }).view
  for (const { state } of [...history.end.owners, ...history.end.members, ...history.end.records])
    (state as { players: Record<string, unknown> }).players.mem_ann = view
}
