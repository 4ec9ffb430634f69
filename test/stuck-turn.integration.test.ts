import { connect, type Room } from 'roomful/client'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Login, type NodeProcess, sharedCluster } from './support/cluster.ts'
import { doorsSocket } from './support/cluster-player.ts'
import { until } from './support/redis-admin.ts'
import type { looper } from './support/stuck-rooms/looper.ts'

const ROOMS_DIR = `${import.meta.dirname}/support/stuck-rooms`
/** What members of other rooms may notice, as after a `kill -9`. */
const PAUSE_MS = 2000
const FAILED = { code: 'room_logic_failed', message: "the room's logic failed" }

// A process that is kept from running for longer than its lease is taken for dead before it can write down which message it was. On a
// busy machine its watchdog, which counts its own ticks, may need more than two seconds for the 800 ms of the limit.
const cluster = sharedCluster({ leaseMs: 8000 })
let nodes: NodeProcess[]
let login: Login
const clients: { close(): void }[] = []
beforeAll(async () => {
  nodes = await cluster.processes(4, { ROOMS_DIR })
  login = await cluster.login()
})
afterAll(() => {
  for (const client of clients) client.close()
})

/** Takes a seat by way of `node`. */
async function join(key: string, node: NodeProcess): Promise<Room<typeof looper>> {
  const { projectId, token } = login
  let first = true
  const doors = () => {
    const at = first ? [node.wsUrl] : cluster.doors()
    first = false
    return at
  }
  const { WebSocket } = doorsSocket({ doors })
  const client = await connect('ws://nowhere.invalid', { projectId, token, WebSocket })
  clients.push(client)
  return client.join<typeof looper>('looper', { key })
}

const alive = () => nodes.filter(({ open }) => open)

/** The node that runs a room. */
const ownerOf = async (key: string) => (await cluster.ownerFirst(login, `looper:${key}`, alive()))[0]!

// Seen: the owner hung, the message was sent again to whichever node took the room over, and one node after the other hung.
it('a message whose handler never returns ends one node, is refused, and the room and its neighbours go on', async () => {
  const edge = nodes[0]!
  const neighbour = await join('neighbour', edge)
  await neighbour.send('add')
  const room = await join('loops', edge)
  await room.send('add')

  for (let time = 1; time <= 2; time++) {
    const owner = await ownerOf('loops')
    const before = alive()
    const refused = expect(room.send('loop')).rejects.toMatchObject(FAILED)
    await expect(owner.ended).resolves.toBeNull()
    const endedAt = performance.now()
    await neighbour.send('add')
    expect(performance.now() - endedAt).toBeLessThan(PAUSE_MS)
    await refused
    expect(alive()).toEqual(before.filter((node) => node !== owner))
    const line = owner
      .output()
      .split('\n')
      .find((text) => text.includes('"level":"fatal"'))
    expect(JSON.parse(line!)).toMatchObject({
      room_type: 'looper',
      hook: 'onMessage',
      message_type: 'loop',
      node_id: owner.nodeId,
      limit_ms: 800,
      noted: true,
    })
    await room.send('add')
    expect(room.state.count).toBe(1 + time)
    expect(neighbour.state.count).toBe(1 + time)
    const heir = await ownerOf('loops')
    expect(
      await cluster.metric(heir, 'service_room_turns_stuck_total{room_type="looper",hook="onMessage"}'),
    ).toBe(1)
  }

  // The third time it is enough: the node that finds out runs the room no more.
  await expect(room.send('loop')).rejects.toMatchObject({ code: 'not_in_room' })
  await until('one node is left', async () => alive().length === 1)
  await expect(join('loops', alive()[0]!)).rejects.toMatchObject({ code: 'room_unavailable' })
  await neighbour.send('add')
  expect(neighbour.state.count).toBe(4)
})

it('a loop behind an await is told of, with the room types that it can be', async () => {
  const node = await cluster.processes(1, { ROOMS_DIR }).then(([first]) => first!)
  for (const other of alive()) other.kill()
  const { projectId, token } = login
  const client = await connect(node.wsUrl, { projectId, token })
  clients.push(client)
  client.join<typeof looper>('looper', { key: 'awaits', loop_in_admit: true }).catch(() => undefined)
  await expect
    .poll(() => node.output())
    .toMatch(/event loop stands still.*after an await of admit or of a task \(of a room of type looper\)/)
})
