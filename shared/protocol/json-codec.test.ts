import { expect, test } from 'vitest'
import { ProtocolError } from './error-codes.ts'
import { JsonCodec } from './json-codec.ts'
import { codecSuite } from './testing/codec-suite.ts'
import { JsonClientCodec } from './testing/json-client-codec.ts'

const utf8 = (text: string) => new TextEncoder().encode(text)

codecSuite('roomful.v1.json', {
  codec: () => new JsonCodec(),
  client: () => new JsonClientCodec(),
  raw: (fields) => utf8(JSON.stringify(fields)),
  later: utf8('{"t":"later","room_id":"arena:lobby","x":null}'),
})

test.each(['', 'hello', '[1]', '5', 'null', '"x"', '{"t":"ping","at":1} {}', '\ufeff{"t":"ping","at":1}'])(
  '%j is a ProtocolError',
  (text) => {
    expect(() => new JsonCodec().decode(utf8(text))).toThrow(ProtocolError)
  },
)

test('bytes that are not UTF-8 are a ProtocolError', () => {
  expect(() => new JsonCodec().decode(Uint8Array.from([0x22, 0xff, 0x22]))).toThrow(ProtocolError)
})

test.each([
  ['{}', /^t is missing; it must be one of hello, join/],
  ['{"t":5}', /^t is 5/],
  ['{"t":"toString"}', /^t is a string/],
  ['{"t":"message","room_id":"a:b","type":"x"}', /^data is missing/],
  [
    '{"t":"message","room_id":"a:b","type":"x","data":{"a":[1e999]}}',
    /^data: the value at \/a\/0 is Infinity/,
  ],
  [
    '{"t":"message","room_id":"a:b","type":"x","data":{"n":"\\ud800"}}',
    /^data: the value at \/n .*surrogate/,
  ],
  ['{"t":"hello","project_id":"p","token":"x","resume":{}}', /^hello has both token and resume/],
])('%s is an invalid message, with the reason', (text, said) => {
  expect(() => new JsonCodec().decode(utf8(text))).toThrow(
    expect.objectContaining({ name: 'InvalidMessage', message: expect.stringMatching(said) }),
  )
})

const withData = (data: string) =>
  new JsonCodec().decode(
    utf8(`{"t":"message","room_id":"a:b","type":"x","data":${data},"ref":7,"settled":0}`),
  )

test.each(['9007199254740992', '-9007199254740993', '{"a":[1,{"b":123456789012345678901234567890}]}'])(
  '%s as data makes the message invalid, because an integer would be rounded',
  (data) => {
    expect(() => withData(data)).toThrow(
      expect.objectContaining({
        name: 'InvalidMessage',
        message: expect.stringContaining('an integer beyond 2^53 - 1'),
        ref: 7,
        room_id: 'a:b',
      }),
    )
  },
)

test.each([
  '9007199254740991',
  '1e300',
  '1.2345678901234567890',
  '12345678901234567890.5',
  '12345678901234567890E2',
  '"12345678901234567890"',
  '"\\" 12345678901234567890"',
  '{"12345678901234567890":0.12345678901234567}',
])('%s as data is unchanged', (data) => {
  expect(withData(data)).toMatchObject({ data: JSON.parse(data) })
})
