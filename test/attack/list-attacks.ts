import { setTimeout as sleep } from 'node:timers/promises'
import { createLog } from '../../shared/log.ts'
import { redisStore } from '../../shared/store/redis/redis.ts'
import { PATIENCE_MS, RawClient } from '../support/raw-client.ts'
import {
  type Attack,
  breathe,
  call,
  enter,
  forSeconds,
  greet,
  join,
  metric,
  type Player,
  Tally,
  type Target,
  tokenFor,
} from './attack.ts'

/** Bytes of lists that a node may send to the clients of one token without `sub` from one address, per second. */
const TOKEN_BYTES_PER_SECOND = 2_000_000
/** Bytes of everything else that such a client receives. */
const OTHER_BYTES = 2000
/** Time in which a watcher must have a change. */
const CHANGE_WITHIN_MS = 3000

/** More rooms than a query looks at. */
const ROOMS = 12_000

const SESSIONS = 250
const WATCHES = 4

/** Rows of sleeping rooms in the store. Their owners are not needed to write them. */
class StoredRows {
  readonly #store: Awaited<ReturnType<typeof redisStore>>
  readonly #list: string
  #version = 0

  private constructor(store: Awaited<ReturnType<typeof redisStore>>, list: string) {
    this.#store = store
    this.#list = list
  }

  static async open({ redisUrl, keyPrefix, projectId }: Target): Promise<StoredRows> {
    const store = await redisStore({ url: redisUrl, keyPrefix, log: createLog({ logLevel: 'fatal' }) })
    return new StoredRows(store, `${projectId}/lobby`)
  }

  /** Writes the rows of the rooms with these numbers. */
  async write(rooms: readonly number[], data: (room: number) => object): Promise<void> {
    await Promise.all(
      rooms.map((room) => {
        const row = {
          room_id: `lobby:${room}`,
          room_type: 'lobby',
          key: String(room),
          players: 0,
          max_players: 1000,
          reserved: 0,
          created_at: '2026-01-01T00:00:00.000Z',
          data: data(room),
          node_id: null,
        }
        const value = new TextEncoder().encode(JSON.stringify(row))
        const version = ++this.#version
        return this.#store.listings.write(
          this.#list,
          { roomId: row.room_id, epoch: 1, version, value },
          600_000,
        )
      }),
    )
  }

  close(): Promise<void> {
    return this.#store.close()
  }
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n)

/** Creates a project with a full list. Returns a target with it. */
async function ownProject(target: Target): Promise<Target> {
  const { id } = await call(target, '/projects', { name: 'with a lobby' })
  return { ...target, projectId: id! }
}

/** Connects a client from a loopback address. The server may refuse it for a moment, since all have one token. */
async function guest(target: Target, url: string, token: string, localAddress: string): Promise<RawClient> {
  for (;;) {
    const client = await RawClient.open(url, 'roomful.v1.json', { localAddress })
    if (await greet(client, { t: 'hello', project_id: target.projectId, token })) return client
    await sleep(500)
  }
}

/** Attacks by lists of rooms, and crowds that look like one. */
export const LIST_ATTACKS: readonly Attack[] = [
  {
    name: 'watched-lists',
    holds:
      '1,000 watches of one token without sub, from one address, get at most 2 MB of lists a second at a node',
    async run(attacked, seconds) {
      const target = await ownProject(attacked)
      const rows = await StoredRows.open(target)
      const write = (round: number) =>
        rows.write(numbers(100), (n) => ({ f0: round, f1: 'x'.repeat(500), f2: n }))
      await write(0)
      const token = await tokenFor(target)
      const clients: RawClient[] = []
      let [asked, latest, stale] = [0, 0, 0]
      for (let n = 0; n < SESSIONS; n++) {
        const client = await guest(target, target.wsUrls[0]!, token, '127.0.0.1')
        const seen = new Map<unknown, number>()
        client.onMessage = ({ t, request_id: id, rooms, set }) => {
          const rows = (rooms ?? set) as { data: { f0: number } }[]
          const round = t === 'rooms' ? rows[0]?.data.f0 : undefined
          if (round === undefined) return
          if (round < (seen.get(id) ?? 0)) stale += 1
          seen.set(id, round)
          latest = Math.max(latest, round)
        }
        clients.push(client)
      }
      const before = clients.reduce((sum, { bytes }) => sum + bytes, 0)
      const began = performance.now()
      for (const client of clients)
        for (let id = 1; id <= WATCHES; id++) {
          const watch = { t: 'rooms', request_id: id, room_type: 'lobby', query: { limit: 100 }, watch: true }
          asked += JSON.stringify(watch).length
          client.send(watch)
        }
      for (let round = 1; performance.now() - began < seconds * 1000; round++) {
        await write(round)
        await sleep(1000)
      }
      const took = (performance.now() - began) / 1000
      const bytes = clients.reduce((sum, { bytes }) => sum + bytes, 0) - before
      for (const client of clients) client.cut()
      await rows.close()
      // A tenth of a second is saved up, and one list may be a debt.
      const most = TOKEN_BYTES_PER_SECOND * (took + 0.2) + SESSIONS * OTHER_BYTES
      const mb = (count: number): string => (count / 1e6).toFixed(1)
      return {
        did: `${SESSIONS * WATCHES} watches, ${asked} bytes: ${mb(bytes / took)} MB/s in ${took.toFixed(1)} s; the newest list was of change ${latest}`,
        broken: [
          bytes > most && `one token was sent ${mb(bytes)} MB in ${took.toFixed(1)} s, more than ${mb(most)}`,
          stale > 0 && `${stale} lists were older than the list before them`,
          latest === 0 && seconds > 1 && 'no change arrived',
        ],
      }
    },
  },
  {
    name: 'wide-queries',
    holds: 'queries with 20 conditions on 12,000 rooms stop, and a player gets about one of them a second',
    async run(attacked, seconds) {
      const target = await ownProject(attacked)
      const rows = await StoredRows.open(target)
      const fields = numbers(20).map((n) => `f${n}`)
      const data = Object.fromEntries(fields.map((field) => [field, 1]))
      for (let from = 0; from < ROOMS; from += 1000)
        await rows.write(
          numbers(1000).map((n) => from + n),
          () => data,
        )
      await rows.close()
      // The last condition does not hold.
      const where = Object.fromEntries(fields.map((field, at) => [field, at < 19 ? [0, 1] : [2, 3]]))
      const requests = [
        { t: 'rooms', room_type: 'lobby', query: { where } },
        { t: 'find', room: { room_type: 'lobby', query: { where } } },
      ]
      // The nodes read the list first.
      for (const url of target.wsUrls) {
        const scout = await enter(target, url, await tokenFor(target, { sub: 'scout' }))
        for (const [id, request] of requests.entries())
          await scout?.client.ask(
            { ...request, request_id: id + 1 },
            (answer) => answer.request_id === id + 1,
          )
        scout?.client.cut()
      }
      const token = await tokenFor(target, { sub: 'searcher' })
      const answers = new Tally<string>()
      let asked = 0
      const flood = async (): Promise<number> => {
        const player = await enter(target, target.wsUrls[0]!, token)
        if (!player) return 0
        const { client, limits } = player
        client.onMessage = ({ t, code, message }) =>
          answers.add(
            t === 'error' ? `${code}${/looked at \d+ rooms/.test(String(message)) ? ', stopped' : ''}` : t,
          )
        let id = 0
        const took = await forSeconds(seconds, async (round) => {
          client.send({ ...requests[round % requests.length]!, request_id: ++id })
          asked += 1
          await sleep(1000 / limits.messages_per_second)
          await breathe(client)
        })
        client.cut()
        return took
      }
      const took = Math.max(...(await Promise.all([0, 1, 2, 3].map(flood))))
      const answered = [...answers.values()].reduce((sum, count) => sum + count, 0)
      // Points that are saved up, a debt, and about one query a second.
      const most = Math.ceil(8 + 1.2 * took)
      return {
        did: `${asked} queries by four sessions; in ${took.toFixed(1)} s ${answered} were answered, of at most ${most}: ${answers}`,
        broken: [
          answered > most && `${answered} queries were answered, more than ${most}`,
          [...answers.keys()].some((answer) => answer !== 'invalid_options, stopped') &&
            `queries did not stop: ${answers}`,
          answered === 0 && 'no query was answered',
        ],
      }
    },
  },
  {
    name: 'lobby-crowd',
    holds: '500 watchers of a lobby with one token, each at another address, get each change within 3 s',
    async run(attacked, seconds) {
      const target = await ownProject(attacked)
      const token = await tokenFor(target)
      const delayed = await metric(target, 'service_lists_delayed_total')
      const hosts: Player[] = []
      for (let n = 0; n < 20; n++) {
        const host = await enter(target, target.wsUrls[n % 2]!, await tokenFor(target, { sub: `host-${n}` }))
        if (!host || !(await join(host, 'lobby', `of-${n}`))) throw new Error('a host was refused')
        hosts.push(host)
      }
      const sentAt: number[] = []
      const waits: number[] = []
      const clients: RawClient[] = []
      const has: number[] = []
      for (let n = 0; n < 500; n++) {
        const address = `127.0.${1 + Math.floor(n / 250)}.${1 + (n % 250)}`
        const client = await guest(target, target.wsUrls[n % 2]!, token, address)
        has.push(0)
        client.onMessage = ({ t, rooms, set }) => {
          if (t !== 'rooms') return
          const rows = (rooms ?? set) as { data: { f0?: number } }[]
          const change = Math.max(0, ...rows.map(({ data }) => data.f0 ?? 0))
          for (let at = has[n]! + 1; at <= change; at++) waits.push(performance.now() - sentAt[at]!)
          has[n] = Math.max(has[n]!, change)
        }
        client.send({ t: 'rooms', request_id: 1, room_type: 'lobby', watch: true })
        clients.push(client)
      }
      const began = performance.now()
      let change = 0
      while (performance.now() - began < seconds * 1000) {
        change += 1
        sentAt[change] = performance.now()
        for (const [n, { client }] of hosts.entries())
          client.send({ t: 'message', room_id: `lobby:of-${n}`, type: 'set', data: { n: change } })
        await sleep(1000)
      }
      const until = performance.now() + PATIENCE_MS
      while (performance.now() < until && has.some((one) => one < change)) await sleep(50)
      const late = waits.filter((ms) => ms > CHANGE_WITHIN_MS).length
      const missing = has.filter((one) => one < change).length
      const more = (await metric(target, 'service_lists_delayed_total')) - delayed
      for (const client of [...clients, ...hosts.map(({ client }) => client)]) client.cut()
      return {
        did: `${change} changes of 20 rooms for 500 watchers: the slowest took ${(Math.max(...waits) / 1000).toFixed(1)} s; ${more} lists were delayed`,
        slow: [late > 0 && `${late} changes took longer than ${CHANGE_WITHIN_MS / 1000} s`],
        broken: [
          missing > 0 && `${missing} watchers did not get the last change`,
          more > 0 && `${more} lists of honest watchers were delayed`,
        ],
      }
    },
  },
]
