import { describe, expect, it } from 'vitest'
import { revocation } from './revoke.ts'

describe('the check of a revocation', () => {
  it('is kept when every session was seen to be closed in time', () => {
    const closed = [
      { seenMs: 180, openMs: 170 },
      { seenMs: 1000, openMs: 200 },
    ]
    expect(revocation(closed, 2)).toMatchObject({
      violations: 0,
      note: '2 of 2 sessions closed',
      examples: [],
    })
  })

  it('tells a service that was late from a generator that may have looked too late, and counts both', () => {
    const closed = [
      { seenMs: 400, openMs: 390 },
      { seenMs: 1220, openMs: 1205 },
      { seenMs: 1310, openMs: 640 },
      { seenMs: 1315, openMs: 640 },
    ]
    expect(revocation(closed, 5)).toMatchObject({
      violations: 4,
      note: '4 of 5 sessions closed, 3 late: 1 by the service for certain, 2 perhaps only seen late by the generator',
      examples: [
        '1 sessions were not closed within 10 s',
        'a session was still open after 1205 ms, and seen to be closed after 1220 ms',
        'a session was seen to be closed after 1310 ms by a generator that had looked after 640 ms and not since',
        'a session was seen to be closed after 1315 ms by a generator that had looked after 640 ms and not since',
      ],
    })
  })
})
