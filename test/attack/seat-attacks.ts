import { setTimeout as sleep } from 'node:timers/promises'
import { RawClient } from '../support/raw-client.ts'
import {
  type Attack,
  call,
  enter,
  greet,
  join,
  type Player,
  startService,
  Tally,
  type Target,
  tokenFor,
} from './attack.ts'

/** The rooms of these attacks. */
const ROOMS_DIR = `${import.meta.dirname}/rooms`
/** Interval of the requests of a player who does not come. */
const FIND_MS = 700
/** A player may break three promises. After them, a pair meets. */
const BROKEN = 3
/** Time between the two players of a pair. */
const APART_MS = 1000
const PAIRS = 4

let requests = 0

/** Asks for a room as `joinOrCreate` does. Returns its id, or the code of the error. */
async function find({ client }: Player, roomType: string): Promise<string> {
  const id = ++requests
  const answer = await client.ask(
    { t: 'find', request_id: id, room: { room_type: roomType, query: {} } },
    ({ t, request_id: answered }) => (t === 'found' || t === 'error') && answered === id,
  )
  return answer?.t === 'found' ? `${roomType}:${answer.key}` : String(answer?.code)
}

/** Joins a room. Returns `joined`, or the code of the error. */
async function joining({ client }: Player, roomType: string, key: string): Promise<string> {
  const id = ++requests
  const answer = await client.ask(
    { t: 'join', request_id: id, room_type: roomType, options: { key } },
    ({ t, request_id: answered }) => (t === 'joined' || t === 'error') && answered === id,
  )
  return answer?.t === 'joined' ? 'joined' : String(answer?.code ?? 'no answer')
}

/** Does what `joinOrCreate` of the SDK does. Returns the id of the room, or the code of the error. */
async function joinOrCreate(player: Player, roomType: string): Promise<string> {
  for (;;) {
    const roomId = await find(player, roomType)
    if (!roomId.startsWith(`${roomType}:`)) return roomId
    const result = await joining(player, roomType, roomId.slice(roomType.length + 1))
    if (result === 'joined') return roomId
    if (result !== 'room_full') return result
  }
}

/** Connects a player with a `sub`. Throws if the server refuses it. */
async function arrive(target: Target, sub: string, url = target.wsUrls[0]!): Promise<Player> {
  const player = await enter(target, url, await tokenFor(target, { sub }))
  if (!player) throw new Error(`${sub} was refused`)
  return player
}

/** Lets pairs of players meet, one pair after the other. Returns how many did. */
async function pairsThatMeet(target: Target, name: string): Promise<number> {
  let met = 0
  for (let pair = 0; pair < PAIRS; pair++) {
    const one = await arrive(target, `${name}-${pair}-a`)
    const other = await arrive(target, `${name}-${pair}-b`, target.wsUrls.at(-1))
    const room = await joinOrCreate(one, 'pair')
    await sleep(APART_MS)
    if ((await joinOrCreate(other, 'pair')) === room) met += 1
    for (const { client } of [one, other]) client.send({ t: 'goodbye' })
  }
  return met
}

/** Connects a client with the guests' token from an address of this machine. Returns a player, or the reason of the refusal. */
async function guest(target: Target, token: string, address: string, url: string): Promise<Player | string> {
  const client = await RawClient.open(url, undefined, { localAddress: address }).catch(
    (error: unknown) => error,
  )
  if (!(client instanceof RawClient)) return `no upgrade: ${String(client)}`
  const player = await greet(client, { t: 'hello', project_id: target.projectId, token })
  if (player) return player
  const { code, reason } = await client.closed
  return `${code} ${reason}`
}

/** Ends the sessions of players, some at a time: a crowd that leaves in one moment is not part of the trial. */
async function leave(players: readonly Player[]): Promise<void> {
  for (let first = 0; first < players.length; first += 50)
    await Promise.all(
      players.slice(first, first + 50).map(({ client }) => {
        client.send({ t: 'goodbye' })
        return client.closed
      }),
    )
}

/** Attacks by players who take seats from others. */
export const SEAT_ATTACKS: readonly Attack[] = [
  {
    name: 'empty-promises',
    holds: 'players who ask for seats and do not come keep no pair of players apart, after three seats each',
    async run(target) {
      const results: string[] = []
      const broken: string[] = []
      for (const count of [1, 10]) {
        const players = await Promise.all(
          Array.from({ length: count }, (_, index) =>
            arrive(target, `absent-${count}-${index}`, target.wsUrls[index % target.wsUrls.length]),
          ),
        )
        const found = new Map(players.map((player) => [player, 0]))
        const timers = players.map((player) => {
          player.client.onMessage = ({ t }) =>
            void (t === 'found' && found.set(player, found.get(player)! + 1))
          return setInterval(
            () =>
              player.client.send({
                t: 'find',
                request_id: ++requests,
                room: { room_type: 'pair', query: {} },
              }),
            FIND_MS,
          )
        })
        while ([...found.values()].some((finds) => finds <= BROKEN)) await sleep(50)
        const met = await pairsThatMeet(target, `pair-${count}`)
        for (const timer of timers) clearInterval(timer)
        for (const { client } of players) client.cut()
        results.push(`${met} of ${PAIRS} pairs met beside ${count} such players`)
        if (met < PAIRS) broken.push(`${count} players kept ${PAIRS - met} of ${PAIRS} pairs apart`)
      }
      return { did: results.join('; '), broken }
    },
  },
  {
    name: 'every-seat',
    holds:
      'a player has four seats in a room, and clients with one token from one address 16 in a room type and 64 at a node',
    async run(target) {
      const url = target.wsUrls[0]!
      const token = await tokenFor(target, { sub: 'everywhere' })
      let seats = 0
      const open: Player[] = []
      for (let session = 0; session < 8; session++) {
        const player = await enter(target, url, token)
        if (player) open.push(player)
        if (player && (await join(player, 'meadow', 'crowded'))) seats += 1
      }
      const guests = await tokenFor(target)
      const codes = new Tally<string>()
      let ofType = 0
      let ofAll = 0
      // The last one is beyond the bound, so that no room with a large state is made.
      const types = ['meadow', 'vault', 'pair', 'bank', 'hoard']
      for (const roomType of types)
        for (let index = 0; index < 18; index++) {
          const player = await guest(target, guests, '127.9.9.9', url)
          if (typeof player === 'string') throw new Error(player)
          open.push(player)
          const result = await joining(player, roomType, `crowded-${index % 9}`)
          codes.add(result)
          if (result !== 'joined') continue
          ofAll += 1
          if (roomType === 'meadow') ofType += 1
        }
      await leave(open)
      return {
        did: `one player got ${seats} seats in a room; one token ${ofType} seats in a room type and ${ofAll} at a node (${codes})`,
        broken: [
          seats > 4 && `one player has ${seats} seats in a room`,
          ofType > 16 && `one token has ${ofType} seats in a room type`,
          ofAll > 64 && `one token has ${ofAll} seats at a node`,
        ],
      }
    },
  },
  {
    name: 'honest-crowds',
    holds:
      '1,000 guests of one token from 1,000 addresses, 40 players behind one address, and 200 players who ask for a room at one moment meet no bound',
    ignoresTimes: true,
    async run(target) {
      const refused = new Tally<string>()
      const open: Player[] = []
      const url = target.wsUrls[0]!
      const enterAs = async (token: string, address: string): Promise<Player | undefined> => {
        // An overloaded node refuses newcomers for some seconds, because the machine is slow. The SDK tries again.
        for (;;) {
          const player = await guest(target, token, address, url)
          if (typeof player !== 'string') {
            open.push(player)
            return player
          }
          if (!player.includes('overloaded')) {
            refused.add(player)
            return undefined
          }
          await sleep(500)
        }
      }
      const guests = await tokenFor(target)
      const comeAsGuest = async (index: number): Promise<void> => {
        const address = `127.1.${Math.floor(index / 250)}.${(index % 250) + 1}`
        const player = await enterAs(guests, address)
        const result = player && (await joining(player, 'meadow', `guests-${index % 20}`))
        if (result && result !== 'joined') refused.add(result)
      }
      for (let index = 0; index < 1000; index += 100)
        await Promise.all(
          Array.from({ length: Math.min(100, 1000 - index) }, (_, i) => comeAsGuest(index + i)),
        )
      const comeToSchool = async (index: number): Promise<void> => {
        const player = await enterAs(await tokenFor(target, { sub: `pupil-${index}` }), '127.2.0.1')
        const result = player && (await joining(player, 'meadow', 'school'))
        if (result && result !== 'joined') refused.add(result)
      }
      await Promise.all(Array.from({ length: 40 }, (_, index) => comeToSchool(index)))
      const crowd = await Promise.all(
        Array.from({ length: 200 }, async (_, index) =>
          enterAs(await tokenFor(target, { sub: `crowd-${index}` }), `127.3.0.${index + 1}`),
        ),
      )
      const rooms = new Set<string>()
      await Promise.all(
        crowd.map(async (player) => {
          const roomId = player && (await joinOrCreate(player, 'pair'))
          if (roomId?.startsWith('pair:')) rooms.add(roomId)
          else if (roomId) refused.add(roomId)
        }),
      )
      await leave(open)
      return {
        did: `${open.length} of 1240 players connected; 200 players got ${rooms.size} rooms of 2; refusals: ${refused}`,
        broken: [...refused].map(([reason, times]) => `${times} honest players were refused: ${reason}`),
      }
    },
  },
  {
    name: 'full-node',
    holds: 'a project whose players fill a node keeps no player of another project out',
    // In a service of its own: 20,000 clients would be needed to fill a node with the default limits.
    ignoresTimes: true,
    async run() {
      const max = 20
      const ended: string[] = []
      const { cluster, target } = await startService({
        nodes: 1,
        roomsDir: ROOMS_DIR,
        env: { MAX_SESSIONS: `${max}`, MAX_ROOMS: `${max}` },
        onEnd: (line) => ended.push(line),
      })
      try {
        let filled = 0
        let rooms = 0
        for (let index = 0; index < max + 5; index++) {
          const player = await enter(target, target.wsUrls[0]!, await tokenFor(target, { sub: `a-${index}` }))
          if (!player) continue
          filled += 1
          if (await join(player, 'meadow', `of-${index}`)) rooms += 1
        }
        const { id } = await call(target, '/projects', { name: 'another' })
        const other = { ...target, projectId: id! }
        const broken: string[] = []
        let played = 0
        for (const sub of ['ben', 'eve']) {
          const player = await enter(other, target.wsUrls[0]!, await tokenFor(other, { sub }))
          if (!player) broken.push(`${sub} of another project was refused`)
          else if (!(await join(player, 'meadow', 'theirs')))
            broken.push(`${sub} of another project got no seat`)
          else {
            const act = {
              t: 'message',
              room_id: 'meadow:theirs',
              type: 'add',
              data: { n: 1 },
              ref: 1,
              settled: 0,
            }
            if ((await player.client.ask(act, ({ t }) => t === 'ack')) !== undefined) played += 1
            else broken.push(`a message of ${sub} got no ack`)
          }
        }
        return {
          did: `one project got ${filled} of ${max} sessions and ${rooms} rooms; ${played} of 2 players of another project played`,
          broken: [...broken, ...ended],
        }
      } finally {
        await cluster.close()
      }
    },
  },
]
