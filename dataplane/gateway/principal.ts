import { hash } from 'node:crypto'
import type { TokenClaims } from '../../shared/tokens.ts'

/**
 * Name to which limits apply that outlast a session: the player, or the token if it names no player. Unique within the project, and equal at
 * every node. Signatures are deterministic, so tokens with the same claims are the same token, byte for byte.
 */
export function principalOf(claims: TokenClaims): string {
  if (claims.sub !== undefined) return `sub:${claims.sub}`
  const whole = JSON.stringify(withoutTrace(claims))
  return `token:${hash('sha256', whole, 'base64url')}`
}

/** Name by which a node counts clients with a token: of its player, or of the clients with this token and address if it names no player. */
export const clientsOf = (claims: TokenClaims, from: { readonly address: string } | undefined): string => {
  const principal = `${claims.project_id}/${principalOf(claims)}`
  return claims.sub === undefined && from ? `${principal}@${from.address}` : principal
}

/** Removes the trace: only the first handshake continues it, and a record may be written for days. */
export function withoutTrace(claims: TokenClaims): TokenClaims {
  if (claims.traceparent === undefined) return claims
  const { traceparent: _, tracestate: __, ...rest } = claims
  return rest
}
