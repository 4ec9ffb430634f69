import { describe, expect, it } from 'vitest'
import type { ServerMessage } from '../messages.ts'
import type { Line } from './books.ts'
import { readClientFrame, type Said } from './frames.ts'
import { Judge } from './judge.ts'

const ROOM = 'counter:a'
const MEMBER = 'mem_1'
const PATIENCE_MS = 1000
const RETURN_MS = 3000

type Fields<T extends Said['t']> = Omit<Extract<Said, { t: T }>, 't'>

/** A scripted client. Each method is a frame of the client or of the server. */
class Script {
  readonly judge: Judge
  line: Line
  private nowMs = 0
  private requests = 0
  private resumeTokens = 0

  constructor(level = 6) {
    this.judge = new Judge({ now: () => this.nowMs, patience_ms: PATIENCE_MS, return_ms: RETURN_MS, level })
    this.line = this.judge.open('json')
  }

  /** The mistakes so far, as `rule: what`. */
  get mistakes(): string[] {
    return this.judge.mistakes.map(({ rule, what }) => `${/^R\d+\. ([^.]+)\./.exec(rule.text)?.[1]}: ${what}`)
  }

  pass(ms: number): this {
    this.nowMs += ms
    this.judge.look()
    return this
  }

  say<T extends Said['t']>(t: T, fields: Fields<T>, line = this.line): this {
    this.judge.said(line, { t, ...fields } as Said)
    return this
  }

  hear(heard: object, { line = this.line, spoilt = false } = {}): this {
    this.judge.delivered(line, heard as ServerMessage, spoilt)
    return this
  }

  welcome(resumed = false, more: object = {}): this {
    this.resumeTokens += 1
    const token = `right-${this.resumeTokens}`
    const times = { resume_ttl_seconds: 60, heartbeat_seconds: 15 }
    return this.hear({ t: 'welcome', session_id: 'ses_1', resume_token: token, resumed, ...times, ...more })
  }

  ping(line = this.line): this {
    return this.say('ping', { at: 0 }, line)
  }

  /** Starts a session, up to the first ping. */
  begin(features?: string[]): this {
    return this.say('hello', { project_id: 'prj_1', token: 't', ...(features && { features }) })
      .welcome()
      .ping()
  }

  join(): this {
    this.requests += 1
    return this.say('join', { request_id: this.requests, room_type: 'counter', options: { key: 'a' } })
  }

  seat(seq = 0): this {
    const room = { room_id: ROOM, member_id: MEMBER }
    return this.hear({ t: 'joined', request_id: this.requests, ...room }).whole('state.snapshot', seq)
  }

  whole(t: 'state.snapshot' | 'state.resync', seq: number): this {
    return this.hear({ t, room_id: ROOM, epoch: 1, seq, members: [] })
  }

  patch(seq: number, spoilt = false): this {
    return this.hear({ t: 'state.patch', room_id: ROOM, epoch: 1, seq }, { spoilt })
  }

  event(): this {
    return this.hear({ t: 'event', room_id: ROOM, name: 'n', data: 1 })
  }

  ack(ref: number): this {
    return this.hear({ t: 'ack', room_id: ROOM, ref })
  }

  ask(reason: 'sequence' | 'checksum' = 'sequence'): this {
    return this.say('state.resync', { room_id: ROOM, reason })
  }

  act(ref: number, settled: number, data: unknown = {}): this {
    return this.say('message', { room_id: ROOM, type: 'inc', data, ref, settled })
  }

  /** Opens a new connection for the next frames. The previous connection stays open. Returns it. */
  connect(): Line {
    const before = this.line
    this.line = this.judge.open('json')
    return before
  }

  cut(code = 1006): this {
    this.judge.ended(this.line, 'other', code)
    return this
  }

  closes(line = this.line): this {
    this.judge.ended(line, 'client', 1000)
    return this
  }

  resume({
    token = this.resumeTokens,
    epoch = 1,
    seq = 0,
    settled = 0,
    member = MEMBER,
    rooms = 1,
    features = undefined as string[] | undefined,
  } = {}): this {
    const room = { room_id: ROOM, member_id: member, epoch, seq, settled }
    const right = {
      session_id: 'ses_1',
      resume_token: `right-${token}`,
      rooms: Array.from({ length: rooms }, () => room),
    }
    return this.say('hello', { project_id: 'prj_1', resume: right, ...(features && { features }) })
  }
}

/** A client that sits in the room, at seq 0. */
const seated = (level?: number): Script => new Script(level).begin().join().seat()

describe('Judge: hello and heartbeat', () => {
  it('reports a first message other than hello, and a second hello', () => {
    const { mistakes } = new Script().ping().begin().say('hello', { project_id: 'prj_1', token: 't' })
    expect(mistakes).toEqual([
      'Hello: The first message of the connection is ping, not hello.',
      'Hello: The client sends a second hello on one connection.',
    ])
  })

  it('reports a message between hello and welcome', () => {
    const { mistakes } = new Script()
      .say('hello', { project_id: 'prj_1', token: 't' })
      .ping()
      .welcome()
      .ping()
    expect(mistakes).toEqual(['Hello: The client sends ping before welcome has arrived.'])
  })

  it('reports a client that sends no ping after welcome, or stops later', () => {
    const none = new Script().say('hello', { project_id: 'prj_1', token: 't' }).welcome().pass(PATIENCE_MS)
    expect(none.mistakes).toEqual(['Heartbeat: The client has sent no ping within 1 s after welcome.'])
    const once = new Script().begin().pass(10).ping().pass(16_000).pass(16_000)
    expect(once.mistakes).toEqual([
      'Heartbeat: The client has sent no ping for 16 s; heartbeat_seconds is 15.',
    ])
    const always = new Script().begin()
    for (let second = 0; second < 60; second += 15) always.pass(15_000).ping()
    expect(always.mistakes).toEqual([])
  })

  it('reports a client that keeps a silent connection, and accepts a client that closes it', () => {
    const keeps = new Script().begin()
    keeps.judge.silent(keeps.line)
    expect(keeps.pass(31_000).mistakes).toEqual([
      'Heartbeat: No frame has arrived for 31 s, and the client still holds the connection.',
    ])
    const leaves = seated()
    leaves.judge.silent(leaves.line)
    leaves.pass(30_000).closes().connect()
    leaves.resume().welcome(true).ping()
    expect(leaves.pass(RETURN_MS).mistakes).toEqual([])
  })

  it('reports a frame that is not a message', () => {
    const script = new Script()
    for (const frame of [
      '{"t":"wave"}',
      '{"t":"message","room_id":"r","type":"x","data":1,"ref":1}',
      '{"t":"ping"}',
    ])
      try {
        readClientFrame('json', frame)
        expect.unreachable()
      } catch (problem) {
        script.judge.unreadable(script.line, (problem as Error).message, frame)
      }
    expect(script.mistakes).toEqual([
      'Frames: The frame is no message of a client: no message of a client is called "wave".',
      'Frames: The frame is no message of a client: a message with a ref has settled.',
      'Frames: The frame is no message of a client: at: a number was expected, not undefined.',
    ])
  })
})

describe('Judge: state', () => {
  it('reports a resync without a cause', () => {
    const { mistakes } = seated().patch(1).event().patch(2).patch(3).ask()
    expect(mistakes).toEqual([
      'Ask: counter:a: The client asks for the whole state without a cause: the frames that it has got have no gap up to seq 3, and the right checksums.',
    ])
  })

  it('reports two resyncs, however long the answer takes', () => {
    expect(seated().patch(2).ask().pass(9000).ask().mistakes).toEqual([
      'Ask: counter:a: The client asks for the whole state twice. It must wait for the answer, or for the end of the connection.',
    ])
    expect(seated().patch(2).ask().whole('state.resync', 2).patch(4).ask().mistakes).toEqual([])
  })

  it.each([
    { gap: 'a missing patch', make: (script: Script) => script.patch(2).event() },
    { gap: 'a patch that arrives twice', make: (script: Script) => script.patch(1).patch(1) },
    { gap: 'a wrong checksum', make: (script: Script) => script.patch(1, true) },
  ])('reports a client that requests no resync after $gap', ({ make }) => {
    const { mistakes } = make(seated()).pass(PATIENCE_MS)
    expect(mistakes).toEqual([
      expect.stringMatching(`^Ask: .* the client has not asked for the whole state within 1 s`),
    ])
  })

  it('reports a resync with a wrong reason', () => {
    expect(seated().patch(1, true).ask('sequence').mistakes).toEqual([
      expect.stringMatching('^Ask: counter:a: The reason is sequence; it must be checksum after'),
    ])
  })

  it('excuses a resync that was in flight when the whole state arrived', () => {
    expect(seated().patch(2).whole('state.resync', 2).ask().pass(PATIENCE_MS).mistakes).toEqual([])
  })

  it('accepts a resume from position 0', () => {
    const script = seated().patch(1).pass(PATIENCE_MS).cut()
    script.connect()
    expect(
      script.resume({ epoch: 0, seq: 0 }).welcome(true).ping().whole('state.resync', 1).mistakes,
    ).toEqual([])
  })

  it('reports a client that lists its position while it waits for a whole state', () => {
    const script = seated().patch(2).ask().cut()
    script.connect()
    expect(script.resume({ epoch: 1, seq: 0 }).mistakes).toEqual([
      expect.stringMatching('^Listed rooms: counter:a: The resume names epoch 1, seq 0'),
    ])
  })

  it('excuses a gap whose connection ends', () => {
    const script = seated().patch(2).cut()
    script.connect()
    expect(script.resume().welcome(true).ping().patch(1).patch(2).pass(PATIENCE_MS).mistakes).toEqual([])
  })
})

describe('Judge: refs', () => {
  it('reports a skipped ref, and a repeated ref', () => {
    expect(seated().act(1, 0).act(3, 0).mistakes).toEqual(['Ref: counter:a: ref 3 comes, but 2 is due.'])
    expect(seated().act(1, 0).act(1, 0).mistakes).toEqual([
      'Ref: counter:a: ref 1 comes after 1 on the same connection.',
    ])
    expect(seated().act(1, 0).join().seat().act(2, 0).mistakes).toEqual([
      'Ref: counter:a: ref 2 comes, but 1 is due.',
    ])
  })

  const resumed = () => {
    const script = seated().act(1, 0, 'a').act(2, 0, 'b').act(3, 0, 'c').ack(1).cut()
    script.connect()
    return script.resume({ settled: 1 }).welcome(true).ping()
  }

  it('reports other data with the same ref', () => {
    expect(resumed().act(2, 1, 'x').act(3, 1, 'c').mistakes).toEqual([
      'Keep: counter:a: ref 2 comes again with other data. Before, it was ["inc","b"].',
    ])
  })

  it('reports kept messages that are not sent again, and accepts that acknowledged messages are not', () => {
    expect(resumed().pass(PATIENCE_MS).mistakes).toEqual([
      'Keep: counter:a: the outcome of ref 2 to 3 is not known, and the client has not sent them again within 1 s after the resume.',
    ])
    expect(resumed().act(3, 1, 'c').mistakes).toEqual([
      'Keep: counter:a: ref 3 comes, but 2 is due: after a resume, send every kept message again, the lowest first.',
    ])
    expect(resumed().ack(3).pass(PATIENCE_MS).mistakes).toEqual([])
    expect(resumed().act(2, 1, 'b').act(3, 1, 'c').act(4, 1).pass(PATIENCE_MS).mistakes).toEqual([])
  })

  it('accepts that a message which was refused before the lost connection is not sent again', () => {
    const script = seated().act(1, 0).act(2, 0).act(3, 0)
    script.hear({ t: 'error', room_id: ROOM, ref: 2, code: 'invalid_payload' }).cut().connect()
    expect(script.resume().welcome(true).ping().act(1, 0).act(3, 0).pass(PATIENCE_MS).mistakes).toEqual([])
  })

  it('reports settled above what the client can know, and settled that goes down', () => {
    expect(seated().act(1, 0).act(2, 1).mistakes).toEqual([
      'Settled: counter:a: settled is 1, but the client can know the outcomes only up to ref 0.',
    ])
    expect(seated().act(1, 0).ack(1).act(2, 1).act(3, 0).mistakes).toEqual([
      'Settled: counter:a: settled goes down from 1 to 0.',
    ])
    const script = seated().act(1, 0).act(2, 0).ack(1).cut()
    script.connect()
    expect(script.resume({ settled: 2 }).mistakes).toEqual([
      'Settled: counter:a: settled is 2, but the client can know the outcomes only up to ref 1.',
    ])
  })

  it('reports settled that is too low', () => {
    expect(
      seated()
        .act(1, 0)
        .ack(1)
        .act(2, 0)
        .pass(PATIENCE_MS + 1)
        .act(3, 0).mistakes,
    ).toEqual([
      'Settled: counter:a: settled is 0, although the outcomes up to ref 1 were delivered more than 1 s before.',
    ])
  })

  it('reports a message to a room that the client has not joined, and a repeated request_id', () => {
    expect(new Script().begin().join().act(1, 0).mistakes).toEqual([
      'Join: counter:a: The client sends a message to a room that it has not joined.',
    ])
    const { mistakes } = seated().say('leave', { request_id: 1, room_id: ROOM })
    expect(mistakes).toEqual(['Join: The client sends request_id 1 twice on one connection.'])
  })
})

describe('Judge: resume', () => {
  it('reports positions that the client never had, and old ones', () => {
    const lost = seated().patch(1).patch(3).cut()
    lost.connect()
    expect(lost.resume({ seq: 3 }).mistakes).toEqual([
      'Listed rooms: counter:a: The resume names epoch 1, seq 3, which a correct client never had. It has epoch 1, seq 1.',
    ])
    const behind = seated()
      .patch(1)
      .pass(PATIENCE_MS + 1)
      .cut()
    behind.connect()
    expect(behind.resume({ seq: 0 }).mistakes).toEqual([
      'Listed rooms: counter:a: The resume names epoch 1, seq 0, although seq 1 was delivered 1.001 s before.',
    ])
    const under = seated().patch(1).cut()
    under.connect()
    expect(under.resume({ seq: 0 }).mistakes).toEqual([])
  })

  it('reports a missing room, a room without a join, and another member_id', () => {
    const missing = seated()
      .pass(PATIENCE_MS + 1)
      .cut()
    missing.connect()
    expect(missing.resume({ rooms: 0 }).mistakes).toEqual([
      'Listed rooms: The resume does not list counter:a: the client leaves a room in which it has a seat.',
    ])
    const never = new Script().begin().join().cut()
    never.connect()
    expect(never.resume().mistakes).toEqual([
      'Listed rooms: counter:a: The resume lists a room that the client has not joined.',
    ])
    const other = seated().cut()
    other.connect()
    expect(other.resume({ member: 'mem_2' }).mistakes).toEqual([
      'Listed rooms: counter:a: The member_id is mem_2, but joined had mem_1.',
    ])
  })

  it('excuses frames that may be lost with the connection, however long the client is disconnected', () => {
    const script = seated()
      .act(1, 0)
      .pass(PATIENCE_MS + 1)
      .patch(1)
      .ack(1)
      .cut()
      .pass(2 * PATIENCE_MS)
    script.connect()
    script.resume({ seq: 0 }).welcome(true).ping().act(1, 0)
    expect(script.mistakes).toEqual([])
    const joined = new Script()
      .begin()
      .join()
      .seat()
      .cut()
      .pass(2 * PATIENCE_MS)
    joined.connect()
    joined
      .resume({ rooms: 0 })
      .welcome(true)
      .ping()
      .cut()
      .pass(2 * PATIENCE_MS)
      .connect()
    expect(joined.resume({ rooms: 0 }).mistakes).toEqual([])
  })

  it('reports a room whose seat has ended', () => {
    const script = seated().hear({ t: 'left', room_id: ROOM, reason: 'kicked' })
    script
      .pass(PATIENCE_MS + 1)
      .cut()
      .connect()
    expect(script.resume().mistakes).toEqual([
      'Listed rooms: counter:a: The resume lists a room in which the seat is gone.',
    ])
  })

  it('reports a used resume token, and accepts the token before a welcome that may be lost', () => {
    const used = seated().cut()
    used.connect()
    used.resume().welcome(true).ping().cut().connect()
    expect(used.resume({ token: 1 }).mistakes).toEqual([
      'Resume: The resume_token is old. The welcome of connection 2 had a newer one, and the client has answered that welcome.',
    ])
    const lost = seated().cut()
    lost.connect()
    lost.resume().welcome(true).cut().connect()
    expect(lost.resume({ token: 1 }).mistakes).toEqual([])
  })

  it('reports a join without a snapshot that is not sent again', () => {
    const script = new Script().begin().join().cut()
    script.connect()
    script.resume({ rooms: 0 }).welcome(true).ping()
    expect(script.pass(PATIENCE_MS).mistakes).toEqual([
      'Again: The snapshot of this join has not arrived, and the client has not sent the join again after the resume.',
    ])
  })

  it('requires that a leave without an answer is sent again, and that its room is listed', () => {
    const leaving = () => {
      const script = seated()
        .pass(PATIENCE_MS + 1)
        .say('leave', { request_id: 2, room_id: ROOM })
        .cut()
      script.connect()
      return script
    }
    const again = leaving().resume().welcome(true).ping().say('leave', { request_id: 2, room_id: ROOM })
    expect(again.pass(PATIENCE_MS).mistakes).toEqual([])
    expect(leaving().resume().welcome(true).ping().pass(PATIENCE_MS).mistakes).toEqual([
      'Again: The answer to this leave has not arrived, and the client has not sent the leave again after the resume.',
    ])
    expect(leaving().resume({ rooms: 0 }).mistakes).toEqual([
      'Listed rooms: The resume does not list counter:a: the client leaves a room in which it has a seat.',
    ])
  })

  it('reports features that the resume does not list again', () => {
    const script = new Script().begin(['layers']).cut()
    script.connect()
    expect(script.resume({ rooms: 0 }).mistakes).toEqual([
      'Feature: The first hello of the session listed layers in features, and this one does not.',
    ])
  })

  it('reports a client that connects repeatedly without a pause', () => {
    const script = seated()
    for (let attempt = 0; attempt < 10; attempt += 1) {
      script.cut().connect()
      script.resume().pass(100)
    }
    expect(script.mistakes).toEqual([
      'Backoff: The client has connected 10 times within 2 s without a welcome: it must wait longer after each attempt.',
    ])
  })
})

describe('Judge: the end of connections and sessions', () => {
  it.each([1000, 1001, 1006, 1012, 1013, 4101, 4199, 4200, 4999])(
    'reports a client that does not resume after %i',
    (code) => {
      expect(seated().cut(code).pass(RETURN_MS).mistakes).toEqual([
        expect.stringMatching(/^Resume: The connection .* the client has not resumed the session within 3 s/),
      ])
    },
  )

  it.each([4000, 4005, 4042])('reports a client that resumes after %i', (code) => {
    const script = seated().cut(code)
    expect(script.pass(RETURN_MS).mistakes).toEqual([])
    script.connect()
    expect(script.resume().mistakes).toEqual([
      `Close codes: The client comes back, although connection 1 was closed with ${code}: 40xx means stop.`,
    ])
  })

  it.each([4300, 4399])('reports a client that resumes after %i, or starts no new session', (code) => {
    const script = seated().cut(code)
    script.connect()
    expect(script.resume().mistakes).toEqual([
      `Resume: The client resumes, although connection 1 was closed with ${code}: after 43xx, start a new session.`,
    ])
    expect(seated().cut(code).pass(RETURN_MS).mistakes).toEqual([
      `Resume: The connection was closed with ${code}, and the client has started no new session within 3 s.`,
    ])
  })

  it('accepts the resume of a move that has crossed the end of the session, and no later one', () => {
    const moving = () => seated().hear({ t: 'move', in_ms: 0, url: 'ws://other' }).cut(4300)
    const crossed = moving()
    crossed.connect()
    expect(crossed.resume().welcome(true).ping().pass(RETURN_MS).mistakes).toEqual([])
    const late = moving().pass(1500)
    late.connect()
    expect(late.resume().mistakes).toEqual([expect.stringMatching(/^Resume: The client resumes/)])
  })

  it('reports a client that does not answer a request for a token in time', () => {
    const asked = () => {
      const script = seated().cut(4200)
      script.connect()
      return script.resume().welcome(true).hear({ t: 'token', within_seconds: 5 }).ping()
    }
    expect(asked().pass(5000).mistakes).toEqual([
      'Tokens: The server has asked for a fresh token, and the client has sent none within 5 s.',
    ])
    expect(asked().say('token', { token: 'u' }).pass(5000).mistakes).toEqual([])
  })

  it('reports a goodbye that ends a session which the client needs', () => {
    const script = seated().say('goodbye', {}).closes()
    script.connect()
    expect(script.resume().mistakes).toEqual([
      'Goodbye: The client resumes a session that it has ended with goodbye on connection 1. To close a connection, send no goodbye: a close ends no session.',
    ])
  })

  it('reports a new session after every connection was closed with 40xx', () => {
    const script = seated().cut(4042)
    script.judge.stopped = 4042
    script.connect()
    expect(script.begin().mistakes).toEqual([
      'Close codes: The client connects again, although every connection was closed with 4042: 40xx means stop.',
    ])
  })

  it('reports messages after goodbye', () => {
    expect(seated().say('goodbye', {}).ping().mistakes).toEqual([
      'Goodbye: The client sends ping after its goodbye, on the same connection.',
    ])
  })

  it('reports a client that does not repeat an unanswered first hello, and gives it time after each attempt', () => {
    const script = new Script().say('hello', { project_id: 'prj_1', token: 't' }).cut()
    script.pass(RETURN_MS - 1).connect()
    script
      .say('hello', { project_id: 'prj_1', token: 't' })
      .cut()
      .pass(RETURN_MS - 1)
    expect(script.mistakes).toEqual([])
    expect(script.pass(1).mistakes).toEqual([
      'Close codes: The connection broke before welcome, and the client has started no new session within 3 s.',
    ])
  })

  it('requires a new session instead of a resume from a client of level 1', () => {
    expect(seated(1).cut().pass(RETURN_MS).mistakes).toEqual([
      'New session: The connection broke, and the client has started no new session within 3 s.',
    ])
    const script = seated(1).cut()
    script.connect()
    expect(script.begin().pass(RETURN_MS).mistakes).toEqual([])
  })
})

describe('Judge: find', () => {
  const back = (script: Script): Script => {
    script.cut().connect()
    return script.resume({ rooms: 0 }).welcome(true).ping()
  }
  const find = { request_id: 1, code: 'K7QX2M' }
  const list = { request_id: 2, room_type: 'counter' }
  const missing = 'Again: This request has no answer, and the client has not sent it again after the resume.'

  it('reports requests without an answer that a resumed client does not send again', () => {
    const script = back(new Script().begin().say('find', find).say('rooms', list))
    script.say('rooms', list).pass(PATIENCE_MS)
    expect(script.mistakes).toEqual([missing])
    const ids = back(new Script().begin().say('find', find)).say('find', { ...find, request_id: 3 })
    expect(ids.pass(PATIENCE_MS).mistakes).toEqual([missing])
  })

  it('accepts a client whose requests were answered or refused, or whose watch has ended', () => {
    const script = new Script().begin().say('find', find).say('rooms', list)
    script.hear({ t: 'found', request_id: 1, room_type: 'counter', key: 'a' })
    script.hear({ t: 'error', code: 'rate_limited', request_id: 2 })
    back(script.say('rooms', { ...list, request_id: 3, watch: true })).pass(PATIENCE_MS)
    expect(script.mistakes).toEqual([])
  })
})

describe('Judge: move', () => {
  const asked = (inMs = 0) => seated().hear({ t: 'move', in_ms: inMs, url: 'ws://other' })

  it('reports a client that closes the old connection before it opens the new one', () => {
    const script = asked().closes()
    script.connect()
    expect(script.resume().mistakes).toEqual([
      'Change over: The client has answered the move on connection 1 by closing that first. Open the new connection first. The server closes the old one.',
    ])
  })

  it('reports a client that moves before in_ms', () => {
    expect(asked(500).pass(100).say('move', {}).mistakes).toEqual([
      'Open: The client moves 400 ms before the in_ms 500 of the move are over: all clients of a node would connect at the same time.',
    ])
  })

  it('accepts a client that moves while a request waits', () => {
    const script = asked()
      .say('join', { request_id: 2, room_type: 'arena' })
      .say('move', {})
      .hear({ t: 'moved' })
    script.connect()
    expect(script.resume().mistakes).toEqual([])
  })

  it('reports messages on the connection that the client has left', () => {
    expect(asked().say('move', {}).ping().mistakes).toEqual([
      'Change over: The client sends ping after its move, on the same connection.',
    ])
  })

  it('reports a client that resumes before moved, and one that does not resume after it', () => {
    const early = asked().say('move', {})
    early.connect()
    expect(early.resume().mistakes).toEqual([
      'Change over: The client resumes before moved has arrived on connection 1.',
    ])
    expect(asked().say('move', {}).hear({ t: 'moved' }).pass(RETURN_MS).mistakes).toEqual([
      'Resume: The connection had its last message, and the client has not resumed the session within 3 s.',
    ])
  })

  it.each([1006, 4005, 4300])(
    'accepts a resume after a first connection that ended with %i before moved',
    (code) => {
      const script = asked().say('move', {}).cut(code)
      script.connect()
      expect(script.resume().welcome(true).ping().pass(RETURN_MS).mistakes).toEqual([])
    },
  )

  it('accepts a client that moves, and a client that stays', () => {
    const script = asked().say('move', {}).hear({ t: 'moved' })
    const before = script.connect()
    script.resume().welcome(true).ping().closes(before).pass(PATIENCE_MS)
    expect(script.mistakes).toEqual([])
    expect(asked().pass(60).act(1, 0).mistakes).toEqual([])
  })
})
