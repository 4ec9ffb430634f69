import { createHmac } from 'node:crypto'

const PREFIX = 'whsec_'

/**
 * Returns the notify keys of a project, one for each value of `NOTIFY_SECRET`. Nodes sign the notices of the project with them. The key of
 * one project says nothing about that of another.
 */
export const notifyKeys = (secrets: readonly string[], projectId: string): readonly string[] =>
  secrets.map((secret) => {
    const bytes = Buffer.from(secret.slice(PREFIX.length), 'base64')
    return `${PREFIX}${createHmac('sha256', bytes).update(projectId).digest('base64')}`
  })

/** Returns the HMAC-SHA256 of a text by a notify key, in base64. */
export const notifySignature = (notifyKey: string, content: string): string =>
  createHmac('sha256', Buffer.from(notifyKey.slice(PREFIX.length), 'base64'))
    .update(content)
    .digest('base64')
