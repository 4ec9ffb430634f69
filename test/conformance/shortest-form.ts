import { ProtocolFault } from './messages.ts'

/**
 * Walks one MessagePack value and throws ProtocolFault unless it is written as docs/protocol.md §4 ("Values") says
 * the server writes: integers from −2^31 to 2^32 − 1 as integers, other numbers as float64, each in its shortest form.
 * Formats: https://github.com/msgpack/msgpack/blob/master/spec.md
 */
export function checkShortest(bytes: Uint8Array): void {
  const walk = new Walk(bytes)
  walk.value(0)
  if (walk.at !== bytes.length) throw new ProtocolFault(`${bytes.length - walk.at} bytes behind the value`)
}

class Walk {
  at = 0
  private readonly view: DataView

  constructor(bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  value(depth: number): void {
    if (depth > 100) throw new ProtocolFault('more than 100 levels')
    const head = this.view.getUint8(this.at++)
    if (head <= 0x7f || head >= 0xe0 || head === 0xc0 || head === 0xc2 || head === 0xc3) return
    if (head <= 0x8f) this.values((head & 0x0f) * 2, depth)
    else if (head <= 0x9f) this.values(head & 0x0f, depth)
    else if (head <= 0xbf) this.skip(head & 0x1f)
    else this.long(head, depth)
  }

  /** A value whose head says which format it has. */
  private long(head: number, depth: number): void {
    switch (head) {
      case 0xca:
        throw new ProtocolFault('a float32: numbers are integers or float64')
      case 0xcb:
        this.float()
        break
      case 0xcc:
        this.least(head, this.read('getUint8'), 0x80)
        break
      case 0xcd:
        this.least(head, this.read('getUint16'), 0x100)
        break
      case 0xce:
        this.least(head, this.read('getUint32'), 0x10000)
        break
      case 0xd0:
        this.least(head, -this.read('getInt8'), 0x21)
        break
      case 0xd1:
        this.least(head, -this.read('getInt16'), 0x81)
        break
      case 0xd2:
        this.least(head, -this.read('getInt32'), 0x8001)
        break
      case 0xd9:
        this.text(head, this.read('getUint8'), 0x20)
        break
      case 0xda:
        this.text(head, this.read('getUint16'), 0x100)
        break
      case 0xdb:
        this.text(head, this.read('getUint32'), 0x10000)
        break
      case 0xdc:
        this.many(head, this.read('getUint16'), 0x10, 1, depth)
        break
      case 0xdd:
        this.many(head, this.read('getUint32'), 0x10000, 1, depth)
        break
      case 0xde:
        this.many(head, this.read('getUint16'), 0x10, 2, depth)
        break
      case 0xdf:
        this.many(head, this.read('getUint32'), 0x10000, 2, depth)
        break
      default:
        throw new ProtocolFault(`0x${head.toString(16)}: bin, ext and 64-bit integers are not written`)
    }
  }

  private read(getter: 'getUint8' | 'getUint16' | 'getUint32' | 'getInt8' | 'getInt16' | 'getInt32'): number {
    const value = this.view[getter](this.at)
    this.at += Number(getter.replace(/\D/g, '')) / 8
    return value
  }

  private float(): void {
    const value = this.view.getFloat64(this.at)
    this.at += 8
    if (!Number.isFinite(value)) throw new ProtocolFault(`${value} is no JSON value`)
    if (Number.isInteger(value) && value >= -(2 ** 31) && value < 2 ** 32 && !Object.is(value, -0)) {
      throw new ProtocolFault(`${value} as a float64: integers from −2^31 to 2^32 − 1 are integers`)
    }
  }

  private least(head: number, value: number, least: number): void {
    if (value < least) throw new ProtocolFault(`0x${head.toString(16)} for ${value}: not the shortest form`)
  }

  private text(head: number, length: number, least: number): void {
    this.least(head, length, least)
    this.skip(length)
  }

  private many(head: number, size: number, least: number, values: number, depth: number): void {
    this.least(head, size, least)
    this.values(size * values, depth)
  }

  private values(count: number, depth: number): void {
    for (let index = 0; index < count; index += 1) this.value(depth + 1)
  }

  private skip(length: number): void {
    this.at += length
    if (this.at > this.view.byteLength) throw new ProtocolFault('a text longer than the frame')
  }
}
