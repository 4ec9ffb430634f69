import type { Json } from '../../../shared/json.ts'
import { CLOSE } from '../../../shared/protocol/error-codes.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import {
  type BankState,
  type ChaosState,
  chainAfter,
  NEW_PLAYER,
  newState,
  type Player,
  type Refusal,
  visibleTo,
} from '../rooms.ts'
import type {
  BackendHistory,
  BackendRecord,
  ClientRecord,
  Content,
  Durability,
  End,
  Fault,
  FaultKind,
  History,
  LateCall,
  Lobby,
  LobbyRecord,
  QueueEnd,
  QueueRecord,
  RunPlan,
  SessionWrite,
  StoreRecord,
  TaskBegin,
  Without,
} from './history.ts'

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** A history that tests can change. */
export interface OpenHistory
  extends Omit<
    History,
    | 'run'
    | 'clients'
    | 'store'
    | 'sessions'
    | 'tasks'
    | 'late'
    | 'faults'
    | 'lobby'
    | 'queue'
    | 'backends'
    | 'end'
  > {
  run: Mutable<RunPlan>
  clients: Mutable<ClientRecord>[]
  store: Mutable<StoreRecord>[]
  sessions: SessionWrite[]
  tasks: TaskBegin[]
  late: LateCall[]
  faults: Fault[]
  backends?: BackendHistory
  lobby?: { records: LobbyRecord[]; end: { -readonly [K in keyof Lobby['end']]: Mutable<Lobby['end']>[K] } }
  queue?: { records: QueueRecord[]; end: { -readonly [K in keyof QueueEnd]: QueueEnd[K] } }
  end: { -readonly [K in keyof End]: Mutable<End[K][number & keyof End[K]]>[] } & { at: number }
}

interface Seated {
  readonly client: string
  readonly member: string
  ref: number
}

interface Memory {
  readonly seq: number
  readonly state: ChaosState
}

/** Plays a room and its members by the rules, and records the history of a real run. */
export class Scenario {
  readonly clients: ClientRecord[] = []
  readonly store: StoreRecord[] = []
  readonly sessions: SessionWrite[] = []
  readonly tasks: TaskBegin[] = []
  readonly late: LateCall[] = []
  readonly faults: Fault[] = []
  readonly room: string
  readonly #durability: Durability
  readonly #checksum = new Checksum()
  readonly #seated: Seated[] = []
  #at = 1000
  #node = ''
  #epoch = 0
  #version = 0
  #seq = 0
  #state: ChaosState = newState()
  #saved = this.memory()

  constructor(durability: Durability) {
    this.room = `chaos-${durability}:one`
    this.#durability = durability
    this.claim('node_a')
  }

  /** A new owner claims the room. If the room is no journal, the owner continues from the last save, or from `from`. */
  claim(node: string, from: Memory = this.#saved): void {
    this.#take(node)
    this.#goOnFrom(from)
  }

  /** A new owner claims the room while the one before lives. That one continues (`meanwhile`) until it finds out. */
  overtake(node: string, meanwhile: () => void): void {
    const earlier = { node: this.#node, epoch: this.#epoch }
    this.#take(node)
    const epoch = this.#epoch
    this.#node = earlier.node
    this.#epoch = earlier.epoch
    meanwhile()
    this.#node = node
    this.#epoch = epoch
    this.#goOnFrom(this.#saved)
  }

  /** A node claims the room and gets no answer. */
  claimWithoutAnswer(node: string): void {
    const [began, ended] = [this.#tick(), this.#tick()]
    const claim = { kind: 'claim', node, room: this.room, began, ended, ok: undefined } as const
    this.store.push({ ...claim, epoch: 0, version: 0 })
  }

  #take(node: string): void {
    this.#node = node
    this.#epoch = this.#epoch === 0 ? 1_000_000 : this.#epoch + 1000
    this.#record('claim', true)
  }

  #goOnFrom({ seq, state }: Memory): void {
    if (this.#durability !== 'journal') {
      this.#seq = seq
      this.#state = structuredClone(state)
    }
    if (this.#seated.length === 0) return
    if (this.#durability === 'journal') this.#flush()
    this.#everyone(this.#durability === 'journal' ? 'state.patch' : 'state.resync')
  }

  /** The owner's present memory. */
  memory(): Memory {
    return { seq: this.#seq, state: structuredClone(this.#state) }
  }

  /** The store loses all data. */
  wipe(): void {
    this.faults.push({ kind: 'redis_lost', at: this.#tick(), until: this.#tick() })
    this.#version = 0
  }

  /** The owner claims its room again, after the store has lost it. */
  reclaim(): void {
    this.#epoch += 1000
    this.#record('claim', true)
  }

  /** `node` writes the room again to a store that has lost it, from its memory. Default: the present state. */
  rewrite(node = this.#node, { seq, state }: Memory = this.memory()): void {
    this.#node = node
    this.#epoch += 1000
    this.#seq = seq
    this.#state = structuredClone(state)
    this.#record('claim', true)
    this.#record('snapshot', true, true)
    this.#everyone('state.resync')
  }

  join(client: string): void {
    const seat = { client, member: `mem_${client}`, ref: 0 }
    this.#state.players[seat.member] = { ...NEW_PLAYER, layers: [] }
    this.#flush()
    this.#everyone('state.patch')
    this.clients.push(
      { at: this.#tick(), client, kind: 'connected', node: this.#node },
      {
        at: this.#tick(),
        client,
        kind: 'welcome',
        node: this.#node,
        session: `ses_${client}`,
        resumed: false,
      },
      { at: this.#tick(), client, kind: 'joined', room: this.room, member: seat.member },
    )
    this.#seated.push(seat)
    this.#frame(seat, 'state.snapshot')
  }

  /** One op, which starts a task and a timer. It is sent, applied, seen by all members, answered and acked. */
  op(client: string): void {
    const seat = this.#send(client, null)
    const { member, ref } = seat
    const player = this.#state.players[member]!
    player.count += 1
    player.lastRef = ref
    player.chain = chainAfter(player.chain, `${member}/${ref}`)
    this.#state.total += 1
    this.#state.fired += 1
    const op = `${member}/${ref}`
    this.tasks.push({ room: this.room, op, at: this.#at })
    this.#flush()
    this.#everyone('state.patch')
    const { count, chain } = player
    const reply = { op, count, chain }
    this.clients.push(
      { at: this.#tick(), client, kind: 'reply', room: this.room, member, ref, reply },
      { at: this.#at, client, kind: 'marks', marks: [`§${member}#${count}(${member})§`] },
      { at: this.#at, client, kind: 'ack', room: this.room, member, ref },
    )
  }

  /** The owner applies an op that it had received before another node claimed the room. */
  lateOp(client: string, ref: number): void {
    const { member } = this.#seated.find((candidate) => candidate.client === client)!
    const player = this.#state.players[member]!
    player.count += 1
    player.lastRef = ref
    player.chain = chainAfter(player.chain, `${member}/${ref}`)
    this.#flush()
    this.#everyone('state.patch')
  }

  refusedOp(client: string): void {
    const { member, ref } = this.#send(client, 'room_logic_refused')
    const code = 'room_logic_refused'
    this.clients.push({ at: this.#tick(), client, kind: 'refused', room: this.room, member, ref, code })
  }

  /** A client is notified that it has no seat. */
  loseSeat(client: string): void {
    const at = this.#seated.findIndex((candidate) => candidate.client === client)
    const [{ member }] = this.#seated.splice(at, 1) as [Seated]
    this.clients.push({ at: this.#tick(), client, kind: 'lost', room: this.room, member, why: 'seat' })
  }

  /** A node writes the record of a client's session. */
  session(client: string, turn: number): void {
    this.sessions.push({ session: `ses_${client}`, turn, at: this.#tick() })
  }

  /** A client sends `hello` with `resume`. */
  ask(client: string): void {
    this.clients.push({ at: this.#tick(), client, kind: 'resuming', session: `ses_${client}` })
  }

  /** The resume of a client is refused, and its connection is closed. */
  refuse(client: string, { superseded = false } = {}): void {
    const code = CLOSE.resume_failed
    this.clients.push({
      at: this.#tick(),
      client,
      kind: 'closed',
      code,
      reason: '',
      asked: false,
      superseded,
    })
  }

  /** The room saves its state. Journal rooms commit instead. */
  save(): void {
    this.#saved = this.memory()
    if (this.#durability !== 'none') this.#record('snapshot', true, true)
  }

  /** A client loses its connection and resumes its session. The node answers after `waitMs`. */
  resume(client: string, waitMs = 0): void {
    const session = `ses_${client}`
    this.clients.push(
      { at: this.#tick(), client, kind: 'closed', code: 1006, reason: '', asked: false },
      { at: this.#tick(), client, kind: 'connected', node: this.#node },
      { at: this.#tick(), client, kind: 'resuming', session },
    )
    this.wait(waitMs)
    this.clients.push({
      at: this.#tick(),
      client,
      kind: 'welcome',
      node: this.#node,
      session,
      resumed: true,
    })
  }

  /** A client resumes its session twice with one token. */
  race(client: string): void {
    this.faults.push({ kind: 'race', at: this.#tick(), until: this.#tick(), clients: [client] })
    this.resume(client)
  }

  /** A fault of a node. */
  fault(kind: FaultKind, { node = this.#node, ms = 5 } = {}): void {
    const at = this.#tick()
    this.faults.push({ kind, node, at, until: at + ms })
  }

  wait(ms: number): void {
    this.#at += ms
  }

  /** The owner releases the room for the next, or ends it (`forget`). */
  release({ forget = false } = {}): void {
    this.#record('release', true)
    if (forget) Object.assign(this.store.at(-1)!, { forget })
  }

  end(): OpenHistory {
    if (this.#durability === 'snapshot') this.save()
    const stand = this.#stand()
    const { room } = this
    const { clients, faults } = this
    const run = {
      began: 1000,
      ended: this.#at,
      clients: this.#seated.length,
      faults: faults.length,
      lease_ms: 1000,
    }
    const history: History = {
      run,
      rooms: [{ room, durability: this.#durability }],
      clients,
      store: this.store,
      sessions: this.sessions,
      tasks: this.tasks,
      late: this.late,
      faults,
      end: {
        at: this.#tick(),
        owners: [{ room, node: this.#node, ...stand }],
        members: this.#seated.map(({ client, member }) => {
          const state = visibleTo(member, this.#state) as Json
          return { client, member, room, ...stand, state }
        }),
        records:
          this.#durability === 'none'
            ? []
            : [{ room, version: this.#version, ...stand, timers: [], reservations: [] }],
        unreadable: [],
      },
    }
    return structuredClone(history) as OpenHistory
  }

  /** State of a member after these ops. */
  playerAfter(ops: readonly string[]): Player {
    return ops.reduce(
      ({ count, chain, ...rest }, op) => ({
        ...rest,
        count: count + 1,
        lastRef: Number(op.split('/')[1]),
        chain: chainAfter(chain, op),
      }),
      NEW_PLAYER,
    )
  }

  #send(client: string, refuse: Refusal | null): Seated {
    const seat = this.#seated.find((candidate) => candidate.client === client)!
    seat.ref += 1
    const { member, ref } = seat
    this.clients.push({
      at: this.#tick(),
      client,
      kind: 'sent',
      room: this.room,
      member,
      ref,
      op: `${member}/${ref}`,
      refuse,
      ask: true,
      again: false,
    })
    return seat
  }

  #flush(): void {
    this.#seq += 1
    if (this.#durability === 'journal') this.#record('commit', true, true)
  }

  #record(kind: StoreRecord['kind'], ok: boolean, withContent = false): void {
    const { seq, checksum } = this.#stand()
    const players = Object.entries(this.#state.players)
    const applied = Object.fromEntries(players.map(([member, { lastRef }]) => [member, lastRef]))
    const content: Content = { seq, checksum, visible: kind === 'snapshot' ? undefined : true, applied }
    this.store.push({
      kind,
      node: this.#node,
      room: this.room,
      began: this.#tick(),
      ended: this.#tick(),
      ok,
      epoch: this.#epoch,
      version: this.#version,
      ...(withContent && { content }),
    })
    if (kind === 'commit' || kind === 'snapshot') this.#version += 1
  }

  #everyone(t: 'state.patch' | 'state.resync'): void {
    for (const seat of this.#seated) this.#frame(seat, t)
  }

  #frame({ client, member }: Seated, t: 'state.patch' | 'state.snapshot' | 'state.resync'): void {
    const { epoch, seq, checksum } = this.#stand()
    const view = this.#state.players[member] ?? NEW_PLAYER
    const layers = { has: [], due: [] }
    const place = { client, room: this.room, member }
    this.clients.push({
      at: this.#tick(),
      ...place,
      kind: 'frame',
      t,
      epoch,
      seq,
      checksum,
      actual: checksum,
      view: { ...view },
      layers,
    })
  }

  #stand() {
    const state = structuredClone(this.#state) as Json
    return { epoch: this.#epoch, seq: this.#seq, checksum: this.#checksum.of(state), state }
  }

  #tick(): number {
    this.#at += 5
    return this.#at
  }
}

/** Plays a bank, its backends and one guest by the rules, and records the history of a real run. */
export class BankScenario {
  readonly room = 'chaos-bank-journal:one'
  readonly sub = 'gus'
  readonly store: Mutable<StoreRecord>[] = []
  readonly records: Mutable<BackendRecord>[] = []
  readonly faults: Fault[] = []
  readonly state: BankState = { total: 0, effects: {}, seats: {}, twice: [] }
  #at: number
  #node = ''
  /** Above the epochs of other rooms in a history. */
  #epoch = 9_000_000
  #version = 0
  #notices = 0

  constructor(at = 1000) {
    this.#at = at
    this.claim('bank_a')
  }

  get at(): number {
    return this.#at
  }

  wait(ms: number): void {
    this.#at += ms
  }

  fault(kind: FaultKind, { node = this.#node, ms = 5, amount = '' } = {}): void {
    const at = this.#tick()
    const isOfNode = !kind.startsWith('redis')
    this.faults.push({ kind, at, until: at + ms, ...(isOfNode && { node }), ...(amount && { amount }) })
    this.#at += ms
  }

  /** A new owner claims the bank. */
  claim(node: string): void {
    this.#node = node
    this.#epoch += 1
    this.#write('claim')
  }

  /** The store loses all data, and a node claims the room again: with its state and the latest notices, or (`lost`) as a new room. */
  wipe({ by = this.#node, lost = false } = {}): void {
    const written = this.store.flatMap(({ notices = [] }) => notices)
    this.fault('redis_lost')
    this.#version = 0
    if (lost) this.#clear()
    this.claim(by)
    this.#whole(lost ? {} : { notices: written })
  }

  /** A backend calls the room. */
  call(call: string, { refuse = false } = {}): void {
    const refusal = refuse ? ('room_logic_refused' as const) : null
    this.#note({ kind: 'called', call, room: this.room, what: 'grant', refuse: refusal })
  }

  /** The call takes effect with one notice, which arrives. */
  grant(call: string, { arrives = true, accepted = true } = {}): void {
    if (this.state.effects[call] !== undefined) this.state.twice.push(call)
    this.state.total += 1
    this.state.effects[call] = this.state.total
    const notice = { id: `ntc_${++this.#notices}`, body: `{"call":"${call}"}` }
    this.#write('commit', {
      content: { seq: this.state.total, checksum: 1, visible: true, applied: {}, calls: [call] },
      notices: [notice],
    })
    if (arrives) this.receive(notice, accepted)
  }

  receive({ id, body }: { readonly id: string; readonly body: string }, accepted = true): void {
    this.#note({ kind: 'received', notice: id, body, accepted })
  }

  answer(call: string, code: string | null = null): void {
    const answer = code ?? JSON.stringify({ reply: { total: this.state.effects[call] } })
    this.#note({ kind: 'answered', call, code, answer })
  }

  /** A call from its first request to its answer. */
  do(call: string): void {
    this.call(call)
    this.grant(call)
    this.answer(call)
  }

  /** The room ends, and another starts under its name. */
  close(): void {
    this.#write('release', { forget: true })
    this.#clear()
    this.claim(this.#node)
    this.#whole({})
  }

  online(node = this.#node): void {
    this.#note({ kind: 'online', sub: this.sub, node })
  }

  offline(): void {
    this.#note({ kind: 'offline', sub: this.sub })
  }

  ban(): void {
    this.#note({ kind: 'banned', sub: this.sub })
  }

  unban(): void {
    this.#note({ kind: 'unbanning', sub: this.sub })
  }

  sit(member: string): void {
    this.#note({ kind: 'seated', sub: this.sub, room: this.room, member })
  }

  stand(member: string): void {
    this.#note({ kind: 'unseated', sub: this.sub, room: this.room, member })
  }

  kick(): void {
    const sent = this.#tick()
    this.#note({ kind: 'kicked', sub: this.sub, room: this.room, sent, seats: 1 })
  }

  backends(): BackendHistory {
    const owner = { room: this.room, node: this.#node, state: structuredClone(this.state) }
    return {
      rooms: [{ room: this.room, durability: 'journal' }],
      records: this.records,
      end: { at: this.#at, rooms: [owner], seatless: [] },
    }
  }

  /** Returns the history of a run with only this bank. */
  history(): History {
    return {
      run: { began: 0, ended: 0, clients: 0, faults: 0, lease_ms: 1000 },
      rooms: [],
      clients: [],
      store: this.store,
      sessions: [],
      tasks: [],
      late: [],
      faults: this.faults,
      backends: this.backends(),
      end: { at: this.#at, owners: [], members: [], records: [], unreadable: [] },
    }
  }

  #clear(): void {
    Object.assign(this.state, { total: 0, effects: {}, twice: [] })
  }

  #whole(more: Pick<StoreRecord, 'notices'>): void {
    const calls = Object.keys(this.state.effects)
    const content = { seq: this.state.total, checksum: 1, visible: undefined, applied: {}, calls }
    this.#write('snapshot', { content, ...more })
  }

  #write(kind: StoreRecord['kind'], more: Partial<StoreRecord> = {}): void {
    const [began, ended] = [this.#tick(), this.#tick()]
    const { room } = this
    const fence = { epoch: this.#epoch, version: this.#version }
    this.store.push({ kind, node: this.#node, room, began, ended, ok: true, ...fence, ...more })
    if (kind === 'commit' || kind === 'snapshot') this.#version += 1
  }

  #note(note: Without<BackendRecord, 'at'>): void {
    this.records.push({ at: this.#tick(), ...note } as BackendRecord)
  }

  #tick(): number {
    this.#at += 5
    return this.#at
  }
}
