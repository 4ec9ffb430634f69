import type { ClientMessage, Codec, Received, RoomPosition, ServerMessage } from './messages.ts'
import { RoomView } from './room-view.ts'

type KeptMessage = Extract<ClientMessage, { t: 'message' }>
type Resumption = Extract<ClientMessage, { resume: object }>

/** What outlives a client's connection: its ids, its rooms, and the reliable messages that are not settled. */
export class Session {
  readonly projectId: string
  readonly codec: Codec
  readonly faults: string[] = []
  readonly rooms = new Map<string, RoomView>()
  sessionId = ''
  resumeToken = ''
  welcome: Received<'welcome'> | undefined
  /** Reliable messages without an answer, by ref, in the order they were sent. */
  readonly kept = new Map<number, KeptMessage>()
  private lastRef = 0
  private readonly sent = new Map<string, Set<number>>()
  /** The room whose snapshot must be the next frame. */
  private snapshotDue: string | undefined

  constructor(projectId: string, codec: Codec) {
    this.projectId = projectId
    this.codec = codec
  }

  /** The next of the session's one counter of refs. */
  nextRef(): number {
    this.lastRef += 1
    return this.lastRef
  }

  room(roomId: string): RoomView {
    const view = this.rooms.get(roomId)
    if (!view) throw new Error(`the client never joined ${roomId}`)
    return view
  }

  /** The `hello` that takes this session up again. */
  resumption(): Resumption {
    const rooms: RoomPosition[] = [...this.rooms.values()]
      .filter((view) => view.seated)
      .map((view) => view.position)
    const { projectId, sessionId, resumeToken } = this
    return {
      t: 'hello',
      project_id: projectId,
      resume: { session_id: sessionId, resume_token: resumeToken, rooms },
    }
  }

  /** The first thing this client saw that no conforming server sends. */
  firstFault(): string | undefined {
    if (this.faults.length > 0) return this.faults[0]
    for (const { faults } of this.rooms.values()) if (faults.length > 0) return faults[0]
    return undefined
  }

  sending(message: ClientMessage): void {
    if (message.t !== 'message' || message.ref === undefined) return
    this.kept.set(message.ref, message)
    this.lastRef = Math.max(this.lastRef, message.ref)
    const refs = this.sent.get(message.room_id) ?? new Set()
    this.sent.set(message.room_id, refs.add(message.ref))
  }

  received(message: ServerMessage): void {
    if (this.snapshotDue !== undefined) this.checkSnapshotDue(message)
    switch (message.t) {
      case 'welcome':
        this.takeWelcome(message)
        break
      case 'joined':
        this.rooms.set(message.room_id, new RoomView(message))
        this.forget(message.room_id)
        this.snapshotDue = message.room_id
        break
      case 'left':
        this.room(message.room_id).seated = false
        this.forget(message.room_id)
        break
      case 'ack':
        this.takeAck(message)
        break
      case 'error':
        if (message.ref !== undefined) this.kept.delete(message.ref)
        break
      case 'draining':
      case 'pong':
        break
      default:
        this.takeRoomMessage(message)
    }
  }

  private takeRoomMessage(
    message: Exclude<
      ServerMessage,
      { t: 'welcome' | 'joined' | 'left' | 'ack' | 'error' | 'draining' | 'pong' }
    >,
  ): void {
    const view = this.rooms.get(message.room_id)
    if (!view) {
      this.faults.push(`${message.t} of ${message.room_id}, where this client never had a seat`)
    } else if (!view.seated) {
      this.faults.push(`${message.t} of ${message.room_id}, where this client has no seat any more`)
    } else view.apply(message)
  }

  private checkSnapshotDue(message: ServerMessage): void {
    if (message.t !== 'state.snapshot' || message.room_id !== this.snapshotDue) {
      this.faults.push(`${message.t} right behind joined of ${this.snapshotDue}: state.snapshot was due`)
    }
    this.snapshotDue = undefined
  }

  private takeWelcome(message: Received<'welcome'>): void {
    if (message.resume_token === this.resumeToken) this.faults.push('the resume token did not rotate')
    if (message.resumed !== (message.rooms !== undefined)) {
      this.faults.push(`welcome with resumed ${message.resumed} and rooms ${JSON.stringify(message.rooms)}`)
    }
    this.sessionId = message.session_id
    this.resumeToken = message.resume_token
    this.welcome = message
    if (!message.rooms) return
    const back = new Map(message.rooms.map(({ room_id: roomId, resumed }) => [roomId, resumed]))
    for (const view of this.rooms.values()) {
      view.seated &&= back.has(view.roomId)
      view.waiting = back.get(view.roomId) === false
    }
  }

  private takeAck({ room_id: roomId, ref }: Received<'ack'>): void {
    if (!this.sent.get(roomId)?.has(ref)) {
      this.faults.push(`ack of ref ${ref} in ${roomId}, which this client never sent as a reliable message`)
    }
    for (const [kept, message] of this.kept) {
      if (message.room_id === roomId && kept <= ref) this.kept.delete(kept)
    }
  }

  private forget(roomId: string): void {
    for (const [ref, message] of this.kept) if (message.room_id === roomId) this.kept.delete(ref)
  }
}
