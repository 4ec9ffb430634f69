import { createHmac, timingSafeEqual } from 'node:crypto'

/** A player of this backend. There are no accounts: each browser tab is a player. */
export interface Player {
  /** Player id, used as `sub` of the token: an optional name, `~`, and random characters. */
  player_id: string
  /** Signature of the player id. With it, the same tab can log in as the same player again. */
  ticket: string
}

/** Issues and verifies player ids. */
export class Players {
  readonly #secret: Uint8Array
  readonly #newId: () => string

  /** `secret` signs tickets; `newId` returns the random part of an id. */
  constructor(secret: Uint8Array, newId: () => string) {
    this.#secret = secret
    this.#newId = newId
  }

  /** Creates a player; other players see `name` (letters, digits, spaces, 1–20). */
  welcome(name: string | undefined): Player {
    const playerId = `${name ?? ''}~${this.#newId()}`
    return { player_id: playerId, ticket: this.#sign(playerId).toString('base64url') }
  }

  /** Returns true if this backend issued `ticket` for `player_id`. */
  knows({ player_id: playerId, ticket }: Player): boolean {
    const signature = Buffer.from(ticket, 'base64url')
    const expected = this.#sign(playerId)
    return signature.length === expected.length && timingSafeEqual(signature, expected)
  }

  #sign(playerId: string): Buffer {
    return createHmac('sha256', this.#secret).update(playerId).digest()
  }
}
