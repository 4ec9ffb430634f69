import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { connect } from 'roomful/client'
import { verifyNotice } from 'roomful/server'
import { beforeAll, describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { notifyKeys } from '../shared/notify-keys.ts'
import { runProgram } from './support/program.ts'
import { findRedisProgram } from './support/redis-server.ts'
import { newFolder, processTree, stillThere } from './support/run-folder.ts'

/** True: the cluster starts a redis-server. False: it uses the Redis of the tests. */
const ownRedis = findRedisProgram() !== undefined
const WITHIN = { timeout: 180_000, interval: 50 }

let folder = ''
beforeAll(async () => {
  folder = await newFolder()
})

const INTERNAL_TOKEN = 'the-internal-token-of-the-person-at-the-terminal'

const cluster = (words: string[] = [], own: Record<string, string> = {}) => {
  const env = { TMPDIR: folder, INTERNAL_TOKEN, ...(!ownRedis && { REDIS_URL: inject('redisUrl') }), ...own }
  const program = runProgram(['cluster', '--free-ports', '--nodes', '2', '--controls', '1', ...words], env)
  const { child, output } = program
  let read = 0
  return {
    ...program,
    type: (line: string) => void child.stdin?.write(`${line}\n`),
    /** Waits for output that matches, after the last match. */
    prints: (pattern: RegExp) =>
      vi.waitFor(() => {
        const match = pattern.exec(output().slice(read))
        if (!match) throw new Error(`no ${pattern} in: ${output().slice(read)}`)
        read += match.index + match[0].length
        return match
      }, WITHIN),
    /** Returns the addresses of the printed table. */
    async addresses() {
      await program.said(/Type help/)
      const find = (pattern: RegExp) => pattern.exec(output())?.[1] ?? ''
      return {
        games: find(/play +(\S+)/),
        page: find(/your page +(\S+)/).replace('ws:', 'http:'),
        websocket: find(/websocket +(\S+)/).replace('ws:', 'http:'),
        api: find(/control API +(\S+)/),
        admin: find(/admin +(\S+)\/admin/),
      }
    },
  }
}

const status = async (url: string) => (await fetch(url).catch(() => undefined))?.status
/** Status of a websocket port for an HTTP request. It shows that a node runs behind the load balancer. */
const UPGRADE = 426

describe('roomful cluster', () => {
  it('executes typed commands, and ends all processes at quit', async () => {
    const { child, ended, type, prints, addresses } = cluster()
    const { games, websocket, api, admin } = await addresses()
    await prints(/(haproxy|forwarder) → node-1 \d+, node-2 \d+/)
    const headers = { 'x-service-internal-token': INTERNAL_TOKEN }
    expect((await fetch(`${admin}/admin/cluster`, { headers })).status).toBe(200)
    const children = processTree(child.pid!).slice(1)
    expect(children.length).toBeGreaterThanOrEqual(ownRedis ? 5 : 4)
    await vi.waitFor(
      async () =>
        expect([await status(games), await status(`${api}/readyz`), await status(websocket)]).toEqual([
          200,
          200,
          UPGRADE,
        ]),
      WITHIN,
    )
    const shown = async () =>
      ((await (await fetch(`${games}/api/cluster`)).json()) as { nodes: { state: string }[] }).nodes.map(
        ({ state }) => state,
      )
    const shows = (...states: string[]) =>
      vi.waitFor(async () => expect(await shown()).toEqual(states), WITHIN)
    await shows('ready', 'ready')

    type('kill 1')
    await prints(/node-1 is gone \(SIGKILL\)/)
    await shows('gone', 'ready')
    type('status')
    await prints(/node-1 +– +ended \(SIGKILL\).*\n.*node-2 +\d+ +ready .*lease \d/)
    expect(await status(websocket)).toBe(UPGRADE)

    type('kil 2')
    await prints(/kil is not a command; there are kill, /)
    type('drain 7')
    await prints(/there is no 7; there are .*control-1, node-1, node-2/)
    type('drain control-1')
    await prints(/only nodes drain/)

    type('start 1')
    await prints(/node-1 is ready/)
    type('drain 2')
    await prints(/node-2 is gone \(exit code 0\)/)
    await shows('ready', 'gone')
    await vi.waitFor(async () => expect(await status(websocket)).toBe(UPGRADE), WITHIN)

    // Like the playground: kills the owner of a room. The node starts again, and the player continues.
    expect(await (await fetch(`${games}/playground`)).text()).toContain('<title>roomful playground</title>')
    const { project_id: projectId, token } = await (
      await fetch(`${games}/dev/token`, { method: 'POST', body: '{"sub":"ada"}' })
    ).json()
    const { ws_url: wsUrl } = await (await fetch(`${games}/dev/rooms`)).json()
    const client = await connect(wsUrl, { projectId, token })
    const room = await client.join('counter')
    await room.send('inc', { by: 2 })
    // The cluster polls its nodes, so a new room may not be known yet.
    await vi.waitFor(async () => {
      const killed = await fetch(`${games}/dev/kill?room=${room.id}`, { method: 'POST' })
      expect(await killed.json()).toEqual({ detail: expect.stringMatching(/^node-1 was killed/) })
    }, WITHIN)
    await prints(/node-1 is gone \(SIGKILL\)/)
    await room.send('inc', { by: 1 })
    expect(room.state).toMatchObject({ count: 3 })
    client.close()
    await prints(/node-1 is ready/)

    if (ownRedis) {
      type('redis down')
      await prints(/redis is gone/)
      // A load balancer without a ready server asks the others.
      const ready = () => status(`${api}/readyz`)
      await vi.waitFor(async () => expect(await ready()).toBe(503), WITHIN)
      expect(await status(websocket)).toBe(UPGRADE)
      type('redis up')
      await prints(/redis is ready/)
      await vi.waitFor(async () => expect(await ready()).toBe(200), WITHIN)
    }
    type('pause 1')
    await prints(/node-1 is paused/)
    const last = processTree(child.pid!).slice(1)
    type('quit')
    expect(await ended).toBe(0)
    expect(stillThere([...children, ...last])).toEqual([])
  })

  it('sends the notices of a game to its backend, and shows them with the answer', async () => {
    const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
    const received: Request[] = []
    const backend = createServer(async (request, response) => {
      const headers = request.headers as Record<string, string>
      received.push(new Request('http://backend/', { method: 'POST', headers, body: await text(request) }))
      response.writeHead(received.length === 1 ? 503 : 204).end()
    })
    await new Promise<void>((resolve) => backend.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void backend.close())
    const { port } = backend.address() as AddressInfo
    const { type, ended, addresses } = cluster([], {
      ROOMS_DIR: inject('clusterRooms'),
      NOTIFY_URL: `http://127.0.0.1:${port}`,
      NOTIFY_SECRET: secret,
    })
    const { page } = await addresses()
    const { project_id: projectId } = await (
      await fetch(`${page}/dev/token`, { method: 'POST', body: '{"sub":"ada"}' })
    ).json()
    const client = await connect(page.replace('http', 'ws'), { dev: 'ada' })
    await client.join('bank', { key: 'a' })
    const body = '{"room":"bank:a","name":"report"}'
    expect(await (await fetch(`${page}/dev/call`, { method: 'POST', body })).json()).toEqual({ reply: null })
    const shown = async () => (await (await fetch(`${page}/dev/notices?room=bank:a`)).json()).notices
    await expect.poll(shown, WITHIN).toMatchObject([{ type: 'granted', data: { gold: 1 }, answer: '204' }])
    const [key] = notifyKeys([secret], projectId)
    const notices = await Promise.all(received.map((request) => verifyNotice(request, key!)))
    expect(new Set(notices.map(({ id }) => id)).size).toBe(1)
    expect(notices.at(-1)).toMatchObject({ type: 'granted', data: { gold: 1 } })
    // The player is still connected.
    type('quit')
    expect(await ended).toBe(0)
    client.close()
  })

  it.each(['SIGTERM', 'SIGKILL'] as const)(
    'leaves no process behind after %s, also during its start and after the end of its input',
    async (signal) => {
      const { child, ended } = cluster()
      child.stdin?.end()
      await vi.waitFor(() => expect(processTree(child.pid!).slice(1).length).toBeGreaterThan(2), WITHIN)
      const children = processTree(child.pid!).slice(1)
      child.kill(signal)
      await ended
      await vi.waitFor(() => expect(stillThere(children)).toEqual([]), WITHIN)
    },
  )

  it('prints an error without a Redis, and for a wrong option', async () => {
    const nowhere = runProgram(['cluster', '--free-ports'], {
      PATH: '',
      TMPDIR: folder,
      REDIS_URL: 'redis://127.0.0.1:1',
    })
    expect(await nowhere.ended).toBe(1)
    expect(nowhere.output()).toContain('the Redis at 127.0.0.1:1 does not answer')
    const url = runProgram(['cluster', '--free-ports'], { TMPDIR: folder, NOTIFY_URL: 'localhost:5173' })
    expect(await url.ended).toBe(1)
    expect(url.output()).toContain('NOTIFY_URL is localhost:5173: use an address such as http://')
    const wrong = runProgram(['cluster', '--nodes', '0'])
    expect(await wrong.ended).toBe(2)
    expect(wrong.output()).toContain('--nodes is "0"; expected: 1 to 9')
  })
})
