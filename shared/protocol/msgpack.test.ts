import { decode, encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ProtocolError } from './error-codes.ts'
import { endOfValue, KnownStrings, MsgpackReader, MsgpackWriter } from './msgpack.ts'
import { decimals } from './testing/decimals.ts'

const writer = new MsgpackWriter()

function written(value: number): Uint8Array {
  writer.begin().number(value)
  return writer.take()
}

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const read = (text: string) =>
  new MsgpackReader(Uint8Array.from(Buffer.from(text.replaceAll(' ', ''), 'hex'))).value()

describe('numbers', () => {
  test.each([
    [0.1, 'd4 00 01'],
    [-0.1, 'd4 0f ff'],
    [0.01, 'd4 10 01'],
    [0.001, 'd4 20 01'],
    [0.0001, 'd4 30 01'],
    [1.5, 'd4 00 0f'],
    [20.47, 'd4 17 ff'],
    [20.48, 'd5 10 0800'],
    [-20.48, 'd4 18 00'],
    [655.35, 'd5 10 ffff'],
    [655.37, 'd5 11 0001'],
    [1000.01, 'd5 11 86a1'],
    [5242.87, 'd5 17 ffff'],
    [-5242.88, 'd5 18 0000'],
    [5242.89, 'd6 10 00080001'],
    [-5242.89, 'd6 1f fff7ffff'],
    [343_597_383.67, 'd6 17 ffffffff'],
    [343_597_383.69, 'cb 41b47ae147b0a3d7'],
    [0.12345, 'cb 3fbf9a6b50b0f27c'],
    // Their decimal form is longer than float32.
    [0.015625, 'ca 3c800000'],
    [123_456.75, 'ca 47f12060'],
    [2 ** 32, 'ca 4f800000'],
    [-(2 ** 40), 'ca d3800000'],
    [1 / 3, 'cb 3fd5555555555555'],
    [1_795_181_400_123, 'cb 427a1f926503b000'],
    [5e-324, 'cb 0000000000000001'],
    [1, '01'],
    [1000, 'cd 03e8'],
    [-0, '00'],
  ])('%d takes the bytes %s', (value, form) => {
    expect(hex(written(value))).toBe(form.replaceAll(' ', ''))
    expect(read(form)).toBe(value === 0 ? 0 : value)
  })

  test('a coordinate rounded to 0.01 has at most 4 bytes, and every reader gets the same double', () => {
    for (let hundredths = -524_288; hundredths < 524_288; hundredths++) {
      const value = hundredths / 100
      const bytes = written(value)
      if (bytes.length > 4) throw new Error(`${value} takes ${bytes.length} bytes`)
      // 0 and -0 are equal states.
      if (new MsgpackReader(bytes).value() !== value) throw new Error(`${value} is read as another number`)
    }
  })

  /** -0 is read as 0. */
  const isSame = (read: unknown, value: number): boolean => Object.is(read, value === 0 ? 0 : value)

  test('every number is read as it was written, and is never longer than a float64 or than its digits require', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.double({ noNaN: true, noDefaultInfinity: true }),
          fc.float({ noNaN: true, noDefaultInfinity: true }),
          fc.maxSafeInteger(),
        ),
        (value) => {
          const bytes = written(value)
          return bytes.length === shortest(value) && isSame(new MsgpackReader(bytes).value(), value)
        },
      ),
      { numRuns: 8_000 },
    )
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 1, max: 6 }), (digits, places) => {
        const value = digits / 10 ** places
        const bytes = written(value)
        // By the rules of docs/protocol.md, with an independent reader.
        const independent = decode(bytes, { extensionCodec: decimals })
        return (
          bytes.length === shortest(value) &&
          isSame(new MsgpackReader(bytes).value(), value) &&
          isSame(independent, value)
        )
      }),
      { numRuns: 8_000 },
    )
  })

  test.each([
    'd4 40 01',
    'd5 ff 0001',
    'd7 00 0000000000000001',
    'd8 00',
    'c7 03 10 000001',
    'd5 10 ff',
    'd6',
  ])('an extension that is no decimal number is refused: %s', (form) => {
    expect(() => read(form)).toThrow(ProtocolError)
  })
})

test.each([
  ...[
    'c0',
    'c2',
    'c3',
    '7f',
    'e0',
    'a0',
    'a3616263',
    '80',
    '90',
    '92c0c0',
    '81a161c0',
    'c40161',
    'c5000161',
    'c60000000161',
  ],
  ...[
    'c70105ff',
    'c8000105ff',
    'c90000000105ff',
    'd40501',
    'd5050102',
    'd60501020304',
    `d705${'00'.repeat(8)}`,
  ],
  ...[
    `d805${'00'.repeat(16)}`,
    'ca00000000',
    `cb${'00'.repeat(8)}`,
    'cc00',
    'cd0000',
    'ce00000000',
    `cf${'00'.repeat(8)}`,
  ],
  ...[
    'd000',
    'd10000',
    'd200000000',
    `d3${'00'.repeat(8)}`,
    'd90161',
    'da000161',
    'db0000000161',
    'dc0001c0',
  ],
  ...['dd00000001c0', 'de000101c0', 'df0000000101c0', '9391c0920102a161', '82a16193010203a16281a16301'],
])('the value %s ends where its bytes do, and not before', (form) => {
  const bytes = Uint8Array.from(Buffer.from(`c0${form}c0`, 'hex'))
  expect(endOfValue(bytes, 1)).toBe(bytes.length - 1)
  for (let end = 1; end < bytes.length - 1; end++)
    expect(() => endOfValue(bytes.subarray(0, end), 1)).toThrow(ProtocolError)
})

test('skipping finds the end of each value of another library', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const bytes = encode(value)
      expect(endOfValue(bytes, 0)).toBe(bytes.length)
    }),
    { numRuns: 1_000 },
  )
})

/** Returns the number of bytes that a number needs, by its digits. */
function shortest(value: number): number {
  if (Number.isInteger(value) && value >= -(2 ** 31) && value < 2 ** 32) {
    const ends = value < 0 ? [-32, -128, -32_768] : [127, 255, 65_535]
    const size = ends.findIndex((end) => Math.abs(value) <= Math.abs(end))
    return size < 0 ? 5 : size + 1
  }
  const float = Math.fround(value) === value ? 5 : 9
  const [, whole, part = '0'] = /^(-?\d+)(?:\.(\d{1,4}))?$/.exec(String(value)) ?? []
  const mantissa = whole === undefined ? Number.POSITIVE_INFINITY : Number(whole + part)
  const decimal = [12, 20, 36].findIndex(
    (bits) => mantissa >= -(2 ** (bits - 1)) && mantissa < 2 ** (bits - 1),
  )
  return decimal < 0 ? float : Math.min(float, [3, 4, 6][decimal]!)
}

test('a cached string is equal to the text of its bytes, whatever was read before', () => {
  const known = new KnownStrings()
  const texts = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 3 }),
    fc.string({ unit: 'grapheme', maxLength: 90 }),
  )
  fc.assert(
    fc.property(texts, fc.nat(5), (text, before) => {
      const utf8 = new TextEncoder().encode(text)
      const bytes = new Uint8Array(before + utf8.length + 1).fill(0x2d)
      bytes.set(utf8, before)
      expect(known.text(bytes, before, before + utf8.length)).toBe(new TextDecoder().decode(utf8))
    }),
    { numRuns: 1_000 },
  )
})

test('a cached string does not keep the buffer that it came from', () => {
  const known = new KnownStrings()
  const bytes = new TextEncoder().encode('arena:1')
  expect(known.text(bytes, 0, 7)).toBe('arena:1')
  bytes[6] = 0x32
  expect(known.text(bytes, 0, 7)).toBe('arena:2')
  bytes[6] = 0x31
  expect(known.text(bytes, 0, 7)).toBe('arena:1')
})
