import type { Json } from '../json.ts'
import { type Delta, DeltaMismatch } from '../sync/delta.ts'
import type { ClientCodec, DecodedMessage, KeyTable, Payload } from './codec.ts'
import type { MemberInfo } from './messages.ts'

type Frame<T extends DecodedMessage['t']> = Extract<DecodedMessage, { t: T }>
type Head<T extends DecodedMessage['t']> = Omit<Frame<T>, 'read'>

/** A message with all that its frame says. `delta` undefined: nothing has changed, or patches before this one are missing. */
export type ReadMessage =
  | Exclude<DecodedMessage, { read: unknown }>
  | ((Head<'state.snapshot'> | Head<'state.resync'>) & { state: Json; members: readonly MemberInfo[] })
  | (Head<'state.patch'> & { delta: Delta | undefined })
  | (Head<'layer.patch'> & { delta: Delta | undefined })
  | (Head<'layer.state'> & { state?: Json })

/** Decodes whole frames, for what looks on and for tests: with the key tables of a client that applies every frame when it comes. */
export class ReadingCodec {
  readonly #codec: ClientCodec
  /** By room and layer. */
  readonly #tables = new Map<string, KeyTable>()

  constructor(codec: ClientCodec) {
    this.#codec = codec
  }

  decode(payload: Payload): ReadMessage {
    return this.read(this.#codec.decode(payload))
  }

  read(message: DecodedMessage): ReadMessage {
    switch (message.t) {
      case 'state.patch':
      case 'layer.patch': {
        const { read: _, ...head } = message
        return { ...head, delta: this.#delta(message) }
      }
      case 'state.snapshot':
      case 'state.resync': {
        const { read, ...head } = message
        return { ...head, ...read(this.#begin(message)) }
      }
      case 'layer.state': {
        const { read, ...head } = message
        const state = read(this.#begin(message))
        return { ...head, ...(state !== undefined && { state }) }
      }
      default:
        return message
    }
  }

  #begin(frame: Frame<'state.snapshot' | 'state.resync' | 'layer.state'>): KeyTable {
    const table: KeyTable = []
    this.#tables.set(streamOf(frame), table)
    return table
  }

  #delta(patch: Frame<'state.patch' | 'layer.patch'>): Delta | undefined {
    try {
      return patch.read(this.#tables.get(streamOf(patch)) ?? [])
    } catch (error) {
      if (error instanceof DeltaMismatch) return undefined
      throw error
    }
  }
}

const streamOf = (frame: { readonly room_id: string; readonly layer?: string }): string =>
  `${frame.room_id} ${frame.layer ?? ''}`
