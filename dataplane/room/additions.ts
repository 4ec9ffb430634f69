import type { Fence } from '../../shared/store/port.ts'
import type { RoomDefinition } from './definition.ts'
import type { Position } from './journal.ts'

/** An addition that a turn has requested. Only its feature knows the content. */
export type Addition = object

/** Additions of a feature to the turns and writes of one room. Each addition is stored in the commit of its turn. */
export interface Additions {
  /**
   * Returns the addition of a call of `ctx.notify`. `earlier`: number of additions that the turn has requested before. Throws a
   * RoomLogicError that names the right form, or the limit.
   */
  of(definition: RoomDefinition, name: string, data: unknown, earlier: number): Addition
  /** A turn with additions has succeeded. */
  push(additions: readonly Addition[]): void
  /** True if turns since the last flush have additions. */
  readonly dirty: boolean
  /** Returns the additions of turns since the last flush, for the write of the update at this position. */
  flush(at: Position): readonly Uint8Array[]
  /**
   * Returns the additions of the next write, which is under `fence`. `flushed`: the additions of its update. Undefined: the write contains
   * the whole room as of the last flush, because the store may have lost earlier writes. Rejects with `StoreUnavailable`.
   */
  prepare(fence: Fence, flushed?: readonly Uint8Array[]): Promise<readonly Uint8Array[]>
  /** These additions are stored. */
  wrote(added: readonly Uint8Array[]): void
  /** Repairs what the store may have lost. Called every few minutes. */
  refresh(): void
  /** The room is no longer here. */
  end(): void
}
