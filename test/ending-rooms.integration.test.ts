import { expect, it, vi } from 'vitest'
import { sharedCluster } from './support/cluster.ts'
import { call, expectProblem, type Request } from './support/control-api.ts'

const cluster = sharedCluster({ perTest: true })
const SOON = { timeout: 180_000, interval: 100 }

/** Calls control as its operator. */
const ask = (line: string, request: Request = {}) => call(cluster.control.url, line, { as: null, ...request })

it('an operator ends a room on any node, and its members leave with reason closed', async () => {
  const nodes = await cluster.local(3)
  const login = await cluster.login()
  const rooms = ['a', 'b', 'c']
  const players = await Promise.all(
    rooms.map((key, index) => cluster.player(login, `ledger-journal:${key}`, nodes[index])),
  )
  await Promise.all(players.map((player) => player.add()))
  const left = players.map(({ room }) => new Promise((resolve) => room.onLeave((reason) => resolve(reason))))
  for (const key of rooms) {
    const path = `/projects/${login.projectId}/rooms/ledger-journal/${key}`
    const ended = await ask(`DELETE ${path}`)
    expect([ended.status, ended.body]).toEqual([
      200,
      { project_id: login.projectId, room_id: `ledger-journal:${key}`, ended: true },
    ])
    expectProblem(await ask(`DELETE ${path}`), 404, 'room_not_found')
  }
  expect(await Promise.all(left)).toEqual(['closed', 'closed', 'closed'])
  // A join creates a new room.
  const again = await cluster.player(login, 'ledger-journal:a', nodes[1])
  expect(again.room.state.total).toBe(0)
})

it('an operator lists rooms that no node runs, page by page, and ends them', async () => {
  const [first] = await cluster.processes(1)
  const login = await cluster.login()
  const keys = ['one', 'two', 'a/b c']
  for (const key of keys) {
    const player = await cluster.player(login, `ledger-journal:${key}`, first)
    await player.add()
    await player.room.send('ringAfter', { ms: 3_600_000, name: 'late' })
    player.close()
  }
  const path = `/projects/${login.projectId}/rooms`
  const list = async (query = '') => (await ask(`GET ${path}?sleeping=1${query}`)).body
  // Control may still ask a node of an earlier test.
  await vi.waitFor(async () => expect(await list()).toEqual({ rooms: [], next_cursor: null }), SOON)
  first!.kill()
  await first!.ended
  // Control must stop asking the dead node.
  await cluster.local(2)
  await vi.waitFor(async () => expect((await list()).rooms).toHaveLength(3), SOON)
  const page = await list('&limit=2')
  const rest = await list(`&limit=2&cursor=${page.next_cursor}`)
  const listed = [...page.rooms, ...rest.rooms]
  expect(listed.map(({ key }: { key: string }) => key).sort()).toEqual([...keys].sort())
  expect(rest.next_cursor).toBeNull()
  const days = (Date.parse(listed[0].expires_at) - Date.now()) / 86_400_000
  expect(days).toBeGreaterThan(29.9)
  expect(days).toBeLessThan(30.1)
  for (const key of keys) {
    const ended = await ask(`DELETE ${path}/ledger-journal/${encodeURIComponent(key)}`)
    expect(ended.status).toBe(200)
  }
  expect(await list()).toEqual({ rooms: [], next_cursor: null })
  expectProblem(await ask(`GET ${path}?sleeping=1&cursor=nonsense`), 400, 'invalid_request')
  expectProblem(await ask(`GET ${path}`), 400, 'invalid_request')
  expectProblem(await ask(`GET ${path}?sleeping=1&type=x`), 400, 'invalid_request')
  // Lists of a room type: nodes know which types have a listing.
  expect((await ask(`GET ${path}?type=unknown&where={}`)).body).toEqual({ rooms: [], next_cursor: null })
  const unlisted = await ask(`GET ${path}?type=ledger-journal`)
  expectProblem(unlisted, 400, 'invalid_request')
  expect(unlisted.body.detail).toContain('has no listing')
})

it('control answers calls for rooms with 503 without a node', async () => {
  const login = await cluster.login()
  const line = `DELETE /projects/${login.projectId}/rooms/ledger-journal/a`
  expectProblem(await ask(line), 503, 'node_unavailable')
  expectProblem(await ask('GET /projects/prj_none/rooms?sleeping=1'), 404, 'project_not_found')
})
