import type { Json } from '../../../shared/json.ts'
import type { AppliedOp, HeldLayers, Player, Refusal, View } from '../rooms.ts'

/** `Omit` for each member of a union. */
export type Without<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never

/**
 * Records of one chaos run, as plain data. Times (`at`, `began`, `ended`, `until`) are milliseconds on the machine's monotonic clock, which all
 * processes of the run share. Rooms are named `type:key`. Each process of a node has a name, such as `node1.2`.
 */
export interface History {
  readonly run: RunPlan
  readonly rooms: readonly { readonly room: string; readonly durability: Durability }[]
  /** In the order of recording. */
  readonly clients: readonly ClientRecord[]
  /** In the order of `ended`. */
  readonly store: readonly StoreRecord[]
  /** In any order. */
  readonly sessions: readonly SessionWrite[]
  /** Starts of the work of tasks. */
  readonly tasks: readonly TaskBegin[]
  /** Calls of handlers that change the state, on nodes with an expired lease. */
  readonly late: readonly LateCall[]
  readonly faults: readonly Fault[]
  /** Observations of the lobby's players. Absent: the run had none. */
  readonly lobby?: Lobby
  /** Calls of backends, and their notices. Absent: the run had no backends. */
  readonly backends?: BackendHistory
  /** Observations of the queue's players. Absent: the run had none. */
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
  readonly players: number
  readonly reserved: number
  readonly state: Json
}

/** A room in the list of a player. */
export interface ListedRow {
  readonly room: string
  readonly players: number
  readonly reserved: number
  readonly phase: string
}

/** Means by which a player finds a room. */
/** `watch`: as a spectator, and again when the room has made it a player. */
export type FoundBy = 'joinOrCreate' | 'create' | 'code' | 'reservation' | 'watch'

/** One observation of a lobby player. */
export type LobbyRecord = {
  readonly at: number
  readonly client: string
} /** Rows of a query or of a watch, from a node. */ & (
  | { readonly kind: 'listed'; readonly node: string; readonly rows: readonly ListedRow[] }
  /** `code`: code of the room, from its answer. `expected`: the room whose member has passed on the code or the reservation. */
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
  /** Marks of hidden state in a frame. */
  | { readonly kind: 'marks'; readonly marks: readonly string[] }
)

/** Room to which a code or a reservation must lead. */
export interface Expected {
  readonly room: string
  /** Time at which the room confirmed it. */
  readonly since: number
  readonly code?: string
}

/** Observations of backends, their webhook, and the players that they manage. */
export interface BackendHistory {
  readonly rooms: readonly { readonly room: string; readonly durability: Durability }[]
  /** In the order of their times. */
  readonly records: readonly BackendRecord[]
  readonly end: {
    readonly at: number
    /** Banks that the nodes run at the end. */
    readonly rooms: readonly { readonly room: string; readonly node: string; readonly state: Json }[]
    /** Players without a seat who are not banned. */
    readonly seatless: readonly string[]
  }
}

/** One observation. `call` is an idempotency key, `sub` a player, `notice` the id of a notice. */
export type BackendRecord = { readonly at: number } & (
  | {
      /** The first request of this call is about to be sent. `close`: the call ends the room. */
      readonly kind: 'called'
      readonly call: string
      readonly room: string
      readonly what: 'grant' | 'close'
      readonly refuse: Refusal | null
    }
  /** A request of a call got a final answer. `answer`: reply, epoch and seq as JSON, or code and text of the refusal. */
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
  /** `banned`: a ban was answered. `unbanning`: the request to end a ban is about to be sent. */
  | { readonly kind: 'banned' | 'unbanning'; readonly sub: string }
  /** The webhook received a notice. `accepted`: it accepts the notice in time. */
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

/** A notice, as the owner of its room has written it. */
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
  /** Queue rooms that the nodes run, each with its state. */
  readonly queues: readonly { readonly node: string; readonly state: Json }[]
  /** Tickets of the waiting players. */
  readonly waiting: readonly WaitingTicket[]
  /** Players who are neither in a queue nor in the room of a match. */
  readonly outside: readonly string[]
}

export interface WaitingTicket {
  readonly client: string
  readonly ticket: string
  readonly level: number
}

/** One observation of a queue player. `client` is the player's `sub`. */
export type QueueRecord = { readonly at: number; readonly client: string } & (
  | { readonly kind: 'connected' | 'lost_connection' }
  /** The player has loaded the page, which knows no earlier match. */
  | { readonly kind: 'loaded' }
  /** The player has requested a ticket, or has requested it again after a reload. */
  | { readonly kind: 'asked'; readonly ticket: string }
  /** The queue has answered that the ticket waits. */
  | { readonly kind: 'placed'; readonly ticket: string }
  /** The player cancels the ticket. */
  | { readonly kind: 'cancelling'; readonly ticket: string }
  /** A frame, or a refusal, named the room of the player's match. */
  | { readonly kind: 'announced'; readonly room: string; readonly tickets: readonly string[] }
  /** The player has joined the room of its match. */
  | {
      readonly kind: 'matched'
      readonly ticket: string
      readonly room: string
      readonly tickets: readonly string[]
      /** The player's seat is in the state of the room. */
      readonly seated: boolean
    }
  /** The ticket has ended without a match. `cancelled`: the player has cancelled it. */
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

/** Plan of the run, which is the measure for the amount of activity. */
export interface RunPlan {
  /** Time at which every client was in its room, and time at which the faults were over. */
  readonly began: number
  readonly ended: number
  readonly clients: number
  /** Number of planned faults. */
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
  /** Not drawn: the machine did not run a node, or (without a node) any process. */
  | 'stall'

/** A fault of the run. */
export interface Fault {
  readonly kind: FaultKind
  readonly at: number
  readonly until: number
  /** The affected node. Absent: Redis or clients are affected. */
  readonly node?: string
  readonly clients?: readonly string[]
  /** Extent of the fault, such as `1200 ms` or `+3600 s`. */
  readonly amount?: string
}

export type FrameName = 'state.snapshot' | 'state.resync' | 'state.patch' | 'event' | 'member'

/** One action or observation of a client. `client` outlives sessions, and `member` is one seat. Frames of superseded connections are not recorded. */
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
  /** Two connections resumed one session with one token. `winners`: number of those that still have it a while later. */
  | { readonly kind: 'raced'; readonly winners: number }
  | {
      readonly kind: 'closed'
      readonly code: number
      readonly reason: string
      /** True: this client has closed it. */
      readonly asked: boolean
      /** True: the client had replaced this connection by another. */
      readonly superseded?: boolean
    }
  /** `rerouting`: the client opens a connection to the node of its room, at the request of the server. `rerouted`: it has its session there. */
  | { readonly kind: 'rerouting'; readonly node: string }
  | { readonly kind: 'rerouted' }
  /** Marks of hidden layers in the bytes of a frame of any kind. */
  | { readonly kind: 'marks'; readonly marks: readonly string[] }
  | (InRoom &
      (
        | { readonly kind: 'joined' }
        | {
            readonly kind: 'frame'
            readonly t: FrameName
            readonly epoch: number
            readonly seq: number
            /** The checksum in the frame. */
            readonly checksum?: number
            /** The checksum of the state after the frame. Absent: the client did not apply it. */
            readonly actual?: number
            readonly view?: View
            readonly layers?: HeldLayers
            /** The op of an `applied` event. */
            readonly op?: AppliedOp
          }
        /** A client library that does not expose frames has shown this state. */
        | { readonly kind: 'view'; readonly view: View; readonly layers?: HeldLayers }
        /** A layer has arrived for the state that the client has. */
        | { readonly kind: 'layers'; readonly layers: HeldLayers }
        | {
            readonly kind: 'sent'
            readonly ref: number
            readonly op: string
            /** Code with which the room must refuse it. Null: the room must apply it. */
            readonly refuse: Refusal | null
            /** True: the room must reply. */
            readonly ask: boolean
            readonly again: boolean
          }
        /** A change of a layer does not fit the layer of the client. */
        | {
            readonly kind: 'misfit'
            readonly layer: string
            readonly seq: number
            readonly actual: number | null
          }
        /** A frame that is not a whole state, from before the join. */
        | { readonly kind: 'early'; readonly t: FrameName; readonly seq: number }
        | { readonly kind: 'ack'; readonly ref: number }
        | { readonly kind: 'reply'; readonly ref: number; readonly reply: Reply }
        | { readonly kind: 'refused'; readonly ref: number; readonly code: string }
        /** The seat has ended: with its session, or the server says so. */
        | { readonly kind: 'lost'; readonly why: 'session' | 'seat' }
      ))
)

/** Reply to an op: the number of the member's applied ops, and their chain. */
export type Reply = {
  readonly op: string
  readonly count: number
  readonly chain: number
}

interface InRoom {
  readonly room: string
  readonly member: string
}

/** One call of the store by a node. `ok` undefined: the call was rejected, so it may have taken effect or not. */
export interface StoreRecord {
  readonly kind: 'claim' | 'commit' | 'snapshot' | 'release' | 'quarantine'
  readonly node: string
  readonly room: string
  readonly began: number
  readonly ended: number
  readonly ok: boolean | undefined
  /** Epoch of the fence. For a claim: the epoch that it got, or 0 if that is not known. */
  readonly epoch: number
  /** Number of commits before this call. For a claim: as it found them. */
  readonly version: number
  /** The written content. */
  readonly content?: Content
  /** Notices that were written with it. */
  readonly notices?: readonly WrittenNotice[]
  /** True: the room has ended with this release. */
  readonly forget?: boolean
}

/** A node has started the work of a room's task. */
export interface TaskBegin {
  readonly room: string
  readonly op: string
  readonly at: number
}

/** A node has written the record of a session, which a resume must find. */
export interface SessionWrite {
  readonly session: string
  /** Number of its resumes, as far as the node knew. */
  readonly turn: number
  /** Time of the store's answer. */
  readonly at: number
}

export interface Content {
  readonly seq: number
  readonly checksum: number
  /** Whether members see it: a flush with only acks has no seq. Undefined for a whole state. */
  readonly visible: boolean | undefined
  /** Ref of the last applied op, by member. A whole state has all members, and an update has those with ops in it. */
  readonly applied: Readonly<Record<string, number>>
  /** Calls with an effect in a bank: in this update, or in a whole state all calls up to it. */
  readonly calls?: readonly string[]
  /** Players for whom this write reserves seats. Absent: none. */
  readonly reserved?: readonly string[]
}

/** Final state of the run, after all faults were healed and all activity had stopped. */
export interface End {
  readonly at: number
  /** Rooms that each node runs, as the nodes report them. */
  readonly owners: readonly (Stand & { readonly room: string; readonly node: string })[]
  /** Clients in rooms. */
  readonly members: readonly (Partial<Stand> & InRoom & { readonly client: string; readonly state: Json })[]
  /** Records in the store, read after all nodes had ended. */
  readonly records: readonly (Omit<Stand, 'state' | 'epoch'> & {
    readonly room: string
    readonly version: number
    readonly state: Json
    /** Ids of the waiting timers. */
    readonly timers: readonly string[]
    /** Subs with a reserved seat. */
    readonly reservations: readonly string[]
  })[]
  /** Rooms whose record a new owner could not read, with the reason. */
  readonly unreadable: readonly { readonly room: string; readonly message: string }[]
}

/** Position and state of a room. */
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

/** Names and descriptions of all violations. */
export const VIOLATIONS = {
  split_commit: 'two epochs committed the same version or seq of a room',
  stale_commit: 'an epoch committed after a higher one had been claimed',
  version_gap: 'versions of a room, or seqs of a journal, are not gap-free',
  epoch_claimed_twice: 'one epoch of a room was claimed twice',
  acted_without_lease: 'a node called a handler although its lease had expired',
  room_lost: 'a room restarted although an owner or the store still had it',
  record_differs: 'the record in the store is not the last commit',
  record_unreadable: 'the record of a room contradicts itself',
  uncommitted_update: 'a member of a journal room saw an update that was never committed',
  shown_early: 'a member of a journal room saw an update before its commit was certain',
  acked_early: 'an op of a journal room was acked before its commit was certain',
  seq_gap: 'a member met a gap that no resync healed, or healed only after longer than a takeover takes',
  seq_repeated: 'a member got a seq twice',
  epoch_down: 'the epoch went down at a member',
  checksum_mismatch: 'a patch led to another state than its checksum says',
  divergence: 'two members saw different states of one epoch and seq',
  acked_lost: 'an acked op was not applied',
  applied_twice: 'an op was applied more than once',
  out_of_order: 'ops of one member were applied in another order',
  refused_applied: 'a refused op was applied',
  refused_acked: 'an op was both refused and acked, or acked although the room must refuse it',
  refused_without_cause: 'the room refused an op that it must apply, or in another way than it must',
  unexplained: 'a state has ops that no client sent',
  ack_unsent: 'a ref was acked that was never sent',
  op_unanswered: 'an op was neither acked nor refused although everything works',
  rollback: 'a member saw its room go back although the room type does not allow that',
  rollback_too_far: 'a crash took back more of a snapshot room than about its last second',
  seat_lost: 'a member lost its seat without a fault that explains it',
  closed_without_cause: 'a client was disconnected for good without a fault that explains it',
  resumed_twice: 'two connections had one session at the same time',
  reply_lost: 'a request was acked and not answered',
  reply_differs: 'a request got two answers, or one of another effect',
  layer_leaked: 'a client got state that is hidden from it',
  layer_wrong:
    'a member lacks a layer that it was shown, has one that it was not shown, or has one of another flush',
  timer_twice: 'a timer fired twice, or although it was cancelled',
  timer_lost: 'a timer never fired',
  task_twice: 'a task began or ended twice',
  task_lost: 'a task was lost and its room was not notified, or was notified more than once',
  role_wrong: 'a room and the service differ in who plays and who watches',
  seen_early: 'a client that lists a position from before its join received an update from before it',
  presence_wrong: 'a room counts a member as connected that is not, or the reverse',
  left_out: 'a client is in no room although everything works',
  no_owner: 'no node runs a room that has members',
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
  notice_lost: 'a committed notice did not arrive, or did not arrive again after the webhook had failed',
  notice_uncommitted: 'a notice arrived that was not committed',
  notice_differs: 'a notice arrived with another body than was committed',
  notice_order: 'notices of a room did not arrive in the order of their commits',
  ban_ignored: 'a banned player was online',
  kick_ignored: 'a kicked player kept the seat',
  ticket_twice: 'a ticket was in two matches',
  ticket_lost: 'a ticket ended without a match, or waited although it fits others',
  party_split: 'a player of a party was matched without the other',
  match_of_cancelled: 'a player got the match of a ticket that it had cancelled',
  match_short: 'players were notified of a match although another player had left it before',
  match_refused: 'a player was notified of a match whose room had refused a player',
  match_early: 'a player was notified of a match before its seat was reserved',
  final_mismatch: 'a member ended with another state than the owner',
  too_little: 'too little happened to prove anything',
} as const

export type ViolationName = keyof typeof VIOLATIONS

export interface Violation {
  readonly name: ViolationName
  /** Time at which it was observed. */
  readonly at: number
  readonly room?: string
  readonly member?: string
  readonly client?: string
  /** The observation, and what would be right. */
  readonly message: string
}
