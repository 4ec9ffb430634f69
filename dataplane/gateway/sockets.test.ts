import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type ByteSink, Sockets } from './sockets.ts'

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
  sink = new Sockets().to(near)
})

afterEach(() => {
  near.destroy()
  far.destroy()
  server.close()
})

/** What the peer reads, until it has so many bytes. */
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

/** More than the kernel takes, each 64 KiB of a number of their own. */
const NUMBERS = Array.from({ length: 200 }, (_, n) => n)
const block = (n: number): Buffer => Buffer.alloc(64 * 1024, n)

describe('writes past the stream of a socket', () => {
  it('reach the peer without leaving anything in the stream', async () => {
    expect(sink.write(Buffer.from('one '))).toBe(true)
    expect(sink.writev([Buffer.from('two '), Uint8Array.of(51)])).toBe(true)
    expect(sink.writableLength).toBe(0)
    expect((await read(9)).toString()).toBe('one two 3')
  })

  it('wait for a peer that reads late, in their order, with what the stream writes in its place', async () => {
    let drained = 0
    const taken = NUMBERS.map((n) => {
      if (n === 150) near.write(block(n))
      else if (n % 2 === 0) return sink.write(block(n))
      else return sink.writev([block(n)])
      return false
    })
    expect(taken.at(-1)).toBe(false)
    expect(sink.writableLength).toBeGreaterThan(64 * 1024)
    // Of the stream's own block at most.
    expect(near.writableLength).toBeLessThanOrEqual(64 * 1024)
    sink.onceDrained(() => drained++)
    const all = await read(NUMBERS.length * 64 * 1024)
    expect(all.equals(Buffer.concat(NUMBERS.map(block)))).toBe(true)
    expect(drained).toBe(1)
    expect(sink.writableLength).toBe(0)
    expect(sink.write(Buffer.from('on'))).toBe(true)
  })

  it('end the connection when the peer is gone', async () => {
    const closed = new Promise((resolve) => near.once('close', resolve))
    for (const n of NUMBERS) sink.write(block(n))
    far.resetAndDestroy()
    await closed
    expect(sink.write(Buffer.from('late'))).toBe(true)
    expect(near.destroyed).toBe(true)
  })

  it('come before the end of the stream', async () => {
    for (const n of NUMBERS) sink.write(block(n))
    near.end('bye')
    const all = await read(NUMBERS.length * 64 * 1024 + 3)
    expect(all.subarray(-3).toString()).toBe('bye')
    expect(all.length).toBe(NUMBERS.length * 64 * 1024 + 3)
  })
})

describe('writes to a socket that is none of TCP', () => {
  it('go by its stream', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'roomful-socket-'))
    const local = createServer((socket) => {
      const own = new Sockets().to(socket)
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
