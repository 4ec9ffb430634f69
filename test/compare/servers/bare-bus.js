import { connect } from 'node:net'

/**
 * The lower limit of a bus over Redis: bytes for another node, collected until the next flush slot as roomful does, published
 * without replies and read without a library. Nothing is resent or reconnected.
 */

const GATHER_MS = 1000 / 120
const CRLF = Buffer.from('\r\n')

export class Bus {
  #publisher
  /** Queued messages for each node, and the timer that sends them. */
  #waiting
  #timer

  /** Calls `onMessage` with each message for node `index` of `count`. */
  constructor(url, { index, count }, onMessage) {
    const { hostname: host, port } = new URL(url)
    this.#waiting = Array.from({ length: count }, () => [])
    this.#publisher = connect({ host, port, noDelay: true })
    this.#publisher.write('CLIENT REPLY OFF\r\n')
    const subscriber = connect({ host, port, noDelay: true })
    subscriber.write(`SUBSCRIBE node${index}\r\n`)
    let bytes = Buffer.alloc(0)
    subscriber.once('data', () =>
      subscriber.on('data', (chunk) => {
        bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk])
        bytes = bytes.subarray(eachPublished(bytes, onMessage))
      }),
    )
  }

  send(to, message) {
    const length = Buffer.allocUnsafe(2)
    length.writeUInt16LE(message.length)
    this.#waiting[to].push(length, message)
    this.#timer ??= setTimeout(() => this.#sendAll(), GATHER_MS - (Date.now() % GATHER_MS))
  }

  #sendAll() {
    this.#timer = undefined
    const commands = this.#waiting.flatMap((messages, to) => {
      if (messages.length === 0) return []
      const body = Buffer.concat(messages.splice(0))
      return [Buffer.from(`*3\r\n$7\r\nPUBLISH\r\n$5\r\nnode${to}\r\n$${body.length}\r\n`), body, CRLF]
    })
    this.#publisher.write(Buffer.concat(commands))
  }
}

/** Precedes the length of a body: three bulk strings, the first two of which are `message` and the channel. */
const HEAD = '*3\r\n$7\r\nmessage\r\n$5\r\nnode0\r\n$'.length

/** Calls `onMessage` with the messages of all complete bodies; returns where the remainder begins. */
function eachPublished(bytes, onMessage) {
  let at = 0
  while (at + HEAD < bytes.length) {
    const from = bytes.indexOf('\r\n', at + HEAD) + 2
    const end = from + Number(bytes.latin1Slice(at + HEAD, from - 2))
    if (from < 2 || end + 2 > bytes.length) break
    for (let next = from; next < end; ) {
      const start = next + 2
      next = start + bytes.readUInt16LE(next)
      onMessage(bytes.subarray(start, next))
    }
    at = end + 2
  }
  return at
}
