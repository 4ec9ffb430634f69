import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import type { Random } from '../../shared/random.ts'
import type { Book } from './findings.ts'
import type { Lookout } from './lookout.ts'
import type { Tally } from './tally.ts'

/** What clients say hello with. */
export interface Credentials {
  readonly project_id: string
  readonly token: string
  /** They are of a key that will be revoked: that their sessions end then is expected. */
  readonly doomed: boolean
}

/** A message of a room type that is not the load test's own. */
export interface OwnMessage {
  readonly type: string
  readonly data: Json
}

/** What all clients of a run have in common. Plain data. */
export interface CrowdSettings {
  /** Clients are spread over these; one that lost its connection takes the next. */
  readonly ws_urls: readonly string[]
  readonly room_type: string
  /** undefined: the room type is the load test's own. */
  readonly message: OwnMessage | undefined
  /** What chance begins with; another one for each thread. */
  readonly seed: number
}

/** What clients of one thread need. */
export interface ClientParts {
  readonly settings: CrowdSettings
  readonly tally: Tally
  readonly book: Book
  readonly clock: Clock
  readonly random: Random
  readonly lookout: Lookout
}
