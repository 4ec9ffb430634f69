/** The bytes of an Ed25519 signature, which a PASETO v4.public carries behind its claims. */
const SIGNATURE_BYTES = 64
const HEADER = 'v4.public.'

/** How long a token is good for: milliseconds since 1970. */
export interface TokenLife {
  readonly issued_at: number
  readonly expires_at: number
}

/**
 * Reads when a token was issued and expires, without verifying anything: only for knowing when to fetch the next. Undefined for what
 * cannot be read; whether such a token is good is the server's to say.
 */
export function tokenLife(token: string): TokenLife | undefined {
  if (!token.startsWith(HEADER)) return undefined
  try {
    const payload = token.slice(HEADER.length).split('.', 1)[0]!
    const binary = atob(payload.replaceAll('-', '+').replaceAll('_', '/'))
    const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0)).subarray(0, -SIGNATURE_BYTES)
    const claims = JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>
    const issuedAt = Date.parse(String(claims.issued_at))
    const expiresAt = Date.parse(String(claims.expires_at))
    return issuedAt < expiresAt ? { issued_at: issuedAt, expires_at: expiresAt } : undefined
  } catch {
    // Neither base64url nor JSON: not a token this client can read.
    return undefined
  }
}
