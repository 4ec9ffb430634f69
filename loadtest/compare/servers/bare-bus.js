import { connect } from 'node:net'

/**
 * What no bus over Redis can go below: bytes for another node, gathered up to the next moment as roomful does it, published without answers and
 * read without a library. Nothing is sent again, and a connection that is lost stays so.
 */

const GATHER_MS = 1000 / 120

export class Bus {
  #publisher
  /** What waits for each node, and the timer that sends it. */
  #waiting
  #timer

  /** `onMessage` gets what other nodes have sent to node `index` of `count`. */
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
      const head = `*3\r\n$7\r\nPUBLISH\r\n$5\r\nnode${to}\r\n$${body.length}\r\n`
      return [Buffer.from(head), body, Buffer.from('\r\n')]
    })
    this.#publisher.write(Buffer.concat(commands))
  }
}

/** What stands before the length of a body: three bulk strings, of which the first two are `message` and the channel. */
const HEAD = '*3\r\n$7\r\nmessage\r\n$5\r\nnode0\r\n$'.length

/** Hands on the messages of all bodies that are whole; returns where the rest begins. */
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
