import { execFileSync } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { encode } from '@msgpack/msgpack'
import { CLOSE } from '../../shared/protocol/error-codes.ts'
import { OPCODE, PATIENCE_MS, RawClient } from '../support/raw-client.ts'
import {
  type Attack,
  breathe,
  crowds,
  enter,
  forSeconds,
  join,
  metric,
  newcomer,
  type Player,
  storeFigures,
  Tally,
  type Target,
  tokenFor,
} from './attack.ts'
import { BACKEND_ATTACKS } from './backend-attacks.ts'
import { LIST_ATTACKS } from './list-attacks.ts'
import { HOARD_BYTES } from './rooms/hoard.ts'
import { TREASURE_BYTES } from './rooms/vault.ts'
import { SEAT_ATTACKS } from './seat-attacks.ts'

/** Allowed close codes for a client that breaks the protocol: codes of the service and of the websocket protocol. */
const ALLOWED: readonly number[] = [
  CLOSE.protocol_error,
  CLOSE.rate_limited,
  CLOSE.payload_too_large,
  CLOSE.overloaded,
  CLOSE.unauthenticated,
  CLOSE.resume_failed,
  // The fuzz may have changed a message into a goodbye.
  CLOSE.normal,
  // 1005: the fuzz has sent a close frame.
  ...[1002, 1003, 1005, 1007, 1009],
]

/** Joins a player to the vault. Throws if the server refuses it. */
async function robber(target: Target, url: string, sub: string, key = 'one'): Promise<Player> {
  const player = await enter(target, url, await tokenFor(target, { sub }))
  if (!player || !(await join(player, 'vault', key))) throw new Error(`${sub} was refused`)
  return player
}

/** Returns one of the valid frames with some bytes changed, cut off or repeated. */
function mutated(valid: readonly Uint8Array[]): Uint8Array {
  const bytes = Buffer.from(valid[randomInt(valid.length)]!)
  for (let times = randomInt(1, 4); times > 0; times--) bytes[randomInt(bytes.length)] = randomInt(256)
  if (randomInt(4) === 0) return bytes.subarray(0, randomInt(bytes.length + 1))
  return randomInt(8) === 0 ? Buffer.concat([bytes, bytes]) : bytes
}

/** Returns a token of a key that does not exist, with a random signature. */
function unsignedToken(projectId: string): string {
  const keyId = `key_${randomBytes(16).toString('base64url')}`
  const issuedAt = new Date().toISOString()
  const expiresAt = new Date(Date.now() + 60_000).toISOString()
  const claims = Buffer.from(
    JSON.stringify({ project_id: projectId, issued_at: issuedAt, expires_at: expiresAt, key_id: keyId }),
  )
  const payload = Buffer.concat([claims, randomBytes(64)]).toString('base64url')
  return `v4.public.${payload}.${Buffer.from(JSON.stringify({ kid: keyId })).toString('base64url')}`
}

/** Returns a token of an existing key with a wrong signature. */
function forged(token: string): string {
  const [version, purpose, payload = '', footer] = token.split('.')
  const bytes = Buffer.from(payload, 'base64url')
  randomBytes(32).copy(bytes, bytes.length - 64)
  return [version, purpose, bytes.toString('base64url'), ...(footer === undefined ? [] : [footer])].join('.')
}

function fuzz(subprotocol: 'json' | 'msgpack'): Attack {
  const text = subprotocol === 'json'
  const opcode = text ? OPCODE.text : OPCODE.binary
  return {
    name: `fuzz-${subprotocol}`,
    holds: 'invalid bytes close only their connection, with a close code for the reason',
    async run(target, seconds) {
      const token = await tokenFor(target)
      const hello = { t: 'hello', project_id: target.projectId, token }
      const messages = [
        { t: 'join', request_id: 1, room_type: 'vault', options: { key: 'fuzz' } },
        { t: 'message', room_id: 'vault:fuzz', type: 'add', data: { n: 1 }, ref: 1, settled: 0 },
        { t: 'state.resync', room_id: 'vault:fuzz', reason: 'sequence' },
        { t: 'ping', at: 1 },
        { t: 'leave', request_id: 3, room_id: 'vault:fuzz' },
      ]
      const rows = [
        [1, target.projectId, token],
        ...messages.map((message, at) => [at + 2, ...Object.values(message).slice(1)]),
      ]
      const valid = text
        ? [hello, ...messages].map((message) => Buffer.from(JSON.stringify(message)))
        : rows.map((row) => encode(row))
      const endings = new Tally<number>()
      let frames = 0
      await forSeconds(seconds, async (round) => {
        const client = await RawClient.open(
          target.wsUrls[round % target.wsUrls.length]!,
          `roomful.v1.${subprotocol}`,
        )
        if (round % 2 === 0) client.frame(opcode, valid[0])
        for (let i = 0; i < 20 && client.ended === undefined; i++, frames++) {
          client.frame(
            i % 5 === 0 ? randomInt(16) : opcode,
            i % 3 === 0 ? randomBytes(randomInt(300)) : mutated(valid),
          )
          await breathe(client)
        }
        await client.until(() => false, 50)
        if (client.ended !== undefined) endings.add(client.ended)
        client.cut()
      })
      return {
        did: `${frames} frames; closed with ${endings}`,
        broken: [...endings]
          .filter(([code]) => !ALLOWED.includes(code))
          .map(([code, times]) => `${times} connections were closed with ${code}`),
      }
    },
  }
}

/** All attacks, in order. */
export const ATTACKS: readonly Attack[] = [
  fuzz('json'),
  fuzz('msgpack'),
  {
    name: 'slow-handshakes',
    holds:
      'an incomplete upgrade and an upgrade without a hello end after some seconds, and honest clients can connect',
    async run(target) {
      const url = target.wsUrls[0]!
      const half: Socket[] = []
      const silent: RawClient[] = []
      const tries = 1000
      for (let i = 0; i < tries; i++) {
        if (i % 2 === 0) {
          const socket = await RawClient.dial(url).catch(() => undefined)
          socket?.write('GET / HTTP/1.1\r\nHost: ')
          if (socket) half.push(socket)
        } else
          await RawClient.open(url).then(
            (client) => silent.push(client),
            () => {},
          )
      }
      const waited = await newcomer(target, url, 'newcomer-among-slow-ones')
      const began = performance.now()
      // Much longer than the time limit of a hello.
      for (const client of silent) await client.until(() => client.ended !== undefined, 30_000)
      const held = (performance.now() - began) / 1000
      const left = silent.filter(({ ended }) => ended === undefined).length
      for (const socket of half) socket.destroy()
      for (const client of silent) client.cut()
      return {
        did: `${half.length} half upgrades and ${silent.length} silent websockets of ${tries} held places for ${held.toFixed(1)} s; a newcomer waited ${waited.toFixed(0)} ms`,
        broken: [
          left > 0 && `${left} websockets without a hello were still open`,
          waited === Number.POSITIVE_INFINITY && 'a newcomer was refused',
        ],
      }
    },
  },
  {
    name: 'dropped-sessions',
    holds: 'disconnected sessions fill no node: without a seat they end, and with a seat a player has few',
    async run(target, seconds) {
      const before = await metric(target, 'service_sessions')
      const token = await tokenFor(target, { sub: 'dropper' })
      let made = 0
      await forSeconds(seconds, async (round) => {
        const player = await enter(target, target.wsUrls[round % target.wsUrls.length]!, token).catch(
          () => undefined,
        )
        if (!player) return
        made += 1
        if (round % 2 === 1) await join(player, 'vault', 'dropped')
        player.client.cut()
      })
      const remaining = async (): Promise<number> => (await metric(target, 'service_sessions')) - before
      const until = performance.now() + PATIENCE_MS
      let more = await remaining()
      for (; more > 20 && performance.now() < until; more = await remaining()) await sleep(500)
      return {
        did: `${made} sessions were made and dropped; ${more} remained`,
        broken: [more > 20 && `${more} dropped sessions of one player remained`],
      }
    },
  },
  {
    name: 'many-rooms',
    holds: 'the number of rooms that one token creates per minute is limited',
    async run(target, seconds) {
      const token = await tokenFor(target, { sub: 'builder' })
      const before = (await storeFigures(target)).keys
      let asked = 0
      let joined = 0
      const build = async (builder: number): Promise<void> => {
        const player = await enter(target, target.wsUrls[builder % target.wsUrls.length]!, token)
        if (!player) return
        let ref = 0
        player.client.onMessage = ({ t, room_id: roomId }) => {
          if (t !== 'joined') return
          joined += 1
          player.client.send({ t: 'leave', request_id: ++ref, room_id: roomId })
        }
        await forSeconds(seconds, async () => {
          const options = { key: `built-${builder}-${asked++}` }
          player.client.send({ t: 'join', request_id: ++ref, room_type: 'meadow', options })
          await sleep(1000 / player.limits.messages_per_second)
          await breathe(player.client)
        })
        player.client.cut()
      }
      await Promise.all([0, 1, 2, 3].map(build))
      const keys = (await storeFigures(target)).keys - before
      return {
        did: `${asked} joins by four sessions; ${joined} rooms; ${keys} keys more in the store`,
        broken: [joined > 150 && `one token made ${joined} rooms in ${seconds} s`],
      }
    },
  },
  {
    name: 'resyncs',
    holds: 'repeated requests of the whole state bring at most about one state a second',
    async run(target, seconds) {
      const { client, limits } = await robber(target, target.wsUrls[0]!, 'robber')
      const before = client.bytes
      let asked = 0
      const message = { t: 'state.resync', room_id: 'vault:one', reason: 'sequence' }
      const took = await forSeconds(seconds, async () => {
        client.send(message)
        asked += 1
        await sleep(1000 / limits.messages_per_second)
      })
      await client.until(() => false, 500)
      const states = Math.round((client.bytes - before) / TREASURE_BYTES)
      client.cut()
      return {
        did: `${asked} requests brought ${states} states`,
        broken: [states > 10 + took && `${asked} requests brought ${states} states in ${took.toFixed(1)} s`],
      }
    },
  },
  {
    name: 'whole-states',
    holds: 'repeated joins in several sessions send a player no more bytes than its budget',
    async run(target, seconds) {
      const token = await tokenFor(target, { sub: 'hoarder' })
      const sessions = 4
      let bytes = 0
      let states = 0
      const hoard = async (): Promise<number> => {
        const player = await enter(target, target.wsUrls[0]!, token)
        if (!player) return 0
        const { client } = player
        let ref = 0
        const ask = () =>
          client.send({ t: 'join', request_id: ++ref, room_type: 'hoard', options: { key: 'one' } })
        client.onMessage = ({ t }) => {
          if (t === 'state.snapshot') {
            states += 1
            client.send({ t: 'leave', request_id: ++ref, room_id: 'hoard:one' })
          } else if (t === 'left') ask()
          // An error: too many joins in a second.
          else if (t === 'error') setTimeout(ask, 100)
        }
        ask()
        const took = await forSeconds(seconds, () => breathe(client))
        bytes += client.bytes
        client.cut()
        return took
      }
      const took = Math.max(...(await Promise.all(Array.from({ length: sessions }, hoard))))
      // The burst, the rate per second, and one state for each session that asked before the size was known.
      const most = (8 + took) * 4 * 1024 * 1024 + (1 + sessions) * HOARD_BYTES
      const mib = (count: number) => `${(count / 1024 / 1024).toFixed(0)} MiB`
      return {
        did: `${states} states, ${mib(bytes)} in ${took.toFixed(1)} s, of at most ${mib(most)}`,
        broken: [bytes > most && `one player was sent ${mib(bytes)}, more than ${mib(most)}`],
      }
    },
  },
  {
    name: 'control-frames',
    holds: 'pings and pongs count like messages: a flood of them closes the connection',
    async run(target, seconds) {
      let sent = 0
      let opened = 0
      let closed = 0
      await forSeconds(seconds, async (round) => {
        const url = target.wsUrls[round % target.wsUrls.length]!
        const player = await enter(target, url, await tokenFor(target, { sub: 'flooder' }))
        if (!player) return
        opened += 1
        const began = performance.now()
        while (player.client.ended === undefined && performance.now() - began < PATIENCE_MS) {
          for (let i = 0; i < 200; i++, sent++)
            player.client.frame(round % 2 === 0 ? OPCODE.pong : OPCODE.ping, Buffer.from('x'))
          await breathe(player.client)
        }
        if (player.client.ended !== undefined) closed += 1
        player.client.cut()
      })
      return {
        did: `${sent} control frames on ${opened} connections; ${closed} were closed`,
        broken: [
          closed < opened && `${opened - closed} connections that flooded with control frames stayed open`,
        ],
      }
    },
  },
  {
    name: 'fresh-buckets',
    holds: 'a new session, a resume, or a leave and a join do not refill a rate limit',
    async run(target, seconds) {
      const token = await tokenFor(target, { sub: 'presser' })
      const before = await metric(target, 'service_messages_applied_total')
      let rate = 0
      let burst = 0
      const took = await forSeconds(seconds, async (round) => {
        const player = await enter(target, target.wsUrls[0]!, token)
        if (!player) return
        rate = player.limits.messages_per_second
        burst = player.limits.message_burst
        if (!(await join(player, 'vault', 'pressed'))) return player.client.cut()
        for (let i = 0; i < burst; i++)
          player.client.send({ t: 'message', room_id: 'vault:pressed', type: 'add', data: { n: round } })
        await breathe(player.client)
        await player.client.until(() => false, 50)
        player.client.cut()
      })
      const applied = (await metric(target, 'service_messages_applied_total')) - before
      // The limit of several sessions of one player at one node, and the messages of the bystanders.
      const most = Math.ceil(4 * (burst + rate * took) + 200 * took)
      return {
        did: `${applied} messages applied in ${took.toFixed(1)} s, of at most ${most}`,
        broken: [applied > most && `${applied} messages were applied, more than ${most}`],
      }
    },
  },
  {
    name: 'bogus-keys',
    holds: 'tokens of keys that do not exist do not delay honest players',
    async run(target, seconds) {
      let sent = 0
      let waited = 0
      const bogus = () => ({
        t: 'hello',
        project_id: target.projectId,
        token: unsignedToken(target.projectId),
      })
      const flood = crowds(seconds, target.wsUrls.slice(0, 1), bogus, () => void sent++)
      const asking = forSeconds(seconds - 0.5, async (round) => {
        waited = Math.max(waited, await newcomer(target, target.wsUrls[0]!, `newcomer-${round}`))
        await sleep(100)
      })
      await Promise.all([flood, asking])
      return {
        did: `${sent} hellos with bogus keys; an honest player waited ${waited.toFixed(0)} ms at most`,
        broken: [waited === Number.POSITIVE_INFINITY && 'an honest player was refused'],
      }
    },
  },
  {
    name: 'bogus-resumes',
    holds: 'a resume that cannot succeed costs the store at most two commands',
    async run(target, seconds) {
      const before = await storeFigures(target)
      let tried = 0
      const bogus = () => {
        const sessionId = `ses_${randomBytes(12).toString('base64url')}`
        const resumeToken = randomBytes(24).toString('base64url')
        const resume = { session_id: sessionId, resume_token: resumeToken, rooms: [] }
        return { t: 'hello', project_id: target.projectId, resume }
      }
      const took = await crowds(seconds, target.wsUrls, bogus, () => void tried++)
      const { commands } = await storeFigures(target)
      // Commands of the nodes and the bystanders.
      const quiet = 400 * took
      const more = commands - before.commands - quiet
      return {
        did: `${tried} bogus resumes; ${commands - before.commands} commands to the store`,
        broken: [more > 2 * tried && `${tried} bogus resumes brought ${commands - before.commands} commands`],
      }
    },
  },
  {
    name: 'refused-messages',
    holds: 'a flood of refused messages is answered or closed, and uses no memory',
    async run(target, seconds) {
      const heap = await metric(target, 'service_nodejs_heap_size_used_bytes')
      let sent = 0
      let errors = 0
      await forSeconds(seconds, async () => {
        const player = await robber(target, target.wsUrls[0]!, 'knocker').catch(() => undefined)
        if (!player) return
        const { client } = player
        client.onMessage = ({ t }) => void (t === 'error' && errors++)
        for (let ref = 1; ref < 2000 && client.ended === undefined; ref++, sent++) {
          client.send({ t: 'message', room_id: 'vault:one', type: 'knock', data: {}, ref, settled: 0 })
          if (ref % 100 === 0) await breathe(client)
        }
        await client.until(() => false, 200)
        client.cut()
      })
      const more = ((await metric(target, 'service_nodejs_heap_size_used_bytes')) - heap) / 1024 / 1024
      return {
        did: `${sent} messages, ${errors} errors; the heaps grew by ${more.toFixed(0)} MiB`,
        broken: [more > 100 && `the heaps of the nodes grew by ${more.toFixed(0)} MiB`],
      }
    },
  },
  {
    name: 'invalid-messages',
    holds: 'a flood of large invalid messages in four sessions does not slow down other players',
    async run(target, seconds) {
      const junk = Buffer.from(
        JSON.stringify({ t: 'message', room_id: 5, type: 'add', data: { of: 'x'.repeat(15_000) } }),
      )
      let sent = 0
      let closed = 0
      const flood = async (sender: number): Promise<void> => {
        await forSeconds(seconds, async (round) => {
          const token = await tokenFor(target, { sub: `junk-${sender}-${round}` })
          const player = await enter(target, target.wsUrls[0]!, token).catch(() => undefined)
          if (!player) return
          const began = performance.now()
          while (player.client.ended === undefined && performance.now() - began < seconds * 1000) {
            for (let i = 0; i < 20; i++, sent++) player.client.frame(OPCODE.text, junk)
            await breathe(player.client)
          }
          if (player.client.ended !== undefined) closed += 1
          player.client.cut()
        })
      }
      await Promise.all([0, 1, 2, 3].map(flood))
      return {
        did: `${sent} messages of ${junk.length} bytes; ${closed} connections were closed`,
        broken: [],
      }
    },
  },
  {
    name: 'handshakes',
    holds: 'a flood of wrong signatures, or of one valid token, does not slow down other players',
    async run(target, seconds) {
      const good = await tokenFor(target, { sub: 'comer' })
      const endings = new Tally<number | string>()
      const hello = (index: number) => ({
        t: 'hello',
        project_id: target.projectId,
        token: index % 2 === 0 ? good : forged(good),
      })
      const took = await crowds(seconds, target.wsUrls.slice(0, 1), hello, (ending) => endings.add(ending))
      const waited = await newcomer(target, target.wsUrls[0]!, 'newcomer-among-comers')
      const welcomed = endings.get('welcome') ?? 0
      return {
        did: `hellos ended with ${endings}; a newcomer waited ${waited.toFixed(0)} ms`,
        broken: [
          waited === Number.POSITIVE_INFINITY && 'a newcomer was refused',
          welcomed > 50 + 20 * took && `one player got ${welcomed} sessions in ${took.toFixed(1)} s`,
        ],
      }
    },
  },
  {
    name: 'control-requests',
    holds: 'the control API answers any request with a reason, and never with a status from 500',
    async run(target, seconds) {
      const paths = [
        '/projects',
        '/tokens',
        `/projects/${target.projectId}/keys`,
        `/projects/${target.projectId}/rooms/vault/nowhere`,
        `/projects/${target.projectId}/rooms/vault/nowhere/calls/take`,
        `/projects/${target.projectId}/rooms/vault/nowhere/reserve`,
        `/projects/${target.projectId}/rooms/vault/nowhere/kick`,
        `/projects/${target.projectId}/rooms/vault/nowhere/close`,
        '/internal/key-status',
        '/%00',
        '/..%2f',
        '/docs?x=',
      ]
      const answers = new Tally<number>()
      await forSeconds(seconds, async (round) => {
        const path = paths[round % paths.length]!
        const body = [
          randomBytes(randomInt(1, 200)),
          JSON.stringify({ project_id: [randomInt(9)], name: '\ud800' }),
          '['.repeat(20_000) + ']'.repeat(20_000),
        ][randomInt(3)]!
        const response = await fetch(`${target.controlUrl}${path}`, {
          method: ['POST', 'PUT', 'DELETE', 'PATCH'][randomInt(4)]!,
          headers: {
            'content-type': randomInt(2) === 0 ? 'application/json' : 'text/plain',
            authorization: `Bearer ${randomInt(2) === 0 ? target.operatorToken : randomBytes(20).toString('hex')}`,
          },
          body,
        })
        await response.arrayBuffer()
        answers.add(response.status)
      })
      return {
        did: `answered with ${answers}`,
        broken: [...answers]
          .filter(([status]) => status >= 500)
          .map(([status, times]) => `${times} answers were ${status}`),
      }
    },
  },
  ...BACKEND_ATTACKS,
  ...SEAT_ATTACKS,
  ...LIST_ATTACKS,
  {
    name: 'file-descriptors',
    holds: 'a node without free file descriptors keeps its lease and its players',
    async run(target, seconds) {
      const pid = String(target.nodePids[0])
      const open = await metric({ ...target, adminUrls: [target.adminUrls[0]!] }, 'service_process_open_fds')
      const limit = (soft: string): void => void execFileSync('prlimit', ['--pid', pid, `--nofile=${soft}:`])
      const [, normal = '1024'] =
        /NOFILE\s+.*?\s(\d+)\s+\d+\s/.exec(
          execFileSync('prlimit', ['--pid', pid, '--nofile'], { encoding: 'utf8' }),
        ) ?? []
      limit(String(open + 50))
      const sockets: Socket[] = []
      try {
        for (let i = 0; i < 300; i++)
          await RawClient.dial(target.wsUrls[0]!).then(
            (socket) => sockets.push(socket),
            () => {},
          )
        // Longer than a lease.
        await sleep(Math.max(seconds, 3) * 1000)
      } finally {
        for (const socket of sockets) socket.destroy()
        limit(normal)
      }
      const [other] = target.adminUrls.slice(1)
      const alive =
        other === undefined ? 1 : await metric({ ...target, adminUrls: [other] }, 'service_nodes_alive')
      return {
        did: `${sockets.length} sockets at a node that may open ${open + 50} files; ${alive} nodes alive`,
        broken: [alive < target.wsUrls.length && `a node lost its lease: ${alive} are alive`],
      }
    },
  },
]
