import { afterEach, expect, test, vi } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { FakeBrowser, FakePage } from '../test/support/client/fake-browser.ts'
import { code, play, turn, URL, unsignedToken } from '../test/support/client/play.ts'
import { connect } from './index.ts'
import { withQueues } from './queue.ts'

afterEach(() => vi.unstubAllGlobals())

/** One server, and one browser with pages in its tabs. */
function browser() {
  const clock = new FakeClock()
  const tokenOf = (sub?: string) => unsignedToken(sub)
  const scene = play({ resume: 'tab', token: tokenOf() }, clock)
  const { server } = scene
  const pages = new FakeBrowser()
  server.onHello = (hello) => {
    const rooms = 'resume' in hello ? hello.resume.rooms : []
    server.welcome()
    for (const { room_id: roomId } of rooms) server.deliver(server.room(roomId).resync())
  }
  /** Loads a page. The code that runs then belongs to it. */
  const open = async (tab = pages.tab(), options: { projectId?: string; token?: string } = {}) => {
    const page = new FakePage()
    vi.stubGlobal('window', page)
    const client = await connect(URL, { ...scene.options, tabPlatform: tab, ...options })
    return { tab, page, client, leave: () => page.fire('pagehide', { persisted: false }) }
  }
  const inRoom = async (...args: Parameters<typeof open>) => {
    const opened = await open(...args)
    const room = await opened.client.join('arena', { key: 'lobby' })
    await scene.pass(1)
    return { ...opened, room }
  }
  return { ...scene, pages, tokenOf, open, inRoom, owner: server.room('arena:lobby') }
}

test('after a reload, the page has the session, the seat and the member id, with the current state', async () => {
  const { server, owner, inRoom } = browser()
  const before = await inRoom()
  before.leave()
  owner.patch({ n: 1 })
  const after = await inRoom(before.tab)
  expect(server.all('hello')[1]).toMatchObject({
    resume: {
      session_id: 'ses_1',
      resume_token: 'resume_1',
      rooms: [{ room_id: 'arena:lobby', epoch: 0, seq: 0 }],
    },
  })
  expect(server.all('join')).toHaveLength(1)
  expect(after.room.memberId).toBe(before.room.memberId)
  expect(after.room.state).toEqual({ n: 1 })
  expect(after.room.members).toHaveLength(2)
  server.deliver(owner.patch({ n: 2 }))
  expect([after.room.state, after.room.status]).toEqual([{ n: 2 }, 'joined'])
  after.leave()
  await inRoom(before.tab)
  expect(server.all('hello')[2]).toMatchObject({ resume: { resume_token: 'resume_2' } })
})

test('after a reload, joinOrCreate returns the seat that the page had, with the code of its room', async () => {
  const { server, open, inRoom, pass } = browser()
  server.code = 'K7QX2M'
  const before = await inRoom()
  before.leave()
  const { client } = await open(before.tab)
  const room = await client.joinOrCreate('arena', { map: 'ice' })
  await pass(1)
  expect([room.memberId, room.code]).toEqual([before.room.memberId, 'K7QX2M'])
  expect([server.all('find'), server.all('join')]).toEqual([[], [expect.anything()]])
})

test('after a reload, seats lists what the page had, and join continues one', async () => {
  const { server, owner, open, inRoom, pass } = browser()
  server.code = 'K7QX2M'
  const before = await inRoom()
  await before.client.join('arena', { key: 'second', color: 'red' })
  const queues = withQueues(before.client)
  queues.queue('ranked', { elo: 1 }).matched.catch(() => {})
  await pass(1)
  expect(before.client.seats()).toEqual([])
  server.deliver(owner.role(before.room.memberId, 'unseated', owner.seq + 1))
  // Before the state arrives, the next page has only what this page has stored.
  server.onHello = () => server.welcome()
  before.leave()

  const { client } = await open(before.tab)
  const [lobby, second] = client.seats()
  const { memberId } = before.room
  expect(lobby).toEqual({ type: 'arena', key: 'lobby', memberId, code: 'K7QX2M', spectator: true })
  expect(second).toMatchObject({ key: 'second', spectator: false })
  expect(client.seats()).toEqual([lobby, second])
  server.deliver(owner.resync())
  const room = await client.join(lobby!)
  expect([room.key, room.memberId]).toEqual(['lobby', before.room.memberId])
  expect(client.seats()).toEqual([second])
  await expect(client.join(lobby!)).rejects.toEqual(code('seat_lost'))

  await pass(10_000)
  expect(client.seats()).toEqual([])
  await expect(client.join(second!)).rejects.toEqual(code('seat_lost'))
})

test('after a reload, seats has the role that a whole state brought', async () => {
  const { server, owner, open, inRoom } = browser()
  const before = await inRoom()
  owner.role(before.room.memberId, 'unseated')
  server.deliver(owner.resync())
  expect(before.room.spectator).toBe(true)
  server.onHello = () => server.welcome()
  before.leave()
  const { client } = await open(before.tab)
  expect(client.seats()).toMatchObject([{ key: 'lobby', spectator: true }])
})

test('a page that is closed sends no goodbye', async () => {
  const { server, inRoom } = browser()
  const { leave, client } = await inRoom()
  leave()
  expect(server.all('goodbye')).toEqual([])
  expect(server.socket.closed).toBe(true)
  expect(client.status).toBe('reconnecting')
})

test('unacknowledged messages of before a reload are resent with their refs, before those of the new page', async () => {
  const { server, owner, inRoom } = browser()
  const before = await inRoom()
  const acked = before.room.send('a', 1)
  server.ack(owner, server.messageRefs[0]!)
  await acked
  void before.room.send('b', { x: [2] })
  void before.room.request('c')
  before.leave()
  const after = await inRoom(before.tab)
  const done = after.room.send('d')
  const sent = server.all('message')
  expect(sent.map(({ type }) => type)).toEqual(['a', 'b', 'c', 'b', 'c', 'd'])
  const [, b, c, ...again] = server.messageRefs
  expect([b, c, ...again]).toEqual([2, 3, 2, 3, 4])
  // The server would forget the outcome of a message that is settled.
  for (const message of sent.slice(1)) expect(message).toMatchObject({ settled: b! - 1 })
  server.ack(owner, again[2]!)
  await done
  after.leave()
  await inRoom(before.tab)
  expect(server.all('message')).toHaveLength(6)
})

test('refs continue after a reload, and the server learns which earlier answers it may drop', async () => {
  const { server, owner, inRoom } = browser()
  const before = await inRoom()
  const sent = before.room.send('a')
  server.ack(owner, server.messageRefs[0]!)
  await sent
  before.leave()
  const after = await inRoom(before.tab)
  void after.room.send('b')
  expect(server.messageRefs).toEqual([1, 2])
  // Otherwise the server would keep the replies to earlier pages, and send them with each resume.
  expect(server.all('hello')[1]).toMatchObject({ resume: { rooms: [{ settled: 1 }] } })
  expect(server.all('message')[1]).toMatchObject({ settled: 1 })
})

test('a message is stored before its frame is sent', async () => {
  const { server, inRoom } = browser()
  const { tab, room } = await inRoom()
  const heard = server.heard.push
  let kept = ''
  Object.defineProperty(server.heard, 'push', {
    value: (...messages: typeof server.heard) => {
      kept = [...tab.items.values()].join()
      return heard.apply(server.heard, messages)
    },
  })
  void room.send('move', { far: 'away' })
  expect(server.all('message')).toHaveLength(1)
  expect(kept).toContain('"far":"away"')
})

test('a message rejects and is not sent if the storage of the tab is full', async () => {
  const { server, owner, inRoom } = browser()
  const { tab, room } = await inRoom()
  tab.quota = 1700
  const text = 'x'.repeat(800)
  const first = room.send('say', text)
  await expect(room.send('say', text)).rejects.toEqual(code('storage_full'))
  expect(server.all('message')).toHaveLength(1)
  server.ack(owner, 100)
  await first
  void room.send('say', text)
  expect(server.all('message')).toHaveLength(2)
})

test('a refusal of an earlier page’s message goes to onError', async () => {
  const { server, inRoom, errors } = browser()
  const before = await inRoom()
  void before.room.send('strike').catch(() => {})
  before.leave()
  await inRoom(before.tab)
  server.refuse('room_logic_refused', { ref: server.messageRefs.at(-1)!, room_id: 'arena:lobby' })
  expect(errors).toEqual([code('room_logic_refused')])
})

test.each([
  ['project', { projectId: 'prj_2' }],
  ['player', { token: unsignedToken('bob') }],
])('another %s starts a new session', async (_, options) => {
  const { server, inRoom } = browser()
  const before = await inRoom()
  before.leave()
  await inRoom(before.tab, options)
  expect(server.all('hello')[1]).not.toHaveProperty('resume')
})

test('with an unreadable token nothing is stored, and the page sends a goodbye', async () => {
  const { server, inRoom } = browser()
  const { tab, leave } = await inRoom(undefined, { token: 'a.b.c' })
  expect(tab.items.size).toBe(0)
  leave()
  expect(server.heard.at(-1)).toEqual({ t: 'goodbye' })
})

test('an unreadable record is ignored', async () => {
  const { server, inRoom } = browser()
  const before = await inRoom()
  before.leave()
  for (const name of before.tab.items.keys()) before.tab.storage.setItem(name, '{')
  const { room } = await inRoom(before.tab)
  expect([room.memberId, 'resume' in server.all('hello')[1]!]).toEqual(['mem_2', false])
})

test('a duplicated tab starts a new session, and continues it after a reload', async () => {
  const { server, pages, inRoom } = browser()
  const original = await inRoom()
  void original.room.send('move').catch(() => {})
  const copy = await inRoom(pages.tab(original.tab))
  expect(server.all('hello')[1]).not.toHaveProperty('resume')
  expect(server.all('message')).toHaveLength(1)
  expect([...copy.tab.items].join()).not.toMatch(/ses_1|move/)
  original.leave()
  copy.leave()
  await inRoom(copy.tab)
  expect(server.all('hello')[2]).toMatchObject({ resume: { session_id: 'ses_2' } })
  await inRoom(original.tab)
  expect(server.all('hello')[3]).toMatchObject({ resume: { session_id: 'ses_1' } })
})

test('a room that the player has left is not joined after a reload', async () => {
  const { server, open, inRoom } = browser()
  const { room, tab, leave } = await inRoom()
  await room.leave()
  leave()
  await open(tab)
  expect(server.all('hello')[1]).toMatchObject({ resume: { rooms: [] } })
})

test('messages of a seat that an earlier page was leaving are not sent in the next seat', async () => {
  const { server, inRoom } = browser()
  const before = await inRoom()
  for (const type of ['old', 'older']) void before.room.send(type).catch(() => {})
  server.onLeave = () => {}
  void before.room.leave()
  before.leave()
  const after = await inRoom(before.tab)
  void after.room.send('new').catch(() => {})
  after.leave()
  await inRoom(before.tab)
  expect(server.all('message').map(({ type, ref }) => [type, ref])).toEqual([
    ['old', 1],
    ['older', 2],
    ['new', 1],
    ['new', 1],
  ])
})

test('a reload keeps a seat whose leave was refused', async () => {
  const { server, inRoom } = browser()
  const before = await inRoom()
  server.onLeave = ({ request_id, room_id }) => server.refuse('room_unavailable', { request_id, room_id })
  await expect(before.room.leave()).rejects.toEqual(code('room_unavailable'))
  before.leave()
  const after = await inRoom(before.tab)
  expect(after.room.memberId).toBe(before.room.memberId)
})

test('a page that gets the lock of its session after the first attempt resumes with the next attempt', async () => {
  const { server, options, inRoom, pass } = browser()
  const before = await inRoom()
  before.leave()
  let give = (_release: () => void) => {}
  before.tab.hold = () => new Promise((resolve) => (give = resolve))
  const random = { bytes: (size: number) => new Uint8Array(size), float: () => 0.9 }
  const slow = { tabPlatform: before.tab, connectTimeoutMs: 30_000, random }
  const connecting = connect(URL, { ...options, ...slow })
  // The first attempt ends after 10 s. The next starts 225 ms later.
  await pass(10_100)
  expect(server.sockets).toHaveLength(1)
  give(() => {})
  await pass(200)
  const client = await connecting
  expect(server.all('hello')[1]).toMatchObject({ resume: { session_id: 'ses_1' } })
  expect((await client.join('arena', { key: 'lobby' })).memberId).toBe(before.room.memberId)
})

test('close leaves nothing in the tab', async () => {
  const { server, open, inRoom } = browser()
  const { room, tab, client } = await inRoom()
  void room.send('move').catch(() => {})
  client.close()
  expect([...tab.items]).toEqual([])
  expect(server.heard.at(-1)).toEqual({ t: 'goodbye' })
  await open(tab)
  expect(server.all('hello')[1]).not.toHaveProperty('resume')
})

test.each([4001, 4003, 4005, 4300])(
  'if the server refuses the session of an earlier page (%i), a new session starts and joins work',
  async (closeCode) => {
    const { server, inRoom, pass, errors } = browser()
    const before = await inRoom()
    void before.room.send('move').catch(() => {})
    before.leave()
    server.onHello = (hello) => ('resume' in hello ? server.socket.end(closeCode) : server.welcome())
    const loading = inRoom(before.tab)
    await pass(1000)
    const { room } = await loading
    expect(room.memberId).toBe('mem_2')
    expect(errors).toEqual([code('resume_failed')])
    expect(server.all('message')).toHaveLength(1)
  },
)

test('a join with create: false creates no room if the earlier page’s seat has ended', async () => {
  const { server, owner, open, inRoom } = browser()
  const before = await inRoom()
  before.leave()
  server.onHello = () => {
    server.welcome()
    void turn().then(() => server.deliver(owner.ownLeft('session_ended')))
  }
  const { client } = await open(before.tab)
  await client.join('arena', { key: 'lobby' }, { create: false })
  expect(server.all('join').map(({ create }) => create)).toEqual([undefined, false])
})

test('if only the seat has ended, and not the session, the page joins as a new member', async () => {
  const { server, owner, inRoom } = browser()
  const before = await inRoom()
  before.leave()
  server.onHello = () => {
    server.welcome()
    server.deliver(owner.ownLeft('session_ended'))
  }
  const after = await inRoom(before.tab)
  expect(after.room.memberId).toBe('mem_2')
  after.leave()
  server.onHello = () => {
    server.welcome()
    void turn().then(() => server.deliver(owner.ownLeft('session_ended')))
  }
  const third = await inRoom(before.tab)
  expect(third.room.memberId).toBe('mem_3')
  // The room ended the seat during the reload.
  third.leave()
  server.onHello = () => {
    server.welcome()
    void turn().then(() => server.deliver(owner.ownLeft('closed')))
  }
  expect((await inRoom(before.tab)).room.memberId).toBe('mem_4')
})

test('the client leaves a seat that the new page has not joined within the claim time', async () => {
  const { server, open, inRoom, pass } = browser()
  const before = await inRoom()
  before.leave()
  const { client } = await open(before.tab)
  await pass(9000)
  expect(server.all('leave')).toEqual([])
  await pass(2000)
  expect(server.all('leave')).toMatchObject([{ room_id: 'arena:lobby' }])
  expect((await client.join('arena', { key: 'lobby' })).memberId).toBe('mem_2')
})

test('events between the reload and the join reach the listeners of the new page', async () => {
  const { server, owner, open, inRoom, pass } = browser()
  const before = await inRoom()
  before.leave()
  const { client } = await open(before.tab)
  server.deliver(owner.eventFlush('hit', 1))
  await pass(1)
  const room = await client.join('arena', { key: 'lobby' })
  const hits: unknown[] = []
  room.on('hit', (data) => hits.push(data))
  await turn()
  expect(hits).toEqual([1])
})

test('a page from the back/forward cache continues its session', async () => {
  const { server, owner, inRoom, pass } = browser()
  const { page, client, room } = await inRoom()
  server.deliver(owner.patch({ n: 1 }))
  page.fire('pagehide', { persisted: true })
  expect(server.socket.closed).toBe(true)
  await pass(30_000)
  expect(server.sockets).toHaveLength(1)
  const sent = room.send('move')
  page.fire('pageshow', { persisted: true })
  await pass(1)
  expect(client.status).toBe('online')
  expect(server.all('hello')[1]).toMatchObject({ resume: { resume_token: 'resume_1', rooms: [{ seq: 8 }] } })
  server.ack(owner, 100)
  await sent
  expect([room.status, room.memberId]).toEqual(['joined', 'mem_1'])
})

test('a page from the back/forward cache joins its rooms again if another page of the tab has had the session', async () => {
  const { server, open, inRoom, pass } = browser()
  const first = await inRoom()
  first.page.fire('pagehide', { persisted: true })
  const second = await open(first.tab)
  await second.client.join('chat')
  second.leave()
  first.page.fire('pageshow', { persisted: true })
  await pass(1)
  expect(server.all('hello')[2]).toMatchObject({ resume: { resume_token: 'resume_2', rooms: [] } })
  expect([first.client.status, first.room.status]).toEqual(['online', 'joined'])
  // The other page's token may be for other rooms.
  expect(server.socket.said.map(({ t }) => t).slice(0, 4)).toEqual(['hello', 'token', 'ping', 'join'])
  expect(first.room.memberId).not.toBe('mem_1')
  first.leave()
  const { room } = await inRoom(first.tab)
  expect(room.memberId).toBe(first.room.memberId)
})
