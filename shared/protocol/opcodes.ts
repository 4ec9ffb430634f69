/**
 * The first element of every MessagePack frame. What clients send is below 16, what the server sends is 16 and up. The same names and
 * numbers stand in docs/protocol.md.
 */
export const OPCODES = {
  hello: 0,
  join: 1,
  leave: 2,
  message: 3,
  'state.resync.request': 4,
  ping: 5,
  token: 6,
  welcome: 16,
  joined: 17,
  left: 18,
  'state.snapshot': 19,
  'state.resync': 20,
  'state.patch': 21,
  event: 22,
  'room.joined': 23,
  'room.left': 24,
  ack: 25,
  error: 26,
  draining: 27,
  pong: 28,
} as const

/** Fields of `limits`, in their order on the wire. */
export const LIMITS = ['max_message_bytes', 'messages_per_second', 'message_burst', 'max_rooms'] as const

/** Reasons of a client's `state.resync`: their index is what is sent. */
export const RESYNC_REASONS = ['sequence', 'checksum'] as const

/** Reasons of `room.left`: their index is what is sent. */
export const LEAVE_REASONS = ['left', 'session_ended', 'kicked', 'closed'] as const
