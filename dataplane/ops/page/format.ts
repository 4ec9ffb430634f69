const COUNT = new Intl.NumberFormat('en')
const TIME = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })

/** 12345 as 12,345. */
export const count = (number: number): string => COUNT.format(number)

/** "1 room", "2 rooms". */
export const counted = (number: number, noun: string): string =>
  `${count(number)} ${noun}${number === 1 ? '' : 's'}`

export const percent = (share: number): string => `${Math.round(share * 100)} %`

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`
  if (size < 1024 ** 2) return `${(size / 1024).toFixed(1)} KB`
  return size < 1024 ** 3 ? `${(size / 1024 ** 2).toFixed(0)} MB` : `${(size / 1024 ** 3).toFixed(2)} GB`
}

/** How long milliseconds are, in the two largest units. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`
}

/** The time of day of milliseconds since 1970. */
export const timeOfDay = (ms: number): string => TIME.format(ms)

/** What a room is found by. */
export interface RoomName {
  readonly project_id: string
  readonly room_id: string
}

/** A room as `project/type:key`, unique in the cluster. */
export const nameOf = (room: RoomName): string => `${room.project_id}/${room.room_id}`

/** The part of the address behind `#` that opens a room. */
export const fragmentOf = (room: RoomName): string => `room=${encodeURIComponent(nameOf(room))}`

/** The room that `fragmentOf` is for; undefined for anything else. */
export function roomOfFragment(fragment: string): RoomName | undefined {
  const [, name] = /^#room=(.+)$/.exec(fragment) ?? []
  if (name === undefined) return undefined
  let text: string
  try {
    text = decodeURIComponent(name)
  } catch {
    return undefined
  }
  const slash = text.indexOf('/')
  const room = { project_id: text.slice(0, slash), room_id: text.slice(slash + 1) }
  return slash > 0 && /^[^:]+:./.test(room.room_id) ? room : undefined
}

/** Where a node's own page is, with a room open; undefined where the address it tells is no address to open. */
export function pageOf(
  { admin_url: adminUrl }: { readonly admin_url?: string },
  room?: RoomName,
): string | undefined {
  if (adminUrl === undefined || !URL.canParse(adminUrl)) return undefined
  const url = new URL(adminUrl)
  url.pathname = `${url.pathname.replace(/\/$/, '')}/admin`
  if (!/^https?:$/.test(url.protocol) || /^(0\.0\.0\.0|\[::\])$/.test(url.hostname)) return undefined
  if (room) url.hash = fragmentOf(room)
  return url.href
}
