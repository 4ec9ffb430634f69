import type { Duplex } from 'node:stream'

/**
 * The bytes of the bus: encoded publications, and a reader that takes messages out of a connection's data (RESP3) before the client library
 * gets it. The library creates about ten objects for a message and a promise for a publication, and nodes exchange hundreds of both per
 * second.
 */

const CR_LF = Buffer.from('\r\n')
const PUSH = 0x3e
/** A message is a push of three elements: the kind, the channel, the message. */
const KINDS: readonly Buffer[] = ['message', 'smessage'].map((kind) =>
  Buffer.from(`>3\r\n$${kind.length}\r\n${kind}\r\n`),
)

/**
 * Returns the bytes before the length of a message that is published on `channel`. Redis does not answer, so no process must wake up for
 * the answer.
 */
export function publicationHead(command: 'publish' | 'spublish', channel: string): Buffer {
  const words = ['CLIENT', 'REPLY', 'SKIP']
  const skip = `*3\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join('')}`
  const to = `$${command.length}\r\n${command}\r\n$${Buffer.byteLength(channel)}\r\n${channel}\r\n`
  return Buffer.from(`${skip}*3\r\n${to}$`)
}

/** Returns a complete publication with this head. */
export function publication(head: Buffer, message: Uint8Array): Buffer {
  const length = `${message.length}`
  const bytes = Buffer.allocUnsafe(head.length + length.length + 2 + message.length + 2)
  bytes.set(head)
  let at = head.length
  at += bytes.write(length, at, 'latin1')
  bytes.set(CR_LF, at)
  bytes.set(message, at + 2)
  bytes.set(CR_LF, bytes.length - 2)
  return bytes
}

/** Takes the messages out of a connection's data. All other values are passed on unchanged, each in one piece. */
export class MessageReader {
  readonly #onMessage: (channel: string, message: Buffer) => void
  readonly #onOther: (bytes: Buffer) => void
  /** Start of an incomplete value, and its minimum length in bytes. */
  #begun: Buffer[] = []
  #begunBytes = 0
  #needed = 0

  /** Messages are views of the data, or of a copy if they arrived in several parts. */
  constructor(onMessage: (channel: string, message: Buffer) => void, onOther: (bytes: Buffer) => void) {
    this.#onMessage = onMessage
    this.#onOther = onOther
  }

  /** Inserts the reader between a connection and the present listeners of its data. */
  static before(stream: Duplex, onMessage: (channel: string, message: Buffer) => void): void {
    const listeners = stream.listeners('data')
    const reader = new MessageReader(onMessage, (bytes) => {
      for (const listener of listeners) listener.call(stream, bytes)
    })
    stream.removeAllListeners('data')
    stream.on('data', (chunk: Buffer) => reader.read(chunk))
  }

  read(chunk: Buffer): void {
    let bytes = chunk
    if (this.#begunBytes > 0) {
      this.#begun.push(chunk)
      this.#begunBytes += chunk.length
      if (this.#begunBytes < this.#needed) return
      bytes = Buffer.concat(this.#begun, this.#begunBytes)
    }
    let at = 0
    let end = 0
    while (at < bytes.length) {
      end = endOf(bytes, at)
      if (end > bytes.length) break
      if (bytes[at] !== PUSH || !this.#message(bytes, at)) this.#onOther(bytes.subarray(at, end))
      at = end
    }
    this.#begun = at < bytes.length ? [bytes.subarray(at)] : []
    this.#begunBytes = bytes.length - at
    this.#needed = end - at
  }

  /** Returns false if the push is not a message. */
  #message(bytes: Buffer, at: number): boolean {
    const kind = KINDS.find((each) => bytes.compare(each, 0, each.length, at, at + each.length) === 0)
    if (!kind) return false
    const channelAt = lineEnd(bytes, at + kind.length)
    const channelEnd = endOf(bytes, at + kind.length) - 2
    const messageAt = lineEnd(bytes, channelEnd + 2)
    const messageEnd = endOf(bytes, channelEnd + 2) - 2
    try {
      this.#onMessage(bytes.toString('utf8', channelAt, channelEnd), bytes.subarray(messageAt, messageEnd))
    } catch (error) {
      // As with a callback of the library: the error is not one of the data, which contains more messages.
      process.nextTick(() => {
        throw error
      })
    }
    return true
  }
}

/** Returns the offset after the line at `at`. If the line is incomplete, the offset is beyond the data. */
function lineEnd(bytes: Buffer, at: number): number {
  for (let end = at + 1; end < bytes.length; end++) if (bytes[end] === 0x0a) return end + 1
  return bytes.length + 1
}

/** Returns the number in the line at `at`, after its type byte. */
function numberAt(bytes: Buffer, at: number, end: number): number {
  if (bytes[at + 1] === 0x2d) return -1
  let number = 0
  for (let digit = at + 1; digit < end - 2; digit++) number = 10 * number + bytes[digit]! - 0x30
  return number
}

/** Returns the offset after the RESP3 value at `at`. If the value is incomplete: its minimum end, which is beyond the data. */
function endOf(bytes: Buffer, at: number): number {
  let end = lineEnd(bytes, at)
  if (end > bytes.length) return end
  let values = 0
  switch (String.fromCharCode(bytes[at]!)) {
    case '$':
    case '=':
    case '!': {
      const length = numberAt(bytes, at, end)
      return length < 0 ? end : end + length + 2
    }
    case '*':
    case '~':
    case '>':
      values = numberAt(bytes, at, end)
      break
    case '%':
      values = 2 * numberAt(bytes, at, end)
  }
  for (; values > 0 && end <= bytes.length; values--) end = endOf(bytes, end)
  return end
}
