import type { Codec, Json, ServerMessage } from '../messages.ts'
import { canonical } from '../room-view.ts'
import { Debts, Line, type Rule, ruleOf, Seat, Session, textOf } from './books.ts'
import type { Said, SaidAs, SaidRoom } from './frames.ts'

/** A mistake of the client under test. */
export interface Mistake {
  readonly rule: Rule
  /** Description in sentences. */
  readonly what: string
  /** Number of the connection, from 1. */
  readonly connection: number
  /** The client's frame, or the server's frame without the required answer. */
  readonly frame: string | undefined
  /** Milliseconds since the start of the run. */
  readonly at_ms: number
}

export interface JudgeOptions {
  /** Returns the milliseconds of a monotonic clock. */
  readonly now: () => number
  /** Time limit of a required action. */
  readonly patience_ms: number
  /** Time limit of a new connection, with the pause of R5. */
  readonly return_ms: number
  /** Rules of higher levels are not checked. */
  readonly level: number
}

const RESUME_LEVEL = 2
/** Tolerance for a client's clock. */
const CLOCK_MS = 100
/** A fresh token that is due in this time, seconds, is waited for at the end of a run. */
const SOON_SECONDS = 5
/** Number of connections of one session without a welcome, and time, which show that a client does not wait. */
const RUSH = { connections: 10, within_ms: 2000 }

/**
 * Reads both directions of each connection of a client, and collects the violations of docs/protocol.md. A client may know less than its
 * socket has received, never more. So a frame in flight excuses the client, and each required action has a time limit.
 */
export class Judge {
  readonly mistakes: Mistake[] = []
  /** Counts of the client's actions, for the report. */
  readonly counts = {
    connections: 0,
    sessions: 0,
    resumes: 0,
    moves: 0,
    resyncs: 0,
    messages: 0,
    'messages sent again': 0,
    goodbyes: 0,
  }
  /** Code 40xx with which the proxy has closed all connections. */
  stopped: number | undefined
  private readonly options: JudgeOptions
  private readonly startedAt: number
  private readonly sessions = new Map<string, Session>()
  /** Number of hellos with a token, and number of required ones. */
  private starts = 0
  private startsDue = 0
  private readonly debts: Debts

  constructor(options: JudgeOptions) {
    this.options = options
    this.startedAt = options.now()
    this.debts = new Debts(options.now)
  }

  /** Takes a new connection. */
  open(codec: Codec): Line {
    this.counts.connections += 1
    return new Line(this.counts.connections, codec)
  }

  /** Takes a message of the client. */
  said(line: Line, said: Said): void {
    const { session, hello } = line
    const wrong = (rule: string, what: string) => this.mistake(rule, line, what, textOf(said))
    if (line.goodbye)
      wrong('Goodbye', `The client sends ${said.t} after its goodbye, on the same connection.`)
    if (said.t === 'hello') {
      if (hello) wrong('Hello', 'The client sends a second hello on one connection.')
      else this.hello(line, said)
      return
    }
    if (!hello) wrong('Hello', `The first message of the connection is ${said.t}, not hello.`)
    else if (line.welcomed_at !== undefined) line.spoken = true
    else if (said.t !== 'goodbye') wrong('Hello', `The client sends ${said.t} before welcome has arrived.`)
    if (!session) return
    if (line.left) wrong('Change over', `The client sends ${said.t} after its move, on the same connection.`)
    switch (said.t) {
      case 'ping':
        line.pinged_at = this.options.now()
        break
      case 'join':
      case 'leave':
        this.request(line, session, said)
        break
      case 'message':
        this.message(line, session, said)
        break
      case 'state.resync':
        this.resync(line, session, said)
        break
      case 'token':
        session.tokens_sent += 1
        break
      case 'move':
        this.leaves(line)
        break
      case 'goodbye':
        this.counts.goodbyes += 1
        line.goodbye = true
        session.over = { code: 'goodbye', line: line.id }
        break
      case 'rooms':
      case 'find':
        line.requests.add(said.request_id)
        if (said.t === 'find' || !said.watch) session.questions.set(said.request_id, textOf(said))
        break
      case 'rooms.end':
        break
    }
  }

  /** Takes a frame of the client that is not a message. */
  unreadable(line: Line, problem: string, frame: string): void {
    this.mistake(
      line.codec === 'json' ? 'Frames' : 'MessagePack',
      line,
      `The frame is no message of a client: ${problem}.`,
      frame,
    )
  }

  /** Takes a message of the server that was written to the client's socket. `spoilt`: its checksum is wrong. */
  delivered(line: Line, heard: ServerMessage, spoilt = false): void {
    const { session } = line
    if (!session) return
    const now = this.options.now()
    const seat =
      'room_id' in heard && heard.room_id !== undefined ? session.seats.get(heard.room_id) : undefined
    switch (heard.t) {
      case 'welcome':
        this.welcome(line, session, heard)
        break
      case 'token':
        this.mustRenew(line, session, heard.within_seconds)
        break
      case 'joined':
        session.answer(heard.request_id, heard.room_id)
        session.seats.set(heard.room_id, new Seat(heard.room_id, heard.member_id))
        break
      case 'ack':
        seat?.outcome('ack', heard.ref, now)
        break
      case 'reply':
        seat?.outcome('answer', heard.ref, now)
        break
      case 'error':
        if (heard.ref !== undefined) seat?.outcome('answer', heard.ref, now)
        if (heard.request_id !== undefined) {
          session.questions.delete(heard.request_id)
          session.answer(heard.request_id, undefined)
        }
        break
      case 'rooms':
      case 'found':
        session.questions.delete(heard.request_id)
        break
      case 'move':
        line.move ??= { at: now, in_ms: heard.in_ms, url: heard.url }
        break
      case 'moved':
        line.moved = true
        this.mustReturn(line, session, 'had its last message')
        break
      case 'state.snapshot':
      case 'state.resync':
        if (session.line !== line) break
        seat?.takeWhole(heard, now, this.options.patience_ms)
        session.complete(heard.room_id)
        break
      case 'state.patch':
        if (seat && session.line === line) this.follow(line, seat, heard, spoilt)
        break
      case 'left':
        if (!seat) break
        seat.gone_at ??= now
        session.complete(heard.room_id)
        break
    }
  }

  /** Takes the start of a silence: no more frames arrive on the connection, in either direction, and it stays open. */
  silent(line: Line): void {
    const { session } = line
    if (!session) return
    line.silent = true
    const waitMs = 2 * session.heartbeat_ms + this.options.patience_ms
    const holds = () => line.ended_at === undefined && session.line === line
    const what = `No frame has arrived for ${seconds(waitMs)}, and the client still holds the connection.`
    this.debts.owe(waitMs, holds, () => this.mistake('Heartbeat', line, what))
  }

  /** Takes the end of a connection. `client`: the client has closed it. `other`: it was closed with `code`. 1006: it broke. */
  ended(line: Line, by: 'client' | 'other', code: number): void {
    if (line.ended_at !== undefined) return
    line.ended_at = this.options.now()
    line.closed_itself = by === 'client'
    const { session } = line
    if (!session || session.line !== line || session.over) return
    for (const seat of session.seats.values()) seat.cutOff(line.ended_at - this.options.patience_ms)
    if (line.left) {
      if (!line.moved) this.mustReturn(line, session, 'ended during a move')
      return
    }
    if (line.closed_itself) {
      if (line.silent) this.mustReturn(line, session, 'was silent, and the client gave it up')
      return
    }
    const hundred = Math.floor(code / 100)
    const how = code === 1006 ? 'broke' : `was closed with ${code}`
    if (session.id === '') {
      if (hundred !== 40) this.mustStartAgain(line, `${how} before welcome`, 'Close codes')
      return
    }
    if (hundred === 40 || hundred === 43) session.over = { code, line: line.id }
    if (hundred === 43) this.mustStartAgain(line, how, 'Resume')
    if (hundred === 40 || hundred === 43) return
    this.mustReturn(line, session, how)
  }

  /** Reports what is overdue. */
  look(): void {
    this.debts.look()
  }

  /** True while a client owes an action whose deadline is not over. */
  get waits(): boolean {
    return this.debts.waits
  }

  /** Ids of the rooms in which the client has a seat. */
  get rooms(): string[] {
    return [...this.sessions.values()].flatMap(({ seats }) =>
      [...seats.values()].flatMap((seat) => (seat.gone_at === undefined ? [seat.room_id] : [])),
    )
  }

  private hello(line: Line, said: SaidAs<'hello'>): void {
    line.hello = said
    if (this.stopped !== undefined)
      this.mistake(
        'Close codes',
        line,
        `The client connects again, although every connection was closed with ${this.stopped}: 40xx means stop.`,
        textOf(said),
      )
    if (!said.resume) {
      line.session = new Session(line, said.features ?? [])
      this.starts += 1
      return
    }
    this.counts.resumes += 1
    const session = this.sessions.get(said.resume.session_id)
    if (!session) {
      this.mistake('Resume', line, 'The client resumes a session that no welcome has named.', textOf(said))
      return
    }
    this.mayResume(line, session, said)
    this.changesOver(line, session, said)
    this.positions(line, session, said.resume.rooms, textOf(said))
    session.line = line
    line.session = session
  }

  private mayResume(line: Line, session: Session, said: SaidAs<'hello'>): void {
    const wrong = (rule: string, what: string) => this.mistake(rule, line, what, textOf(said))
    const { over, tokens } = session
    if (over?.code === 'goodbye')
      wrong(
        'Goodbye',
        `The client resumes a session that it has ended with goodbye on connection ${over.line}. To close a connection, send no goodbye: a close ends no session.`,
      )
    else if (over && over.code < 4100)
      wrong(
        'Close codes',
        `The client comes back, although connection ${over.line} was closed with ${over.code}: 40xx means stop.`,
      )
    else if (over && this.crossed(session)) {
      session.over = undefined
      this.starts += 1
    } else if (over)
      wrong(
        'Resume',
        `The client resumes, although connection ${over.line} was closed with ${over.code}: after 43xx, start a new session.`,
      )

    const used = tokens.findIndex(({ token }) => token === said.resume?.resume_token)
    const newest = tokens.at(-1)
    if (used < 0) wrong('Resume', 'No welcome of this session had this resume_token.')
    else if (used < tokens.length - 1 && newest?.line.spoken)
      wrong(
        'Resume',
        `The resume_token is old. The welcome of connection ${newest.line.id} had a newer one, and the client has answered that welcome.`,
      )

    const missing = session.features.filter((feature) => !said.features?.includes(feature))
    if (missing.length > 0)
      wrong(
        'Feature',
        `The first hello of the session listed ${missing.join(', ')} in features, and this one does not.`,
      )

    const now = this.options.now()
    session.attempts = [...session.attempts.filter((at) => now - at < RUSH.within_ms), now]
    if (session.attempts.length === RUSH.connections)
      wrong(
        'Backoff',
        `The client has connected ${RUSH.connections} times within ${seconds(RUSH.within_ms)} without a welcome: it must wait longer after each attempt.`,
      )
  }

  /** True if the client was moving, and its hello may have crossed the end of the session's previous connection. */
  private crossed({ line }: Session): boolean {
    const { now, patience_ms: patienceMs } = this.options
    return line.move !== undefined && line.ended_at !== undefined && now() - line.ended_at <= patienceMs
  }

  /** Takes the `move` of a client. */
  private leaves(line: Line): void {
    line.left = true
    this.counts.moves += 1
    const { move } = line
    const earlyMs = move ? move.at + move.in_ms - this.options.now() : 0
    if (move && earlyMs > CLOCK_MS)
      this.mistake(
        'Open',
        line,
        `The client moves ${Math.round(earlyMs)} ms before the in_ms ${move.in_ms} of the move are over: all clients of a node would connect at the same time.`,
      )
  }

  /** Checks how the client left the session's previous connection. */
  private changesOver(line: Line, session: Session, said: SaidAs<'hello'>): void {
    const { line: before } = session
    if (!before.move || before.silent || before.goodbye || before.moved) return
    const wrong = (what: string) => this.mistake('Change over', line, what, textOf(said))
    if (before.closed_itself && !before.left)
      wrong(
        `The client has answered the move on connection ${before.id} by closing that first. Open the new connection first. The server closes the old one.`,
      )
    else if (before.ended_at === undefined)
      wrong(`The client resumes before moved has arrived on connection ${before.id}.`)
  }

  private positions(line: Line, session: Session, rooms: readonly SaidRoom[], frame: string): void {
    const now = this.options.now()
    // Later frames may have been lost with the connection.
    const sure = (session.line.ended_at ?? now) - this.options.patience_ms
    const listed = new Map(rooms.map((room) => [room.room_id, room]))
    for (const [roomId, seat] of session.seats) {
      if (listed.has(roomId) || seat.gone_at !== undefined) continue
      seat.gone_at = now
      if (seat.whole_at !== undefined && seat.whole_at < sure) {
        const what = `The resume does not list ${roomId}: the client leaves a room in which it has a seat.`
        this.mistake('Listed rooms', line, what, frame)
      }
    }
    for (const [roomId, room] of listed) {
      const wrong = (what: string, rule = 'Listed rooms') =>
        this.mistake(rule, line, `${roomId}: ${what}`, frame)
      const seat = session.seats.get(roomId)
      if (!seat) wrong('The resume lists a room that the client has not joined.')
      else if (seat.gone_at !== undefined) {
        if (seat.gone_at < sure) wrong('The resume lists a room in which the seat is gone.')
      } else if (seat.whole_at === undefined) wrong('The resume lists a room whose snapshot has not arrived.')
      else {
        if (room.member_id !== seat.member_id)
          wrong(`The member_id is ${room.member_id}, but joined had ${seat.member_id}.`)
        this.checkPosition(seat, room, wrong)
        this.checkSettled(seat, room.settled, wrong)
      }
    }
  }

  private checkPosition(seat: Seat, room: SaidRoom, wrong: (what: string) => void): void {
    const { now, patience_ms: patienceMs } = this.options
    const { epoch, seq } = seat
    const least = seat.deliveredBefore(now() - patienceMs)
    const named = `epoch ${room.epoch}, seq ${room.seq}`
    if (!seat.restart(room, now()))
      wrong(`The resume names ${named}, which a correct client never had. It has epoch ${epoch}, seq ${seq}.`)
    // A client lists position 0 while it waits for a whole state.
    else if (
      least &&
      room.epoch > 0 &&
      (room.epoch < least.epoch || (room.epoch === least.epoch && room.seq < least.seq))
    )
      wrong(
        `The resume names ${named}, although seq ${least.seq} was delivered ${seconds(now() - least.at)} before.`,
      )
  }

  private checkSettled(seat: Seat, settled: number, wrong: (what: string, rule: string) => void): void {
    const { now, patience_ms: patienceMs } = this.options
    const { known } = seat
    const least = seat.knownBefore(now() - patienceMs)
    if (settled > known)
      wrong(`settled is ${settled}, but the client can know the outcomes only up to ref ${known}.`, 'Settled')
    else if (settled < seat.settled) wrong(`settled goes down from ${seat.settled} to ${settled}.`, 'Settled')
    else if (settled < least)
      wrong(
        `settled is ${settled}, although the outcomes up to ref ${least} were delivered more than ${seconds(patienceMs)} before.`,
        'Settled',
      )
    seat.settled = Math.max(seat.settled, settled)
  }

  private welcome(line: Line, session: Session, heard: Extract<ServerMessage, { t: 'welcome' }>): void {
    const { now, patience_ms: patienceMs } = this.options
    line.welcomed_at = now()
    if (session.id === '') this.counts.sessions += 1
    session.attempts = []
    session.id = heard.session_id
    session.heartbeat_ms = heard.heartbeat_seconds * 1000
    session.tokens.push({ token: heard.resume_token, line })
    this.sessions.set(session.id, session)
    const silent = () => this.lives(line) && line.pinged_at === undefined
    const noPing = `The client has sent no ping within ${seconds(patienceMs)} after welcome.`
    this.debts.owe(patienceMs, silent, () => this.mistake('Heartbeat', line, noPing))
    this.mustPing(line, session)
    if (!heard.resumed) return
    for (const seat of session.seats.values()) this.mustResend(line, seat)
    for (const [id, request] of session.requests) {
      const missing = request.t === 'join' ? 'The snapshot of this join' : 'The answer to this leave'
      const what = `${missing} has not arrived, and the client has not sent the ${request.t} again after the resume.`
      this.debts.owe(
        patienceMs,
        () => this.lives(line) && !line.requests.has(id) && !request.complete,
        () => this.mistake('Again', line, what, request.text),
      )
    }
    for (const [id, text] of session.questions)
      this.debts.owe(
        patienceMs,
        () => this.lives(line) && !line.requests.has(id) && session.questions.has(id),
        () =>
          this.mistake(
            'Again',
            line,
            `This request has no answer, and the client has not sent it again after the resume.`,
            text,
          ),
      )
  }

  private mustPing(line: Line, session: Session): void {
    const waitMs = session.heartbeat_ms + this.options.patience_ms
    const before = line.pinged_at
    this.debts.owe(
      waitMs,
      () => this.lives(line),
      () => {
        if (before !== undefined && line.pinged_at === before)
          this.mistake(
            'Heartbeat',
            line,
            `The client has sent no ping for ${seconds(waitMs)}; heartbeat_seconds is ${session.heartbeat_ms / 1000}.`,
          )
        else this.mustPing(line, session)
      },
      false,
    )
  }

  /** Requires a fresh token within this time. */
  private mustRenew(line: Line, session: Session, withinSeconds: number): void {
    const { tokens_sent: sent } = session
    this.debts.owe(
      withinSeconds * 1000,
      () => this.lives(line) && session.tokens_sent === sent,
      () =>
        this.mistake(
          'Tokens',
          line,
          `The server has asked for a fresh token, and the client has sent none within ${withinSeconds} s.`,
        ),
      withinSeconds <= SOON_SECONDS,
    )
  }

  private mustResend(line: Line, seat: Seat): void {
    const { patience_ms: patienceMs } = this.options
    const last = seat.sent.size
    this.debts.owe(
      patienceMs,
      () => this.lives(line) && seat.gone_at === undefined && seat.known < last && seat.lastOn(line) < last,
      () =>
        this.mistake(
          'Keep',
          line,
          `${seat.room_id}: the outcome of ref ${seat.known + 1} to ${last} is not known, and the client has not sent them again within ${seconds(patienceMs)} after the resume.`,
        ),
    )
  }

  private mustReturn(line: Line, session: Session, how: string): void {
    // A client of level 1 starts a new session instead.
    if (this.options.level < RESUME_LEVEL) {
      this.mustStartAgain(line, how, 'New session')
      return
    }
    const { return_ms: returnMs } = this.options
    this.debts.owe(
      returnMs,
      () => session.line === line && !session.over,
      () => {
        const what = `The connection ${how}, and the client has not resumed the session within ${seconds(returnMs)}.`
        this.mistake('Resume', line, what)
      },
    )
  }

  /** Requires one new session for each connection that needs one. */
  private mustStartAgain(line: Line, how: string, title: string): void {
    this.startsDue = Math.max(this.startsDue, this.starts) + 1
    const { startsDue } = this
    const { return_ms: returnMs } = this.options
    this.debts.owe(
      returnMs,
      () => this.starts < startsDue,
      () => {
        const what = `The connection ${how}, and the client has started no new session within ${seconds(returnMs)}.`
        this.mistake(title, line, what)
      },
    )
  }

  private request(line: Line, session: Session, said: SaidAs<'join' | 'leave'>): void {
    const { request_id: id, t } = said
    const text = textOf(said)
    const wrong = (what: string) => this.mistake('Join', line, what, text)
    const before = session.requests.get(id)
    const highest = Math.max(0, ...session.requests.keys())
    if (line.requests.has(id)) wrong(`The client sends request_id ${id} twice on one connection.`)
    else if (before && before.text !== text)
      wrong(`request_id ${id} was another request before: ${before.text}.`)
    else if (!before && id < highest) wrong(`request_id ${id} comes after ${highest}.`)
    line.requests.add(id)
    const room = t === 'leave' && { room_id: said.room_id }
    if (!before) session.requests.set(id, { text, t, ...room, answered: false, complete: false })
  }

  private message(line: Line, session: Session, said: SaidAs<'message'>): void {
    const { room_id: roomId, ref, settled, type, data } = said
    const wrong = (what: string, rule: string) => this.mistake(rule, line, `${roomId}: ${what}`, textOf(said))
    const seat = session.seats.get(roomId)
    this.counts.messages += 1
    if (!seat) wrong('The client sends a message to a room that it has not joined.', 'Join')
    if (!seat || seat.gone_at !== undefined || ref === undefined || settled === undefined) return
    const text = canonical([type, data as Json])
    const before = seat.sent.get(ref)
    const due = seat.dueInsteadOf(ref, line)
    if (before === undefined) this.checkSettled(seat, settled, wrong)
    else this.counts['messages sent again'] += 1
    if (before !== undefined && before !== text)
      wrong(`ref ${ref} comes again with other data. Before, it was ${before.slice(0, 200)}.`, 'Keep')
    if (ref <= seat.lastOn(line))
      wrong(`ref ${ref} comes after ${seat.lastOn(line)} on the same connection.`, 'Ref')
    else if (due !== undefined)
      wrong(
        `ref ${ref} comes, but ${due} is due${before === undefined ? '' : ': after a resume, send every kept message again, the lowest first'}.`,
        before === undefined ? 'Ref' : 'Keep',
      )
    seat.send(ref, text, line)
  }

  private resync(line: Line, session: Session, said: SaidAs<'state.resync'>): void {
    this.counts.resyncs += 1
    const seat = session.seats.get(said.room_id)
    if (!seat || seat.gone_at !== undefined) return
    const wrong = (rule: string, what: string) =>
      this.mistake(rule, line, `${said.room_id}: ${what}`, textOf(said))
    const { gap } = seat
    switch (seat.ask(said.reason, this.options.now())) {
      case 'twice':
        wrong(
          'Ask',
          'The client asks for the whole state twice. It must wait for the answer, or for the end of the connection.',
        )
        break
      case 'no cause':
        wrong(
          'Ask',
          `The client asks for the whole state without a cause: the frames that it has got have no gap up to seq ${seat.seq}, and the right checksums.`,
        )
        break
      case 'wrong reason':
        wrong('Ask', `The reason is ${said.reason}; it must be ${gap?.reason} after ${gap?.frame}.`)
        break
    }
  }

  /** Takes a frame like a correct client. */
  private follow(
    line: Line,
    seat: Seat,
    heard: Extract<ServerMessage, { t: 'state.patch' }>,
    spoilt: boolean,
  ): void {
    const { now, patience_ms: patienceMs } = this.options
    const { seq } = seat
    const reason = seat.take(heard, spoilt, now())
    if (reason === undefined) return
    const frame = textOf(heard).slice(0, 300)
    const gap = { reason, frame, asked: false }
    seat.gap = gap
    const why =
      reason === 'sequence'
        ? `seq ${heard.seq} came after ${seq}`
        : `the checksum of seq ${heard.seq} is not that of the state`
    this.debts.owe(
      patienceMs,
      () => this.lives(line) && seat.gone_at === undefined && seat.gap === gap && !gap.asked,
      () =>
        this.mistake(
          'Ask',
          line,
          `${seat.room_id}: ${why}, and the client has not asked for the whole state within ${seconds(patienceMs)}.`,
          frame,
        ),
    )
  }

  /** Returns whether the client must follow the rules on this connection now. */
  private lives(line: Line): boolean {
    const { session, ended_at: endedAt, silent, left } = line
    return (
      endedAt === undefined &&
      !silent &&
      !left &&
      session !== undefined &&
      session.line === line &&
      !session.over
    )
  }

  private mistake(title: string, line: Line, what: string, frame?: string): void {
    const rule = ruleOf(title)
    if (rule.level > this.options.level) return
    const atMs = this.options.now() - this.startedAt
    this.mistakes.push({ rule, what, frame, connection: line.id, at_ms: atMs })
  }
}

const seconds = (ms: number): string => `${ms / 1000} s`
