import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { IncomingMessage } from 'node:http'
import { type AddressInfo, connect, createServer, type Server, Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type WebSocket, WebSocketServer } from 'ws'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { runLength } from '../../test/support/run-length.ts'
import { type ByteSink, FrameReader, type PolledSocket, Polling, Sockets, TURN_BYTES } from './fast-socket.ts'

describe('Sockets', () => {
  let server: Server
  let near: Socket
  let far: Socket
  let sink: ByteSink

  beforeEach(async () => {
    server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    far = connect((server.address() as { port: number }).port, '127.0.0.1').on('error', () => undefined)
    ;[near] = (await once(server, 'connection')) as [Socket]
    near.on('error', () => undefined)
    sink = new Sockets().to(near, { lost: () => false })
  })

  afterEach(() => {
    near.destroy()
    far.destroy()
    server.close()
  })

  /** Reads from the peer until it has this many bytes. */
  async function read(length: number): Promise<Buffer> {
    const chunks: Buffer[] = []
    let bytes = 0
    for await (const chunk of far as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes >= length) break
    }
    return Buffer.concat(chunks)
  }

  /** More bytes than the kernel takes. Each block of 64 KiB has another number. */
  const NUMBERS = Array.from({ length: 200 }, (_, n) => n)
  const block = (n: number): Buffer => Buffer.alloc(64 * 1024, n)

  describe('writes below the stream of a socket', () => {
    it('reach the peer without bytes in the stream', async () => {
      expect(sink.write(Buffer.from('one '))).toBe(true)
      expect(sink.writev([Buffer.from('two '), Uint8Array.of(51)])).toBe(true)
      expect(sink.writableLength).toBe(0)
      expect((await read(9)).toString()).toBe('one two 3')
    })

    it('wait in order for a peer that reads late, together with writes of the stream', async () => {
      let drained = 0
      const taken = NUMBERS.map((n) => {
        if (n === 150) near.write(block(n))
        else if (n % 2 === 0) return sink.write(block(n))
        else return sink.writev([block(n)])
        return false
      })
      expect(taken.at(-1)).toBe(false)
      expect(sink.writableLength).toBeGreaterThan(64 * 1024)
      // At most the rest of the stream’s own block.
      expect(near.writableLength).toBeLessThanOrEqual(64 * 1024)
      sink.onceDrained(() => drained++)
      const all = await read(NUMBERS.length * 64 * 1024)
      expect(all.equals(Buffer.concat(NUMBERS.map(block)))).toBe(true)
      expect(drained).toBe(1)
      expect(sink.writableLength).toBe(0)
      expect(sink.write(Buffer.from('on'))).toBe(true)
    })

    it('end the connection if the peer is gone', async () => {
      const closed = new Promise((resolve) => near.once('close', resolve))
      for (const n of NUMBERS) sink.write(block(n))
      far.resetAndDestroy()
      await closed
      expect(sink.write(Buffer.from('late'))).toBe(true)
      expect(near.destroyed).toBe(true)
    })

    it('report that the peer is gone, and leave the end of the socket to a listener that takes it', async () => {
      let losses = 0
      const lost = () => ++losses > 0
      const own = new Sockets().to(near, { lost })
      far.resetAndDestroy()
      while (losses === 0) {
        own.write(Buffer.from('late'))
        await new Promise(setImmediate)
      }
      expect(near.destroyed).toBe(false)
    })

    it('precede the end of the stream', async () => {
      for (const n of NUMBERS) sink.write(block(n))
      near.end('bye')
      const all = await read(NUMBERS.length * 64 * 1024 + 3)
      expect(all.subarray(-3).toString()).toBe('bye')
      expect(all.length).toBe(NUMBERS.length * 64 * 1024 + 3)
    })
  })

  describe('writes to a socket that is not TCP', () => {
    it('use its stream', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'roomful-socket-'))
      const local = createServer((socket) => {
        const own = new Sockets().to(socket, { lost: () => false })
        own.write(Buffer.from('a'))
        own.writev([Buffer.from('b'), Buffer.from('c')])
      }).listen(join(folder, 'socket'))
      await once(local, 'listening')
      far.destroy()
      far = connect(join(folder, 'socket'))
      expect((await read(3)).toString()).toBe('abc')
      local.close()
      await rm(folder, { recursive: true })
    })
  })
})

describe('FrameReader', () => {
  const MOST_BYTES = 1000
  const turn = () => new Promise((resolve) => setImmediate(resolve))

  let server: Server
  let address: AddressInfo

  beforeAll(async () => {
    server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    address = server.address() as AddressInfo
  })

  afterAll(() => {
    server.close()
  })

  /** Both ends of a TCP connection, and the bytes that the server writes. */
  async function connection(): Promise<{ near: Socket; far: Socket; written: Buffer[] }> {
    const far = connect(address.port, address.address).on('error', () => undefined)
    const [near] = (await once(server, 'connection')) as [Socket]
    near.on('error', () => undefined)
    far.resume()
    const written: Buffer[] = []
    const { write } = near
    near.write = (bytes: Buffer, ...rest: never[]) => {
      written.push(Buffer.from(bytes))
      return write.call(near, bytes, ...rest)
    }
    return { near, far, written }
  }

  /** Actions of the application after this many messages, in the middle of a read. */
  interface Reaction {
    readonly after: number
    readonly does: 'pause' | 'close' | 'terminate'
  }

  /** Everything that a server notices of a client that sends these chunks, and its answers. */
  async function play(
    chunks: readonly Buffer[],
    { after, does }: Reaction,
    ahead: boolean,
  ): Promise<{ events: string[]; frames: number }> {
    const webSockets = new WebSocketServer({
      noServer: true,
      perMessageDeflate: false,
      autoPong: false,
      maxPayload: MOST_BYTES,
      maxFragments: 5,
    })
    const { near, far, written } = await connection()
    const request = new IncomingMessage(new Socket())
    request.method = 'GET'
    request.headers = {
      upgrade: 'websocket',
      'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
      'sec-websocket-version': '13',
    }
    const ws = await new Promise<WebSocket>((resolve) => {
      webSockets.handleUpgrade(request, near, Buffer.alloc(0), resolve)
    })
    const events: string[] = []
    let messages = 0
    let frames = 0
    const message = (data: Buffer, binary: boolean) => {
      events.push(`${binary ? 'binary' : 'text'} ${data.toString('hex')}`)
      messages += 1
      if (messages !== after) return
      if (does === 'pause') {
        ws.pause()
        setImmediate(() => ws.resume())
        return
      }
      if (does === 'close') ws.close(4000, 'enough')
      else ws.terminate()
    }
    ws.on('message', message)
    ws.on('ping', (data) => events.push(`ping ${data.toString('hex')}`))
    ws.on('pong', (data) => events.push(`pong ${data.toString('hex')}`))
    ws.on('error', (error) => events.push(`error ${error.message}`))
    ws.on('close', (code, reason) => events.push(`closed ${code} ${reason}`))
    if (ahead) {
      const frame = (payload: Buffer) => {
        frames += 1
        message(payload, true)
      }
      const lost = () => {
        ws.terminate()
        return true
      }
      new FrameReader(near, MOST_BYTES, { message: frame, read() {}, lost }, new Sockets())
    }
    let sent = 0
    for (const chunk of chunks) {
      far.write(chunk)
      sent += chunk.length
      while (near.bytesRead < sent && !near.destroyed) await turn()
      await turn()
    }
    if (!near.destroyed) far.end()
    while (!near.readableEnded && !near.destroyed) await turn()
    await turn()
    ws.terminate()
    far.destroy()
    await turn()
    events.push(`answered ${Buffer.concat(written.slice(1)).toString('hex')}`)
    return { events, frames }
  }

  interface Header {
    /** FIN, RSV and opcode. */
    readonly first: number
    readonly masked?: boolean
    /** Number of bytes of the length, if it has more than it needs. */
    readonly lengthBytes?: 2 | 8
  }

  function encode(
    { first, masked = true, lengthBytes }: Header,
    payload: Uint8Array,
    mask: Uint8Array,
  ): Buffer {
    const { length } = payload
    const takes = lengthBytes ?? (length < 126 ? 0 : 2)
    const bytes = Buffer.alloc(2 + takes + (masked ? 4 : 0) + length)
    bytes[0] = first
    bytes[1] = (masked ? 0x80 : 0) | (takes === 0 ? length : takes === 2 ? 126 : 127)
    if (takes === 2) bytes.writeUInt16BE(length, 2)
    if (takes === 8) bytes.writeBigUInt64BE(BigInt(length), 2)
    let at = 2 + takes
    if (masked) {
      bytes.set(mask, at)
      at += 4
    }
    for (let i = 0; i < length; i++) bytes[at + i] = payload[i]! ^ (masked ? mask[i & 3]! : 0)
    return bytes
  }

  const MASKS = fc.oneof(
    { weight: 5, arbitrary: fc.uint8Array({ minLength: 4, maxLength: 4 }) },
    fc.constant(new Uint8Array(4)),
  )
  const frames = (header: Header, maxLength: number, minLength = 0) =>
    fc
      .tuple(fc.uint8Array({ minLength, maxLength }), MASKS)
      .map(([payload, mask]) => encode(header, payload, mask))
  const texts = (first: number) =>
    fc
      .tuple(fc.string({ unit: 'binary' }), MASKS)
      .map(([text, mask]) => encode({ first }, Buffer.from(text), mask))

  const SOUND = fc.oneof(
    { weight: 12, arbitrary: frames({ first: 0x82 }, 40) },
    { weight: 2, arbitrary: frames({ first: 0x82 }, MOST_BYTES) },
    { weight: 2, arbitrary: frames({ first: 0x89 }, 125) },
    { weight: 2, arbitrary: frames({ first: 0x8a }, 125) },
  )
  const RARE = fc.oneof(
    SOUND,
    texts(0x81),
    frames({ first: 0x82, lengthBytes: 2 }, 200),
    frames({ first: 0x82, lengthBytes: 8 }, 200),
    // Fragments, in order or not.
    fc
      .tuple(fc.array(SOUND, { maxLength: 3 }), frames({ first: 0x02 }, 30), frames({ first: 0x80 }, 30))
      .map(([between, begin, end]) => Buffer.concat([begin, ...between, end])),
    fc.tuple(texts(0x01), texts(0x00), texts(0x80)).map((all) => Buffer.concat(all)),
    fc.constantFrom(0x02, 0x01, 0x00, 0x80).chain((first) => frames({ first }, 30)),
    // A close frame, valid or not, and data behind it.
    fc.tuple(fc.constantFrom(1000, 1005, 3999, 4000, 900), fc.string(), MASKS).map(([code, reason, mask]) => {
      const payload = Buffer.concat([Buffer.of(code >> 8, code & 0xff), Buffer.from(reason).subarray(0, 100)])
      return encode({ first: 0x88 }, payload, mask)
    }),
    frames({ first: 0x88 }, 3),
    // Frames that no client may send.
    fc.nat(255).chain((first) => frames({ first }, 20)),
    fc.constantFrom(0x82, 0x89).chain((first) => frames({ first, masked: false }, 20)),
    fc.constantFrom(0x89, 0x8a, 0x88, 0x09).chain((first) => frames({ first }, 200, 100)),
    frames({ first: 0x82 }, MOST_BYTES + 50, MOST_BYTES - 5),
    fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
  )
  const STREAM = fc
    .array(fc.oneof({ weight: 6, arbitrary: SOUND }, RARE), { maxLength: 30 })
    .map((all) => Buffer.concat(all))
  /** Positions at which reads of the socket end: often within a frame’s header. */
  const CUTS = fc.infiniteStream(
    fc.oneof(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 300 }), fc.constant(65_536)),
  )
  const REACTION = fc.record({
    after: fc.integer({ min: 1, max: 40 }),
    does: fc.constantFrom<Reaction['does']>('pause', 'close', 'terminate'),
  })

  function cut(stream: Buffer, sizes: Iterator<number>): Buffer[] {
    const chunks: Buffer[] = []
    for (let at = 0; at < stream.length; ) {
      const size = sizes.next().value as number
      chunks.push(stream.subarray(at, at + size))
      at += size
    }
    return chunks
  }

  describe('reading frames before ws gets them', () => {
    it('changes nothing that a server notices, whatever arrives and wherever a read ends', async () => {
      let ahead = 0
      await fc.assert(
        fc.asyncProperty(STREAM, CUTS, REACTION, async (stream, sizes, reaction) => {
          const chunks = cut(stream, sizes)
          const bare = await play(chunks, reaction, false)
          const read = await play(chunks, reaction, true)
          expect(read.events).toEqual(bare.events)
          ahead += read.frames
        }),
        { numRuns: runLength(200, 600) },
      )
      // Otherwise the test would prove nothing.
      expect(ahead).toBeGreaterThan(runLength(300, 1_000))
    })

    it('takes nothing that arrives while the stream is paused', async () => {
      const { near, far } = await connection()
      const messages: string[] = []
      near.on('data', () => undefined)
      const message = (payload: Buffer) => void messages.push(payload.toString())
      new FrameReader(near, MOST_BYTES, { message, read() {}, lost: () => false }, new Sockets())
      const send = async (text: string): Promise<void> => {
        const sent = near.bytesRead
        far.write(encode({ first: 0x82 }, Buffer.from(text), Uint8Array.of(1, 2, 3, 4)))
        while (near.bytesRead === sent) await turn()
      }
      await send('one')
      await send('two')
      near.pause()
      await send('three')
      expect(messages).toEqual(['one', 'two'])
      near.resume()
      await send('four')
      expect(messages).toEqual(['one', 'two', 'three', 'four'])
      far.destroy()
    })

    it('continues behind a ping and a frame that arrived in parts', async () => {
      const mask = Uint8Array.of(1, 2, 3, 4)
      const message = encode({ first: 0x82 }, Buffer.from('move'), mask)
      const ping = encode({ first: 0x89 }, Buffer.from('?'), mask)
      const stream = Buffer.concat([message, ping, message, message, message])
      for (let at = 1; at < stream.length; at++) {
        const chunks = [stream.subarray(0, at), stream.subarray(at)]
        const { events, frames } = await play(chunks, { after: 0, does: 'close' }, true)
        expect(
          events.filter((event) => event === `binary ${Buffer.from('move').toString('hex')}`),
        ).toHaveLength(4)
        expect(frames).toBeGreaterThanOrEqual(3)
      }
    })
  })
})

describe('Polling', () => {
  /** A socket that always has data. */
  class BusySocket implements PolledSocket {
    turnBytes = TURN_BYTES
    readIn: number | undefined
    paused = false

    pause(): void {
      this.paused = true
    }

    wake(): void {
      this.paused = false
    }
  }

  it('reads a socket whenever it has data in short turns of the event loop, and once in the remainder of a long turn', () => {
    const clock = new FakeClock()
    const ends: (() => void)[] = []
    const polling = new Polling(clock, { inputIntervalMs: 0 }, (end) => ends.push(end))
    const readsIn = (ms: number): number => {
      const socket = new BusySocket()
      let reads = 0
      for (let at = 0; at < ms; at += 2) {
        if (!socket.paused) {
          reads++
          polling.read(socket)
        }
        clock.advance(2)
      }
      for (const end of ends.splice(0)) end()
      expect(socket.paused).toBe(false)
      return reads
    }
    for (let times = 0; times < 20; times++) expect(readsIn(8)).toBe(4)
    clock.advance(20)
    // In the long turn: each read in its first 10 ms, and the one that detected that it is long.
    expect(readsIn(30)).toBe(7)
    clock.advance(20)
    expect(readsIn(8)).toBe(4)
  })
})
