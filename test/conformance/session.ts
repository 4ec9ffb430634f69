import type { ClientMessage, Codec, Received, RoomPosition, ServerMessage } from './messages.ts'
import { RoomView } from './room-view.ts'

type KeptMessage = Extract<ClientMessage, { t: 'message' }>
type Resumption = Extract<ClientMessage, { resume: object }>

/** What outlives a client's connection: its ids, its rooms, and the reliable messages that are not settled. */
export class Session {
  readonly project_id: string
  readonly codec: Codec
  readonly faults: string[] = []
  readonly rooms = new Map<string, RoomView>()
  session_id = ''
  resume_token = ''
  welcome: Received<'welcome'> | undefined
  /** Reliable messages without an answer, by ref, in the order they were sent. */
  readonly kept = new Map<number, KeptMessage>()
  private last_ref = 0
  private readonly sent = new Map<string, Set<number>>()
  /** The room whose snapshot must be the next frame. */
  private snapshot_due: string | undefined

  constructor(project_id: string, codec: Codec) {
    this.project_id = project_id
    this.codec = codec
  }

  /** The next of the session's one counter of refs. */
  nextRef(): number {
    this.last_ref += 1
    return this.last_ref
  }

  room(room_id: string): RoomView {
    const view = this.rooms.get(room_id)
    if (!view) throw new Error(`the client never joined ${room_id}`)
    return view
  }

  /** The `hello` that takes this session up again. */
  resumption(): Resumption {
    const rooms: RoomPosition[] = [...this.rooms.values()]
      .filter((view) => view.seated)
      .map((view) => view.position)
    const { project_id, session_id, resume_token } = this
    return { t: 'hello', project_id, resume: { session_id, resume_token, rooms } }
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
    this.last_ref = Math.max(this.last_ref, message.ref)
    const refs = this.sent.get(message.room_id) ?? new Set()
    this.sent.set(message.room_id, refs.add(message.ref))
  }

  received(message: ServerMessage): void {
    if (this.snapshot_due !== undefined) this.checkSnapshotDue(message)
    switch (message.t) {
      case 'welcome':
        this.takeWelcome(message)
        break
      case 'joined':
        this.rooms.set(message.room_id, new RoomView(message))
        this.forget(message.room_id)
        this.snapshot_due = message.room_id
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
    if (message.t !== 'state.snapshot' || message.room_id !== this.snapshot_due) {
      this.faults.push(`${message.t} right behind joined of ${this.snapshot_due}: state.snapshot was due`)
    }
    this.snapshot_due = undefined
  }

  private takeWelcome(message: Received<'welcome'>): void {
    if (message.resume_token === this.resume_token) this.faults.push('the resume token did not rotate')
    if (message.resumed !== (message.rooms !== undefined)) {
      this.faults.push(`welcome with resumed ${message.resumed} and rooms ${JSON.stringify(message.rooms)}`)
    }
    this.session_id = message.session_id
    this.resume_token = message.resume_token
    this.welcome = message
    if (!message.rooms) return
    const back = new Map(message.rooms.map(({ room_id, resumed }) => [room_id, resumed]))
    for (const view of this.rooms.values()) {
      view.seated &&= back.has(view.room_id)
      view.waiting = back.get(view.room_id) === false
    }
  }

  private takeAck({ room_id, ref }: Received<'ack'>): void {
    if (!this.sent.get(room_id)?.has(ref)) {
      this.faults.push(`ack of ref ${ref} in ${room_id}, which this client never sent as a reliable message`)
    }
    for (const [kept, message] of this.kept) {
      if (message.room_id === room_id && kept <= ref) this.kept.delete(kept)
    }
  }

  private forget(room_id: string): void {
    for (const [ref, message] of this.kept) if (message.room_id === room_id) this.kept.delete(ref)
  }
}
