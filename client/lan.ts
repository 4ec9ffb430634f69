/** Pages that `roomful dev --lan` serves to other devices. The fragment of their address has a secret: `#lan=…`. */

const KEY = 'roomful.lan'

/** Returns the secret. The tab keeps it, because pages change their address. Undefined: the page has none. */
export function lanSecret(): string | undefined {
  try {
    const secret = /#lan=([\w-]+)/.exec(location.hash)?.[1] ?? sessionStorage.getItem(KEY)
    if (!secret) return undefined
    sessionStorage.setItem(KEY, secret)
    return secret
  } catch {
    // There is no page, or it may not store anything.
    return undefined
  }
}

/** Returns the address of the server. Another device reaches `localhost` of the developer's machine through the server of the page. */
export const lanUrl = (url: string): string =>
  lanSecret() === undefined ? url : url.replace(/\/\/(localhost|127\.0\.0\.1)(:\d+)?/, `//${location.host}`)
