import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { isLoopback } from '../../shared/config.ts'
import { isWellFormed } from '../../shared/json.ts'
import type { Logger } from '../../shared/log.ts'

/** What `issue` makes of a name: a client token with it as `sub`. Rejects with an Error whose message says why there is none. */
export type IssueDevToken = (name: string) => Promise<{ readonly project_id: string; readonly token: string }>

const PATH = '/dev/token'
/** Of a `sub`. */
const MAX_NAME = 128

/**
 * The tokens of `roomful dev`, which alone has them: `GET /dev/token?name=alice` at the websocket's port answers `{ project_id, token }` to
 * pages and programs of this machine, and to no one else: a request from elsewhere, or by a page from elsewhere, is refused.
 */
export function devTokens(issue: IssueDevToken, log: Logger): RequestListener {
  return (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost')
    const { origin } = request.headers
    if (pathname !== PATH)
      return answer(response, 426, {
        detail: `this is roomful's websocket port; tokens for development are at ${PATH}?name=alice`,
      })
    if (!isLocal(request))
      return answer(response, 403, {
        detail: `tokens for development are for this machine alone: ask as http://localhost:…${PATH}, from a page of localhost`,
      })
    if (origin !== undefined) response.setHeader('access-control-allow-origin', origin)
    const name = searchParams.get('name') ?? ''
    if (name === '' || name.length > MAX_NAME || !isWellFormed(name))
      return answer(response, 400, {
        detail: `name must be 1–${MAX_NAME} characters, as in ${PATH}?name=alice`,
      })
    issue(name).then(
      (token) => answer(response, 200, token),
      (error: Error) => {
        log.error({ err: error }, 'no token for development could be issued')
        answer(response, 503, { detail: error.message })
      },
    )
  }
}

/** Whether the request comes from this machine, to a name of it (a page elsewhere may have given its own name this address), and by no page from elsewhere. */
function isLocal({ socket, headers: { host, origin } }: IncomingMessage): boolean {
  const isOfHere = (url: string) =>
    URL.canParse(url) && isLoopback(new URL(url).hostname.replace(/^\[|\]$/g, ''))
  return (
    isLoopback(socket.remoteAddress ?? '') &&
    isOfHere(`http://${host}`) &&
    (origin === undefined || isOfHere(origin))
  )
}

function answer(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' })
  response.end(JSON.stringify(body))
}
