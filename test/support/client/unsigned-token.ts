/** A token whose times a client can read and whose signature nobody would accept: good from `issued_at` to `expires_at` (ms since 1970). */
export function unsignedToken(issuedAt: number, expiresAt: number, name = 'alice'): string {
  const claims = {
    project_id: 'prj_1',
    sub: name,
    issued_at: new Date(issuedAt).toISOString(),
    expires_at: new Date(expiresAt).toISOString(),
  }
  const payload = Buffer.concat([Buffer.from(JSON.stringify(claims)), Buffer.alloc(64, 255)])
  const footer = Buffer.from(JSON.stringify({ kid: 'key_1' })).toString('base64url')
  return `v4.public.${payload.toString('base64url')}.${footer}`
}
