/** Origins of web pages, as `scheme://host[:port]`, and addresses of this machine. */

const FORM = /^([a-z][a-z0-9+.-]*):\/\/[^/\s,?#@]+$/i

/**
 * Returns an origin in the form that browsers send: lower case, without the default port, the host in ASCII. The first label of the host
 * may be `*`. Undefined: the text is not an origin.
 */
export function normalOrigin(text: string): string | undefined {
  const scheme = FORM.exec(text)?.[1]?.toLowerCase()
  if (scheme === undefined || !URL.canParse(text)) return undefined
  // URL returns no origin for other schemes, such as those of apps and browser extensions.
  const origin = scheme === 'http' || scheme === 'https' ? new URL(text).origin : text.toLowerCase()
  return origin.replace('://*.', '://').includes('*') ? undefined : origin
}

/**
 * Returns true if an origin, in the form that browsers send, matches one of `allowed`, which are in the form of `normalOrigin`. `*` matches
 * one label.
 */
export const isAllowedOrigin = (origin: string, allowed: ReadonlySet<string>): boolean =>
  allowed.has(origin) || allowed.has(origin.replace(/^([^:]+:\/\/)[^./:]+\./, '$1*.'))

/** Returns true if a listen address can only be reached from this machine. */
export const isLoopback = (host: string): boolean =>
  host === 'localhost' ||
  host.endsWith('.localhost') ||
  /^127(\.\d{1,3}){3}$/.test(host) ||
  /^(::ffff:127(\.\d{1,3}){3}|::1|(0{1,4}:){7}0{0,3}1)$/i.test(host)

/**
 * Returns true if a `host` header names this machine: `localhost:8080`, `127.0.0.1`, `[::1]`. With DNS rebinding, the host name of a
 * foreign page resolves to this address.
 */
export const namesThisMachine = (host: string): boolean => isHere(`http://${host}`)

/**
 * Returns true for the origin of a web page of this machine, by http or https. Pages of browser extensions and programs have other schemes.
 */
export const isOriginHere = (origin: string): boolean => /^https?:\/\//i.test(origin) && isHere(origin)

const isHere = (url: string): boolean =>
  URL.canParse(url) && isLoopback(new URL(url).hostname.replace(/^\[|\]$/g, ''))
