import { beforeAll, describe, expect, it } from 'vitest'
import { CLOSE } from '../../shared/protocol/error-codes.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import type { Player } from '../players/ledger.ts'
import { type ClusterNode, type LocalNode, type Login, sharedCluster } from '../support/cluster.ts'
import { TestClient } from '../support/gateway/test-gateway.ts'
import { until } from '../support/redis-server.ts'

const WITHIN_MS = 1000
const ROOM = 'ledger-journal:revoked'

const TICK_MS = 10

/**
 * Starts a clock of the time in which this process could run: control, the nodes and the clients are in it. On a busy machine the system
 * suspends the process. A timer then fires late, and at most twice its delay counts. Returns a function that stops the clock and returns
 * the milliseconds.
 */
function runningTime(): () => number {
  let ms = 0
  let lastMs = performance.now()
  const count = (): void => {
    const nowMs = performance.now()
    ms += Math.min(nowMs - lastMs, 2 * TICK_MS)
    lastMs = nowMs
  }
  const timer = setInterval(count, TICK_MS)
  return () => {
    clearInterval(timer)
    count()
    return ms
  }
}

/** Connects a client without the SDK, and sends hello. */
async function hello(node: ClusterNode, words: object): Promise<TestClient> {
  const client = await TestClient.open(node.wsUrl, ['roomful.v1.json'])
  client.send({ t: 'hello', ...words } as ClientMessage)
  return client
}

/** Returns the close code of a refused hello. */
const refusal = async (node: ClusterNode, words: object): Promise<number> =>
  (await (await hello(node, words)).closed).code

describe('guarantee 8: revocation takes effect within a second', () => {
  const cluster = sharedCluster()
  let nodes: LocalNode[]
  beforeAll(async () => {
    nodes = await cluster.local(3)
  })

  /** Creates a project with two keys, and a token of each. */
  async function twoKeys() {
    const { id: projectId = '' } = await cluster.call('POST', '/projects', { name: 'revocation' })
    const key = async (): Promise<Login & { revoke: () => Promise<unknown> }> => {
      const { id: keyId } = await cluster.call('POST', `/projects/${projectId}/keys`, {})
      const { token = '' } = await cluster.call('POST', '/tokens', { project_id: projectId, key_id: keyId })
      return {
        projectId,
        token,
        revoke: () => cluster.call('POST', `/projects/${projectId}/keys/${keyId}/revoke`),
      }
    }
    return { bad: await key(), good: await key() }
  }

  const closedWith = (code: 'revoked' | 'banned', players: readonly Player[]): Promise<boolean> =>
    Promise.resolve(
      players.every(
        ({ client, errors }) =>
          client.status === 'closed' && errors.some((error) => (error as { code?: string }).code === code),
      ),
    )
  const closedAsRevoked = (players: readonly Player[]): Promise<boolean> => closedWith('revoked', players)

  it('a revoked key closes its sessions at all nodes within a second, and no others', async ({
    annotate,
  }) => {
    const { bad, good } = await twoKeys()
    const revoked = await cluster.playersAt(bad, ROOM, [...nodes, ...nodes])
    const others = await cluster.playersAt(good, ROOM, nodes)
    await Promise.all([...revoked, ...others].map((player) => player.add()))

    const stopMs = runningTime()
    await bad.revoke()
    await until('all are closed', () => closedAsRevoked(revoked))
    const tookMs = stopMs()
    await annotate(`closed at three nodes after ${Math.round(tookMs)} ms`)
    expect(tookMs).toBeLessThan(WITHIN_MS)
    await Promise.all(others.map((player) => player.add()))
    await until('only the others are members', async () =>
      others.every(({ room }) => room.members.length === 3),
    )
    for (const node of nodes) {
      const words = { project_id: bad.projectId, token: bad.token }
      expect(await refusal(node, words)).toBe(CLOSE.revoked)
    }
  })

  it.each([
    ['revoked', 'POST', 'revoke', 'revoked'],
    ['banned', 'PUT', 'ban', 'banned'],
  ] as const)(
    'all nodes close the sessions of a %s player within a second, and no others',
    async (_, method, what, code) => {
      const { id: projectId = '' } = await cluster.call('POST', '/projects', { name: 'revocation' })
      const login = async (sub: string): Promise<Login> => {
        const { token = '' } = await cluster.call('POST', '/tokens', { project_id: projectId, sub })
        return { projectId, token }
      }
      const [bad, good] = [await login('mal/lory'), await login('ada')]
      const revoked = await cluster.playersAt(bad, ROOM, nodes)
      const others = await cluster.playersAt(good, ROOM, nodes)

      const stopMs = runningTime()
      await cluster.call(method, `/projects/${projectId}/subs/mal%2Flory/${what}`)
      await until('all are closed', () => closedWith(code, revoked))
      const tookMs = stopMs()
      expect(tookMs).toBeLessThan(WITHIN_MS)
      await Promise.all(others.map((player) => player.add()))
      for (const node of [...nodes, ...(await cluster.local(1))]) {
        const words = { project_id: projectId, token: bad.token }
        expect(await refusal(node, words)).toBe(CLOSE.revoked)
      }
    },
  )

  it('a disconnected session of a revoked key cannot resume at any node', async () => {
    // Undefined: a node that starts after the revocation, and so receives no message about it.
    for (const running of [...nodes, undefined]) {
      const { bad } = await twoKeys()
      const [home] = await cluster.local(1)
      const away = [await sessionAt(nodes[0]!, bad), await sessionAt(home!, bad)]
      for (const { client } of away) client.ws.terminate()
      // The node of one session receives the revocation. The node of the other session has ended before it.
      await home!.close()
      await bad.revoke()
      const elsewhere = running ?? (await cluster.local(1))[0]!
      const codes = await Promise.all(
        away.map(({ resume }) => refusal(elsewhere, { project_id: bad.projectId, resume })),
      )
      expect([CLOSE.revoked, CLOSE.resume_failed]).toContain(codes[0])
      expect(codes[1]).toBe(CLOSE.revoked)
    }
  })

  /** Connects a client without the SDK, and joins a room. Returns the fields of a resume. */
  async function sessionAt(node: ClusterNode, { projectId, token }: { projectId: string; token: string }) {
    const client = await hello(node, { project_id: projectId, token })
    const { session_id, resume_token } = await client.next('welcome')
    const [roomType = '', key = ''] = ROOM.split(':')
    client.send({ t: 'join', request_id: 1, room_type: roomType, options: { key } })
    await client.next('joined')
    return { client, resume: { session_id, resume_token, rooms: [] } }
  }

  /** Pub/sub delivers at most once: a node whose connection was broken must ask for missed revocations. */
  it('a node that missed a revocation and a ban closes the sessions when its connection is back', async ({
    annotate,
  }) => {
    const { bad } = await twoKeys()
    const revoked = await cluster.playersAt(bad, ROOM, nodes)
    const [, , deaf] = nodes
    const { projectId } = bad
    const { token = '' } = await cluster.call('POST', '/tokens', { project_id: projectId, sub: 'mallory' })
    const banned = await cluster.playersAt({ projectId, token }, ROOM, [deaf!])
    deaf!.link.hold(true)
    await bad.revoke()
    await cluster.call('PUT', `/projects/${projectId}/subs/mallory/ban`)
    await until('the others are closed', () => closedAsRevoked(revoked.slice(0, 2)))
    expect(revoked[2]!.client.status).toBe('online')
    // The messages in flight are lost.
    deaf!.link.cut()
    deaf!.link.hold(false)
    const back = performance.now()
    await until('the last one is closed', () => closedAsRevoked(revoked))
    await until('the banned player is closed', () => closedWith('banned', banned))
    await annotate(`closed ${Math.round(performance.now() - back)} ms after the connection was back`)
  })
})
