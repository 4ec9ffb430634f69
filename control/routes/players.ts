import type { Logger } from 'pino'
import type { Clock } from '../../shared/clock.ts'
import type { JsonObject } from '../../shared/json.ts'
import type { PlayerRecord } from '../../shared/players.ts'
import { invalid, type ObjectSchema, validate } from '../../shared/validate.ts'
import { type Caller, requireProject, requireScope } from '../auth.ts'
import type { Endpoint, Endpoints } from '../endpoint.ts'
import type { Idempotency } from '../idempotency.ts'
import { PLAYER_SCOPE } from '../keys.ts'
import type { ControlMetrics, PlayerChange } from '../metrics.ts'
import type { Players } from '../players.ts'
import type { Projects } from '../projects.ts'
import { BanPage, BansQuery, encodeCursor, Nothing, Player, SetBan, SetData, SubPath } from '../schemas.ts'

/** A change of the record of a player that a request makes. */
interface Change<Body>
  extends Pick<Endpoint<Body, undefined>, 'method' | 'path' | 'summary' | 'description' | 'access'> {
  readonly change: PlayerChange
  readonly body?: ObjectSchema<Body>
  readonly apply: (record: PlayerRecord, body: Body, now: number) => PlayerRecord
}

/** `/projects/:id/subs/:sub`: revocation, ban and data of a player; `/projects/:id/bans`. */
export function playerRoutes(
  endpoints: Endpoints,
  parts: {
    players: Players
    projects: Projects
    idempotency: Idempotency
    clock: Clock
    metrics: ControlMetrics
    log: Logger
  },
): void {
  const { players, projects, idempotency, clock, metrics, log } = parts

  async function requireMay(caller: Caller, projectId: string): Promise<void> {
    requireProject(caller, projectId)
    if (caller.kind === 'key') requireScope(caller.key, PLAYER_SCOPE)
    await projects.require(projectId)
  }

  function mount<Body>({ change, apply, ...endpoint }: Change<Body>): void {
    endpoints.mount<Body>(
      {
        ...endpoint,
        tag: 'Players',
        idempotent: true,
        answer: { status: 200, description: 'The player.', schema: Player },
        problems: [
          'project_not_found',
          'conflict',
          ...(endpoint.access === 'caller' ? ['missing_scope' as const] : []),
        ],
      },
      async ({ caller, params: { id: projectId = '', sub: named }, body, path, idempotencyKey }) => {
        await requireMay(caller, projectId)
        const { sub } = validate(SubPath, { sub: named }, 'query')
        const request = {
          callerId: caller.id,
          path: `${endpoint.method} ${path}`,
          body: body ?? null,
          idempotencyKey,
        }
        const { answer, replayed } = await idempotency.run(request, () =>
          players.draft(projectId, sub, (record, now) => apply(record, body, now)),
        )
        // Also for a repeated request: the message of the first one may be lost.
        await players.announce(projectId, sub)
        if (!replayed) metrics.playerChanges.inc({ change })
        log.info({ project_id: projectId, sub, change, caller_id: caller.id }, 'player changed')
        return answer
      },
    )
  }

  mount({
    method: 'POST',
    path: '/projects/:id/subs/:sub/revoke',
    change: 'revoked',
    summary: 'Revoke the tokens of a player',
    description:
      'Every live session of the player (sub) is closed (4003) on every node within a second and cannot resume. Tokens that were issued before now are refused, also JWTs of your own login; clocks may differ by 5 s. A token that is issued later lets the player in again. Repeating it is safe.',
    access: 'operator',
    body: Nothing,
    apply: (record, _, now) => ({ ...record, revoked_at: now }),
  })

  mount({
    method: 'PUT',
    path: '/projects/:id/subs/:sub/ban',
    change: 'banned',
    summary: 'Ban a player',
    description:
      'Without room_types: every live session of the player (sub) is closed (4003) on every node within a second, and new sessions and resumes are refused with banned. With room_types: seats in rooms of these types end with the reason kicked, and joins to them are refused with banned. The ban replaces an earlier one. A key needs the scope player:manage.',
    access: 'caller',
    body: SetBan,
    apply: (record, { until, room_types: roomTypes, reason }) => {
      const ban = {
        until: until === undefined ? null : Date.parse(until),
        room_types: roomTypes ?? null,
        reason: reason ?? null,
      }
      if (ban.until !== null && !(ban.until > clock.now()))
        throw invalid([{ path: 'until', message: `must be in the future; got ${until}` }])
      return { ...record, ban }
    },
  })

  mount({
    method: 'DELETE',
    path: '/projects/:id/subs/:sub/ban',
    change: 'unbanned',
    summary: 'End the ban of a player',
    description: 'Without a ban, nothing changes. A key needs the scope player:manage.',
    access: 'caller',
    apply: ({ ban: _, ...record }) => record,
  })

  mount({
    method: 'PUT',
    path: '/projects/:id/subs/:sub/data',
    change: 'data_set',
    summary: 'Set the data of a player',
    description:
      'Replaces member.data of the live seats of the player (sub) within a second. Until it is deleted, it is used in place of the claim data of each of the player’s tokens. A key needs the scope player:manage.',
    access: 'caller',
    body: SetData,
    apply: (record, { data }) => ({ ...record, data: data as JsonObject }),
  })

  mount({
    method: 'DELETE',
    path: '/projects/:id/subs/:sub/data',
    change: 'data_deleted',
    summary: 'Delete the data of a player',
    description:
      'member.data is that of the token again, also in live seats. A key needs the scope player:manage.',
    access: 'caller',
    apply: ({ data: _, ...record }) => record,
  })

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/bans',
      tag: 'Players',
      summary: 'List bans',
      description:
        'Players that are banned, page by page. The bans that end last come first. A page may have fewer bans than limit; the list ends where next_cursor is null. A key needs the scope player:manage.',
      access: 'caller',
      query: BansQuery,
      answer: { status: 200, description: 'One page of bans.', schema: BanPage },
      problems: ['missing_scope', 'project_not_found'],
    },
    async ({ caller, params: { id: projectId = '' }, query }) => {
      await requireMay(caller, projectId)
      const { bans, next } = await players.bans(projectId, { limit: query.limit, before: query.cursor })
      return { bans, next_cursor: encodeCursor(next) }
    },
  )
}
