import type { Hono } from 'hono'
import { generateSpecs } from 'hono-openapi'
import type { ControlEnv } from './endpoint.ts'

/** The OpenAPI 3.1 document of the control API. */
export type OpenApi = Awaited<ReturnType<typeof generateSpecs>>

/** The version of the API itself: the contract with its callers, not the software. */
const API_VERSION = '1.0.0'

const DESCRIPTION = `For game backends, never for game clients. A backend creates projects and keys, and exchanges a key’s secret for
short-lived client tokens that it hands to its players.

Send \`Authorization: Bearer <credential>\`: an operator token, which may call everything but \`/internal\`, or a key’s secret, which may
issue tokens for its own project and read its own project’s keys. Times are RFC 3339 in UTC with milliseconds. Ids are opaque. A body
field that is not known is refused. Errors are \`application/problem+json\` (RFC 9457) with a stable \`code\`, and every answer has an
\`x-request-id\` (yours, when you send a sensible one). Bodies may have 64 KiB.`

/** The description of everything mounted on `app`, made from the schemas that validate. */
export function describeApi(app: Hono<ControlEnv>): Promise<OpenApi> {
  return generateSpecs(app, {
    excludeStaticFile: false,
    documentation: {
      info: { title: 'roomful control API', version: API_VERSION, description: DESCRIPTION },
      tags: [
        { name: 'Projects', description: 'A game, or one stage of it.' },
        {
          name: 'Keys',
          description: 'What a backend authenticates with and what its tokens are signed with.',
        },
        { name: 'Tokens', description: 'What a game client connects with.' },
        { name: 'Internal', description: 'What nodes ask control.' },
        { name: 'Operations', description: 'Health, figures and this description. No credential is needed.' },
      ],
      components: {
        securitySchemes: {
          bearer: {
            type: 'http',
            scheme: 'bearer',
            description: 'An operator token, or the secret of a key.',
          },
          internal: { type: 'apiKey', in: 'header', name: 'x-service-internal-token' },
        },
      },
    },
  })
}
