import { type Announcement, type Json, ProtocolFault, type WireValue } from './messages.ts'

/** Reads the keys of one frame: a tagged key (`#5`, `$name`) becomes the key of the state. */
export type KeyReader = (tagged: string) => string

function reader(keys: readonly string[]): KeyReader {
  return (tagged) => {
    if (tagged.startsWith('$')) return tagged.slice(1)
    const key = keys[Number(tagged.slice(1))]
    if (key === undefined) throw new ProtocolFault(`key ${tagged} is not in the table of ${keys.length} keys`)
    return key
  }
}

/** The interned keys of one room, as docs/protocol.md §4 has a client keep them. */
export class KeyTable {
  keys: string[] = []
  private epoch = -1
  private seq = -1

  /** A snapshot or a resync: its table replaces this one. */
  replace(announced: Announcement, epoch: number, seq: number): KeyReader {
    if (announced.from !== 0) throw new ProtocolFault(`a whole table starts at 0, not at ${announced.from}`)
    this.keep([...announced.keys], epoch, seq)
    return reader(this.keys)
  }

  /** A patch: extends the table, unless it is late; then the keys hold for this frame alone. */
  extend(announced: Announcement | null, epoch: number, seq: number): KeyReader {
    const late = epoch < this.epoch || (epoch === this.epoch && seq <= this.seq)
    if (announced === null) {
      if (!late) this.keep(this.keys, epoch, seq)
      return reader(this.keys)
    }
    if (announced.from > this.keys.length) {
      throw new ProtocolFault(`keys from ${announced.from} on, but the table has ${this.keys.length}`)
    }
    const keys = [...this.keys.slice(0, announced.from), ...announced.keys]
    if (!late) this.keep(keys, epoch, seq)
    return reader(keys)
  }

  private keep(keys: string[], epoch: number, seq: number): void {
    if (keys.length > 1024) throw new ProtocolFault(`a key table of ${keys.length} keys; at most 1024`)
    const long = keys.find((key) => key.length > 64)
    if (long !== undefined) throw new ProtocolFault(`an interned key of ${long.length} units; at most 64`)
    this.keys = keys
    this.epoch = epoch
    this.seq = seq
  }
}

/** A value of the wire with its keys read. */
export function readValue(value: WireValue, key: KeyReader): Json {
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map((element) => readValue(element, key))
  return Object.fromEntries(
    Object.entries(value).map(([tagged, entry]) => [key(tagged), readValue(entry, key)]),
  )
}
