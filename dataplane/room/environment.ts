import type { Clock } from '../../shared/clock.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import type { AdmissionNeeds } from './admission.ts'
import type { AttachmentNeeds } from './attachments.ts'
import type { BacklogNeeds } from './backlog.ts'
import type { ClaimedRoom, CoreNeeds } from './core.ts'
import type { RoomFeature } from './feature.ts'
import type { Additions, RecordNeeds } from './record.ts'
import type { ReplyNeeds } from './replies.ts'
import type { RequestNeeds } from './request-turns.ts'
import type { LoopShare, NodeLoad } from './scheduler.ts'
import type { TaskNeeds } from './tasks.ts'
import type { TurnNeeds, TurnNotices } from './turn.ts'

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

/** The notices of a room. Turns request them, and each is written with the update of its turn. */
export interface Notices extends TurnNotices, Additions {
  /** Repairs the index of rooms with notices. Called every few minutes. */
  refresh(): void
  /** The room is no longer here. */
  end(): void
}

interface LoopNeeds {
  readonly features: readonly RoomFeature[]
  /** Opens the notices of a claimed room. `mayAct`: whether this node is certainly the room's owner now. */
  notices(room: ClaimedRoom, mayAct: () => boolean): Notices
  readonly clock: Clock
  readonly random: Random
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
