import { type Client, connect, RoomfulError } from '../client/index.ts'
import type { Clock } from '../shared/clock.ts'
import { type Credentials, withinPatience } from './clients/client.ts'

/** What can be reached at all is reached within this. */
const PATIENCE_MS = 5000
/** A room that no client of a run joins. */
const KEY = 'load-preflight'
const REFUSED = 'A first client could not join a room'

export interface PreflightOptions {
  readonly wsUrls: readonly string[]
  readonly roomType: string
  readonly credentials: Credentials
  readonly clock: Clock
}

/** Connects once to each address and joins a room, so that what cannot work is told at once. Rejects with an Error that tells it in full. */
export async function preflight({ wsUrls, roomType, credentials, clock }: PreflightOptions): Promise<void> {
  const { projectId, token } = credentials
  for (const url of wsUrls) {
    let client: Client | undefined
    let unanswered: string | undefined
    try {
      client = await connect(url, {
        projectId,
        token,
        reconnect: false,
        connectTimeoutMs: PATIENCE_MS,
        onError: () => undefined,
      })
      await withinPatience(clock, client.join(roomType, { key: KEY }), (within) => {
        unanswered = `it had no answer ${within}.`
        client?.close()
      })
    } catch (error) {
      if (unanswered !== undefined) throw new Error(`${REFUSED} at ${url}: ${unanswered}`)
      throw new Error(explained(error, url, roomType), { cause: error })
    } finally {
      client?.close()
    }
  }
}

function explained(error: unknown, url: string, roomType: string): string {
  if (!(error instanceof RoomfulError)) return String(error)
  if (error.code === 'unknown_room_type' && roomType === 'load')
    return `The service at ${url} has no room type "load", which this load test plays in. Start its nodes with ROOMS_DIR=loadtest/rooms (or put loadtest/rooms/load.ts into the folder they have), or name a room type of yours with --room-type and --message.`
  if (error.code === 'connection_failed')
    return `No client can connect to ${url}: ${error.message} Is the service running? --ws says where it is; --local 3 starts one.`
  const hint = HINTS[error.code]
  const message = error.message.replace(/\.+$/, '.')
  return `${REFUSED} at ${url}: ${message} (${error.code})${hint === undefined ? '' : ` ${hint}`}`
}

const HINTS: Readonly<Record<string, string>> = {
  overloaded:
    'If that does not pass, look whether the node reaches its CONTROL_URL, with the INTERNAL_TOKEN that control has.',
  rate_limited: 'All players come with one token: start the nodes with NEW_ROOMS_PER_MINUTE=0.',
  project_full: 'Start the nodes with a higher MAX_ROOMS_PER_PROJECT, or 0.',
  unauthenticated: 'Do --ws and --control, or --project and --token, belong to the same service?',
  token_expired: 'Give a token that is good for the whole run with --token, or let --control issue one.',
  key_revoked: 'Give a token under a key that is not revoked with --token, or let --control issue one.',
}
