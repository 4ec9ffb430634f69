import { hashTag } from '../checks.ts'
import type { Endpoint } from './address.ts'

/** How many slots a Redis Cluster divides its keys into. */
export const SLOTS = 16384

/** CRC16 of each byte, as XMODEM computes it: polynomial 0x1021, start 0. */
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  return crc
})

/** The slot of a key or channel. https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model */
export function slotOf(key: string): number {
  let crc = 0
  for (const byte of Buffer.from(hashTag(key))) crc = (crc << 8) ^ TABLE[((crc >> 8) ^ byte) & 0xff]!
  return (crc & 0xffff) % SLOTS
}

/** Slots that one master holds, both ends included. */
export interface SlotRange {
  readonly first: number
  readonly last: number
  readonly master: Endpoint
}

/** Reads the answer to CLUSTER SLOTS; `asked` stands in for a server that does not know its own address. */
export function slotRanges(reply: unknown, asked: Endpoint): SlotRange[] {
  return (reply as [number, number, [string | null, number]][]).map(([first, last, [host, port]]) => ({
    first,
    last,
    master: { host: host || asked.host, port },
  }))
}
