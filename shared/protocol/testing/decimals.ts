import { ExtensionCodec } from '@msgpack/msgpack'

/** Reads the decimals of docs/protocol.md independently of the reader: with big integers, and digits for the double. */
export const decimals = new ExtensionCodec()
for (let type = 0; type < 64; type++)
  decimals.register({
    type,
    encode: () => null,
    decode: (data) => {
      const bits = BigInt(4 + 8 * data.length)
      const mantissa = BigInt.asIntN(
        Number(bits),
        BigInt(`0x${(type & 15).toString(16)}${Buffer.from(data).toString('hex')}`),
      )
      return Number(`${mantissa}e-${1 + (type >> 4)}`)
    },
  })
