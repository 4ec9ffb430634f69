import { codeKey, newCode } from '../../../shared/ids.ts'
import type { Random } from '../../../shared/random.ts'
import type { Records } from '../../../shared/store/port.ts'
import { type RoomAddress, roomIdOf } from '../../traffic.ts'

/** Codes of rooms in the store. Each is a record with the id of its room. Every method rejects with `StoreUnavailable`. */
export class RoomCodes {
  readonly #records: Records
  readonly #random: Random

  constructor(records: Records, random: Random) {
    this.#records = records
    this.#random = random
  }

  /** Claims a code that no other room of the project has, for `ttlMs`. */
  async claim(room: RoomAddress, ttlMs: number): Promise<string> {
    for (;;) {
      const code = newCode(this.#random)
      if (await this.#put(room, code, ttlMs, 0)) return code
    }
  }

  /**
   * Keeps a room's code for `ttlMs` (Infinity: without end), and claims it again if the store has lost it. Returns false if another room
   * has it.
   */
  async keep(room: RoomAddress, code: string, ttlMs: number): Promise<boolean> {
    for (;;) {
      const found = await this.#find(room, code)
      if (found === 'taken') return false
      if (await this.#put(room, code, ttlMs, found)) return true
    }
  }

  /** Removes a room's code. A code that another room has stays. */
  async remove(room: RoomAddress, code: string): Promise<void> {
    const found = await this.#find(room, code)
    if (found !== 'taken' && found > 0)
      await this.#records.write([{ remove: codeKey(room.projectId, code), ifVersion: found }])
  }

  /** Returns the version of the code's record if this room has it; 0: no room has it. */
  async #find(room: RoomAddress, code: string): Promise<number | 'taken'> {
    const [found] = await this.#records.read([codeKey(room.projectId, code)])
    if (!found) return 0
    return new TextDecoder().decode(found.value) === roomIdOf(room) ? found.version : 'taken'
  }

  #put(room: RoomAddress, code: string, ttlMs: number, ifVersion: number): Promise<boolean> {
    const value = new TextEncoder().encode(roomIdOf(room))
    const life = Number.isFinite(ttlMs) ? { ttlMs: Math.ceil(ttlMs) } : {}
    return this.#records.write([{ put: codeKey(room.projectId, code), value, ifVersion, ...life }])
  }
}
