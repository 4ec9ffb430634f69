import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, test, vi } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { clusterView, Nodes } from './nodes.ts'

const servers: { close(): void }[] = []
afterEach(() => {
  for (const server of servers.splice(0)) server.close()
})

interface Script {
  node_id: string
  epoch?: number
  draining?: boolean
  /** Members of the room, by the node of their sockets. */
  members?: Record<string, string>
}

/** Admin port of a node with scripted answers. Undefined: no answer. */
async function node(script: { now: Script | undefined }) {
  const server = createServer((request, response) => {
    const says = script.now
    if (!says) return
    if (request.headers['x-service-internal-token'] !== 'internal') {
      response.writeHead(401).end()
      return
    }
    const members = Object.entries(says.members ?? {}).map(([memberId, nodeId]) => ({
      member_id: memberId,
      session_id: `ses_${memberId}`,
      sub: null,
      connected: true,
      node_id: nodeId,
    }))
    const room = { room_id: 'arena:a', project_id: 'prj_1', epoch: says.epoch, members }
    response.end(
      JSON.stringify({
        node: { node_id: says.node_id, draining: says.draining ?? false },
        rooms: says.epoch === undefined ? [] : [room, { ...room, project_id: 'prj_2' }],
        sessions: [],
      }),
    )
  })
  servers.push({
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    admin_url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    end: servers.at(-1)!.close,
  }
}

test('a page gets the owner of its room, by the highest epoch, and the nodes of its members’ sockets', async () => {
  const clock = new FakeClock()
  const one = { now: { node_id: 'node-1', epoch: 7, members: { mem_a: 'node-1' } } }
  const two = {
    now: { node_id: 'node-2', epoch: 8, members: { mem_a: 'node-1', mem_b: 'node-2' }, draining: true },
  }
  const addresses = [await node(one), await node(two)]
  const nodes = new Nodes({ addresses, internal_token: 'internal', clock })
  expect(await clusterView(nodes, 'prj_1', 'arena:a')).toEqual({
    nodes: [
      { node_id: 'node-1', state: 'ready', rooms: 0, players: 1 },
      { node_id: 'node-2', state: 'draining', rooms: 1, players: 1 },
    ],
    room: { owner: 'node-2', epoch: 8, edges: { mem_a: 'node-1', mem_b: 'node-2' } },
  })
  expect((await clusterView(nodes, 'prj_1', 'arena:b')).room).toBeNull()
})

test('a node that does not answer is silent after a second, and one that refuses connections is gone', async () => {
  const clock = new FakeClock()
  const script: { now: Script | undefined } = { now: { node_id: 'node-1', epoch: 7 } }
  const { admin_url: adminUrl, end } = await node(script)
  const nodes = new Nodes({ addresses: [{ admin_url: adminUrl }], internal_token: 'internal', clock })
  expect(await nodes.look()).toMatchObject([{ node_id: 'node-1', state: 'ready', rooms: [{}, {}] }])

  script.now = undefined
  const looked = async (afterMs: number) => {
    clock.advance(afterMs)
    const looking = nodes.look()
    clock.advance(250)
    return looking
  }
  expect(await looked(500)).toMatchObject([{ state: 'ready' }])
  expect(await looked(500)).toMatchObject([{ node_id: 'node-1', state: 'silent', rooms: [{}, {}] }])

  end()
  await vi.waitFor(
    async () => expect(await looked(0)).toMatchObject([{ node_id: 'node-1', state: 'gone', rooms: [] }]),
    10_000,
  )
})

test('a node that has not answered yet has its configured name', async () => {
  const clock = new FakeClock()
  const gone = await node({ now: undefined })
  gone.end()
  const nodes = new Nodes({ addresses: [{ ...gone, node_id: 'node-9' }], internal_token: 'internal', clock })
  expect(await nodes.look()).toMatchObject([{ node_id: 'node-9', state: 'gone' }])
})
