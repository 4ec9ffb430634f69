/** What a node tells the others about itself, with each renewal of its lease. */
export interface NodeInfo {
  readonly node_id: string
  /** RFC 3339. */
  readonly started_at: string
  readonly version: string
  /** It gives its rooms away, and takes nothing more. */
  readonly draining: boolean
  /** Rooms it owns. */
  readonly rooms: number
  readonly sessions: number
  /** How busy it is, 0–1. */
  readonly load: number
  /** Rooms and sessions it takes at most. */
  readonly max_rooms: number
  readonly max_sessions: number
  /** Where its websockets are accepted. */
  readonly ws_url?: string
  /** Where clients from outside reach it. */
  readonly advertise_url?: string
  readonly admin_url?: string
}

const NUMBERS = ['rooms', 'sessions', 'load', 'max_rooms', 'max_sessions'] as const
const TEXTS = ['started_at', 'version'] as const
const URLS = ['ws_url', 'advertise_url', 'admin_url'] as const

export const encodeNodeInfo = (info: NodeInfo): Uint8Array => new TextEncoder().encode(JSON.stringify(info))

/** Reads what `encodeNodeInfo` wrote, also by a node of another version: fields it does not know are left out. Undefined for anything else. */
export function decodeNodeInfo(bytes: Uint8Array): NodeInfo | undefined {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return undefined
  }
  if (typeof value !== 'object' || value === null) return undefined
  const fields = value as Record<string, unknown>
  const { node_id, draining } = fields
  if (typeof node_id !== 'string' || typeof draining !== 'boolean') return undefined
  if (NUMBERS.some((name) => typeof fields[name] !== 'number')) return undefined
  if (TEXTS.some((name) => typeof fields[name] !== 'string')) return undefined
  const known = [
    'node_id',
    'draining',
    ...NUMBERS,
    ...TEXTS,
    ...URLS.filter((name) => typeof fields[name] === 'string'),
  ]
  return Object.fromEntries(known.map((name) => [name, fields[name]])) as unknown as NodeInfo
}
