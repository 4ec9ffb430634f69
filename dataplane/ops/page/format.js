const COUNT = new Intl.NumberFormat('en')
const TIME = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })

/** 12345 as 12,345. */
export const count = (number) => COUNT.format(number)

/** "1 room", "2 rooms". */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`

export const percent = (share) => `${Math.round(share * 100)} %`

export function bytes(size) {
  if (size < 1024) return `${size} B`
  if (size < 1024 ** 2) return `${(size / 1024).toFixed(1)} KB`
  return size < 1024 ** 3 ? `${(size / 1024 ** 2).toFixed(0)} MB` : `${(size / 1024 ** 3).toFixed(2)} GB`
}

/** How long milliseconds are, in the two largest units. */
export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000))
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`
}

/** The time of day of milliseconds since 1970. */
export const timeOfDay = (ms) => TIME.format(ms)

export const hex = (checksum) => checksum.toString(16).padStart(8, '0')
