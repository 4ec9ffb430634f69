import { generateKeyPairSync, sign } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import { reportCpu } from '../bench/cpu-report.ts'

/**
 * The baseline: one route of Hono that reads JSON, signs with a key in memory by the platform's own Ed25519, and answers with a token of
 * the same form. No caller, no store, no check, no log: what any such service on Hono has to pay.
 */
const { privateKey } = generateKeyPairSync('ed25519')
const HEADER = 'v4.public.'

const app = new Hono()
app.post('/tokens', async (c) => {
  const { project_id, sub } = (await c.req.json()) as { project_id: string; sub: string }
  const now = Date.now()
  const claims = {
    project_id,
    issued_at: new Date(now).toISOString(),
    expires_at: new Date(now + 300_000).toISOString(),
    sub,
  }
  const payload = Buffer.from(JSON.stringify(claims))
  const footer = Buffer.from(JSON.stringify({ kid: project_id }))
  const signed = authenticated([Buffer.from(HEADER), payload, footer, Buffer.alloc(0)])
  const body = Buffer.concat([payload, sign(null, signed, privateKey)]).toString('base64url')
  return c.json({ token: `${HEADER}${body}.${footer.toString('base64url')}`, claims })
})

/** The pre-authentication encoding of PASETO: how many pieces, and each after its length. */
function authenticated(pieces: readonly Buffer[]): Buffer {
  const number = (value: number): Buffer => {
    const bytes = Buffer.alloc(8)
    bytes.writeBigUInt64LE(BigInt(value))
    return bytes
  }
  return Buffer.concat([number(pieces.length), ...pieces.flatMap((piece) => [number(piece.length), piece])])
}

reportCpu({ inputs: () => 0 })
const server = createServer(getRequestListener(app.fetch))
server.listen(0, '127.0.0.1', () => process.send?.({ ready: (server.address() as AddressInfo).port }))
