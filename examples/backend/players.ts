import { createHmac, timingSafeEqual } from 'node:crypto'

/** A player as this backend knows it. There are no accounts: a player lives as long as its browser tab. */
export interface Player {
  /** The id that goes into the token as `sub`: an optional name, `~`, and random characters. */
  player_id: string
  /** Proof, for the next request of the same tab, that this id was handed to it. */
  ticket: string
}

/** Hands out player ids, and recognises them when they come back. */
export class Players {
  readonly #secret: Uint8Array
  readonly #newId: () => string

  /** `secret`: what tickets are signed with; `newId` makes the random part of an id. */
  constructor(secret: Uint8Array, newId: () => string) {
    this.#secret = secret
    this.#newId = newId
  }

  /** A new player; `name` (letters, digits, spaces, 1–20) is shown to the others. */
  welcome(name: string | undefined): Player {
    const playerId = `${name ?? ''}~${this.#newId()}`
    return { player_id: playerId, ticket: this.#sign(playerId).toString('base64url') }
  }

  /** Whether `ticket` was issued for `player_id` by this backend. */
  knows({ player_id: playerId, ticket }: Player): boolean {
    const signature = Buffer.from(ticket, 'base64url')
    const expected = this.#sign(playerId)
    return signature.length === expected.length && timingSafeEqual(signature, expected)
  }

  #sign(playerId: string): Buffer {
    return createHmac('sha256', this.#secret).update(playerId).digest()
  }
}
