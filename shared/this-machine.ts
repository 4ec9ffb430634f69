import { isLoopback } from './config.ts'

/** Returns true if a `host` header names this machine: `localhost:8080`, `127.0.0.1`, `[::1]`. A page elsewhere may have given its own name this address. */
export const namesThisMachine = (host: string): boolean => isHere(`http://${host}`)

/** Returns true for the origin of a web page of this machine, by http or https. Pages of browser extensions and programs have other schemes. */
export const isOriginHere = (origin: string): boolean => /^https?:\/\//i.test(origin) && isHere(origin)

const isHere = (url: string): boolean =>
  URL.canParse(url) && isLoopback(new URL(url).hostname.replace(/^\[|\]$/g, ''))
