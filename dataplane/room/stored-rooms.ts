import type { Clock } from '../../shared/clock.ts'
import type { RoomRecords } from '../../shared/store/port.ts'
import type { RequestAnswer, RoomAddress, RoomRequest, Shown } from '../traffic.ts'
import { recordedView } from './describe.ts'
import type { InstalledTypes } from './installed-types.ts'
import type { JournalFormat } from './journal.ts'
import { answerLeft, outcomesLeft } from './outcomes.ts'
import { restore } from './restore.ts'
import { type RoomCode, turnOf } from './room-code.ts'

/** Dependencies of `StoredRooms`. */
interface StoredNeeds {
  readonly clock: Clock
  readonly code: RoomCode
  readonly format: JournalFormat
  readonly records: RoomRecords
}

/** Rooms that no node runs, by their records. */
export class StoredRooms {
  readonly #needs: StoredNeeds
  readonly #types: InstalledTypes

  constructor(needs: StoredNeeds, types: InstalledTypes) {
    this.#needs = needs
    this.#types = types
  }

  /** Returns the outcome that an ended room has left for a repeated request. Undefined: there is none. Rejects with `StoreUnavailable`. */
  async answerLeft({ name }: RoomAddress, request: RoomRequest): Promise<RequestAnswer | undefined> {
    const { clock, format, records } = this.#needs
    const left = outcomesLeft(await records.read(name), format, clock.now())
    const outcome = left.find(({ id }) => id === request.id)
    return outcome && answerLeft(request, outcome)
  }

  /** Returns a view of a room. Undefined: there is no record. Rejects with `StoreUnavailable`, or if the record cannot be read. */
  async view({ name, roomType }: RoomAddress, shown: Shown): Promise<RequestAnswer | undefined> {
    const { code, format, records } = this.#needs
    const room = restore({ ...(await records.read(name)), fence: { epoch: 0 } }, format)
    if (!room) return undefined
    const { epoch, seq } = room
    const turn = turnOf({ name, epoch }, 'migrate')
    // The functions of the layers run here.
    const reply = code.run(turn, () => recordedView(room, this.#types.get(roomType), shown))
    return { reply, epoch, seq }
  }
}
