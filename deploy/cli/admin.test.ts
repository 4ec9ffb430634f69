import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import * as v from 'valibot'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { type Client, connect } from '../../client/index.ts'
import { defineRoom } from '../../dataplane/index.ts'
import { notifyKeys } from '../../shared/notify-keys.ts'
import { sharedCluster, type ClusterNode as TestNode } from '../../test/support/cluster.ts'
import { runAdmin } from './admin.ts'
import { type ClusterNode, DeploymentApi } from './admin-api.ts'

const arena = defineRoom({
  type: 'arena',
  create: () => ({ score: 7, deck: ['ace'] }),
  layers: { deck: null },
  notices: { scored: v.number() },
  messages: {
    add: {
      handle(state) {
        state.score += 1
      },
    },
    report: {
      handle(state, _input, ctx) {
        ctx.notify('scored', state.score)
      },
    },
  },
})

/** Backend that receives the notices. It answers with these statuses, and then with 204. */
const answers: number[] = []
const backend = createServer((request, response) => {
  request.resume().on('end', () => response.writeHead(answers.shift() ?? 204).end())
})

const NOTIFY_SECRET = [7, 8].map((byte) => `whsec_${Buffer.alloc(32, byte).toString('base64')}`)

const cluster = sharedCluster({
  redis: 'none',
  leaseMs: 2000,
  controlApiTokens: ['the-operator'],
  notifySecret: NOTIFY_SECRET,
})
let nodes: readonly TestNode[]
const clients: Client[] = []
let env: Record<string, string>
let projectId: string

beforeAll(async () => {
  await new Promise<void>((resolve) => backend.listen(0, '127.0.0.1', resolve))
  nodes = await cluster.local(2, {
    rooms: [arena],
    drainSeconds: 0,
    notifySecret: NOTIFY_SECRET,
    notifyUrl: `http://127.0.0.1:${(backend.address() as AddressInfo).port}/`,
  })
  env = {
    CONTROL_URL: cluster.control.url,
    ADMIN_URL: nodes[0]!.adminUrl,
    CONTROL_API_TOKENS: 'the-operator,the-next-one',
    INTERNAL_TOKEN: `${cluster.internalToken},the-next-one`,
  }
  const addresses = async () =>
    (await json('nodes')).nodes.filter((node: object) => 'admin_url' in node).length
  await until(addresses, 2)
  projectId = JSON.parse((await admin('projects', 'create', 'a game', '--json')).out).id
})

afterAll(() => {
  for (const client of clients) client.close()
  backend.close()
})

/** Runs `roomful admin` with these words. */
async function admin(...words: string[]) {
  let out = ''
  let err = ''
  const code = await runAdmin(words, env, {
    stdout: { write: (text) => (out += text) },
    stderr: { write: (text) => (err += text) },
  })
  return { code, out, err }
}

const json = async (...words: string[]) => JSON.parse((await admin(...words, '--json')).out)

/** Cells of a table, without the headings. */
const cells = (out: string): string[][] =>
  out
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line) => line.split(/ {2,}/))

/** A player in a room of the project, at node 1 or 2. */
async function player(sub: string, key: string, node = 0) {
  const { out } = await admin('token', '--sub', sub, '--project', projectId)
  const client = await connect(nodes[node]!.wsUrl, { projectId, token: out.trim() })
  clients.push(client)
  const room = await client.join<typeof arena>('arena', { key })
  const closed = new Promise<string>((resolve) =>
    client.onConnectionChange((_, error) => error && resolve(error.code)),
  )
  const left = new Promise<string>((resolve) => room.onLeave((reason) => resolve(reason)))
  return { client, room, closed, left }
}

/** Polls for a value. Nodes know each other's state with a delay of up to a second. */
const until = <T>(look: () => Promise<T>, expected: T): Promise<void> =>
  vi.waitFor(async () => expect(await look()).toEqual(expected), { timeout: 180_000 })

describe('roomful admin', () => {
  it('prints the notify key of a project, one for each value of NOTIFY_SECRET', async () => {
    const { out } = await admin('notify-key', '--project', projectId)
    expect(out).toBe(`${notifyKeys(NOTIFY_SECRET, projectId).join(',')}\n`)
    expect((await json('notify-key', '--project', projectId)).notify_key).toBe(out.trim())
    expect(await admin('notify-key', '--project', 'prj_nobody')).toMatchObject({
      code: 1,
      err: expect.stringContaining('404 project_not_found'),
    })
  })

  it('finds an abusive room by its player and closes it', async () => {
    const { left } = await player('mallory', 'stuck', 1)
    await player('ada', 'fine')
    const found = await admin('rooms', 'mallory')
    expect(found.out).toMatch(/^PROJECT_ID +ROOM_ID [^\n]*MEMBER_COUNT [^\n]*NODE_ID/)
    expect(cells(found.out)).toHaveLength(1)
    const [[project, room]] = cells(found.out) as [[string, string]]
    expect([project, room]).toEqual([projectId, 'arena:stuck'])
    const closed = { project_id: projectId, room_id: room, ended: true }
    expect(await json('close', room, '--project', project)).toEqual(closed)
    expect(await left).toBe('closed')
    expect((await admin('rooms', 'mallory')).out).toBe('none\n')
    expect((await admin('close', room, '--project', project)).err).toBe(
      `roomful admin: control answered 404 room_not_found: there is no such room\n`,
    )
  })

  it('shows a room, kicks a player, and keeps the player out until unban', async () => {
    const { left } = await player('mallory', 'foul', 1)
    const { out } = await admin('room', 'arena:foul', '--include-state', '--project', projectId)
    expect(JSON.parse(out)).toMatchObject({ room_id: 'arena:foul', state: { score: 7 } })
    expect(out).not.toContain('ace')
    expect(
      (await json('room', 'arena:foul', '--include-state', '--include-layers', '--project', projectId)).state,
    ).toEqual({
      score: 7,
      deck: ['ace'],
    })
    expect((await json('room', 'arena:foul', '--project', projectId)).members).toMatchObject([
      { sub: 'mallory', connected: true },
    ])
    expect((await admin('kick', 'arena:foul', 'mallory', '--project', projectId)).code).toBe(0)
    expect(await left).toBe('kicked')
    const { closed } = await player('mallory', 'foul')
    expect((await admin('ban', 'mallory', '--reason', 'foul play', '--project', projectId)).code).toBe(0)
    expect(await closed).toBe('banned')
    expect(cells((await admin('bans', '--project', projectId)).out)).toEqual([
      expect.arrayContaining(['mallory', 'foul play']),
    ])
    await expect(player('mallory', 'foul')).rejects.toMatchObject({ code: 'banned' })
    expect((await admin('unban', 'mallory', '--project', projectId)).code).toBe(0)
    await player('mallory', 'foul')
  })

  it('lists the largest rooms of all nodes, and ends a session at another node', async () => {
    const players = [await player('bob', 'large', 1), await player('eve', 'large', 1)]
    const largest = async () => {
      const [{ room_id: room, member_count: members }] = (await json('rooms')).rooms
      return [room, members]
    }
    await until(largest, ['arena:large', 2])
    const { sessions } = await json('sessions', 'bob')
    expect(sessions).toMatchObject([{ sub: 'bob', rooms: ['arena:large'], node_id: 'node-2' }])
    expect(await json('end-session', sessions[0].session_id)).toMatchObject({ ended: true })
    expect(await players[0]!.closed).toBe('revoked')
    await until(async () => (await json('rooms', 'large')).rooms[0].member_count, 1)
  })

  it('disables a project: its sessions end on both nodes, and it gets no tokens until it is enabled', async () => {
    const other = (await json('projects', 'create', 'other')).id
    const players = [await player('fay', 'one'), await player('gil', 'one', 1)]
    expect((await admin('token')).err).toContain('there are several projects: give --project ID')
    const disabled = { id: projectId, disabled_at: expect.any(String) }
    expect(await json('projects', 'disable', projectId)).toMatchObject(disabled)
    for (const { closed } of players) expect(await closed).toBe('revoked')
    const refused = await admin('token', '--project', projectId)
    expect([refused.code, refused.err]).toEqual([1, expect.stringContaining('403 project_disabled')])
    await admin('projects', 'enable', projectId)
    const again = await player('fay', 'one')
    await again.room.send('add', null)
    expect((await admin('projects', 'delete', other)).err).toContain('409 conflict')
    await admin('projects', 'disable', other)
    const deleted = { id: other, deleted: true, ended_rooms: 0 }
    expect(await json('projects', 'delete', other)).toEqual(deleted)
  })

  it('cordons a node by its name, so that new rooms and sessions go to the other', async () => {
    expect(await json('cordon', 'node-2')).toEqual({ cordoned: true })
    const states = async () => cells((await admin('nodes')).out).map(([node, state]) => [node, state])
    await until(states, [
      ['node-1', 'serving'],
      ['node-2', 'cordoned'],
    ])
    expect((await fetch(`${nodes[1]!.adminUrl}/readyz`)).status).toBe(503)
    for (const key of ['a', 'b', 'c']) await player('hal', key)
    const { rooms } = await json('rooms', 'hal')
    expect(rooms.map(({ node_id: node }: { node_id: string }) => node)).toEqual([
      'node-1',
      'node-1',
      'node-1',
    ])
    expect(await json('uncordon', 'node-2')).toEqual({ cordoned: false })
    await until(states, [
      ['node-1', 'serving'],
      ['node-2', 'serving'],
    ])
  })

  it('says why a node is not ready', async () => {
    const own = await json('nodes')
    const reason = { code: 'clock_wrong', detail: 'its clock is 40 s ahead' }
    const server = createServer((_, response) => {
      const [first, second] = own.nodes
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ nodes: [first, { ...second, not_ready: [reason] }] }))
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void server.close())
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const [ready, other] = cells((await admin('nodes', '--admin-url', address)).out)
    expect([ready![1], ready!.at(-1)]).toEqual(['serving', '-'])
    expect([other![1], other!.at(-1)]).toEqual(['not ready', 'clock_wrong (its clock is 40 s ahead)'])
  })

  it('lists the dead letters of a project, and sends them again', async () => {
    answers.push(400, 400)
    const { room } = await player('jo', 'dead')
    await room.send('report')
    const dead = async () => (await json('notices')).dead_letters.map(({ type }: { type: string }) => type)
    await until(dead, ['scored'])
    const refused = await admin('notices', 'resend')
    expect([refused.code, refused.err]).toEqual([1, expect.stringMatching(/has not accepted .*: HTTP 400/)])
    expect(await json('notices', 'resend')).toEqual({ delivered: 1 })
    expect(await admin('notices')).toEqual({
      code: 0,
      out: 'none\n',
      err: 'roomful admin: 0 notices of 0 rooms wait\n',
    })
  })

  it('creates, rotates, revokes and lists keys', async () => {
    const key = await json('keys', 'create', 'backend', '--scopes', 'token:mint,room:read')
    expect(key).toMatchObject({
      name: 'backend',
      scopes: ['token:mint', 'room:read'],
      secret: expect.any(String),
    })
    const fresh = await json('keys', 'rotate', key.id, '--grace-seconds', '60')
    expect((await json('keys', 'revoke', key.id)).status).toBe('revoked')
    expect((await json('keys')).keys).toMatchObject([
      { id: fresh.id, name: 'backend', status: 'active' },
      { id: key.id, name: 'backend', status: 'revoked' },
    ])
  })

  it('prints names that players have chosen without their control characters', async () => {
    await player('ivy', 'red\u001b[31m')
    const { out } = await admin('rooms', 'ivy')
    expect(out).toContain('arena:red�[31m')
  })

  it.each([
    [['frobnicate'], 2, /frobnicate is not a command: use nodes/],
    [['rom'], 2, /Did you mean room\?/],
    [['projects', 'smash-it'], 2, /projects smash-it is not a command: use projects create, /],
    [['nodes', '--state'], 2, /Unknown option '--state': nodes has --project, --json/],
    [['kick', 'arena:a', 'b', '--reason'], 2, /'--reason <value>' argument missing: kick has --reason/],
    [['keys', 'rotate', 'key_a', '--grace-seconds', 'soon'], 1, /400 .*\n {2}grace_seconds: must be a whole/],
    [['close'], 2, /close has 0 words: give ROOM/],
    [['close', 'arena'], 2, /arena is no room: give type:key, such as/],
    [['drain', 'node-9'], 2, /there is no node node-9: use node-1, node-2/],
    [['nodes', '--admin-url', 'ftp://x'], 2, /ADMIN_URL is "ftp:\/\/x"/],
    [
      ['nodes', '--admin-url', 'http://me:secret@x/'],
      2,
      /ADMIN_URL is "http:\/\/…@x\/"; .*without user and password/,
    ],
    [
      ['nodes', '--admin-url', 'http://127.0.0.1:1'],
      1,
      /does not answer at http:\/\/127.0.0.1:1 \(.+\): is ADMIN_URL right/,
    ],
    [['projects', '--control-api-tokens', 'wrong'], 1, /401 unauthenticated: .* Set CONTROL_API_TOKENS/],
    [['nodes', '--internal-token', 'wrong'], 1, /401 unauthenticated: .* Set INTERNAL_TOKEN/],
  ])('%s prints the error', async (words, code, message) => {
    const answer = await admin(...words)
    expect([answer.code, answer.out]).toEqual([code, ''])
    expect(answer.err).toMatch(message)
  })

  it('refuses unknown words of a command', async () => {
    for (const words of ['projects delete A B', 'projects disable A B', 'keys revoke A B', 'rooms A B']) {
      const { code, err } = await admin(...words.split(' '))
      expect([words, code, err]).toEqual([words, 2, expect.stringMatching(/ words: give /)])
    }
  })

  it('shows the help for all commands and for one', async () => {
    expect((await admin()).out).toContain('roomful admin kick ROOM SUB')
    expect((await admin('room', '--help')).out).toBe(
      [
        'roomful admin room ROOM',
        '    shows the members of a room, and its state',
        '    --include-state: 1: with the state, without its hidden layers.',
        '    --include-layers: 1: with the hidden layers. Takes an operator token.\n',
      ].join('\n'),
    )
  })
})

describe('DeploymentApi', () => {
  afterEach(() => void vi.unstubAllGlobals())

  it('waits 5 s for the answer to a read, and names the address that has not answered and what to use', async () => {
    // A suspended process: its kernel accepts connections.
    const silent = createServer(() => {})
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`
    const started = AbortSignal.timeout
    const waits: number[] = []
    const timeout = vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => {
      waits.push(ms)
      return started.call(AbortSignal, ms / 100)
    })
    onTestFinished(() => {
      timeout.mockRestore()
      silent.closeAllConnections()
      silent.close()
    })
    expect(await admin('nodes', '--admin-url', url)).toEqual({
      code: 1,
      out: '',
      err: `roomful admin: the node has not answered at ${url} within 5 s. It may hang. Use the admin address of another node: --admin-url. Commands for control, such as room, need none.\n`,
    })
    expect((await admin('projects', '--control-url', url)).err).toBe(
      `roomful admin: control has not answered at ${url} within 5 s. It may hang. Use the address of another control process: --control-url.\n`,
    )
    expect(waits).toEqual([5000, 5000])
    const api = new DeploymentApi({
      controlUrl: url,
      adminUrl: url,
      controlApiTokens: undefined,
      internalToken: undefined,
    })
    await expect(api.node('POST', '/admin/drain', {})).rejects.toThrow('within 40 s')
    await expect(api.control('DELETE', '/projects/prj_a', {})).rejects.toThrow('within 40 s')
    await expect(api.control('GET', '/projects/prj_a/rooms/arena/a', {})).rejects.toThrow('within 40 s')
  })

  it.each([
    ['http://a:1', 'http://inside:1/worker/2', 'http://a:1/worker/2/admin/drain'],
    ['http://a:1/', 'http://inside:1/worker/2', 'http://a:1/worker/2/admin/drain'],
    ['http://a:1/worker/2', 'http://inside:1/worker/2', 'http://a:1/worker/2/admin/drain'],
    ['http://a:1', 'http://inside:1', 'http://a:1/admin/drain'],
    ['http://a:1', undefined, 'http://a:1/admin/drain'],
  ])(
    'ADMIN_URL %s with a node at %s: the request goes only to that worker',
    async (adminUrl, own, expected) => {
      const fetched = vi.fn(async (_url: string) => new Response('{}'))
      vi.stubGlobal('fetch', fetched)
      const config = { controlUrl: '', adminUrl, controlApiTokens: undefined, internalToken: undefined }
      const node = { node_id: 'n', self: true, ...(own !== undefined && { admin_url: own }) }
      await new DeploymentApi(config).node('POST', '/admin/drain', {}, node as ClusterNode)
      expect(fetched.mock.calls[0]![0]).toBe(expected)
    },
  )

  it.each([['null'], ['[]'], ['{}'], ['{"nodes":{}}'], ['{"nodes":[null]}'], ['<html>']])(
    'names the wrong variable if another service answers %s',
    async (text) => {
      vi.stubGlobal('fetch', async () => new Response(text))
      const config = {
        controlUrl: '',
        adminUrl: 'http://a:1',
        controlApiTokens: undefined,
        internalToken: undefined,
      }
      await expect(new DeploymentApi(config).nodes()).rejects.toThrow(
        'http://a:1 answered 200 with nothing that roomful says: is ADMIN_URL right?',
      )
    },
  )
})
