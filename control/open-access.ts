import { isLoopback } from '../shared/config.ts'
import { Problem } from './problem.ts'

/** Who may use a control API that asks nobody for a credential. */
export type OpenTo = 'this machine' | 'everyone'

/**
 * Keeps web pages of others off an open control API: a browser on this machine reaches it, whichever page tells it to. Throws a `Problem`
 * (cross_origin) for a request that another origin's page makes, and, where the API is open to this machine only, for one that names
 * another host than this machine, as a page does whose own name has come to mean 127.0.0.1 (DNS rebinding).
 */
export function requireSameMachine(headers: Headers, openTo: OpenTo): void {
  const host = headers.get('host') ?? ''
  if (openTo === 'this machine' && !isLocal(host))
    throw refused(`names the host ${shown(host)}, not this machine, such as localhost or 127.0.0.1`)
  const origin = headers.get('origin')
  if (origin !== null && !isOwn(origin, host)) throw refused(`comes from a page of ${shown(origin)}`)
  if (headers.get('sec-fetch-site') === 'cross-site') throw refused('comes from a page of another site')
}

/** Whether a `host` header names this machine. */
const isLocal = (host: string): boolean => {
  const name = /^(?:\[(.+)\]|([^:]*))(?::\d*)?$/.exec(host)
  return isLoopback((name?.[1] ?? name?.[2] ?? '').toLowerCase())
}

const isOwn = (origin: string, host: string): boolean => {
  if (!/^https?:\/\//i.test(origin)) return false
  const authority = origin.replace(/^https?:\/\//i, '')
  return isLocal(authority) || authority === host
}

const shown = (text: string): string => JSON.stringify(text.slice(0, 100))

const refused = (why: string): Problem =>
  new Problem(
    'cross_origin',
    `The request ${why}. Without operator tokens (CONTROL_API_TOKENS) the API is open, but not to that.`,
  )
