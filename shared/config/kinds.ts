import { isIP } from 'node:net'
import * as v from 'valibot'
import { idPattern } from '../ids.ts'
import { normalOrigin } from '../origins.ts'
import { STORE_SCHEMES } from '../store/redis/address.ts'

/** Schema from the text of a variable to its value. Its description states the allowed values ("a port: 0–65535"). */
export type Kind<T> = v.GenericSchema<string, T>

/** Returns the allowed values of this kind, in words. */
export const expects = (kind: Kind<unknown>): string => v.getDescription(kind) ?? ''

const DIGITS = /^\d{1,15}$/

const kind = <T>(words: string, schema: Kind<T>): Kind<T> => v.pipe(schema, v.description(words))

/** An integer between two limits, both included. */
export const integer = (min: number, max: number, unit?: string): Kind<number> =>
  kind(
    `a whole number${unit === undefined ? '' : ` of ${unit}`}, ${min}–${max}`,
    v.pipe(v.string(), v.regex(DIGITS), v.transform(Number), v.minValue(min), v.maxValue(max)),
  )

const MOST_WORKERS = 256

/** A number of processes. `auto`: the number of cores. */
export const workers: Kind<number | 'auto'> = kind(
  `auto (one for each core), or a whole number, 1–${MOST_WORKERS}`,
  v.union([v.pipe(v.string(), v.literal('auto')), integer(1, MOST_WORKERS)]),
)

/** A TCP port. 0: the system chooses one. */
export const port: Kind<number> = kind('a port, 0–65535 (0: any free one)', integer(0, 65535))

const HOST_NAME = /^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$/

/** A listen address. */
export const host: Kind<string> = kind(
  'an IP address or host name to listen on, such as 127.0.0.1, 0.0.0.0 or ::',
  v.pipe(
    v.string(),
    v.check((text) => isIP(text) !== 0 || (HOST_NAME.test(text) && !/^[\d.]+$/.test(text))),
  ),
)

/** 1 or 0, as a boolean. */
export const flag: Kind<boolean> = kind(
  '1 (yes) or 0 (no)',
  v.pipe(
    v.picklist(['0', '1']),
    v.transform((text) => text === '1'),
  ) as Kind<boolean>,
)

/** One of several words. */
export const oneOf = <const W extends readonly string[]>(words: W): Kind<W[number]> =>
  kind(
    words.length === 1 ? `${words[0]}, or not set` : words.join(', '),
    v.picklist(words) as Kind<W[number]>,
  )

/** Text that is not empty. `words` describes it. */
export const text = (words: string, pattern: RegExp = /\S/): Kind<string> =>
  kind(words, v.pipe(v.string(), v.regex(pattern)))

/** Comma-separated texts without the empty ones, at least one. */
const list = (words: string, item: RegExp = /\S/): Kind<readonly string[]> =>
  kind(
    words,
    v.pipe(
      v.string(),
      v.transform((value): readonly string[] =>
        value
          .split(',')
          .map((part) => part.trim())
          .filter((part) => part !== ''),
      ),
      v.check((parts) => parts.length > 0 && parts.every((part) => item.test(part))),
    ),
  )

/** Operator tokens, or `none`: the control API accepts every caller. */
export const tokens: Kind<readonly string[] | 'none'> = kind(
  'tokens without spaces, separated by commas; each of 24 random characters or more, off loopback. Or none',
  v.union([
    v.pipe(v.string(), v.trim(), v.toLowerCase(), v.literal('none')),
    list('', /^(?!none$)[\x21-\x7e]+$/i),
  ]),
)

/** Origins of web pages, separated by commas. */
export const origins: Kind<readonly string[]> = kind(
  'origins such as https://play.example.com or https://*.example.com, separated by commas',
  v.pipe(
    list(''),
    v.check((parts) => parts.every((part) => normalOrigin(part) !== undefined)),
  ),
)

/** Addresses and networks (address and prefix length), separated by commas. `private` stands for all private networks. */
export const networks: Kind<readonly string[]> = kind(
  'private, IP addresses, or networks such as 203.0.113.0/24, separated by commas',
  v.pipe(
    list(''),
    v.check((parts) => parts.every((part) => part === 'private' || isNetwork(part))),
  ),
)

function isNetwork(text: string): boolean {
  const [address = '', bits, ...rest] = text.split('/')
  const version = isIP(address)
  if (version === 0 || rest.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128))
}

/**
 * An absolute URL with one of these schemes (`['http', 'https']`). URLs with a user or password are refused, because `fetch` and browsers
 * refuse them too.
 */
export const url = (schemes: readonly string[], example: string): Kind<string> =>
  kind(
    `a URL with ${schemes.map((scheme) => `${scheme}://`).join(' or ')} and without user and password, such as ${example}`,
    v.pipe(
      v.string(),
      v.check((value) => isUrl(value, schemes) && new URL(value).username + new URL(value).password === ''),
    ),
  )

/** Secrets of Standard Webhooks. */
export const webhookSecrets: Kind<readonly string[]> = kind(
  'secrets separated by commas, each as from `echo whsec_$(openssl rand -base64 32)`: 24 to 64 bytes in base64',
  v.pipe(
    list(''),
    v.check((parts) => parts.length > 0 && parts.every(isWebhookSecret)),
  ),
)

function isWebhookSecret(text: string): boolean {
  const [, base64] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(text) ?? []
  if (base64 === undefined) return false
  const { length } = Buffer.from(base64, 'base64')
  return length >= 24 && length <= 64
}

const isUrl = (value: string, schemes: readonly string[]): boolean =>
  URL.canParse(value) &&
  schemes.includes(new URL(value).protocol.slice(0, -1)) &&
  new URL(value).hostname !== ''

/** An issuer whose JWTs nodes accept, and their project. */
export interface JwtIssuer {
  /** Exact value of `iss`. */
  readonly issuer: string
  /** URL of the issuer's public keys. */
  readonly jwks: string
  /** Required value in `aud`. */
  readonly audience: string
  /** Project of the players. */
  readonly project: string
  /** Claim with the player's `sub`. */
  readonly sub: string
}

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]'])

const Issuer = v.strictObject({
  issuer: v.pipe(v.string(), v.nonEmpty()),
  jwks: v.pipe(
    v.string(),
    v.check(
      (value) => isUrl(value, ['https']) || (isUrl(value, ['http']) && LOOPBACK.has(new URL(value).hostname)),
    ),
  ),
  audience: v.pipe(v.string(), v.nonEmpty()),
  project: v.pipe(v.string(), v.regex(idPattern('prj'))),
  sub: v.optional(v.pipe(v.string(), v.nonEmpty()), 'sub'),
})

/** One or several issuers of JWTs, as JSON. */
export const jwtIssuers: Kind<readonly JwtIssuer[]> = kind(
  'JSON {"issuer": "…", "jwks": "https://…", "audience": "…", "project": "prj_…", "sub": "sub"}, or a list of these; sub is optional',
  v.pipe(
    v.string(),
    v.parseJson(),
    v.union([
      v.array(Issuer),
      v.pipe(
        Issuer,
        v.transform((issuer) => [issuer]),
      ),
    ]),
  ),
)

/** Address of a Redis of any shape. Only the scheme is checked here. `parseAddress` reads the rest and reports exact errors. */
export const storeUrl: Kind<string> = kind(
  'redis://host:6379, redis+sentinel://host1,host2/master-name or redis+cluster://host1,host2 (TLS: rediss)',
  v.pipe(
    v.string(),
    v.check((value) => STORE_SCHEMES.some((scheme) => value.startsWith(`${scheme}://`))),
  ),
)
