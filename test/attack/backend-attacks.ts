import { once } from 'node:events'
import { createServer, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { CLOSE } from '../../shared/protocol/error-codes.ts'
import { RawClient } from '../support/raw-client.ts'
import {
  type Attack,
  breathe,
  call,
  crowds,
  enter,
  forSeconds,
  greet,
  join,
  newcomer,
  type Player,
  Tally,
  type Target,
  tokenFor,
} from './attack.ts'

/** A request of an attacker. The path is sent without normalization. */
interface Attempt {
  readonly method?: string
  readonly path: string
  readonly key: string
  readonly body?: string
  readonly headers?: Readonly<Record<string, string>>
}

interface Answer {
  readonly status: number
  readonly code: string | undefined
  readonly body: Readonly<Record<string, unknown>>
}

/** Time limit for the sessions of a banned player. The promise is 1 s, but the attacker uses the same machine. */
const OUT_WITHIN_MS = 5000
const MAX_BODY = 64 * 1024
/** Limit of a project at each node. Bursts of one second are accepted. */
const CALLS_PER_SECOND = 200
const SCOPES = ['token:mint', 'room:read', 'room:call', 'player:manage']

function send(target: Target, { method = 'POST', path, key, body, headers }: Attempt): Promise<Answer> {
  const { hostname, port } = new URL(target.controlUrl)
  const all = {
    authorization: `Bearer ${key}`,
    ...(body !== undefined && { 'content-type': 'application/json' }),
    ...headers,
  }
  return new Promise((resolve, reject) => {
    const request = httpRequest({ hostname, port, method, path, headers: all }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (part) => {
        text += part
      })
      response.on('end', () => {
        const found = text.startsWith('{') ? JSON.parse(text) : {}
        resolve({ status: response.statusCode ?? 0, code: found.code, body: found })
      })
    })
    request.on('error', reject)
    request.end(body)
  })
}

/** Creates a key of a project. Returns its secret. */
async function keyOf(target: Target, projectId: string, scopes: readonly string[]): Promise<string> {
  return (await call(target, `/projects/${projectId}/keys`, { scopes })).secret!
}

const take = (n: number, text = ''): string => JSON.stringify({ n, text })

/** Attacks on the control API by backends, and on bans by players. */
export const BACKEND_ATTACKS: readonly Attack[] = [
  {
    name: 'foreign-keys',
    holds: 'a key without the scope or of another project reaches no room and no player, on any path',
    async run(target) {
      const own = `/projects/${target.projectId}`
      const { id: other } = await call(target, '/projects', { name: 'of the attacker' })
      const keys = {
        missing_scope: await keyOf(target, target.projectId, ['token:mint']),
        forbidden: await keyOf(target, other!, SCOPES),
      }
      const routes: readonly Omit<Attempt, 'key'>[] = [
        { path: `${own}/rooms/bank/one/calls/take`, body: take(1) },
        { path: `${own}/rooms/bank/one/calls/take?open=1`, body: take(1) },
        { path: `${own}/rooms/bank/one`, method: 'PUT' },
        { path: `${own}/rooms/bank/one`, method: 'GET' },
        { path: `${own}/rooms?type=bank`, method: 'GET' },
        { path: `${own}/rooms/bank/one/reserve`, body: JSON.stringify({ subs: ['a'], seconds: 1 }) },
        { path: `${own}/rooms/bank/one/kick`, body: JSON.stringify({ sub: 'a' }) },
        { path: `${own}/rooms/bank/one/close` },
        { path: `${own}/subs/bystander-0-0/ban`, method: 'PUT', body: '{}' },
        { path: `${own}/subs/bystander-0-0/ban`, method: 'DELETE' },
        { path: `${own}/subs/bystander-0-0/data`, method: 'PUT', body: '{"data":{}}' },
        { path: `${own}/bans`, method: 'GET' },
      ]
      /** Paths that a proxy or a router may mistake for a path of the project. */
      const detours = ['take', 'close'].flatMap((name) => {
        const rest = name === 'take' ? 'rooms/bank/one/calls/take' : 'rooms/bank/one/close'
        return [
          `/projects/${other}/../${target.projectId}/${rest}`,
          `/projects/${other}/%2e%2e/${target.projectId}/${rest}`,
          `/projects/${other}%2f..%2f${target.projectId}/${rest}`,
          `/projects/${other}/..%2f${target.projectId}/${rest}`,
          `//projects/${target.projectId}/${rest}`,
          `/projects//${target.projectId}/${rest}`,
          `/PROJECTS/${target.projectId}/${rest}`,
          `/projects/${target.projectId}%00/${rest}`,
          `/projects/${target.projectId};${other}/${rest}`,
          `/projects/${other}/rooms/${encodeURIComponent(`../../${target.projectId}/rooms/bank`)}/one/calls/take`,
        ]
      })
      const answers = new Tally<string>()
      const broken: string[] = []
      for (const [code, key] of Object.entries(keys))
        for (const route of routes) {
          const answer = await send(target, { ...route, key })
          answers.add(`${answer.status} ${answer.code}`)
          if (answer.status !== 403 || answer.code !== code)
            broken.push(
              `${route.method ?? 'POST'} ${route.path} answered ${answer.status} ${answer.code}, not ${code}`,
            )
        }
      for (const path of detours)
        for (const method of ['POST', 'PUT', 'GET']) {
          const body = method === 'POST' && path.endsWith('take') ? { body: take(1) } : {}
          const { status, code } = await send(target, { path, method, key: keys.forbidden, ...body })
          answers.add(`${status} ${code}`)
          if (status < 400 || status >= 500) broken.push(`${method} ${path} answered ${status}`)
        }
      return { did: `answered with ${answers}`, broken }
    },
  },
  {
    name: 'calls',
    holds:
      'calls with any key of a room, player, data or idempotency key run once and are answered, or are refused with a reason',
    async run(target, seconds) {
      let key: string
      const second = await keyOf(target, target.projectId, SCOPES)
      const rooms = `/projects/${target.projectId}/rooms/bank`
      const subs = `/projects/${target.projectId}/subs`
      const broken: string[] = []
      const answers = new Tally<string>()
      const expecting = async (
        what: string,
        expected: readonly number[],
        attempt: Omit<Attempt, 'key'> & { key?: string },
      ) => {
        const answer = await send(target, { key, ...attempt })
        answers.add(`${answer.status}${answer.code === undefined ? '' : ` ${answer.code}`}`)
        if (!expected.includes(answer.status))
          broken.push(
            `${what} was answered with ${answer.status} ${answer.code}, not ${expected.join(' or ')}`,
          )
        return answer
      }
      let round = 0
      const took = await forSeconds(seconds, async () => {
        round += 1
        // A round makes about ten rooms, and a key may make 60 a minute.
        key = await keyOf(target, target.projectId, SCOPES)
        const room = `${rooms}/room-${round}-${process.pid}`
        const calls = `${room}/calls/take`
        await expecting('a call of no room', [404], { path: calls, body: take(1) })
        await expecting('an open', [200], { path: room, method: 'PUT' })

        // Keys of rooms and subs. An accepted key does not change.
        for (const name of [
          '..',
          '../../etc',
          'a/b',
          '💣',
          '\u202Eevil',
          'a:b',
          '{control}',
          '*',
          ' ',
          '\u0000',
          'x'.repeat(129),
          'x'.repeat(9000),
        ]) {
          const path = `${rooms}/${encodeURIComponent(name)}`
          const expected = name.length > 128 ? [400] : name === '..' ? [404] : [200]
          const opened = await expecting(`a room ${JSON.stringify(name.slice(0, 20))}`, expected, {
            path,
            method: 'PUT',
          })
          if (opened.status !== 200) continue
          const { body } = await expecting('its view', [200], { path, method: 'GET' })
          if (body.room_id !== `bank:${name}`) broken.push(`bank:${name} is ${String(body.room_id)}`)
          await expecting('its close', [200], { path: `${path}/close` })
        }
        for (const text of ['..', '%2e%2e', '%2e%2e%2f', '%ff', '%ed%a0%80', '%', '%zz']) {
          await expecting(`a room ${text}`, [200, 400, 404, 405], { path: `${rooms}/${text}`, method: 'PUT' })
          await expecting(`a ban of ${text}`, [200, 400, 404, 405], {
            path: `${subs}/${text}/ban`,
            method: 'PUT',
            body: '{}',
          })
        }
        for (const sub of ['a/b', '💣', '*', '{control}', 'x'.repeat(257)]) {
          const path = `${subs}/${encodeURIComponent(sub)}/ban`
          const { status, body } = await expecting(`a ban of ${sub.slice(0, 20)}`, [200, 400], {
            path,
            method: 'PUT',
            body: '{}',
          })
          if (status !== 200) continue
          if (body.sub !== sub) broken.push(`a ban of ${sub} is one of ${String(body.sub)}`)
          await expecting('its end', [200], { path, method: 'DELETE' })
        }

        // Data and replies.
        const most = MAX_BODY - take(0).length
        await expecting('a body of 64 KiB', [200], { path: calls, body: take(0, 'x'.repeat(most)) })
        await expecting('a body of 64 KiB and 1', [413], { path: calls, body: take(0, 'x'.repeat(most + 1)) })
        for (const body of [
          '{"n":1e999}',
          '{"n":1,"__proto__":{"n":2}}',
          `{"n":${'['.repeat(20_000)}}`,
          '{"n":"1"}',
          '{"n":9007199254740993}',
          '[]',
          '"\ud800"',
          '{',
        ])
          await expecting(`data ${body.slice(0, 30)}`, [400], { path: calls, body })
        const gzip = { 'content-encoding': 'gzip' }
        await expecting('a body in gzip', [415], { path: calls, body: take(1), headers: gzip })
        await expecting('a reply over 4 KiB', [500], { path: `${room}/calls/brag` })
        for (const name of ['constructor', '__proto__', 'toString', '..%2ftake'])
          await expecting(`a call of ${name}`, [400, 404], { path: `${room}/calls/${name}`, body: take(1) })

        // Names that every object has, which rooms use as keys, and the notify key, with which one could forge notices.
        for (const sub of ['__proto__', 'constructor', 'toString']) {
          const tokens = { path: '/tokens', body: JSON.stringify({ project_id: target.projectId, sub }) }
          await expecting(`a token of ${sub}`, [400], tokens)
          const seats = { path: `${room}/reserve`, body: JSON.stringify({ subs: [sub], seconds: 30 }) }
          await expecting(`a seat of ${sub}`, [400], seats)
          await expecting(`a ban of ${sub}`, [400], {
            path: `/projects/${target.projectId}/subs/${sub}/ban`,
            method: 'PUT',
            body: '{}',
          })
        }
        await expecting('the notify key', [403], {
          path: `/projects/${target.projectId}/notify-key`,
          method: 'GET',
        })

        // Idempotency keys. The state shows the effect of the four accepted calls.
        const named = (id: string) => ({ path: calls, headers: { 'idempotency-key': id } })
        const long = 'k'.repeat(255)
        await expecting('a long key', [200], { ...named(long), body: take(1) })
        await expecting('the same key with another body', [409], { ...named(long), body: take(2) })
        await expecting('the same key with another action', [409], {
          ...named(long),
          path: `${room}/kick`,
          body: '{"sub":"a"}',
        })
        const again = await expecting('the same key again', [200], { ...named(long), body: take(1) })
        const others = await expecting('the same key of another backend', [200], {
          ...named(long),
          key: second,
          body: take(1),
        })
        if (again.body.seq === others.body.seq) broken.push('a backend got the answer of another')
        const [id] = /key_[\w-]+/.exec(`key_${key.slice('rfsk_'.length)}`) ?? []
        await expecting('the id of a call of another backend', [200], {
          ...named(`${id}/${long}`.slice(0, 255)),
          key: second,
          body: take(1),
        })
        await expecting('a key too long', [400], { ...named('k'.repeat(256)), body: take(1) })
        await expecting('an empty key', [400], { ...named(''), body: take(1) })
        await expecting('a key that is not ASCII', [400], { ...named('é'), body: take(1) })
        await expecting('another call', [200], { path: calls, body: take(1) })
        const view = await expecting('the state', [200], { path: `${room}?include_state=1`, method: 'GET' })
        const { sum } = view.body.state as { sum: number }
        if (sum !== 4) broken.push(`four calls ran, and the room counts ${sum}`)
        await expecting('a close', [200], { path: `${room}/close` })
      })
      return {
        did: `${round} rounds in ${took.toFixed(1)} s, answered with ${answers}`,
        broken: [...new Set(broken)],
      }
    },
  },
  {
    name: 'call-flood',
    holds: 'a backend gets at most 200 calls a second from each node, and does not slow down players',
    async run(target, seconds) {
      const key = await keyOf(target, target.projectId, SCOPES)
      const rooms = `/projects/${target.projectId}/rooms/bank`
      const answers = new Tally<number>()
      const began = performance.now()
      const flood = async (sender: number): Promise<void> => {
        const path = `${rooms}/flood-${sender}/calls/take?open=1`
        await forSeconds(seconds, async () => {
          answers.add((await send(target, { path, key, body: take(1) })).status)
        })
      }
      await Promise.all(Array.from({ length: 50 }, (_, sender) => flood(sender)))
      const took = (performance.now() - began) / 1000
      const accepted = answers.get(200) ?? 0
      const most = Math.ceil(target.wsUrls.length * CALLS_PER_SECOND * (1 + took))
      const wrong = [...answers].filter(([status]) => ![200, 429, 503, 504].includes(status))
      return {
        did: `calls answered with ${answers} in ${took.toFixed(1)} s; at most ${most} may run`,
        broken: [
          accepted > most && `${accepted} calls ran, more than ${most}`,
          ...wrong.map(([status, times]) => `${times} answers were ${status}`),
        ],
      }
    },
  },
  {
    name: 'notices',
    holds: 'headers, data and redirects cannot send a notice to another address than NOTIFY_URL',
    async run(target) {
      const key = await keyOf(target, target.projectId, SCOPES)
      const room = `/projects/${target.projectId}/rooms/bank/teller`
      let stray = 0
      const elsewhere = createServer((_, response) => {
        stray += 1
        response.end()
      }).listen(0, '127.0.0.1')
      await once(elsewhere, 'listening')
      const host = `127.0.0.1:${(elsewhere.address() as AddressInfo).port}`
      const strayUrl = `http://${host}`
      const tricks: Readonly<Record<string, string>>[] = [
        {},
        { host },
        { 'x-forwarded-host': host, 'x-forwarded-proto': 'http' },
        { forwarded: `host=${host}` },
        { 'webhook-url': strayUrl, origin: strayUrl, referer: strayUrl },
        { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, tracestate: `url=${host}` },
      ]
      const answers = new Tally<number>()
      await send(target, { path: room, method: 'PUT', key })
      for (const headers of tricks) {
        const body = JSON.stringify({ url: strayUrl })
        answers.add((await send(target, { path: `${room}/calls/tell`, key, body, headers })).status)
      }
      // The backend redirects the first notice to the address in its data.
      await sleep(1000)
      elsewhere.close()
      return {
        did: `${tricks.length} calls answered with ${answers}; ${stray} notices went elsewhere`,
        broken: [
          stray > 0 && `${stray} notices went elsewhere`,
          (answers.get(200) ?? 0) === 0 && 'no call was answered',
        ],
      }
    },
  },
  {
    name: 'banned-player',
    holds:
      'a ban ends the player’s sessions at all nodes, and refuses its tokens, resumes and joins in flight',
    async run(target, seconds) {
      const key = await keyOf(target, target.projectId, SCOPES)
      const path = `/projects/${target.projectId}/subs/outlaw/ban`
      const tokens = await Promise.all([0, 1, 2].map(() => tokenFor(target, { sub: 'outlaw' })))
      const live: { readonly player: Player; readonly resume: object }[] = []
      for (const url of target.wsUrls) {
        const client = await RawClient.open(url)
        const hello = { t: 'hello', project_id: target.projectId, token: tokens[0] }
        const welcome = await client.ask(hello, ({ t }) => t === 'welcome')
        if (!welcome) throw new Error('the outlaw was refused before its ban')
        const player = { client, limits: welcome.limits as Player['limits'] }
        await join(player, 'meadow', 'of-outlaws')
        const { session_id, resume_token } = welcome
        live.push({ player, resume: { session_id, resume_token, rooms: [] } })
      }
      // Sessions and joins in flight at the time of the ban.
      let arriving = true
      const inFlight: RawClient[] = []
      const arrivals = target.wsUrls.map(async (url) => {
        while (arriving) {
          const player = await enter(target, url, tokens[1]!).catch(() => undefined)
          if (!player) continue
          inFlight.push(player.client)
          player.client.send({
            t: 'join',
            request_id: 1,
            room_type: 'meadow',
            options: { key: 'of-outlaws' },
          })
          await breathe(player.client)
        }
      })
      await sleep(300)
      const banned = await send(target, { path, method: 'PUT', key, body: '{"reason":"theft"}' })
      const began = performance.now()
      arriving = false
      await Promise.all(arrivals)
      const all = [...live.map(({ player }) => player.client), ...inFlight]
      for (const client of all) await client.until(() => client.ended !== undefined)
      const outAfter = performance.now() - began
      const left = all.filter(({ ended }) => ended === undefined).length
      const wrong = live.filter(({ player }) => player.client.ended !== CLOSE.banned).length
      // Each old and new token, and each previous session, at each node.
      const late = [...tokens, await tokenFor(target, { sub: 'outlaw' })]
      const hellos = [...late.map((token) => ({ token })), ...live.map(({ resume }) => ({ resume }))]
      let welcomed = 0
      for (const url of target.wsUrls)
        for (const shown of hellos) {
          const client = await RawClient.open(url)
          if (await greet(client, { t: 'hello', project_id: target.projectId, ...shown })) welcomed += 1
          client.cut()
        }
      const endings = new Tally<number | string>()
      const flood = crowds(
        seconds,
        target.wsUrls,
        (index) => ({ t: 'hello', project_id: target.projectId, ...hellos[index % hellos.length] }),
        (ending) => endings.add(ending),
      )
      const waited = await newcomer(target, target.wsUrls[0]!, 'newcomer-among-banned')
      await flood
      const view = await send(target, {
        path: `/projects/${target.projectId}/rooms/meadow/of-outlaws`,
        method: 'GET',
        key,
      })
      const seats = ((view.body.members ?? []) as { sub?: string }[]).filter(
        ({ sub }) => sub === 'outlaw',
      ).length
      await send(target, { path, method: 'DELETE', key })
      for (const client of all) client.cut()
      return {
        did: `${all.length} sessions were closed within ${outAfter.toFixed(0)} ms; hellos after the ban ended with ${endings}; a newcomer waited ${waited.toFixed(0)} ms`,
        slow: [outAfter > OUT_WITHIN_MS && `the last session was closed after ${outAfter.toFixed(0)} ms`],
        broken: [
          banned.status !== 200 && `the ban was answered with ${banned.status}`,
          left > 0 && `${left} of ${all.length} sessions of the banned player stayed open`,
          wrong > 0 && left === 0 && `${wrong} sessions were not closed with ${CLOSE.banned}`,
          welcomed > 0 &&
            `${welcomed} of ${hellos.length * target.wsUrls.length} hellos of a banned player got a session`,
          endings.has('welcome') && `${endings.get('welcome')} hellos of the flood got a session`,
          waited === Number.POSITIVE_INFINITY && 'a newcomer was refused',
          seats > 0 && `the banned player has ${seats} seats`,
        ],
      }
    },
  },
]
