import { connect, type Room } from 'roomful/client'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { leaseKey } from '../shared/node-registry.ts'
import { inTurn, Network } from './players/network.ts'
import { type Login, type NodeProcess, sharedCluster } from './support/cluster.ts'
import type { looper } from './support/cluster-rooms/looper.ts'
import { until } from './support/redis-server.ts'

/** Position in the file of the room, which the run may have compiled. */
const LINE = /looper\.m?[jt]s:\d/
const FAILED = { code: 'room_logic_failed', message: "the room's logic failed" }

// A process that is suspended for longer than its lease counts as dead before it has noted the message. On a busy machine, its watchdog,
// which counts its own ticks, may need several seconds for the turn limit of 800 ms.
const cluster = sharedCluster({ leaseMs: 20_000 })
let nodes: NodeProcess[]
let login: Login
const clients: { close(): void }[] = []
beforeAll(async () => {
  nodes = await cluster.processes(5)
  login = await cluster.login()
  // Nodes open no room before Redis is older than a lease.
  const opened = () =>
    join('first', nodes[0]!).then(
      () => true,
      () => false,
    )
  await until('rooms are opened', opened)
})
afterAll(() => {
  for (const client of clients) client.close()
})

/** Joins a room through `node`. `own`: of another project. */
async function join(key: string, node: NodeProcess, own = login): Promise<Room<typeof looper>> {
  const { projectId, token } = own
  const { WebSocket } = new Network({ to: inTurn(cluster.doorsFrom(node)) })
  const client = await connect('ws://nowhere.invalid', { projectId, token, WebSocket })
  clients.push(client)
  return client.join<typeof looper>('looper', { key })
}

const alive = () => nodes.filter(({ open }) => open)

/** Returns the owner of a room. */
const ownerOf = async (key: string) => (await cluster.ownerFirst(login, `looper:${key}`, alive()))[0]!

/** Returns the last fatal line of a node's log. */
const fatalOf = (node: NodeProcess) =>
  JSON.parse(
    node
      .output()
      .split('\n')
      .findLast((text) => text.includes('"level":"fatal"'))!,
  )

// Without the note, the client sends the message again to the next owner, and one node after the other hangs.
it('a message whose handler never returns ends one node, and is cut off from then on; rooms continue', async () => {
  const edge = nodes[0]!
  const neighbour = await join('neighbour', edge)
  await neighbour.send('add')
  const room = await join('loops', edge)
  await room.send('add')

  const owner = await ownerOf('loops')
  const others = alive().filter((node) => node !== owner)
  const refused = expect(room.send('loop')).rejects.toMatchObject(FAILED)
  await expect(owner.ended).resolves.toBeNull()
  await neighbour.send('add')
  // The rooms continue long before the lease of the ended node expires.
  const [lease] = await cluster.store.records.read([leaseKey(owner.nodeId)])
  expect(lease).toBeDefined()
  await refused
  expect(fatalOf(owner)).toMatchObject({
    room_type: 'looper',
    hook: 'onMessage',
    message_type: 'loop',
    principal: expect.stringMatching(/^(sub|session):/),
    node_id: owner.nodeId,
    limit_ms: 800,
    at: expect.stringMatching(LINE),
    noted: true,
  })

  for (let time = 2; time <= 3; time++) {
    await room.send('add')
    await expect(room.send('loop')).rejects.toMatchObject(FAILED)
    expect(room.state.count).toBe(time)
  }
  const cutOff = others
    .flatMap((node) => node.output().split('\n'))
    .filter((line) => line.includes('a turn did not return and was cut off'))
    .map((line) => JSON.parse(line))
  expect(cutOff).toHaveLength(2)
  for (const line of cutOff) expect(line.at).toMatch(LINE)
  await neighbour.send('add')
  expect([alive(), neighbour.state.count]).toEqual([others, 3])
  const stuck = 'service_room_turns_stuck_total{room_type="looper",hook="onMessage"}'
  await expect
    .poll(() => Promise.all(others.map((node) => cluster.metric(node, stuck))))
    .toEqual(others.map(() => 3))

  // After three cut-offs in ten minutes, the edge refuses this type of message from the player.
  await expect
    .poll(() => Promise.all(others.map((node) => cluster.metric(node, 'service_players_blocked'))))
    .toEqual(others.map(() => 1))
  await expect(room.send('loop')).rejects.toMatchObject({ code: 'room_logic_failed' })
})

it('a loop after the turn ends one node, and the handler is refused in its project only', async () => {
  const room = await join('spins', alive()[0]!)
  const owner = await ownerOf('spins')
  const refused = expect(room.send('spin')).rejects.toMatchObject({ code: 'room_logic_failed' })
  await expect(owner.ended).resolves.toBeNull()
  await refused
  expect(fatalOf(owner)).toMatchObject({ hook: 'onMessage', message_type: 'spin', noted: true })
  const labels = (projectId: string) =>
    `project_id="${projectId}",room_type="looper",hook="onMessage",message_type="spin"`
  const refusedUntil = (projectId: string) =>
    Promise.all(alive().map((node) => cluster.metric(node, `service_handlers_refused{${labels(projectId)}}`)))
  await expect
    .poll(async () => (await refusedUntil(login.projectId)).every((end) => end > Date.now() / 1000))
    .toBe(true)
  const survivors = alive()
  const next = await join('elsewhere', survivors[0]!)
  await expect(next.send('spin')).rejects.toMatchObject({ code: 'room_logic_failed' })
  await next.send('add')
  expect(alive()).toEqual(survivors)
})

it('a loop after an await in admit ends one node, and later joins fail without a call of admit', async () => {
  const node = alive()[0]!
  const { projectId, token } = login
  const client = await connect(node.wsUrl, { projectId, token })
  clients.push(client)
  client.join<typeof looper>('looper', { key: 'awaits', loop_in_admit: true }).catch(() => undefined)
  const ended = await Promise.race(alive().map((one) => one.ended.then(() => one)))
  expect(fatalOf(ended)).toMatchObject({ hook: 'admit', room_type: 'looper' })
  const next = alive()[0]!
  const other = await connect(next.wsUrl, { projectId, token })
  clients.push(other)
  await expect(other.join<typeof looper>('looper', { key: 'awaits' })).rejects.toMatchObject({
    code: 'room_logic_failed',
  })
  expect(alive()).toContain(next)
})

// The next owner would get it again.
it('a message after which the process fails is refused by the next owner', async () => {
  const other = await cluster.login()
  const room = await join('exits', alive()[0]!, other)
  await room.send('add')
  const [owner] = await cluster.ownerFirst(other, 'looper:exits', alive())
  const refused = expect(room.send('exit')).rejects.toMatchObject(FAILED)
  await expect(owner!.ended).resolves.toBe(7)
  await refused
  expect([alive().length, room.state.count]).toEqual([1, 1])
})
