import { readFileSync } from 'node:fs'
import type { Json } from '../../json.ts'

/** docs/protocol-vectors.json, as its own `about` describes it. */
export interface Vectors {
  checksums: { value: Json; checksum: number }[]
  batches: { messages: Record<string, Json>[]; msgpack: string }[]
  address: { room_id: string; msgpack: string }
  messages: { from: 'client' | 'server'; json: Record<string, Json>; msgpack: string }[]
  stream: {
    about: string
    encoder: number
    /** Of this layer, and not of the base. */
    layer?: string
    kind: 'snapshot' | 'resync' | 'state' | 'gone' | 'patch' | 'replay'
    state: Json
    json: Record<string, Json>
    msgpack: string
  }[]
  /** `json` null: the client ignores it. */
  frames: { about: string; msgpack: string; json: Record<string, Json> | null }[]
  patches: ({ about: string; keys: string[]; state: Json; msgpack: string } & (
    | { applied: true; keys_after: string[]; state_after: Json }
    | { applied: false }
  ))[]
}

export const vectors = JSON.parse(
  readFileSync(new URL('../../../docs/protocol-vectors.json', import.meta.url), 'utf8'),
) as Vectors
