import type { MiddlewareHandler } from 'hono'
import { isPageOfThisMachine } from './auth.ts'
import type { ControlEnv } from './endpoint.ts'

/** Request headers of the admin page. Without the header of the internal token, a page cannot call `/internal`. */
const PREFLIGHT = {
  'access-control-allow-methods': 'GET, POST, PUT, DELETE',
  'access-control-allow-headers': 'authorization, content-type',
  'access-control-max-age': '600',
}

/**
 * Lets the admin pages of nodes call the API from a browser (CORS): those at the `ADMIN_URL` of a living node, and those that come through a
 * tunnel, which are pages of this machine. While the API is open, a page of this machine must be at the port of an `ADMIN_URL`: no token keeps
 * other pages out. A browser gives other pages no answer. Answers are never stored, so they need no `vary`.
 */
export function allowAdminPages(
  /** Origins of the admin pages of living nodes. */
  adminPages: () => Promise<readonly string[]>,
  isOpen: boolean,
): MiddlewareHandler<ControlEnv> {
  const isAllowed = async (origin: string): Promise<boolean> => {
    if (!isPageOfThisMachine(origin)) return (await adminPages()).includes(origin)
    return !isOpen || (await adminPages()).some((page) => portOf(page) === portOf(origin))
  }
  return async (c, next) => {
    const origin = c.req.header('origin')
    if (origin === undefined || !(await isAllowed(origin))) return next()
    const allowed = { 'access-control-allow-origin': origin }
    if (c.req.method === 'OPTIONS' && c.req.header('access-control-request-method') !== undefined)
      return c.body(null, 204, { ...allowed, ...PREFLIGHT })
    await next()
    c.res.headers.set('access-control-allow-origin', origin)
  }
}

/** Scheme and port of an origin. */
const portOf = (origin: string): string => origin.match(/^[^:]+:|:\d+$/g)?.join('') ?? ''
