import type { Json } from '../../../shared/json.ts'
import type { AppliedOp, HeldLayers, Player, Refusal, View } from '../rooms.ts'

/**
 * All that one run of chaos has left behind, as plain data. Times (`at`, `began`, `ended`, `until`) are milliseconds on the machine's
 * monotonic clock, which all its processes share. Rooms are named `type:key`, nodes by the id of one process's life.
 */
export interface History {
  readonly run: RunPlan
  readonly rooms: readonly { readonly room: string; readonly durability: Durability }[]
  /** In the order in which they were recorded. */
  readonly clients: readonly ClientRecord[]
  /** In the order of `ended`. */
  readonly store: readonly StoreRecord[]
  /** In any order. */
  readonly sessions: readonly SessionWrite[]
  /** The tasks that began to work. */
  readonly tasks: readonly TaskBegin[]
  /** Calls of handlers that change the state, on nodes whose lease had run out. */
  readonly late: readonly LateCall[]
  readonly faults: readonly Fault[]
  /** Observations of the players of the lobby, in the order of their times. Absent: the run had none. */
  readonly lobby?: Lobby
  /** Calls of backends, and their notices. Absent: the run had no backends. */
  readonly backends?: BackendHistory
  /** Observations of the players of the queue. Absent: the run had none. */
  readonly queue?: Queue
  readonly end: End
}

/** Players who find rooms by lists, codes and reservations. */
export interface Lobby {
  readonly records: readonly LobbyRecord[]
  /** The rooms that the nodes run at the end, and the lists of each player then. */
  readonly end: {
    readonly at: number
    readonly rooms: readonly LobbyRoom[]
    readonly lists: readonly { readonly client: string; readonly rows: readonly ListedRow[] }[]
    /** Players without a room. */
    readonly roomless: readonly string[]
  }
}

/** A running lobby room, as its owner describes it. */
export interface LobbyRoom {
  readonly room: string
  readonly node: string
  readonly members: number
  readonly reserved: number
  readonly state: Json
}

/** What a player has seen of a room in a list. */
export interface ListedRow {
  readonly room: string
  readonly members: number
  readonly reserved: number
  readonly phase: string
}

/** Way to a room. */
export type FoundBy = 'joinOrCreate' | 'create' | 'code' | 'reservation'

/** One observation of a lobby player. */
export type LobbyRecord = {
  readonly at: number
  readonly client: string
} /** Rows of a query or of a watch, which came from a node. */ & (
  | { readonly kind: 'listed'; readonly node: string; readonly rows: readonly ListedRow[] }
  /** `code`: of the room, by its answer. `expected`: the room whose member has told the code or the reservation, and when. */
  | {
      readonly kind: 'found'
      readonly by: FoundBy
      readonly room: string
      readonly code: string | undefined
      readonly expected?: Expected
    }
  | {
      readonly kind: 'not_found'
      readonly by: FoundBy
      readonly error: string
      readonly expected?: Expected
    }
  /** Marks of hidden state that were in a frame. */
  | { readonly kind: 'marks'; readonly marks: readonly string[] }
)

/** Where a code or a reservation leads. */
export interface Expected {
  readonly room: string
  /** When its room has confirmed it. */
  readonly since: number
  readonly code?: string
}

/** What backends, their webhook and the players that they manage have seen. Times are those of the history. */
export interface BackendHistory {
  readonly rooms: readonly { readonly room: string; readonly durability: Durability }[]
  /** In the order of their times. */
  readonly records: readonly BackendRecord[]
  readonly end: {
    readonly at: number
    /** The banks that the nodes run at the end. */
    readonly rooms: readonly { readonly room: string; readonly node: string; readonly state: Json }[]
    /** Players that have no seat although no one keeps them out. */
    readonly seatless: readonly string[]
  }
}

/** One observation. `call` is an idempotency key, `sub` a player, `notice` the id of a notice. */
export type BackendRecord = { readonly at: number } & (
  | {
      /** Before the first request of this call leaves. `close`: it ends the room. */
      readonly kind: 'called'
      readonly call: string
      readonly room: string
      readonly what: 'grant' | 'close'
      readonly refuse: Refusal | null
    }
  /** One request of a call was answered, and not only put off. `answer`: reply, epoch and seq as JSON, or code and text of the refusal. */
  | {
      readonly kind: 'answered'
      readonly call: string
      readonly code: string | null
      readonly answer: string
    }
  /** A kick was answered. */
  | {
      readonly kind: 'kicked'
      readonly sub: string
      readonly room: string
      readonly sent: number
      readonly seats: number
    }
  /** A ban was answered; the end of a ban is sent. */
  | { readonly kind: 'banned' | 'unbanning'; readonly sub: string }
  /** The webhook got a notice. `accepted`: it answers in time that it has taken it. */
  | {
      readonly kind: 'received'
      readonly notice: string
      readonly body: string
      readonly accepted: boolean
    }
  | { readonly kind: 'online'; readonly sub: string; readonly node: string }
  | { readonly kind: 'offline'; readonly sub: string }
  | { readonly kind: 'seated'; readonly sub: string; readonly room: string; readonly member: string }
  | { readonly kind: 'unseated'; readonly sub: string; readonly room: string; readonly member: string }
)

/** A notice as the owner of its room has written it. */
export interface WrittenNotice {
  readonly id: string
  readonly body: string
}

/** Players who queue for matches. */
export interface Queue {
  /** In the order of their times. */
  readonly records: readonly QueueRecord[]
  readonly end: QueueEnd
}

export interface QueueEnd {
  readonly at: number
  /** What nodes run of the queue, each with its state. */
  readonly queues: readonly { readonly node: string; readonly state: Json }[]
  /** Tickets of the players who wait. */
  readonly waiting: readonly WaitingTicket[]
  /** Players who are neither in a queue nor in the room of a match. */
  readonly outside: readonly string[]
}

export interface WaitingTicket {
  readonly client: string
  readonly ticket: string
  readonly level: number
}

/** One observation of a player of the queue. The client is the `sub` of its player. */
export type QueueRecord = { readonly at: number; readonly client: string } & (
  | { readonly kind: 'connected' | 'lost_connection' }
  /** The player has loaded its page, which knows no earlier match. */
  | { readonly kind: 'loaded' }
  /** A ticket was asked for, or asked for again after a reload. */
  | { readonly kind: 'asked'; readonly ticket: string }
  /** The queue has said that the ticket waits. */
  | { readonly kind: 'placed'; readonly ticket: string }
  /** A frame, or a refusal, named the room of the player's match. */
  | { readonly kind: 'heard'; readonly room: string; readonly tickets: readonly string[] }
  /** The player has joined the room of its match. */
  | {
      readonly kind: 'matched'
      readonly ticket: string
      readonly room: string
      readonly tickets: readonly string[]
      /** Its seat is in the state of the room. */
      readonly seated: boolean
    }
  /** The ticket has ended without a match. `cancelled`: the player wanted that. */
  | { readonly kind: 'ended'; readonly ticket: string; readonly code: string; readonly cancelled: boolean }
  /** The player joined the room of a match of others. */
  | {
      readonly kind: 'intruded'
      readonly room: string
      readonly tickets: readonly string[]
      /** Members of the room. */
      readonly seats: readonly string[]
      /** Players who have had a seat. */
      readonly came: readonly string[]
    }
  | { readonly kind: 'kept_out'; readonly room: string; readonly code: string }
)

/** A call of a handler on a node without a lease. */
export interface LateCall {
  readonly node: string
  readonly room: string
  readonly hook: string
  readonly at: number
}

/** What the run was to do: what really happened is measured against it. */
export interface RunPlan {
  /** When every client was in its room, and when the faults were over. */
  readonly began: number
  readonly ended: number
  readonly clients: number
  /** How many faults were planned. */
  readonly faults: number
  readonly lease_ms: number
}

export type Durability = 'journal' | 'snapshot' | 'none'

export type FaultKind =
  | 'kill'
  | 'pause'
  | 'cut'
  | 'delay'
  | 'blackhole'
  | 'clock'
  | 'drain'
  | 'redis_kept'
  | 'redis_lost'
  | 'redis_pause'
  | 'race'
  | 'client_cut'
  | 'control'
  /** Not drawn: the machine itself kept a node, or (without a node) everything, from running. */
  | 'stall'

/** What was done to the system, when, and to whom. */
export interface Fault {
  readonly kind: FaultKind
  readonly at: number
  readonly until: number
  /** The node it was done to; absent: Redis, or clients. */
  readonly node?: string
  readonly clients?: readonly string[]
  /** How much of it, for people: `1200 ms`, `+3600 s`. */
  readonly amount?: string
}

export type FrameName = 'state.snapshot' | 'state.resync' | 'state.patch' | 'event' | 'member'

/** One thing that a client did or saw. `client` outlives sessions, `member` is one seat; frames of superseded connections are not recorded. */
export type ClientRecord = { readonly at: number; readonly client: string } & (
  | { readonly kind: 'connected'; readonly node: string }
  /** `hello` with `resume` was sent. */
  | { readonly kind: 'resuming'; readonly session: string }
  | {
      readonly kind: 'welcome'
      readonly node: string
      readonly session: string
      readonly resumed: boolean
    }
  /** Two connections took one session up at once, with one token, and so many still have it a while later. */
  | { readonly kind: 'raced'; readonly winners: number }
  | {
      readonly kind: 'closed'
      readonly code: number
      readonly reason: string
      /** By this client itself. */
      readonly asked: boolean
      /** The client had given this connection up for another one. */
      readonly superseded?: boolean
    }
  /** It opens a connection to the node of its room, as the server has told it; and has its session there. */
  | { readonly kind: 'rerouting'; readonly node: string }
  | { readonly kind: 'rerouted' }
  /** What of hidden layers was in a frame of any kind, as bytes. */
  | { readonly kind: 'marks'; readonly marks: readonly string[] }
  | (InRoom &
      (
        | { readonly kind: 'joined' }
        | {
            readonly kind: 'frame'
            readonly t: FrameName
            readonly epoch: number
            readonly seq: number
            /** As the frame says. */
            readonly checksum?: number
            /** That of the state the frame led to; absent where the client did not apply it. */
            readonly actual?: number
            readonly view?: View
            readonly layers?: HeldLayers
            /** Of an `applied` event. */
            readonly op?: AppliedOp
          }
        /** A client library that tells no frames has shown this. */
        | { readonly kind: 'view'; readonly view: View; readonly layers?: HeldLayers }
        /** A layer has come that was for the state which the client has. */
        | { readonly kind: 'layers'; readonly layers: HeldLayers }
        | {
            readonly kind: 'sent'
            readonly ref: number
            readonly op: string
            /** How the room must refuse it; null: it must apply it. */
            readonly refuse: Refusal | null
            /** It is to be answered. */
            readonly ask: boolean
            readonly again: boolean
          }
        /** What came of a layer does not fit what the client has of it. */
        | {
            readonly kind: 'misfit'
            readonly layer: string
            readonly seq: number
            readonly actual: number | null
          }
        | { readonly kind: 'ack'; readonly ref: number }
        | { readonly kind: 'reply'; readonly ref: number; readonly reply: Reply }
        | { readonly kind: 'refused'; readonly ref: number; readonly code: string }
        /** The seat is gone: with its session, or by the server's word. */
        | { readonly kind: 'lost'; readonly why: 'session' | 'seat' }
      ))
)

/** The answer to an op: how many were applied with it, and their chain. */
export type Reply = {
  readonly op: string
  readonly count: number
  readonly chain: number
}

interface InRoom {
  readonly room: string
  readonly member: string
}

/** One call of the store by a node. `ok` undefined: the call was rejected, so it may have taken place or not. */
export interface StoreRecord {
  readonly kind: 'claim' | 'commit' | 'snapshot' | 'release' | 'quarantine'
  readonly node: string
  readonly room: string
  readonly began: number
  readonly ended: number
  readonly ok: boolean | undefined
  /** Of the fence; of a claim: the one it gave, 0 where it is not known. */
  readonly epoch: number
  /** Commits before this call; of a claim: as it found them. */
  readonly version: number
  /** What was written. */
  readonly content?: Content
  /** Notices that were written with it. */
  readonly notices?: readonly WrittenNotice[]
  /** True: the release of a room that has ended. */
  readonly forget?: boolean
}

/** A node began the work of a room's task. */
export interface TaskBegin {
  readonly room: string
  readonly op: string
  readonly at: number
}

/** A node wrote down a session, which a resume must find. */
export interface SessionWrite {
  readonly session: string
  /** How often it had been resumed by then, as far as the node knew. */
  readonly turn: number
  /** When the store had answered. */
  readonly at: number
}

export interface Content {
  readonly seq: number
  readonly checksum: number
  /** Whether members see it: a flush of acks only has no seq of its own. Undefined for a whole state. */
  readonly visible: boolean | undefined
  /** By member, the ref of its last applied op, of members that this write tells of: all of them in a whole state. */
  readonly applied: Readonly<Record<string, number>>
  /** Calls that had an effect in a bank: with this update, or (whole state) up to it. */
  readonly calls?: readonly string[]
  /** Players for whom this write reserves seats. Absent: none. */
  readonly reserved?: readonly string[]
}

/** How everything stood when all faults were healed and nothing moved any more. */
export interface End {
  readonly at: number
  /** What each node says it runs. */
  readonly owners: readonly (Stand & { readonly room: string; readonly node: string })[]
  /** Every client that is in a room. */
  readonly members: readonly (Partial<Stand> & InRoom & { readonly client: string; readonly state: Json })[]
  /** What the store holds, read when all nodes were gone. */
  readonly records: readonly (Omit<Stand, 'state' | 'epoch'> & {
    readonly room: string
    readonly version: number
    readonly state: Json
    /** Ids of those that wait. */
    readonly timers: readonly string[]
    /** Subs for which a seat is reserved. */
    readonly reservations: readonly string[]
  })[]
  /** Rooms of which the store holds something that no new owner could go on from, and why. */
  readonly unreadable: readonly { readonly room: string; readonly message: string }[]
}

/** Where a room stands. */
export interface Stand {
  readonly epoch: number
  readonly seq: number
  readonly checksum: number
  readonly state: Json
}

/** The part of a chaos room's state that the checker reads. */
export const playerIn = (state: Json | undefined, member: string): Player | undefined => {
  const players = (state as { players?: { [id: string]: Player } } | undefined)?.players
  return players && Object.hasOwn(players, member) ? players[member] : undefined
}

/** What a history can break. Each has its own name, so that a report says at once which promise did not hold. */
export const VIOLATIONS = {
  split_commit: 'two epochs committed the same version or seq of a room',
  stale_commit: 'an epoch committed after a higher one had been claimed',
  version_gap: 'versions of a room, or seqs of a journal, are not gap-free',
  epoch_claimed_twice: 'one epoch of a room was claimed twice',
  acted_without_lease: 'a node called a handler although its lease had run out',
  room_lost: 'a room began again although an owner or the store still had it',
  record_differs: 'what the store holds is not what was committed last',
  record_unreadable: 'what the store holds of a room contradicts itself',
  uncommitted_update: 'a member of a journal room saw what was never committed',
  shown_early: 'a member of a journal room saw an update before its commit was certain',
  acked_early: 'an op of a journal room was acked before its commit was certain',
  seq_gap: 'a member met a gap that no resync healed',
  seq_repeated: 'a member got a seq twice',
  epoch_down: 'the epoch went down at a member',
  checksum_mismatch: 'a patch led to another state than its checksum says',
  divergence: 'two members saw different states under one epoch and seq',
  acked_lost: 'an acked op was not applied',
  applied_twice: 'an op was applied more than once',
  out_of_order: 'ops of one member were applied in another order',
  refused_applied: 'a refused op was applied',
  refused_acked: 'an op was both refused and acked, or acked although the room must refuse it',
  refused_without_cause: 'the room refused an op that it must apply, or in another way than it must',
  unexplained: 'a state holds ops that no one sent',
  ack_unsent: 'a ref was acked that was never sent',
  unsettled: 'an op was neither acked nor refused although everything works',
  rollback: 'a member saw its room go back where the room type does not allow it',
  rollback_too_far: 'a crash took back more of a snapshot room than about its last second',
  seat_lost: 'a member lost its seat without a cause',
  closed_without_cause: 'a client was disconnected for good without a cause',
  resumed_twice: 'two connections had one session at once',
  reply_lost: 'a request was acked and not answered',
  reply_differs: 'a request got two answers, or one of another effect',
  layer_leaked: 'a client got what is hidden from it',
  layer_wrong:
    'a member lacks a layer that it was shown, or has one that it was not or that is of another flush',
  timer_twice: 'a timer fired twice, or although it was cancelled',
  timer_lost: 'a timer never fired',
  task_twice: 'a task began or ended twice',
  task_lost: 'a task was lost and its room not told, or told too often',
  presence_wrong: 'a room was told otherwise of a connection than it is',
  left_out: 'a client is in no room although everything works',
  no_owner: 'no one runs a room that has members',
  two_owners: 'two nodes run one room',
  listed_ghost: 'a list contained a room that had ended, or whose owner had died',
  list_wrong: 'a list differs from the rooms that run although everything works',
  room_full: 'joinOrCreate answered room_full',
  seat_twice: 'a room gave away a seat that was taken or reserved for another player',
  reservation_broken: 'a room refused the player for whom it had reserved a seat, or lost the reservation',
  code_misleads: 'a code led to another room than its own',
  call_twice: 'a call had its effect twice',
  call_lost: 'the effect of an answered call is not in the committed state',
  call_answered_early: 'a call was answered before its commit was certain',
  call_refused_applied: 'a refused call had an effect',
  call_refused_without_cause:
    'a call was refused that its room must carry out, or in another way than it must',
  call_answers_differ: 'a call got two answers',
  call_unanswered: 'a call got no answer although everything works',
  notice_lost: 'a committed notice did not arrive, or not again after the webhook had failed',
  notice_uncommitted: 'a notice arrived that was not committed',
  notice_differs: 'a notice arrived with another body than was committed',
  notice_order: 'notices of a room arrived first in another order than they were committed in',
  ban_ignored: 'a banned player was online',
  kick_ignored: 'a kicked player kept the seat',
  ticket_twice: 'a ticket was in two matches',
  ticket_lost: 'a ticket ended without a match, or waited although it fitted',
  party_split: 'a player of a party was matched without the other',
  match_of_cancelled: 'a player got the match of a ticket that it had cancelled',
  match_early: 'a player heard of a match before its seat was reserved',
  final_mismatch: 'a member ended with another state than the owner',
  too_little: 'too little happened to prove anything',
} as const

export type ViolationName = keyof typeof VIOLATIONS

export interface Violation {
  readonly name: ViolationName
  /** When it showed, on the history's clock. */
  readonly at: number
  readonly room?: string
  readonly member?: string
  readonly client?: string
  /** What was seen and what should have been. */
  readonly message: string
}
