import { readFileSync } from 'node:fs'
import type { Json } from '../../json.ts'

/** Type of docs/protocol-vectors.json, which its `about` describes. */
export interface Vectors {
  checksums: { value: Json; checksum: number }[]
  address: { room_id: string; msgpack: string }
  messages: { from: 'client' | 'server'; json: Record<string, Json>; msgpack: string }[]
  /** `layers`: those of the member after the frame. Absent: the room has none. */
  stream: {
    about: string
    encoder: number
    kind: 'snapshot' | 'resync' | 'patch' | 'replay'
    state: Json
    layers?: { [name: string]: Json }
    json: Record<string, Json>
    msgpack: string
  }[]
  /** `json` null: the client ignores the frame. */
  frames: { about: string; msgpack: string; json: Record<string, Json> | null }[]
  patches: ({ about: string; keys: string[]; state: Json; msgpack: string } & (
    | { applied: true; keys_after: string[]; state_after: Json }
    | { applied: false }
  ))[]
}

export const vectors = JSON.parse(
  readFileSync(new URL('../../../docs/protocol-vectors.json', import.meta.url), 'utf8'),
) as Vectors
