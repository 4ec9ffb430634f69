import { readFileSync } from 'node:fs'
import { StoreMisconfigured } from '../port.ts'

/** Host and port of a server. */
export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** Credentials for a server. */
interface Credentials {
  readonly username?: string
  readonly password?: string
}

/** Addresses and credentials of a Redis installation, from a store URL. */
export interface RedisAddress {
  readonly kind: 'single' | 'sentinel' | 'cluster'
  /** The server, the Sentinels, or some servers of the Cluster, which name the others. At least one. */
  readonly endpoints: readonly Endpoint[]
  /** Credentials for the servers. */
  readonly credentials: Credentials
  /** Credentials for the Sentinels. */
  readonly sentinelCredentials: Credentials
  /** Name of the master in the Sentinels. Empty: there are no Sentinels. */
  readonly masterName: string
  readonly db: number
  /** Absent: no TLS. `ca`: PEM certificate of the private authority. Absent: the authorities that Node trusts. */
  readonly tls: { readonly ca?: string } | undefined
  /** The address without user, password and query, for logs. */
  readonly label: string
}

const FORMS = [
  'redis://host:6379',
  'rediss://user:password@host:6379/0',
  'redis+sentinel://user:password@host1:26379,host2:26379/master-name',
  'redis+cluster://user:password@host1:6379,host2:6379',
].join(', ')

const SCHEMES: Readonly<Record<string, { kind: RedisAddress['kind']; tls: boolean; port: number }>> = {
  redis: { kind: 'single', tls: false, port: 6379 },
  rediss: { kind: 'single', tls: true, port: 6379 },
  'redis+sentinel': { kind: 'sentinel', tls: false, port: 26379 },
  'rediss+sentinel': { kind: 'sentinel', tls: true, port: 26379 },
  'redis+cluster': { kind: 'cluster', tls: false, port: 6379 },
  'rediss+cluster': { kind: 'cluster', tls: true, port: 6379 },
}

/** Allowed schemes of a store URL. */
export const STORE_SCHEMES: readonly string[] = Object.keys(SCHEMES)

const SHAPE = /^([a-z+]+):\/\/(?:([^/?#\s]*)@)?([^@/?#\s]+)(?:\/([^?#\s]*))?(?:\?([^#\s]*))?$/i
/** A password with a character that ends the part before the @. */
const UNESCAPED = /^[a-z+]+:\/\/[^@/?#\s]*:[^@/?#\s]*[/?#][^\s]*@/i
const HOST_AND_PORT = /^(\[[0-9a-f:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/i

/**
 * Reads a store URL. Throws a `RangeError` that says what is wrong and what would be right, without user and password. Query: `ca=<path>`
 * (TLS with a private authority), `sentinel_username=` and `sentinel_password=`.
 */
export function parseAddress(url: string): RedisAddress {
  try {
    return read(url)
  } catch (error) {
    if (!UNESCAPED.test(url)) throw error
    throw new StoreMisconfigured(
      'the store URL has a /, ? or # before its @: in a user or password write %2F for /, %3F for ? and %23 for #',
    )
  }
}

function read(url: string): RedisAddress {
  const [, scheme = '', userInfo, authority = '', path = '', query = ''] = SHAPE.exec(url) ?? []
  const form = SCHEMES[scheme.toLowerCase()]
  if (!form) throw new StoreMisconfigured(`the store URL must look like one of: ${FORMS}`)
  const endpoints = authority.split(',').map((text, n) => endpointOf(text, n + 1, form.port))
  if (form.kind === 'single' && endpoints.length > 1)
    throw new StoreMisconfigured(
      `the store URL names ${endpoints.length} servers: write redis+sentinel:// or redis+cluster:// for several`,
    )
  const parameters = parametersOf(query, form)
  const { masterName, db } = pathOf(path, form.kind)
  const ca = parameters.get('ca')
  return {
    kind: form.kind,
    endpoints,
    credentials: credentialsOf(userInfo),
    sentinelCredentials: given(parameters.get('sentinel_username'), parameters.get('sentinel_password')),
    masterName,
    db,
    tls: form.tls ? (ca === null ? {} : { ca: certificateAt(ca) }) : undefined,
    label: `${scheme}://${authority}${path && `/${path}`}`,
  }
}

function endpointOf(text: string, nth: number, defaultPort: number): Endpoint {
  const [, host, digits] = HOST_AND_PORT.exec(text) ?? []
  const port = digits === undefined ? defaultPort : Number(digits)
  if (host === undefined || port < 1 || port > 65535)
    throw new StoreMisconfigured(
      `server ${nth} of the store URL is no address: it must be host:port, the port 1–65535`,
    )
  return { host: host.replace(/^\[|\]$/g, ''), port }
}

function pathOf(path: string, kind: RedisAddress['kind']): { masterName: string; db: number } {
  const parts = path === '' ? [] : path.split('/')
  const masterName = kind === 'sentinel' ? decode(parts.shift() ?? '') : ''
  if (kind === 'sentinel' && masterName === '')
    throw new StoreMisconfigured(
      'the store URL names no master: write its name after the Sentinels, as in /mymaster',
    )
  const [number = '0', ...rest] = parts
  if (rest.length > 0 || !/^\d{1,5}$/.test(number))
    throw new StoreMisconfigured(
      `the store URL ends with "/${path}": the number of a database must be all that stands there`,
    )
  if (kind === 'cluster' && number !== '0')
    throw new StoreMisconfigured(
      `the store URL asks for database ${number}: a Redis Cluster has database 0 only`,
    )
  return { masterName, db: Number(number) }
}

function parametersOf(query: string, form: { kind: RedisAddress['kind']; tls: boolean }): URLSearchParams {
  const parameters = new URLSearchParams(query)
  const allowed = [
    ...(form.tls ? ['ca'] : []),
    ...(form.kind === 'sentinel' ? ['sentinel_username', 'sentinel_password'] : []),
  ]
  for (const name of parameters.keys()) {
    if (allowed.includes(name)) continue
    const may = allowed.length > 0 ? `it accepts ${allowed.join(', ')}` : 'this kind accepts none'
    throw new StoreMisconfigured(`the store URL has the parameter "${name}": ${may}`)
  }
  return parameters
}

function credentialsOf(userInfo: string | undefined): Credentials {
  if (userInfo === undefined) return {}
  const colon = userInfo.indexOf(':')
  if (colon < 0)
    throw new StoreMisconfigured('the store URL names a user without a password: write user:password@')
  return given(decode(userInfo.slice(0, colon)), decode(userInfo.slice(colon + 1)))
}

const given = (username: string | null, password: string | null): Credentials => ({
  ...(username && { username }),
  ...(password && { password }),
})

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new StoreMisconfigured('the store URL has a % that starts no escape: write %25 for it')
  }
}

function certificateAt(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new StoreMisconfigured(`the store URL names the authority ${path}: ${(error as Error).message}`)
  }
}
