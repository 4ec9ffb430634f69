/** Pages that `roomful dev --lan` serves to other devices. Such a device has the secret of the printed address in a cookie. */

/** Name of the cookie. The page that `roomful dev --lan` shows first sets it, so that each tab of the browser has it. */
export const LAN_COOKIE = 'roomful_lan'

const IN_COOKIES = new RegExp(`(?:^|; ?)${LAN_COOKIE}=([\\w-]+)`)

/** Returns the secret in a list of cookies. Undefined: it has none. */
export const lanSecretIn = (cookies: string): string | undefined => IN_COOKIES.exec(cookies)?.[1]

/** Returns the secret of this page. Undefined: the page was opened in another way. */
export function lanSecret(): string | undefined {
  try {
    return lanSecretIn(document.cookie)
  } catch {
    // There is no page, or it may not read cookies.
    return undefined
  }
}

/** Returns the address of the server. Another device reaches `localhost` of the developer's machine through the server of the page. */
export const lanUrl = (url: string): string =>
  lanSecret() === undefined ? url : url.replace(/\/\/(localhost|127\.0\.0\.1)(:\d+)?/, `//${location.host}`)

/** Returns true for the origin of a server or page on this machine. */
export const isHere = (origin: string): boolean => /\/\/(localhost|127\.0\.0\.1|\[::1\])(:|$)/.test(origin)
