import type { Clock } from '../../shared/clock.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { Additions } from './additions.ts'
import type { AdmissionNeeds } from './admission.ts'
import type { AttachmentNeeds } from './attachments.ts'
import type { BacklogNeeds } from './backlog.ts'
import type { ClaimedRoom, CoreNeeds } from './core.ts'
import type { RoomFeature } from './feature.ts'
import type { RecordNeeds } from './record.ts'
import type { ReplyNeeds } from './replies.ts'
import type { RequestNeeds } from './request-turns.ts'
import type { LoopShare, NodeLoad } from './scheduler.ts'
import type { TaskNeeds } from './tasks.ts'
import type { TurnNeeds } from './turn.ts'

/** Dependencies of a running room: those of its parts, and those of its loop. */
export type RoomNeeds = CoreNeeds &
  TurnNeeds &
  TaskNeeds &
  AdmissionNeeds &
  AttachmentNeeds &
  BacklogNeeds &
  RequestNeeds &
  ReplyNeeds &
  RecordNeeds &
  LoopNeeds

interface LoopNeeds {
  readonly features: readonly RoomFeature[]
  /** Returns the additions of a claimed room. `mayAct`: whether this node is certainly the room's owner now. */
  additions(room: ClaimedRoom, mayAct: () => boolean): Additions
  readonly clock: Clock
  /** Returns where in an interval of its rate the next room flushes and ticks: 0 to 1. */
  phase(): number
  readonly loopShare: LoopShare
  readonly load: NodeLoad
  readonly codecs: ReadonlyMap<Subprotocol, Codec>
  readonly cluster: {
    /** This node's lease. */
    readonly lease: {
      /** Monotonic time until which the node may act for its rooms, in milliseconds. Checked before each turn and each delivery. */
      readonly validUntil: number
    }
  }
}
