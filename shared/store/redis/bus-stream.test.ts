import { describe, expect, it } from 'vitest'
import { MessageReader, publication, publicationHead } from './bus-stream.ts'

/** Values of a server with RESP3: messages between replies of all types, some of which look like messages. */
const MESSAGES = ['x', '', 'a\r\n>3\r\n$7\r\nmessage\r\n', 'ü'.repeat(200)]
const OTHERS = [
  '+OK\r\n',
  ':1\r\n',
  '-MOVED 3999 127.0.0.1:6381\r\n',
  '$5\r\nab\r\nc\r\n',
  '$-1\r\n',
  '_\r\n',
  ',1.5\r\n',
  '#t\r\n',
  '*0\r\n',
  '*-1\r\n',
  '%2\r\n+proto\r\n:3\r\n+list\r\n*2\r\n$1\r\na\r\n:-7\r\n',
  '>3\r\n$9\r\nsubscribe\r\n$6\r\nnode:a\r\n:1\r\n',
  '>3\r\n$12\r\nsunsubscribe\r\n$6\r\nnode:a\r\n:0\r\n',
  '>3\r\n$7\r\nmassage\r\n$1\r\na\r\n$1\r\nb\r\n',
  '=7\r\ntxt:abc\r\n',
  '~1\r\n:1\r\n',
]

const bulk = (text: string): string => `$${Buffer.byteLength(text)}\r\n${text}\r\n`
const push = (kind: string, channel: string, message: string): string =>
  `>3\r\n${bulk(kind)}${bulk(channel)}${bulk(message)}`

/** Returns the output of a reader for these chunks, in order, a line for each value. */
function read(chunks: readonly Buffer[]): string {
  const seen: string[] = []
  const reader = new MessageReader(
    (channel, message) => seen.push(`${channel}: ${message}`),
    (bytes) => seen.push(bytes.toString()),
  )
  for (const chunk of chunks) reader.read(chunk)
  return seen.join('\n')
}

describe('the reader of the bus', () => {
  const stream: string[] = []
  const values: string[] = []
  OTHERS.forEach((other, i) => {
    const message = MESSAGES[i % MESSAGES.length]!
    stream.push(push(i % 2 === 0 ? 'message' : 'smessage', `node:ä${i}`, message), other)
    values.push(`node:ä${i}: ${message}`, other)
  })
  const expected = values.join('\n')
  const bytes = Buffer.from(stream.join(''))

  it('takes out messages and passes on all other values whole, wherever the data is split', () => {
    expect(read([bytes])).toBe(expected)
    for (let cut = 1; cut < bytes.length; cut++)
      expect(read([bytes.subarray(0, cut), bytes.subarray(cut)])).toBe(expected)
    for (const size of [1, 2, 3, 7, 64]) {
      const chunks: Buffer[] = []
      for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size))
      expect(read(chunks)).toBe(expected)
    }
  })

  it('does not scan a large message again with each of its parts', () => {
    const large = Buffer.from(push('message', 'c', 'x'.repeat(1 << 20)))
    let reads = 0
    const chunks: Buffer[] = []
    for (let at = 0; at < large.length; at += 1024) {
      const chunk = large.subarray(at, at + 1024)
      const { subarray } = chunk
      Object.defineProperty(chunk, 'subarray', {
        value: (...range: Parameters<typeof subarray>) => {
          reads++
          return subarray.apply(chunk, range)
        },
      })
      chunks.push(chunk)
    }
    expect(read(chunks)).toBe(`c: ${'x'.repeat(1 << 20)}`)
    expect(reads).toBeLessThan(3)
  })
})

describe('a publication', () => {
  it('has no reply of Redis', () => {
    expect(publication(publicationHead('publish', 'näme'), Buffer.from('a\r\n')).toString()).toBe(
      '*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n*3\r\n$7\r\npublish\r\n$5\r\nnäme\r\n$3\r\na\r\n\r\n',
    )
  })
})
