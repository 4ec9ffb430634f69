import type { BankState } from '../rooms.ts'
import type { BackendHistory, BackendRecord, Fault, FaultKind, History, StoreRecord } from './history.ts'

type Mutable<T> = { -readonly [K in keyof T]: T[K] }
type Without<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never

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
