import { connect, type Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { agreed, expectIntact, expectNoErrors, expectStream } from './players/ledger.ts'
import type { Login } from './support/cluster.ts'
import { type Answer, expectProblem, type Request } from './support/control-api.ts'
import { BALANCERS, type ControlProcess, Deployment } from './support/deployment.ts'
import { until } from './support/redis-server.ts'

const ROOM = 'ledger-journal:balanced'
const PLAYERS = 6
/** Time limit until all players continue, for a busy machine. */
const PLAY_ON_MS = 40_000
const WORKERS = 6
const ROUNDS = 60
/** The connection ended without an answer. */
const UNANSWERED = 0
/** The caller does not know whether a control process has handled the request. */
const UNSERVED = [UNANSWERED, 503]
/** Time limit of a request in the configurations, and tolerance for a busy machine. */
const SLOW_MS = 5000
const SPARE_MS = 3000

describe.each(BALANCERS)('behind %s', (kind) => {
  let deployment: Deployment
  let login: Login
  beforeAll(async () => {
    deployment = await Deployment.start({ balancer: kind, nodeEnv: { HEARTBEAT_SECONDS: '1' } })
    login = await deployment.login()
  })
  afterEach(() => deployment?.restore())
  afterAll(() => deployment?.close())

  const playersOf = async (roomId: string) => {
    const players = await deployment.players(PLAYERS, login, roomId)
    const stops = players.map((player) => player.play(50))
    const playOn = async () => {
      const acked = players.map((player) => player.acked)
      const on = async () => players.every((player, i) => player.acked > acked[i]! + 10)
      await until('all continue', on, PLAY_ON_MS)
    }
    return { players, playOn, stop: () => Promise.all(stops.map((stop) => stop())) }
  }

  it('players at all nodes play in one room, and reconnect to another node', async () => {
    const { players, playOn, stop } = await playersOf(ROOM)
    await playOn()
    const nodes = () => Promise.all(players.map((player) => deployment.nodeOf(ROOM, player)))
    const before = await nodes()
    expect(new Set(before).size).toBe(3)
    await until('some have reconnected to another node', async () => {
      for (const player of players) player.cut()
      await playOn()
      return (await nodes()).some((node, i) => node !== before[i])
    })
    await stop()
    await expectIntact(deployment, ROOM, players)
  })

  it('each node has a path, and behind haproxy each worker; the path of a node that is not ready leads to another node or fails', async () => {
    for (const { nodeId } of deployment.nodes) {
      const player = await deployment.player(login, ROOM, `/${nodeId}`)
      expect(await deployment.nodeOf(ROOM, player)).toBe(nodeId)
    }
    if (kind === 'haproxy') {
      const port = ({ wsUrl }: { wsUrl: string }) => Number(new URL(wsUrl).port)
      const [low, high] = deployment.nodes.toSorted((a, b) => port(a) - port(b))
      // For the load balancer, the process at the port of a node plus n is the node's worker n. So this is a path to another node.
      const path = `/${low!.nodeId}-${port(high!) - port(low!)}`
      const player = await deployment.player(login, ROOM, path)
      expect(await deployment.nodeOf(ROOM, player)).toBe(high!.nodeId)
    }
    const [gone, ...others] = deployment.nodes
    await gone!.drain()
    const connects = deployment.player(login, 'ledger-journal:path', `/${gone!.nodeId}`)
    if (kind === 'nginx') await expect(connects).rejects.toMatchObject({ code: 'connection_failed' })
    else
      expect(others.map(({ nodeId }) => nodeId)).toContain(
        await deployment.nodeOf('ledger-journal:path', await connects),
      )
  })

  // A drain is in the rolling restart of loadtest-scenarios.system.test.ts, behind the same haproxy.
  it('clients of a killed node continue through the other nodes, and lose no acknowledged message', async () => {
    const roomId = `${ROOM}-kill`
    const { players, playOn, stop } = await playersOf(roomId)
    await playOn()
    const [node] = deployment.nodes
    node!.kill()
    await playOn()
    await stop()
    await expectIntact(deployment, roomId, players)
    const nodes = await Promise.all(players.map((player) => deployment.nodeOf(roomId, player)))
    expect(nodes).not.toContain(node!.nodeId)
  })

  it('a suspended node gets no clients, and its clients reconnect to other nodes', async () => {
    const roomId = `${ROOM}-hang`
    const { players, playOn, stop } = await playersOf(roomId)
    await playOn()
    const [, , node] = deployment.nodes
    node!.stop()
    await playOn()
    await stop()
    // After some seconds, a client may get the whole state of a busy room instead of all updates.
    const { state } = await agreed(deployment, roomId, players)
    expectNoErrors(players)
    for (const { heard, room, acked, sent, id } of players) {
      expect(acked).toBe(sent)
      expect(room.state).toEqual(state)
      expect(room.state.disorder).toBe(0)
      expect(room.state.accounts[id]).toEqual({ count: sent, last: sent })
      expectStream(heard)
    }
    const nodes = await Promise.all(players.map((player) => deployment.nodeOf(roomId, player)))
    expect(nodes).not.toContain(node!.nodeId)
  })

  it('no repeatable request fails when a control process is killed', async ({ annotate }) => {
    const { projectId } = login
    const rounds = Array.from({ length: ROUNDS }, (_, round) => round)
    const killAt = ROUNDS / 2
    const plain: { name: string; status: number }[] = []
    let repeated = 0
    // Like a backend: repeats an unanswered request with the same key.
    const repeatable = async (line: string, request: Request): Promise<number> => {
      let answer = await status(line, request)
      if (!UNSERVED.includes(answer)) return answer
      repeated += 1
      await until(`${line} is answered`, async () => {
        answer = await status(line, request)
        return !UNSERVED.includes(answer)
      })
      return answer
    }
    const worker = async () => {
      for (let round = rounds.shift(); round !== undefined; round = rounds.shift()) {
        const [token, once, plainly] = await Promise.all([
          repeatable('POST /tokens', { body: { project_id: projectId } }),
          repeatable('POST /projects', {
            body: { name: `once ${round}` },
            headers: { 'idempotency-key': `${kind} ${round}` },
          }),
          status('POST /projects', { body: { name: `plain ${round}` } }),
        ])
        expect([token, once]).toEqual([200, 201])
        plain.push({ name: `plain ${round}`, status: plainly })
        if (plain.length === killAt) deployment.controls[0]!.kill()
      }
    }
    await Promise.all(Array.from({ length: WORKERS }, worker))

    // Requests in flight at the kill get an error or no answer. The balancer repeats none of them.
    const failed = plain.filter(({ status }) => status !== 201)
    await annotate(
      `${failed.length} of ${plain.length} requests without a key failed; ${repeated} of the others were repeated`,
    )
    for (const { status } of failed) expect([502, ...UNSERVED]).toContain(status)
    expect(failed.length).toBeLessThanOrEqual(WORKERS)
    // A repeatable request fails only while the balancer knows no other ready process, for example because its check was late.
    expect(repeated).toBeLessThanOrEqual(2 * WORKERS)
    const names = await projectNames()
    for (const { name, status } of plain) {
      const times = names.filter((known) => known === name).length
      if (status === 201) expect(times, name).toBe(1)
      else expect(times, name).toBeLessThanOrEqual(1)
    }
    const once = names.filter((name) => name.startsWith('once'))
    expect(once).toHaveLength(ROUNDS)
    expect(new Set(once).size).toBe(ROUNDS)
  })

  const status = (line: string, request: Request): Promise<number> =>
    deployment.call(line, request).then(
      (answer) => answer.status,
      () => UNANSWERED,
    )

  async function projectNames(): Promise<string[]> {
    const names: string[] = []
    let cursor: string | null = ''
    while (cursor !== null) {
      const { body } = await deployment.call(`GET /projects?limit=200${cursor && `&cursor=${cursor}`}`)
      names.push(...body.projects.map(({ name }: { name: string }) => name))
      cursor = body.next_cursor
    }
    return names
  }

  it('a client that sends a request byte by byte is disconnected, and does not delay others', async () => {
    const { controlUrl, wsUrl } = deployment.balancer
    const upgrade = trickle(wsUrl, 'GET / HTTP/1.1\r\nhost: roomful\r\nx-slow: ')
    const upload = trickle(
      controlUrl,
      `POST /tokens HTTP/1.1\r\nhost: roomful\r\nauthorization: Bearer ${deployment.operatorToken}\r\ncontent-type: application/json\r\ncontent-length: 60000\r\n\r\n`,
    )
    const stalled = trickle(
      controlUrl,
      'POST /tokens HTTP/1.1\r\nhost: roomful\r\ncontent-length: 60000\r\n\r\n',
      0,
    )

    const player = await deployment.player(login, `${ROOM}-slow`)
    for (let round = 0; round < 20; round++) {
      const began = performance.now()
      expect((await deployment.call('POST /tokens', { body: { project_id: login.projectId } })).status).toBe(
        200,
      )
      await player.add()
      expect(performance.now() - began).toBeLessThan(SPARE_MS)
    }
    const ends = [upgrade.ended, stalled.ended, ...(kind === 'haproxy' ? [upload.ended] : [])]
    for (const { afterMs, said } of await Promise.all(ends)) {
      expect(afterMs).toBeLessThan(SLOW_MS + SPARE_MS)
      expect(said).toMatch(kind === 'haproxy' ? /^HTTP\/1.1 408 / : /^$/)
    }
    // nginx limits the time between two bytes of a body, not the whole time. It buffers the body, so control is not affected.
    if (kind === 'nginx') expect(upload.open()).toBe(true)
    upload.end()
  })

  it('a websocket message in slow fragments is accepted', async () => {
    const socket = new WebSocket(deployment.balancer.wsUrl, ['roomful.v1.json'])
    const received: string[] = []
    socket.on('message', (data) => received.push((JSON.parse(String(data)) as { t: string }).t))
    await new Promise((resolve) => socket.once('open', resolve))
    const text = JSON.stringify({ t: 'hello', project_id: login.projectId, token: login.token })
    const pieces = text.match(/.{1,40}/gs)!
    for (const [i, piece] of pieces.entries()) {
      socket.send(piece, { fin: i === pieces.length - 1, binary: false })
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    await until('welcome has arrived', async () => received.includes('welcome'))
    socket.close()
  })

  it('a body of more than 64 KiB is refused, with or without a length', async () => {
    const fits = await deployment.call('POST /tokens', { body: padded(65_536) })
    expectProblem(fits, 400, 'invalid_request')
    expect(fits.body.errors[0].path).toBe('padding')
    expectProblem(await deployment.call('POST /tokens', { body: padded(65_537) }), 413, 'payload_too_large')
    const body = padded(70_000)
    const chunked = trickle(
      deployment.balancer.controlUrl,
      `POST /tokens HTTP/1.1\r\nhost: roomful\r\nauthorization: Bearer ${deployment.operatorToken}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
      0,
    )
    expect((await chunked.ended).said).toMatch(/^HTTP\/1.1 413 .*"code":"payload_too_large"/s)
  })

  it('control and nodes answer unknown paths, with the id of the request', async () => {
    expectProblem(await deployment.call('GET /nowhere'), 404, 'not_found')
    const given = await deployment.call('GET /projects?limit=1', { headers: { 'x-request-id': 'mine-7' } })
    expect(given.headers.get('x-request-id')).toBe('mine-7')
    expect((await fetch(deployment.balancer.wsUrl.replace('ws', 'http'))).status).toBe(426)
    expect((await fetch(`${deployment.balancer.operationsUrl}/healthz`)).status).toBe(200)
  })
})

describe('three control processes behind a load balancer', () => {
  let deployment: Deployment
  let controls: readonly ControlProcess[]
  beforeAll(async () => {
    deployment = await Deployment.start({ balancer: 'haproxy', controls: 3, nodes: 2 })
    controls = deployment.controls
  })
  afterAll(() => deployment?.close())

  /** Sends a call to each process at the same time. */
  const atEach = (line: string, request: Request = {}): Promise<Answer[]> =>
    Promise.all(controls.map((control) => deployment.callAt(control, line, request)))
  const statuses = (answers: readonly Answer[]) => answers.map(({ status }) => status)

  const newProject = async (name: string): Promise<string> =>
    (await deployment.call('POST /projects', { body: { name } })).body.id

  it('each serves a share of the requests', async () => {
    const projectId = await newProject('shared')
    const issued = async () =>
      Promise.all(
        controls.map(async (control) => {
          const { body } = await deployment.callAt(control, 'GET /metrics', { as: null })
          const line = /^service_tokens_issued_total{signed_with="project"} (\d+)$/m.exec(body)
          return Number(line?.[1])
        }),
      )
    const before = await issued()
    for (let count = 0; count < 12; count++)
      expect((await deployment.call('POST /tokens', { body: { project_id: projectId } })).status).toBe(200)
    const shares = (await issued()).map((count, i) => count - before[i]!)
    expect(shares.reduce((sum, share) => sum + share)).toBe(12)
    expect(Math.min(...shares)).toBeGreaterThan(1)
  })

  it('all read, list and issue tokens for projects and keys that one has just created', async () => {
    for (const creator of controls) {
      const created = await deployment.callAt(creator, 'POST /projects', { body: { name: 'seen by all' } })
      const projectId = created.body.id
      expect(statuses(await atEach('POST /tokens', { body: { project_id: projectId } }))).toEqual([
        200, 200, 200,
      ])
      const key = (await deployment.callAt(creator, `POST /projects/${projectId}/keys`)).body
      const own = await atEach('POST /tokens', { as: key.secret, body: { project_id: projectId } })
      expect(own.map(({ body }) => body.claims.key_id)).toEqual([key.id, key.id, key.id])
      for (const { body } of await atEach(`GET /projects/${projectId}/keys`))
        expect(body.keys.map(({ id }: { id: string }) => id)).toEqual([key.id])
      for (const { body } of await atEach('GET /projects?limit=1'))
        expect(body.projects[0]).toEqual(created.body)
    }
  })

  it('all refuse a key that one has just revoked, and its sessions end', async ({ annotate }) => {
    const projectId = await newProject('revoked')
    const key = (await deployment.call(`POST /projects/${projectId}/keys`)).body
    const other = (await deployment.call(`POST /projects/${projectId}/keys`)).body
    const login = async ({ secret }: { secret: string }) => {
      const { body } = await deployment.call('POST /tokens', { as: secret, body: { project_id: projectId } })
      return { projectId, token: body.token as string }
    }
    const players = await deployment.players(4, await login(key), 'ledger-none:revoked')
    const stays = await deployment.player(await login(other), 'ledger-none:revoked')
    // Each process has just used the key. A cached key must not outlive the revocation.
    const mint = () => atEach('POST /tokens', { as: key.secret, body: { project_id: projectId } })
    const mintFor = () => atEach('POST /tokens', { body: { project_id: projectId, key_id: key.id } })
    expect(statuses([...(await mint()), ...(await mintFor())])).toEqual([200, 200, 200, 200, 200, 200])

    const [first] = controls
    const began = performance.now()
    const revoked = await deployment.callAt(first!, `POST /projects/${projectId}/keys/${key.id}/revoke`)
    expect(revoked.status).toBe(200)
    for (const answer of [...(await mint()), ...(await mintFor())]) expectProblem(answer, 403, 'key_revoked')
    const refusedMs = performance.now() - began
    await until('every session under the key has ended', async () =>
      players.every(({ client }) => client.status === 'closed'),
    )
    const closedMs = performance.now() - began
    await annotate(
      `refused by all after ${Math.round(refusedMs)} ms, sessions closed after ${Math.round(closedMs)} ms`,
    )
    await stays.add()
    expect(
      (await deployment.call('POST /tokens', { as: other.secret, body: { project_id: projectId } })).status,
    ).toBe(200)
    deployment.reset()
  })

  it('the balancer answers with Retry-After while no process runs', async () => {
    for (const control of controls) control.kill()
    await until('the balancer knows it', async () => (await deployment.call('GET /projects')).status === 503)
    const answer = await deployment.call('GET /projects')
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
    expect(answer.headers.get('retry-after')).toBe('1')
  })
})

/** Returns a body for `POST /tokens` of this size, with an unknown field. */
function padded(bytes: number): string {
  const empty = JSON.stringify({ project_id: 'prj_x', padding: '' })
  return JSON.stringify({ project_id: 'prj_x', padding: 'x'.repeat(bytes - empty.length) })
}

/** Sends the beginning of a request, and then a byte every `everyMs`. 0: no more bytes. */
function trickle(url: string, beginning: string, everyMs = 200) {
  const { hostname, port } = new URL(url)
  const socket: Socket = connect({ host: hostname, port: Number(port) })
  const began = performance.now()
  let said = ''
  socket.write(beginning)
  const timer = everyMs > 0 ? setInterval(() => socket.write('x'), everyMs) : undefined
  socket.on('data', (chunk) => (said += chunk))
  socket.on('error', () => undefined)
  const ended = new Promise<{ afterMs: number; said: string }>((resolve) => {
    socket.once('close', () => {
      clearInterval(timer)
      resolve({ afterMs: performance.now() - began, said })
    })
  })
  return { ended, open: () => !socket.destroyed, end: () => socket.destroy() }
}
