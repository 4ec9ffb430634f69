/** What a page may have for a location; elsewhere there is none. */
const here = (): string | undefined => (typeof location === 'undefined' ? undefined : location.href)

const isSecure = (protocol: string): boolean => protocol === 'wss:' || protocol === 'https:'

/**
 * Whether a session may go on at `address`, as the server suggests: it takes its resume token there. So only to the host of `given`, the address
 * that the client was given, at any port and path, or to one of `hosts`; and never from a secure connection to one that is not.
 */
export function mayGoTo(address: string, given: string, hosts: readonly string[]): boolean {
  try {
    const to = new URL(address)
    const from = new URL(given, here())
    const known = to.hostname === from.hostname || hosts.includes(to.hostname)
    return known && (to.protocol === 'wss:' || (to.protocol === 'ws:' && !isSecure(from.protocol)))
  } catch {
    return false
  }
}
