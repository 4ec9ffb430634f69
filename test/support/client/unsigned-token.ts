/**
 * A token whose claims a client can read and whose signature no one would accept: of the player `sub`, good from `issuedAt` to `expiresAt`
 * (milliseconds since 1970).
 */
export function unsignedToken(
  issuedAt: number,
  expiresAt: number,
  sub: string | undefined = 'alice',
): string {
  const claims = {
    project_id: 'prj_1',
    sub,
    issued_at: new Date(issuedAt).toISOString(),
    expires_at: new Date(expiresAt).toISOString(),
  }
  const payload = Buffer.concat([Buffer.from(JSON.stringify(claims)), Buffer.alloc(64, 255)])
  const footer = Buffer.from(JSON.stringify({ kid: 'key_1' })).toString('base64url')
  return `v4.public.${payload.toString('base64url')}.${footer}`
}
