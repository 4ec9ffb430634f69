import { banText, decodePlayer, type PlayerRecord, playerKey } from '../../shared/players.ts'
import { type Records, StoreUnavailable } from '../../shared/store/port.ts'
import { CLOCK_TOLERANCE_MS, type TokenClaims } from '../../shared/tokens.ts'
import type { GatewayContext } from './context.ts'
import type { Rejection } from './refusals.ts'

/**
 * The records of players: bans, revocations and data. `control/players.ts` writes them, this file reads them, and `#playerRead` in
 * `gateway.ts` applies them to sessions.
 */

/** Maximum number of records that are read at the same time. */
const BATCH = 500

/** A player with sessions or handshakes at this node. */
export class Player {
  readonly projectId: string
  readonly sub: string
  /** Number of its sessions and pending handshakes. */
  holds = 0
  /** Number of the last read that was started; `answered`: number of the read that `record` is from. */
  asked = 0
  answered = 0
  /** The record as of the last read. */
  record: PlayerRecord = {}
  readonly #context: GatewayContext

  constructor(context: GatewayContext, projectId: string, sub: string) {
    this.#context = context
    this.projectId = projectId
    this.sub = sub
  }

  /** Returns the reason why a session with these claims may not stay. Undefined: it may. */
  rejection({ issued_at: issuedAt }: TokenClaims): Rejection | undefined {
    const { revoked_at: revokedAt } = this.record
    const ban = this.#ban
    if (ban && !ban.room_types)
      return { close: 'banned', reason: `banned: ${banText(ban.reason, 'this game')}` }
    // The issuer's clock may be ahead of control's by up to the tolerance, so `issued_at` may be that much too late.
    if (revokedAt !== undefined && Date.parse(issuedAt) <= revokedAt + CLOCK_TOLERANCE_MS)
      return { close: 'revoked', reason: 'the tokens of the player were revoked' }
    return undefined
  }

  /** Returns the text for a player that is banned from a room type, or from the match type of a queue. Undefined: it is not banned. */
  bannedFrom(roomType: string): string | undefined {
    const ban = this.#ban
    const matchType = this.#context.matchType(roomType) ?? roomType
    if (!ban?.room_types?.some((type) => type === roomType || type === matchType)) return undefined
    return banText(ban.reason, roomType)
  }

  /** The ban, unless it has expired. */
  get #ban(): PlayerRecord['ban'] {
    const { ban } = this.record
    return ban && (ban.until ?? Number.POSITIVE_INFINITY) > this.#context.clock.now() ? ban : undefined
  }
}

/**
 * Records of the players with sessions at this node. A player is registered before its record is read. Each later notice of a change starts
 * another read, so no change is missed.
 */
export class Players {
  readonly #records: Records
  readonly #context: GatewayContext
  readonly #changed: (player: Player, before: PlayerRecord) => void
  readonly #here = new Map<string, Player>()
  /** Players whose records may have changed since they were read. */
  readonly #stale = new Set<Player>()
  #reading = false

  /** Calls `changed` after each read of a player's record. */
  constructor(
    context: GatewayContext,
    records: Records,
    changed: (player: Player, before: PlayerRecord) => void,
  ) {
    this.#records = records
    this.#context = context
    this.#changed = changed
  }

  /**
   * Runs `write`, which writes a session's record, and reads the record of its player in the same round trip. `arrive` turns the result of the write
   * into the result of the call. Rejects with `StoreUnavailable` if either fails. If only the read fails, it calls `undo` first.
   */
  async during<T, R>(
    claims: TokenClaims,
    {
      write,
      arrive,
      undo,
    }: {
      readonly write: () => Promise<T>
      readonly arrive: (written: T) => R
      readonly undo: (arrived: R) => void
    },
  ): Promise<R> {
    const player = this.hold(claims)
    if (!player) return arrive(await write())
    const reading = this.#read([player]).then(
      ([error]) => error && { error },
      (error: unknown) => ({ error }),
    )
    try {
      const written = await write()
      const failed = await reading
      const arrived = arrive(written)
      if (!failed) return arrived
      undo(arrived)
      throw failed.error
    } finally {
      this.release(player)
    }
  }

  /** Reads the record of a player now. If the store does not answer, `refresh` reads it later. */
  async read(player: Player | undefined): Promise<void> {
    if (!player) return
    try {
      const [unreadable] = await this.#read([player])
      if (unreadable) throw unreadable
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      if (player.holds > 0) this.#stale.add(player)
    }
  }

  /** The record of a player has changed: reads it again. */
  news(projectId: string, sub: string): void {
    const player = this.#here.get(nameOf(projectId, sub))
    if (!player) return
    this.#stale.add(player)
    void this.refresh()
  }

  /** Change notices may be lost: reads every record again. */
  newsMissed(): void {
    for (const player of this.#here.values()) this.#stale.add(player)
    void this.refresh()
  }

  /** Reads the records that may have changed. To be called about once a second, because the store may not have answered before. */
  async refresh(): Promise<void> {
    if (this.#reading) return
    this.#reading = true
    try {
      while (this.#stale.size > 0) {
        const batch = [...this.#stale].slice(0, BATCH)
        for (const player of batch) this.#stale.delete(player)
        try {
          await this.#read(batch)
        } catch (error) {
          for (const player of batch) if (player.holds > 0) this.#stale.add(player)
          throw error
        }
      }
    } catch (error) {
      const level = error instanceof StoreUnavailable ? 'debug' : 'error'
      this.#context.log[level]({ err: error, players: this.#stale.size }, 'read of player records failed')
    } finally {
      this.#reading = false
    }
  }

  /** Reads the records of players. A record that cannot be decoded is logged and keeps its old value. Returns an error for each. */
  async #read(players: readonly Player[]): Promise<Error[]> {
    const asks = players.map((player) => ++player.asked)
    const found = await this.#records.read(players.map(({ projectId, sub }) => playerKey(projectId, sub)))
    const errors: Error[] = []
    players.forEach((player, at) => {
      const ask = asks[at]!
      if (ask <= player.answered) return
      const before = player.record
      try {
        player.record = decodePlayer(found[at])
      } catch (error) {
        const { projectId, sub } = player
        this.#context.log.error({ err: error, project_id: projectId, sub }, 'player record unreadable')
        errors.push(error as Error)
        return
      }
      player.answered = ask
      this.#changed(player, before)
    })
    return errors
  }

  /** Registers the player of a session or of a handshake, until `release`. Undefined: the token names none. */
  hold({ project_id: projectId, sub }: TokenClaims): Player | undefined {
    if (sub === undefined) return undefined
    const name = nameOf(projectId, sub)
    const player = this.#here.get(name) ?? new Player(this.#context, projectId, sub)
    this.#here.set(name, player)
    player.holds += 1
    return player
  }

  release(player: Player): void {
    player.holds -= 1
    if (player.holds > 0) return
    this.#here.delete(nameOf(player.projectId, player.sub))
    this.#stale.delete(player)
  }
}

const nameOf = (projectId: string, sub: string): string => `${projectId}/${sub}`
