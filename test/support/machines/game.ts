import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'
import { connect } from 'roomful/client'
import { withQueues } from 'roomful/client/queue'
import { roomful } from 'roomful/server'
import { expect, vi } from 'vitest'
import { WebSocket } from 'ws'
import type { QueueDescription, RoomDescription } from '../../../dataplane/descriptions.ts'
import { JournalFormat } from '../../../dataplane/room/journal.ts'
import { expectIntact, Player } from '../../players/ledger.ts'
import { callControl } from '../calls.ts'
import type { ledgerRoom } from '../cluster-room.ts'
import type bank from '../cluster-rooms/bank.ts'
import type quiz from '../cluster-rooms/quiz.ts'
import { type DocumentedDeployment, NODES, NOTICES_PORT, PATIENCE } from './documented.ts'

type LedgerRoom = ReturnType<typeof ledgerRoom>
type Place = Awaited<ReturnType<typeof newPlace>>

/** Lifetime of tokens: longer than a test. */
const TTL_SECONDS = 3600
/** Delay of timers: longer than a restart of everything on an idle machine. */
const RING_MS = 12_000

/** A game that has something of each kind that a deployment stores. `expectKept` finds all of it again. */
export async function createGame(deployment: DocumentedDeployment) {
  const place = await newPlace(deployment)
  const lists = await createLists(place)
  const rooms = await playRooms(place)
  const watched = await watchRoom(place)
  const bell = await setBell(place)
  const tickets = await queueTicket(place)
  const notices = await sendNotices(place)
  const all = [lists, rooms, watched, bell, tickets, notices]
  return {
    rooms,
    bell,
    tickets,
    notices,
    expectKept: async () => {
      for (const { expectKept } of all) await expectKept()
    },
    close: () => {
      for (const { close } of all) close()
    },
  }
}

/** A project with a key, and a way to its rooms. */
async function newPlace(deployment: DocumentedDeployment) {
  const [operatorToken, internalToken] = await Promise.all(
    ['operator-tokens', 'internal-token'].map((name) => deployment.secret(name)),
  )
  const controlUrl = deployment.url('balancer', 3000)
  const wsUrl = deployment.url('balancer', 4000).replace('http', 'ws')
  const operator = <T>(method: 'GET' | 'POST', path: string, body?: object) =>
    callControl(controlUrl, method, path, body, { authorization: `Bearer ${operatorToken}` }) as Promise<T>
  const { id: projectId } = await operator<{ id: string }>('POST', '/projects', { name: 'kept' })
  const scopes = ['token:mint', 'room:read', 'room:call', 'player:manage']
  const key = await operator<{ secret: string }>('POST', `/projects/${projectId}/keys`, { scopes })
  const backend = roomful({ url: controlUrl, projectId, key: key.secret })
  /** Answers of all nodes to a request of an operator. */
  const ofNodes = <T>(path: string): Promise<T[]> =>
    Promise.all(
      NODES.map(async (node) => {
        const headers = { 'x-service-internal-token': internalToken! }
        return (await (await fetch(`${deployment.url(node, 9100)}${path}`, { headers })).json()) as T
      }),
    )
  return {
    deployment,
    operator,
    projectId,
    backend,
    ofNodes,
    /** Returns the owner's description of a room. Undefined: no node runs the room. */
    room: async (roomId: string): Promise<RoomDescription | undefined> =>
      (await ofNodes<{ rooms: RoomDescription[] }>('/admin/runtime?include_state=1'))
        .flatMap(({ rooms }) => rooms)
        .find((room) => room.room_id === roomId),
    token: (sub: string) => backend.token({ sub, ttlSeconds: TTL_SECONDS }),
    player: async (sub: string, roomType: string, key: string): Promise<Player> =>
      Player.join({
        projectId,
        token: await backend.token({ sub, ttlSeconds: TTL_SECONDS }),
        roomType,
        key,
        doors: () => [wsUrl],
      }),
    client: async (sub: string) =>
      withQueues(
        await connect(wsUrl, {
          projectId,
          token: await backend.token({ sub, ttlSeconds: TTL_SECONDS }),
          WebSocket,
        }),
      ),
    connect: (token: string) => connect(wsUrl, { projectId, token, WebSocket }),
  }
}

/** A disabled project, a revoked key, a ban and data of a player. */
async function createLists({ operator, projectId, backend, token, connect }: Place) {
  const disabled = await operator<{ id: string }>('POST', '/projects', { name: 'disabled' })
  await operator('POST', `/projects/${disabled.id}/disable`)
  const keys = `/projects/${projectId}/keys`
  const revoked = await operator<{ id: string }>('POST', keys, {})
  await operator('POST', `${keys}/${revoked.id}/revoke`)
  const banned = await token('mallory')
  await backend.ban('mallory', { reason: 'cheating' })
  await backend.setData('ada', { name: 'Ada' })
  const read = () =>
    Promise.all([
      operator('GET', '/projects'),
      operator('GET', keys),
      operator('GET', `/projects/${projectId}/bans`),
    ])
  const kept = await read()
  return {
    expectKept: async () => {
      expect(await read()).toEqual(kept)
      await expect(
        operator('POST', '/tokens', { project_id: projectId, key_id: revoked.id }),
      ).rejects.toThrow('key_revoked')
      await expect(connect(banned)).rejects.toMatchObject({ code: 'banned' })
    },
    close: () => undefined,
  }
}

/** Rooms of each durability with members, and one whose only member has left. Their data of players is that of control. */
async function playRooms({ deployment, projectId, backend, player, room }: Place) {
  const types = ['ledger-journal', 'ledger-snapshot']
  const played = new Map<string, Player[]>()
  for (const type of types)
    played.set(`${type}:played`, [await player('ada', type, 'played'), await player('bob', type, 'played')])
  const left = await player('cleo', 'ledger-journal', 'left')
  await left.add()
  left.close()
  const lefts = backend.room<LedgerRoom>('ledger-journal', 'left')
  const { total } = (await lefts.state()).state
  return {
    /** Resolves when the stored snapshot has the last update. */
    saved: async () => {
      const { position } = played.get('ledger-snapshot:played')![0]!
      const key = `roomful:{room:${projectId}/ledger-snapshot:played}:snapshot`
      await vi.waitFor(async () => {
        const master = await deployment.master()
        const snapshot = await deployment.asOperator(master, (redis) => redis.getBuffer(key))
        expect(new JournalFormat().readSnapshot(snapshot!).seq).toBe(position.seq)
      }, PATIENCE)
    },
    expectKept: async () => {
      for (const [roomId, players] of played) {
        for (const one of players) await one.add()
        await expectIntact({ room }, roomId, players)
        const [ada] = players
        expect(await ada!.room.request('whoami', null)).toEqual({ name: 'Ada' })
      }
      expect((await lefts.state()).state).toMatchObject({ total })
    },
    close: () => {
      for (const one of [...played.values()].flat()) one.close()
    },
  }
}

/** A room with a player and a spectator. */
async function watchRoom({ client, room }: Place) {
  const [greta, walt] = [await client('greta'), await client('walt')]
  const played = await greta.join<typeof quiz>('quiz', { key: 'watched' })
  const watched = await walt.join<typeof quiz>('quiz', { key: 'watched' }, { watch: true })
  return {
    expectKept: () =>
      vi.waitFor(async () => {
        const { members = [] } = (await room('quiz:watched')) ?? {}
        expect(members.map(({ member_id: id, spectator, connected }) => [id, spectator, connected])).toEqual([
          [played.memberId, false, true],
          [watched.memberId, true, true],
        ])
      }, PATIENCE),
    close: () => {
      for (const one of [greta, walt]) one.close()
    },
  }
}

/** A room without members whose timers ring. */
async function setBell({ backend, player }: Place) {
  const bell = backend.room<LedgerRoom>('ledger-journal', 'bell')
  const names: string[] = []
  const rung = async () => (await bell.state()).state.rung
  return {
    /** Sets a timer that is due later. */
    set: async (name: string) => {
      const ringer = await player('dora', 'ledger-journal', 'bell')
      await ringer.room.send('ringAfter', { ms: RING_MS, name })
      ringer.close()
      names.push(name)
    },
    /** Expects that each timer fires once. */
    expectRung: () => vi.waitFor(async () => expect(await rung()).toEqual(names), PATIENCE),
    expectKept: async () => {
      if (names.length > 0) expect(names).toEqual(expect.arrayContaining([...(await rung())]))
    },
    close: () => undefined,
  }
}

/** A ticket that waits in a queue for another player. */
async function queueTicket({ client, ofNodes }: Place) {
  const eve = await client('eve')
  const ticket = eve.queue('ranked', {})
  const outcome = ticket.matched.then(
    (room) => room.id,
    (error: Error) => error.message,
  )
  const expectKept = () =>
    vi.waitFor(async () => {
      const all = (await ofNodes<{ queues: QueueDescription[] }>('/admin/queues')).flatMap(
        ({ queues }) => queues,
      )
      expect(all.map(({ room_id: roomId, waiting }) => [roomId, waiting])).toEqual([['ranked:default', 1]])
    }, PATIENCE)
  await expectKept()
  return {
    expectKept,
    expectMatched: async () => {
      const finn = await client('finn')
      const room = await finn.queue('ranked', {}).matched
      expect(await outcome).toBe(room.id)
      finn.close()
    },
    close: () => eve.close(),
  }
}

/** Notices that the backend has not accepted yet. */
async function sendNotices({ deployment, projectId, backend, ofNodes }: Place) {
  const sent: string[] = []
  const accepting = new Set<string>()
  /** Room of each accepted notice, by its id. */
  const accepted = new Map<string, string>()
  const server = createServer(async (request, response) => {
    const { room_id: roomId } = (await json(request)) as { room_id: string }
    const accepts = accepting.has(roomId)
    if (accepts) accepted.set(String(request.headers['webhook-id']), roomId)
    response.writeHead(accepts ? 204 : 503).end()
  }).listen(await deployment.machines.listen(NOTICES_PORT))
  const send = async (key: string) => {
    await backend.room<typeof bank>('bank', key).call('report', null, { open: true })
    sent.push(`bank:${key}`)
  }
  await send('first')
  return {
    send,
    /** From now on, the backend accepts the notices that were sent so far. */
    accept: () => {
      for (const roomId of sent) accepting.add(roomId)
    },
    expectDelivered: () =>
      vi.waitFor(() => expect([...accepted.values()].sort()).toEqual([...sent].sort()), PATIENCE),
    expectKept: async () => {
      await vi.waitFor(async () => {
        const [answer] = await ofNodes<{ pending: { notices: number } }>(
          `/admin/notices?project_id=${projectId}&limit=1`,
        )
        expect(answer!.pending.notices + accepted.size).toBe(sent.length)
      }, PATIENCE)
    },
    close: () => server.close(),
  }
}
