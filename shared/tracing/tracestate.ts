/** W3C asks for so many characters to be passed on, and lets more be dropped. */
export const LONGEST_TRACESTATE = 512
const MOST_MEMBERS = 32

const KEY = /^(?:[a-z][a-z\d_*/-]{0,255}|[a-z\d][a-z\d_*/-]{0,240}@[a-z][a-z\d_*/-]{0,13})$/
/** Printable, neither comma nor equals sign, and no blank at the end. */
const VALUE = /^[ -+\--<>-~]{0,255}[!-+\--<>-~]$/

/**
 * A `tracestate` as it may be passed on, without the blanks and empty members that are allowed between members; undefined for text that
 * is none: https://www.w3.org/TR/trace-context-1/#tracestate-header. What breaks one rule is dropped whole: whoever wrote it is the only
 * one who knows what a part of it is worth.
 */
export function readTracestate(text: string): string | undefined {
  if (text.length > 2 * LONGEST_TRACESTATE) return undefined
  const members = text
    .split(',')
    .map((member) => member.replace(/^[ \t]+|[ \t]+$/g, ''))
    .filter((member) => member !== '')
  const keys = new Set<string>()
  for (const member of members) {
    const at = member.indexOf('=')
    const key = member.slice(0, at)
    if (at < 1 || !KEY.test(key) || !VALUE.test(member.slice(at + 1)) || keys.has(key)) return undefined
    keys.add(key)
  }
  const state = members.join(',')
  return state === '' || state.length > LONGEST_TRACESTATE || members.length > MOST_MEMBERS
    ? undefined
    : state
}
