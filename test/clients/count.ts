import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'roomful/client'
import { WebSocket } from 'ws'
import type { ConnectOptions } from '../../client/index.ts'
import { Checksum } from '../../shared/sync/checksum.ts'

/**
 * One of several players who count together, with the SDK, as `clients/python/count.py` and `clients/lua/count.lua`. Sends ROOMFUL_MESSAGES
 * messages to the room ROOMFUL_KEY, waits until the room has counted ROOMFUL_TOTAL, and prints what it has seen.
 */

const PAUSE_MS = 20
const PATIENCE_MS = 180_000

const read = (name: string): string => {
  const value = process.env[`ROOMFUL_${name}`]
  if (value === undefined) throw new Error(`count.ts needs ROOMFUL_${name}`)
  return value
}

async function getToken(): Promise<string> {
  const body = JSON.stringify({ sub: read('NAME') })
  return ((await (await fetch(read('TOKEN_URL'), { method: 'POST', body })).json()) as { token: string })
    .token
}

const Socket = WebSocket as NonNullable<ConnectOptions['WebSocket']>
const client = await connect(read('URL'), { getToken, WebSocket: Socket })
const room = await client.join('counter', { key: read('KEY') })
const outcomes: Promise<unknown>[] = []
const total = Number(read('TOTAL'))
for (let sent = 0; sent < Number(read('MESSAGES')); sent += 1) {
  outcomes.push(room.send('inc', { by: 1 }))
  await sleep(PAUSE_MS)
}
const results = await Promise.allSettled(outcomes)
const state = room.state as { readonly count: number }
const until = Date.now() + PATIENCE_MS
while ((room.state as typeof state).count < total && Date.now() < until) await sleep(PAUSE_MS)
await sleep(1000)
const { sequence, checksum: spoilt, unasked } = client.stats.resyncs
const seen = {
  sent: outcomes.length,
  acknowledged: results.filter(({ status }) => status === 'fulfilled').length,
  state: room.state,
  checksum: new Checksum().of(room.state),
  resyncs: sequence + spoilt + unasked,
}
client.close()
process.stdout.write(`${JSON.stringify(seen)}\n`)
