import { describe, expect, it } from 'vitest'
import { JsonCodec } from './json-codec.ts'
import type { MemberInfo } from './messages.ts'
import { MsgpackCodec } from './msgpack-codec.ts'

/** Two thousand who join one room together would else cost four million of these. */
describe.each([JsonCodec, MsgpackCodec])('%o', (Codec) => {
  it('encodes the list of members once for all who come with it', () => {
    let encoded = 0
    const ada = {
      sub: null,
      connected: true,
      get member_id() {
        encoded += 1
        return 'mem_ada'
      },
    }
    const codec = new Codec()
    const joined = (memberId: string, members: readonly MemberInfo[]) =>
      codec.encode({ t: 'joined', request_id: 1, room_id: 'arena:one', member_id: memberId, members })
    const members = [ada]
    for (const memberId of ['mem_ada', 'mem_bob', 'mem_cem']) joined(memberId, members)
    expect(encoded).toBe(1)
    const later = joined('mem_dan', [{ member_id: 'mem_dan', sub: null, connected: true }])
    expect(later).toEqual(
      new Codec().encode({
        t: 'joined',
        request_id: 1,
        room_id: 'arena:one',
        member_id: 'mem_dan',
        members: [{ member_id: 'mem_dan', sub: null, connected: true }],
      }),
    )
  })
})
